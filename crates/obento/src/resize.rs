//! Changes the size of the volume of an image.
//!
//! The space grows first: the image file, or the entry of the partition. Then the volume grows into it.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use obento_base::{DeviceError, Error};
use obento_block::{BlockDevice, Slice};
use obento_driver::{Access, Resize, ResizeError, ResizeObserver, ResizeOptions, ResizePlan};
use obento_env::Clock;
use obento_host::FileDevice;

use crate::partition::{EditError, Partition, TableEditor};
use crate::{Image, ImageFile, OpenError, PartSelector};

/// The requested size of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewSize {
    /// This number of bytes.
    Bytes(u64),
    /// This number of bytes more than the volume has.
    Add(u64),
    /// All bytes of the image or the partition.
    Maximum,
}

/// The reason why the size of a volume was not changed.
#[derive(Debug)]
pub enum ResizeFailure {
    /// The image, or the requested part of it, cannot be opened.
    Open(OpenError),
    /// No driver recognises the volume. The text describes its contents.
    Unknown(String),
    /// The driver cannot resize volumes of the format.
    NotSupported {
        /// The name of the format.
        fs_type: &'static str,
    },
    /// The partition cannot have the requested length.
    Partition {
        /// The number of the partition.
        number: u32,
        /// The maximum length of the partition in bytes.
        max: u64,
    },
    /// The image cannot become longer: it is a block device, or an image in another format than raw.
    Image {
        /// The name of the format, or `None` for a block device or a range of bytes.
        format: Option<&'static str>,
        /// The length in bytes.
        len: u64,
    },
    /// The partition table cannot be changed.
    Table(EditError),
    /// The image file cannot become longer.
    File(io::Error),
    /// The size was refused, or the change failed.
    Resize(ResizeError),
}

impl fmt::Display for ResizeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Unknown(holds) => write!(f, "no supported file system; the data looks like {holds}"),
            Self::NotSupported { fs_type } => write!(f, "obento does not support this for {fs_type}"),
            Self::Partition { number, max } => {
                write!(f, "partition {number} can have at most {max} bytes")
            }
            Self::Image { format: Some(format), len } => {
                write!(f, "the disk in the {format} image has {len} bytes and cannot become longer")
            }
            Self::Image { format: None, len } => write!(f, "the device has {len} bytes"),
            Self::Table(error) => error.fmt(f),
            Self::File(error) => write!(f, "the image file cannot become longer: {error}"),
            Self::Resize(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResizeFailure {}

impl From<ResizeError> for ResizeFailure {
    fn from(error: ResizeError) -> Self {
        Self::Resize(error)
    }
}

/// A change of a size that is possible.
pub struct PlannedResize<'a> {
    image: &'a Image,
    device: Arc<dyn BlockDevice>,
    driver: &'a dyn Resize,
    plan: ResizePlan,
    fs_type: &'static str,
    len: u64,
    room: Growing,
}

/// What must become longer before the volume grows.
enum Growing {
    Nothing,
    /// The file, to this length.
    File(u64),
    /// The entry of the partition.
    Entry(Box<TableEditor>, Range<u64>),
}

/// Plans a change of the size of the file system that `part` of `image` selects, or of the only file system. Writes
/// nothing. The volume must not be open.
///
/// ```no_run
/// use std::sync::Arc;
/// use obento::{Image, NewSize, Options, Registry, SystemClock, plan_resize};
///
/// let image = Image::open("disk.img".as_ref(), &Registry::default(), &Options::default().for_change())?;
/// let planned = plan_resize(&image, None, NewSize::Bytes(64 << 30))?;
/// println!("{} bytes", planned.plan().len);
/// planned.run(Arc::new(SystemClock), &mut |_, _| {})?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan_resize<'a>(
    image: &'a Image,
    part: Option<&PartSelector>,
    size: NewSize,
) -> Result<PlannedResize<'a>, ResizeFailure> {
    let (device, choice) = image.volume_bytes(part).map_err(ResizeFailure::Open)?;
    let Some(probe) = choice.probe() else { return Err(ResizeFailure::Unknown(choice.holds.to_string())) };
    let fs_type = probe.fs_type;
    let driver = image.registry().find(fs_type).and_then(|driver| driver.resize());
    let driver = driver.ok_or(ResizeFailure::NotSupported { fs_type })?;
    let len = match size {
        NewSize::Bytes(len) => len,
        NewSize::Add(more) => probe.len.saturating_add(more),
        NewSize::Maximum => device.len(),
    };
    let plan = driver.plan(&*device, len)?;
    let room = if plan.len <= device.len() && len <= device.len() {
        Growing::Nothing
    } else if let Some(partition) = &choice.partition {
        grow_entry(image, partition, len)?
    } else {
        grow_file(image, part, &device, len)?
    };
    Ok(PlannedResize { image, device, driver, plan, fs_type, len, room })
}

