//! The repair of each kind of issue.
//!
//! Invariant: the match has no wildcard arm, so that an issue without an entry does not compile.

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Result};
use obento_driver::CheckOptions;

use super::super::inode_check::RESIZE_INO;
use super::super::issue::Issue;
use super::super::reason::{
    ContextDefect, HeaderField, InlineDefect, InlineDirDefect, MissingFlag, OrphanFileDefect, WrongFlag,
};
use super::bitmaps::RepairedBitmap;
use super::edits::Edits;
use super::names::ROOT;
use super::places::GroupStructure;
use crate::feature::RoCompat;
use crate::quota::QuotaDefect;
use crate::unit::VolBlock;

/// `EXT4_BAD_INO`.
const BAD_INO: u32 = 1;

impl Edits {
    /// Repairs an issue. Returns false if it cannot be repaired.
    pub(super) fn repair(&mut self, issue: &Issue, options: &CheckOptions) -> Result<bool> {
        let clock = &options.clock;
        match *issue {
            // Notes.
            Issue::MarkedWithErrors { .. } | Issue::JournalMissing {} | Issue::RepairUnfinished { .. } => {
                return Ok(false);
            }
            // Such volumes are not repaired at all.
            Issue::Truncated { .. } | Issue::JournalNotRead {} => return Ok(false),
            // `replay` repairs these before the first round.
            Issue::JournalDirty { .. }
            | Issue::JournalReplay { .. }
            | Issue::JournalField { .. }
            | Issue::JournalAborted { .. } => return Ok(false),
            // `clone_twice` repairs all of these together.
            Issue::BlockTwice { .. } | Issue::ClusterRule { .. } | Issue::BlockOfVolume { .. } => {
                return Ok(false);
            }
            // The device does not return the contents.
            Issue::InodeUnreadable { .. }
            | Issue::DirectoryUnreadable { .. }
            | Issue::BitmapUnreadable { .. } => {
                return Ok(false);
            }
            // The root is reported as missing, too.
            Issue::RootNotDirectory { .. } => return Ok(false),

            // The super block and the descriptors.
            Issue::SuperBlockDamaged { .. } => self.use_backup()?,
            Issue::SuperBlockChecksum { .. } => self.super_block(|_| {})?,
            Issue::SuperBlockField { field, .. } => self.repair_super_block_field(field)?,
            Issue::SuperBlockValue { .. } => self.restore_layout()?,
            Issue::WantedExtraSize { field, expected, .. } => self.set_wanted_extra_size(field, expected)?,
            Issue::FirstMetaGroup { .. } => self.super_block(crate::locate::drop_meta_groups)?,
            Issue::DescriptorChecksum { group, .. } => self.restore_places(group)?,
            Issue::BlockBitmapPlace { group, .. } => {
                return self.restore_or_move(group, GroupStructure::Bitmap(RepairedBitmap::Blocks));
            }
            Issue::InodeBitmapPlace { group, .. } => {
                return self.restore_or_move(group, GroupStructure::Bitmap(RepairedBitmap::Inodes));
            }
            Issue::InodeTablePlace { group, .. } => {
                return self.restore_or_move(group, GroupStructure::Table);
            }
            Issue::MetadataTwice { group, block } => return self.separate(group, block),
            Issue::DescriptorFlags { group, .. }
            | Issue::UnusedInodes { group, .. }
            | Issue::HiddenInode { group, .. }
            | Issue::GroupUninit { group, .. } => self.mark_used(group)?,
            Issue::MissingFeature { feature } | Issue::Feature { feature, .. } => {
                return self.repair_feature(feature);
            }
            Issue::Mmp { block, .. } => return self.repair_mmp(block),

            // The journal, orphans and the format's own files.
            Issue::JournalInode { .. } => return self.restore_journal(),
            // A newer driver may be able to use it.
            Issue::JournalDamaged { why: Error::Unsupported(_) } => return Ok(false),
            Issue::JournalDamaged { .. } => return self.recreate_journal(options),
            Issue::JournalNamed { .. } => self.drop_journal()?,
            Issue::JournalNotThere {} => self.drop_recovery()?,
            Issue::Orphan { .. } => self.release_orphans(clock)?,
            Issue::OrphanList { .. } => self.super_block(|raw| raw.s_last_orphan.set(0))?,
            Issue::OrphanFile {
                ino,
                why: OrphanFileDefect::NotRegular | OrphanFileDefect::NotWhole | OrphanFileDefect::Unreadable,
            } => self.make_orphan_file(ino, clock)?,
            Issue::OrphanFile { ino, why: OrphanFileDefect::Deleted } => self.inode(ino, |raw| {
                raw.i_links_count.set(1);
                raw.i_dtime.set(0);
            })?,
            Issue::OrphanFile { ino, why: OrphanFileDefect::NoJournal } => self.drop_orphan_file(ino)?,
            Issue::OrphanFile { ino, .. } => self.empty_damaged(ino)?,
            Issue::OrphansAnnounced {} => self.super_block(|raw| {
                raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !RoCompat::ORPHAN_PRESENT.bits());
            })?,
            Issue::ResizeInode { .. } => return self.make_resize_inode(),
            Issue::BadBlocksInode { .. } => self.clear_inode(BAD_INO)?,
            Issue::QuotaInode { ino, why: QuotaDefect::Number } => self.drop_quota_file(ino)?,
            Issue::QuotaInode { ino, .. } | Issue::QuotaUsage { ino, .. } => {
                return Ok(!self.rebuilt.insert(ino) || self.make_quota_file(ino, clock)?);
            }

            // Fields of inodes.
            Issue::InodeChecksum { ino, .. } => self.inode(ino, |_| {})?,
            Issue::DeletedWithoutTime { ino } => self.set_deletion_time(ino)?,
            Issue::DeletionTime { ino } => self.inode(ino, |raw| raw.i_dtime.set(0))?,
            Issue::LostOrphan { ino } => self.decide_deletion(ino)?,
            Issue::DirectoryMode { ino, mode } => {
                self.inode(ino, |raw| raw.i_mode.set(mode & 0o7777 | 0o040_000))?
            }
            Issue::Size { ino, expected, .. } | Issue::SizeOfTree { ino, expected, .. } => {
                return self.repair_size(ino, expected);
            }
            Issue::ValueSize { ino, expected, .. } => self.set_size(ino, expected)?,
            Issue::BlockCount { ino, expected, .. } => self.set_sectors(ino, expected)?,
            Issue::InodeField { ino, field, .. } => self.clear_field(ino, field)?,
            Issue::InodeFlag { ino, flag } => self.clear_flag(ino, flag)?,
            Issue::InodeFlagMissing { ino, flag: MissingFlag::Extents } => self.set_extents_flag(ino)?,
            Issue::ExtraSize { ino, .. } => self.set_extra_size(ino)?,
            Issue::Time { ino, field } => self.clear_epoch(ino, field)?,
            Issue::InlineData { ino, why: InlineDefect::NoAttribute } => self.drop_inline_data(ino)?,
            Issue::Encryption { ino, why: ContextDefect::Missing } => {
                self.clear_flag(ino, WrongFlag::Encrypted)?
            }
            Issue::Encryption { ino, why: ContextDefect::Damaged }
            | Issue::InlineData { ino, why: InlineDefect::NoContents }
            | Issue::BadMode { ino, .. }
            | Issue::BadSpecial { ino }
            | Issue::BadSymlink { ino }
            | Issue::TooManyIllegal { ino }
            | Issue::ReservedInode { ino, .. } => self.clear_inode(ino)?,
            Issue::LinkCount { ino, found, .. } => self.set_link_count(ino, found)?,

            // Extent trees and block maps.
            Issue::ExtentHeader { ino, block: 0, .. } => self.empty_root(ino)?,
            Issue::ExtentHeader { ino, block, field: HeaderField::Depth, .. } => {
                return self.set_depth(ino, block);
            }
            Issue::ExtentHeader { ino, block, .. } => self.cut_node(ino, block)?,
            Issue::ExtentChecksum { ino, block, .. } => {
                return self.change_nodes(ino, &mut |node, _, _| node == block);
            }
            Issue::BadExtent { ino, at, block, len } => return self.remove_extent(ino, at, (block, len)),
            Issue::ExtentOrder { ino, block, index, at } => {
                return self.remove_entry(ino, block, index.into(), at);
            }
            Issue::ExtentCircle { ino, block, below } => return self.remove_link(ino, block, below),
            Issue::ExtentStart { ino, block, found, .. } => return self.set_start(ino, block, found),
            Issue::ExtentUnwritten { ino, at } => return self.mark_written(ino, at),
            // It is recreated, and its indirect blocks may be data of other files.
            Issue::IllegalBlock { ino: RESIZE_INO, .. } => {
                self.inode(RESIZE_INO, |raw| raw.i_block = [0; 60])?
            }
            Issue::IllegalBlock { ino, at, block } => return self.remove_block(ino, at, block),
            Issue::BlockMapped { ino } => return self.convert_block_map(ino, clock),

            // Attributes.
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
            Issue::ValueUsers { ino, expected, .. } => self.set_value_users(ino, expected)?,
            Issue::ValueHash { ino, expected, .. } => self.inode(ino, |raw| raw.i_atime.set(expected))?,
            Issue::XattrValueHash { ino, block, value, expected, .. } => {
                self.set_value_hash(ino, block, value, expected)?;
            }
            Issue::XattrValueSize { ino, block, value, expected, .. } => {
                self.set_value_size(ino, block, value, expected)?;
            }

            // Directories.
            Issue::DirectoryHole { dir, at } => return self.close_holes(dir, at),
            Issue::DirectoryEmpty { dir } => return self.give_block(dir),
            Issue::DirectoryRecord { dir, block, offset, .. } => {
                return self.salvage_block(dir, VolBlock(block), to_usize(offset.into()));
            }
            Issue::DirectoryChecksum { dir, block, .. } => self.seal_directory_block(dir, VolBlock(block))?,
            Issue::DirectoryNoTail { dir, block } => return self.make_tail(dir, VolBlock(block)),
            Issue::InlineDirectory { dir, why: InlineDirDefect::Parent, .. } => self.set_parent(dir, ROOT)?,
            Issue::InlineDirectory { dir, offset, why: InlineDirDefect::Record } => {
                return self.salvage_inline(dir, to_usize(offset.into()));
            }
            Issue::Dot { dir, name, .. } => return self.make_dot(dir, name),
            Issue::DotInode { dir, .. } => self.set_dot(dir)?,
            Issue::DotDot { dir, expected, .. } => self.set_parent(dir, expected)?,
            Issue::DuplicateDot { dir, .. } => self.clear_second_dot(dir)?,
            Issue::EntryName { dir, ref name, .. } => self.repair_name(dir, name)?,
            Issue::EntryEncoding { dir, ref name, ino } => self.make_readable(dir, name, ino)?,
            Issue::DuplicateName { dir, ref name, .. } => self.rename_second(dir, name)?,
            Issue::EntryRoot { dir, ref name } => self.clear(dir, name, ROOT)?,
            Issue::EntryInode { dir, ref name, found: ino }
            | Issue::EntryUnused { dir, ref name, ino }
            | Issue::EntryEncryption { dir, ref name, ino }
            | Issue::DirectoryTwice { dir, ref name, ino } => self.clear(dir, name, ino)?,
            Issue::EntryType { dir, ref name, ino, expected, .. }
            | Issue::EntryTypeMissing { dir, ref name, ino, expected } => {
                self.set_entry_type(dir, name, ino, expected)?;
            }
            Issue::Index { dir, .. }
            | Issue::IndexChecksum { dir, .. }
            | Issue::IndexHash { dir, .. }
            | Issue::IndexReference { dir, .. } => self.repair_index(dir, clock)?,
            Issue::NoRoot {} => self.find_root()?,
            Issue::Unconnected { dir, parent } => self.connect(dir, parent, clock)?,
            Issue::Unnamed { ino } => self.name_or_clear(ino, clock)?,

            // Bitmaps and counts.
            // The first issue of a bitmap repairs all of it.
            Issue::BlockBitmap { group, .. } | Issue::BlockBitmapOthers { group, .. } => {
                return self.rewrite_bitmap(RepairedBitmap::Blocks, group);
            }
            Issue::InodeBitmap { group, .. } | Issue::InodeBitmapOthers { group, .. } => {
                return self.rewrite_bitmap(RepairedBitmap::Inodes, group);
            }
            Issue::BlockBitmapPadding { group } => self.pad_block_bitmap(group)?,
            Issue::InodeBitmapPadding { group } => self.pad_inode_bitmap(group)?,
            Issue::BlockBitmapChecksum { group, .. } => self.seal_bitmap(RepairedBitmap::Blocks, group)?,
            Issue::InodeBitmapChecksum { group, .. } => self.seal_bitmap(RepairedBitmap::Inodes, group)?,
            Issue::LastGroupUninit { group } => self.mark_bitmap_written(group)?,
            Issue::GroupFreeBlocks { group, expected, .. } => self.change_free_blocks(group, |_| expected)?,
            Issue::GroupFreeInodes { group, expected, .. } => self.set_free_inodes(group, expected)?,
            Issue::GroupDirectories { group, expected, .. } => self.set_directories(group, expected)?,
            Issue::FreeBlocks { expected, .. } => self.set_all_free_blocks(expected)?,
            Issue::FreeInodes { expected, .. } => self.set_all_free_inodes(expected)?,
        }
        Ok(true)
    }
}
