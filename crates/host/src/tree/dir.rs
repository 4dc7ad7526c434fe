//! An open directory of the tree.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use obento_base::{Mode, Name, NameBuf, Timestamp};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, OFlags, Stat};
use rustix::io::Errno;

use super::DIRECTORY;
use super::staging::Staging;
use crate::handle::RESOLVE;
use crate::meta::ACL_DEFAULT;
use crate::{FileId, Metadata, Xattr};

/// Names that this run created in a directory, shared by its cursors.
pub(super) type Written = Arc<Mutex<HashSet<NameBuf>>>;

/// A directory in which entries are created.
pub(super) struct Dir {
    pub fd: OwnedFd,
    /// Whether this run created the directory. It is closed to other users until the cursor leaves it, so all
    /// its entries come from the source.
    pub fresh: bool,
    /// For a directory that is not fresh: the names that this run created in it. They distinguish duplicate names of
    /// the source from entries that existed before.
    written: Written,
    /// The group that the kernel gives to new entries.
    pub group: u32,
    /// Whether new entries inherit an ACL, which must be removed.
    pub default_acl: bool,
    /// Whether other users can exchange its entries, or could exchange this directory for another one.
    pub is_shared: bool,
    /// Where entries are created if other users can exchange the entries of this one.
    staging: OnceLock<Option<Staging>>,
}

impl Dir {
    /// Creates a directory from `fd` with status `stat`. `process_group` is the group of new files unless the
    /// directory defines another one.
    pub fn new(
        fd: OwnedFd,
        stat: &Stat,
        (fresh, is_shared): (bool, bool),
        written: Written,
        process_group: u32,
    ) -> Self {
        let set_gid = stat.st_mode & u32::from(Mode::SET_GID.bits()) != 0;
        let default_acl = !fresh && has_default_acl(&fd);
        let group = if set_gid { stat.st_gid } else { process_group };
        Self { fd, fresh, written, group, default_acl, is_shared, staging: OnceLock::new() }
    }

    /// Creates the directory `name`, and opens it unless the name is in use. Returns `None` if it was created, but has
    /// to be opened by its name. Fails with `EXIST` if the name is in use.
    pub fn create_directory(&self, name: &Name) -> Result<Option<OwnedFd>, Errno> {
        if let Some(staging) = self.staging_for(name) {
            match staging.create(name) {
                // The file system or the sandbox does not move directories.
                Err(Errno::INVAL | Errno::XDEV | Errno::NOSYS | Errno::PERM) => {}
                created => return created.map(Some),
            }
        }
        rustix::fs::mkdirat(&self.fd, name.as_bytes(), rustix::fs::Mode::RWXU).map(|()| None)
    }

    /// Creates the link or node `name` with `make`, which receives a directory and a name in it. Returns a handle of the
    /// entry, or `None` if it has to be opened by its name. Fails with `EXIST` if the name is in use.
    pub fn create_other(
        &self,
        name: &Name,
        make: impl Fn(BorrowedFd<'_>, &Name) -> Result<(), Errno>,
    ) -> Result<Option<OwnedFd>, Errno> {
        if let Some(staging) = self.staging_for(name) {
            match staging.create_other(name, &make) {
                // The file system or the sandbox does not move entries.
                Err(Errno::INVAL | Errno::XDEV | Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP) => {}
                created => return created.map(Some),
            }
        }
        make(self.fd.as_fd(), name).map(|()| None)
    }

    /// Returns the directory for creating `name`, if other users can exchange the entries of this one.
    fn staging_for(&self, name: &Name) -> Option<&Staging> {
        let is_used = || rustix::fs::statat(&self.fd, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if !self.is_shared || is_used() {
            return None;
        }
        self.staging.get_or_init(|| Staging::new(&self.fd).ok().flatten()).as_ref()
    }

    pub fn note_written(&self, name: &Name) {
        if !self.fresh {
            self.written.lock().insert(name.to_buf());
        }
    }

    /// Returns whether this run created the existing entry `name`.
    pub fn was_written(&self, name: &Name) -> bool {
        self.fresh || self.written.lock().contains(name)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn has_default_acl(fd: &OwnedFd) -> bool {
    rustix::fs::fgetxattr_query(fd, ACL_DEFAULT).is_ok_and(|len| len > 0)
}

/// A directory between the root of a cursor and its current directory.
pub(super) struct Level {
    /// The name in the parent, or `None` for the cursor's root.
    pub name: Option<NameBuf>,
    pub id: FileId,
    /// `None` while it is closed because many deeper ones are open.
    pub dir: Option<Arc<Dir>>,
    /// The value of [`Dir`], kept while that is closed.
    pub fresh: bool,
    /// The value of [`Dir`], kept while that is closed.
    pub is_shared: bool,
    /// The value of [`Dir`], kept while that is closed.
    pub written: Written,
    /// The original owner and group.
    pub owner: (u32, u32),
    /// The metadata to set when the cursor leaves it.
    pub meta: Option<OwnedMetadata>,
}

/// [`Metadata`] that is set when a directory is left.
pub(super) struct OwnedMetadata {
    mode: Mode,
    uid: u32,
    gid: u32,
    times: [Timestamp; 3],
    xattrs: Vec<Xattr>,
}

impl OwnedMetadata {
    pub fn new(meta: &Metadata<'_>) -> Self {
        Self {
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            times: [meta.atime, meta.mtime, meta.ctime],
            xattrs: meta.xattrs.to_vec(),
        }
    }

    pub fn get(&self) -> Metadata<'_> {
        let [atime, mtime, ctime] = self.times;
        Metadata { mode: self.mode, uid: self.uid, gid: self.gid, atime, mtime, ctime, xattrs: &self.xattrs }
    }
}

/// Opens `name` in `dir`, without following a symbolic link and without leaving `dir`.
pub(super) fn open_at(dir: impl AsFd, name: &Name, flags: OFlags, mode: u16) -> Result<OwnedFd, Errno> {
    // A sandbox allows openat2(2) for handles only, so handles do not use this flag.
    static HAS_OPENAT2: AtomicBool = AtomicBool::new(true);
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::from_raw_mode(mode.into());
    if HAS_OPENAT2.load(Ordering::Relaxed) {
        match rustix::fs::openat2(&dir, name.as_bytes(), flags, mode, RESOLVE) {
            // Linux before 5.6, or a container that refuses unknown calls.
            Err(Errno::NOSYS | Errno::PERM) => HAS_OPENAT2.store(false, Ordering::Relaxed),
            result => return result,
        }
    }
    rustix::fs::openat(&dir, name.as_bytes(), flags, mode)
}

/// Opens the parent of `dir` and checks that it is `expected`, so that a moved directory does no harm.
pub(crate) fn open_parent(dir: impl AsFd, expected: FileId) -> Result<(OwnedFd, Stat), Errno> {
    let fd = rustix::fs::openat(dir, "..", DIRECTORY, rustix::fs::Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if FileId::of(&stat) == expected { Ok((fd, stat)) } else { Err(Errno::STALE) }
}
