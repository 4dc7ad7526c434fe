//! Images without the feature `host`: they have no files and no layers.

use super::{Image, OpenError, Options};

/// The replacement for the open files that decoding needs with the feature `host`. It is empty.
pub(super) struct NoParts;

impl NoParts {
    pub fn of_device(_: &Options) -> Result<Self, OpenError> {
        Ok(Self)
    }
}

impl Image {
    pub(super) fn decode_layers(&mut self, _: NoParts) -> Result<(), OpenError> {
        Ok(())
    }
}
