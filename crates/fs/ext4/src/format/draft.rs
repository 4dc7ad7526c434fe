//! A new volume in memory: super block, groups, and the few blocks and inodes that are not zero.
//!
//! Invariant: memory does not grow with the volume, except for about 40 bytes per group.
//! Source: e2fsprogs `lib/ext2fs/initialize.c`, `lib/ext2fs/alloc_stats.c`, `lib/ext2fs/csum.c`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::wire::{FromZeros, IntoBytes, split, to_usize};
use obento_base::{Error, Timestamp};
use obento_driver::FormatError;

use super::geometry::{FIRST_INO, Geometry};
use super::options::RequestedSettings;
use super::space::Space;
use crate::checksum::Crc;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::group::{GroupDescriptor, GroupFlags};
use crate::quota::{Entries, QuotaKind};
use crate::raw::RawSuperBlock;
use crate::super_block::{Checksums, MAGIC, SuperBlock};
use crate::unit::VolBlock;

/// `EXT4_DEFM_XATTR_USER` and `EXT4_DEFM_ACL`.
const MOUNT_OPTIONS: u32 = 0x4 | 0x8;
/// `DX_HASH_HALF_MD4`.
const HALF_MD4: u8 = 1;
/// `EXT2_FLAGS_SIGNED_HASH`, as on the machines that create most volumes.
const SIGNED_HASH: u32 = 1;
/// `EXT2_FLAGS_TEST_FILESYS`.
const TEST: u32 = 4;
/// `EXT4_ENC_UTF8_12_1`.
const UTF8_12_1: u16 = 1;
/// `EXT4_ENC_STRICT_MODE_FL`.
const STRICT: u16 = 1;
/// `EXT4_ENCRYPTION_MODE_AES_256_XTS` and `_CTS`.
const CIPHERS: [u8; 4] = [1, 4, 0, 0];
/// Size of an inode's fields after the first 128 bytes.
const EXTRA_ISIZE: u16 = 32;

/// The properties that identify a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub uuid: [u8; 16],
    pub hash_seed: [u8; 16],
    pub label: [u8; 16],
    pub now: Timestamp,
}

/// A new volume.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub sb: SuperBlock,
    pub groups: Vec<GroupDescriptor>,
    pub space: Space,
    /// The records of inodes without their checksums.
    pub inodes: BTreeMap<u32, Vec<u8>>,
    /// Blocks that are not zero, except those that follow from other data.
    pub blocks: BTreeMap<u64, Vec<u8>>,
    /// Blocks other than the inode tables that must be zeroed, since they may have other contents: first block and
    /// number.
    pub zeros: Vec<(u64, u64)>,
    pub now: Timestamp,
    /// Usage in addition to that of the first directories, by user, group and project, if quotas are enabled.
    pub owners: [Entries; 3],
    /// The quota files, and the places of their blocks.
    pub quota_places: Vec<(QuotaKind, BTreeMap<u32, u64>)>,
}

impl Draft {
    /// Creates a volume of this shape without files. Fails with `Device` if memory is short.
    pub fn new(
        geometry: &Geometry,
        wishes: &RequestedSettings,
        identity: &Identity,
    ) -> Result<Self, FormatError> {
        let raw = super_block(geometry, wishes, identity);
        let sb = SuperBlock::decode(raw.as_bytes(), VolBlock(geometry.first_data_block.into()))?;
        let mut this = Self {
            space: Space::new(geometry.first_data_block.into()..geometry.blocks),
            sb,
            groups: Vec::new(),
            inodes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            zeros: Vec::new(),
            now: identity.now,
            owners: Default::default(),
            quota_places: Vec::new(),
        };
        this.lay_out_groups()?;
        Ok(this)
    }