/// Finds the new range of a partition for a volume of `len` bytes.
fn grow_entry(image: &Image, partition: &Partition, len: u64) -> Result<Growing, ResizeFailure> {
    let Some(table) = image.table() else { return Ok(Growing::Nothing) };
    let mut editor = TableEditor::open(image.device().clone(), table).map_err(ResizeFailure::Table)?;
    let limit = editor.limit_of(partition.number).map_err(ResizeFailure::Table)?;
    let unit = u64::from(table.sector_size);
    let end = len.checked_next_multiple_of(unit).and_then(|len| partition.start.checked_add(len));
    let Some(end) = end.filter(|end| *end <= limit) else {
        let max = limit.saturating_sub(partition.start);
        return Err(ResizeFailure::Partition { number: partition.number, max });
    };
    let range = partition.start..end;
    editor.set_range(partition.number, range.clone()).map_err(ResizeFailure::Table)?;
    Ok(Growing::Entry(Box::new(editor), range))
}

/// Checks whether the image is a file that can have `len` bytes.
fn grow_file(
    image: &Image,
    part: Option<&PartSelector>,
    device: &Arc<dyn BlockDevice>,
    len: u64,
) -> Result<Growing, ResizeFailure> {
    let fixed = |format| Err(ResizeFailure::Image { format, len: device.len() });
    if let Some(format) = image.layers().last() {
        return fixed(Some(format));
    }
    let is_file = file_behind(image).is_ok_and(|(_, device)| !device.is_block_device());
    if part.is_some() || !is_file {
        return fixed(None);
    }
    Ok(Growing::File(len.checked_next_multiple_of(512).unwrap_or(len)))
}

impl PlannedResize<'_> {
    /// Returns the old and the new size.
    pub fn plan(&self) -> &ResizePlan {
        &self.plan
    }

    /// Returns the type of the file system.
    pub fn fs_type(&self) -> &'static str {
        self.fs_type
    }

    /// Returns the new length of the partition, if its entry changes.
    pub fn partition_len(&self) -> Option<u64> {
        match &self.room {
            Growing::Entry(_, range) => Some(range.end.saturating_sub(range.start)),
            Growing::Nothing | Growing::File(_) => None,
        }
    }

    /// Changes the size. The image must be open for change. Returns the old and the new size.
    ///
    /// # Errors
    ///
    /// [`ResizeFailure`]. If the volume is not changed, the image file or the partition may be longer than before.
    pub fn run(
        self,
        clock: Arc<dyn Clock>,
        observer: ResizeObserver<'_>,
    ) -> Result<ResizePlan, ResizeFailure> {
        if self.image.access() == Access::ReadOnly {
            return Err(ResizeError::Failed(Error::from(DeviceError::ReadOnly)).into());
        }
        let Self { image, device, driver, plan, len, room, .. } = self;
        let device = match room {
            Growing::Nothing if plan.len == plan.old_len => return Ok(plan),
            Growing::Nothing => device,
            Growing::File(len) => longer_file(image, len).map_err(ResizeFailure::File)?,
            Growing::Entry(mut editor, range) => {
                editor.write().map_err(ResizeFailure::Table)?;
                let slice = Slice::new(Arc::clone(image.device()), range);
                Arc::new(slice.map_err(ResizeError::from)?)
            }
        };
        let options = ResizeOptions { journal: image.journal().cloned(), ..ResizeOptions::new(len, clock) };
        Ok(driver.resize(device, &options, observer)?)
    }
}

/// Makes the file of `image` longer, and returns a device on the file. The image retains the lock.
fn longer_file(image: &Image, len: u64) -> io::Result<Arc<dyn BlockDevice>> {
    file_behind(image)?.0.set_len(len)?;
    Ok(Arc::new(file_behind(image)?.1))
}

/// Returns the file of `image`, and a device on the file with its present length.
fn file_behind(image: &Image) -> io::Result<(File, FileDevice)> {
    let file = File::from(ImageFile::file_of(&**image.device())?);
    let device = FileDevice::from_file(file.try_clone()?, image.path()).map_err(io::Error::other)?;
    Ok((file, device))
}
