//! A file that nobody sees before it is whole.
//!
//! Invariant: until [`FreshFile::publish`] the file has no name, or where the file system knows no files without one, a
//! name of its own that goes with it; what has the target's name stays as it is.
//! Source: open(2) `O_TMPFILE`, linkat(2) `AT_SYMLINK_FOLLOW` with `/proc/self/fd`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento_base::NameBuf;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::debris::{Debris, UNFINISHED, claim, sweep};
use crate::{FileDevice, HostDir, HostError};

/// What to do with something that has the name already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Publish {
    /// It stays, and this is an error.
    Keep,
    /// It goes.
    Replace,
}

/// A new image file without a name.
#[derive(Debug)]
pub struct FreshFile {
    device: FileDevice,
    target: PathBuf,
    /// The directory of the target, followed once, and its name there.
    folder: HostDir,
    name: NameBuf,
    /// The name that it has meanwhile, if it must have one.
    named: Option<Named>,
}

/// A name that goes, whatever ends the process; after `SIGKILL` when the next file is made there.
#[derive(Debug)]
struct Named {
    name: OsString,
    _debris: Debris,
}

impl Named {
    fn new(folder: &HostDir, name: OsString) -> Self {
        Self { _debris: Debris::new(&folder.path().join(&name)), name }
    }
}

impl FreshFile {
    /// A file that is to become `target`, `len` zeros long. Errors: System.
    pub fn new(target: &Path, len: u64) -> Result<Self, HostError> {
        let (folder, name) = HostDir::open_parent(target).map_err(|error| match error.errno() {
            Some(errno) => HostError::system("create", target, errno),
            None => error,
        })?;
        let (file, named) = make(&folder, target)?;
        let device = FileDevice::from_file(file, target)?;
        let mut this = Self { device, target: target.into(), folder, name, named };
        this.device.resize(len)?;
        Ok(this)
    }

    /// Lets it have another length; what is new are zeros. Errors: System.
    pub fn set_len(&mut self, len: u64) -> Result<(), HostError> {
        self.device.resize(len)
    }

    /// Its bytes.
    pub fn device(&self) -> &FileDevice {
        &self.device
    }

    /// The file, open for reading and writing.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.device.host_file().as_fd()
    }

    /// The same bytes, for who may outlive it. Errors: System.
    pub fn share(&self) -> Result<FileDevice, HostError> {
        let file = self.device.host_file().as_fd().try_clone_to_owned();
        let file = file.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            HostError::system("open", &self.target, errno)
        })?;
        FileDevice::from_file(File::from(file), &self.target)
    }

    /// Gives it the name, once all bytes are on stable storage. Errors: System; Exists.
    pub fn publish(mut self, publish: Publish) -> Result<(), HostError> {
        let failed = |errno| HostError::system("write", &self.target, errno);
        rustix::fs::fsync(&**self.device.host_file()).map_err(failed)?;
        let failed = |errno| match errno {
            Errno::EXIST => HostError::Exists { path: self.target.clone() },
            errno => HostError::system("create", &self.target, errno),
        };
        if publish == Publish::Keep {
            self.link(OsStr::from_bytes(self.name.as_bytes())).map_err(failed)?;
        } else {
            if self.named.is_none() {
                let name = free_name(|name| self.link(name)).map_err(failed)?;
                self.named = Some(Named::new(&self.folder, name));
            }
            if let Some(named) = &self.named {
                let (from, to) = (&*named.name, self.name.as_bytes());
                rustix::fs::renameat_with(&self.folder, from, &self.folder, to, RenameFlags::empty())
                    .map_err(failed)?;
            }
            self.named = None;
        }
        self.sync_folder();
        Ok(())
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        let folder = &self.folder;
        match &self.named {
            Some(own) => match rustix::fs::linkat(folder, &*own.name, folder, name, AtFlags::empty()) {
                // A file system that knows no second names, such as FAT.
                Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => {
                    rustix::fs::renameat_with(folder, &*own.name, folder, name, RenameFlags::NOREPLACE)
                }
                linked => linked,
            },
            None => {
                let own = format!("/proc/self/fd/{}", self.device.host_file().as_fd().as_raw_fd());
                rustix::fs::linkat(CWD, own, folder, name, AtFlags::SYMLINK_FOLLOW)
            }
        }
    }

    /// The name is on stable storage too. A directory that cannot be synced is nobody's fault.
    fn sync_folder(&self) {
        if let Ok(folder) = self.folder.to_readable() {
            let _ = rustix::fs::fsync(&folder);
        }
    }
}

impl Drop for FreshFile {
    fn drop(&mut self) {
        if let Some(named) = &self.named {
            // It has its other name now, or something else went wrong and is told.
            let _ = rustix::fs::unlinkat(&self.folder, &*named.name, AtFlags::empty());
        }
    }
}

/// A file for `target` in `folder`, without a name if that can be.
fn make(folder: &HostDir, target: &Path) -> Result<(File, Option<Named>), HostError> {
    let failed = |errno| HostError::system("create", target, errno);
    let mode = Mode::from_raw_mode(0o666);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, ".", flags | OFlags::TMPFILE, mode) {
        // Not every file system can; kernels that do not know the flag see a directory opened for writing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        made => return Ok((File::from(made.map_err(failed)?), None)),
    }
    sweep(folder);
    let mut made = None;
    let name = free_name(|name| {
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(folder, name, flags, mode)?;
        if !claim(&file) {
            // Somebody found it before it was claimed, and takes its name away.
            return Err(Errno::EXIST);
        }
        made = Some(file);
        Ok(())
    });
    let name = name.map_err(failed)?;
    made.map(|fd| (File::from(fd), Some(Named::new(folder, name)))).ok_or_else(|| failed(Errno::IO))
}

/// A name that `take` could take.
fn free_name(mut take: impl FnMut(&OsStr) -> Result<(), Errno>) -> Result<OsString, Errno> {
    for attempt in 0..1000_u32 {
        let name = OsString::from(format!("{UNFINISHED}{}-{attempt}", std::process::id()));
        match take(&name) {
            Ok(()) => return Ok(name),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::BlockDevice;

    #[test]
    fn a_file_appears_when_it_is_whole_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("new");
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        let fresh = FreshFile::new(&target, 8).unwrap();
        fresh.device().write_at(2, b"ab").unwrap();
        assert_eq!(names(), 0);
        fresh.publish(Publish::Keep).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"\0\0ab\0\0\0\0");
        drop(FreshFile::new(&target, 8).unwrap());
        let again = FreshFile::new(&target, 1).unwrap();
        assert!(matches!(again.publish(Publish::Keep), Err(HostError::Exists { .. })));
        FreshFile::new(&target, 1).unwrap().publish(Publish::Replace).unwrap();
        assert_eq!((std::fs::read(&target).unwrap().len(), names()), (1, 1));
    }
}
