//! Writes deleted files below a directory of the host.
//!
//! Paths come from a hostile image. Each component is a name that was checked, and is opened relative to its directory
//! without following symbolic links. Nothing is therefore written outside of the directory.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use obento::{BlockDevice, DeletedFile, Name, NameBuf, Timestamp};
use rustix::fs::{Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::files::stream::CHUNK;
use crate::report::Report;

/// The most names that are tried for a file whose name exists.
const TRIES: u32 = 1000;

/// A directory for deleted files.
pub struct Extraction {
    directory: OwnedFd,
}

impl AsFd for Extraction {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Extraction {
    /// Opens or creates the directory.
    ///
    /// # Errors
    ///
    /// It cannot be created, or it is not empty, so that files would mix.
    pub fn new(path: &Path) -> Result<Self, Report> {
        let failed = |error: io::Error| Report::on("cannot extract to", path.as_os_str().as_bytes(), error);
        if let Err(error) = fs::create_dir(path)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(failed(error));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        if fs::read_dir(path).map_err(failed)?.next().is_some() {
            let report =
                Report::on("cannot extract to", path.as_os_str().as_bytes(), "the directory is not empty");
            return Err(report.help("name a new directory"));
        }
        Ok(Self { directory })
    }

    /// Writes a file. A file with the same path that was written before keeps it, and this one gets a number at its end.
    pub fn file(&mut self, device: &dyn BlockDevice, found: &DeletedFile) -> io::Result<()> {
        let mut names = names(&found.path);
        let name = names.pop().ok_or(io::ErrorKind::InvalidInput)?;
        let mut parent: Option<OwnedFd> = None;
        for name in names {
            let below = parent.as_ref().unwrap_or(&self.directory);
            parent = Some(enter(below.as_fd(), &name)?);
        }
        let mut file = create(parent.as_ref().unwrap_or(&self.directory).as_fd(), &name)?;
        write(device, found, &mut file)?;
        if let Some(time) = found.modified {
            let time = timespec(time);
            // The contents count, not the time.
            let _ = rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time });
        }
        Ok(())
    }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.secs(), tv_nsec: time.nanos().into() }
}

/// Returns the components of a path. Those that are not names become `_`.
fn names(path: &[u8]) -> Vec<NameBuf> {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    let name = |part| Name::new(part).or_else(|_| Name::new(b"_")).map(Name::to_buf).ok();
    parts.filter_map(name).collect()
}

/// Opens the directory `name`, which is created if it does not exist.
fn enter(parent: BorrowedFd<'_>, name: &Name) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for number in 0..TRIES {
        let name = numbered(name, number);
        match rustix::fs::mkdirat(parent, name.as_slice(), Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        match rustix::fs::openat(parent, name.as_slice(), flags, Mode::empty()) {
            // A file that was deleted, too, has this name.
            Err(Errno::NOTDIR | Errno::LOOP) => {}
            opened => return Ok(opened?),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn create(parent: BorrowedFd<'_>, name: &Name) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for number in 0..TRIES {
        let name = numbered(name, number);
        match rustix::fs::openat(parent, name.as_slice(), flags, Mode::from_raw_mode(0o666)) {
            Err(Errno::EXIST) => {}
            opened => return Ok(File::from(opened?)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns `name`, or for another try `name.1`.
fn numbered(name: &Name, number: u32) -> Vec<u8> {
    match number {
        0 => name.as_bytes().to_vec(),
        _ => [name.as_bytes(), format!(".{number}").as_bytes()].concat(),
    }
}

/// Writes the bytes of the extents, up to the size of the file. Bytes that are missing or cannot be read are zeros.
fn write(device: &dyn BlockDevice, found: &DeletedFile, file: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let (mut left, mut unread) = (found.size, None);
    for extent in &found.extents {
        let mut at = extent.start;
        while at < extent.end && left > 0 {
            let len = (extent.end - at).min(left).min(CHUNK as u64);
            let bytes = &mut buffer[..usize::try_from(len).unwrap_or(CHUNK)];
            if let Err(error) = device.read_at(at, bytes) {
                unread = Some(error.to_string());
                bytes.fill(0);
            }
            file.write_all(bytes)?;
            (at, left) = (at + len, left - len);
        }
    }
    file.set_len(found.size.min(i64::MAX as u64))?;
    match unread {
        Some(error) => Err(io::Error::other(format!("{error}; the copy has zeros there"))),
        None => Ok(()),
    }
}
