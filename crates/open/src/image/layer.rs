//! The layers of an image: compression and disk image formats, recognised by their first and last bytes.

use obento_base::Result;
use obento_base::wire::to_usize;
use obento_block::BlockDevice;
use obento_host::compressed::Compression;
use obento_host::container::{Format, SECTOR, detect_on};
use obento_host::qcow2::is_qcow2;

/// A layer of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layer {
    Compressed(Compression),
    Qcow2,
    Container(Format),
}

impl Layer {
    /// Returns the outermost layer of the image on `device`. Reads its first and its last sector.
    pub fn find(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let mut start = [0; SECTOR];
        let len = to_usize(device.len()).min(SECTOR);
        let start = &mut start[..len];
        device.read_at(0, start)?;
        if let Some(compression) = Compression::detect(start) {
            return Ok(Some(Self::Compressed(compression)));
        }
        if is_qcow2(start) {
            return Ok(Some(Self::Qcow2));
        }
        Ok(detect_on(device)?.map(Self::Container))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Compressed(compression) => compression.name(),
            Self::Qcow2 => "qcow2",
            Self::Container(format) => format.name(),
        }
    }

    /// Returns whether an image with this layer may be opened for change. Even so, some variants of a format are
    /// read-only, and opening fails for them.
    pub fn may_be_changed(self) -> bool {
        matches!(self, Self::Qcow2 | Self::Container(Format::Vhd))
    }
}
