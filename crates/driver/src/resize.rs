//! Changing the size of an existing volume.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use obento_base::Error;
use obento_block::BlockDevice;
use obento_env::Clock;

/// The requested size of a volume.
#[derive(Clone)]
pub struct ResizeOptions {
    /// The new length of the volume in bytes. The driver rounds down to its units.
    pub len: u64,
    /// The clock for times that are written.
    pub clock: Arc<dyn Clock>,
    /// The device of an external journal, if the caller has one.
    pub journal: Option<Arc<dyn BlockDevice>>,
}

impl ResizeOptions {
    /// Returns options for a volume of `len` bytes.
    pub fn new(len: u64, clock: Arc<dyn Clock>) -> Self {
        Self { len, clock, journal: None }
    }
}

/// The result of a change of the size.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResizePlan {
    /// The length of the volume in bytes before the change.
    pub old_len: u64,
    /// The length of the volume in bytes after the change. If the last part of the requested length is too short for
    /// the structures of the format, the new length is smaller than requested. It may equal the old length.
    pub len: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The reason why a driver does not change the size of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResizeRefusal {
    /// The requested length is smaller than the volume.
    Shrink {
        /// The length of the volume in bytes.
        len: u64,
    },
    /// The requested length exceeds the limit of the volume.
    TooLong {
        /// The maximum length in bytes.
        max: u64,
        /// The property of the volume that sets the limit.
        why: &'static str,
    },
    /// A feature of the volume prevents the change.
    Feature(&'static str),
    /// The volume is marked as having errors, or a structure is damaged. A check repairs it.
    NeedsCheck(&'static str),
    /// The structures of a new part of the volume do not fit there.
    NoRoom,
}

impl fmt::Display for ResizeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shrink { len } => {
                write!(f, "shrinking is not supported yet, and the volume has {len} bytes")
            }
            Self::TooLong { max, why } => write!(f, "the volume can have at most {max} bytes ({why})"),
            Self::Feature(name) => write!(f, "the feature '{name}' prevents resizing"),
            Self::NeedsCheck(why) => f.write_str(why),
            Self::NoRoom => f.write_str("the tables of a new block group do not fit in the group"),
        }
    }
}

/// The reason why the size was not changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResizeError {
    /// The volume cannot have this size. Nothing was changed.
    Refused(ResizeRefusal),
    /// The volume is damaged, or the device failed.
    Failed(Error),
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => why.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ResizeError {}

impl From<Error> for ResizeError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ResizeRefusal> for ResizeError {
    fn from(why: ResizeRefusal) -> Self {
        Self::Refused(why)
    }
}

/// Receives the number of units of work that are done, and the number of all units.
pub type ResizeObserver<'a> = &'a mut dyn FnMut(u64, u64);

/// Changes the size of a volume that is not open.
///
/// A power failure during the change leaves a volume of the old or the new size. A check repairs structures that
/// still describe the other size, such as backups. No file is lost.
pub trait Resize: Send + Sync {
    /// Returns the size that [`resize`](Self::resize) would give the volume on `device` for `len` bytes. The device
    /// may be shorter than `len`. Writes nothing.
    ///
    /// # Errors
    ///
    /// - `Refused`: the volume cannot have this size.
    /// - `Failed`: the volume is damaged, or the device failed.
    fn plan(&self, device: &dyn BlockDevice, len: u64) -> Result<ResizePlan, ResizeError>;

    /// Changes the size of the volume on `device`, which must have at least the requested length. Returns the old and
    /// the new size.
    ///
    /// # Errors
    ///
    /// - `Failed` with `ReadOnly`: the device is read-only.
    /// - `Refused`: the volume cannot have this size. Nothing was changed.
    /// - `Failed` with `OutOfBounds`: the device is too short. Nothing was changed.
    /// - `Failed`: the volume is damaged, or the device failed. After a failure of the device, the volume has the old
    ///   or the new size, or is marked as having errors, which a check repairs.
    fn resize(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &ResizeOptions,
        observer: ResizeObserver<'_>,
    ) -> Result<ResizePlan, ResizeError>;
}
