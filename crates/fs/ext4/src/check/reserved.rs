//! Pass 1: the format's own inodes.
//!
//! Source: e2fsprogs `e2fsck/pass1.c` `e2fsck_pass1_run`.

use obento_base::FileKind;

use super::blocks::is_tree;
use super::fields::is_extra_size;
use super::inode_check::{InodeCheck, Owned, RESIZE_INO};
use super::issue::Issue;
use super::reason::{OrphanFileDefect, WrongFlag};
use super::state::{InodeSlot, Marks};
use crate::dir::kind_code;
use crate::feature::{Compat, Incompat};
use crate::inode::InodeFlags;
use crate::quota::QuotaDefect;

/// `EXT4_BAD_INO`, `EXT4_BOOT_LOADER_INO`.
const BAD_INO: u32 = 1;
const BOOT_LOADER_INO: u32 = 5;
const JOURNAL_INO: u32 = 8;

impl InodeCheck<'_> {
    /// Returns whether it is the internal journal.
    pub(super) fn is_journal(&self) -> bool {
        let sb = &self.view.sb;
        self.ino == sb.raw.s_journal_inum.get() && sb.compat.contains(Compat::HAS_JOURNAL)
    }

    /// Checks a reserved inode: its type is fixed, and it has no name.
    pub(super) fn own_inode(&mut self) -> InodeSlot {
        self.casefold_flag();
        let (ino, mode) = (self.ino, self.raw.i_mode.get());
        let links = self.raw.i_links_count.get();
        let is_regular = self.kind() == Some(FileKind::Regular);
        let is_quota = self.view.quota_inodes().contains(&ino);
        let is_journal = self.is_journal();
        if ino == BAD_INO {
            let raw = &self.raw;
            let is_set = mode != 0
                || links != 0
                || raw.i_uid.get() != 0
                || raw.i_gid.get() != 0
                || raw.i_file_acl_lo.get() != 0
                || raw.l_i_file_acl_high.get() != 0
                || self.has(InodeFlags::INLINE_DATA);
            if is_set {
                self.emit(Issue::BadBlocksInode { why: "has a mode, an owner, links or attributes" });
            }
            let mut owned = Owned::default();
            self.pointers(&mut owned);
            return InodeSlot::new(0, Marks::OWN, links);
        }
        let mut is_unused = false;
        if is_journal {
            // The check of the journal reports whether it is usable.
        } else if is_quota {
            if !is_regular {
                self.emit(Issue::QuotaInode { ino, why: QuotaDefect::NotRegular });
            }
        } else if self.is_orphan_file() {
            let is_empty = self.record.iter().all(|&byte| byte == 0);
            if is_empty {
                // It may be after the inodes in use of its group, so that the check of the orphan file reports it.
            } else if !is_regular {
                self.emit(Issue::OrphanFile { ino, why: OrphanFileDefect::NotRegular });
            } else if links == 0 {
                // Linux and e2fsck take it for a deleted file.
                self.emit(Issue::OrphanFile { ino, why: OrphanFileDefect::Deleted });
            }
        } else if ino == JOURNAL_INO || matches!(ino, 3 | 4) {
            is_unused = true;
            let is_clear = links == 0
                && self.raw.i_blocks_lo.get() == 0
                && self.raw.i_block.iter().take(4).all(|&b| b == 0);
            if !is_clear {
                self.emit(Issue::ReservedInode { ino, mode });
            }
        } else {
            let is_wrong = match ino {
                BOOT_LOADER_INO => {
                    self.is_dir() || self.has(InodeFlags::INLINE_DATA) && self.has(InodeFlags::EXTENTS)
                }
                RESIZE_INO => mode != 0 && !is_regular,
                _ => mode != 0,
            };
            if is_wrong {
                self.emit(Issue::ReservedInode { ino, mode });
            }
        }
        if !is_unused {
            self.index_flag();
        }
        if links != 0 {
            self.opened_by_linux();
            let is_file = is_journal || is_quota || self.is_orphan_file();
            self.flags_of_map(is_file);
        }
        self.owned(0);
        let kind = self.kind().map_or(0, kind_code);
        InodeSlot::new(kind, Marks::OWN | self.marks, links)
    }

    fn is_orphan_file(&self) -> bool {
        let sb = &self.view.sb;
        self.ino == sb.raw.s_orphan_file_inum.get() && sb.compat.contains(Compat::ORPHAN_FILE)
    }

    /// Checks the flags that select the kind of map. Journals, quota files and the orphan file (`is_file`) have no data in
    /// the inode.
    fn flags_of_map(&mut self, is_file: bool) {
        let (ino, sb) = (self.ino, &self.view.sb);
        let lacks = |feature| !sb.incompat.contains(feature);
        let no_inline =
            is_file || self.ino != BOOT_LOADER_INO && self.ino != RESIZE_INO && lacks(Incompat::INLINE_DATA);
        let no_extents = lacks(Incompat::EXTENT) && !is_tree(&self.raw.i_block);
        if no_inline && self.has(InodeFlags::INLINE_DATA) {
            self.emit(Issue::InodeFlag { ino, flag: WrongFlag::InlineData });
            self.raw.i_flags.set(self.raw.i_flags.get() & !InodeFlags::INLINE_DATA.bits());
        }
        if no_extents && self.ino != RESIZE_INO && self.has(InodeFlags::EXTENTS) {
            self.emit(Issue::InodeFlag { ino, flag: WrongFlag::Extents });
        }
    }

    /// Checks what Linux requires of every inode that it opens (`__ext4_iget`, `check_igot_inode`). e2fsck does not check
    /// it in reserved inodes.
    fn opened_by_linux(&mut self) {
        let ino = self.ino;
        if self.has(InodeFlags::EA_INODE) {
            self.emit(Issue::InodeFlag { ino, flag: WrongFlag::AttributeInode });
        }
        let size = self.extra.map_or(0, |extra| extra.i_extra_isize.get());
        if !is_extra_size(size, self.view.sb.inode_size) {
            self.emit(Issue::ExtraSize { ino, found: size });
        }
    }
}
