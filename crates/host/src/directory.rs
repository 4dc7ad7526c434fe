//! Directories of the host that are resolved once and used by descriptor afterwards.
//!
//! Another user may be able to change a directory that a path leads through. A path that is resolved again
//! may lead elsewhere, and a symbolic link of that user may lead anywhere.
//! Invariant: a component of a path is looked up once, in the open directory.
//! Invariant: a symbolic link is followed only if root or the user of this process [controls](crate::owner) it. The
//! idea is that of the sysctl `fs.protected_symlinks` of proc_sys_fs(5), for all directories.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::{Name, NameBuf};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::handle::{self, HandleOf};
use crate::owner::{is_trusted, system_of};
use crate::removal::remove;
use crate::{CopiedEntries, FileId, HostError};

/// The most links in one path. Source: include/linux/namei.h `MAXSYMLINKS`.
const LINKS_MAX: usize = 40;
/// `PROC_SUPER_MAGIC` of include/uapi/linux/magic.h.
const PROC: u64 = 0x9fa0;
/// `PIPEFS_MAGIC` of linux/magic.h: the file system of pipes without a name.
const PIPE: u64 = 0x5049_5045;

const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory of the host.
#[derive(Clone, Debug)]
pub struct HostDir {
    /// Opened with `O_PATH`: a directory in which files are created need not be readable.
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

/// The result of resolving a path.
enum Found {
    Directory(HostDir),
    /// Not a directory: a handle of the file.
    File(OwnedFd),
}

impl HostDir {
    /// Opens the directory `path`. Fails with `NotDirectory`, `ForeignLink` or `System`.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        match Walk::new(path)?.resolve()? {
            Found::Directory(dir) => Ok(dir),
            Found::File(_) => Err(HostError::system("open", path, Errno::NOTDIR)),
        }
    }

    /// Opens the directory that contains the last component of `path`, and returns that component. Fails as
    /// [`open`](Self::open) does, and with `System` and EINVAL if the path ends in `.`, `..` or the root.
    pub fn open_parent(path: &Path) -> Result<(Self, NameBuf), HostError> {
        let nameless = || HostError::system("find", path, Errno::INVAL);
        let bytes = path.as_os_str().as_bytes();
        let end = bytes.iter().rposition(|&byte| byte != b'/').ok_or_else(nameless)?;
        let (parent, name) = match bytes[..=end].iter().rposition(|&byte| byte == b'/') {
            Some(0) => (&b"/"[..], &bytes[1..=end]),
            Some(slash) => (&bytes[..slash], &bytes[slash + 1..=end]),
            None => (&b"."[..], &bytes[..=end]),
        };
        let name = Name::new(name).map_err(|_| nameless())?.to_buf();
        Ok((Self::open(Path::new(OsStr::from_bytes(parent)))?, name))
    }

    /// Returns the path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the entry `name`, for messages.
    pub fn child(&self, name: &Name) -> PathBuf {
        match self.path.as_os_str().as_bytes() {
            b"." => PathBuf::from(OsStr::from_bytes(name.as_bytes())),
            _ => self.path.join(OsStr::from_bytes(name.as_bytes())),
        }
    }

    /// Opens the subdirectory `name`, or the directory that a link of this name leads to. Fails as
    /// [`open`](Self::open) does.
    pub fn enter(&self, name: &Name) -> Result<Self, HostError> {
        let path = self.child(name);
        match Walk::within(self, name, &path)?.resolve()? {
            Found::Directory(dir) => Ok(dir),
            Found::File(_) => Err(HostError::system("open", path, Errno::NOTDIR)),
        }
    }

    /// Creates the subdirectory `name`, and opens it. Fails with `System`, also if the name exists, and with
    /// `Changed` if another process exchanged it for a directory that is not empty.
    pub fn make_directory(&self, name: &Name) -> Result<Self, HostError> {
        let path = self.child(name);
        let failed = |errno| HostError::system("create", &path, errno);
        rustix::fs::mkdirat(&*self.fd, name.as_bytes(), Mode::from_raw_mode(0o777)).map_err(failed)?;
        let dir = self.enter_directory(name)?;
        // A umask may not permit to list it.
        let is_empty = dir.names().map_or(true, |names| names.is_empty());
        if is_empty { Ok(dir) } else { Err(HostError::Changed { path }) }
    }

    /// Opens the subdirectory `name`, which is no link. Fails with `System`, with ENOTDIR for a link.
    pub fn enter_directory(&self, name: &Name) -> Result<Self, HostError> {
        let path = self.child(name);
        let opened = handle::open(&*self.fd, name.as_bytes(), HandleOf::Directory);
        let fd = opened.map_err(|errno| HostError::system("open", &path, errno))?;
        Ok(Self { fd: Arc::new(fd), path })
    }

    /// Returns a handle (`O_PATH`) of the file that `name` leads to. Fails as [`open`](Self::open) does.
    pub fn handle(&self, name: &Name) -> Result<OwnedFd, HostError> {
        match Walk::within(self, name, &self.child(name))?.resolve()? {
            Found::File(handle) => Ok(handle),
            Found::Directory(dir) => rustix::io::fcntl_dupfd_cloexec(&*dir.fd, 0)
                .map_err(|errno| HostError::system("open", self.child(name), errno)),
        }
    }

    /// Opens `name` for writing, as [`open_output`] does.
    pub fn open_output(&self, name: &Name, mode: u16) -> Result<File, HostError> {
        let path = self.child(name);
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = flags | OFlags::CREATE | OFlags::EXCL;
        match rustix::fs::openat(&*self.fd, name.as_bytes(), flags, Mode::from_raw_mode(mode.into())) {
            Err(Errno::EXIST) => open_existing_output(&self.handle(name)?, &path),
            created => created.map(File::from).map_err(|errno| HostError::system("open", path, errno)),
        }
    }

    /// Opens `name` for reading, as [`open_existing_input`] does. Fails also with `ForeignLink`.
    pub fn open_input(&self, name: &Name) -> Result<File, HostError> {
        open_existing_input(self.handle(name)?, &self.child(name))
    }

    /// Returns the status of `name`, without following a link, or `None` if the name does not exist. Fails with
    /// `System`.
    pub fn stat(&self, name: &Name) -> Result<Option<Stat>, HostError> {
        match rustix::fs::statat(&*self.fd, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(HostError::system("examine", self.child(name), errno)),
        }
    }

    /// Opens the directory for reading its entries. Fails with `System`.
    pub fn to_readable(&self) -> Result<OwnedFd, HostError> {
        rustix::fs::openat(&*self.fd, ".", DIRECTORY, Mode::empty())
            .map_err(|errno| HostError::system("open", &self.path, errno))
    }

    /// Returns the names of the entries. Fails with `System`.
    pub fn names(&self) -> Result<Vec<Vec<u8>>, HostError> {
        let failed = |errno| HostError::system("list", &self.path, errno);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(self.to_readable()?).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name().to_bytes().to_vec());
        }
        names.retain(|name| !matches!(&name[..], b"." | b".."));
        Ok(names)
    }

    /// Renames the entry `from` to `name` in `to`, and replaces an existing file there. Fails with `System`.
    pub fn rename(&self, from: &Name, to: &Self, name: &Name) -> Result<(), HostError> {
        let flags = RenameFlags::empty();
        rustix::fs::renameat_with(&*self.fd, from.as_bytes(), &*to.fd, name.as_bytes(), flags)
            .map_err(|errno| HostError::system("rename", self.child(from), errno))
    }

    /// Removes the file `name`, which this process created with the identity `id`. Another file that has the name by
    /// now stays. A directory is never removed. Fails with `System`.
    pub fn remove_created(&self, name: &Name, id: FileId) -> Result<(), HostError> {
        if self.stat(name)?.is_none_or(|stat| FileId::of(&stat) != id) {
            return Ok(());
        }
        crate::hook::run();
        self.remove_file(name)
    }

    /// Removes the file `name`, which is no directory. Fails with `System`.
    pub fn remove_file(&self, name: &Name) -> Result<(), HostError> {
        rustix::fs::unlinkat(&*self.fd, name.as_bytes(), AtFlags::empty())
            .map_err(|errno| HostError::system("remove", self.child(name), errno))
    }

    /// Removes `name` with everything below it, without following links. Only for a directory whose entries no other
    /// user can exchange. Continues after an error, and returns the first. Fails with `System`.
    pub fn remove(&self, name: &Name) -> Result<(), HostError> {
        remove(&self.fd, name, None).map_err(|errno| HostError::system("remove", self.child(name), errno))
    }

    /// Removes `name` with everything below it that is in `copied` and has not changed since. Continues after an
    /// error, and returns the first. Fails with `System`, with ESTALE if an entry remains because it was added or has
    /// changed, whatever the first error is.
    ///
    /// An entry is examined in its open directory directly before it is removed by its name there. Linux removes no
    /// file by descriptor, so a process that may change the directory can exchange the entry between these two calls.
    /// It then loses a file that it could have removed itself.
    pub fn remove_copied(&self, name: &Name, copied: &CopiedEntries) -> Result<(), HostError> {
        remove(&self.fd, name, Some(copied))
            .map_err(|errno| HostError::system("remove", self.child(name), errno))
    }

    /// Brings the directory's file system to stable storage. Fails with `System`.
    pub fn sync(&self) -> Result<(), HostError> {
        let failed = |errno| HostError::system("synchronize", &self.path, errno);
        rustix::fs::syncfs(self.to_readable()?).map_err(failed)
    }
}

