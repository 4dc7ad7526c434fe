//! A device on an image file or a block device of the host.
//!
//! Invariant: the length is the one at opening. A file that shrinks while it is open gives `OutOfBounds`,
//! like a truncated image. A file that grows keeps its length here.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::wire::to_u64;
use obento_base::{DeviceError, FileKind, Name, Result};
use obento_block::{Backing, BlockDevice, check_range};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::file_id::{FileId, kind_of};
use crate::lock::{self, LockNotice, Purpose};
use crate::{HostDir, HostError, reopen};

/// An open file of the host, for calls that move bytes between files inside the kernel. It is the object of every
/// [`Backing`] that a device of this crate returns.
#[derive(Debug)]
pub struct HostFile {
    file: File,
}

impl HostFile {
    /// Returns the file behind `backing`, if it is a file of this host.
    pub fn of(backing: &Backing) -> Option<&Self> {
        backing.object.downcast_ref()
    }
}

impl HostFile {
    /// Returns the open file.
    pub(crate) fn as_file(&self) -> &File {
        &self.file
    }
}

impl From<File> for HostFile {
    fn from(file: File) -> Self {
        Self { file }
    }
}

impl AsFd for HostFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens an image that will be changed. A symbolic link of another user in the path, also as its last component,
/// could lead to any file. Fails with `ForeignLink` or `System`.
fn open_to_change(path: &Path, flags: OFlags) -> Result<File, HostError> {
    let (dir, name) = match HostDir::open_parent(path) {
        // The path has no last component.
        Err(error) if error.errno() == Some(Errno::INVAL) => {
            return Err(HostError::system("open", path, Errno::ISDIR));
        }
        opened => opened?,
    };
    let failed = |errno| HostError::system("open", path, errno);
    match rustix::fs::openat(&dir, name.as_bytes(), flags | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::LOOP) => reopen(dir.handle(&name)?, flags).map_err(failed),
        opened => opened.map(File::from).map_err(failed),
    }
}

/// A file or block device as a device.
#[derive(Debug)]
pub struct FileDevice {
    file: Arc<HostFile>,
    path: PathBuf,
    id: FileId,
    len: u64,
    sector_size: u32,
    read_only: bool,
    notices: Vec<LockNotice>,
}

impl FileDevice {
    /// Opens an image and locks it for `purpose`, as described in [`lock`]. Fails as [`FileDevice::open`] does,
    /// and with `InUse`.
    pub fn open_locked(path: &Path, purpose: Purpose) -> Result<Self, HostError> {
        Self::open_as(path, Some(purpose), OFlags::empty())
    }

    /// Opens an image with more `flags`, and locks it, or opens it for reading without a lock.
    pub(crate) fn open_as(path: &Path, lock: Option<Purpose>, flags: OFlags) -> Result<Self, HostError> {
        let Some(purpose) = lock else { return Self::open_with(path, OFlags::RDONLY | flags) };
        let access = match purpose {
            Purpose::Read | Purpose::Replace => OFlags::RDONLY,
            // EXCL without CREATE has an effect on block devices only.
            Purpose::Change => OFlags::RDWR | OFlags::EXCL,
        };
        let opened = lock::patiently(|| match Self::open_with(path, access | flags) {
            Err(error) if error.errno() == Some(Errno::BUSY) => Err(Errno::BUSY),
            opened => Ok(opened),
        });
        let opened = opened.unwrap_or_else(|errno| Err(HostError::system("open", path, errno)));
        let mut this = opened.map_err(|error| match error.errno() {
            Some(Errno::BUSY) if purpose == Purpose::Change => {
                HostError::InUse { path: path.into(), purpose, user: lock::exclusive_user(path) }
            }
            _ => error,
        })?;
        this.notices = lock::claim(&*this.file, path, this.id, purpose)?;
        Ok(this)
    }

