//! How a volume is shown and changed, where it does not say so itself.

use obento_clusters::Owner;
use obento_driver::Shown;

/// What whoever opens a volume may say, as the options of mount(8) for exfat have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExFatOptions {
    /// Whose files are, and in which zone clocks were that wrote times without saying it.
    pub owner: Owner,
    /// `keep_last_dots`: names may end with dots.
    pub keep_last_dots: bool,
    /// `discard`: the device is told which clusters are freed.
    pub discard: bool,
}

impl ExFatOptions {
    /// These, but for what `shown` says.
    #[must_use]
    pub fn with(self, shown: &Shown) -> Self {
        Self {
            owner: self.owner.with(shown),
            keep_last_dots: self.keep_last_dots || shown.keep_last_dots,
            discard: self.discard || shown.discard,
        }
    }
}
