//! Descriptions of volumes.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use obento_driver::{Fact, Probe, VolumeInfo, for_commands};

use crate::super_block::{DIRTY, MEDIA_FAILURE};
use crate::volume::Volume;

/// The state of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Unmounted cleanly.
    Clean,
    /// In use, or not unmounted.
    InUse,
    /// An error of the medium occurred.
    Errors,
}

impl State {
    /// Returns the state from `VolumeFlags`.
    pub fn of(flags: u16) -> Self {
        match flags {
            _ if flags & MEDIA_FAILURE != 0 => Self::Errors,
            _ if flags & DIRTY != 0 => Self::InUse,
            _ => Self::Clean,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::InUse => "not unmounted cleanly",
            Self::Errors => "has errors",
        }
    }
}

impl Volume {
    /// Returns type, label, GUID and size.
    pub fn probe(&self) -> Probe {
        let tables = self.tables();
        Probe {
            fs_type: "exfat",
            label: tables.label.clone(),
            uuid: tables.guid,
            serial: Some(self.super_block().serial),
            len: self.super_block().len,
            ..Probe::default()
        }
    }

    /// Returns the complete description.
    pub fn describe(&self) -> VolumeInfo {
        let sb = self.super_block();
        VolumeInfo {
            probe: self.probe(),
            features: for_commands(
                || if sb.fats > 1 { Vec::from(["texfat".to_string()]) } else { Vec::new() },
            ),
            state: for_commands(|| State::of(sb.flags).name().to_string()),
            notices: self.mount_state().notices.clone(),
            facts: for_commands(|| self.facts()),
        }
    }

    fn facts(&self) -> Vec<Fact> {
        let sb = self.super_block();
        let fact = |name: &'static str, value: String| Fact { name, value };
        let mut facts = Vec::new();
        facts.push(fact("sector size", sb.sector_size.to_string()));
        facts.push(fact("cluster size", sb.cluster_size.to_string()));
        facts.push(fact("clusters", sb.clusters.to_string()));
        facts.push(fact("revision", format!("{}.{:02}", sb.revision >> 8, sb.revision & 0xff)));
        if sb.fats > 1 {
            facts.push(fact("active FAT", sb.active.to_string()));
        }
        facts
    }
}
