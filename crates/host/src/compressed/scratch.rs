//! An unnamed temporary file that receives a stream and stores zeros as holes.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use obento_base::Name;
use obento_base::wire::{to_u64, to_usize};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::owner::{is_in_foreign_mount, is_trusted};
use crate::{FileDevice, FileId, HostDir, HostError, interrupt};

/// Bytes received at once, usually.
pub(super) const CHUNK: usize = 256 << 10;
/// The unit of holes: a page, the usual block of a file system.
const GRAIN: usize = 4096;
static ZEROS: [u8; GRAIN] = [0; GRAIN];

/// An empty file for an image that is decompressed after the right to create files was dropped: an unnamed temporary file,
/// or the [file](crate::build::FreshFile::to_room) that becomes the new image.
#[derive(Debug)]
pub struct ReservedFile {
    file: File,
    folder: PathBuf,
}

impl ReservedFile {
    /// Uses `file`, which is empty, in `folder`.
    pub(crate) fn in_folder(file: File, folder: &Path) -> Self {
        Self { file, folder: folder.into() }
    }

    /// Creates the file in the directory for temporary files. Another user must not control the file system of the
    /// directory. Fails with `ForeignLink`, `Untrusted` or `System`.
    pub fn new() -> Result<Self, HostError> {
        Self::within(&temporary_folder())
    }

    /// Creates the file in `folder`. Fails as [`new`](Self::new) does.
    pub fn within(folder: &Path) -> Result<Self, HostError> {
        let untrusted = || HostError::Untrusted { path: folder.into(), directory: folder.into() };
        let dir = HostDir::open(folder)?;
        if is_in_foreign_mount(&dir) {
            return Err(untrusted());
        }
        let file = unnamed(&dir)?;
        let failed = |errno| HostError::system("create a temporary file in", folder, errno);
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        // Another user may have exchanged the directory for one in a mount.
        if is_trusted(&file, &stat) { Ok(Self { file, folder: folder.into() }) } else { Err(untrusted()) }
    }

    /// Returns the file, which is open for reading and writing.
    pub fn into_file(self) -> File {
        self.file
    }
}

/// The growing file.
pub(super) struct Scratch {
    file: File,
    folder: PathBuf,
    position: u64,
    /// Bytes that are not holes.
    written: u64,
}

impl Scratch {
    /// Starts with an empty file: `room`, or a new one.
    pub fn new(room: Option<ReservedFile>) -> Result<Self, HostError> {
        let ReservedFile { file, folder } = room.map_or_else(ReservedFile::new, Ok)?;
        Ok(Self { file, folder, position: 0, written: 0 })
    }

    /// Returns the number of bytes received so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns how many of the bytes are stored and not holes.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Appends the next chunk.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        self.write(bytes).map_err(|error| HostError::io("write a temporary file in", &self.folder, &error))
    }

    /// Writes `bytes` without their grains of zeros.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut data = 0..0;
        let mut flush = |range: std::ops::Range<usize>| {
            let part = bytes.get(range.clone()).unwrap_or_default();
            self.written += to_u64(part.len());
            self.file.write_all_at(part, self.position + to_u64(range.start))
        };
        // Holes begin and end at multiples of the grain in the file.
        let head = to_usize(self.position.next_multiple_of(to_u64(GRAIN)) - self.position).min(bytes.len());
        let (head, rest) = bytes.split_at(head);
        let mut start = 0;
        for grain in [head].into_iter().filter(|head| !head.is_empty()).chain(rest.chunks(GRAIN)) {
            if ZEROS.get(..grain.len()) == Some(grain) {
                flush(std::mem::replace(&mut data, start + grain.len()..start + grain.len()))?;
            } else {
                data.end = start + grain.len();
            }
            start += grain.len();
        }
        flush(data)?;
        self.position += to_u64(bytes.len());
        Ok(())
    }

    /// Returns the file as a device for reading.
    pub fn into_device(self, path: &Path) -> Result<FileDevice, HostError> {
        self.file
            .set_len(self.position)
            .map_err(|error| HostError::io("write a temporary file in", &self.folder, &error))?;
        Ok(FileDevice::from_file(self.file, path)?.into_read_only())
    }
}

/// Fills `buffer` from `input` up to the end or the first error. Returns the error with the number of bytes
/// before it.
pub(super) fn fill(input: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> (usize, Option<std::io::Error>) {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return (filled, Some(error)),
            Err(_) if interrupt::is_requested() => return (filled, Some(interrupt::stopped())),
            Err(_) => {}
        }
    }
    (filled, None)
}

/// Returns `$TMPDIR`, or `/var/tmp` if it is not set. `/tmp` is often in memory (file-hierarchy(7)).
fn temporary_folder() -> PathBuf {
    match std::env::var_os("TMPDIR") {
        Some(folder) if !folder.is_empty() => folder.into(),
        _ if Path::new("/var/tmp").is_dir() => "/var/tmp".into(),
        _ => "/tmp".into(),
    }
}

/// Creates a file in `folder` that has no name and is removed when it is closed.
pub(crate) fn unnamed(folder: &HostDir) -> Result<File, HostError> {
    let failed = |errno| HostError::system("create a temporary file in", folder.path(), errno);
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(folder, ".", OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE, mode) {
        // Not all file systems support unnamed files. A kernel without the flag treats this as opening a
        // directory for writing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => named(folder),
        result => result.map(File::from).map_err(failed),
    }
}

/// Creates a file in `folder`, and removes its name.
fn named(folder: &HostDir) -> Result<File, HostError> {
    for attempt in 0..100_u32 {
        let name = format!(".obento-{}-{attempt}", std::process::id());
        let name =
            Name::new(name.as_bytes()).map_err(|_| HostError::system("create", &name, Errno::INVAL))?;
        match folder.create_private(name) {
            Ok(file) => {
                let id = FileId::of_file(&file, folder.path())?;
                return folder.remove_created(name, id).map(|()| file);
            }
            Err(error) if error.errno() == Some(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(HostError::system("create a temporary file in", folder.path(), Errno::EXIST))
}