    /// Allocates the backups of super block and descriptors, and creates a descriptor for each group.
    fn lay_out_groups(&mut self) -> Result<(), FormatError> {
        self.groups.try_reserve_exact(to_usize(self.sb.groups.into())).map_err(Error::from)?;
        let per_group = self.sb.inodes_per_group;
        let mut reserved = FIRST_INO;
        for group in 0..self.sb.groups {
            self.take_copies(group);
            let mut flags = GroupFlags::empty();
            let mut unused = 0;
            if self.sb.checksums != Checksums::None {
                flags.insert(GroupFlags::INODE_UNINIT);
                // The bitmap of the last group is padded, and therefore always written.
                flags.set(GroupFlags::BLOCK_UNINIT, group != self.sb.groups - 1);
                unused = per_group.saturating_sub(reserved);
                reserved = reserved.saturating_sub(per_group);
            }
            self.groups.push(GroupDescriptor {
                block_bitmap: VolBlock(0),
                inode_bitmap: VolBlock(0),
                inode_table: VolBlock(0),
                free_blocks: 0,
                free_inodes: per_group,
                used_dirs: 0,
                itable_unused: unused,
                flags,
            });
        }
        Ok(())
    }

    fn take_copies(&mut self, group: u32) {
        let (start, len) = self.sb.copy_blocks(group);
        let plain = self.sb.has_copy(group) && self.sb.has_plain_copies(group);
        let reserved = if plain { self.sb.raw.s_reserved_gdt_blocks.get() } else { 0 };
        self.space.take(start.0..start.0 + len + u64::from(reserved));
    }

    /// Returns the size of a block in bytes.
    pub fn block_len(&self) -> usize {
        to_usize(self.sb.block_size.into())
    }

    /// Returns a zeroed block. Fails with `Device` if memory is short.
    pub fn zeroed(&self) -> Result<Vec<u8>, FormatError> {
        zeroed(self.block_len())
    }

    /// Returns the group that contains a block.
    pub fn group_mut(&mut self, block: u64) -> Option<&mut GroupDescriptor> {
        let group = self.sb.group_of(VolBlock(block))?;
        self.groups.get_mut(to_usize(group.into()))
    }

    /// Allocates a block or a cluster for a file: the first free one from `goal` on. Fails with `TooSmall`.
    pub fn allocate(&mut self, goal: u64) -> Result<u64, FormatError> {
        let block = self.space.allocate(goal)?;
        self.note_written(block);
        Ok(block)
    }

    /// Records that the block bitmap of the group of `block` must be written.
    pub fn note_written(&mut self, block: u64) {
        if let Some(group) = self.group_mut(block) {
            group.flags.remove(GroupFlags::BLOCK_UNINIT);
        }
    }

    /// Returns the group of inode `ino`, and the index of `ino` in the group.
    pub fn place_of(&self, ino: u32) -> (u32, u32) {
        self.sb.inode_index(ino.into()).unwrap_or_default()
    }

    /// Returns the goal for blocks of inode `ino`: `ext2fs_find_inode_goal`.
    pub fn goal_of(&self, ino: u32) -> u64 {
        let (group, _) = self.place_of(ino);
        let log = u32::from(self.sb.raw.s_log_groups_per_flex);
        let first = group >> log << log;
        self.sb.group_start(first).0
    }

    /// Allocates inode `ino`: `ext2fs_inode_alloc_stats2`.
    pub fn take_inode(&mut self, ino: u32, is_dir: bool) {
        let per_group = self.sb.inodes_per_group;
        let (group, place) = self.place_of(ino);
        let Some(group) = self.groups.get_mut(to_usize(group.into())) else { return };
        group.free_inodes -= 1;
        group.used_dirs += u32::from(is_dir);
        group.flags.remove(GroupFlags::INODE_UNINIT);
        let behind = per_group - place - 1;
        group.itable_unused = group.itable_unused.min(behind);
    }

