//! Creating directories, links and nodes where no other user can exchange them.
//!
//! Between the creation and `openat`, a user who may write to the parent can give the new name to another entry, which
//! would then get the owner and the mode of the source. In such a parent, an entry is created and opened in a
//! directory that only this process can use, and then moved to its name. Its metadata is set by descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use obento_base::{Name, NameBuf};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::dir::open_at;
use crate::handle::{self, HandleOf};
use crate::owner::is_own;

/// Permission bits of users other than the owner.
const OTHERS: u32 = 0o077;

/// Returns whether the directory `fd` can be one that this process has just created. Only an empty directory without rights
/// for other users can be mistaken for it.
pub(super) fn is_as_created(fd: &OwnedFd, stat: &Stat) -> bool {
    let is_empty = || {
        let mut entries = rustix::fs::Dir::read_from(fd).into_iter().flatten().flatten();
        entries.all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    };
    is_own(stat) && stat.st_mode & OTHERS == 0 && stat.st_nlink <= 2 && is_empty()
}

/// A directory without rights for other users in a directory that other users can change. It is removed when this value
/// is dropped.
pub(super) struct Staging {
    parent: OwnedFd,
    name: NameBuf,
    fd: OwnedFd,
    created: AtomicU64,
}

impl Staging {
    /// Creates it in `parent`. Returns `None` if the file system does not store owners and modes.
    pub(super) fn new(parent: impl AsFd) -> Result<Option<Self>, Errno> {
        let parent = rustix::io::fcntl_dupfd_cloexec(parent, 0)?;
        let name = Self::unused_name(&parent)?;
        let fd = open_at(&parent, &name, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        let stat = rustix::fs::fstat(&fd)?;
        let is_private = is_own(&stat) && stat.st_mode & OTHERS == 0;
        let this = Self { parent, name, fd, created: AtomicU64::new(0) };
        Ok(is_private.then_some(this))
    }

    /// Creates a directory with a new name in `parent`, and returns the name.
    fn unused_name(parent: &OwnedFd) -> Result<NameBuf, Errno> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!(".obento-new-{}-{number}", std::process::id());
            match rustix::fs::mkdirat(parent, &*name, Mode::RWXU) {
                Ok(()) => return Ok(Name::new(name.as_bytes()).map_err(|_| Errno::INVAL)?.to_buf()),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Creates the directory `name` in the parent. Fails with `EXIST` if the name is in use.
    pub(super) fn create(&self, name: &Name) -> Result<OwnedFd, Errno> {
        let own = self.next_name()?;
        rustix::fs::mkdirat(&self.fd, own.as_bytes(), Mode::RWXU)?;
        let moved = open_at(&self.fd, &own, OFlags::RDONLY | OFlags::DIRECTORY, 0).and_then(|fd| {
            let (from, to) = (own.as_bytes(), name.as_bytes());
            match rustix::fs::renameat_with(&self.fd, from, &self.parent, to, RenameFlags::NOREPLACE) {
                // NFS and many FUSE servers. Only an empty directory could be replaced.
                Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(&self.fd, from, &self.parent, to)?,
                moved => moved?,
            }
            Ok(fd)
        });
        moved.inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&self.fd, own.as_bytes(), AtFlags::REMOVEDIR);
        })
    }

    /// Creates a link or node with `make`, which receives a directory and a name in it. Moves the entry to `name` in the
    /// parent, and returns a handle of it. Fails with `EXIST` if the name is in use.
    pub(super) fn create_other(
        &self,
        name: &Name,
        make: impl Fn(BorrowedFd<'_>, &Name) -> Result<(), Errno>,
    ) -> Result<OwnedFd, Errno> {
        let own = self.next_name()?;
        make(self.fd.as_fd(), &own)?;
        let handle = handle::open(&self.fd, own.as_bytes(), HandleOf::Any);
        let moved = handle.and_then(|handle| self.move_other(&own, name).map(|()| handle));
        moved.inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&self.fd, own.as_bytes(), AtFlags::empty());
        })
    }

    /// Moves a link or node to `name` in the parent, and replaces no entry there.
    fn move_other(&self, own: &Name, name: &Name) -> Result<(), Errno> {
        let (from, to) = (own.as_bytes(), name.as_bytes());
        match rustix::fs::renameat_with(&self.fd, from, &self.parent, to, RenameFlags::NOREPLACE) {
            // NFS and many FUSE servers.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(&self.fd, from, &self.parent, to, AtFlags::empty())?;
                rustix::fs::unlinkat(&self.fd, from, AtFlags::empty())
            }
            moved => moved,
        }
    }

    /// Returns an unused name for an entry of this directory.
    fn next_name(&self) -> Result<NameBuf, Errno> {
        let number = self.created.fetch_add(1, Ordering::Relaxed).to_string();
        Name::new(number.as_bytes()).map(Name::to_buf).map_err(|_| Errno::INVAL)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // If another user has exchanged it, an empty directory is removed in its place, or nothing.
        let _ = rustix::fs::unlinkat(&self.parent, self.name.as_bytes(), AtFlags::REMOVEDIR);
    }
}
