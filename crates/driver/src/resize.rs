//! Changing the size of an existing volume.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{Error, Quantity};
use obento_block::BlockDevice;
use obento_env::Clock;

/// The requested size of a volume.
#[derive(Clone)]
pub struct ResizeOptions {
    /// The new length of the volume in bytes. The driver rounds the length down to a multiple of its
    /// allocation unit.
    pub len: u64,
    /// The clock for times that are written.
    pub clock: Arc<dyn Clock>,
    /// The device of the external journal; `None` if the caller cannot provide the device.
    pub journal: Option<Arc<dyn BlockDevice>>,
}

impl ResizeOptions {
    /// Returns options for a volume of `len` bytes.
    pub fn new(len: u64, clock: Arc<dyn Clock>) -> Self {
        Self { len, clock, journal: None }
    }
}

/// A planned or completed change of the size.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResizePlan {
    /// The length of the volume in bytes before the change.
    pub old_len: u64,
    /// The length of the volume in bytes after the change. If the last part of the requested length is too short for
    /// the structures of the format, this length is smaller than the requested length. It may equal the old length.
    pub len: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The reason why a driver does not change the size of a volume.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResizeRefusal {
    /// The contents do not fit into the requested length.
    #[error("the contents do not fit; a size of {min} bytes is large enough")]
    TooShort {
        /// The smallest sufficient length in bytes: the result of [`Resize::minimum`].
        min: u64,
    },
    /// The journal is too small for the change of a file or directory.
    #[error("the journal is too small for a change of {blocks} blocks at once")]
    Journal {
        /// The number of blocks that would change at once.
        blocks: usize,
    },
    /// The requested length exceeds the limit of the volume.
    #[error("the volume can have at most {} ({why})", Quantity::new(*max, "byte"))]
    TooLong {
        /// The maximum length in bytes.
        max: u64,
        /// The property of the volume that sets the limit.
        why: &'static str,
    },
    /// The driver changes the size of volumes of this type only to a larger length.
    #[error("volumes of this type can only be resized to at least {min} bytes")]
    OfType {
        /// The smallest length in bytes to which the size can change.
        min: u64,
    },
    /// Volumes of this type can grow, but not shrink.
    #[error("volumes of this type can grow, but not shrink")]
    OnlyGrows,
    /// A feature of the volume prevents the change.
    #[error("the feature '{0}' prevents resizing")]
    Feature(&'static str),
    /// The volume is marked as having errors, or a structure is damaged. A check repairs the volume.
    #[error("{0}")]
    NeedsCheck(&'static str),
    /// The volume has too little free space for the structures of the new size, such as the tables of a new
    /// block group.
    #[error("the volume has no room for the structures of the new size")]
    NoRoom,
}

/// The reason why the size was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResizeError {
    /// The volume cannot have this size. Nothing was changed, except that the driver may have replayed the
    /// journal (ext4).
    #[error(transparent)]
    Refused(#[from] ResizeRefusal),
    /// The volume is damaged, the device failed or is too short, or the kernel engine is unavailable.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The result of a step of a resize.
pub type ResizeResult<T> = core::result::Result<T, ResizeError>;

/// A function that receives the progress of a resize. The first argument is the number of completed units of
/// work, and the second argument is the total number of units.
pub type ResizeObserver<'a> = &'a mut dyn FnMut(u64, u64);

/// Changes the size of a volume that is not open.
///
/// A power failure during the change leaves a volume of the old or the new size. A check repairs structures that
/// still describe the other size, such as backups. No file is lost.
pub trait Resize: Send + Sync {
    /// Returns the size that [`resize`](Self::resize) would give the volume on `device` for `len` bytes. The
    /// device may be shorter than `len`, but must contain the whole present volume. Writes nothing.
    ///
    /// # Errors
    ///
    /// - `Refused`: the volume cannot have this size.
    /// - `Failed`: the volume is damaged, the device failed or does not contain the whole volume, or the kernel engine
    ///   is unavailable.
    fn plan(&self, device: &Arc<dyn BlockDevice>, len: u64) -> Result<ResizePlan, ResizeError>;

    /// Returns the smallest length in bytes to which [`resize`](Self::resize) can shrink the volume on `device`. Writes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As for [`plan`](Self::plan).
    fn minimum(&self, device: &Arc<dyn BlockDevice>) -> Result<u64, ResizeError>;

    /// Changes the size of the volume on `device`, which must be at least as long as the old and the new
    /// volume. Returns the old and the new size. First replays a dirty journal (ext4).
    ///
    /// # Errors
    ///
    /// - `Failed` with `ReadOnly`: the device is read-only. Nothing was changed.
    /// - `Refused`: the volume cannot have this size. Nothing was changed, except that the driver may have
    ///   replayed the journal (ext4).
    /// - `Failed` with `DeviceError::OutOfBounds`: the device is too short. Nothing was changed.
    /// - `Failed`: the volume is damaged, the device failed, or the kernel engine is unavailable. After a failure of
    ///   the device, the volume has the old or the new size, or is marked as having errors. In the last case, a check
    ///   repairs the volume.
    fn resize(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &ResizeOptions,
        observer: ResizeObserver<'_>,
    ) -> Result<ResizePlan, ResizeError>;
}