    /// Records that a search for a free inode reached the group of `ino`: `check_inode_uninit`. Its block bitmap must
    /// be written, too.
    pub fn note_inode_search(&mut self, ino: u32) {
        let (group, _) = self.place_of(ino);
        let Some(group) = self.groups.get_mut(to_usize(group.into())) else { return };
        if group.flags.contains(GroupFlags::INODE_UNINIT) {
            group.flags.remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
        }
    }

    /// Returns whether files have extents.
    pub fn has_extents(&self) -> bool {
        self.sb.incompat.contains(Incompat::EXTENT)
    }

    /// Updates the free counts of each group and of the volume.
    pub fn count_free(&mut self) {
        let (mut blocks, mut inodes) = (0_u64, 0_u32);
        for (index, group) in (0..).zip(&mut self.groups) {
            let own = self.sb.group_blocks(index);
            let free = own.end - own.start - self.space.count_in(own);
            group.free_blocks = u32::try_from(self.sb.cluster.needed(free)).unwrap_or(u32::MAX);
            blocks += free;
            inodes += group.free_inodes;
        }
        let (low, high) = split(blocks);
        self.sb.raw.s_free_blocks_count_lo.set(low);
        self.sb.raw.s_free_blocks_count_hi.set(high);
        self.sb.raw.s_free_inodes_count.set(inodes);
    }

    /// Returns the number of allocated clusters.
    pub fn taken_clusters(&self) -> u64 {
        let taken = self.space.count_in(0..self.sb.blocks_count);
        self.sb.cluster.needed(taken)
    }

    /// Switches a compatible feature on or off.
    pub fn set_compat(&mut self, feature: Compat, on: bool) {
        self.sb.compat.set(feature, on);
        self.sb.raw.s_feature_compat.set(self.sb.compat.bits());
    }

    /// Sets the feature for files of 2 GiB and more.
    pub fn set_large_file(&mut self) {
        self.sb.ro_compat.insert(RoCompat::LARGE_FILE);
        self.sb.raw.s_feature_ro_compat.set(self.sb.ro_compat.bits());
    }
}

/// Returns `len` zeros. Fails with `Device` if memory is short.
pub(crate) fn zeroed(len: usize) -> Result<Vec<u8>, FormatError> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(Error::from)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Returns the low 32 bits of a time in seconds, and the next 8 bits.
pub(crate) fn time_halves(now: Timestamp) -> (u32, u8) {
    let [a, b, c, d, high, ..] = now.secs().to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), high)
}

/// Creates the super block, without the counts that are set later.
fn super_block(geometry: &Geometry, wishes: &RequestedSettings, identity: &Identity) -> RawSuperBlock {
    let mut raw = RawSuperBlock::new_zeroed();
    set_shape(&mut raw, geometry);
    set_identity(&mut raw, identity);
    let features = &geometry.features;
    raw.s_feature_compat.set(features.compat.bits());
    raw.s_feature_incompat.set(features.incompat.bits());
    raw.s_feature_ro_compat.set(features.ro_compat.bits());
    raw.s_max_mnt_count.set(u16::MAX);
    raw.s_magic.set(MAGIC);
    raw.s_state.set(1);
    raw.s_creator_os.set(wishes.creator_os);
    raw.s_rev_level.set(wishes.revision);
    set_habits(&mut raw, wishes);
    raw.s_flags.set(SIGNED_HASH | if wishes.is_test { TEST } else { 0 });
    raw.s_kbytes_written.set(features.counts_writes().into());
    set_by_feature(&mut raw, geometry, wishes);
    raw
}

/// Sets the requested fields that do not belong to the shape.
pub(crate) fn set_habits(raw: &mut RawSuperBlock, wishes: &RequestedSettings) {
    raw.s_errors.set(wishes.errors);
    raw.s_last_mounted.iter_mut().zip(&wishes.last_mounted).for_each(|(to, from)| *to = *from);
    raw.s_def_hash_version = HALF_MD4;
    raw.s_raid_stride.set(wishes.stride);
    raw.s_raid_stripe_width.set(wishes.stripe_width);
    raw.s_mmp_update_interval.set(wishes.mmp_interval);
    if wishes.revision > 0 {
        raw.s_default_mount_opts.set(MOUNT_OPTIONS);
    }
}

