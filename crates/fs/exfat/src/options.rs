//! Properties that the format does not store and the user may choose.

use obento_clusters::Owner;
use obento_driver::VolumeOptions;

/// The options of mount(8) for exfat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExFatOptions {
    /// Owner, permissions, and the time zone of times that are stored without one.
    pub owner: Owner,
    /// `keep_last_dots`: names may end with dots.
    pub keep_last_dots: bool,
    /// `discard`: discard freed clusters.
    pub discard: bool,
}

impl ExFatOptions {
    /// Returns these options, replaced by those that `shown` sets.
    #[must_use]
    pub fn with(self, shown: &VolumeOptions) -> Self {
        Self {
            owner: self.owner.with(shown),
            keep_last_dots: self.keep_last_dots || shown.keep_last_dots,
            discard: self.discard || shown.discard,
        }
    }
}
