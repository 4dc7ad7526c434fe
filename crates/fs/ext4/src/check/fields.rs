//! Pass 1, one inode: whether its fields, flags, size and counts match its type and its blocks.
//!
//! Source: e2fsprogs `e2fsck/pass1.c` `check_inode_extra_space`, `e2fsck_pass1_check_symlink`,
//! `e2fsck_pass1_check_device_inode`, the end of `check_blocks`.

use obento_base::FileKind;
use obento_base::wire::{FromBytes, join, to_u64};

use super::blocks::is_tree;
use super::inode_check::InodeCheck;
use super::inode_check::Owned;
use super::issue::Issue;
use super::reason::{MissingFlag, TimeField, WrongField, WrongFlag};
use crate::feature::{Compat, Incompat, RoCompat};
use crate::inode::InodeFlags;
use crate::map::check::{extent_len, extent_start};
use crate::raw::{RawExtent, RawExtentHeader};
use crate::unit::VolBlock;

/// Returns whether an inode of `inode_size` bytes can have `size` bytes of fields after the first 128; 0 means unset.
pub(super) fn is_extra_size(size: u16, inode_size: u16) -> bool {
    let most = inode_size.saturating_sub(128);
    size == 0 || (4..=most).contains(&size) && size.is_multiple_of(4)
}