/// Sets the size of an inode's fields after its first 128 bytes, if there is space.
pub(crate) fn set_extra_isize(raw: &mut RawSuperBlock) {
    if raw.s_inode_size.get() >= 128 + EXTRA_ISIZE {
        raw.s_min_extra_isize.set(EXTRA_ISIZE);
        raw.s_want_extra_isize.set(EXTRA_ISIZE);
    }
}

fn set_shape(raw: &mut RawSuperBlock, geometry: &Geometry) {
    let (low, high) = split(geometry.blocks);
    raw.s_blocks_count_lo.set(low);
    raw.s_blocks_count_hi.set(high);
    let (low, high) = split(geometry.reserved);
    raw.s_r_blocks_count_lo.set(low);
    raw.s_r_blocks_count_hi.set(high);
    raw.s_inodes_count.set(geometry.inodes_per_group * geometry.groups);
    raw.s_first_data_block.set(geometry.first_data_block);
    raw.s_log_block_size.set(geometry.block_size.log());
    raw.s_log_cluster_size.set(geometry.cluster.log(geometry.block_size));
    raw.s_blocks_per_group.set(geometry.blocks_per_group);
    raw.s_clusters_per_group.set(geometry.clusters_per_group);
    raw.s_inodes_per_group.set(geometry.inodes_per_group);
    raw.s_first_ino.set(FIRST_INO);
    raw.s_inode_size.set(geometry.inode_size);
    raw.s_reserved_gdt_blocks.set(u16::try_from(geometry.reserved_gdt_blocks).unwrap_or(u16::MAX));
    set_extra_isize(raw);
    let [first, second] = geometry.backup_groups;
    raw.s_backup_bgs = [first.into(), second.into()];
}

pub(crate) fn set_identity(raw: &mut RawSuperBlock, identity: &Identity) {
    let (now, high) = time_halves(identity.now);
    for time in [&mut raw.s_wtime, &mut raw.s_lastcheck, &mut raw.s_mkfs_time] {
        time.set(now);
    }
    (raw.s_wtime_hi, raw.s_lastcheck_hi, raw.s_mkfs_time_hi) = (high, high, high);
    raw.s_uuid = identity.uuid;
    raw.s_volume_name = identity.label;
    let seeds = identity.hash_seed.chunks_exact(4).filter_map(|word| word.first_chunk());
    raw.s_hash_seed.iter_mut().zip(seeds).for_each(|(to, word)| to.set(u32::from_le_bytes(*word)));
}

fn set_by_feature(raw: &mut RawSuperBlock, geometry: &Geometry, wishes: &RequestedSettings) {
    let features = &geometry.features;
    if features.needs(Incompat::SIXTY_FOUR_BIT) {
        raw.s_desc_size.set(geometry.desc_size);
    }
    if features.needs(Incompat::FLEX_BG) {
        let log = wishes.flex_bg_size.unwrap_or(16).checked_ilog2().unwrap_or(0);
        raw.s_log_groups_per_flex = u8::try_from(log).unwrap_or(0);
    }
    if features.keeps(RoCompat::METADATA_CSUM) {
        raw.s_checksum_type = 1;
    }
    if features.needs(Incompat::METADATA_CSUM_SEED) {
        raw.s_checksum_seed.set(Crc::new(!0).add(&raw.s_uuid).get());
    }
    if features.needs(Incompat::CASEFOLD) {
        raw.s_encoding.set(UTF8_12_1);
        raw.s_encoding_flags.set(if wishes.strict_encoding == Some(true) { STRICT } else { 0 });
    }
    if features.needs(Incompat::ENCRYPT) {
        raw.s_encrypt_algos = CIPHERS;
    }
}
