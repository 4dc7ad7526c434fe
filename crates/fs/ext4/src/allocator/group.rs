//! The allocator's state of one block group.
//!
//! Invariant: the next commit writes `descriptor`. Its counts follow from the bitmaps. The count of blocks is in the
//! cache. The count of inodes is in `changed_inodes`, or in the cache if the running transaction has not changed it.
//! Locking: one leaf mutex per group; below it only the allocator's trees and lists, and the cache.
//! Source: Linux `fs/ext4/balloc.c` `ext4_init_block_bitmap`, `ext4_num_base_meta_clusters`; `fs/ext4/bitmap.c`.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits groups, clusters and blocks")]

use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::{Deref, Range};

use obento_base::wire::{FromBytes, to_usize};
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::Block;
use obento_journal::{Taken, Txn};

use super::bits;
use super::held::HeldRanges;
use crate::checksum::Crc;
use crate::group::{GroupDescriptor, GroupFlags};
use crate::raw::{RawGroup32, RawGroupHigh};
use crate::super_block::{Checksums, SuperBlock};
use crate::volume::Volume;

/// Whether a bitmap has been verified since the volume was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BitmapState {
    /// The bitmap was not verified yet.
    Unknown,
    /// It agrees with its checksum and its descriptor.
    Sound,
    /// The bitmap contradicts other data: nothing is allocated from this group.
    Damaged(Error),
}

/// One block group.
#[derive(Debug)]
pub struct Group {
    pub descriptor: GroupDescriptor,
    pub held: HeldRanges,
    pub blocks: BitmapState,
    pub inodes: BitmapState,
    pub changed_inodes: Option<Bitmap>,
    /// All inodes before this one are in use.
    pub first_inode: u32,
}

/// A bitmap of the running transaction. The commit writes it.
#[derive(Debug)]
pub struct Bitmap {
    pub bytes: Vec<u8>,
    taken: Taken,
    is_noted: bool,
}

impl Bitmap {
    /// Records a change. Returns whether it is the first one in the transaction.
    pub fn note(&mut self, txn: &mut Txn<'_>) -> bool {
        let is_first = !core::mem::replace(&mut self.is_noted, true);
        if is_first {
            txn.note(&self.taken);
        }
        is_first
    }

    /// Writes the bitmap to its block.
    pub fn store(&self, txn: &mut Txn<'_>) {
        if self.is_noted {
            txn.edit(&self.taken).copy_from_slice(&self.bytes);
        }
    }
}

/// The bits of a bitmap, read or computed.
pub enum Bits {
    Stored(Block),
    /// The computed bitmap of a group whose bitmap was never written.
    Fresh(Vec<u8>),
}

impl Deref for Bits {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(block) => block,
            Self::Fresh(bytes) => bytes,
        }
    }
}

impl Group {
    pub fn new(descriptor: GroupDescriptor) -> Self {
        let (blocks, inodes) = (BitmapState::Unknown, BitmapState::Unknown);
        Self { descriptor, held: HeldRanges::default(), blocks, inodes, changed_inodes: None, first_inode: 0 }
    }

    /// Returns the number of clusters that can be allocated now.
    pub fn available(&self) -> u32 {
        match self.blocks {
            BitmapState::Damaged(_) => 0,
            _ => self.descriptor.free_blocks.saturating_sub(self.held.count()),
        }
    }

    fn is_flagged(&self, sb: &SuperBlock, flag: GroupFlags) -> bool {
        sb.checksums != Checksums::None && self.descriptor.flags.contains(flag)
    }

    /// Returns whether the block bitmap was never written.
    pub fn has_fresh_blocks(&self, sb: &SuperBlock) -> bool {
        self.is_flagged(sb, GroupFlags::BLOCK_UNINIT)
    }

    /// Returns whether the inode bitmap was never written.
    pub fn has_fresh_inodes(&self, sb: &SuperBlock) -> bool {
        self.is_flagged(sb, GroupFlags::INODE_UNINIT)
    }

    /// Returns the block bitmap of group `index`. Fails with `Corrupt` if the bitmap contradicts its checksum, its
    /// descriptor or the place of the group's own metadata; all later calls then fail, too. Fails if the device fails.
    pub fn block_bits(&mut self, volume: &Volume, index: u32) -> Result<Bits> {
        let sb = volume.super_block();
        if self.has_fresh_blocks(sb) {
            return fresh_block_bitmap(sb, index, &self.descriptor).map(Bits::Fresh);
        }
        if let BitmapState::Damaged(error) = self.blocks {
            return Err(error);
        }
        let block = volume.cache().get(self.descriptor.block_bitmap.0)?;
        if self.blocks == BitmapState::Unknown {
            self.blocks = BitmapState::Sound;
            if let Err(error) = self.check_blocks(volume, index, &block) {
                self.blocks = BitmapState::Damaged(error);
                return Err(error);
            }
        }
        Ok(Bits::Stored(block))
    }

