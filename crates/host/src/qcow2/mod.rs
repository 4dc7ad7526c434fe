//! qcow2 images, read-only. The crate `imago` decodes them, except for zstd compression, which is in `zstd`.
//!
//! Invariant: a file that an image names is opened only if the caller allows it. It is opened for reading, and only as
//! an image file or block device.
//! Invariant: an image that `imago` would reject late, or allocate too much memory for, is rejected before
//! `imago` reads it.
//! Invariant: a panic of `imago` is an error: each decoding call is wrapped in `guard`.
//! Locking: the cache of decompressed clusters has a leaf lock, which is not held during decompression.
//! Source: qemu `docs/interop/qcow2.txt`.

pub mod change;
mod header;
mod storage;
mod zstd;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{FormatAccess, Mapping};
use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Error, Result};
use obento_block::{Backing, BlockDevice, check_range};
use parking_lot::Mutex;

use crate::build::AccessLimit;
use crate::guard::guard;
use crate::{FileDevice, FileId, HostError};
pub use header::is_qcow2;
use header::{ClusterCompression, Qcow2Header};
use storage::DeviceStorage;
use zstd::Tables;

/// The most images in a chain of backing files.
const MAX_CHAIN: usize = 32;
/// Bytes of decompressed clusters to keep.
const CACHE: u64 = 4 << 20;
/// The smallest cluster of the format.
const SMALLEST: u64 = 512;

type Image = Qcow2<DeviceStorage>;
type Layer = FormatAccess<DeviceStorage>;

/// Whether files that an image names (backing files, external data files) may be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum References {
    /// Never: an image that needs another file is rejected.
    #[default]
    Refuse,
    /// Yes: the caller trusts the image.
    Open,
}

/// A file that an image refers to: a backing file or a data file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReferencedFile {
    /// The file.
    pub id: FileId,
    /// The limit that the permissions of the file set to those of a copy.
    pub limit: AccessLimit,
}

impl ReferencedFile {
    fn of(device: &FileDevice) -> Self {
        Self { id: device.file_id(), limit: AccessLimit::of_file(&**device.host_file()) }
    }
}

/// An open qcow2 image.
pub struct Qcow2Device {
    image: Layer,
    len: u64,
    /// The largest cluster of the image and its backing files.
    cluster: u64,
    decompressed: Mutex<Recent>,
    /// The image and its backing files from the top down, if any of them uses zstd compression.
    tables: Vec<Tables>,
    referenced: Vec<ReferencedFile>,
}

