//! Repairs of the fields of inodes: the right value is known, or the field gets a neutral value.

use obento_base::Result;
use obento_base::wire::{FromBytes, split};

use super::super::reason::{TimeField, WrongField, WrongFlag};
use super::edits::Edits;
use crate::checksum::Crc;
use crate::feature::Incompat;
use crate::inode::InodeFlags;
use crate::raw::{RawInode, RawInodeExtra, RawXattrHeader};
use crate::unit::VolBlock;
use crate::writer::FULL_EXTRA_ISIZE;

impl Edits {
    /// Marks an inode as deleted. As in e2fsck, any time does.
    pub(super) fn set_deletion_time(&mut self, ino: u32) -> Result<()> {
        let now = self.now();
        self.inode(ino, |raw| raw.i_dtime.set(now))
    }

    /// Marks an inode as deleted if it has no links, and otherwise as in use.
    pub(super) fn decide_deletion(&mut self, ino: u32) -> Result<()> {
        let now = self.now();
        self.inode(ino, |raw| {
            let gone = raw.i_links_count.get() == 0;
            raw.i_dtime.set(if gone { now } else { 0 });
        })
    }

    /// Repairs a size. The value of an attribute begins at its first block, also if the map has another number for it.
    pub(super) fn repair_size(&mut self, ino: u32, size: u64) -> Result<bool> {
        if self.view.sb.incompat.contains(Incompat::EA_INODE) && self.is_value(ino)? {
            return self.move_blocks(ino, None).map(|(is_closed, _)| is_closed);
        }
        self.set_size(ino, size).map(|()| true)
    }

    pub(super) fn set_link_count(&mut self, ino: u32, links: u32) -> Result<()> {
        let links = u16::try_from(links).unwrap_or(1);
        self.inode(ino, |raw| raw.i_links_count.set(links))
    }

    pub(super) fn set_extents_flag(&mut self, ino: u32) -> Result<()> {
        self.inode(ino, |raw| raw.i_flags.set(raw.i_flags.get() | InodeFlags::EXTENTS.bits()))
    }

    /// Changes the fields after the first 128 bytes of an inode.
    fn extra(&mut self, ino: u32, edit: impl FnOnce(&mut RawInodeExtra)) -> Result<()> {
        self.edit_record(ino, |record| {
            let rest = record.get_mut(size_of::<RawInode>()..).unwrap_or_default();
            if let Ok((extra, _)) = RawInodeExtra::mut_from_prefix(rest) {
                edit(extra);
            }
        })
    }

    pub(super) fn set_extra_size(&mut self, ino: u32) -> Result<()> {
        self.extra(ino, |extra| extra.i_extra_isize.set(FULL_EXTRA_ISIZE))
    }

    /// Clears the two bits that move a time past 2038, which a time before 1970 does not have.
    pub(super) fn clear_epoch(&mut self, ino: u32, field: TimeField) -> Result<()> {
        self.extra(ino, |extra| {
            let place = match field {
                TimeField::Access => &mut extra.i_atime_extra,
                TimeField::Change => &mut extra.i_ctime_extra,
                TimeField::Modification => &mut extra.i_mtime_extra,
                TimeField::Creation => &mut extra.i_crtime_extra,
            };
            place.set(place.get() & !3);
        })
    }

    /// Removes inline data. As in e2fsck, the rest of the data cannot be distinguished from unused bytes.
    pub(super) fn drop_inline_data(&mut self, ino: u32) -> Result<()> {
        self.inode(ino, |raw| {
            raw.i_flags.set(raw.i_flags.get() & !InodeFlags::INLINE_DATA.bits());
            raw.i_size_lo.set(0);
            raw.i_size_high.set(0);
            raw.i_block = [0; 60];
        })
    }

    pub(super) fn set_size(&mut self, ino: u32, size: u64) -> Result<()> {
        let (low, high) = split(size);
        self.inode(ino, |raw| {
            raw.i_size_lo.set(low);
            raw.i_size_high.set(high);
        })
    }

    /// Sets `i_blocks`, in the unit in which it is stored.
    pub(super) fn set_sectors(&mut self, ino: u32, count: u64) -> Result<()> {
        let (low, high) = split(count);
        self.inode(ino, |raw| {
            raw.i_blocks_lo.set(low);
            raw.l_i_blocks_high.set(u16::try_from(high).unwrap_or(0));
        })
    }

    pub(super) fn clear_field(&mut self, ino: u32, field: WrongField) -> Result<()> {
        self.inode(ino, |raw| match field {
            WrongField::FragmentAddress => raw.i_obso_faddr.set(0),
            WrongField::SizeHigh => raw.i_size_high.set(0),
            WrongField::AttributesHigh => raw.l_i_file_acl_high.set(0),
            WrongField::BlocksHigh => raw.l_i_blocks_high.set(0),
            WrongField::Attributes => {
                raw.i_file_acl_lo.set(0);
                raw.l_i_file_acl_high.set(0);
            }
        })
    }

    pub(super) fn clear_flag(&mut self, ino: u32, flag: WrongFlag) -> Result<()> {
        let flag = match flag {
            WrongFlag::Casefold => InodeFlags::CASEFOLD,
            WrongFlag::InlineData | WrongFlag::InlineDataBesideExtents => InodeFlags::INLINE_DATA,
            WrongFlag::Extents | WrongFlag::ExtentsBesideInlineData => InodeFlags::EXTENTS,
            WrongFlag::InlineDataAndExtents => InodeFlags::EXTENTS | InodeFlags::INLINE_DATA,
            WrongFlag::Imagic => InodeFlags::IMAGIC,
            WrongFlag::AttributeInode => InodeFlags::EA_INODE,
            WrongFlag::Index => InodeFlags::INDEX,
            WrongFlag::Encrypted => InodeFlags::ENCRYPT,
            WrongFlag::Verity => InodeFlags::VERITY,
            WrongFlag::Immutable => InodeFlags::IMMUTABLE | InodeFlags::APPEND,
        };
        self.inode(ino, |raw| raw.i_flags.set(raw.i_flags.get() & !flag.bits()))
    }

    /// Marks an inode as not in use. The next round finds the names that refer to it.
    pub(super) fn clear_inode(&mut self, ino: u32) -> Result<()> {
        self.edit_record(ino, |record| record.fill(0))
    }

    pub(super) fn clear_inline_xattrs(&mut self, ino: u32) -> Result<()> {
        self.edit_record(ino, |record| {
            let rest = record.get_mut(size_of::<RawInode>()..).unwrap_or_default();
            let extra =
                RawInodeExtra::ref_from_prefix(rest).map_or(0, |(extra, _)| extra.i_extra_isize.get());
            if let Some(area) = rest.get_mut(extra.into()..) {
                area.fill(0);
            }
        })
    }

    pub(super) fn clear_xattr_block(&mut self, ino: u32) -> Result<()> {
        self.clear_field(ino, WrongField::Attributes)
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
}
