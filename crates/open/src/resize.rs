//! Changes the size of the volume of an image.
//!
//! The image file or the entry of the partition grows before the volume. A volume shrinks before the image
//! file or the entry. If the volume cannot grow, the file or the entry gets its old length again, unless
//! bytes of the volume were changed.

mod watched;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use obento_base::{DeviceError, Error};
use obento_block::{BlockDevice, Slice};
use obento_driver::{
    Access, CheckObserver, CheckOptions, Finding, Resize, ResizeError, ResizeObserver, ResizeOptions,
    ResizePlan, Severity,
};
use obento_env::Clock;
use obento_host::FileDevice;

use crate::address::PartSelector;
use crate::image::ImageFile;
use crate::partition::{EditError, Partition, TableEditor};
use crate::{Image, OpenError};
use watched::WatchedDevice;

/// The requested size of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewSize {
    /// This number of bytes.
    Bytes(u64),
    /// This number of bytes more than the volume has.
    Add(u64),
    /// All bytes of the image or the partition.
    Maximum,
    /// The smallest size into which the contents fit.
    Minimum,
}

/// The reason why the size of a volume was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ResizeFailure {
    /// The image, or the requested part of it, cannot be opened.
    #[error("{0}")]
    Open(OpenError),
    /// No driver recognises the volume. The text describes its contents.
    #[error("no supported file system; the data looks like {0}")]
    Unknown(String),
    /// The driver cannot resize volumes of the format.
    #[error("obento does not resize {fs_type} volumes")]
    NotSupported {
        /// The name of the format.
        fs_type: &'static str,
    },
    /// The partition cannot have the requested length.
    #[error("partition {number} can have at most {max} bytes")]
    Partition {
        /// The number of the partition.
        number: u32,
        /// The maximum length of the partition in bytes.
        max: u64,
    },
    /// The image cannot become longer: it is a block device, or an image in another format than raw.
    #[error("the {}", match format {
        Some(format) => format!("disk in the {format} image has {len} bytes and cannot become longer"),
        None => format!("device has {len} bytes"),
    })]
    Image {
        /// The name of the format, or `None` for a block device or a range of bytes.
        format: Option<&'static str>,
        /// The length in bytes.
        len: u64,
    },
    /// The partition table cannot be changed.
    #[error("{0}")]
    Table(EditError),
    /// The image file cannot become longer.
    #[error("the image file cannot become longer: {0}")]
    File(io::Error),
    /// A check finds damage. The text is the first finding.
    #[error("the volume is damaged: {0}")]
    Damaged(String),
    /// The size was refused, or the change failed.
    #[error("{0}")]
    Resize(#[from] ResizeError),
    /// The image file or the partition grew, but the volume did not. The new length stays, because bytes of
    /// the volume were changed, and the volume may use the new space.
    #[error("{failure}; {} now has {len} bytes", match space {
        LongerSpace::File => "the image file",
        LongerSpace::Partition => "the partition",
    })]
    Longer {
        /// The failure.
        failure: Box<Self>,
        /// The space that is longer.
        space: LongerSpace,
        /// The new length of the space in bytes.
        len: u64,
    },
}

/// The space of a volume, which grows before the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LongerSpace {
    /// The image file.
    File,
    /// The entry of the partition in the partition table.
    Partition,
}

/// A planned change of the size of a volume, which is possible.
pub struct PlannedResize<'a> {
    image: &'a Image,
    device: Arc<dyn BlockDevice>,
    driver: &'a dyn Resize,
    plan: ResizePlan,
    fs_type: &'static str,
    len: u64,
    is_minimum: bool,
    room: Room,
}

/// The space of the volume, which grows before the volume, or shrinks after it.
enum Room {
    Unchanged,
    /// The file grows to this length.
    LongerFile(u64),
    /// The entry of the partition grows.
    LongerEntry(Box<TableEditor>, LongerEntry),
    /// The file is cut.
    ShorterFile,
    /// The file is not cut, because other data may follow the volume.
    SameFile,
    /// The entry of the partition shrinks. It begins at this byte of the disk.
    ShorterEntry(Box<TableEditor>, u32, u64),
}

/// The entry of a partition before and after it grows, in bytes of the disk.
struct LongerEntry {
    number: u32,
    old: Range<u64>,
    new: Range<u64>,
}

/// The result of a change of a size.
#[derive(Clone, Debug)]
pub struct Resized {
    /// The old and the new size, and notes for the user.
    pub plan: ResizePlan,
    /// The length of the partition in bytes, if its entry changes.
    pub partition_len: Option<u64>,
}