impl AsFd for HostDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens `path` for writing, and creates it with `mode` if it does not exist. An existing file keeps its bytes. Fails
/// with `ForeignLink`, `ForeignFifo` or `System`.
pub fn open_output(path: &Path, mode: u16) -> Result<File, HostError> {
    let (dir, name) = HostDir::open_parent(path)?;
    dir.open_output(&name, mode)
}

/// Opens the file of `handle`, which has the path `path`, for writing.
///
/// An opened FIFO waits for a reader, and a full one waits until the reader continues. A FIFO with a name therefore
/// counts only if it belongs to root or to the user of this process, as with `fs.protected_fifos` of Linux, but in all
/// directories. A pipe without a name, such as `/dev/stdout`, comes from the process that started this one.
///
/// # Errors
///
/// - ForeignFifo
/// - System
pub fn open_existing_output(handle: impl AsFd, path: &Path) -> Result<File, HostError> {
    let failed = |errno| HostError::system("open", path, errno);
    let stat = rustix::fs::fstat(&handle).map_err(failed)?;
    if is_foreign_fifo(&handle, &stat) {
        return Err(HostError::ForeignFifo { path: path.into() });
    }
    reopen(handle, OFlags::WRONLY).map_err(failed)
}

/// Opens `path` for reading, following symbolic links. Fails as [`open_existing_input`] does.
pub fn open_input(path: &Path) -> Result<File, HostError> {
    // A handle waits for no other process.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(CWD, path, flags, Mode::empty());
    open_existing_input(handle.map_err(|errno| HostError::system("open", path, errno))?, path)
}

