//! A file that gets its name only when it is complete.
//!
//! Invariant: until [`FreshFile::publish`] the file has no name. On a file system without unnamed files, it
//! has a temporary name, which is removed with it. An existing file with the target's name is not changed.
//! Source: open(2) `O_TMPFILE`, linkat(2) `AT_SYMLINK_FOLLOW` with `/proc/self/fd`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento_base::NameBuf;
use obento_block::BlockDevice;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::access::AccessLimit;
use super::remove_on_signal::{RemoveOnSignal, UNFINISHED, claim, sweep};
use crate::compressed::ReservedFile;
use crate::{FileDevice, FileId, HostDir, HostError, HostFile};

/// The flags of a new file.
const FLAGS: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC);

/// What happens if a file with the name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Publish {
    /// The existing file stays, and publishing fails.
    Keep,
    /// The existing file is replaced.
    Replace,
}

/// A new image file without a name.
#[derive(Debug)]
pub struct FreshFile {
    device: FileDevice,
    target: PathBuf,
    /// The directory of the target, whose path was resolved once, and the name there.
    folder: HostDir,
    name: NameBuf,
    /// The temporary name, if the file system needs one.
    named: Option<Named>,
}

/// A temporary name that is removed when the process ends. After `SIGKILL`, the next creation of a file there
/// removes it.
#[derive(Debug)]
struct Named {
    name: OsString,
    _remove_on_signal: RemoveOnSignal,
}

impl Named {
    fn new(folder: &HostDir, name: OsString) -> Self {
        Self { _remove_on_signal: RemoveOnSignal::new(folder, &name), name }
    }
}

impl FreshFile {
    /// Creates a file that will become `target`, with `len` zeros. Fails with `System`.
    pub fn new(target: &Path, len: u64) -> Result<Self, HostError> {
        Self::with_limit(target, len, AccessLimit::NONE)
    }

    /// As [`new`](Self::new), with a limit to the permissions of the file.
    pub fn with_limit(target: &Path, len: u64, limit: AccessLimit) -> Result<Self, HostError> {
        let (folder, name) = HostDir::open_parent(target).map_err(|error| match error.errno() {
            Some(errno) => HostError::system("create", target, errno),
            None => error,
        })?;
        Self::within(folder, name, target, len, limit)
    }

    /// As [`with_limit`](Self::with_limit), for the file `name` in `folder`. `target` is for messages.
    pub fn within(
        folder: HostDir,
        name: NameBuf,
        target: &Path,
        len: u64,
        limit: AccessLimit,
    ) -> Result<Self, HostError> {
        let (file, named) = make(&folder, target, limit)?;
        let device = FileDevice::from_file(file, target)?;
        let mut this = Self { device, target: target.into(), folder, name, named };
        this.device.resize(len)?;
        Ok(this)
    }

    /// Changes the length. Added bytes are zeros. Fails with `System`.
    pub fn set_len(&mut self, len: u64) -> Result<(), HostError> {
        self.device.resize(len)
    }

    /// Returns the bytes as a device.
    pub fn device(&self) -> &FileDevice {
        &self.device
    }

