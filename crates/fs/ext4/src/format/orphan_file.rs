//! The orphan file, and the block of the multiple mount protection.
//!
//! Source: e2fsprogs `lib/ext2fs/orphan.c`, `lib/ext2fs/mmp.c`; Linux `Documentation/filesystems/ext4/orphan.rst`,
//! `mmp.rst`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use obento_base::wire::{FromZeros, Immutable, IntoBytes, KnownLayout, le};
use obento_driver::{Allowed, FormatError};

use super::draft::Draft;
use super::inodes::{NewInode, PRIVATE_FILE};
use super::number::units;
use super::options::RequestedSettings;
use crate::checksum::{Crc, inode_seed};
use crate::feature::{Compat, Incompat};
use crate::super_block::{ORPHAN_MAGIC, SuperBlock};

/// Size of the magic number and the checksum at the end of a block of the orphan file.
const TAIL: usize = 8;
/// `EXT4_MMP_MAGIC`.
const MMP_MAGIC: u32 = 0x004d_4d50;
/// `EXT4_MMP_SEQ_CLEAN`.
const MMP_CLEAN: u32 = 0xff4d_4d50;
/// `EXT4_MMP_UPDATE_INTERVAL`, `EXT4_MMP_MIN_CHECK_INTERVAL`: seconds.
const MMP_INTERVAL: u16 = 5;

/// `struct mmp_struct`.
#[derive(FromZeros, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
struct RawMmp {
    /// 0x0
    mmp_magic: le::U32,
    /// 0x4
    mmp_seq: le::U32,
    /// 0x8
    mmp_time: le::U64,
    /// 0x10
    mmp_nodename: [u8; 64],
    /// 0x50
    mmp_bdevname: [u8; 32],
    /// 0x70
    mmp_check_interval: le::U16,
    /// 0x72
    mmp_pad1: le::U16,
    /// 0x74
    mmp_pad2: [le::U32; 226],
    /// 0x3fc
    mmp_checksum: le::U32,
}
const _: () = assert!(size_of::<RawMmp>() == 1024);

/// Returns the default size of the orphan file: a 4096th of the volume, between 32 and 512 blocks
/// (`ext2fs_default_orphan_file_blocks`).
pub(crate) fn orphan_blocks(sb: &SuperBlock) -> u64 {
    let blocks = match sb.blocks_count {
        few if few < 128 << 10 => 32,
        some if some < 2 << 20 => some / 4096,
        _ => 512,
    };
    sb.cluster.round_up(blocks)
}

impl Draft {
    /// Creates the orphan file, if requested. Fails with `TooSmall`.
    pub fn make_orphan_file(&mut self, wishes: &RequestedSettings) -> Result<(), FormatError> {
        if !self.sb.compat.contains(Compat::ORPHAN_FILE) {
            return Ok(());
        }
        if !self.sb.compat.contains(Compat::HAS_JOURNAL) {
            self.set_compat(Compat::ORPHAN_FILE, false);
            return Ok(());
        }
        let blocks = match &wishes.orphan_file_size {
            Some(text) => self.asked_orphan_blocks(text)?,
            None => orphan_blocks(&self.sb),
        };
        let ino = self.next_ino();
        self.note_inode_search(ino);
        let mapped = self.map_file(ino, 0, blocks)?;
        let seed = inode_seed(self.sb.checksum_seed, ino, 0);
        for number in mapped.runs.iter().cloned().flatten() {
            let mut block = self.zeroed()?;
            let slots = block.len() - TAIL;
            if let Some((slots, tail)) = block.split_at_mut_checked(slots) {
                let sum = Crc::new(seed).add(&number.to_le_bytes()).add(slots).get();
                let sum = if self.sb.has_metadata_csum() { sum } else { 0 };
                let words = [le::U32::new(ORPHAN_MAGIC), le::U32::new(sum)];
                tail.copy_from_slice(words.as_bytes());
            }
            self.blocks.insert(number, block);
        }
        self.take_inode(ino, false);
        self.sb.raw.s_orphan_file_inum.set(ino);
        self.add_inode(&NewInode {
            ino,
            mode: PRIVATE_FILE,
            owner: (0, 0),
            links: 1,
            size: self.sb.block_size.len(blocks),
            blocks: mapped.owned,
            flags: self.map_flags(),
            i_block: mapped.i_block,
        })
    }

    fn asked_orphan_blocks(&self, text: &str) -> Result<u64, FormatError> {
        const MAX: u64 = 16 << 20;
        let allowed = Allowed::Text("blocks, or a size with a unit, up to 16 Mi blocks");
        let bad = || FormatError::BadValue { name: "orphan_file_size", value: text.into(), allowed };
        let log = self.sb.raw.s_log_block_size.get() + 10;
        units(text, log).filter(|blocks| (1..=MAX).contains(blocks)).ok_or_else(bad)
    }

    /// Creates the block of the multiple mount protection, if requested. Fails with `TooSmall`.
    pub fn make_mmp_block(&mut self) -> Result<(), FormatError> {
        if !self.sb.incompat.contains(Incompat::MMP) {
            return Ok(());
        }
        let interval = match self.sb.raw.s_mmp_update_interval.get() {
            0 => MMP_INTERVAL,
            interval => interval,
        };
        self.sb.raw.s_mmp_update_interval.set(interval);
        let number = self.allocate(0)?;
        self.sb.raw.s_mmp_block.set(number);
        let mut raw = RawMmp::new_zeroed();
        raw.mmp_magic.set(MMP_MAGIC);
        raw.mmp_seq.set(MMP_CLEAN);
        raw.mmp_check_interval.set(interval.max(MMP_INTERVAL));
        if self.sb.has_metadata_csum() {
            let bytes = raw.as_bytes();
            let covered = bytes.get(..bytes.len() - 4).unwrap_or_default();
            let sum = Crc::new(self.sb.checksum_seed).add(covered).get();
            raw.mmp_checksum.set(sum);
        }
        let mut block = self.zeroed()?;
        block.iter_mut().zip(raw.as_bytes()).for_each(|(to, from)| *to = *from);
        self.blocks.insert(number, block);
        Ok(())
    }
}