/// Types whose plan for a smaller size reads the maps of all files. The change reads them too, and refuses the same
/// sizes before it writes. The plan is therefore omitted, unless the caller requests it.
const READ_TWICE: &[&str] = &["ext2", "ext3", "ext4"];
/// Maximum number of times that a volume shrinks again for [`NewSize::Minimum`].
const MAX_PASSES: u32 = 8;
/// A file is cut behind a volume if at most this many bytes follow the volume: the rest of a large block.
const MAX_TAIL: u64 = 65_535;

/// Plans a change of the size of the file system that `part` of `image` selects, or of the only file system. Writes
/// nothing. The volume must not be open.
///
/// ```no_run
/// use std::sync::Arc;
/// use obento::Image;
/// use obento::env::SystemClock;
/// use obento::resize::{NewSize, plan_resize};
///
/// let image = Image::builder().for_change().open("disk.img")?;
/// let planned = plan_resize(&image, None, NewSize::Bytes(64 << 30))?;
/// println!("{} bytes", planned.expected()?.plan.len);
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
    let fs_type = match probe.fs_type {
        // The requested type, which the driver does not recognise.
        "" => image.volume(part).map_err(ResizeFailure::Open)?.info().probe.fs_type,
        fs_type => fs_type,
    };
    let driver = image.registry().find(fs_type).and_then(|driver| driver.resize());
    let driver = driver.ok_or(ResizeFailure::NotSupported { fs_type })?;
    let len = match size {
        NewSize::Bytes(len) => len,
        NewSize::Add(more) => probe.len.saturating_add(more),
        NewSize::Maximum => device.len(),
        NewSize::Minimum => driver.minimum(&device)?,
    };
    let is_shorter = matches!(size, NewSize::Bytes(_)) && len < probe.len;
    let plan = if is_shorter && READ_TWICE.contains(&fs_type) {
        ResizePlan { old_len: probe.len, len, notes: Vec::new() }
    } else {
        driver.plan(&device, len)?
    };
    // mformat writes an entry that begins at byte 0: it names the whole image.
    let partition = choice.partition.as_ref().filter(|partition| partition.start > 0);
    let room = if plan.len < plan.old_len {
        shorter(image, part, partition, &device, plan.old_len)?
    } else if plan.len == plan.old_len || plan.len <= device.len() && len <= device.len() {
        // Space that the volume cannot use would be lost.
        Room::Unchanged
    } else if let Some(partition) = partition {
        grow_entry(image, partition, len)?
    } else {
        grow_file(image, part, &device, len)?
    };
    let is_minimum = size == NewSize::Minimum;
    Ok(PlannedResize { image, device, driver, plan, fs_type, len, is_minimum, room })
}

/// Returns the space that shrinks after a volume of `old_len` bytes.
fn shorter(
    image: &Image,
    part: Option<&PartSelector>,
    partition: Option<&Partition>,
    device: &Arc<dyn BlockDevice>,
    old_len: u64,
) -> Result<Room, ResizeFailure> {
    if let (Some(partition), Some(table)) = (partition, image.table()) {
        let editor = TableEditor::open(image.device().clone(), table).map_err(ResizeFailure::Table)?;
        return Ok(Room::ShorterEntry(Box::new(editor), partition.number, partition.start));
    }
    let is_raw = image.layers().is_empty() && part.is_none();
    let is_file = is_raw && file_behind(image).is_ok_and(|(_, device)| !device.is_block_device());
    Ok(match device.len().saturating_sub(old_len) <= MAX_TAIL {
        _ if !is_file => Room::Unchanged,
        true => Room::ShorterFile,
        false => Room::SameFile,
    })
}

/// Finds the new range of a partition for a volume of `len` bytes.
fn grow_entry(image: &Image, partition: &Partition, len: u64) -> Result<Room, ResizeFailure> {
    let Some(table) = image.table() else { return Ok(Room::Unchanged) };
    let mut editor = TableEditor::open(image.device().clone(), table).map_err(ResizeFailure::Table)?;
    let limit = editor.limit_of(partition.number).map_err(ResizeFailure::Table)?;
    let unit = u64::from(table.sector_size);
    let end = len.checked_next_multiple_of(unit).and_then(|len| partition.start.checked_add(len));
    let Some(end) = end.filter(|end| *end <= limit) else {
        let max = limit.saturating_sub(partition.start);
        return Err(ResizeFailure::Partition { number: partition.number, max });
    };
    let entry = LongerEntry {
        number: partition.number,
        old: partition.start..partition.end(),
        new: partition.start..end,
    };
    editor.set_range(entry.number, entry.new.clone()).map_err(ResizeFailure::Table)?;
    Ok(Room::LongerEntry(Box::new(editor), entry))
}

