//! Four ways to the bytes of an image file or block device, all behind one contract.
//!
//! | | reads | writes | flush |
//! |---|---|---|---|
//! | buffered | `pread` | `pwrite` | `fdatasync` |
//! | direct | `pread` past the page cache, through aligned buffers | the same, what is not aligned read before | `fdatasync` |
//! | mmap | from a mapping | `pwrite` | `fdatasync` |
//! | uring | `io_uring`, large ones in pieces at once | the same | `fdatasync` |
//!
//! Invariant: no file is open both buffered and direct; who copies from file to file in the kernel does so only where the
//! page cache is used. What is measured of them is in `docs/benchmarks/io.md`.

mod behind;
mod direct;
mod fault;
mod mmap;
mod queue;
#[cfg(test)]
mod tests;
mod uring;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use obento_block::BlockDevice;
use rustix::fs::OFlags;
use rustix::io::Errno;

pub use self::behind::BehindDevice;
use self::direct::DirectDevice;
use self::mmap::MmapDevice;
pub use self::queue::Queue;
use self::uring::UringDevice;
use crate::lock::{LockNotice, Purpose};
use crate::{FileDevice, FileId, HostError};

/// How the bytes of an image are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoBackend {
    /// System calls through the page cache.
    #[default]
    Buffered,
    /// System calls past the page cache (`O_DIRECT`): what is read once does not push others out.
    Direct,
    /// Reading from a mapping of the file, writing as `Buffered`.
    Mmap,
    /// Many requests at once (`io_uring`).
    Uring,
}

impl IoBackend {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Buffered, Self::Direct, Self::Mmap, Self::Uring];
}

impl fmt::Display for IoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::Mmap => "mmap",
            Self::Uring => "uring",
        })
    }
}

/// An open image.
pub struct Opened {
    /// Its bytes.
    pub device: Arc<dyn BlockDevice>,
    /// Which file it is.
    pub id: FileId,
    /// What a person should know about its lock.
    pub notices: Vec<LockNotice>,
}

/// Opens the image at `path` and locks it for `lock`; without one it is read whoever else has it open. Errors as
/// [`FileDevice::open_locked`]; NoBackend.
pub fn open(path: &Path, lock: Option<Purpose>, backend: IoBackend) -> Result<Opened, HostError> {
    let flags = if backend == IoBackend::Direct { OFlags::DIRECT } else { OFlags::empty() };
    let refused = |errno| HostError::NoBackend { path: path.into(), backend, errno };
    let file = FileDevice::open_as(path, lock, flags).map_err(|error| match error.errno() {
        Some(errno @ (Errno::INVAL | Errno::OPNOTSUPP)) if backend == IoBackend::Direct => refused(errno),
        _ => error,
    })?;
    let (id, notices) = (file.file_id(), file.lock_notices().to_vec());
    let device: Arc<dyn BlockDevice> = match backend {
        IoBackend::Buffered => Arc::new(file),
        // Of nothing there is no mapping, and an image of nothing is refused in better words above.
        IoBackend::Mmap if file.is_empty() => Arc::new(file),
        IoBackend::Direct => Arc::new(DirectDevice::new(file)),
        IoBackend::Mmap => Arc::new(MmapDevice::new(file).map_err(refused)?),
        IoBackend::Uring => Arc::new(UringDevice::new(file).map_err(refused)?),
    };
    Ok(Opened { device, id, notices })
}