    /// Opens an image for reading, without a lock. Fails with `System` if it cannot be opened, and with `NotAnImage`
    /// for a directory, a FIFO and other files without bytes at offsets.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        Self::open_with(path, OFlags::RDONLY)
    }

    /// Opens an image for reading and writing, without a lock: for tests and tools that exclude other users
    /// themselves. Fails as [`FileDevice::open`] does.
    pub fn open_writable(path: &Path) -> Result<Self, HostError> {
        Self::open_with(path, OFlags::RDWR)
    }

    fn open_with(path: &Path, access: OFlags) -> Result<Self, HostError> {
        // Without NONBLOCK, opening a FIFO would wait for a writer before the file could be rejected.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = if access.intersects(OFlags::RDWR | OFlags::WRONLY) {
            open_to_change(path, flags)
        } else {
            rustix::fs::open(path, flags, Mode::empty())
                .map(File::from)
                .map_err(|errno| HostError::system("open", path, errno))
        };
        let file = opened.map_err(|error| match error.errno() {
            Some(Errno::ISDIR) => {
                HostError::NotAnImage { path: path.into(), kind: Some(FileKind::Directory) }
            }
            _ => error,
        })?;
        Self::from_file(file, path)
    }

    /// Creates a new image `name` of `len` zeros in `dir`, locks it for change, and opens it. `path` is for messages.
    /// Fails with `System`, also if a file with this name exists. After an error, no image was created.
    pub fn create_in(dir: &HostDir, name: &Name, path: &Path, len: u64) -> Result<Self, HostError> {
        let failed = |errno| HostError::system("create", path, errno);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name.as_bytes(), flags, Mode::from_raw_mode(0o666));
        let file = file.map_err(failed)?;
        let made = Self::from_file(File::from(file), path);
        let id = made.as_ref().ok().map(|this| this.id);
        let made = made.and_then(|mut this| {
            this.resize(len)?;
            this.notices = lock::claim(&*this.file, path, this.id, Purpose::Change)?;
            Ok(this)
        });
        if let (Err(_), Some(id)) = (&made, id) {
            // The original error is returned, and not an error of the removal.
            let _ = dir.remove_created(name, id);
        }
        made
    }

    /// Changes the length of an image file. Added bytes read as zeros. Fails with `System`.
    pub fn resize(&mut self, len: u64) -> Result<(), HostError> {
        let failed = |errno| HostError::system("set the size of", &self.path, errno);
        rustix::fs::ftruncate(&*self.file, len).map_err(failed)?;
        self.len = len;
        Ok(())
    }

    /// Returns whether this is a block device, whose length cannot change.
    pub fn is_block_device(&self) -> bool {
        self.id.ino == 0
    }

    /// Creates a device from an open file. `path` is for messages. Fails with `NotAnImage` or `System`.
    pub fn from_file(file: File, path: &Path) -> Result<Self, HostError> {
        let failed = |errno| HostError::system("examine", path, errno);
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        let kind = kind_of(&stat);
        let (len, sector_size) = match kind {
            Some(FileKind::Regular) => (stat.st_size.cast_unsigned(), 512),
            Some(FileKind::BlockDevice) => (
                rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(failed)?,
                rustix::fs::ioctl_blksszget(&file).map_err(failed)?,
            ),
            _ => return Err(HostError::NotAnImage { path: path.into(), kind }),
        };
        let flags = rustix::fs::fcntl_getfl(&file).map_err(failed)?;
        Ok(Self {
            file: Arc::new(file.into()),
            path: path.into(),
            id: FileId::of(&stat),
            len,
            sector_size,
            read_only: (flags & OFlags::RWMODE) == OFlags::RDONLY,
            notices: Vec::new(),
        })
    }

    /// Returns the same device for reading only.
    pub(crate) fn into_read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Returns the path that the file was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the notices for the user about the lock.
    pub fn lock_notices(&self) -> &[LockNotice] {
        &self.notices
    }

    /// Returns the identity of the file.
    pub fn file_id(&self) -> FileId {
        self.id
    }

    /// Returns the open file.
    pub fn host_file(&self) -> &Arc<HostFile> {
        &self.file
    }

    /// Returns the present length of the file. A sandbox allows fstat(2) for this, and no other call.
    pub(crate) fn len_now(&self) -> Option<u64> {
        rustix::fs::fstat(&*self.file).ok().and_then(|stat| u64::try_from(stat.st_size).ok())
    }

    pub(crate) fn file(&self) -> &File {
        &self.file.file
    }

    pub(crate) fn check(&self, offset: u64, len: usize) -> Result<()> {
        check_range(self.len, offset, to_u64(len))
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only { Err(DeviceError::ReadOnly.into()) } else { Ok(()) }
    }
}

fn error_number(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// Returns a path by which a child process can open this file, even without a name. Source: proc_pid_fd(5).
pub fn path_of_open(file: impl AsFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_fd().as_raw_fd()).into()
}

