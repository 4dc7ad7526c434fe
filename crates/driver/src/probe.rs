//! The result of recognising a volume.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use obento_base::Result;

/// The properties of a volume that a driver finds without opening the volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Probe {
    /// Type. If one driver supports several types, this is the specific type: `ext2`, `ext3` or `ext4`.
    pub fs_type: &'static str,
    /// Label; empty if the volume has none.
    pub label: Vec<u8>,
    /// UUID, if the volume has one.
    pub uuid: Option<[u8; 16]>,
    /// Serial number, for a format that has one; displayed as `1234-ABCD`. exFAT has a serial number and,
    /// optionally, a UUID.
    pub serial: Option<u32>,
    /// Identifier as text, for a format that has neither a UUID nor a serial number. For ISO 9660 this is the
    /// modification time of the volume; for UDF and NTFS, an identifier of 16 hexadecimal digits.
    pub text_id: Option<String>,
    /// Length of the volume in bytes. If the image is truncated, this length is greater than the length of the device.
    pub len: u64,
    /// The reason why the driver recognises the volume.
    pub evidence: Evidence,
    /// The structure that the driver has decoded.
    pub decoded: Decoded,
}

/// A structure that [`Driver::probe`](crate::Driver::probe) has decoded, such as the super block. The driver then does
/// not read and decode the structure again when it opens or checks the volume. A driver may omit the structure. All
/// values of this type are equal, since they are not properties of a volume.
#[derive(Clone, Default)]
pub struct Decoded(Option<Arc<dyn Any + Send + Sync>>);

impl Decoded {
    /// Returns a value that contains `structure`.
    pub fn new(structure: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(structure)))
    }

    /// Returns the structure in `probe`. If `probe` contains no structure of type `T`, calls `find`.
    ///
    /// # Errors
    ///
    /// The errors of `find`.
    pub fn of<T: Any + Clone>(probe: Option<&Probe>, find: impl FnOnce() -> Result<T>) -> Result<T> {
        let structure = probe.and_then(|probe| probe.decoded.0.as_ref()?.downcast_ref());
        structure.cloned().map_or_else(find, Ok)
    }
}

impl PartialEq for Decoded {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Decoded {}

impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Decoded(..)" } else { "Decoded" })
    }
}

/// The reason why a driver recognises a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Evidence {
    /// The signature of the format is where the format requires it.
    #[default]
    Signature,
    /// The signature of the format is missing, but the device contains other structures of the format, such as a
    /// backup of the super block. If another format has a signature on the same device, the other format takes
    /// precedence.
    Traces,
}
