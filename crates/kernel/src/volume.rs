//! Mounting: opening and closing volumes, usage, and synchronisation.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::AtomicU64;

use obento_base::{Error, Ino, Result};
use obento_block::{BlockDevice, Handoff};
use obento_driver::{Access, FileSystem, HandoverState, OpenOptions, StoredProperties, WritableFileSystem};
use obento_prov::Recorded;

use crate::abi::{Buffer, Bytes, MountOptions, Status, Usage, count};
use crate::device::KernelDevice;
use crate::report::{KernelClock, errno, print};
use crate::{Data, checksum, history};

unsafe extern "Rust" {
    /// The table of the module: [`types!`](crate::types).
    safe fn ob_types() -> &'static [crate::Type];
}

/// Maximum size of the metadata cache of a volume.
const CACHE: usize = 8 << 20;

/// A mounted volume.
pub struct Volume {
    pub(crate) fs: Arc<dyn FileSystem>,
    sb: *mut c_void,
    /// The offsets of mapped data refer to the block device itself.
    is_mapped: bool,
    /// Unit of mappings in bytes.
    pub(crate) block: u64,
    /// The layer of `fs` that records changes.
    pub(crate) recorded: Option<Arc<Recorded>>,
    /// The device below the driver.
    pub(crate) device: Arc<KernelDevice>,
    /// The device of a volume that another driver left, which stores writes until this driver has the volume.
    pub(crate) handoff: Option<Arc<Handoff>>,
    /// The name of the type.
    pub(crate) type_name: &'static CStr,
    /// The changes of the device when the driver left.
    pub(crate) changes_when_left: AtomicU64,
}

impl Volume {
    pub(crate) fn writable(&self) -> Result<&dyn WritableFileSystem> {
        self.fs.writable().ok_or(Error::ReadOnly)
    }

    /// Returns the status of a call, and stores its value in `out`.
    ///
    /// # Safety
    ///
    /// `out` is valid for writing.
    pub(crate) unsafe fn put<T, U: From<T>>(&self, out: *mut U, result: Result<T>) -> Status {
        match result {
            Ok(value) => {
                // SAFETY: the promise of the caller.
                unsafe { out.write(value.into()) };
                0
            }
            Err(error) => errno(self.sb, &error),
        }
    }

    /// Returns the status of a call.
    pub(crate) fn status(&self, result: Result<()>) -> Status {
        result.map_or_else(|error| errno(self.sb, &error), |()| 0)
    }

    /// Returns the count of a call, or a negative error number.
    pub(crate) fn count(&self, result: Result<usize>) -> i64 {
        result.map_or_else(|error| errno(self.sb, &error).into(), count)
    }

    /// Returns a number that identifies the volume.
    pub(crate) fn id(&self) -> u64 {
        let info = self.fs.info().probe;
        match (info.uuid, info.serial) {
            (Some([a, b, c, d, e, f, g, h, ..]), _) => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            (None, serial) => serial.unwrap_or_default().into(),
        }
    }

    fn usage(&self) -> Result<Usage> {
        let (limits, stat) = (self.fs.limits(), self.fs.statfs()?);
        let feature = |is_present: bool, bit: u64| if is_present { bit } else { 0 };
        Ok(Usage {
            block_size: stat.block_size.into(),
            blocks: stat.blocks,
            free: stat.free,
            available: stat.available,
            inodes: stat.inodes,
            free_inodes: stat.free_inodes,
            name_max: limits.name_max.into(),
            size_max: limits.file_size_max,
            granularity: limits.time_granularity.into(),
            link_max: limits.link_max.into(),
            id: self.id(),
            features: feature(self.fs.xattrs().is_some(), Usage::XATTRS)
                | feature(self.fs.nameless().is_some(), Usage::NAMELESS)
                | feature(limits.keeps.contains(StoredProperties::HOLES), Usage::HOLES)
                | feature(!self.is_mapped, Usage::THROUGH)
                | feature(self.fs.trim().is_some(), Usage::TRIM),
        })
    }
}

/// Returns the name of the file system type with this index, or null.
#[unsafe(no_mangle)]
pub extern "C" fn ob_type_name(index: usize) -> *const c_char {
    ob_types().get(index).map_or(core::ptr::null(), |kind| kind.name.as_ptr())
}

/// Returns the type that the options select.
pub(crate) fn kind(options: &MountOptions) -> Result<&'static crate::Type> {
    let index = usize::try_from(options.type_index).map_err(|_| Error::Invalid)?;
    ob_types().get(index).ok_or(Error::Invalid)
}

/// Opens the volume on `bdev`.
///
/// # Safety
///
/// `bdev` and `sb` live until `ob_free_volume`, and `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_open(
    bdev: *mut c_void,
    sb: *mut c_void,
    len: u64,
    options: &MountOptions,
    out: *mut *mut Volume,
) -> Status {
    let device = Arc::new(KernelDevice::new(bdev, len, options.is_read_only()));
    match open(device, None, sb, options, None) {
        Ok(volume) => {
            // SAFETY: the promise of the caller.
            unsafe { out.write(Box::into_raw(volume)) };
            0
        }
        Err(error) => {
            print(format_args!("cannot open the volume: {error}"));
            error.errno().0.saturating_neg()
        }
    }
}