/// Opens the file of `handle`, which has the path `path`, for reading.
///
/// An opened FIFO waits for a writer, and a terminal waits for its user. Another user could therefore stop this process
/// for as long as he likes. For FIFOs, see [`open_existing_output`]. A terminal that is the standard input comes from
/// the process that started this one.
///
/// # Errors
///
/// - ForeignFifo
/// - ForeignDevice
/// - System
pub fn open_existing_input(handle: impl AsFd, path: &Path) -> Result<File, HostError> {
    let failed = |errno| HostError::system("open", path, errno);
    let stat = rustix::fs::fstat(&handle).map_err(failed)?;
    if is_foreign_fifo(&handle, &stat) {
        return Err(HostError::ForeignFifo { path: path.into() });
    }
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    let is_input = || {
        rustix::fs::fstat(rustix::stdio::stdin()).is_ok_and(|input| FileId::of(&input) == FileId::of(&stat))
    };
    if is_device && !is_trusted(&handle, &stat) && !is_input() {
        return Err(HostError::ForeignDevice { path: path.into() });
    }
    reopen(handle, OFlags::RDONLY).map_err(failed)
}

/// Returns whether the file is a FIFO with a name that neither root nor the user of this process controls.
fn is_foreign_fifo(handle: impl AsFd, stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Fifo
        && !is_trusted(&handle, stat)
        && system_of(&handle) != Some(PIPE)
}