/// Checks whether the image is a file that can have `len` bytes.
fn grow_file(
    image: &Image,
    part: Option<&PartSelector>,
    device: &Arc<dyn BlockDevice>,
    len: u64,
) -> Result<Room, ResizeFailure> {
    let fixed = |format| Err(ResizeFailure::Image { format, len: device.len() });
    if let Some(format) = image.layers().last() {
        return fixed(Some(format));
    }
    let is_file = file_behind(image).is_ok_and(|(_, device)| !device.is_block_device());
    if part.is_some() || !is_file {
        return fixed(None);
    }
    Ok(Room::LongerFile(len.checked_next_multiple_of(512).unwrap_or(len)))
}

impl PlannedResize<'_> {
    /// Returns the expected result of [`run`](Self::run). For [`NewSize::Minimum`], the volume may become
    /// shorter than this result.
    ///
    /// # Errors
    ///
    /// `Resize`: the contents do not fit, or the volume is damaged.
    pub fn expected(&self) -> Result<Resized, ResizeFailure> {
        let is_exact = self.plan.len >= self.plan.old_len || !READ_TWICE.contains(&self.fs_type);
        let plan = if is_exact { self.plan.clone() } else { self.driver.plan(&self.device, self.len)? };
        Ok(self.result()(plan))
    }

    /// Returns the type of the file system.
    pub fn fs_type(&self) -> &'static str {
        self.fs_type
    }

    /// Returns a function that converts a plan to a result: it adds the new length of the partition and a
    /// note.
    fn result(&self) -> impl Fn(ResizePlan) -> Resized + use<> {
        let (longer, unit) = match &self.room {
            Room::LongerEntry(_, LongerEntry { new, .. }) => (Some(new.end.saturating_sub(new.start)), None),
            Room::ShorterEntry(editor, ..) => (None, Some(u64::from(editor.table().sector_size))),
            _ => (None, None),
        };
        let is_same_file = matches!(self.room, Room::SameFile);
        move |mut plan| {
            let note = "the image file keeps its length, because other data may follow the volume";
            plan.notes.extend(is_same_file.then(|| note.to_owned()));
            let shorter = unit.and_then(|unit| plan.len.checked_next_multiple_of(unit));
            Resized { plan, partition_len: longer.or(shorter) }
        }
    }

    /// Changes the size. The image must be open for change, and the volume must not be open. If the size changes, a
    /// check of the volume runs before the first change.
    ///
    /// # Errors
    ///
    /// 1. `Resize` with `DeviceError::ReadOnly`: the image was opened for reading.
    /// 2. The other variants of [`ResizeFailure`]. Only after `Longer`, the image file or the partition is longer than
    ///    before.
    pub fn run(self, clock: Arc<dyn Clock>, observer: ResizeObserver<'_>) -> Result<Resized, ResizeFailure> {
        let result = self.result();
        Ok(result(self.change(clock, observer)?))
    }

    fn change(
        self,
        clock: Arc<dyn Clock>,
        observer: ResizeObserver<'_>,
    ) -> Result<ResizePlan, ResizeFailure> {
        if self.image.access() == Access::ReadOnly {
            return Err(ResizeError::Failed(Error::from(DeviceError::ReadOnly)).into());
        }
        if self.plan.len != self.plan.old_len {
            self.expect_sound(&clock)?;
        }
        let Self { image, device, driver, plan, len, is_minimum, room, .. } = self;
        let options = |len| ResizeOptions {
            journal: image.journal().cloned(),
            ..ResizeOptions::new(len, Arc::clone(&clock))
        };
        let device = match room {
            Room::Unchanged if plan.len == plan.old_len => return Ok(plan),
            Room::Unchanged | Room::SameFile => device,
            Room::LongerFile(longer) => {
                let old = file_behind(image).map_err(ResizeFailure::File)?.1.len();
                let device = longer_file(image, longer).map_err(ResizeFailure::File)?;
                let undo = || file_behind(image).and_then(|(file, _)| file.set_len(old));
                let failed =
                    |failure| ResizeFailure::Longer { failure, space: LongerSpace::File, len: longer };
                return grow(driver, device, &options(len), observer, || undo().is_ok(), failed);
            }
            Room::LongerEntry(mut editor, LongerEntry { number, old, new }) => {
                editor.write().map_err(ResizeFailure::Table)?;
                let slice = Slice::new(Arc::clone(image.device()), new.clone());
                let device = Arc::new(slice.map_err(ResizeError::from)?);
                let undo = || editor.set_range(number, old).and_then(|()| editor.write()).is_ok();
                let longer = new.end.saturating_sub(new.start);
                let space = LongerSpace::Partition;
                let failed = |failure| ResizeFailure::Longer { failure, space, len: longer };
                return grow(driver, device, &options(len), observer, undo, failed);
            }
            Room::ShorterFile => {
                let after = shrink(driver, &device, &options(len), is_minimum, observer)?;
                if after.len == after.old_len {
                    return Ok(after);
                }
                let file = file_behind(image).map_err(ResizeFailure::File)?.0;
                file.set_len(after.len).and_then(|()| file.sync_all()).map_err(ResizeFailure::File)?;
                return Ok(after);
            }
            Room::ShorterEntry(mut editor, number, start) => {
                let after = shrink(driver, &device, &options(len), is_minimum, observer)?;
                if after.len == after.old_len {
                    return Ok(after);
                }
                let unit = u64::from(editor.table().sector_size);
                let end = start.saturating_add(after.len.checked_next_multiple_of(unit).unwrap_or(after.len));
                editor.set_range(number, start..end).map_err(ResizeFailure::Table)?;
                editor.write().map_err(ResizeFailure::Table)?;
                return Ok(after);
            }
        };
        if plan.len < plan.old_len {
            return shrink(driver, &device, &options(len), is_minimum, observer);
        }
        Ok(driver.resize(device, &options(len), observer)?)
    }
}

