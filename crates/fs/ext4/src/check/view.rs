//! The volume as a check reads it: blocks of the device with its journal applied, the super block, every descriptor.
//!
//! Invariant: the list of groups has one entry per group, for at most [`MAX_LISTED_GROUPS`] groups; an impossible
//! place is 0.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Feature, FileKind, Result, Structure};
use obento_block::BlockDevice;
use obento_driver::{CheckOptions, Decoded};

use super::events::EventSink;
use super::issue::Issue;
use super::journal;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::group::{GroupDescriptor, GroupFlags, descriptor_checksum, verify_descriptor};
use crate::layout;
use crate::locate::{self, FoundSuperBlock};
use crate::raw::{RawGroup32, RawInode};
use crate::super_block::{Checksums, PRIMARY_OFFSET, SuperBlock};
use crate::unit::VolBlock;
use crate::zones::{MAX_LISTED_GROUPS, Zones};
use obento_base::wire::FromBytes;

/// The volume as a check reads it.
pub(super) struct View {
    /// The device with its journal applied.
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) sb: SuperBlock,
    pub(super) groups: Vec<GroupDescriptor>,
    /// The descriptors as they are on disk.
    descriptors: Vec<u8>,
    /// The places of the volume's own metadata.
    pub(super) zones: Zones,
}

impl View {
    /// Opens the volume. Fails with `Corrupt` without a usable super block, with `Unsupported` for a feature, or for
    /// too many groups, or if the device fails to read the super block.
    pub(super) fn open(
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        reported: &mut EventSink<'_>,
    ) -> Result<Self> {
        let found = find(&*device, options)?;
        found.super_block.check_known()?;
        instead_of(&found).into_iter().for_each(|issue| reported.found(issue));
        let sb = found.super_block.clone();
        if sb.groups > MAX_LISTED_GROUPS {
            return Err(Error::Unsupported(Feature::Named("checking more than 196608 block groups")));
        }
        if sb.volume_len() > device.len() {
            reported.found(Issue::Truncated { found: device.len(), expected: sb.volume_len() });
        }
        let (device, sb) = journal::look_behind(device, found, options, reported)?;
        let mut this =
            Self { device, sb, groups: Vec::new(), descriptors: Vec::new(), zones: Zones::default() };
        this.read_groups(reported)?;
        this.correct_reserved(reported);
        Ok(this)
    }

    /// Reads every descriptor, from a backup if the primary one is damaged.
    fn read_groups(&mut self, reported: &mut EventSink<'_>) -> Result<()> {
        let sb = &self.sb;
        let size = usize::from(sb.desc_size);
        let (mut groups, mut descriptors) = (Vec::new(), Vec::new());
        groups.try_reserve_exact(to_usize(sb.groups.into()))?;
        for index in 0..sb.desc_blocks() {
            let first = index.saturating_mul(sb.descs_per_block());
            let end = first.saturating_add(sb.descs_per_block()).min(sb.groups);
            let block = self.read(sb.desc_block(index, 0), 1);
            for (group, at) in (first..end).zip((0_usize..).step_by(size)) {
                let bytes = block.as_ref().ok().and_then(|block| block.get(at..at.saturating_add(size)));
                groups.push(self.take_descriptor(group, bytes, reported));
                descriptors.extend_from_slice(bytes.unwrap_or_default());
                descriptors.resize(groups.len().saturating_mul(size), 0);
            }
        }
        (self.groups, self.descriptors) = (groups, descriptors);
        self.take_places_from_copies(reported);
        for group in 0..self.sb.groups {
            self.zones.add_copies(&self.sb, group)?;
            if let Some(descriptor) = self.groups.get(to_usize(group.into())) {
                self.zones.add_descriptor(&self.sb, descriptor)?;
            }
        }
        self.zones.finish();
        Ok(())
    }