/// Opens the file of `handle` with `flags`, even if another file has its name by now. Fails with the errors of
/// open(2).
pub fn reopen(handle: impl AsFd, flags: OFlags) -> Result<File, Errno> {
    let path = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    // Uses openat(2), which a sandbox allows.
    rustix::fs::openat(CWD, path, flags | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).map(File::from)
}

/// A path that is being resolved.
struct Walk<'p> {
    at: OwnedFd,
    rest: VecDeque<Vec<u8>>,
    links: usize,
    /// The whole path, for messages.
    path: &'p Path,
}

impl<'p> Walk<'p> {
    fn new(path: &'p Path) -> Result<Self, HostError> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return Err(HostError::system("open", path, Errno::NOENT));
        }
        let start = if bytes.starts_with(b"/") { "/" } else { "." };
        let at = open_start(CWD, start).map_err(|errno| HostError::system("open", path, errno))?;
        Ok(Self { at, rest: components(bytes).collect(), links: 0, path })
    }

    /// Starts at `name` in `dir`.
    fn within(dir: &HostDir, name: &Name, path: &'p Path) -> Result<Self, HostError> {
        let at = rustix::io::fcntl_dupfd_cloexec(&*dir.fd, 0);
        let at = at.map_err(|errno| HostError::system("open", path, errno))?;
        Ok(Self { at, rest: [name.as_bytes().to_vec()].into(), links: 0, path })
    }

    fn resolve(mut self) -> Result<Found, HostError> {
        let path = self.path;
        let failed = |errno| HostError::system("open", path, errno);
        while let Some(name) = self.rest.pop_front() {
            let next = handle::open(&self.at, &name, HandleOf::Any).map_err(failed)?;
            let stat = rustix::fs::fstat(&next).map_err(failed)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.at = next,
                FileType::Symlink => {
                    if let Some(found) = self.follow(&name, &next, &stat)? {
                        return Ok(found);
                    }
                }
                _ if self.rest.is_empty() => return Ok(Found::File(next)),
                _ => return Err(failed(Errno::NOTDIR)),
            }
        }
        Ok(Found::Directory(HostDir { fd: Arc::new(self.at), path: path.into() }))
    }

    /// Follows `link`, whose name is `name`. Returns the file for a link that has no path.
    fn follow(&mut self, name: &[u8], link: &OwnedFd, stat: &Stat) -> Result<Option<Found>, HostError> {
        let path = self.path;
        let failed = |errno| HostError::system("open", path, errno);
        if !is_trusted(link, stat) {
            return Err(HostError::ForeignLink { path: self.path.into() });
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(failed(Errno::LOOP));
        }
        // A link to a descriptor of a process leads to the file itself, not to a path.
        let is_magic = system_of(link) == Some(PROC);
        if is_magic && name.iter().all(u8::is_ascii_digit) {
            let flags = HANDLE.difference(OFlags::NOFOLLOW);
            let next = rustix::fs::openat(&self.at, name, flags, Mode::empty()).map_err(failed)?;
            let stat = rustix::fs::fstat(&next).map_err(failed)?;
            return match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    self.at = next;
                    Ok(None)
                }
                _ if self.rest.is_empty() => Ok(Some(Found::File(next))),
                _ => Err(failed(Errno::NOTDIR)),
            };
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new()).map_err(failed)?.into_bytes();
        if target.starts_with(b"/") {
            self.at = open_start(CWD, "/").map_err(failed)?;
        }
        let rest = std::mem::take(&mut self.rest);
        self.rest = components(&target).chain(rest).collect();
        Ok(None)
    }
}

fn open_start(at: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, path, HANDLE | OFlags::DIRECTORY, Mode::empty())
}