    fn check_blocks(&self, volume: &Volume, index: u32, block: &Block) -> Result<()> {
        let (sb, structure) = (volume.super_block(), Structure::BlockBitmap(index.into()));
        check_sum(volume, index, BitmapKind::Blocks, block)?;
        for range in own_clusters(sb, index, &self.descriptor) {
            if bits::next_clear(block, range.clone()) < range.end {
                let (start, len) = (block.number(), u64::from(range.end - range.start));
                return Err(Corrupt::BlockRange { structure, at: range.start.into(), start, len }.into());
            }
        }
        let free = bits::count_clear(block, 0..sb.group_clusters(index));
        self.check_count(volume, index, ("bg_free_blocks_count", 0xc), self.descriptor.free_blocks, free)
    }

    /// Returns the inode bitmap of group `index`. Fails in the same cases as [`Self::block_bits`].
    pub fn inode_bits(&mut self, volume: &Volume, index: u32) -> Result<Bits> {
        let sb = volume.super_block();
        if self.has_fresh_inodes(sb) {
            return fresh_inode_bitmap(sb).map(Bits::Fresh);
        }
        if let BitmapState::Damaged(error) = self.inodes {
            return Err(error);
        }
        let block = volume.cache().get(self.descriptor.inode_bitmap.0)?;
        if self.inodes == BitmapState::Unknown {
            self.inodes = BitmapState::Sound;
            let free = bits::count_clear(&block, 0..sb.inodes_per_group);
            let counted = check_sum(volume, index, BitmapKind::Inodes, &block).and_then(|()| {
                let stored = self.descriptor.free_inodes;
                self.check_count(volume, index, ("bg_free_inodes_count", 0xe), stored, free)
            });
            if let Err(error) = counted {
                self.inodes = BitmapState::Damaged(error);
                return Err(error);
            }
        }
        Ok(Bits::Stored(block))
    }

    /// Returns the inode bitmap of group `index` for a change. Fails in the same cases as [`Self::inode_bits`].
    pub fn change_inodes(&mut self, txn: &mut Txn<'_>, volume: &Volume, index: u32) -> Result<&mut Bitmap> {
        let known = match self.changed_inodes.take() {
            Some(known) => known,
            None => {
                let bits = self.inode_bits(volume, index)?;
                let number = self.descriptor.inode_bitmap.0;
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(bits.len())?;
                bytes.extend_from_slice(&bits);
                let taken = match bits {
                    Bits::Stored(_) => txn.take(number)?,
                    Bits::Fresh(_) => txn.take_new(number)?,
                };
                Bitmap { bytes, taken, is_noted: false }
            }
        };
        Ok(self.changed_inodes.insert(known))
    }

    fn check_count(
        &self,
        volume: &Volume,
        index: u32,
        (field, offset): (&'static str, u32),
        stored: u32,
        counted: u32,
    ) -> Result<()> {
        if stored == counted {
            return Ok(());
        }
        let sb = volume.super_block();
        let (at, start) = sb.desc_place(index);
        let offset = u32::try_from(start).unwrap_or(u32::MAX) + offset;
        let (structure, block) = (Structure::GroupDescriptor(index.into()), sb.desc_block(at, 0).0);
        Err(Corrupt::Field { structure, field, block, offset, found: stored.into() }.into())
    }
}

/// One of a group's two bitmaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BitmapKind {
    Blocks,
    Inodes,
}

/// Returns the clusters of a group that contain its own metadata.
fn own_clusters(sb: &SuperBlock, index: u32, descriptor: &GroupDescriptor) -> [Range<u32>; 4] {
    let (copies, len) = sb.reserved_start(index);
    let table = u64::from(sb.inode_table_blocks());
    [
        sb.clusters_in_group(index, copies, len),
        sb.clusters_in_group(index, descriptor.block_bitmap, 1),
        sb.clusters_in_group(index, descriptor.inode_bitmap, 1),
        sb.clusters_in_group(index, descriptor.inode_table, table),
    ]
}

/// Returns the block bitmap of a group without blocks of files.
pub fn fresh_block_bitmap(sb: &SuperBlock, index: u32, descriptor: &GroupDescriptor) -> Result<Vec<u8>> {
    let mut bitmap = zeros(sb)?;
    for range in own_clusters(sb, index, descriptor) {
        bits::set(&mut bitmap, range);
    }
    bits::set(&mut bitmap, sb.group_clusters(index)..sb.block_size.bits());
    Ok(bitmap)
}

/// Returns the inode bitmap of a group without used inodes.
pub fn fresh_inode_bitmap(sb: &SuperBlock) -> Result<Vec<u8>> {
    let mut bitmap = zeros(sb)?;
    bits::set(&mut bitmap, sb.inodes_per_group..sb.block_size.bits());
    Ok(bitmap)
}

