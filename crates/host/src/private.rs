//! Directories in which no other user can replace a file, and private directories in them.
//!
//! A program gets the path of a file, and resolves it again. The path is safe if no other user can replace one of its
//! components.
//! Invariant: root or the user of this process [controls](crate::owner) each directory from the root down to a trusted
//! directory.
//! Other users and the group cannot write to it, unless it is sticky. The directories are examined in this order by
//! descriptors, so that the directory above an examined entry is already known to keep the entry.
//! Invariant: a private directory is used through its descriptor. Its path is for programs and messages only.
//! Source: rename(2), the sticky bit; user_namespaces(7), unmapped users; proc_sys_kernel(5) `overflowuid`.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use obento_base::{Name, NameBuf};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::handle::{self, HandleOf};
use crate::owner::{SHARED, controller, is_own, is_trusted};
use crate::{HostDir, HostError, reopen};

/// Only the owner can use a private directory.
const PRIVATE: Mode = Mode::RWXU;
/// In a sticky directory, only the owner of an entry or of the directory can replace the entry.
const STICKY: u32 = 0o1000;
/// How many random names are tried.
const ATTEMPTS: u32 = 16;
/// Directories that belong to root on every Linux system (file-hierarchy(7)).
const OF_ROOT: [&str; 9] =
    ["/", "/dev", "/dev/shm", "/home", "/run", "/run/user", "/tmp", "/var", "/var/tmp"];

impl HostDir {
    /// Opens the directory `path`, and requires that no other user can replace a file in it, nor a directory above it.
    /// The path of the result contains no symbolic link. Fails as [`open`](Self::open) does, and with `Untrusted`.
    pub fn open_trusted(path: &Path) -> Result<Self, HostError> {
        let found = Self::open(path)?;
        let real = std::fs::read_link(format!("/proc/self/fd/{}", found.as_fd().as_raw_fd()));
        let real = real.map_err(|error| HostError::of_io("find", path, &error))?;
        let mut at = Self::open(Path::new("/"))?;
        at.expect_trusted(path)?;
        let names = real.as_os_str().as_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        for name in names {
            let name = Name::new(name).map_err(|_| HostError::system("open", &real, Errno::INVAL))?;
            at = at.enter_directory(name)?;
            at.expect_trusted(path)?;
        }
        Ok(at)
    }

    /// Fails if another user can replace an entry of this directory.
    fn expect_trusted(&self, path: &Path) -> Result<(), HostError> {
        let stat = self.own_stat()?;
        let is_shared = stat.st_mode & SHARED != 0 && stat.st_mode & STICKY == 0;
        let is_trusted =
            controller(self.as_fd(), &stat).is_some_and(|user| is_trusted_owner(user, self.path()));
        match is_trusted && !is_shared {
            true => Ok(()),
            false => Err(HostError::Untrusted { path: path.into(), directory: self.path().into() }),
        }
    }

    /// Returns whether another user can exchange the entries of this directory. Fails with `System`.
    pub fn is_shared(&self) -> Result<bool, HostError> {
        Ok(!is_own(&self.own_stat()?))
    }

    /// Returns whether a user other than root and the user of this process can create, rename or remove entries of this
    /// directory. This includes sticky directories such as `/tmp`. A private group, whose number is that of the owner,
    /// counts as the owner. Fails with `System`.
    pub fn is_open_to_others(&self) -> Result<bool, HostError> {
        let stat = self.own_stat()?;
        let is_private = stat.st_gid == stat.st_uid && !self.has_acl();
        let shared = if is_private { Mode::WOTH.bits() } else { SHARED };
        Ok(!is_trusted(self.as_fd(), &stat) || stat.st_mode & shared != 0)
    }

    /// Returns whether an access control list can give rights to further users and groups. The permissions of the group
    /// are then the limit of these rights (acl(5)).
    fn has_acl(&self) -> bool {
        let path = format!("/proc/self/fd/{}", self.as_fd().as_raw_fd());
        let acl = rustix::fs::getxattr_query(path, "system.posix_acl_access");
        !matches!(acl, Err(Errno::NODATA | Errno::NOTSUP))
    }