impl Qcow2Device {
    /// Opens the image on `device`. References are resolved relative to the folder of `path`.
    ///
    /// # Errors
    ///
    /// The first that applies:
    /// - Damaged.
    /// - Unsupported for encryption and subclusters.
    /// - Reference for a file that may not be opened.
    /// - Errors of opening that file.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        path: &Path,
        references: References,
    ) -> Result<Self, HostError> {
        let mut chain = vec![Opened::new(device, path, references)?];
        let mut cluster = chain.first().map_or(0, |opened| opened.cluster);
        let mut seen: Vec<FileId> = Vec::new();
        let mut referenced: Vec<ReferencedFile> = chain.iter().filter_map(|opened| opened.data).collect();
        let bottom = loop {
            let Some(top) = chain.last() else { break None };
            let Some(backing) = top.backing(references)? else { break None };
            let device = open_other("open the backing file", &backing)?;
            if seen.contains(&device.file_id()) || chain.len() >= MAX_CHAIN {
                return Err(damaged(&backing, "the chain of backing files is too long or forms a cycle"));
            }
            seen.push(device.file_id());
            referenced.push(ReferencedFile::of(&device));
            if !top.backing_is_qcow2(&device)? {
                let raw = guard(|| Raw::open_image(DeviceStorage::new(Arc::new(device), 0), false));
                let raw = raw.map_err(|error| HostError::io("open", &backing, &error))?;
                break Some(FormatAccess::new(raw));
            }
            let opened = Opened::new(Arc::new(device), &backing, references)?;
            cluster = cluster.max(opened.cluster);
            referenced.extend(opened.data);
            chain.push(opened);
        };
        let mut tables: Vec<Tables> = chain.iter_mut().filter_map(|opened| opened.tables.take()).collect();
        if tables.iter().all(|tables| tables.compression() == ClusterCompression::Deflate) {
            tables.clear();
        }
        let image = chain.into_iter().rev().fold(bottom, |below, mut opened| {
            opened.image.set_backing(below);
            Some(FormatAccess::new(opened.image))
        });
        let image = image.ok_or_else(|| damaged(path, "no image"))?;
        let len = image.size();
        let room = to_usize(CACHE.checked_div(cluster).unwrap_or(1)).max(2);
        let decompressed = Mutex::new(Recent { room, chunks: Vec::new() });
        Ok(Self { image, len, cluster, decompressed, tables, referenced })
    }

    /// Returns the backing and data files that were opened.
    pub fn referenced(&self) -> &[ReferencedFile] {
        &self.referenced
    }

    /// Reads the part of `buf` that has one mapping, and returns its length.
    fn read_run(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let (mapping, len) = guard(|| self.image.get_mapping(offset, to_u64(buf.len())))?;
        let len = to_usize(len).min(buf.len());
        let part = buf.get_mut(..len).unwrap_or_default();
        match mapping {
            Mapping::Raw { storage, offset, .. } => storage.read(offset, part)?,
            Mapping::Special { .. } => return self.read_compressed(offset, part),
            _ => part.fill(0),
        }
        Ok(len)
    }

    /// Reads from the cluster around `offset`, which is cached: otherwise each small read would decompress
    /// the whole cluster.
    fn read_compressed(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.tables.is_empty() && offset.is_multiple_of(self.cluster) && to_u64(buf.len()) == self.cluster
        {
            // A reader of whole clusters does not need them again.
            guard(|| self.image.read(&mut *buf, offset))?;
            return Ok(buf.len());
        }
        let known = self.decompressed.lock().find(offset);
        let (start, chunk) = match known {
            Some(known) => known,
            None => {
                let (start, chunk) = self.decompress(offset)?;
                let chunk: Arc<[u8]> = chunk.into();
                self.decompressed.lock().keep(start, chunk.clone());
                (start, chunk)
            }
        };
        let there = chunk.get(to_usize(offset - start)..).unwrap_or_default();
        let len = there.len().min(buf.len());
        buf.iter_mut().zip(there).for_each(|(to, &from)| *to = from);
        Ok(len)
    }

    /// Returns the bytes around `offset` and their start: a cluster, or in a chain with several cluster
    /// sizes, a range of the largest size.
    fn decompress(&self, offset: u64) -> std::io::Result<(u64, Vec<u8>)> {
        if let Some(cluster) = zstd::read(&self.tables, offset)? {
            return Ok(cluster);
        }
        // Excludes neighbours with another compression.
        let unit = if self.tables.is_empty() { self.cluster } else { SMALLEST };
        let start = offset - offset % unit;
        let len = to_usize(unit.min(self.len - start));
        let mut chunk = Vec::new();
        chunk.try_reserve_exact(len).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        chunk.resize(len, 0);
        guard(|| self.image.read(chunk.as_mut_slice(), start))?;
        Ok((start, chunk))
    }
}

