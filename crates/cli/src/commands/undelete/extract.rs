//! Writes deleted files below a directory of the host.
//!
//! Paths come from a hostile image. Each component is a name that was checked, and is opened relative to its directory
//! without following symbolic links. Nothing is therefore written outside of the directory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use obento::base::{Name, NameBuf, Timestamp};
use obento::block::BlockDevice;
use obento::driver::DeletedFile;
use obento::host::{HostDir, interrupt};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::cause::Cause;
use crate::files::stream::CHUNK;
use crate::report::Report;

/// The mode of new files and directories: deleted files may have been private, and FAT has no modes.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIRECTORY_MODE: Mode = Mode::RWXU;

/// The reason why a file was not extracted.
#[derive(Debug)]
pub enum Unextracted {
    /// The file would exceed the limit of bytes.
    Limit,
    /// A signal ended the command. The file was removed.
    Stopped,
    /// Reading or writing failed.
    Failed(io::Error),
}

impl From<io::Error> for Unextracted {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A directory for deleted files.
pub struct Extraction {
    directory: HostDir,
    /// The bytes that may still be written. Files may share blocks, so that their sum has no other limit.
    left: u64,
    /// The number to try first for a path that was taken. A name is tried once for each path, and belongs to one path with
    /// a number, so that all files together need no more tries than there are files.
    numbers: HashMap<(Kind, Vec<u8>), u32>,
}

/// The kind of an entry of the directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    File,
    Directory,
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
        let failed =
            |error: &dyn Cause| Report::on("cannot copy files to", path.as_os_str().as_bytes(), error);
        // A link of another user in the path could lead anywhere.
        let made = HostDir::open_parent(path).and_then(|(parent, name)| match parent.make_directory(&name) {
            Err(error) if error.errno() == Some(Errno::EXIST) => parent.enter(&name),
            made => made,
        });
        let made = match made {
            // The path has no last component: `.` or `/`.
            Err(error) if error.errno() == Some(Errno::INVAL) => HostDir::open(path),
            made => made,
        };
        let directory =
            made.map_err(|error| match path.as_os_str().as_bytes().windows(2).any(|two| two == b":/") {
                true => failed(&error)
                    .help("name a directory of the host; 'obento cp' then copies the files into an image"),
                false => failed(&error),
            })?;
        if !directory.names().map_err(|error| failed(&error))?.is_empty() {
            let report =
                Report::on("cannot copy files to", path.as_os_str().as_bytes(), "the directory is not empty");
            return Err(report.help("name a new or an empty directory"));
        }
        Ok(Self { directory, left: 0, numbers: HashMap::new() })
    }

    /// Sets the number of bytes that all files together may have.
    pub fn limit(&mut self, bytes: u64) {
        self.left = bytes;
    }

    /// Writes a file, unless its data exceeds the limit. If an earlier file has the same path, a number is
    /// appended to the name. A file that cannot be written completely is removed.
    pub fn file(&mut self, device: &dyn BlockDevice, found: &DeletedFile) -> Result<(), Unextracted> {
        let extents = found.extents.iter().map(|extent| extent.end.saturating_sub(extent.start));
        let data = extents.fold(0, u64::saturating_add).min(found.size);
        self.left = self.left.checked_sub(data).ok_or(Unextracted::Limit)?;
        let mut names = names(&found.path);
        let name = names.pop().ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        let (mut parent, mut path) = (None::<OwnedFd>, Vec::new());
        for name in names {
            path = [&path, &b"/"[..], name.as_bytes()].concat();
            parent = Some(self.numbered(Kind::Directory, path.clone(), parent.as_ref(), &name, enter)?);
        }
        path = [&path, &b"/"[..], name.as_bytes()].concat();
        let (mut file, name) = self.numbered(Kind::File, path, parent.as_ref(), &name, create)?;
        let written = write(device, found, &mut file);
        if written.is_err() {
            // An incomplete file must not look complete. If it cannot be removed, the error is still reported.
            let parent = parent.as_ref().map_or(self.directory.as_fd(), AsFd::as_fd);
            let _ = rustix::fs::unlinkat(parent, &name[..], AtFlags::empty());
        }
        let unread = written?;
        if let Some(time) = found.modified {
            let time = timespec(time);
            // The contents count, not the time.
            let _ = rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time });
        }
        match unread {
            Some(error) => Err(io::Error::other(format!("{error}; the copy has zeros there")).into()),
            None => Ok(()),
        }
    }
}

