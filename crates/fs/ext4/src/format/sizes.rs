//! The sizes of a new volume's parts: requested, or derived from its use and features.
//!
//! Source: e2fsprogs `misc/mke2fs.c` `PRS`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` checks the number of blocks before")]

use alloc::string::ToString;

use obento_driver::{Allowed, FormatError};

use super::features::Features;
use super::geometry::MAX_COUNT;
use super::options::RequestedSettings;
use super::usage::Defaults;
use crate::feature::{Incompat, RoCompat};
use crate::size::{BlockSize, ClusterSize};

/// The sizes that are chosen before anything is computed.
pub(super) struct Sizes {
    pub cluster: ClusterSize,
    pub clusters_per_group: u32,
    pub inode_size: u16,
    pub desc_size: u16,
    inode_ratio: u64,
    block_size: BlockSize,
}

impl Sizes {
    pub fn new(
        wishes: &RequestedSettings,
        features: &Features,
        block_size: BlockSize,
        defaults: Defaults,
    ) -> Result<Self, FormatError> {
        let cluster = cluster_size(wishes, features, block_size)?;
        let bits = block_size.bits();
        if let Some(found) = wishes.blocks_per_group.filter(|&found| found > bits) {
            let (name, value) = ("blocks_per_group", found.to_string());
            return Err(FormatError::BadValue { name, value, allowed: Allowed::Range(256, bits.into()) });
        }
        let by_default =
            if cluster != ClusterSize::ONE && cluster.log(block_size) >= 17 { bits - 8 } else { bits };
        let ratio = defaults.inode_ratio.max(cluster.len(block_size.into()));
        let is_wide = features.needs(Incompat::SIXTY_FOUR_BIT);
        if wishes.desc_size.is_some() && !is_wide {
            return Err(FormatError::Needs { what: "desc_size", needs: "64bit" });
        }
        Ok(Self {
            cluster,
            clusters_per_group: wishes.blocks_per_group.unwrap_or(by_default).min(MAX_COUNT - 8),
            inode_size: inode_size(wishes, features, block_size)?,
            inode_ratio: wishes.inode_ratio.unwrap_or(ratio),
            desc_size: if is_wide { wishes.desc_size.unwrap_or(64) } else { 32 },
            block_size,
        })
    }

    /// Returns the number of inodes to create. Fails with `TooMany`.
    pub fn wanted_inodes(
        &self,
        wishes: &RequestedSettings,
        features: &Features,
        blocks: u64,
    ) -> Result<u32, FormatError> {
        let len = self.block_size.len(blocks);
        let by_ratio = len.checked_div(self.inode_ratio).unwrap_or(0);
        let max = u64::from(u32::MAX);
        let wanted = match wishes.inodes {
            Some(inodes) => inodes.into(),
            None if by_ratio > max && !features.needs(Incompat::SIXTY_FOUR_BIT) => {
                return Err(FormatError::TooMany { what: "inodes", found: by_ratio, max });
            }
            None => by_ratio.min(max),
        };
        if wanted * u64::from(self.inode_size) >= len {
            let max = len.checked_div(self.inode_size.into()).unwrap_or(0);
            return Err(FormatError::TooMany { what: "inodes", found: wanted, max });
        }
        Ok(u32::try_from(wanted).unwrap_or(u32::MAX))
    }
}

fn cluster_size(
    wishes: &RequestedSettings,
    features: &Features,
    block_size: BlockSize,
) -> Result<ClusterSize, FormatError> {
    if !features.keeps(RoCompat::BIGALLOC) {
        return match wishes.cluster_size {
            Some(_) => Err(FormatError::Needs { what: "cluster_size", needs: "bigalloc" }),
            None => Ok(ClusterSize::ONE),
        };
    }
    let size = wishes.cluster_size.unwrap_or(16 * block_size.bytes());
    let bad = || {
        let allowed = Allowed::PowerOfTwo(block_size.into(), 1 << 29);
        FormatError::BadValue { name: "cluster_size", value: size.to_string(), allowed }
    };
    ClusterSize::new(size, block_size).ok_or_else(bad)
}

fn inode_size(
    wishes: &RequestedSettings,
    features: &Features,
    block_size: BlockSize,
) -> Result<u16, FormatError> {
    const OLD: u32 = 128;
    if wishes.revision == 0 {
        return Ok(128);
    }
    let size = wishes.inode_size.unwrap_or(256);
    if size > block_size.bytes() {
        let allowed = Allowed::PowerOfTwo(OLD.into(), block_size.into());
        return Err(FormatError::BadValue { name: "inode_size", value: size.to_string(), allowed });
    }
    if size == OLD && features.keeps(RoCompat::PROJECT) {
        return Err(FormatError::Needs { what: "project", needs: "inodes of 256 bytes" });
    }
    if size == OLD && features.needs(Incompat::INLINE_DATA) {
        return Err(FormatError::Needs { what: "inline_data", needs: "inodes of 256 bytes" });
    }
    Ok(u16::try_from(size).unwrap_or(256))
}
