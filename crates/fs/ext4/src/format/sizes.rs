//! The sizes of a new volume's parts: requested, or derived from its use and features.
//!
//! Source: e2fsprogs `misc/mke2fs.c` `PRS`.

use alloc::string::ToString;

use obento_driver::{Allowed, FormatError};

use super::features::Features;
use super::geometry::{MAX_COUNT, log_of};
use super::options::RequestedSettings;
use super::usage::Defaults;
use crate::feature::{Incompat, RoCompat};

/// The sizes that are chosen before anything is computed.
pub(super) struct Sizes {
    pub cluster_size: u32,
    pub clusters_per_group: u32,
    pub inode_size: u16,
    pub desc_size: u16,
    inode_ratio: u64,
    block_size: u32,
}

impl Sizes {
    pub fn new(
        wishes: &RequestedSettings,
        features: &Features,
        block_size: u32,
        defaults: Defaults,
    ) -> Result<Self, FormatError> {
        let cluster_size = cluster_size(wishes, features, block_size)?;
        let cluster_blocks = cluster_size.checked_div(block_size).unwrap_or(1);
        let bits = block_size.saturating_mul(8);
        if let Some(found) = wishes.blocks_per_group.filter(|&found| found > bits) {
            let (name, value) = ("blocks_per_group", found.to_string());
            return Err(FormatError::BadValue { name, value, allowed: Allowed::Range(256, bits.into()) });
        }
        let by_default =
            if cluster_blocks > 1 && log_of(cluster_size) >= 17 { bits.saturating_sub(8) } else { bits };
        let ratio = defaults.inode_ratio.max(block_size.into()).max(cluster_size.into());
        let is_wide = features.needs(Incompat::SIXTY_FOUR_BIT);
        if wishes.desc_size.is_some() && !is_wide {
            return Err(FormatError::Needs { what: "desc_size", needs: "64bit" });
        }
        Ok(Self {
            cluster_size,
            clusters_per_group: wishes
                .blocks_per_group
                .unwrap_or(by_default)
                .min(MAX_COUNT.saturating_sub(8)),
            inode_size: inode_size(wishes, features, block_size)?,
            inode_ratio: wishes.inode_ratio.unwrap_or(ratio),
            desc_size: if is_wide { wishes.desc_size.unwrap_or(64) } else { 32 },
            block_size,
        })
    }

    /// Returns the number of blocks per cluster.
    pub fn cluster_blocks(&self) -> u64 {
        self.cluster_size.checked_div(self.block_size).unwrap_or(1).into()
    }

    /// Returns the number of inodes to create. Fails with `TooMany`.
    pub fn wanted_inodes(
        &self,
        wishes: &RequestedSettings,
        features: &Features,
        blocks: u64,
    ) -> Result<u32, FormatError> {
        let len = u128::from(blocks).saturating_mul(self.block_size.into());
        let by_ratio = len.checked_div(self.inode_ratio.into()).unwrap_or(0);
        let max = u64::from(u32::MAX);
        let by_ratio = u64::try_from(by_ratio).unwrap_or(u64::MAX);
        let wanted = match wishes.inodes {
            Some(inodes) => inodes.into(),
            None if by_ratio > max && !features.needs(Incompat::SIXTY_FOUR_BIT) => {
                return Err(FormatError::TooMany { what: "inodes", found: by_ratio, max });
            }
            None => by_ratio.min(max),
        };
        let bytes = u128::from(wanted).saturating_mul(self.inode_size.into());
        if bytes >= len {
            let max = len.checked_div(self.inode_size.into()).and_then(|max| u64::try_from(max).ok());
            return Err(FormatError::TooMany { what: "inodes", found: wanted, max: max.unwrap_or(u64::MAX) });
        }
        Ok(u32::try_from(wanted).unwrap_or(u32::MAX))
    }
}

fn cluster_size(
    wishes: &RequestedSettings,
    features: &Features,
    block_size: u32,
) -> Result<u32, FormatError> {
    if !features.keeps(RoCompat::BIGALLOC) {
        return match wishes.cluster_size {
            Some(_) => Err(FormatError::Needs { what: "cluster_size", needs: "bigalloc" }),
            None => Ok(block_size),
        };
    }
    let size = wishes.cluster_size.unwrap_or(block_size.saturating_mul(16));
    if size < block_size {
        let allowed = Allowed::PowerOfTwo(block_size.into(), 1 << 29);
        return Err(FormatError::BadValue { name: "cluster_size", value: size.to_string(), allowed });
    }
    Ok(size)
}

fn inode_size(wishes: &RequestedSettings, features: &Features, block_size: u32) -> Result<u16, FormatError> {
    const OLD: u32 = 128;
    if wishes.revision == 0 {
        return Ok(128);
    }
    let size = wishes.inode_size.unwrap_or(256);
    if size > block_size {
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