impl InodeCheck<'_> {
    /// Checks fields that some features or types do not have.
    pub(super) fn fields(&mut self) {
        let (ino, sb, raw) = (self.ino, &self.view.sb, self.raw);
        let mut bad = |is_bad: bool, field: WrongField, found: u64| {
            if is_bad {
                self.report_bad(Issue::InodeField { ino, field, found });
            }
        };
        let is_dir = FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Directory);
        let lacks = |feature| !sb.incompat.contains(feature);
        let (faddr, high) = (raw.i_obso_faddr.get(), raw.i_size_high.get());
        bad(faddr != 0, WrongField::FragmentAddress, faddr.into());
        bad(is_dir && high != 0 && lacks(Incompat::LARGE_DIR), WrongField::SizeHigh, high.into());
        let acl_high = raw.l_i_file_acl_high.get();
        bad(acl_high != 0 && lacks(Incompat::SIXTY_FOUR_BIT), WrongField::AttributesHigh, acl_high.into());
        let blocks_high = raw.l_i_blocks_high.get();
        let huge = sb.ro_compat.contains(RoCompat::HUGE_FILE);
        bad(blocks_high != 0 && !huge, WrongField::BlocksHigh, blocks_high.into());
    }

    /// Checks the flag of case-insensitive directories. e2fsck checks it in reserved inodes, too.
    pub(super) fn casefold_flag(&mut self) {
        let may_be = self.is_dir() && self.view.sb.incompat.contains(Incompat::CASEFOLD);
        if self.has(InodeFlags::CASEFOLD) && !may_be {
            self.emit(Issue::InodeFlag { ino: self.ino, flag: WrongFlag::Casefold });
        }
    }

    /// Checks the flag of indexed directories. e2fsck checks it in reserved inodes, too.
    pub(super) fn index_flag(&mut self) {
        let may_be = self.is_dir() && self.view.sb.compat.contains(Compat::DIR_INDEX);
        if self.has(InodeFlags::INDEX) && !may_be {
            self.emit(Issue::InodeFlag { ino: self.ino, flag: WrongFlag::Index });
        }
    }

    /// Checks for flags that some features or types do not have, and for missing flags.
    pub(super) fn flags(&mut self) {
        self.casefold_flag();
        self.index_flag();
        let (ino, sb, kind) = (self.ino, &self.view.sb, self.kind());
        let has_extents = sb.incompat.contains(Incompat::EXTENT);
        let wrong = [
            (InodeFlags::INLINE_DATA, !sb.incompat.contains(Incompat::INLINE_DATA), WrongFlag::InlineData),
            (InodeFlags::EXTENTS, !has_extents && !is_tree(&self.raw.i_block), WrongFlag::Extents),
            (InodeFlags::IMAGIC, !sb.compat.contains(Compat::IMAGIC_INODES), WrongFlag::Imagic),
            (InodeFlags::ENCRYPT, !sb.incompat.contains(Incompat::ENCRYPT), WrongFlag::Encrypted),
            // Linux opens nothing with this flag (`check_igot_inode`); e2fsck ignores it.
            (InodeFlags::EA_INODE, !self.is_value(), WrongFlag::AttributeInode),
            (InodeFlags::VERITY, !sb.ro_compat.contains(RoCompat::VERITY), WrongFlag::Verity),
        ];
        for (flag, is_wrong, name) in wrong {
            if is_wrong && self.has(flag) {
                self.emit(Issue::InodeFlag { ino, flag: name });
            }
        }
        let is_plain = matches!(kind, Some(FileKind::Directory | FileKind::Regular));
        if is_plain && sb.incompat.contains(Incompat::INLINE_DATA) {
            self.inline_or_extents();
        }
        let maps = matches!(kind, Some(FileKind::Directory | FileKind::Regular));
        let lacks = !self.has(InodeFlags::EXTENTS) && !self.has(InodeFlags::INLINE_DATA);
        if has_extents && maps && lacks && is_tree(&self.raw.i_block) {
            self.emit(Issue::InodeFlagMissing { ino, flag: MissingFlag::Extents });
        }
    }

    /// Checks the bytes after the first 128. Returns the number of clusters of values in inodes.
    pub(super) fn extra_space(&mut self) -> u64 {
        let Some(extra) = self.extra else { return 0 };
        let (ino, size) = (self.ino, extra.i_extra_isize.get());
        if !is_extra_size(size, self.view.sb.inode_size) {
            self.emit(Issue::ExtraSize { ino, found: size });
            return 0;
        }
        let raw = self.raw;
        let times = [
            (TimeField::Access, raw.i_atime.get(), extra.i_atime_extra.get(), 16),
            (TimeField::Change, raw.i_ctime.get(), extra.i_ctime_extra.get(), 8),
            (TimeField::Modification, raw.i_mtime.get(), extra.i_mtime_extra.get(), 12),
            (TimeField::Creation, extra.i_crtime.get(), extra.i_crtime_extra.get(), 24),
        ];
        for (field, seconds, bits, end) in times {
            // Old 64-bit kernels stored times before 1970 like this.
            if size >= end && seconds >> 31 == 1 && bits & 3 == 3 {
                self.emit(Issue::Time { ino, field });
            }
        }
        if size == 0 {
            return 0;
        }
        self.attributes_inside(usize::from(size).saturating_add(128))
    }

    /// Checks the properties of each type.
    pub(super) fn shape(&mut self) {
        let (ino, mode) = (self.ino, self.raw.i_mode.get());
        match self.kind() {
            None => self.report_bad(Issue::BadMode { ino, mode }),
            Some(FileKind::Regular | FileKind::Directory) => {}
            Some(FileKind::Symlink) => {
                if self.is_target_beside_flag() {
                    self.emit(Issue::InodeFlag { ino, flag: WrongFlag::Extents });
                } else if !self.is_sound_link() {
                    self.report_bad(Issue::BadSymlink { ino });
                } else {
                    self.not_immutable();
                }
            }
            Some(_) => {
                // Kernels leave old bytes after the device number. They matter only together with other signs.
                let rest = self.raw.i_block.get(16..).unwrap_or_default();
                let is_kept = self.has(InodeFlags::IMMUTABLE) || self.has(InodeFlags::APPEND);
                if is_kept && rest.iter().any(|&byte| byte != 0) {
                    self.report_bad(Issue::BadSpecial { ino });
                }
                self.not_immutable();
                for (flag, name) in [
                    (InodeFlags::EXTENTS, WrongFlag::Extents),
                    (InodeFlags::INLINE_DATA, WrongFlag::InlineData),
                ] {
                    if self.has(flag) {
                        self.emit(Issue::InodeFlag { ino, flag: name });
                    }
                }
                if self.size() != 0 {
                    self.emit(Issue::Size { ino, found: self.size(), expected: 0 });
                }
            }
        }
    }

    /// Clears the flags against changes from inodes other than files and directories, since no program could clear
    /// them.
    fn not_immutable(&mut self) {
        if self.has(InodeFlags::IMMUTABLE) || self.has(InodeFlags::APPEND) {
            self.emit(Issue::InodeFlag { ino: self.ino, flag: WrongFlag::Immutable });
        }
    }

    /// Returns whether only the extents flag is wrong: there is a target in the inode, and no tree.
    fn is_target_beside_flag(&self) -> bool {
        let target = crate::super_block::until_nul(&self.raw.i_block);
        let is_whole = to_u64(target.len()) == self.size() && self.size() > 0 && self.size() < 60;
        let is_short = is_whole && !is_tree(&self.raw.i_block);
        is_short && self.has(InodeFlags::EXTENTS) && !self.has(InodeFlags::INLINE_DATA)
    }

    /// Returns whether a link's target is in the inode.
    pub(super) fn is_fast_link(&self) -> bool {
        let has_map = self.has(InodeFlags::EXTENTS) || self.has(InodeFlags::INLINE_DATA);
        self.size() < 60 && !has_map || self.is_target_beside_flag()
    }

    fn is_sound_link(&self) -> bool {
        let (size, sb) = (self.size(), &self.view.sb);
        if size == 0 || size >= sb.block_size.into() {
            return false;
        }
        if self.has(InodeFlags::INLINE_DATA) {
            let rest = super::inline::inline_rest(self.record, self.ino);
            return rest.is_some_and(|(_, bytes)| to_u64(bytes.len()).saturating_add(60) == size);
        }
        // Linux and e2fsck look for a short target in the inode only (`ext2fs_is_fast_symlink`).
        if size < 60 {
            return !self.has(InodeFlags::EXTENTS) && self.target_len(&self.raw.i_block) == size;
        }
        let Some(block) = self.block_of_link().filter(|&block| super::blocks::on_volume(sb, block, 1)) else {
            return false;
        };
        self.view.read(VolBlock(block), 1).is_ok_and(|bytes| self.target_len(&bytes) == size)
    }

    /// Returns the single block of a link whose target is not in its inode.
    fn block_of_link(&self) -> Option<u64> {
        let map = &self.raw.i_block;
        if !self.has(InodeFlags::EXTENTS) {
            // Further numbers are reported and removed separately.
            return map.first_chunk().map(|bytes| u32::from_le_bytes(*bytes).into());
        }
        let (header, rest) = RawExtentHeader::ref_from_prefix(map).ok()?;
        let (extent, _) = RawExtent::ref_from_prefix(rest).ok()?;
        let is_one = header.eh_entries.get() == 1 && header.eh_depth.get() == 0;
        let is_first = extent.ee_block.get() == 0 && extent_len(extent).0 == 1;
        // The walk through the blocks reports an invalid tree.
        let is_reported =
            !is_tree(map) || !super::blocks::on_volume(&self.view.sb, extent_start(extent).0, 1);
        (is_reported || is_one && is_first).then(|| extent_start(extent).0)
    }

    /// Returns the length of the target: an encrypted one begins with two bytes that contain its length, and others
    /// end with a zero.
    fn target_len(&self, bytes: &[u8]) -> u64 {
        match bytes.first_chunk() {
            Some(len) if self.has(InodeFlags::ENCRYPT) => {
                u64::from(u16::from_le_bytes(*len)).saturating_add(2)
            }
            _ => to_u64(crate::super_block::until_nul(bytes).len()),
        }
    }

    pub(super) fn sizes(&mut self, owned: &Owned, is_inline: bool) {
        let (ino, size, sb) = (self.ino, self.size(), &self.view.sb);
        let block = u64::from(sb.block_size);
        let mapped = owned.end.saturating_mul(block);
        if is_inline {
            return self.size_inside();
        }
        let is_wrong = if self.is_dir() {
            let blocks = size.checked_div(block).unwrap_or(0);
            let spare = u64::from(sb.raw.s_prealloc_dir_blocks);
            !size.is_multiple_of(block) || blocks > owned.end || owned.end.saturating_sub(blocks) > spare
        } else if self.kind() == Some(FileKind::Symlink) {
            false
        } else {
            let past = owned.last_written.is_some_and(|last| size < last.saturating_mul(block));
            let most = if self.has(InodeFlags::EXTENTS) {
                block.saturating_mul(1 << 32).saturating_sub(1)
            } else {
                self.most_mapped()
            };
            // e2fsck uses no journal that ends after its blocks; Linux reads the complete ones.
            let ends_inside = size.checked_div(block) == Some(owned.end) && size > mapped;
            past && !self.has(InodeFlags::VERITY) || size > most || self.is_journal() && ends_inside
        };
        if is_wrong {
            self.emit(match mapped > size && self.has_inner_nodes() {
                true => Issue::SizeOfTree { ino, found: size, expected: mapped },
                false => Issue::Size { ino, found: size, expected: mapped },
            });
        }
        if self.kind() == Some(FileKind::Regular) && size >= 1 << 31 {
            self.part.has_large_files = true;
        }
    }

    /// Returns whether the inode has a tree of extents with index entries. Source: e2fsck `pass1.c`,
    /// `scan_extent_node`: the size of the inode limits the range of the last entry, but not that of extents in the inode.
    fn has_inner_nodes(&self) -> bool {
        let header = RawExtentHeader::read_from_prefix(&self.raw.i_block);
        self.has(InodeFlags::EXTENTS) && header.is_ok_and(|(header, _)| header.eh_depth.get() > 0)
    }

    /// Checks the size of a file with inline data. It may be up to the maximum of a block map, as for e2fsck. If it
    /// is larger, the low half is used as far as there is data.
    fn size_inside(&mut self) {
        let (ino, size) = (self.ino, self.size());
        // An inode without a type, such as that of the boot loader, has no data.
        let kind = self.kind();
        if !matches!(kind, Some(FileKind::Regular) | None) || size <= self.most_mapped() {
            return;
        }
        if kind.is_none() {
            return self.emit(Issue::Size { ino, found: size, expected: 0 });
        }
        let rest = super::inline::inline_rest(self.record, ino).map_or(0, |(_, bytes)| to_u64(bytes.len()));
        let expected = u64::from(self.raw.i_size_lo.get()).min(rest.saturating_add(60));
        self.emit(Issue::Size { ino, found: size, expected });
    }

    /// Returns the maximum size of a file with a block map.
    fn most_mapped(&self) -> u64 {
        let block = u64::from(self.view.sb.block_size);
        let levels = [1, 2, 3].iter().map(|&level| (block / 4).saturating_pow(level));
        levels.fold(12, u64::saturating_add).saturating_mul(block)
    }

    pub(super) fn block_count(&mut self, owned: &Owned) {
        let sb = &self.view.sb;
        let huge = sb.ro_compat.contains(RoCompat::HUGE_FILE);
        let high = if huge { u32::from(self.raw.l_i_blocks_high.get()) } else { 0 };
        let found = join(self.raw.i_blocks_lo.get(), high);
        let in_blocks = huge && self.has(InodeFlags::HUGE_FILE);
        let unit = if in_blocks { 1 } else { u64::from(sb.block_size.sectors()) };
        let expected = owned.clusters.saturating_mul(sb.cluster_blocks().into()).saturating_mul(unit);
        if found != expected {
            self.emit(Issue::BlockCount { ino: self.ino, found, expected });
        }
        let maps = matches!(self.kind(), Some(FileKind::Directory | FileKind::Regular));
        let by_map = !self.has(InodeFlags::EXTENTS) && !self.has(InodeFlags::INLINE_DATA);
        let has_blocks = self.raw.i_block.iter().any(|&byte| byte != 0);
        let is_map = by_map && has_blocks && !is_tree(&self.raw.i_block);
        if sb.has_bigalloc() && maps && is_map && !self.view.is_own(self.ino) {
            self.emit(Issue::BlockMapped { ino: self.ino });
        }
    }
}
