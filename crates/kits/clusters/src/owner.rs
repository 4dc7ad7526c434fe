//! Properties of files that the format does not store and the user may choose: owners, permissions, time zone.

use obento_base::Mode;
use obento_driver::VolumeOptions;

use crate::time::Zone;

/// The properties that the options of mount(8) for vfat and exfat define.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// `uid=`: owner of all files.
    pub uid: u32,
    /// `gid=`: group of all files.
    pub gid: u32,
    /// `fmask=`: permissions that are removed from files.
    pub file_mask: Mode,
    /// `dmask=`: permissions that are removed from directories.
    pub dir_mask: Mode,
    /// `time_offset=`: offset from UTC of times that are stored without a time zone.
    pub zone: Zone,
}

impl Owner {
    /// Returns these properties, replaced by those that `shown` sets.
    #[must_use]
    pub fn with(self, shown: &VolumeOptions) -> Self {
        Self {
            uid: shown.uid.unwrap_or(self.uid),
            gid: shown.gid.unwrap_or(self.gid),
            file_mask: shown.file_mask.unwrap_or(self.file_mask),
            dir_mask: shown.dir_mask.unwrap_or(self.dir_mask),
            zone: shown.time_offset.map_or(self.zone, Zone),
        }
    }
}

impl Default for Owner {
    /// Returns files of root, `umask=022`, and UTC.
    fn default() -> Self {
        let mask = Mode::new(0o022);
        Self { uid: 0, gid: 0, file_mask: mask, dir_mask: mask, zone: Zone::default() }
    }
}