    /// Returns the descriptor of `group`, whose primary copy has these bytes.
    fn take_descriptor(
        &self,
        group: u32,
        bytes: Option<&[u8]>,
        reported: &mut EventSink<'_>,
    ) -> GroupDescriptor {
        let sb = &self.sb;
        let bytes = bytes.unwrap_or_default();
        let place = VolBlock(0);
        let first = GroupDescriptor::decode(bytes, group, place);
        let expected = descriptor_checksum(sb, group, bytes);
        let found = RawGroup32::ref_from_prefix(bytes).map_or(0, |(raw, _)| raw.bg_checksum.get());
        let is_sound = bytes.len() == usize::from(sb.desc_size) && expected.is_none_or(|sum| sum == found);
        if !is_sound {
            reported.found(Issue::DescriptorChecksum { group, found, expected: expected.unwrap_or(0) });
        }
        let usable = |descriptor: &GroupDescriptor| descriptor.check_group(sb, group).is_ok();
        let primary = first.ok().filter(usable);
        // A checksum that is right only in the backup means that the backup is right.
        let needs_sum = !is_sound && primary.is_some();
        let wanted =
            |descriptor: &GroupDescriptor, is_sealed: bool| usable(descriptor) && (is_sealed || !needs_sum);
        let copies = sb.copies().skip(1).take(MAX_COPIES).filter(|_| !is_sound || primary.is_none());
        let mut copies = copies.filter_map(|copy| self.descriptor_in(group, copy));
        let copy = copies.find(|(copy, is_sealed)| wanted(copy, *is_sealed)).map(|(copy, _)| copy);
        let mut descriptor = first.ok().unwrap_or(GroupDescriptor::EMPTY);
        if primary.is_none() {
            self.report_places(group, &mut descriptor, reported);
        }
        // Fields of the volume's shape are the same in every copy; the others come from the primary one.
        match copy {
            Some(copy) => GroupDescriptor {
                block_bitmap: copy.block_bitmap,
                inode_bitmap: copy.inode_bitmap,
                inode_table: copy.inode_table,
                ..descriptor
            },
            None => descriptor,
        }
    }

    /// Takes the places of groups from a backup of the descriptors if the primary ones cannot all be right: if two
    /// structures overlap, or if the first table contains no root.
    fn take_places_from_copies(&mut self, reported: &mut EventSink<'_>) {
        let mut doubtful = overlapping(&self.sb, &self.groups);
        if !self.has_root() {
            doubtful.insert(0);
        }
        for group in doubtful {
            let known = *self.group(group);
            let Some(copy) = self.usable_copy(group).filter(|copy| places(copy) != places(&known)) else {
                continue;
            };
            self.set_places(group, &copy);
            // A backup that leads to no root, either, is not better.
            if group == 0 && !self.has_root() {
                self.set_places(group, &known);
                continue;
            }
            let [block_bitmap, inode_bitmap, inode_table] = places(&known).map(|block| block.0);
            if copy.block_bitmap.0 != block_bitmap {
                reported.found(Issue::BlockBitmapPlace { group, block: block_bitmap });
            }
            if copy.inode_bitmap.0 != inode_bitmap {
                reported.found(Issue::InodeBitmapPlace { group, block: inode_bitmap });
            }
            if copy.inode_table.0 != inode_table {
                reported.found(Issue::InodeTablePlace { group, block: inode_table });
            }
        }
    }

    /// Returns the first backup of a descriptor with possible places.
    fn usable_copy(&self, group: u32) -> Option<GroupDescriptor> {
        let copies = self.sb.copies().skip(1).take(MAX_COPIES);
        let mut copies = copies.filter_map(|copy| self.descriptor_in(group, copy)).map(|(copy, _)| copy);
        copies.find(|copy| copy.check_group(&self.sb, group).is_ok())
    }

    fn set_places(&mut self, group: u32, from: &GroupDescriptor) {
        if let Some(known) = self.groups.get_mut(to_usize(group.into())) {
            let [block_bitmap, inode_bitmap, inode_table] = places(from);
            *known = GroupDescriptor { block_bitmap, inode_bitmap, inode_table, ..*known };
        }
    }