    fn own_stat(&self) -> Result<Stat, HostError> {
        rustix::fs::fstat(self.as_fd()).map_err(|errno| HostError::system("examine", self.path(), errno))
    }

    /// Creates the subdirectory `name`, which only the user of this process can use, and opens it. Fails with
    /// `System`, also if the name exists, and with `Changed`.
    pub fn make_private(&self, name: &Name) -> Result<Self, HostError> {
        let path = self.child(name);
        let failed = |errno| HostError::system("create", &path, errno);
        rustix::fs::mkdirat(self.as_fd(), name.as_bytes(), PRIVATE).map_err(failed)?;
        let dir = self.enter_directory(name)?;
        let stat = dir.own_stat()?;
        // Not only in case another process exchanged the directory: some file systems store no owners and modes.
        let is_ours = stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o077 == 0;
        if is_ours && dir.names()?.is_empty() {
            return Ok(dir);
        }
        // Only an empty directory is removed.
        let _ = rustix::fs::unlinkat(self.as_fd(), name.as_bytes(), AtFlags::REMOVEDIR);
        Err(HostError::Changed { path })
    }

    /// Creates the file `name`, which only the user of this process can read and write. Fails with `System`, also if
    /// the name exists.
    pub fn create_private(&self, name: &Name) -> Result<File, HostError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.as_fd(), name.as_bytes(), flags, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(|errno| HostError::system("create", self.child(name), errno))
    }

    /// Opens `name` for reading, or returns `None` if it is not a regular file. Fails with `System`.
    pub fn open_regular(&self, name: &Name) -> Result<Option<File>, HostError> {
        let failed = |errno| HostError::system("open", self.child(name), errno);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(self.as_fd(), name.as_bytes(), flags, Mode::empty());
        let handle = handle.map_err(failed)?;
        let stat = rustix::fs::fstat(&handle).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => reopen(&handle, OFlags::RDONLY).map(Some).map_err(failed),
            _ => Ok(None),
        }
    }
}

/// A new directory that only the user of this process can use. It stays until it is removed.
#[derive(Debug)]
pub struct PrivateDir {
    parent: HostDir,
    name: NameBuf,
    dir: HostDir,
}

impl PrivateDir {
    /// Creates a directory in the one for temporary files. Its name is `prefix` and a random number. Fails as
    /// [`within`](Self::within) does.
    pub fn new(prefix: &str) -> Result<Self, HostError> {
        Self::within(&std::env::temp_dir(), prefix)
    }

    /// Creates a directory in `directory`. Fails as [`HostDir::open_trusted`] and [`HostDir::make_private`] do.
    pub fn within(directory: &Path, prefix: &str) -> Result<Self, HostError> {
        Self::in_directory(HostDir::open_trusted(directory)?, prefix)
    }

