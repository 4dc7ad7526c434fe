//! Properties of files that the format does not store and the user may choose: owners, permissions, code page, time
//! zone.

use obento_base::{Error, Result};
use obento_clusters::Owner;
use obento_driver::VolumeOptions;

use crate::name::CodePage;

/// The options of mount(8) for vfat. The default is `codepage=437`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FatOptions {
    /// Owner, permissions and time zone.
    pub owner: Owner,
    /// `codepage=`: the characters of short names.
    pub code_page: CodePage,
    /// `discard`: discard freed clusters.
    pub discard: bool,
}

impl FatOptions {
    /// Returns these options, replaced by those that `shown` sets. Fails with `NotSupported` for an unknown code
    /// page, and for names that end with dots, for which no short name can be derived.
    pub fn with(self, shown: &VolumeOptions) -> Result<Self> {
        if shown.keep_last_dots {
            return Err(Error::NotSupported);
        }
        let code_page = shown.code_page.map_or(Ok(self.code_page), CodePage::of_number)?;
        Ok(Self { owner: self.owner.with(shown), code_page, discard: self.discard || shown.discard })
    }
}
