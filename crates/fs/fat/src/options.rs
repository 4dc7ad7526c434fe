//! What a volume does not say of itself and whoever opens it may: owners, permissions, code page, time zone.

use obento_base::{Error, Result};
use obento_clusters::Owner;
use obento_driver::Shown;

use crate::name::CodePage;

/// How a volume is shown, as the options of mount(8) for vfat have it; by default `codepage=437`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FatOptions {
    /// Whose files are, and in which zone the clock was that wrote times.
    pub owner: Owner,
    /// `codepage=`: what the bytes of short names mean.
    pub code_page: CodePage,
    /// `discard`: the device is told which clusters are freed.
    pub discard: bool,
}

impl FatOptions {
    /// These, but for what `shown` says. Fails with `NotSupported` for a code page that is not known, and for names
    /// that end with dots, of which a short one cannot be made.
    pub fn with(self, shown: &Shown) -> Result<Self> {
        if shown.keep_last_dots {
            return Err(Error::NotSupported);
        }
        let code_page = shown.code_page.map_or(Ok(self.code_page), CodePage::of_number)?;
        Ok(Self { owner: self.owner.with(shown), code_page, discard: self.discard || shown.discard })
    }
}
