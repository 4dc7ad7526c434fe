//! The description of a volume.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use obento_driver::{Fact, Probe, VolumeInfo};

use super::volume::{State, Volume};
use crate::layout::bytes::bits;
use crate::layout::super_block::SuperBlock;

/// Returns type, label, identifier and length from the super block.
pub fn probe_of(found: &SuperBlock) -> Probe {
    Probe {
        fs_type: "bcachefs",
        label: found.label.clone(),
        uuid: Some(found.uuid),
        len: found.len(),
        ..Probe::default()
    }
}

/// Returns a version as the tools of the format print it.
fn version(number: u16) -> String {
    format!("{}.{}", number >> 10, number & 0x3ff)
}

impl Volume {
    /// Returns the description.
    pub(super) fn describe(&self) -> VolumeInfo {
        let found = &self.super_block;
        let fact = |name: &'static str, value: String| Fact { name, value };
        let facts = Vec::from([
            fact("version", version(found.version)),
            fact("oldest version", version(found.version_min)),
            fact("block size", found.block_size().to_string()),
            fact("node size", u64::from(found.node_sectors()).saturating_mul(512).to_string()),
            fact("bucket size", self.bucket_size().to_string()),
            fact("buckets", found.member.buckets.to_string()),
            fact("subvolumes", self.snapshots.count().to_string()),
            fact(
                "byte order",
                if bits(found.flags[0], 62, 63) == 1 { "big-endian" } else { "little-endian" }.into(),
            ),
        ]);
        VolumeInfo {
            probe: probe_of(found),
            features: found.feature_names().into_iter().map(String::from).collect(),
            state: match self.state {
                State::Clean => "clean",
                State::Dirty => "needs recovery",
            }
            .to_string(),
            notices: self.notices.clone(),
            facts,
        }
    }
}