impl PlannedResize<'_> {
    /// Fails with `Damaged` if a check finds a problem without a safe repair, since a change of the size
    /// moves the blocks that the structures describe.
    fn expect_sound(&self, clock: &Arc<dyn Clock>) -> Result<(), ResizeFailure> {
        let driver = self.image.registry().find(self.fs_type);
        let Some(check) = driver.and_then(|driver| driver.check()) else { return Ok(()) };
        let options =
            CheckOptions { journal: self.image.journal().cloned(), ..CheckOptions::new(Arc::clone(clock)) };
        let mut first = FirstDamage::default();
        check.check(Arc::clone(&self.device), &options, &mut first).map_err(ResizeError::from)?;
        first.0.map_or(Ok(()), |finding| Err(ResizeFailure::Damaged(finding.text)))
    }
}

/// Stores the first damage that a check finds.
#[derive(Default)]
struct FirstDamage(Option<Finding>);

impl CheckObserver for FirstDamage {
    fn found(&mut self, finding: Finding) {
        if finding.severity == Severity::Damage {
            self.0.get_or_insert(finding);
        }
    }
}

/// Shrinks a volume. For the minimum, this repeats until the volume does not become shorter, because the tables of
/// removed block groups become free.
fn shrink(
    driver: &dyn Resize,
    device: &Arc<dyn BlockDevice>,
    options: &ResizeOptions,
    is_minimum: bool,
    observer: ResizeObserver<'_>,
) -> Result<ResizePlan, ResizeFailure> {
    let mut plan = driver.resize(Arc::clone(device), options, observer)?;
    for _ in 0..if is_minimum { MAX_PASSES } else { 0 } {
        let next = driver.minimum(device)?;
        if next >= plan.len {
            break;
        }
        let options = ResizeOptions { len: next, ..options.clone() };
        plan.len = driver.resize(Arc::clone(device), &options, observer)?.len;
    }
    Ok(plan)
}

/// Grows a volume into `device`, its longer space. If the growth fails before anything was written, calls
/// `undo`, which restores the length of the space and returns whether this succeeded. If bytes were written
/// or `undo` fails, returns the error that `longer` creates.
fn grow(
    driver: &dyn Resize,
    device: Arc<dyn BlockDevice>,
    options: &ResizeOptions,
    observer: ResizeObserver<'_>,
    undo: impl FnOnce() -> bool,
    longer: impl FnOnce(Box<ResizeFailure>) -> ResizeFailure,
) -> Result<ResizePlan, ResizeFailure> {
    let watched = Arc::new(WatchedDevice::new(device));
    let shared: Arc<dyn BlockDevice> = Arc::<WatchedDevice>::clone(&watched);
    driver.resize(shared, options, observer).map_err(|error| {
        let failure = ResizeFailure::from(error);
        if !watched.is_changed() && undo() { failure } else { longer(Box::new(failure)) }
    })
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
