//! What a volume does not say of its files and whoever opens it may: owners, permissions, time zone.

use obento_base::Mode;
use obento_driver::Shown;

use crate::time::Zone;

/// Whose files are, as the options of mount(8) for vfat and exfat have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// `uid=`: the owner of all files.
    pub uid: u32,
    /// `gid=`: their group.
    pub gid: u32,
    /// `fmask=`: permissions that no file has.
    pub file_mask: Mode,
    /// `dmask=`: permissions that no directory has.
    pub dir_mask: Mode,
    /// `time_offset=`: how far the clocks are ahead of UTC that wrote times without saying it.
    pub zone: Zone,
}

impl Owner {
    /// This one, but for what `shown` says.
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

impl Default for Owner {
    /// Root's files, `umask=022`, UTC.
    fn default() -> Self {
        let mask = Mode::new(0o022);
        Self { uid: 0, gid: 0, file_mask: mask, dir_mask: mask, zone: Zone::default() }
    }
}
