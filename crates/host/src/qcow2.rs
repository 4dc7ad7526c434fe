//! qcow2 images, read-only.

use std::path::Path;
use std::sync::Arc;

use obento_block::{BlockDevice, MemDevice};

use crate::HostError;

/// Whether files that an image names (backing files, external data files) may be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum References {
    /// Never: an image that needs one is refused.
    #[default]
    Refuse,
    /// Yes: the caller trusts the image.
    Open,
}

/// Whether `start`, the first bytes of a file, are those of a qcow2 image.
pub fn is_qcow2(_start: &[u8]) -> bool {
    todo!()
}

/// An open qcow2 image.
pub struct Qcow2Device(MemDevice);

impl Qcow2Device {
    /// Opens the image that lies on `device`. References are resolved relative to the folder of `path`.
    pub fn open(
        _device: Arc<dyn BlockDevice>,
        _path: &Path,
        _references: References,
    ) -> Result<Self, HostError> {
        todo!()
    }
}
