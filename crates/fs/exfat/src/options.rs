//! What a volume does not say of itself and whoever opens it may: owners, permissions, time zone.

use obento_base::Mode;
use obento_clusters::Zone;
use obento_driver::Shown;

/// How a volume is shown, as the options of mount(8) for exfat have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExFatOptions {
    /// `uid=`: the owner of all files.
    pub uid: u32,
    /// `gid=`: their group.
    pub gid: u32,
    /// `fmask=`: permissions that no file has.
    pub file_mask: Mode,
    /// `dmask=`: permissions that no directory has.
    pub dir_mask: Mode,
    /// `time_offset=`: how far the clocks are ahead of UTC that wrote times without saying it, and what is written.
    pub zone: Zone,
}

impl ExFatOptions {
    /// These, but for what `shown` says.
    #[must_use]
    pub fn with(self, shown: &Shown) -> Self {
        Self {
            uid: shown.uid.unwrap_or(self.uid),
            gid: shown.gid.unwrap_or(self.gid),
            file_mask: shown.file_mask.unwrap_or(self.file_mask),
            dir_mask: shown.dir_mask.unwrap_or(self.dir_mask),
            zone: shown.time_offset.map_or(self.zone, Zone),
        }
    }
}

impl Default for ExFatOptions {
    /// Root's files, `umask=022`, UTC.
    fn default() -> Self {
        let mask = Mode::new(0o022);
        Self { uid: 0, gid: 0, file_mask: mask, dir_mask: mask, zone: Zone::default() }
    }
}