impl Extraction {
    /// Calls `open` for `name` in `parent`, and with numbers at the end of the name until it returns something.
    fn numbered<T>(
        &mut self,
        kind: Kind,
        path: Vec<u8>,
        parent: Option<&OwnedFd>,
        name: &Name,
        open: impl Fn(BorrowedFd<'_>, &[u8]) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let parent = parent.map_or(self.directory.as_fd(), AsFd::as_fd);
        let of_files = (Kind::File, path);
        let key = (kind, of_files.1.clone());
        // The names before the number of a file are files.
        let first = self.numbers.get(&key).or_else(|| self.numbers.get(&of_files)).copied().unwrap_or(0);
        for number in first..=u32::MAX {
            if let Some(opened) = open(parent, &numbered(name, number))? {
                if number > 0 {
                    // A directory is entered again; a file name is taken now.
                    self.numbers.insert(key, number.saturating_add(u32::from(kind == Kind::File)));
                }
                return Ok(opened);
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
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

/// Opens the directory `name`, which is created if it does not exist. Returns `None` if a file has this name.
fn enter(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::mkdirat(parent, name, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        // A file that was deleted, too, has this name.
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

/// Creates a file. Returns the file and its name, or `None` if the name exists.
fn create(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<(File, Vec<u8>)>> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, FILE_MODE) {
        Err(Errno::EXIST) => Ok(None),
        opened => Ok(Some((File::from(opened?), name.to_vec()))),
    }
}

/// Returns `name`, or for another try `name.1`.
fn numbered(name: &Name, number: u32) -> Vec<u8> {
    match number {
        0 => name.as_bytes().to_vec(),
        _ => [name.as_bytes(), format!(".{number}").as_bytes()].concat(),
    }
}

/// Writes the bytes of the extents around the holes, up to the size of the file. Bytes that are missing or cannot be read
/// are zeros. Returns the last error of reading.
fn write(
    device: &dyn BlockDevice,
    found: &DeletedFile,
    file: &mut File,
) -> Result<Option<String>, Unextracted> {
    let mut buffer = vec![0; CHUNK];
    let (mut position, mut unread) = (0, None);
    let mut holes = found.holes.iter().peekable();
    for extent in &found.extents {
        let mut at = extent.start;
        while at < extent.end && position < found.size {
            if interrupt::is_requested() {
                return Err(Unextracted::Stopped);
            }
            while let Some(hole) = holes.next_if(|hole| hole.start <= position) {
                position = position.max(hole.end);
                file.seek(SeekFrom::Start(position))?;
            }
            let end = holes.peek().map_or(found.size, |hole| hole.start).min(found.size);
            let len = (extent.end - at).min(end.saturating_sub(position)).min(CHUNK as u64);
            if len == 0 {
                break;
            }
            let bytes = &mut buffer[..usize::try_from(len).unwrap_or(CHUNK)];
            if let Err(error) = device.read_at(at, bytes) {
                unread = Some(error.to_string());
                bytes.fill(0);
            }
            file.write_all(bytes)?;
            (at, position) = (at + len, position + len);
        }
    }
    file.set_len(found.size.min(i64::MAX as u64))?;
    Ok(unread)
}

#[cfg(test)]
mod tests {
    use obento::block::MemDevice;
    use obento::driver::Certainty;

    use super::*;

    fn deleted(path: &str) -> DeletedFile {
        DeletedFile {
            path: path.into(),
            size: 0,
            modified: None,
            extents: Vec::new(),
            holes: Vec::new(),
            certainty: Certainty::Likely,
        }
    }

    #[test]
    fn thousands_of_files_of_one_path_get_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let mut extraction = Extraction::new(&folder.path().join("out")).unwrap();
        let device = MemDevice::new(Vec::new());
        for _ in 0..2500 {
            extraction.file(&device, &deleted("dir")).unwrap();
        }
        // The directory gets the number after all files.
        for _ in 0..2 {
            extraction.file(&device, &deleted("dir/file")).unwrap();
        }
        let names: Vec<_> =
            std::fs::read_dir(folder.path().join("out")).unwrap().map(|entry| entry.unwrap()).collect();
        let directories: Vec<_> = names.iter().filter(|entry| entry.file_type().unwrap().is_dir()).collect();
        assert_eq!((names.len(), directories.len()), (2501, 1));
        assert_eq!(std::fs::read_dir(directories[0].path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_is_extracted_although_thousands_of_files_have_its_name_with_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let mut extraction = Extraction::new(&folder.path().join("out")).unwrap();
        let device = MemDevice::new(Vec::new());
        for number in 1..2500 {
            extraction.file(&device, &deleted(&format!("file.{number}"))).unwrap();
        }
        for _ in 0..3 {
            extraction.file(&device, &deleted("file")).unwrap();
        }
        let out = folder.path().join("out");
        assert!(
            out.join("file").exists() && out.join("file.2500").exists() && out.join("file.2501").exists()
        );
    }
}
