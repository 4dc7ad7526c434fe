//! Repairs of single fields: the right value is known, or the field gets a neutral value.

use obento_base::wire::{FromBytes, split};
use obento_base::{Corrupt, Error, Result};

use super::super::issue::Issue;
use super::edits::Edits;
use crate::checksum::Crc;
use crate::feature::Incompat;
use crate::group::GroupFlags;
use crate::inode::InodeFlags;
use crate::layout;
use crate::locate::drop_meta_groups;
use crate::raw::{RawInode, RawInodeExtra, RawXattrHeader};
use crate::unit::VolBlock;
use crate::writer::FULL_EXTRA_ISIZE;

/// `EXT4_BAD_INO`.
const BAD_INO: u32 = 1;

impl Edits {
    /// Repairs a field of an inode. Returns false for another issue.
    pub(super) fn repair_inode(&mut self, issue: &Issue) -> Result<bool> {
        match *issue {
            Issue::InodeChecksum { ino, .. } => self.inode(ino, |_| {})?,
            Issue::DeletedWithoutTime { ino } => {
                // As in e2fsck: any time marks the inode as deleted.
                let now = self.now();
                self.inode(ino, |raw| raw.i_dtime.set(now))?;
            }
            Issue::DeletionTime { ino } => self.inode(ino, |raw| raw.i_dtime.set(0))?,
            Issue::LostOrphan { ino } => {
                let now = self.now();
                self.inode(ino, |raw| {
                    let gone = raw.i_links_count.get() == 0;
                    raw.i_dtime.set(if gone { now } else { 0 });
                })?;
            }
            // A value begins at its first block, also if the map has another number for it.
            Issue::Size { ino, .. }
                if self.view.sb.incompat.contains(Incompat::EA_INODE) && self.is_value(ino)? =>
            {
                return self.move_blocks(ino, None).map(|(is_closed, _)| is_closed);
            }
            Issue::Size { ino, expected, .. } | Issue::ValueSize { ino, expected, .. } => {
                self.set_size(ino, expected)?
            }
            Issue::BlockCount { ino, expected, .. } => self.set_sectors(ino, expected)?,
            Issue::InodeField { ino, field, .. } => return self.clear_field(ino, field),
            Issue::Encryption { ino, why: crate::check::encryption::NO_CONTEXT } => {
                return self.clear_flag(ino, "encrypted");
            }
            Issue::Encryption { ino, .. } => self.clear_inode(ino)?,
            Issue::InodeFlag { ino, flag } => return self.clear_flag(ino, flag),
            Issue::InodeFlagMissing { ino, flag: "extents" } => self.inode(ino, |raw| {
                raw.i_flags.set(raw.i_flags.get() | InodeFlags::EXTENTS.bits());
            })?,
            Issue::ExtraSize { ino, .. } => self.edit_record(ino, |record| {
                let rest = record.get_mut(size_of::<RawInode>()..).unwrap_or_default();
                if let Ok((extra, _)) = RawInodeExtra::mut_from_prefix(rest) {
                    extra.i_extra_isize.set(FULL_EXTRA_ISIZE);
                }
            })?,
            Issue::Time { ino, field } => self.edit_record(ino, |record| {
                let rest = record.get_mut(size_of::<RawInode>()..).unwrap_or_default();
                if let Ok((extra, _)) = RawInodeExtra::mut_from_prefix(rest) {
                    clear_epoch(extra, field);
                }
            })?,
            Issue::LinkCount { ino, found, .. } => {
                let links = u16::try_from(found).unwrap_or(1);
                self.inode(ino, |raw| raw.i_links_count.set(links))?;
            }
            // As in e2fsck: the rest of the data cannot be distinguished from unused bytes.
            Issue::InlineData { ino, why: crate::check::inline::NO_DATA } => self.inode(ino, |raw| {
                raw.i_flags.set(raw.i_flags.get() & !InodeFlags::INLINE_DATA.bits());
                raw.i_size_lo.set(0);
                raw.i_size_high.set(0);
                raw.i_block = [0; 60];
            })?,
            Issue::DirectoryMode { ino, mode } => {
                self.inode(ino, |raw| raw.i_mode.set(mode & 0o7777 | 0o040_000))?;
            }
            Issue::BadBlocksInode { .. } => self.clear_inode(BAD_INO)?,
            Issue::BadMode { ino, .. }
            | Issue::BadSpecial { ino }
            | Issue::BadSymlink { ino }
            | Issue::InlineData { ino, .. }
            | Issue::TooManyIllegal { ino }
            | Issue::ReservedInode { ino, .. } => self.clear_inode(ino)?,
            Issue::Xattr { ino, .. } | Issue::XattrEntry { ino, block: 0, .. } => {
                self.clear_inline_xattrs(ino)?
            }
            Issue::XattrInode { ino, .. } => {
                self.clear_inline_xattrs(ino)?;
                self.clear_xattr_block(ino)?;
            }
            Issue::XattrBlock { block, why: Error::Corrupt(Corrupt::Checksum { .. }), .. } => {
                self.seal_xattr_block(VolBlock(block), |_| {})?;
            }
            Issue::XattrBlock { ino, .. } | Issue::XattrEntry { ino, .. } => self.clear_xattr_block(ino)?,
            Issue::XattrUsers { block, expected, .. } => {
                self.seal_xattr_block(VolBlock(block), |header| header.h_refcount.set(expected))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_size(&mut self, ino: u32, size: u64) -> Result<()> {
        let (low, high) = split(size);
        self.inode(ino, |raw| {
            raw.i_size_lo.set(low);
            raw.i_size_high.set(high);
        })
    }

    /// Sets `i_blocks`, in the unit in which it is stored.
    fn set_sectors(&mut self, ino: u32, count: u64) -> Result<()> {
        let (low, high) = split(count);
        self.inode(ino, |raw| {
            raw.i_blocks_lo.set(low);
            raw.l_i_blocks_high.set(u16::try_from(high).unwrap_or(0));
        })
    }

    fn clear_field(&mut self, ino: u32, field: &str) -> Result<bool> {
        self.inode(ino, |raw| match field {
            "i_obso_faddr" => raw.i_obso_faddr.set(0),
            "i_size_high" => raw.i_size_high.set(0),
            "l_i_file_acl_high" => raw.l_i_file_acl_high.set(0),
            "l_i_blocks_high" => raw.l_i_blocks_high.set(0),
            "i_file_acl" => {
                raw.i_file_acl_lo.set(0);
                raw.l_i_file_acl_high.set(0);
            }
            _ => {}
        })?;
        Ok(true)
    }

    fn clear_flag(&mut self, ino: u32, flag: &str) -> Result<bool> {
        let flag = match flag {
            "casefold" => InodeFlags::CASEFOLD,
            "inline data" => InodeFlags::INLINE_DATA,
            "inline data beside extents" => InodeFlags::INLINE_DATA,
            "extents" | "extents beside inline data" => InodeFlags::EXTENTS,
            "inline data and extents" => InodeFlags::EXTENTS | InodeFlags::INLINE_DATA,
            "imagic" => InodeFlags::IMAGIC,
            "ea_inode" => InodeFlags::EA_INODE,
            "index" => InodeFlags::INDEX,
            "encrypted" => InodeFlags::ENCRYPT,
            "verity" => InodeFlags::VERITY,
            "immutable" => InodeFlags::IMMUTABLE | InodeFlags::APPEND,
            _ => return Ok(false),
        };
        self.inode(ino, |raw| raw.i_flags.set(raw.i_flags.get() & !flag.bits()))?;
        Ok(true)
    }

    /// Marks an inode as not in use. The next round finds the names that refer to it.
    pub(super) fn clear_inode(&mut self, ino: u32) -> Result<()> {
        self.edit_record(ino, |record| record.fill(0))
    }

    fn clear_inline_xattrs(&mut self, ino: u32) -> Result<()> {
        self.edit_record(ino, |record| {
            let rest = record.get_mut(size_of::<RawInode>()..).unwrap_or_default();
            let extra =
                RawInodeExtra::ref_from_prefix(rest).map_or(0, |(extra, _)| extra.i_extra_isize.get());
            if let Some(area) = rest.get_mut(extra.into()..) {
                area.fill(0);
            }
        })
    }

    fn clear_xattr_block(&mut self, ino: u32) -> Result<()> {
        self.clear_field(ino, "i_file_acl").map(drop)
    }

    pub(super) fn seal_xattr_block(
        &mut self,
        block: VolBlock,
        edit: impl FnOnce(&mut RawXattrHeader),
    ) -> Result<()> {
        let (seed, sealed) = (self.view.sb.checksum_seed, self.view.sb.has_metadata_csum());
        self.block(block, |bytes| {
            let Ok((header, _)) = RawXattrHeader::mut_from_prefix(bytes) else { return };
            edit(header);
            header.h_checksum.set(0);
            let sum = Crc::new(seed).add(&block.0.to_le_bytes()).add(bytes).get();
            if sealed && let Ok((header, _)) = RawXattrHeader::mut_from_prefix(bytes) {
                header.h_checksum.set(sum);
            }
        })
    }

    /// Repairs a field of the super block or of the journal's place in it. Returns false for another issue.
    pub(super) fn repair_volume(&mut self, issue: &Issue) -> Result<bool> {
        match *issue {
            Issue::SuperBlockChecksum { .. } => self.super_block(|_| {})?,
            Issue::SuperBlockValue { .. } => {
                let right = *self.view.sb.raw;
                self.super_block(|primary| *primary = layout::with_fields(primary, &right))?;
            }
            Issue::SuperBlockDamaged { .. } => {
                // A backup is in use.
                let mut raw = *self.view.sb.raw;
                raw.s_block_group_nr.set(0);
                self.super_block(|primary| *primary = raw)?;
            }
            Issue::WantedExtraSize { field, expected, .. } => self.super_block(|raw| match field {
                "s_min_extra_isize" => raw.s_min_extra_isize.set(expected),
                _ => raw.s_want_extra_isize.set(expected),
            })?,
            Issue::FirstMetaGroup { .. } => self.super_block(drop_meta_groups)?,
            Issue::SuperBlockField { field: "s_r_blocks_count", .. } => self.super_block(|raw| {
                raw.s_r_blocks_count_lo.set(0);
                raw.s_r_blocks_count_hi.set(0);
            })?,
            Issue::SuperBlockField { field: "s_rev_level", .. } => self.super_block(|raw| {
                raw.s_rev_level.set(1);
                raw.s_first_ino.set(11);
                raw.s_inode_size.set(128);
            })?,
            Issue::Mmp { block, .. } => return self.repair_mmp(block),
            Issue::QuotaInode { ino, why: crate::check::super_block::NO_QUOTA_INODE } => {
                self.super_block(|raw| {
                    let places =
                        [&mut raw.s_usr_quota_inum, &mut raw.s_grp_quota_inum, &mut raw.s_prj_quota_inum];
                    places.into_iter().filter(|place| place.get() == ino).for_each(|place| place.set(0));
                })?;
            }
            Issue::OrphanList { .. } => self.super_block(|raw| raw.s_last_orphan.set(0))?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Writes a block of the multiple mount protection that marks the volume as not in use.
    fn repair_mmp(&mut self, block: u64) -> Result<bool> {
        let (seed, sealed) = (self.view.sb.checksum_seed, self.view.sb.has_metadata_csum());
        if !self.view.sb.holds_blocks(VolBlock(block), 1) {
            return Ok(false);
        }
        self.block(VolBlock(block), |bytes| crate::check::mmp::write_free(bytes, sealed.then_some(seed)))?;
        Ok(true)
    }

    /// Repairs a descriptor or a count. Returns false for another issue.
    pub(super) fn repair_count(&mut self, issue: &Issue) -> Result<bool> {
        match *issue {
            Issue::DescriptorChecksum { group, .. } => self.restore_places(group)?,
            Issue::DescriptorFlags { group, .. }
            | Issue::UnusedInodes { group, .. }
            | Issue::HiddenInode { group, .. }
            | Issue::GroupUninit { group, .. } => {
                self.descriptor(group, |low, high| {
                    low.bg_itable_unused_lo.set(0);
                    low.bg_flags.set(low.bg_flags.get() & !3);
                    if let Some(high) = high {
                        high.bg_itable_unused_hi.set(0);
                    }
                })?;
            }
            Issue::LastGroupUninit { group } => self.descriptor(group, |low, _| {
                low.bg_flags.set(low.bg_flags.get() & !GroupFlags::BLOCK_UNINIT.bits());
            })?,
            Issue::GroupFreeBlocks { group, expected, .. } => {
                self.change_free_blocks(group, |_| expected)?;
            }
            Issue::GroupFreeInodes { group, expected, .. } => self.descriptor(group, |low, high| {
                let (a, b) = halves(expected);
                low.bg_free_inodes_count_lo.set(a);
                if let Some(high) = high {
                    high.bg_free_inodes_count_hi.set(b);
                }
            })?,
            Issue::GroupDirectories { group, expected, .. } => self.descriptor(group, |low, high| {
                let (a, b) = halves(expected);
                low.bg_used_dirs_count_lo.set(a);
                if let Some(high) = high {
                    high.bg_used_dirs_count_hi.set(b);
                }
            })?,
            Issue::FreeBlocks { expected, .. } => self.super_block(|raw| {
                let (low, high) = split(expected);
                raw.s_free_blocks_count_lo.set(low);
                raw.s_free_blocks_count_hi.set(high);
            })?,
            Issue::FreeInodes { expected, .. } => self.super_block(|raw| {
                raw.s_free_inodes_count.set(u32::try_from(expected).unwrap_or(u32::MAX));
            })?,
            _ => return self.repair_bitmap(issue),
        }
        Ok(true)
    }

    /// Writes the places of the bitmaps and the table, which the view took from a backup if the primary ones are
    /// impossible.
    fn restore_places(&mut self, group: u32) -> Result<()> {
        let known = *self.view.group(group);
        if known.check_group(&self.view.sb, group).is_err() {
            return Ok(());
        }
        self.write_places(group, &known)
    }
}

/// Clears the two bits that move a time past 2038, which a time before 1970 does not have.
fn clear_epoch(extra: &mut RawInodeExtra, field: &str) {
    let place = match field {
        "i_atime" => &mut extra.i_atime_extra,
        "i_ctime" => &mut extra.i_ctime_extra,
        "i_mtime" => &mut extra.i_mtime_extra,
        _ => &mut extra.i_crtime_extra,
    };
    place.set(place.get() & !3);
}

/// Returns the low and the high 16 bits.
pub(super) fn halves(count: u64) -> (u16, u16) {
    let [a, b, c, d, ..] = count.to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
}