    /// Creates a directory in `parent`, which other users may be able to change. They can then move the directory,
    /// but not its entries. Fails as [`HostDir::make_private`] does.
    pub fn in_directory(parent: HostDir, prefix: &str) -> Result<Self, HostError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let number = RandomState::new().hash_one((std::process::id(), attempt));
            let name = Name::new(format!("{prefix}{number:016x}").as_bytes()).map(Name::to_buf);
            let name = name.map_err(|_| HostError::system("create", parent.path(), Errno::INVAL))?;
            match parent.make_private(&name) {
                Err(error) if error.errno() == Some(Errno::EXIST) && attempt < ATTEMPTS => {}
                made => return made.map(|dir| Self { parent, name, dir }),
            }
        }
    }

    /// Returns the directory, whatever has its name by now.
    pub fn dir(&self) -> &HostDir {
        &self.dir
    }

    /// Returns the directory that contains this one.
    pub fn parent(&self) -> &HostDir {
        &self.parent
    }

    /// Returns the name in the parent.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the absolute path, for programs.
    pub fn path(&self) -> PathBuf {
        self.parent.child(&self.name)
    }

    /// Renames the entry `from` of this directory to `name` in `to`, and replaces an existing file there. Fails with
    /// `System`.
    pub fn release(&self, from: &Name, to: &HostDir, name: &Name) -> Result<(), HostError> {
        let renamed = self.dir.rename(from, to, name);
        if renamed.as_ref().is_err_and(|error| error.errno() == Some(Errno::ACCESS)) {
            return self.release_protected(from, to, name);
        }
        renamed
    }

    /// Renames a directory that its owner may not write to. Linux requires this right to change the entry `..`.
    fn release_protected(&self, from: &Name, to: &HostDir, name: &Name) -> Result<(), HostError> {
        let failed = |errno| HostError::system("rename", self.dir.child(from), errno);
        let entry = match handle::open(self.dir.as_fd(), from.as_bytes(), HandleOf::Directory) {
            Err(Errno::NOTDIR) => return Err(failed(Errno::ACCESS)),
            entry => entry.map_err(failed)?,
        };
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&entry).map_err(failed)?.st_mode & 0o7777);
        handle::chmod(entry.as_fd(), mode | Mode::WUSR).map_err(failed)?;
        let renamed = self.dir.rename(from, to, name);
        handle::chmod(entry.as_fd(), mode).map_err(failed)?;
        renamed
    }

    /// Removes the entries of the directory, and the directory. Stops at the first error. Fails with `System`.
    pub fn remove(&self) -> Result<(), HostError> {
        for name in self.dir.names()? {
            if let Ok(name) = Name::new(&name) {
                self.dir.remove(name)?;
            }
        }
        // Another directory that has the name by now keeps its entries.
        rustix::fs::unlinkat(self.parent.as_fd(), self.name.as_bytes(), AtFlags::REMOVEDIR)
            .map_err(|errno| HostError::system("remove", self.path(), errno))
    }
}

