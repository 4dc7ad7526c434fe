//! Roll forward: partial segments that were written after the checkpoint, read into memory.
//!
//! A partial segment is a summary, blocks of files, and blocks of inodes. Its summary has a number that increases by 1
//! and the identifier of the volume. It also has a checksum of itself and a checksum of the first word of each block.
//! Segments of an operation that did not end count as little as damaged ones. Inodes replace all but the addresses of
//! older versions, and blocks of files replace single addresses, as NetBSD `lfs_rfw.c` does it. Version 1 has no
//! numbers, so that NetBSD does not roll it forward, and neither does this driver.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_u64;
use obento_base::{Error, FileKind, Result};
use obento_driver::{Notice, Replay};

use crate::inode::{DIRECT, Inode};
use crate::super_block::{FIRST, PAD};
use crate::volume::Volume;

/// `SS_MAGIC`.
pub const MAGIC: u32 = 0x0006_1561;
/// `SS_CONT`: the operation continues in the next partial segment.
const CONTINUES: u16 = 2;
/// Greatest number of inodes and blocks that are kept.
const KEPT: usize = 1 << 22;

/// What was written after the checkpoint.
#[derive(Default)]
pub struct Rolled {
    /// Inodes.
    pub inodes: BTreeMap<u64, Inode>,
    /// Addresses of blocks, by inode and number.
    pub blocks: BTreeMap<(u64, u64), i64>,
    /// Number of partial segments.
    pub segments: u64,
}

/// A part of a partial segment.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// A block of inodes at this address.
    Inodes(u64),
    /// A block of a file: inode, version, number (negative for indirect blocks), address.
    Block { ino: u64, version: u32, number: i64, address: u64 },
}

/// What the summary of a partial segment lists.
struct Listed {
    parts: Vec<Part>,
    /// Address after the last part.
    next: u64,
    /// Checksum of the first words of all parts.
    sum: u32,
}

/// A partial segment whose checksums are right.
pub struct Partial {
    pub parts: Vec<Part>,
    pub continues: bool,
    /// Address of the summary.
    pub at: u64,
    /// Address of the next partial segment.
    pub next: u64,
}

/// Positions of the fields of a summary.
struct Fields {
    ident: usize,
    next: usize,
    files: usize,
    serial: usize,
}

impl Volume {
    /// Skips the disklabel and a super block at the start of a segment.
    fn after_super_block(&self, address: u64) -> u64 {
        let found = &self.super_block;
        let (label, pad) = (found.units(FIRST), found.units(PAD));
        let at = if address == found.start && address < label { label } else { address };
        if found.copies.contains(&at) { at.saturating_add(pad) } else { at }
    }

