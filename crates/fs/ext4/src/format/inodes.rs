//! The inodes of a new volume: reserved inodes, directories, and files whose blocks are known.
//!
//! Source: e2fsprogs `lib/ext2fs/inode.c` `ext2fs_write_new_inode`, `lib/ext2fs/i_block.c`; `misc/mke2fs.c`
//! `write_reserved_inodes`, `reserve_inodes`, `create_bad_block_inode`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use obento_base::wire::{FromZeros, IntoBytes, split};
use obento_driver::FormatError;

use super::draft::{Draft, time_halves, zeroed};
use super::geometry::FIRST_INO;
use crate::feature::RoCompat;
use crate::inode::InodeFlags;
use crate::raw::{RawInode, RawInodeExtra};

/// `EXT2_BAD_INO`: owns the bad blocks, if there are any.
const BAD_INO: u32 = 1;
/// `EXT2_ROOT_INO`.
pub(crate) const ROOT_INO: u32 = 2;
/// `EXT2_RESIZE_INO`.
pub(crate) const RESIZE_INO: u32 = 7;
/// `EXT2_JOURNAL_INO`.
pub(crate) const JOURNAL_INO: u32 = 8;
/// Mode of a regular file that only its owner may use.
pub(crate) const PRIVATE_FILE: u16 = 0o100_600;

/// The properties of an inode.
#[derive(Clone, Debug)]
pub(crate) struct NewInode {
    pub ino: u32,
    pub mode: u16,
    pub owner: (u32, u32),
    pub links: u16,
    pub size: u64,
    /// Number of blocks that it owns, including those of its map.
    pub blocks: u64,
    pub flags: InodeFlags,
    pub i_block: [u8; 60],
}

impl Draft {
    /// Allocates the inodes below the first unreserved one. These inodes are not files, except those that are created
    /// later.
    pub fn reserve_inodes(&mut self) -> Result<(), FormatError> {
        if self.sb.has_metadata_csum() {
            // Linux reads them, so they need a checksum.
            for ino in (1..FIRST_INO).filter(|&ino| ino != ROOT_INO) {
                let record = zeroed(self.sb.inode_size.into())?;
                self.inodes.insert(ino, record);
            }
        }
        for ino in (ROOT_INO + 1..FIRST_INO).chain([BAD_INO]) {
            self.take_inode(ino, false);
        }
        let mut raw = RawInode::new_zeroed();
        let (now, _) = time_halves(self.now);
        for time in [&mut raw.i_atime, &mut raw.i_ctime, &mut raw.i_mtime] {
            time.set(now);
        }
        let mut record = zeroed(self.sb.inode_size.into())?;
        record.iter_mut().zip(raw.as_bytes()).for_each(|(to, from)| *to = *from);
        self.inodes.insert(BAD_INO, record);
        Ok(())
    }

    /// Stores the record of a new inode. Fails with `TooLarge` if it has more blocks than the inodes of this volume
    /// can count.
    pub fn add_inode(&mut self, inode: &NewInode) -> Result<(), FormatError> {
        let mut raw = RawInode::new_zeroed();
        let (now, epoch) = time_halves(self.now);
        let halves = |id: u32| {
            let [a, b, c, d] = id.to_le_bytes();
            (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
        };
        let ((uid, uid_high), (gid, gid_high)) = (halves(inode.owner.0), halves(inode.owner.1));
        raw.i_mode.set(inode.mode);
        raw.i_uid.set(uid);
        raw.l_i_uid_high.set(uid_high);
        raw.i_gid.set(gid);
        raw.l_i_gid_high.set(gid_high);
        raw.i_links_count.set(inode.links);
        raw.i_flags.set(inode.flags.bits());
        raw.i_block = inode.i_block;
        let (low, high) = split(inode.size);
        raw.i_size_lo.set(low);
        raw.i_size_high.set(high);
        for time in [&mut raw.i_atime, &mut raw.i_ctime, &mut raw.i_mtime] {
            time.set(now);
        }
        self.set_sectors(&mut raw, inode.blocks)?;
        let mut record = zeroed(self.sb.inode_size.into())?;
        let extra = self.extra_fields(now, epoch);
        let bytes = raw.as_bytes().iter().chain(extra.iter().flat_map(|extra| extra.as_bytes()));
        record.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        self.inodes.insert(inode.ino, record);
        Ok(())
    }

    fn set_sectors(&self, raw: &mut RawInode, blocks: u64) -> Result<(), FormatError> {
        let sectors = blocks * u64::from(self.sb.block_size.sectors());
        let (low, high) = split(sectors);
        let most = if self.sb.ro_compat.contains(RoCompat::HUGE_FILE) { u16::MAX } else { 0 };
        let too_large = FormatError::TooLarge { len: sectors.saturating_mul(512), max: 2 << 40 };
        let high = u16::try_from(high).ok().filter(|&high| high <= most).ok_or(too_large)?;
        raw.i_blocks_lo.set(low);
        raw.l_i_blocks_high.set(high);
        Ok(())
    }

    /// Returns the fields after the first 128 bytes, if inodes have space for them.
    fn extra_fields(&self, now: u32, epoch: u8) -> Option<RawInodeExtra> {
        let isize = self.sb.raw.s_want_extra_isize.get();
        if isize == 0 {
            return None;
        }
        let mut extra = RawInodeExtra::new_zeroed();
        extra.i_extra_isize.set(isize);
        extra.i_crtime.set(now);
        // Seconds have 32 bits and a sign, and two more bits here.
        let epoch = (u32::from(epoch) + (now >> 31)) & 3;
        for field in [
            &mut extra.i_ctime_extra,
            &mut extra.i_mtime_extra,
            &mut extra.i_atime_extra,
            &mut extra.i_crtime_extra,
        ] {
            field.set(epoch);
        }
        Some(extra)
    }
}
