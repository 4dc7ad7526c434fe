//! qcow2 images that are open for change.
//!
//! `obento-containers` changes them ([decision 65]). This module adds a file that grows, decompression and backing
//! files.
//!
//! [decision 65]: ../../../../docs/decisions/0065-our-own-code-changes-qcow2.md

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::{Decompress, FlushDecompress};
use obento_base::wire::to_u64;
use obento_base::{DeviceError, Result};
use obento_block::{BlockDevice, check_range};
pub use obento_containers::qcow2::Snapshot;
use obento_containers::qcow2::{BackingFile, Compression as Method, GrowingFile, Qcow2, View};
use ruzstd::decoding::StreamingDecoder;

use super::{Qcow2Device, ReferencedFile, References, allow, is_qcow2, resolve};
use crate::container::open_error;
use crate::guard::guard;
use crate::{FileDevice, HostError, HostFile};

/// A qcow2 image that is open for change or at a snapshot, and the backing files that were opened.
pub struct ChangeableQcow2 {
    /// The disk.
    pub device: Arc<dyn BlockDevice>,
    /// The backing files.
    pub referenced: Vec<ReferencedFile>,
}

/// Opens the image on `device`, a file of the host, for change. References are resolved relative to the folder of
/// `path`.
///
/// # Errors
///
/// As [`Qcow2Device::open`]. Also WrongCounts if the reference counts have to be repaired first, and Unsupported if
/// `device` is not a file.
pub fn open_for_change(
    device: &Arc<dyn BlockDevice>,
    path: &Path,
    references: References,
) -> std::result::Result<ChangeableQcow2, HostError> {
    let file = FileThatGrows::of(device, device.is_read_only()).ok_or_else(|| HostError::Unsupported {
        path: path.into(),
        format: "qcow2",
        feature: "changes through this back end".to_owned(),
    })?;
    open_view(Arc::new(file), path, references, &View::Active)
}

/// Opens the contents that the image on `device` had at a snapshot, for reading. `name` is the identifier of the
/// snapshot or its name; an identifier takes precedence, as in qemu-img. Returns `None` if no snapshot matches.
///
/// # Errors
///
/// As [`open_for_change`].
pub fn open_snapshot(
    device: &Arc<dyn BlockDevice>,
    path: &Path,
    references: References,
    name: &str,
) -> std::result::Result<Option<ChangeableQcow2>, HostError> {
    let all = snapshots(&**device, path)?;
    let Some(found) = obento_containers::qcow2::find(&all, name) else { return Ok(None) };
    let view = View::Snapshot(found.clone());
    open_view(Arc::new(ReadOnlyFile(device.clone())), path, references, &view).map(Some)
}

/// Returns the snapshots in the image on `device`.
///
/// # Errors
///
/// Damaged; Unsupported.
pub fn snapshots(device: &dyn BlockDevice, path: &Path) -> std::result::Result<Vec<Snapshot>, HostError> {
    Qcow2::snapshots(device).map_err(|failure| open_error(failure, path))
}

fn open_view(
    file: Arc<dyn GrowingFile>,
    path: &Path,
    references: References,
    view: &View,
) -> std::result::Result<ChangeableQcow2, HostError> {
    let failed = |failure| open_error(failure, path);
    let mut referenced = Vec::new();
    let backing = match Qcow2::backing_name(&*file).map_err(failed)? {
        None => None,
        Some(BackingFile { name, format }) => {
            let backing = resolve(path, &String::from_utf8_lossy(&name));
            allow(references, path, "backing file", &backing)?;
            Some(open_backing(&backing, format.as_deref(), references, &mut referenced)?)
        }
    };
    let image = Qcow2::open(file, backing, view, unpack).map_err(failed)?;
    Ok(ChangeableQcow2 { device: Arc::new(image), referenced })
}