/// Returns whether `user`, the owner of the directory `path`, is root or the user of this process.
///
/// In a user namespace, root of the host and all unmapped users have the same number. There, only the directories
/// that are root's on every system count as root's.
fn is_trusted_owner(user: u32, path: &Path) -> bool {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let is_unmapped = || {
        let overflow = read("/proc/sys/kernel/overflowuid").trim().parse() == Ok(user);
        let map = read("/proc/self/uid_map");
        overflow && !map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
    };
    user == 0
        || user == geteuid().as_raw()
        || OF_ROOT.iter().any(|known| path == Path::new(known)) && is_unmapped()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

    use super::*;

    fn name(text: &str) -> NameBuf {
        Name::new(text.as_bytes()).unwrap().to_buf()
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Returns the directory that makes `path` unusable, if there is one.
    fn untrusted(path: &Path) -> Option<PathBuf> {
        match HostDir::open_trusted(path) {
            Ok(_) => None,
            Err(HostError::Untrusted { directory, .. }) => Some(directory),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_directory_is_trusted_only_if_the_group_and_others_cannot_write_to_it_and_to_those_above() {
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        let inner = outer.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        for changed in [inner.clone(), outer.join("a")] {
            for mode in [0o775, 0o757, 0o777, 0o2775] {
                set_mode(&changed, mode);
                assert_eq!(untrusted(&inner), Some(changed.clone()), "{mode:o}");
            }
            for mode in [0o1775, 0o1777, 0o755, 0o700] {
                set_mode(&changed, mode);
                assert_eq!(untrusted(&inner), None, "{mode:o}");
            }
        }
    }

    #[test]
    fn a_directory_is_open_to_others_if_another_user_can_create_entries() {
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::open(folder.path()).unwrap();
        let is_open = |mode| {
            set_mode(folder.path(), mode);
            dir.is_open_to_others().unwrap()
        };
        let own = fs::metadata(folder.path()).unwrap();
        let is_private_group = own.uid() == own.gid();
        assert!(!is_open(0o700) && !is_open(0o755) && !is_open(0o555));
        assert!(is_open(0o777) && is_open(0o1777) && is_open(0o702));
        assert_eq!(is_open(0o775), !is_private_group);
        if !geteuid().is_root() {
            return;
        }
        chown(folder.path(), None, Some(7)).unwrap();
        assert!(is_open(0o775) && !is_open(0o755));
        chown(folder.path(), Some(7), Some(7)).unwrap();
        assert!(is_open(0o775) && is_open(0o700));
    }

    #[test]
    fn a_directory_is_open_to_others_if_an_access_control_list_lets_them_write() {
        let folder = tempfile::tempdir().unwrap();
        let user = geteuid().as_raw();
        chown(folder.path(), None, Some(user)).unwrap_or_default();
        set_mode(folder.path(), 0o770);
        // include/uapi/linux/posix_acl_xattr.h.
        let entry = |tag: u16, perm: u16, id: u32| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let all = u32::MAX;
        let entries = [(1, 7, all), (2, 7, user + 1), (4, 7, all), (0x10, 7, all), (0x20, 0, all)]
            .map(|(t, p, i)| entry(t, p, i));
        let acl = [&2_u32.to_le_bytes()[..], &entries.concat()].concat();
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(folder.path(), "system.posix_acl_access", &acl, flags).is_err() {
            return;
        }
        assert!(HostDir::open(folder.path()).unwrap().is_open_to_others().unwrap());
    }

    #[test]
    fn a_directory_below_one_of_another_user_is_not_trusted() {
        if !geteuid().is_root() {
            return;
        }
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        let inner = outer.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        for changed in [inner.clone(), outer.join("a")] {
            chown(&changed, Some(1), None).unwrap();
            assert_eq!(untrusted(&inner), Some(changed.clone()));
            // A link of root to it is no better.
            let link = outer.join("link");
            symlink(&inner, &link).unwrap();
            assert_eq!(untrusted(&link), Some(changed.clone()));
            fs::remove_file(&link).unwrap();
            chown(&changed, Some(0), None).unwrap();
        }
        assert_eq!(untrusted(&inner), None);
    }

    #[test]
    fn the_files_of_a_private_directory_are_those_of_the_descriptor_after_its_name_was_given_to_another() {
        let outer = tempfile::tempdir().unwrap();
        let private = PrivateDir::within(outer.path(), "test-").unwrap();
        assert_eq!(private.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        fs::rename(private.path(), outer.path().join("moved")).unwrap();
        fs::create_dir(private.path()).unwrap();
        fs::write(private.path().join("f"), "forged").unwrap();
        let missing = private.dir().open_regular(&name("f")).unwrap_err();
        assert_eq!(missing.errno(), Some(Errno::NOENT));
        private.dir().create_private(&name("f")).unwrap();
        assert!(private.remove().is_err());
        assert!(private.path().join("f").exists(), "the other directory keeps its files");
        private.dir().create_private(&name("f")).unwrap();
        let file = private.dir().open_regular(&name("f")).unwrap().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn links_and_fifos_are_not_opened_as_regular_files() {
        let outer = tempfile::tempdir().unwrap();
        let private = PrivateDir::within(outer.path(), "test-").unwrap();
        fs::write(outer.path().join("other"), "other").unwrap();
        symlink(outer.path().join("other"), private.path().join("link")).unwrap();
        rustix::fs::mknodat(private.dir().as_fd(), "fifo", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        for kind in ["link", "fifo"] {
            assert!(private.dir().open_regular(&name(kind)).unwrap().is_none(), "{kind}");
        }
        let exists = private.dir().create_private(&name("link")).unwrap_err();
        assert_eq!(exists.errno(), Some(Errno::EXIST));
        private.remove().unwrap();
        assert!(outer.path().join("other").exists() && !private.path().exists());
    }
}