    /// Returns the file, which is open for reading and writing.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.device.host_file().as_fd()
    }

    /// Returns the directory of the target, whose path was resolved once.
    pub fn folder(&self) -> &HostDir {
        &self.folder
    }

    /// Returns a device with the same bytes that may outlive this value. Fails with `System`.
    pub fn share(&self) -> Result<FileDevice, HostError> {
        FileDevice::from_file(self.same_file()?, &self.target)
    }

    fn same_file(&self) -> Result<File, HostError> {
        let file = self.device.host_file().as_fd().try_clone_to_owned();
        file.map(File::from).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            HostError::system("open", &self.target, errno)
        })
    }

    /// Returns the file, which is empty, as a place for a compressed image. Fails with `System`.
    pub fn to_room(&self) -> Result<ReservedFile, HostError> {
        Ok(ReservedFile::in_folder(self.same_file()?, self.folder.path()))
    }

    /// Returns whether the bytes of the file are those of `disk`, because `disk` was decompressed into it.
    pub fn is_disk(&self, disk: &dyn BlockDevice) -> bool {
        let len = disk.len();
        let backing = disk.backing(0..len).filter(|backing| backing.offset == 0 && backing.len == len);
        let stat = backing.as_ref().and_then(HostFile::of).and_then(|file| rustix::fs::fstat(file).ok());
        stat.is_some_and(|stat| {
            FileId::of(&stat) == self.device.file_id() && u64::try_from(stat.st_size) == Ok(len)
        })
    }

    /// Brings all bytes to stable storage, and then gives the file its name. Fails with `System` or `Exists`.
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
                // A file system without hard links, such as FAT.
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

    /// Brings the name to stable storage. Ignores errors, because some directories cannot be synced.
    fn sync_folder(&self) {
        if let Ok(folder) = self.folder.to_readable() {
            let _ = rustix::fs::fsync(&folder);
        }
    }
}

impl Drop for FreshFile {
    fn drop(&mut self) {
        if let Some(named) = &self.named {
            // The file has its final name now, or another error is reported.
            let _ = rustix::fs::unlinkat(&self.folder, &*named.name, AtFlags::empty());
        }
    }
}

/// Creates a file for `target` in `folder`, without a name if possible.
fn make(folder: &HostDir, target: &Path, limit: AccessLimit) -> Result<(File, Option<Named>), HostError> {
    let failed = |errno| HostError::system("create", target, errno);
    match rustix::fs::openat(folder, ".", FLAGS | OFlags::TMPFILE, limit.mode()) {
        // Not all file systems support unnamed files. A kernel without the flag treats this as opening a
        // directory for writing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        made => {
            let file = File::from(made.map_err(failed)?);
            limit.apply(&file).map_err(failed)?;
            return Ok((file, None));
        }
    }
    let (file, named) = make_named(folder, limit).map_err(failed)?;
    Ok((file, Some(named)))
}

/// Creates a file with a temporary name. If it has a limit, no other user can open it before it has its final permissions.
fn make_named(folder: &HostDir, limit: AccessLimit) -> Result<(File, Named), Errno> {
    let mode = if limit == AccessLimit::NONE { limit.mode() } else { Mode::RUSR | Mode::WUSR };
    sweep(folder);
    let mut made = None;
    let name = free_name(|name| {
        let flags = FLAGS | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(folder, name, flags, mode)?;
        if !claim(&file) {
            // Another process found the file before it was locked, and removes its name.
            return Err(Errno::EXIST);
        }
        made = Some(file);
        Ok(())
    });
    let named = Named::new(folder, name?);
    let file = File::from(made.ok_or(Errno::IO)?);
    if let (true, Ok(folder)) = (limit != AccessLimit::NONE, folder.to_readable()) {
        limit.widen(&file, &folder)?;
    }
    Ok((file, named))
}

/// Returns the first name that `take` accepts.
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_with_a_temporary_name_gets_the_permissions_of_the_limit_and_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        std::fs::write(&source, "").unwrap();
        let (folder, _) = HostDir::open_parent(&source).unwrap();
        let umask = u32::from(crate::tree::umask());
        for mode in [0o600, 0o640, 0o644, 0o604] {
            std::fs::set_permissions(&source, std::fs::Permissions::from_mode(mode)).unwrap();
            let (file, named) = make_named(&folder, AccessLimit::of([&*source])).unwrap();
            let found = file.metadata().unwrap().permissions().mode() & 0o7777;
            assert_eq!(found, mode & !umask, "{mode:o}");
            std::fs::remove_file(dir.path().join(&named.name)).unwrap();
        }
    }

    #[test]
    fn a_file_appears_only_when_it_is_complete() {
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