fn zeros(sb: &SuperBlock) -> Result<Vec<u8>> {
    let len = to_usize(sb.block_size.into());
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Returns the checksum of a bitmap, over as many bytes as the group has bits, or `None` if bitmaps have no
/// checksums.
pub fn bitmap_checksum(sb: &SuperBlock, kind: BitmapKind, bitmap: &[u8]) -> Option<u32> {
    let bits = match kind {
        BitmapKind::Blocks => sb.clusters_per_group(),
        BitmapKind::Inodes => sb.inodes_per_group,
    };
    let covered = bitmap.get(..to_usize((bits / 8).into()))?;
    sb.has_metadata_csum().then(|| Crc::new(sb.checksum_seed).add(covered).get())
}

/// Returns the checksum of a bitmap in the bytes of a descriptor, and the part of `expected` for which the descriptor
/// has space.
pub fn compare_sum(kind: BitmapKind, descriptor: &[u8], expected: u32) -> Option<(u32, u32)> {
    let (low, rest) = RawGroup32::ref_from_prefix(descriptor).ok()?;
    let high = RawGroupHigh::ref_from_prefix(rest).ok().map(|(high, _)| high);
    let (low, high) = match kind {
        BitmapKind::Blocks => (&low.bg_block_bitmap_csum_lo, high.map(|high| &high.bg_block_bitmap_csum_hi)),
        BitmapKind::Inodes => (&low.bg_inode_bitmap_csum_lo, high.map(|high| &high.bg_inode_bitmap_csum_hi)),
    };
    let expected = if high.is_some() { expected } else { expected & 0xffff };
    Some((u32::from(low.get()) | u32::from(high.map_or(0, |high| high.get())) << 16, expected))
}

/// Verifies a bitmap against the checksum in its group's descriptor.
fn check_sum(volume: &Volume, index: u32, kind: BitmapKind, bitmap: &Block) -> Result<()> {
    let sb = volume.super_block();
    let Some(expected) = bitmap_checksum(sb, kind, bitmap) else { return Ok(()) };
    let (at, start) = sb.desc_place(index);
    let block = volume.cache().get(sb.desc_block(at, 0).0)?;
    let bytes = block.get(start..start + usize::from(sb.desc_size)).unwrap_or_default();
    let Some((found, expected)) = compare_sum(kind, bytes, expected) else { return Ok(()) };
    if found == expected {
        return Ok(());
    }
    let structure = match kind {
        BitmapKind::Blocks => Structure::BlockBitmap(index.into()),
        BitmapKind::Inodes => Structure::InodeBitmap(index.into()),
    };
    Err(Corrupt::Checksum { structure, block: bitmap.number(), found, expected }.into())
}

/// Writes counts, flags and the given checksums of bitmaps into the bytes of a descriptor, and then the descriptor's
/// own checksum.
pub fn encode_descriptor(
    sb: &SuperBlock,
    index: u32,
    descriptor: &GroupDescriptor,
    sums: [Option<u32>; 2],
    bytes: &mut [u8],
) {
    let halves = |value: u32| {
        let [a, b, c, d] = value.to_le_bytes();
        (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
    };
    let [blocks, inodes] = sums;
    let counts = [
        halves(descriptor.free_blocks),
        halves(descriptor.free_inodes),
        halves(descriptor.used_dirs),
        halves(descriptor.itable_unused),
    ];
    let [free_blocks, free_inodes, used_dirs, unused] = counts;
    let Ok((low, rest)) = RawGroup32::mut_from_prefix(bytes) else { return };
    low.bg_free_blocks_count_lo.set(free_blocks.0);
    low.bg_free_inodes_count_lo.set(free_inodes.0);
    low.bg_used_dirs_count_lo.set(used_dirs.0);
    low.bg_itable_unused_lo.set(unused.0);
    low.bg_flags.set(descriptor.flags.bits());
    let sum =
        |to: &mut obento_base::wire::le::U16, half: Option<u16>| half.into_iter().for_each(|h| to.set(h));
    sum(&mut low.bg_block_bitmap_csum_lo, blocks.map(|sum| halves(sum).0));
    sum(&mut low.bg_inode_bitmap_csum_lo, inodes.map(|sum| halves(sum).0));
    if let Ok((high, _)) = RawGroupHigh::mut_from_prefix(rest) {
        high.bg_free_blocks_count_hi.set(free_blocks.1);
        high.bg_free_inodes_count_hi.set(free_inodes.1);
        high.bg_used_dirs_count_hi.set(used_dirs.1);
        high.bg_itable_unused_hi.set(unused.1);
        sum(&mut high.bg_block_bitmap_csum_hi, blocks.map(|sum| halves(sum).1));
        sum(&mut high.bg_inode_bitmap_csum_hi, inodes.map(|sum| halves(sum).1));
    }
    if let Some(checksum) = crate::group::descriptor_checksum(sb, index, bytes)
        && let Some(field) =
            bytes.get_mut(offset_of!(RawGroup32, bg_checksum)..).and_then(|b| b.first_chunk_mut())
    {
        *field = checksum.to_le_bytes();
    }
}
