//! The shape of a new volume: blocks, groups, inodes, reserved descriptors.
//!
//! The numbers are those that `mke2fs` computes, so that both create volumes of the same shape.
//! Invariant: a volume has at most [`MAX_VOLUME_LEN`] bytes, so that the number of its blocks is below 2^53; the numbers
//! of groups and of blocks per group fit 32 bits.
//! Source: e2fsprogs `lib/ext2fs/initialize.c` `ext2fs_initialize`, `calc_reserved_gdt_blocks`; `misc/mke2fs.c`
//! `PRS`.
#![allow(clippy::arithmetic_side_effects, reason = "`check_blocks` limits the operands as stated above")]

use alloc::string::ToString;
use alloc::vec::Vec;

use obento_driver::{Allowed, FormatError, FormatNotice};

use super::features::Features;
use super::number::units;
use super::options::RequestedSettings;
use super::sizes::Sizes;
use super::usage::Defaults;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::size::{BlockSize, ClusterSize, MAX_VOLUME_LEN};

/// `EXT2_GOOD_OLD_FIRST_INO`: inodes before it are reserved.
pub(crate) const FIRST_INO: u32 = 11;
/// The unit to which the size is rounded down if none is given: a page of most machines.
const PAGE: u64 = 4096;
/// A last group with fewer free blocks is omitted.
const LEAST_FREE: u64 = 50;
/// Group descriptors count the clusters and inodes of a group in 16 bits.
pub(crate) const MAX_COUNT: u32 = 1 << 16;

/// The shape of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub features: Features,
    pub block_size: BlockSize,
    pub cluster: ClusterSize,
    pub first_data_block: u32,
    pub blocks: u64,
    pub reserved: u64,
    pub clusters_per_group: u32,
    pub blocks_per_group: u32,
    pub groups: u32,
    pub desc_size: u16,
    pub desc_blocks: u32,
    pub inode_size: u16,
    pub inodes_per_group: u32,
    pub inode_table_blocks: u32,
    pub reserved_gdt_blocks: u32,
    /// The groups with backups, with `sparse_super2`.
    pub backup_groups: [u32; 2],
}

impl Geometry {
    /// Computes the shape of a volume of `len` bytes, which is rounded down to blocks, or of a whole device if
    /// `is_device`. Fails with the first error, in the order of the tests of `mke2fs`.
    pub fn new(
        wishes: &RequestedSettings,
        len: u64,
        is_device: bool,
        notices: &mut Vec<FormatNotice>,
    ) -> Result<Self, FormatError> {
        let given = len;
        let len = if is_device { len - len % PAGE } else { len };
        let defaults = Defaults::new(wishes.usage.as_deref(), len)?;
        let block_size = wishes.block_size.unwrap_or(defaults.block_size);
        let mut features = wishes.features;
        let blocks = block_size.whole(len);
        if blocks == 0 {
            return Err(FormatError::TooSmall { what: "a volume", len: given });
        }
        check_blocks(&mut features, block_size, blocks)?;
        features.check()?;
        let sizes = Sizes::new(wishes, &features, block_size, defaults)?;
        let wanted = sizes.wanted_inodes(wishes, &features, blocks)?;
        let mut this = Self {
            features,
            block_size,
            cluster: sizes.cluster,
            first_data_block: u32::from(block_size == BlockSize::MIN && sizes.cluster == ClusterSize::ONE),
            blocks: sizes.cluster.round_down(blocks),
            reserved: share(blocks, wishes.reserved, 100_000_000),
            clusters_per_group: sizes.clusters_per_group,
            blocks_per_group: 0,
            groups: 0,
            desc_size: sizes.desc_size,
            desc_blocks: 0,
            inode_size: sizes.inode_size,
            inodes_per_group: 0,
            inode_table_blocks: 0,
            reserved_gdt_blocks: 0,
            backup_groups: [0; 2],
        };
        let room = match &wishes.resize {
            Some(text) => this.room_to_grow(text, blocks)?,
            None => None,
        };
        if room.is_some() {
            this.features.compat.insert(Compat::RESIZE_INODE);
            this.features.check()?;
        }
        this.divide(wishes, blocks, wanted, room)?;
        this.place_backups(wishes.backups);
        let unused = blocks - this.blocks;
        if unused > 0 {
            notices.push(FormatNotice::Unused(unused));
        }
        Ok(this)
    }

    fn descs_per_block(&self) -> u32 {
        1 << self.block_size.log_of(self.desc_size)
    }

    /// Returns the number of bytes of the volume.
    fn len(&self) -> u64 {
        self.block_size.len(self.blocks)
    }

