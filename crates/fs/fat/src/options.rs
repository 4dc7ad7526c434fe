//! What a volume does not say of itself and whoever opens it may: owners, permissions, code page, time zone.

use obento_base::{Mode, Result};
use obento_driver::Shown;

use crate::name::CodePage;
use crate::time::Zone;

/// How a volume is shown, as the options of mount(8) for vfat have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FatOptions {
    /// `uid=`: the owner of all files.
    pub uid: u32,
    /// `gid=`: their group.
    pub gid: u32,
    /// `fmask=`: permissions that no file has.
    pub file_mask: Mode,
    /// `dmask=`: permissions that no directory has.
    pub dir_mask: Mode,
    /// `codepage=`: what the bytes of short names mean.
    pub code_page: CodePage,
    /// `time_offset=`: how far the clock that wrote the times was ahead of UTC.
    pub zone: Zone,
}

impl FatOptions {
    /// These, but for what `shown` says. Errors: NotSupported for a code page that is not known.
    pub fn with(self, shown: &Shown) -> Result<Self> {
        Ok(Self {
            uid: shown.uid.unwrap_or(self.uid),
            gid: shown.gid.unwrap_or(self.gid),
            file_mask: shown.file_mask.unwrap_or(self.file_mask),
            dir_mask: shown.dir_mask.unwrap_or(self.dir_mask),
            code_page: shown.code_page.map_or(Ok(self.code_page), CodePage::of_number)?,
            zone: shown.time_offset.map_or(self.zone, Zone),
        })
    }
}

impl Default for FatOptions {
    /// Root's files, `umask=022,codepage=437,tz=UTC`.
    fn default() -> Self {
        let mask = Mode::new(0o022);
        let (code_page, zone) = (CodePage::default(), Zone::default());
        Self { uid: 0, gid: 0, file_mask: mask, dir_mask: mask, code_page, zone }
    }
}