/// Returns the components of `path`. A slash at its end requires a directory, like `.`.
fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    parts.map(<[u8]>::to_vec).chain(path.ends_with(b"/").then(|| b".".to_vec()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Write};
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn name(text: &str) -> NameBuf {
        Name::new(text.as_bytes()).unwrap().to_buf()
    }

    /// Creates a folder with a directory `ours` and a directory `victim`, which contains a file.
    fn two() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let [ours, victim] = ["ours", "victim"].map(|name| folder.path().join(name));
        [&ours, &victim].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        fs::write(victim.join("file"), "precious").unwrap();
        (folder, ours, victim)
    }

    /// Another user replaces `ours` by a link to the victim.
    fn exchange(ours: &Path, victim: &Path) {
        fs::rename(ours, ours.with_extension("old")).unwrap();
        symlink(victim, ours).unwrap();
    }

    #[test]
    fn a_directory_that_was_followed_is_used_whatever_takes_its_place() {
        let (_folder, ours, victim) = two();
        fs::write(ours.join("new"), "new").unwrap();
        let (dir, file) = HostDir::open_parent(&ours.join("file")).unwrap();
        exchange(&ours, &victim);
        assert!(dir.stat(&file).unwrap().is_none());
        dir.rename(&name("new"), &dir, &file).unwrap();
        assert_eq!(dir.names().unwrap(), [b"file"]);
        dir.remove(&file).unwrap();
        assert_eq!(fs::read(victim.join("file")).unwrap(), b"precious");
    }

    #[test]
    fn the_file_that_was_examined_is_the_one_that_is_written() {
        let (_folder, ours, victim) = two();
        fs::write(ours.join("file"), "").unwrap();
        let (dir, file) = HostDir::open_parent(&ours.join("file")).unwrap();
        let handle = dir.handle(&file).unwrap();
        fs::remove_file(ours.join("file")).unwrap();
        symlink(victim.join("file"), ours.join("file")).unwrap();
        reopen(&handle, OFlags::WRONLY).unwrap().write_all(b"bytes").unwrap();
        assert_eq!(fs::read(victim.join("file")).unwrap(), b"precious");
    }

    #[test]
    fn a_directory_that_takes_the_place_of_a_created_file_keeps_its_contents() {
        let (_folder, ours, victim) = two();
        fs::write(ours.join("new"), "").unwrap();
        let dir = HostDir::open(&ours).unwrap();
        let id = FileId::of(&dir.stat(&name("new")).unwrap().unwrap());
        let (new, kept) = (ours.join("new"), victim.join("file"));
        crate::hook::set(move || {
            fs::rename(&new, new.with_extension("moved")).unwrap();
            fs::rename(&victim, &new).unwrap();
        });
        assert_eq!(dir.remove_created(&name("new"), id).unwrap_err().errno(), Some(Errno::ISDIR));
        crate::hook::set(|| ());
        assert!(!kept.exists() && ours.join("new/file").exists());
        // Another file with the name stays, too.
        fs::rename(ours.join("new"), ours.join("victim")).unwrap();
        fs::write(ours.join("new"), "other").unwrap();
        dir.remove_created(&name("new"), id).unwrap();
        assert!(ours.join("new").exists());
        dir.remove_created(&name("new.moved"), id).unwrap();
        assert!(!ours.join("new.moved").exists());
    }

    #[test]
    fn a_directory_is_removed_with_its_contents_and_links_are_not_followed() {
        let (_folder, ours, victim) = two();
        fs::create_dir_all(ours.join("tree/a/b")).unwrap();
        fs::write(ours.join("tree/a/file"), "").unwrap();
        symlink(&victim, ours.join("tree/a/b/link")).unwrap();
        let dir = HostDir::open(&ours).unwrap();
        dir.remove(&name("tree")).unwrap();
        assert_eq!((dir.names().unwrap().len(), fs::read_dir(&victim).unwrap().count()), (0, 1));
    }

    #[test]
    fn a_tree_deeper_than_the_open_directories_is_removed_except_for_a_new_entry() {
        let (_folder, ours, _victim) = two();
        let mut deepest = ours.join("tree");
        for _ in 0..150 {
            deepest.push("d");
            fs::create_dir_all(deepest.join("sibling")).unwrap();
            fs::write(deepest.join("file"), "").unwrap();
        }
        let copied = CopiedEntries::default();
        for entry in crate::source::Walk::new(&ours).unwrap() {
            let entry = entry.unwrap();
            copied.add(entry.id(), entry.attr());
        }
        let added = deepest.join("sibling/new");
        fs::write(&added, "").unwrap();
        let dir = HostDir::open(&ours).unwrap();
        let error = dir.remove_copied(&name("tree"), &copied).unwrap_err();
        assert_eq!((error.errno(), added.exists()), (Some(Errno::STALE), true));
        let left = crate::source::Walk::new(&ours.join("tree")).unwrap();
        assert_eq!(left.filter(|entry| entry.as_ref().unwrap().path() != ours.join("tree")).count(), 152);
        fs::remove_file(added).unwrap();
        dir.remove_copied(&name("tree"), &copied).unwrap();
        assert!(dir.names().unwrap().is_empty());
    }

    #[test]
    fn only_what_was_copied_and_has_not_changed_is_removed() {
        let (_folder, ours, victim) = two();
        fs::create_dir_all(ours.join("tree/inner/deep")).unwrap();
        let paths = ["kept", "changed", "exchanged", "inner/kept", "inner/exchanged", "inner/deep/kept"];
        paths.iter().for_each(|path| fs::write(ours.join("tree").join(path), "copied").unwrap());
        fs::hard_link(ours.join("tree/kept"), ours.join("tree/again")).unwrap();
        symlink("kept", ours.join("tree/link")).unwrap();
        let dir = HostDir::open(&ours).unwrap();
        let copied = CopiedEntries::default();
        for entry in crate::source::Walk::new(&ours).unwrap() {
            let entry = entry.unwrap();
            copied.add(entry.id(), entry.attr());
        }
        fs::write(ours.join("tree/changed"), "after the copy").unwrap();
        fs::write(ours.join("tree/inner/new"), "after the copy").unwrap();
        fs::rename(victim.join("file"), ours.join("tree/exchanged")).unwrap();
        fs::rename(ours.join("tree/inner/exchanged"), victim.join("moved")).unwrap();
        fs::create_dir(ours.join("tree/inner/exchanged")).unwrap();
        let error = dir.remove_copied(&name("tree"), &copied).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::STALE));
        let left = crate::source::Walk::new(&ours.join("tree")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().path().display().to_string()).collect();
        let under = |path: &str| ours.join("tree").join(path).display().to_string();
        let kept = ["changed", "exchanged", "inner", "inner/exchanged", "inner/new"].map(under);
        assert_eq!(left[1..], kept);
        assert_eq!(fs::read(ours.join("tree/exchanged")).unwrap(), b"precious");
        // Without changes, everything is removed.
        let copied = CopiedEntries::default();
        for entry in crate::source::Walk::new(&ours).unwrap() {
            let entry = entry.unwrap();
            copied.add(entry.id(), entry.attr());
        }
        dir.remove_copied(&name("tree"), &copied).unwrap();
        assert_eq!(dir.names().unwrap().len(), 0);
    }

    #[test]
    fn links_of_root_and_of_this_user_are_followed_and_those_of_others_are_not() {
        let (_folder, ours, victim) = two();
        let link = ours.join("link");
        symlink("../victim", &link).unwrap();
        symlink("link", ours.join("again")).unwrap();
        symlink("loop", ours.join("loop")).unwrap();
        let found = HostDir::open_parent(&ours.join("again/file")).unwrap().0;
        assert!(found.stat(&name("file")).unwrap().is_some());
        assert_eq!(HostDir::open(&ours.join("loop")).unwrap_err().errno(), Some(Errno::LOOP));
        open_output(&ours.join("again/file"), 0o600).unwrap();
        if lchown(&link, Some(12345), None).is_err() {
            return println!("skipped: only root can change the owner of a symbolic link");
        }
        let is_foreign = |error| matches!(error, HostError::ForeignLink { .. });
        for path in ["link", "again", "link/", "link/.", "again/../ours/link"] {
            assert!(is_foreign(HostDir::open(&ours.join(path)).unwrap_err()), "{path}");
        }
        assert!(is_foreign(HostDir::open_parent(&ours.join("link/file")).unwrap_err()));
        assert!(is_foreign(HostDir::open(&ours).unwrap().enter(&name("link")).unwrap_err()));
        symlink(victim.join("file"), ours.join("out")).unwrap();
        lchown(ours.join("out"), Some(12345), None).unwrap();
        for path in ["out", "link/file", "link/new"] {
            assert!(is_foreign(open_output(&ours.join(path), 0o600).unwrap_err()), "{path}");
        }
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
    }

    #[test]
    fn a_fifo_of_another_user_is_no_output_and_a_pipe_is() {
        let (_folder, ours, _victim) = two();
        let fifo = ours.join("fifo");
        rustix::fs::mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o666)).unwrap();
        // With a reader, opening it does not wait.
        let reader = rustix::fs::open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        open_output(&fifo, 0o600).unwrap();
        let (_end, pipe) = rustix::pipe::pipe().unwrap();
        let named = PathBuf::from(format!("/proc/self/fd/{}", pipe.as_raw_fd()));
        open_output(&named, 0o600).unwrap();
        if rustix::fs::fchown(&pipe, Some(rustix::fs::Uid::from_raw(12345)), None).is_err() {
            return println!("skipped: only root can change the owner of a FIFO");
        }
        open_output(&named, 0o600).unwrap();
        drop(reader);
        lchown(&fifo, Some(12345), None).unwrap();
        assert!(matches!(open_output(&fifo, 0o600), Err(HostError::ForeignFifo { path }) if path == fifo));
    }

    #[test]
    fn a_fifo_of_another_user_is_no_input_and_a_pipe_is() {
        let (_folder, ours, _victim) = two();
        let fifo = ours.join("fifo");
        rustix::fs::mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o666)).unwrap();
        // With a writer, opening it does not wait.
        let writer = rustix::fs::open(&fifo, OFlags::RDWR, Mode::empty()).unwrap();
        rustix::io::write(&writer, b"bytes").unwrap();
        let mut bytes = [0; 5];
        open_input(&fifo).unwrap().read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"bytes");
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        let named = PathBuf::from(format!("/proc/self/fd/{}", pipe.as_raw_fd()));
        open_input(&named).unwrap();
        if rustix::fs::fchown(&pipe, Some(rustix::fs::Uid::from_raw(12345)), None).is_err() {
            return println!("skipped: only root can change the owner of a FIFO");
        }
        open_input(&named).unwrap();
        drop(writer);
        lchown(&fifo, Some(12345), None).unwrap();
        // Without a check, opening it would wait for a writer.
        assert!(matches!(open_input(&fifo), Err(HostError::ForeignFifo { path }) if path == fifo));
        let (dir, name) = HostDir::open_parent(&fifo).unwrap();
        assert!(matches!(dir.open_input(&name), Err(HostError::ForeignFifo { .. })));
        let dir = crate::source::SourceDir::open_to_search(&ours).unwrap();
        assert!(matches!(dir.open_named("fifo".as_ref()), Err(HostError::ForeignFifo { .. })));
    }

    #[test]
    fn a_device_of_another_user_is_no_input_and_one_of_root_is() {
        let (_folder, ours, _victim) = two();
        open_input(Path::new("/dev/null")).unwrap();
        let device = ours.join("device");
        let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
        // The numbers of /dev/zero.
        if rustix::fs::mknodat(CWD, &device, kind, mode, rustix::fs::makedev(1, 5)).is_err()
            || lchown(&device, Some(12345), None).is_err()
        {
            return println!("skipped: only root can create a device");
        }
        assert!(matches!(open_input(&device), Err(HostError::ForeignDevice { path }) if path == device));
    }

    #[test]
    fn paths_end_as_the_kernel_says() {
        let (_folder, ours, _victim) = two();
        for path in ["/", "/.", "..", "."] {
            assert!(HostDir::open(Path::new(path)).is_ok(), "{path}");
            assert_eq!(
                HostDir::open_parent(Path::new(path)).unwrap_err().errno(),
                Some(Errno::INVAL),
                "{path}"
            );
        }
        assert_eq!(HostDir::open(Path::new("")).unwrap_err().errno(), Some(Errno::NOENT));
        let (dir, last) = HostDir::open_parent(&ours.join("x//")).unwrap();
        assert_eq!((last.as_bytes(), dir.child(&last)), (&b"x"[..], ours.join("x")));
        assert_eq!(HostDir::open_parent(Path::new("x")).unwrap().0.child(&last), Path::new("x"));
        fs::write(ours.join("file"), "").unwrap();
        assert_eq!(HostDir::open(&ours.join("file/")).unwrap_err().errno(), Some(Errno::NOTDIR));
        let open = File::open(ours.join("file")).unwrap();
        let magic = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        assert!(open_output(&magic, 0o600).is_ok());
    }
}
