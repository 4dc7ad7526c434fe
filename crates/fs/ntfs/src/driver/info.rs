//! The description of a volume.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use obento_driver::{Fact, Probe, VolumeInfo};

use super::log::Log;
use super::volume::{DIRTY, Volume};
use crate::layout::boot::Geometry;

/// Returns type, serial number and length from the boot sector.
pub fn probe_of(geometry: &Geometry) -> Probe {
    // All 64 bits of the serial number, as blkid prints them: util-linux libblkid/src/superblocks/ntfs.c.
    let text_id = Some(format!("{:016X}", geometry.serial));
    Probe { fs_type: "ntfs", text_id, len: geometry.len, ..Probe::default() }
}

impl Volume {
    /// Returns the state in words.
    fn state_name(&self) -> &'static str {
        match &self.state {
            state if state.is_hibernated => "Windows is hibernated",
            state if state.flags & DIRTY != 0 => "not unmounted cleanly",
            state if state.log == Log::Pending => "needs recovery",
            _ => "clean",
        }
    }

    /// Returns the description.
    pub(super) fn describe(&self) -> VolumeInfo {
        let geometry = self.geometry();
        let fact = |name: &'static str, value: String| Fact { name, value };
        let (major, minor) = self.state.version;
        let facts = Vec::from([
            fact("version", format!("{major}.{minor}")),
            fact("sector size", geometry.sector_size.to_string()),
            fact("cluster size", geometry.cluster_size.to_string()),
            fact("clusters", geometry.clusters.to_string()),
            fact("record size", geometry.record_size.to_string()),
            fact("records", self.mft().records().to_string()),
            fact("serial number", format!("{:016X}", geometry.serial)),
            fact("log file", self.state.log.name().to_string()),
        ]);
        VolumeInfo {
            probe: Probe { label: self.state.label.clone(), ..probe_of(geometry) },
            features: Vec::new(),
            state: self.state_name().to_string(),
            notices: self.notices.clone(),
            facts,
        }
    }
}