    /// Reads the partial segment `serial` at an address. `None` means that there is no such segment.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn partial(&self, address: u64, serial: u64) -> Result<Option<Partial>> {
        let found = &self.super_block;
        let encoding = found.encoding;
        let address = self.after_super_block(address);
        let Some(segment) = found.segment_of(address) else { return Ok(None) };
        let end =
            found.bytes(found.start).saturating_add(segment.saturating_add(1).saturating_mul(found.segment));
        let end = end.min(self.limit());
        if found.bytes(address).saturating_add(found.summary.into()) > end {
            return Ok(None);
        }
        let summary = self.block(address, found.summary)?;
        let fields = if encoding.is_64 {
            Fields { ident: 12, next: 16, files: 24, serial: 40 }
        } else {
            Fields { ident: 16, next: 12, files: 20, serial: 32 }
        };
        let is_valid = encoding.u32(&summary, 8) == MAGIC
            && encoding.u32(&summary, fields.ident) == found.ident
            && encoding.u64(&summary, fields.serial) == serial
            && encoding.u32(&summary, 0) == encoding.sum(summary.get(4..).unwrap_or_default());
        if !is_valid {
            return Ok(None);
        }
        let half = |at: usize| encoding.u16(&summary, fields.files.saturating_add(at));
        let Some(Listed { parts, mut next, sum }) = self.parts(&summary, address, end, (half(0), half(2)))?
        else {
            return Ok(None);
        };
        if sum != encoding.u32(&summary, 4) {
            return Ok(None);
        }
        // The rest of the segment has no room for a summary and a block.
        let room = found.units(found.block.into());
        if found.segment_of(next.saturating_add(room)) != Some(segment) {
            let Ok(other) = u64::try_from(encoding.address(&summary, fields.next)) else { return Ok(None) };
            if found.segment_of(other) == Some(segment) {
                return Ok(None);
            }
            next = other;
        }
        Ok(Some(Partial { parts, continues: half(4) & CONTINUES != 0, at: address, next }))
    }

    /// Returns what the summary of a partial segment lists, or `None` if the summary is invalid.
    fn parts(
        &self,
        summary: &Arc<[u8]>,
        start: u64,
        end: u64,
        (files, inodes): (u16, u16),
    ) -> Result<Option<Listed>> {
        let found = &self.super_block;
        let encoding = found.encoding;
        let (mut parts, mut sum) = (Vec::new(), 0);
        let mut address = start.saturating_add(found.units(found.summary.into()));
        let mut inode_blocks = u32::from(inodes).div_ceil(found.inodes.max(1));
        let mut listed = summary.len();
        let mut at = encoding.summary_len();
        let mut left = files;
        let mut first_word = |address: u64, len: u64| -> Result<bool> {
            let from = found.bytes(address);
            if from.saturating_add(len.max(4)) > end {
                return Ok(false);
            }
            let mut word = [0; 4];
            self.shared_device().read_at(from, &mut word)?;
            sum ^= encoding.sum(&word);
            Ok(true)
        };
        while left > 0 || inode_blocks > 0 {
            let place = listed.saturating_sub(encoding.word_len());
            if inode_blocks > 0 && encoding.word(summary, place) == address {
                if !first_word(address, found.inode_block.into())? {
                    return Ok(None);
                }
                parts.push(Part::Inodes(address));
                address = address.saturating_add(found.units(found.inode_block.into()));
                listed = place;
                inode_blocks = inode_blocks.saturating_sub(1);
                continue;
            }
            if left == 0 {
                return Ok(None);
            }
            left = left.saturating_sub(1);
            let count = encoding.u32(summary, at);
            let version = encoding.u32(summary, at.saturating_add(4));
            let ino = encoding.word(summary, at.saturating_add(8));
            let last = encoding.u32(summary, at.saturating_add(if encoding.is_64 { 16 } else { 12 }));
            at = at.saturating_add(encoding.file_len());
            if count == 0 || last == 0 || last > found.block {
                return Ok(None);
            }
            for index in 0..count {
                if at.saturating_add(encoding.word_len()) > listed {
                    return Ok(None);
                }
                let number = encoding.address(summary, at);
                at = at.saturating_add(encoding.word_len());
                let is_last = index == count.saturating_sub(1);
                let len = u64::from(if is_last { last } else { found.block });
                if !first_word(address, len)? {
                    return Ok(None);
                }
                parts.push(Part::Block { ino, version, number, address });
                address = address.saturating_add(found.units(len));
            }
        }
        Ok(Some(Listed { parts, next: address, sum }))
    }

    /// Reads what was written after the checkpoint.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn roll_forward(&mut self, replay: Replay) -> Result<()> {
        if self.super_block.is_clean || self.super_block.encoding.version == 1 {
            return Ok(());
        }
        let (mut whole, mut pending) = (Vec::new(), Vec::new());
        let (mut segments, mut read) = (0_u64, 0_u64);
        let Ok(mut address) = u64::try_from(self.super_block.next) else { return Ok(()) };
        let mut serial = self.super_block.serial.wrapping_add(1);
        while let Some(partial) = self.partial(address, serial)? {
            address = partial.next;
            serial = serial.wrapping_add(1);
            read = read.saturating_add(1);
            pending.extend(partial.parts);
            if !partial.continues {
                whole.append(&mut pending);
                segments = read;
            }
            if whole.len().saturating_add(pending.len()) > KEPT {
                return Err(Error::NoMemory);
            }
        }
        if segments == 0 {
            return Ok(());
        }
        if replay != Replay::InMemory {
            self.notices.push(Notice::NotReplayed);
            return Ok(());
        }
        let rolled = self.rolled_of(&whole)?;
        self.rolled = Rolled { segments, ..rolled };
        self.notices.push(Notice::Replayed { transactions: segments });
        Ok(())
    }

    fn rolled_of(&self, parts: &[Part]) -> Result<Rolled> {
        let mut newest = BTreeMap::new();
        for part in parts {
            if let Part::Inodes(address) = part {
                self.each_inode(*address, &mut |number, inode| {
                    let known = newest.entry(number).or_insert(inode.generation);
                    *known = inode.generation.max(*known);
                })?;
            }
        }
        let mut rolled = Rolled::default();
        for part in parts {
            match *part {
                Part::Inodes(address) => {
                    self.each_inode(address, &mut |number, inode| {
                        if newest.get(&number) == Some(&inode.generation) {
                            self.merge(&mut rolled, number, inode);
                        }
                    })?;
                }
                Part::Block { ino, version, number, address } if ino > self.super_block.index => {
                    let Ok(number) = u64::try_from(number) else { continue };
                    let current = match newest.get(&ino) {
                        Some(&version) => Some(version),
                        None => self.entry(ino).ok().flatten().map(|(version, _)| version),
                    };
                    if current == Some(version) {
                        rolled.blocks.insert((ino, number), address.cast_signed());
                    }
                }
                Part::Block { .. } => {}
            }
        }
        Ok(rolled)
    }

    /// Passes the inodes of a block to `f`.
    fn each_inode(&self, address: u64, f: &mut dyn FnMut(u64, Inode)) -> Result<()> {
        let encoding = self.super_block.encoding;
        let bytes = self.block(address, self.super_block.inode_block)?;
        let len = encoding.inode_len();
        for (index, bytes) in bytes.chunks_exact(len).enumerate() {
            let number = Inode::number_in(encoding, bytes);
            if number > self.super_block.index {
                let at = self.super_block.bytes(address).saturating_add(to_u64(index.saturating_mul(len)));
                f(number, Inode::decode(encoding, bytes, at));
            }
        }
        Ok(())
    }

    /// Adds a newer version of an inode. Addresses of the checkpoint count up to the smallest size since.
    fn merge(&self, rolled: &mut Rolled, number: u64, mut inode: Inode) {
        let block = u64::from(self.super_block.block);
        let blocks = inode.size.div_ceil(block.max(1));
        let old = rolled.inodes.get(&number).cloned().or_else(|| {
            let (version, address) = self.entry(number).ok().flatten()?;
            let old = self.inode_at(number, address).ok()?;
            (version == inode.generation && old.kind() == inode.kind()).then_some(old)
        });
        let is_special = inode.kind().is_none_or(|kind| kind.is_device());
        let is_short = inode.kind() == Some(FileKind::Symlink) && inode.size < self.super_block.inline_max;
        if !is_special && !is_short {
            inode.addresses = old.as_ref().map_or([0; DIRECT + 3], |old| old.addresses);
        }
        inode.cut = old.map_or(0, |old| old.cut).min(blocks);
        // A block that was written before the file was cut is no longer part of it.
        let gone: Vec<_> =
            rolled.blocks.range((number, blocks)..=(number, u64::MAX)).map(|(&key, _)| key).collect();
        for key in gone {
            rolled.blocks.remove(&key);
        }
        rolled.inodes.insert(number, inode);
    }
}
