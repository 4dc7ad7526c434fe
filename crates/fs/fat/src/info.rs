//! Descriptions of volumes.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use obento_driver::{Fact, Probe, VolumeInfo, for_commands};

use crate::super_block::Width;
use crate::unit::Cluster;
use crate::volume::Volume;

/// The state of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeState {
    /// Unmounted cleanly.
    Clean,
    /// In use, or not unmounted.
    InUse,
    /// An error of the medium occurred.
    Errors,
}

impl VolumeState {
    fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::InUse => "not unmounted cleanly",
            Self::Errors => "has errors",
        }
    }
}

/// Bits of the state in the boot sector (Linux: `FAT_STATE_DIRTY`; Windows also has the second bit).
pub const DIRTY: u8 = 1;
/// An error of the medium occurred.
pub const ERRORS: u8 = 2;

impl Width {
    /// Returns the bits of the second FAT entry that are set while the volume is unmounted. Also returns the bits that
    /// are set while no error has occurred (fatgen103, "FAT Data Structure", `ClnShutBitMask` and `HrdErrBitMask`).
    /// FAT12 has none.
    pub fn shutdown_bits(self) -> Option<(u32, u32)> {
        match self {
            Self::Fat12 => None,
            Self::Fat16 => Some((0x8000, 0x4000)),
            Self::Fat32 => Some((0x0800_0000, 0x0400_0000)),
        }
    }
}

impl Volume {
    /// Returns the state of the volume from the boot sector and the FAT.
    pub fn state(&self) -> VolumeState {
        let sb = self.super_block();
        let bits = sb.width.shutdown_bits().zip(self.table().value(Cluster(1)).ok());
        let (mut is_clean, mut is_sound) = (sb.state & DIRTY == 0, sb.state & ERRORS == 0);
        if let Some(((clean, sound), value)) = bits {
            is_clean &= value & clean != 0;
            is_sound &= value & sound != 0;
        }
        match (is_sound, is_clean) {
            (false, _) => VolumeState::Errors,
            (true, false) => VolumeState::InUse,
            (true, true) => VolumeState::Clean,
        }
    }

    /// Returns type, label and size.
    pub fn probe(&self) -> Probe {
        let mut probe = self.super_block().probe(None);
        // Windows shows the label of the root directory; that of the boot sector may be older.
        if let Some(label) = self.root_label() {
            probe.label = label.name().to_label(self.options().code_page);
        }
        probe
    }

    /// Returns the complete description.
    pub fn describe(&self) -> VolumeInfo {
        VolumeInfo {
            probe: self.probe(),
            features: for_commands(|| Vec::from([self.super_block().width.name().to_string()])),
            state: for_commands(|| self.state().name().to_string()),
            notices: self.notices(),
            facts: for_commands(|| self.facts()),
        }
    }

    fn facts(&self) -> Vec<Fact> {
        let sb = self.super_block();
        let fact = |name: &'static str, value: String| Fact { name, value };
        let mut facts = Vec::new();
        facts.push(fact("FAT width", format!("{} bits", sb.width.bits())));
        facts.push(fact("sector size", sb.sector_size.to_string()));
        facts.push(fact("cluster size", sb.cluster_size.to_string()));
        facts.push(fact("clusters", sb.clusters.to_string()));
        facts.push(fact("FATs", sb.fats.to_string()));
        if let Some(active) = sb.active_fat {
            facts.push(fact("active FAT", active.to_string()));
        }
        let oem: String = crate::name::trim(&sb.oem).iter().map(|&byte| char::from(byte)).collect();
        if !oem.is_empty() && oem.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
            facts.push(fact("made by", oem));
        }
        facts
    }
}