    /// Returns whether the second inode is a directory.
    fn has_root(&self) -> bool {
        let record = self.record(2);
        let raw = record.as_ref().and_then(|(record, _)| RawInode::ref_from_prefix(record).ok());
        raw.is_some_and(|(raw, _)| FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Directory))
    }

    /// Returns the descriptor of `group` in a backup, and whether its checksum is right.
    fn descriptor_in(&self, group: u32, copy: u32) -> Option<(GroupDescriptor, bool)> {
        let (index, at) = self.sb.desc_place(group);
        let place = self.sb.desc_block(index, copy);
        let block = self.read(place, 1).ok()?;
        let bytes = block.get(at..at.saturating_add(self.sb.desc_size.into()))?;
        let is_sealed = verify_descriptor(&self.sb, group, bytes, place).is_ok();
        Some((GroupDescriptor::decode(bytes, group, place).ok()?, is_sealed))
    }

    /// Reports impossible places, and sets them to 0.
    fn report_places(&self, group: u32, descriptor: &mut GroupDescriptor, reported: &mut EventSink<'_>) {
        let table = self.sb.inode_table_blocks().into();
        let GroupDescriptor { block_bitmap, inode_bitmap, inode_table, .. } = descriptor;
        let fits = |block: VolBlock, len| self.sb.group_holds(group, block, len);
        if !fits(*block_bitmap, 1) {
            reported.found(Issue::BlockBitmapPlace { group, block: block_bitmap.0 });
            *block_bitmap = VolBlock(0);
        }
        if !fits(*inode_bitmap, 1) {
            reported.found(Issue::InodeBitmapPlace { group, block: inode_bitmap.0 });
            *inode_bitmap = VolBlock(0);
        }
        if !fits(*inode_table, table) {
            reported.found(Issue::InodeTablePlace { group, block: inode_table.0 });
            *inode_table = VolBlock(0);
        }
    }

    /// Returns the descriptor of `group`.
    pub(super) fn group(&self, group: u32) -> &GroupDescriptor {
        self.groups.get(to_usize(group.into())).unwrap_or(&GroupDescriptor::EMPTY)
    }

    /// Returns whether descriptors have checksums, and therefore valid flags and counts of unused inodes.
    pub(super) fn has_descriptor_sums(&self) -> bool {
        self.sb.checksums != Checksums::None
    }

    /// Returns the number of inodes at the start of `group`'s table that may be in use. An impossible number of unused
    /// inodes is ignored.
    pub(super) fn used_inodes(&self, group: u32) -> u32 {
        let (descriptor, all) = (self.group(group), self.sb.inodes_per_group);
        if descriptor.inode_table.0 == 0 {
            return 0;
        }
        if !self.has_descriptor_sums() {
            return all;
        }
        if descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return 0;
        }
        all.checked_sub(descriptor.itable_unused).unwrap_or(all)
    }

    /// Returns the group whose descriptor marks inode `ino` as never used, although it is a file.
    pub(super) fn group_that_hides(&self, ino: u32) -> Option<u32> {
        let (group, inside) = self.sb.inode_index(ino.into())?;
        let (record, _) = self.record(ino).filter(|_| inside >= self.used_inodes(group))?;
        let (raw, _) = RawInode::ref_from_prefix(&record).ok()?;
        let is_file = FileKind::from_mode(raw.i_mode.get()).is_some() && raw.i_links_count.get() > 0;
        is_file.then_some(group)
    }

    /// Returns whether `ino` belongs to the format itself: reserved and not the root, or a file that the super block
    /// names.
    pub(super) fn is_own(&self, ino: u32) -> bool {
        let sb = &self.sb;
        let orphan_file = sb.compat.contains(Compat::ORPHAN_FILE) && ino == sb.raw.s_orphan_file_inum.get();
        ino != 2 && ino < sb.first_ino || orphan_file || self.quota_inodes().contains(&ino)
    }

    /// Returns the inodes of the quota files; 0 for a missing or impossible one.
    pub(super) fn quota_inodes(&self) -> [u32; 3] {
        self.named_quota_inodes().map(|(ino, can_be)| if can_be { ino } else { 0 })
    }

    /// Returns the numbers of the quota files, and whether they are possible.
    pub(super) fn named_quota_inodes(&self) -> [(u32, bool); 3] {
        let [user, group, project] = self.quota_numbers();
        let can_be = |ino: u32, usual: u32| {
            ino == 0 || ino == usual || (self.sb.first_ino..=self.sb.inodes_count).contains(&ino)
        };
        [(user, can_be(user, 3)), (group, can_be(group, 4)), (project, can_be(project, 0))]
    }

    fn quota_numbers(&self) -> [u32; 3] {
        let raw = &self.sb.raw;
        let has = self.sb.ro_compat.contains(RoCompat::QUOTA);
        [&raw.s_usr_quota_inum, &raw.s_grp_quota_inum, &raw.s_prj_quota_inum]
            .map(|inum| if has { inum.get() } else { 0 })
    }

    /// Returns the bytes of `group`'s descriptor.
    pub(super) fn descriptor_bytes(&self, group: u32) -> &[u8] {
        let size = usize::from(self.sb.desc_size);
        let start = to_usize(group.into()).saturating_mul(size);
        self.descriptors.get(start..start.saturating_add(size)).unwrap_or_default()
    }

    /// Returns the record of inode `ino`, and its block of the inode table.
    pub(super) fn record(&self, ino: u32) -> Option<(Vec<u8>, VolBlock)> {
        let sb = &self.sb;
        let (group, index) = sb.inode_index(ino.into())?;
        let table = self.groups.get(to_usize(group.into()))?.inode_table;
        if table.0 == 0 {
            return None;
        }
        let (at, offset) = sb.inode_place(index);
        let (block, start) = (table.checked_add(at.into())?, to_usize(offset.into()));
        let bytes = self.read(block, 1).ok()?;
        let record = bytes.get(start..start.saturating_add(sb.inode_size.into()))?;
        Some((record.to_vec(), block))
    }

    /// Returns the bytes of `count` blocks from `start` on.
    pub(super) fn read(&self, start: VolBlock, count: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_into(start, count, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes` with `count` blocks from `start` on.
    pub(super) fn read_into(&self, start: VolBlock, count: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let size = u64::from(self.sb.block_size);
        let (offset, len) = (start.0.saturating_mul(size), count.saturating_mul(size));
        // Before the memory is allocated.
        obento_block::check_range(self.device.len(), offset, len)?;
        let len = to_usize(len);
        bytes.clear();
        bytes.try_reserve_exact(len)?;
        bytes.resize(len, 0);
        self.device.read_at(offset, bytes)
    }
}

/// Returns the places of the structures of a group.
fn places(descriptor: &GroupDescriptor) -> [VolBlock; 3] {
    [descriptor.block_bitmap, descriptor.inode_bitmap, descriptor.inode_table]
}

/// Returns the groups whose bitmaps or tables overlap each other, or backups of the super block and the descriptors.
fn overlapping(sb: &SuperBlock, groups: &[GroupDescriptor]) -> BTreeSet<u32> {
    let table = u64::from(sb.inode_table_blocks());
    let mut taken: Vec<(u64, u64, u32)> = Vec::new();
    for (group, descriptor) in (0..).zip(groups) {
        let (start, len) = sb.copy_blocks(group);
        let lens = [1, 1, table];
        let own = places(descriptor).into_iter().zip(lens).filter(|(start, _)| start.0 != 0);
        let all = own.chain([(start, len)]).filter(|(_, len)| *len != 0);
        taken.extend(all.map(|(start, len)| (start.0, start.0.saturating_add(len), group)));
    }
    taken.sort_unstable();
    let mut found = BTreeSet::new();
    let (mut end, mut last) = (0, 0);
    for (start, next, group) in taken {
        if start < end {
            found.extend([last, group]);
        }
        if next >= end {
            (end, last) = (next, group);
        }
    }
    found
}

/// Maximum number of backups of a descriptor that are tried.
const MAX_COPIES: usize = 4;

/// Returns the super block that `options` name, or the primary one, or a backup at any place.
pub(super) fn find(device: &dyn BlockDevice, options: &CheckOptions) -> Result<FoundSuperBlock> {
    let Some(number) = options.super_block else {
        return find_agreeing(device, options).or_else(|error| match error {
            Error::Corrupt(_) => {
                let straight = layout::find_straight(device, error);
                let plain = straight.or_else(|error| locate::find_plain(device, error));
                plain.or_else(|error| locate::find_copy_anywhere(device, error))
            }
            error => Err(error),
        });
    };
    let found = locate::find_at(device, number)?;
    let size = found.super_block.block_size.bytes();
    if options.block_size.is_some_and(|asked| asked != size) {
        let (structure, field, found) = (Structure::SuperBlock, "s_log_block_size", size.into());
        return Err(Corrupt::Field { structure, field, block: number, offset: 0x18, found }.into());
    }
    let instead_of = locate::check_at(device, PRIMARY_OFFSET).err().filter(|_| found.is_copy());
    Ok(FoundSuperBlock { instead_of, ..found })
}

/// Returns the primary super block. If it has features that exclude each other and a backup has only one of them, one
/// bit is damaged, and the backup's features are used, since they determine the places of all descriptors.
fn find_agreeing(device: &dyn BlockDevice, options: &CheckOptions) -> Result<FoundSuperBlock> {
    let found = layout::agreeing(device, Decoded::of(options.probe.as_ref(), || locate::find(device))?);
    let sb = &found.super_block;
    if found.is_copy() || !keeps_for_growing_twice(sb) {
        return Ok(found);
    }
    let (structure, field, offset) = (Structure::SuperBlock, "s_feature_incompat", 0x60);
    let value = sb.raw.s_feature_incompat.get().into();
    let error = Corrupt::Field { structure, field, block: found.block().0, offset, found: value };
    match locate::find_copy(device, Some(&sb.raw)).filter(|(copy, _)| !keeps_for_growing_twice(copy)) {
        Some((super_block, offset)) => {
            Ok(FoundSuperBlock { super_block, offset, instead_of: Some(error.into()) })
        }
        None => Ok(found),
    }
}

/// Returns whether it has both `resize_inode` and `meta_bg`, which exclude each other.
pub(super) fn keeps_for_growing_twice(sb: &SuperBlock) -> bool {
    sb.compat.contains(Compat::RESIZE_INODE) && sb.incompat.contains(Incompat::META_BG)
}

/// Returns the issue of the primary super block if another one was found, or if it has an error itself.
pub(super) fn instead_of(found: &FoundSuperBlock) -> Option<Issue> {
    Some(match found.instead_of? {
        Error::Corrupt(Corrupt::Checksum { found: stored, expected, .. }) if !found.is_copy() => {
            Issue::SuperBlockChecksum { found: stored, expected }
        }
        Error::Corrupt(Corrupt::Field { field: "s_first_meta_bg", found: first, .. }) if !found.is_copy() => {
            Issue::FirstMetaGroup { found: first, most: found.super_block.desc_blocks() }
        }
        Error::Corrupt(Corrupt::Field { field, found: stored, .. }) if !found.is_copy() => {
            let expected = layout::value(&found.super_block.raw, field);
            Issue::SuperBlockValue { field, found: stored, expected }
        }
        why => Issue::SuperBlockDamaged { block: found.block().0, why },
    })
}