fn open_backing(
    path: &Path,
    format: Option<&[u8]>,
    references: References,
    referenced: &mut Vec<ReferencedFile>,
) -> std::result::Result<Arc<dyn BlockDevice>, HostError> {
    let file = FileDevice::open(path)?;
    referenced.push(ReferencedFile::of(&file));
    let is_image = match format {
        Some(b"qcow2") => true,
        Some(b"raw" | b"file" | b"host_device") => false,
        Some(other) => {
            return Err(HostError::Unsupported {
                path: path.to_owned(),
                format: "qcow2",
                feature: format!("a backing file of format {}", other.escape_ascii()),
            });
        }
        // Older images do not store the format.
        None => {
            let mut start = [0; 8];
            file.read_at(0, &mut start).is_ok() && is_qcow2(&start)
        }
    };
    if !is_image {
        return Ok(Arc::new(file));
    }
    let image = Qcow2Device::open(Arc::new(file), path, references)?;
    referenced.extend(image.referenced());
    Ok(Arc::new(image))
}

/// Decompresses a cluster. Sectors after the compressed data may follow it.
fn unpack(method: Method, stream: &[u8], cluster: &mut [u8]) -> Option<()> {
    match method {
        Method::Deflate => {
            let mut decoder = Decompress::new(false);
            decoder.decompress(stream, cluster, FlushDecompress::None).ok()?;
            (decoder.total_out() == to_u64(cluster.len())).then_some(())
        }
        Method::Zstd => guard(|| {
            let decoder = StreamingDecoder::new_with_max_window_size(stream, super::zstd::WINDOW_MAX);
            decoder.map_err(std::io::Error::other)?.read_exact(cluster)
        })
        .ok(),
    }
}

/// A file that is only read.
struct ReadOnlyFile(Arc<dyn BlockDevice>);

impl BlockDevice for ReadOnlyFile {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<()> {
        Err(DeviceError::ReadOnly.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

impl GrowingFile for ReadOnlyFile {
    fn grow(&self, _len: u64) -> Result<()> {
        Err(DeviceError::ReadOnly.into())
    }
}

/// A file of the host with a length that grows.
struct FileThatGrows {
    file: Arc<HostFile>,
    len: AtomicU64,
    is_read_only: bool,
}

impl FileThatGrows {
    /// Returns the file behind `device`, or `None` if it is not a whole file.
    fn of(device: &Arc<dyn BlockDevice>, is_read_only: bool) -> Option<Self> {
        let backing = device.backing(0..device.len()).filter(|backing| backing.offset == 0)?;
        let file = backing.object.downcast::<HostFile>().ok()?;
        Some(Self { file, len: AtomicU64::new(device.len()), is_read_only })
    }

    fn file(&self) -> &File {
        self.file.as_file()
    }

    fn write_failed(offset: u64, len: u64, error: &std::io::Error) -> obento_base::Error {
        DeviceError::Write { offset, len, errno: error.raw_os_error().unwrap_or(0) }.into()
    }
}

impl BlockDevice for FileThatGrows {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = to_u64(buf.len());
        check_range(self.len(), offset, len)?;
        self.file().read_exact_at(buf, offset).map_err(|error| {
            DeviceError::Read { offset, len, errno: error.raw_os_error().unwrap_or(0) }.into()
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        if self.is_read_only {
            return Err(DeviceError::ReadOnly.into());
        }
        check_range(self.len(), offset, to_u64(buf.len()))?;
        self.file()
            .write_all_at(buf, offset)
            .map_err(|error| Self::write_failed(offset, to_u64(buf.len()), &error))
    }

    fn flush(&self) -> Result<()> {
        let failed = |error: std::io::Error| DeviceError::Flush { errno: error.raw_os_error().unwrap_or(0) };
        Ok(self.file().sync_data().map_err(failed)?)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_range(self.len(), range.start, range.end.saturating_sub(range.start))
    }
}

impl GrowingFile for FileThatGrows {
    fn grow(&self, len: u64) -> Result<()> {
        self.file().set_len(len).map_err(|error| Self::write_failed(self.len(), len, &error))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }
}