impl BlockDevice for Qcow2Device {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self.len, offset, to_u64(buf.len()))?;
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + to_u64(done);
            let len = to_u64(rest.len());
            let failed =
                |errno: Option<i32>| DeviceError::Read { offset: at, len, errno: errno.unwrap_or(0) };
            match self.read_run(at, rest) {
                Ok(0) => return Err(failed(None).into()),
                Ok(len) => done += len,
                Err(error) => {
                    let known = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
                    return Err(known.copied().unwrap_or_else(|| failed(error.raw_os_error()).into()));
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<()> {
        Err(DeviceError::ReadOnly.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn known_zeros(&self, range: Range<u64>) -> u64 {
        let (mut at, end) = (range.start, range.end.min(self.len));
        while at < end {
            match guard(|| self.image.get_mapping(at, end - at)) {
                Ok((Mapping::Zero { .. }, len)) if len > 0 => at += len,
                _ => break,
            }
        }
        at.min(end).saturating_sub(range.start)
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        let end = range.end.min(self.len);
        let len = end.checked_sub(range.start).filter(|&len| len > 0)?;
        match guard(|| self.image.get_mapping(range.start, len)).ok()? {
            (Mapping::Raw { storage, offset, .. }, len) => {
                storage.backing(offset, len.min(end - range.start))
            }
            _ => None,
        }
    }
}

/// The most recently decompressed clusters, the latest at the end.
struct Recent {
    room: usize,
    chunks: Vec<(u64, Arc<[u8]>)>,
}

impl Recent {
    /// Returns the bytes that contain `offset`, and their start.
    fn find(&mut self, offset: u64) -> Option<(u64, Arc<[u8]>)> {
        let has = |(start, chunk): &(u64, Arc<[u8]>)| {
            offset.checked_sub(*start).is_some_and(|below| below < to_u64(chunk.len()))
        };
        let at = self.chunks.iter().rposition(has)?;
        let found = self.chunks.remove(at);
        self.chunks.push(found.clone());
        Some(found)
    }

    fn keep(&mut self, start: u64, chunk: Arc<[u8]>) {
        if self.chunks.len() >= self.room {
            self.chunks.remove(0);
        }
        self.chunks.push((start, chunk));
    }
}

/// One image of a chain, without the images that it refers to.
struct Opened {
    image: Image,
    path: PathBuf,
    cluster: u64,
    /// The data file, if it is a separate file.
    data: Option<ReferencedFile>,
    tables: Option<Tables>,
}

impl Opened {
    fn new(device: Arc<dyn BlockDevice>, path: &Path, references: References) -> Result<Self, HostError> {
        let header = Qcow2Header::read(&*device, path)?;
        let tables = Some(Tables::new(device.clone(), &header));
        let storage = DeviceStorage::new(device, header.cluster_size);
        let image = guard(|| Image::open_image(storage, false));
        let mut image = image.map_err(|error| damaged(path, error))?;
        let mut data_file = None;
        let data = if image.requires_external_data_file() {
            let name = image.implicit_external_data_file();
            let name = name.ok_or_else(|| damaged(path, "the data file has no name"))?;
            let file = resolve(path, name);
            allow(references, path, "data file", &file)?;
            let device = Arc::new(open_other("open the data file", &file)?);
            data_file = Some(ReferencedFile::of(&device));
            Some(DeviceStorage::new(device, header.cluster_size))
        } else {
            None
        };
        image.set_data_file(data);
        Ok(Self { image, path: path.into(), cluster: header.cluster_size, data: data_file, tables })
    }

    /// Returns the path of the backing file, if the image has one.
    fn backing(&self, references: References) -> Result<Option<PathBuf>, HostError> {
        let Some(name) = self.image.implicit_backing_file().filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let file = resolve(&self.path, name);
        allow(references, &self.path, "backing file", &file)?;
        Ok(Some(file))
    }

    fn backing_is_qcow2(&self, device: &dyn BlockDevice) -> Result<bool, HostError> {
        match self.image.implicit_backing_format().map(String::as_str) {
            Some("qcow2") => Ok(true),
            Some("raw" | "file" | "host_device") => Ok(false),
            Some(other) => Err(HostError::Unsupported {
                path: self.path.clone(),
                format: "qcow2",
                feature: format!("a backing file of format {}", other.escape_debug()),
            }),
            // Older images do not store the format. Either choice only reads the file that the caller
            // allowed.
            None => {
                let mut start = [0; 8];
                Ok(device.read_at(0, &mut start).is_ok() && is_qcow2(&start))
            }
        }
    }
}

fn allow(references: References, path: &Path, role: &'static str, file: &Path) -> Result<(), HostError> {
    match references {
        References::Open => Ok(()),
        References::Refuse => Err(HostError::Reference { path: path.into(), role, file: file.into() }),
    }
}

/// Opens a file that an image refers to. An error shows the role of the file, which `operation` names.
fn open_other(operation: &'static str, file: &Path) -> Result<FileDevice, HostError> {
    FileDevice::open(file).map_err(|error| match error.errno() {
        Some(errno) => HostError::system(operation, file, errno),
        None => error,
    })
}

/// Resolves a file name in an image, relative to the folder of the image. qemu may write `file:` before the
/// name.
fn resolve(image: &Path, name: &str) -> PathBuf {
    let name = name.strip_prefix("file:").unwrap_or(name);
    image.parent().unwrap_or(Path::new("")).join(name)
}

fn damaged(path: &Path, reason: impl ToString) -> HostError {
    HostError::Damaged {
        path: path.into(),
        format: "qcow2",
        reason: crate::compressed::in_lower_case(&reason.to_string()),
    }
}

#[cfg(test)]
mod tests;