    /// Computes groups and inodes. If the last group is too short, omits it and starts again.
    fn divide(
        &mut self,
        wishes: &RequestedSettings,
        wanted_blocks: u64,
        wanted_inodes: u32,
        room: Option<u32>,
    ) -> Result<(), FormatError> {
        let bits = self.block_size.bits();
        loop {
            self.count_groups()?;
            let least = FIRST_INO + 1;
            let per_group = wanted_inodes.max(least).div_ceil(self.groups.max(1));
            if per_group > bits {
                // Smaller groups have fewer inodes each.
                if self.features.keeps(RoCompat::BIGALLOC) || self.clusters_per_group < 256 {
                    return Err(self.too_many_inodes(wanted_inodes, bits));
                }
                self.clusters_per_group -= 8;
                self.blocks = wanted_blocks;
                continue;
            }
            self.count_inodes(per_group)?;
            self.reserve_descriptors(room)?;
            let descs = if self.has_meta_bg() { 1 } else { self.desc_blocks };
            let descriptors = 3 + u64::from(self.reserved_gdt_blocks) + u64::from(descs);
            if descriptors > self.blocks_per_group.into() {
                let block_size = self.block_size.into();
                return Err(FormatError::GroupTables {
                    len: self.blocks.saturating_mul(block_size),
                    block_size,
                });
            }
            if descriptors + u64::from(self.inode_table_blocks) > self.blocks_per_group.into() {
                return Err(self.too_many_inodes(wanted_inodes, self.inodes_per_group));
            }
            let rest = self.short_group(wishes)?;
            if rest == 0 {
                return Ok(());
            }
            self.blocks -= rest;
            self.reserved =
                share(self.blocks, share(wanted_blocks, wishes.reserved, 100_000_000), wanted_blocks);
        }
    }

    fn too_many_inodes(&self, found: u32, per_group: u32) -> FormatError {
        let max = u64::from(per_group) * u64::from(self.groups);
        FormatError::TooMany { what: "inodes", found: found.into(), max }
    }

    fn has_meta_bg(&self) -> bool {
        self.features.needs(Incompat::META_BG)
    }

    fn count_groups(&mut self) -> Result<(), FormatError> {
        let per_group = self.cluster.len(self.clusters_per_group.into());
        let too_large = FormatError::BadValue {
            name: "cluster_size",
            value: self.cluster.len(self.block_size.into()).to_string(),
            allowed: Allowed::Text("a size with which a group has fewer than 2^32 blocks"),
        };
        self.blocks_per_group = u32::try_from(per_group).map_err(|_| too_large)?;
        let blocks = self.blocks - u64::from(self.first_data_block);
        let groups = blocks.div_ceil(per_group.max(1));
        let len = self.len();
        let max = u64::from(u32::MAX).saturating_mul(per_group).saturating_mul(self.block_size.into());
        self.groups = u32::try_from(groups).map_err(|_| FormatError::TooLarge { len, max })?;
        if self.groups == 0 {
            return Err(FormatError::TooSmall { what: "a volume", len });
        }
        self.desc_blocks = self.groups.div_ceil(self.descs_per_block());
        Ok(())
    }

    /// Rounds the inodes of a group so that they fill its table and are a multiple of 8.
    fn count_inodes(&mut self, per_group: u32) -> Result<(), FormatError> {
        let per_block = 1 << self.block_size.log_of(self.inode_size);
        let mut wanted = per_group.min(MAX_COUNT - per_block);
        loop {
            let filled = wanted.next_multiple_of(per_block);
            self.inodes_per_group = filled.max(8) & !7;
            self.inode_table_blocks = self.inodes_per_group.div_ceil(per_block);
            let all = u64::from(self.inodes_per_group) * u64::from(self.groups);
            if all <= u32::MAX.into() {
                return self.check_inodes(all);
            }
            if wanted == 0 {
                // Even the minimum of 8 inodes per group is too much.
                let group = self.block_size.len(self.blocks_per_group.into());
                let max = u64::from(u32::MAX / 8).saturating_mul(group);
                return Err(FormatError::TooLarge { len: self.len(), max });
            }
            wanted -= 1;
        }
    }

    /// Checks whether the volume has space for the reserved inodes and lost+found. `mke2fs` detects this too late.
    fn check_inodes(&self, all: u64) -> Result<(), FormatError> {
        let least = u64::from(FIRST_INO) + u64::from(self.features.has(Compat::ORPHAN_FILE));
        if all >= least {
            return Ok(());
        }
        Err(FormatError::TooSmall { what: "the reserved inodes", len: self.len() })
    }

