//! Five back ends for the bytes of an image file or block device, with one contract.
//!
//! | | reads | writes | flush |
//! |---|---|---|---|
//! | buffered | `pread` | `pwrite` | `fdatasync` |
//! | direct | `pread` without the page cache, through aligned buffers | the same; unaligned parts are read first | `fdatasync` |
//! | mmap | from a mapping | `pwrite` | `fdatasync` |
//! | auto | `pread` for the first read of a page, a mapping for later ones | `pwrite` | `fdatasync` |
//! | uring | `io_uring`, large transfers in parallel pieces | the same | `fdatasync` |
//!
//! Invariant: no file is open both buffered and direct. The kernel copies from file to file only if the page
//! cache is used. `docs/benchmarks/io.md` has measurements.

mod backend;
mod behind;
mod direct;
mod fault;
mod mmap;
mod queue;
mod seen;
mod shared;
#[cfg(test)]
mod tests;
mod uring;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use obento_block::BlockDevice;
use rustix::fs::OFlags;
use rustix::io::Errno;

pub use self::backend::IoBackend;
pub use self::behind::BehindDevice;
use self::direct::DirectDevice;
use self::mmap::MmapDevice;
pub use self::queue::Queue;
pub use self::shared::SharedMemory;
use self::uring::UringDevice;
use crate::build::AccessLimit;
use crate::lock::{LockNotice, Purpose};
use crate::{FileDevice, FileId, HostError};

/// An open image.
pub struct OpenedImage {
    /// The bytes.
    pub device: Arc<dyn BlockDevice>,
    /// The identity of the file.
    pub id: FileId,
    /// The limit that the file sets to the permissions of a copy of its bytes.
    pub limit: AccessLimit,
    /// The notices for the user about the lock.
    pub notices: Vec<LockNotice>,
}

/// Opens the image at `path` and locks it for `lock`. Without a lock, the image is opened for reading.
/// Fails as [`FileDevice::open_locked`] does, and with `NoBackend`.
pub fn open(path: &Path, lock: Option<Purpose>, backend: IoBackend) -> Result<OpenedImage, HostError> {
    let flags = if backend == IoBackend::Direct { OFlags::DIRECT } else { OFlags::empty() };
    let refused = |errno| HostError::NoBackend { path: path.into(), backend, errno };
    let file = FileDevice::open_as(path, lock, flags).map_err(|error| match error.errno() {
        Some(errno @ (Errno::INVAL | Errno::OPNOTSUPP)) if backend == IoBackend::Direct => refused(errno),
        _ => error,
    })?;
    behind_backend(file, path, backend)
}

/// Opens an image from an open file that another process passed on, with the lock that belongs to it. Fails with
/// `NotAnImage`, `System` or `NoBackend`.
pub fn adopt(file: OwnedFd, path: &Path, backend: IoBackend) -> Result<OpenedImage, HostError> {
    behind_backend(FileDevice::from_file(file.into(), path)?, path, backend)
}

fn behind_backend(file: FileDevice, path: &Path, backend: IoBackend) -> Result<OpenedImage, HostError> {
    let refused = |errno| HostError::NoBackend { path: path.into(), backend, errno };
    let (id, notices) = (file.file_id(), file.lock_notices().to_vec());
    let limit = AccessLimit::of_file(&**file.host_file());
    let device: Arc<dyn BlockDevice> = match backend {
        IoBackend::Buffered => Arc::new(file),
        // An empty file cannot be mapped, and a higher layer rejects an empty image with a better message.
        IoBackend::Mmap if file.is_empty() => Arc::new(file),
        IoBackend::Auto if file.is_empty() || file.is_block_device() => Arc::new(file),
        IoBackend::Auto => match MmapDevice::after_first_read(file) {
            Ok(mapped) => Arc::new(mapped),
            Err(file) => Arc::new(file),
        },
        IoBackend::Direct => Arc::new(DirectDevice::new(file)),
        IoBackend::Mmap => Arc::new(MmapDevice::new(file).map_err(refused)?),
        IoBackend::Uring => Arc::new(UringDevice::new(file).map_err(refused)?),
    };
    Ok(OpenedImage { device, id, limit, notices })
}
