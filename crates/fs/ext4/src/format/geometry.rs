//! The shape of a new volume: blocks, groups, inodes, reserved descriptors.
//!
//! The numbers are those that `mke2fs` computes, so that both create volumes of the same shape.
//! Source: e2fsprogs `lib/ext2fs/initialize.c` `ext2fs_initialize`, `calc_reserved_gdt_blocks`; `misc/mke2fs.c`
//! `PRS`.

use alloc::string::ToString;
use alloc::vec::Vec;

use obento_driver::{Allowed, FormatError, FormatNotice};

use super::features::Features;
use super::number::units;
use super::options::RequestedSettings;
use super::sizes::Sizes;
use super::usage::Defaults;
use crate::feature::{Compat, Incompat, RoCompat};

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
    pub block_size: u32,
    /// Block size as a power of two.
    pub log_block_size: u32,
    pub log_cluster_size: u32,
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
        let len = if is_device { len.saturating_sub(len % PAGE) } else { len };
        let defaults = Defaults::new(wishes.usage.as_deref(), len)?;
        let block_size = wishes.block_size.unwrap_or(defaults.block_size);
        let mut features = wishes.features;
        let blocks = len.checked_div(block_size.into()).unwrap_or(0);
        if blocks == 0 {
            return Err(FormatError::TooSmall { what: "a volume", len });
        }
        check_blocks(&mut features, block_size, blocks)?;
        features.check()?;
        let sizes = Sizes::new(wishes, &features, block_size, defaults)?;
        let wanted = sizes.wanted_inodes(wishes, &features, blocks)?;
        let mut this = Self {
            features,
            block_size,
            log_block_size: log_of(block_size),
            log_cluster_size: log_of(sizes.cluster_size),
            first_data_block: u32::from(sizes.cluster_size == 1024),
            blocks: blocks.saturating_sub(blocks.checked_rem(sizes.cluster_blocks()).unwrap_or(0)),
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
        let unused = blocks.saturating_sub(this.blocks);
        if unused > 0 {
            notices.push(FormatNotice::Unused(unused));
        }
        Ok(this)
    }

    /// Returns the number of blocks per cluster.
    pub fn cluster_blocks(&self) -> u64 {
        let bits = self.log_cluster_size.saturating_sub(self.log_block_size);
        1_u64.checked_shl(bits).unwrap_or(1)
    }

    /// Returns the number of block numbers per block.
    fn pointers_per_block(&self) -> u32 {
        self.block_size / 4
    }

    fn descs_per_block(&self) -> u32 {
        self.block_size.checked_div(self.desc_size.into()).unwrap_or(1).max(1)
    }

    /// Computes groups and inodes. If the last group is too short, omits it and starts again.
    fn divide(
        &mut self,
        wishes: &RequestedSettings,
        wanted_blocks: u64,
        wanted_inodes: u32,
        room: Option<u32>,
    ) -> Result<(), FormatError> {
        let bits = self.block_size.saturating_mul(8);
        loop {
            self.count_groups()?;
            let least = FIRST_INO.saturating_add(1);
            let per_group = wanted_inodes.max(least).div_ceil(self.groups.max(1));
            if per_group > bits {
                // Smaller groups have fewer inodes each.
                if self.features.keeps(RoCompat::BIGALLOC) || self.clusters_per_group < 256 {
                    return Err(self.too_many_inodes(wanted_inodes, bits));
                }
                self.clusters_per_group = self.clusters_per_group.saturating_sub(8);
                self.blocks = wanted_blocks;
                continue;
            }
            self.count_inodes(per_group)?;
            self.reserve_descriptors(room)?;
            let overhead = 3_u64
                .saturating_add(self.inode_table_blocks.into())
                .saturating_add(self.reserved_gdt_blocks.into())
                .saturating_add(if self.has_meta_bg() { 1 } else { self.desc_blocks.into() });
            if overhead > self.blocks_per_group.into() {
                return Err(self.too_many_inodes(wanted_inodes, self.inodes_per_group));
            }
            let rest = self.short_group(wishes)?;
            if rest == 0 {
                return Ok(());
            }
            self.blocks = self.blocks.saturating_sub(rest);
            self.reserved =
                share(self.blocks, share(wanted_blocks, wishes.reserved, 100_000_000), wanted_blocks);
        }
    }

    fn too_many_inodes(&self, found: u32, per_group: u32) -> FormatError {
        let max = u64::from(per_group).saturating_mul(self.groups.into());
        FormatError::TooMany { what: "inodes", found: found.into(), max }
    }

    fn has_meta_bg(&self) -> bool {
        self.features.needs(Incompat::META_BG)
    }

    fn count_groups(&mut self) -> Result<(), FormatError> {
        let per_group = u64::from(self.clusters_per_group).saturating_mul(self.cluster_blocks());
        let too_large = FormatError::BadValue {
            name: "cluster_size",
            value: 1024_u64.checked_shl(self.log_cluster_size).unwrap_or(0).to_string(),
            allowed: Allowed::Text("a size with which a group has fewer than 2^32 blocks"),
        };
        self.blocks_per_group = u32::try_from(per_group).map_err(|_| too_large)?;
        let blocks = self.blocks.saturating_sub(self.first_data_block.into());
        let groups = blocks.div_ceil(per_group.max(1));
        let len = self.blocks.saturating_mul(self.block_size.into());
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
        let per_block = self.block_size.checked_div(self.inode_size.into()).unwrap_or(1).max(1);
        let mut wanted = per_group.min(MAX_COUNT.saturating_sub(per_block));
        loop {
            let filled = wanted.div_ceil(per_block).saturating_mul(per_block);
            self.inodes_per_group = filled.max(8) & !7;
            self.inode_table_blocks = self.inodes_per_group.div_ceil(per_block);
            let all = u64::from(self.inodes_per_group).saturating_mul(self.groups.into());
            if all <= u32::MAX.into() {
                return self.check_inodes(all);
            }
            if wanted == 0 {
                // Even the minimum of 8 inodes per group is too much.
                let len = self.blocks.saturating_mul(self.block_size.into());
                let group = u64::from(self.blocks_per_group).saturating_mul(self.block_size.into());
                return Err(FormatError::TooLarge {
                    len,
                    max: u64::from(u32::MAX / 8).saturating_mul(group),
                });
            }
            wanted = wanted.saturating_sub(1);
        }
    }

    /// Checks whether the volume has space for the reserved inodes and lost+found. `mke2fs` detects this too late.
    fn check_inodes(&self, all: u64) -> Result<(), FormatError> {
        let least = u64::from(FIRST_INO).saturating_add(u64::from(self.features.has(Compat::ORPHAN_FILE)));
        if all >= least {
            return Ok(());
        }
        let len = self.blocks.saturating_mul(self.block_size.into());
        Err(FormatError::TooSmall { what: "the reserved inodes", len })
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
        let most =
            if self.blocks < MAX_BLOCKS / FACTOR { self.blocks.saturating_mul(FACTOR) } else { MAX_BLOCKS };
        let blocks = most.saturating_sub(self.first_data_block.into());
        let groups = blocks.div_ceil(self.blocks_per_group.max(1).into());
        let descs = groups.div_ceil(self.descs_per_block().into());
        let more = descs.checked_sub(self.desc_blocks.into()).and_then(|more| u32::try_from(more).ok());
        let limit = self.pointers_per_block();
        let computed = more.map_or(limit, |more| more.min(limit));
        self.reserved_gdt_blocks = room.unwrap_or(computed);
        let all = u64::from(self.reserved_gdt_blocks).saturating_add(self.desc_blocks.into());
        if all > u64::from(self.blocks_per_group).saturating_mul(3) / 4 {
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
        let last = self.groups.saturating_sub(1);
        let has_copy = if self.features.has(Compat::SPARSE_SUPER2) {
            wishes.backups >= if self.groups == 2 { 1 } else { 2 }
        } else {
            last <= 1 || !self.features.keeps(RoCompat::SPARSE_SUPER) || crate::group::is_sparse_copy(last)
        };
        let mut overhead = 2_u64.saturating_add(self.inode_table_blocks.into());
        if has_copy {
            overhead = overhead
                .saturating_add(1)
                .saturating_add(self.desc_blocks.into())
                .saturating_add(self.reserved_gdt_blocks.into());
        }
        let blocks = self.blocks.saturating_sub(self.first_data_block.into());
        let rest = blocks.checked_rem(self.blocks_per_group.into()).unwrap_or(0);
        if rest >= overhead.saturating_add(LEAST_FREE) {
            return Ok(0);
        }
        if self.groups == 1 && rest > 0 {
            let len = self.blocks.saturating_mul(self.block_size.into());
            return Err(FormatError::TooSmall { what: "a volume with these features", len });
        }
        Ok(rest)
    }

    /// Chooses the groups of the backups with `sparse_super2`: the second and the last.
    fn place_backups(&mut self, backups: u8) {
        if !self.features.has(Compat::SPARSE_SUPER2) {
            return;
        }
        let last = self.groups.saturating_sub(1);
        let first = if backups >= 1 { 1.min(last) } else { 0 };
        let second = if backups >= 2 && last != first { last } else { 0 };
        self.backup_groups = [first.min(second), first.max(second)];
    }

    /// Returns the number of descriptor blocks to reserve so that the volume can grow to `text` blocks, or `None` if
    /// it needs no more.
    fn room_to_grow(&self, text: &str, blocks: u64) -> Result<Option<u32>, FormatError> {
        let log = self.log_block_size.saturating_add(10);
        let allowed = Allowed::Text("more blocks than the volume has");
        let bad = || FormatError::BadValue { name: "resize", value: text.to_string(), allowed };
        let most = units(text, log).filter(|&most| most > blocks).ok_or_else(bad)?;
        let per_group = u64::from(self.clusters_per_group).saturating_mul(self.cluster_blocks()).max(1);
        let descs = |blocks: u64| blocks.div_ceil(per_group).div_ceil(self.descs_per_block().into());
        let more = descs(most).saturating_sub(descs(blocks)).min(self.pointers_per_block().into());
        Ok(u32::try_from(more).ok().filter(|&more| more > 0))
    }
}

/// Checks whether block numbers and group numbers have enough bits.
fn check_blocks(features: &mut Features, block_size: u32, blocks: u64) -> Result<(), FormatError> {
    let len = blocks.saturating_mul(block_size.into());
    if blocks <= u32::MAX.into() {
        return Ok(());
    }
    if !features.needs(Incompat::SIXTY_FOUR_BIT) {
        let max = u64::from(u32::MAX).saturating_mul(block_size.into());
        return Err(FormatError::TooLarge { len, max });
    }
    // The block numbers of the resize inode have 32 bits.
    features.compat.remove(Compat::RESIZE_INODE);
    let most = u64::from(u32::MAX).saturating_mul(u64::from(block_size).saturating_mul(8));
    if blocks > most {
        return Err(FormatError::TooLarge { len, max: most.saturating_mul(block_size.into()) });
    }
    Ok(())
}

/// `value * part / whole`, rounded down.
fn share(value: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(value).saturating_mul(part.into());
    product.checked_div(whole.into()).and_then(|share| u64::try_from(share).ok()).unwrap_or(0)
}

/// Returns the binary logarithm of `size` / 1024.
pub(crate) fn log_of(size: u32) -> u32 {
    size.checked_ilog2().unwrap_or(10).saturating_sub(10)
}