    /// Reserves blocks for the descriptors of later groups, for up to 1,024 times the blocks:
    /// `calc_reserved_gdt_blocks`.
    fn reserve_descriptors(&mut self, room: Option<u32>) -> Result<(), FormatError> {
        const MAX_BLOCKS: u64 = 0xffff_ffff;
        const FACTOR: u64 = 1024;
        self.reserved_gdt_blocks = 0;
        if !self.features.has(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let most = if self.blocks < MAX_BLOCKS / FACTOR { self.blocks * FACTOR } else { MAX_BLOCKS };
        let blocks = most - u64::from(self.first_data_block);
        let groups = blocks.div_ceil(self.blocks_per_group.max(1).into());
        let descs = groups.div_ceil(self.descs_per_block().into());
        let more = descs.checked_sub(self.desc_blocks.into()).and_then(|more| u32::try_from(more).ok());
        let limit = self.block_size.pointers();
        let computed = more.map_or(limit, |more| more.min(limit));
        self.reserved_gdt_blocks = room.unwrap_or(computed);
        let all = u64::from(self.reserved_gdt_blocks) + u64::from(self.desc_blocks);
        if all > u64::from(self.blocks_per_group) * 3 / 4 {
            // They would take more than three quarters of a group.
            self.features.incompat.insert(Incompat::META_BG);
            self.features.compat.remove(Compat::RESIZE_INODE);
            self.reserved_gdt_blocks = 0;
        }
        Ok(())
    }

    /// Returns the number of blocks of the last group if they do not suffice for its own metadata and some data; else
    /// 0.
    fn short_group(&self, wishes: &RequestedSettings) -> Result<u64, FormatError> {
        let last = self.groups - 1;
        let has_copy = if self.features.has(Compat::SPARSE_SUPER2) {
            wishes.backups >= if self.groups == 2 { 1 } else { 2 }
        } else {
            last <= 1 || !self.features.keeps(RoCompat::SPARSE_SUPER) || crate::group::is_sparse_copy(last)
        };
        let mut overhead = 2 + u64::from(self.inode_table_blocks);
        if has_copy {
            overhead += 1 + u64::from(self.desc_blocks) + u64::from(self.reserved_gdt_blocks);
        }
        let blocks = self.blocks - u64::from(self.first_data_block);
        let rest = blocks.checked_rem(self.blocks_per_group.into()).unwrap_or(0);
        if rest >= overhead + LEAST_FREE {
            return Ok(0);
        }
        if self.groups == 1 && rest > 0 {
            return Err(FormatError::TooSmall { what: "a volume with these features", len: self.len() });
        }
        Ok(rest)
    }

    /// Chooses the groups of the backups with `sparse_super2`: the second and the last.
    fn place_backups(&mut self, backups: u8) {
        if !self.features.has(Compat::SPARSE_SUPER2) {
            return;
        }
        let last = self.groups - 1;
        let first = if backups >= 1 { 1.min(last) } else { 0 };
        let second = if backups >= 2 && last != first { last } else { 0 };
        self.backup_groups = [first.min(second), first.max(second)];
    }

    /// Returns the number of descriptor blocks to reserve so that the volume can grow to `text` blocks, or `None` if
    /// it needs no more.
    fn room_to_grow(&self, text: &str, blocks: u64) -> Result<Option<u32>, FormatError> {
        let log = self.block_size.log() + 10;
        let allowed = Allowed::Text("more blocks than the volume has");
        let bad = || FormatError::BadValue { name: "resize", value: text.to_string(), allowed };
        let most = units(text, log).filter(|&most| most > blocks).ok_or_else(bad)?;
        let per_group = self.cluster.len(self.clusters_per_group.into()).max(1);
        let descs = |blocks: u64| blocks.div_ceil(per_group).div_ceil(self.descs_per_block().into());
        let more = (descs(most) - descs(blocks)).min(self.block_size.pointers().into());
        Ok(u32::try_from(more).ok().filter(|&more| more > 0))
    }
}

/// Checks whether block numbers and group numbers have enough bits.
fn check_blocks(features: &mut Features, block_size: BlockSize, blocks: u64) -> Result<(), FormatError> {
    let len = block_size.len(blocks);
    if blocks <= u32::MAX.into() {
        return Ok(());
    }
    if !features.needs(Incompat::SIXTY_FOUR_BIT) {
        let max = block_size.len(u32::MAX.into());
        return Err(FormatError::TooLarge { len, max });
    }
    // The block numbers of the resize inode have 32 bits.
    features.compat.remove(Compat::RESIZE_INODE);
    let most = u64::from(u32::MAX) * u64::from(block_size.bits());
    let most = most.min(block_size.whole(MAX_VOLUME_LEN));
    if blocks > most {
        return Err(FormatError::TooLarge { len, max: block_size.len(most) });
    }
    Ok(())
}

/// `value * part / whole`, rounded down.
fn share(value: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(value) * u128::from(part);
    product.checked_div(whole.into()).and_then(|share| u64::try_from(share).ok()).unwrap_or(0)
}