impl BlockDevice for FileDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len())?;
        let len = to_u64(buf.len());
        self.file.file.read_exact_at(buf, offset).map_err(|error| {
            let shrunk = error.kind() == std::io::ErrorKind::UnexpectedEof;
            if shrunk {
                let device_len = self.len_now().unwrap_or(offset);
                DeviceError::OutOfBounds { offset, len, device_len }.into()
            } else {
                DeviceError::Read { offset, len, errno: error_number(&error) }.into()
            }
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.check(offset, buf.len())?;
        let failed =
            |error| DeviceError::Write { offset, len: to_u64(buf.len()), errno: error_number(&error) };
        Ok(self.file.file.write_all_at(buf, offset).map_err(failed)?)
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        Ok(self.file.file.sync_data().map_err(|error| DeviceError::Flush { errno: error_number(&error) })?)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        // A file system or device without support for discarding may do nothing.
        self.punch(range).map(drop)
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.check_writable()?;
        let len = range.end.saturating_sub(range.start);
        check_range(self.len, range.start, len)?;
        if len == 0 {
            return Ok(true);
        }
        // On a block device, the kernel turns this into a discard that reads as zeros afterwards.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, range.start, len) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV) => Ok(false),
            Err(errno) => {
                Err(DeviceError::Write { offset: range.start, len, errno: errno.raw_os_error() }.into())
            }
        }
    }

    fn known_zeros(&self, range: Range<u64>) -> u64 {
        let end = range.end.min(self.len);
        let rest = end.saturating_sub(range.start);
        // A block device has no holes.
        if self.is_block_device() {
            return 0;
        }
        match rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::Data(range.start)) {
            Ok(data) => data.saturating_sub(range.start).min(rest),
            // No data follows.
            Err(Errno::NXIO) => rest,
            Err(_) => 0,
        }
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        let end = range.end.min(self.len);
        let len = end.checked_sub(range.start).filter(|&len| len > 0)?;
        Some(Backing { object: self.file.clone(), offset: range.start, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn image(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_file_is_read_and_written_at_offsets_and_names_itself_as_the_backing() {
        let file = image(&[1, 2, 3, 4]);
        let device = FileDevice::open_writable(file.path()).unwrap();
        device.write_at(1, &[9, 8]).unwrap();
        device.flush().unwrap();
        let mut buf = [0; 4];
        device.read_at(0, &mut buf).unwrap();
        assert_eq!((device.len(), buf), (4, [1, 9, 8, 4]));
        let backing = device.backing(1..100).unwrap();
        assert_eq!((backing.offset, backing.len), (1, 3));
        let stat = rustix::fs::fstat(HostFile::of(&backing).unwrap()).unwrap();
        assert_eq!(FileId::of(&stat), device.file_id());
        assert!(device.backing(4..5).is_none());
        assert!(matches!(
            device.read_at(3, &mut buf).unwrap_err(),
            obento_base::Error::Device(DeviceError::OutOfBounds { offset: 3, len: 4, device_len: 4 })
        ));
    }

    #[test]
    fn an_image_behind_a_link_of_another_user_is_read_and_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (image, link) = (folder.path().join("image"), folder.path().join("link"));
        std::fs::write(&image, [7; 8]).unwrap();
        std::os::unix::fs::symlink("image", &link).unwrap();
        FileDevice::open_locked(&link, Purpose::Change).unwrap().write_at(0, &[8]).unwrap();
        if std::os::unix::fs::lchown(&link, Some(12345), None).is_err() {
            return println!("skipped: only root can change the owner of a symbolic link");
        }
        let refused = FileDevice::open_locked(&link, Purpose::Change).unwrap_err();
        assert!(matches!(refused, HostError::ForeignLink { .. }), "{refused}");
        assert_eq!(FileDevice::open(&link).unwrap().len(), 8);
    }

    #[test]
    fn a_device_open_for_reading_refuses_writes() {
        let file = image(&[0; 8]);
        let device = FileDevice::open(file.path()).unwrap();
        let read_only = Err(DeviceError::ReadOnly.into());
        assert_eq!((device.write_at(0, &[1]), device.discard(0..1)), (read_only, read_only));
        assert!(device.is_read_only() && device.flush().is_ok());
    }

    #[test]
    fn discarded_blocks_of_a_file_become_a_hole() {
        let file = image(&[7; 1 << 16]);
        let device = FileDevice::open_writable(file.path()).unwrap();
        device.discard(4096..8192).unwrap();
        let mut buf = [1; 4098];
        device.read_at(4095, &mut buf).unwrap();
        assert_eq!((buf[0], buf[1], buf[4096], buf[4097]), (7, 0, 0, 7));
    }

    #[test]
    fn a_file_that_shrank_is_reported_as_too_short() {
        let file = image(&[0; 100]);
        let device = FileDevice::open(file.path()).unwrap();
        file.as_file().set_len(10).unwrap();
        let error = device.read_at(50, &mut [0; 10]).unwrap_err();
        assert_eq!(error, DeviceError::OutOfBounds { offset: 50, len: 10, device_len: 10 }.into());
    }

    #[test]
    fn directories_fifos_and_missing_files_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
        let text = |path: &Path| FileDevice::open(path).unwrap_err().to_string();
        assert!(text(dir.path()).ends_with("is a directory, not an image file or a block device"));
        assert!(text(&fifo).ends_with("is a FIFO, not an image file or a block device"));
        assert!(text(&dir.path().join("none")).ends_with("no such file or directory"));
        let refused = FileDevice::open_writable(dir.path()).unwrap_err();
        assert!(matches!(refused, HostError::NotAnImage { kind: Some(FileKind::Directory), .. }));
    }
}