/// Opens the volume on `device`; with a handoff, on this device above it, and with the state of the driver that left.
#[inline(never)]
pub(crate) fn open(
    kernel: Arc<KernelDevice>,
    handoff: Option<Arc<Handoff>>,
    sb: *mut c_void,
    options: &MountOptions,
    adopt: Option<Arc<HandoverState>>,
) -> Result<Box<Volume>> {
    checksum::provide();
    let kind = kind(options)?;
    let device: Arc<dyn BlockDevice> = match &handoff {
        Some(handoff) => Arc::clone(handoff) as Arc<dyn BlockDevice>,
        None => Arc::clone(&kernel) as Arc<dyn BlockDevice>,
    };
    let mut open = OpenOptions::new(Arc::new(KernelClock));
    let is_adopted = adopt.is_some();
    open.adopt = adopt;
    open.cache = CACHE;
    open.access = if options.is_read_only() { Access::ReadOnly } else { Access::ReadWrite };
    options.apply(&mut open);
    let fs = (kind.open)(Arc::clone(&device), &open)?;
    if !options.is_read_only() && fs.writable().is_none() {
        return Err(Error::ReadOnly);
    }
    let is_mapped = kind.data == Data::Mapped && fs.device().is_some_and(|shown| Arc::ptr_eq(shown, &device));
    let block = fs.statfs()?.block_size.into();
    report_notices(&*fs);
    let recorded = options
        .is_recorded()
        .then(|| history::record(Arc::clone(&fs), options.boot, options.shows_history(), is_adopted));
    let recorded = recorded.transpose()?;
    let fs = recorded.clone().map_or(fs, |recorded| recorded as Arc<dyn FileSystem>);
    let (type_name, changes_when_left) = (kind.name, AtomicU64::new(0));
    let device = kernel;
    Ok(Box::new(Volume { fs, sb, is_mapped, block, recorded, device, handoff, type_name, changes_when_left }))
}

#[inline(never)]
fn report_notices(fs: &dyn FileSystem) {
    let info = fs.info();
    for notice in &info.notices {
        print(format_args!("{} volume: {notice:?}", info.probe.fs_type));
    }
}

/// Writes all changes to their final place and marks the volume clean. The volume can still be read.
#[unsafe(no_mangle)]
pub extern "C" fn ob_close(volume: &Volume) -> Status {
    volume.status(volume.fs.writable().map_or(Ok(()), WritableFileSystem::close))
}

/// Frees a volume.
///
/// # Safety
///
/// `ob_open` returned the volume, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_free_volume(volume: *mut Volume) {
    // SAFETY: the promise of the caller.
    drop(unsafe { Box::from_raw(volume) });
}

/// Returns the inode number of the root directory.
#[unsafe(no_mangle)]
pub extern "C" fn ob_root(volume: &Volume) -> u64 {
    volume.fs.root().0
}

/// Reports limits and usage.
///
/// # Safety
///
/// `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_statfs(volume: &Volume, out: *mut Usage) -> Status {
    // SAFETY: the promise of the caller.
    unsafe { volume.put(out, volume.usage()) }
}

/// Copies the label of the volume.
///
/// # Safety
///
/// `out` is a buffer of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_label(volume: &Volume, out: Buffer) -> i64 {
    let mut label = volume.fs.info().probe.label;
    label.truncate(out.len());
    // SAFETY: the promise of the caller.
    volume.count(unsafe { out.take(&label) })
}

/// Changes the label of the volume. Fails with ENOTTY if the driver cannot change it.
///
/// # Safety
///
/// `label` are bytes of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_set_label(volume: &Volume, label: Bytes) -> Status {
    /// `ENOTTY`: the error of an ioctl(2) that a file system does not have.
    const NO_SUCH_CALL: Status = -25;
    let Some(relabel) = volume.fs.relabel() else { return NO_SUCH_CALL };
    // SAFETY: the promise of the caller.
    volume.status(relabel.set_label(unsafe { label.get() }))
}

/// Makes a file durable.
#[unsafe(no_mangle)]
pub extern "C" fn ob_sync_file(volume: &Volume, ino: u64) -> Status {
    volume.status(volume.writable().and_then(|fs| fs.sync_file(Ino(ino))))
}

/// Makes all changes durable.
#[unsafe(no_mangle)]
pub extern "C" fn ob_sync(volume: &Volume) -> Status {
    volume.status(volume.fs.writable().map_or(Ok(()), WritableFileSystem::sync))
}

/// Discards the free space between two bytes of the device, and returns the number of bytes.
#[unsafe(no_mangle)]
pub extern "C" fn ob_trim(volume: &Volume, start: u64, end: u64, min_len: u64) -> i64 {
    let trim = volume.fs.trim().ok_or(Error::NotSupported);
    match trim.and_then(|trim| trim.trim_within(start..end, min_len)) {
        Ok(len) => i64::try_from(len).unwrap_or(i64::MAX),
        Err(error) => errno(volume.sb, &error).into(),
    }
}
