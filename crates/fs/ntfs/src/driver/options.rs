//! How a volume is shown where the format has another model than Linux.

use obento_base::Mode;
use obento_driver::VolumeOptions;

/// Options, as those of mount(8) for NTFS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NtfsOptions {
    /// `uid=`: the owner of all files. Without it, the volume determines the owner where it can.
    pub uid: Option<u32>,
    /// `gid=`: the group of all files.
    pub gid: Option<u32>,
    /// `fmask=`: permissions that no file has. With it, access control lists are ignored.
    pub file_mask: Option<Mode>,
    /// `dmask=`: permissions that no directory has.
    pub dir_mask: Option<Mode>,
    /// `streams=none`: alternate data streams are not shown.
    pub hide_streams: bool,
}

/// The mask for files without an access control list.
pub const DEFAULT_MASK: Mode = Mode::new(0o022);

impl NtfsOptions {
    /// Returns these options, replaced by those that `shown` gives.
    #[must_use]
    pub fn with(self, shown: &VolumeOptions) -> Self {
        Self {
            uid: shown.uid.or(self.uid),
            gid: shown.gid.or(self.gid),
            file_mask: shown.file_mask.or(self.file_mask),
            dir_mask: shown.dir_mask.or(self.dir_mask),
            hide_streams: shown.hide_streams || self.hide_streams,
        }
    }
}
