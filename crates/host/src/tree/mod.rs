//! Writes a directory tree of the host from hostile input.
//!
//! Invariant: every name passed to the kernel is a single [`Name`], which is looked up in
//! an open directory without following a symbolic link. So no file outside the root can be reached, whatever
//! the source contains and whichever process moves directories meanwhile. (`openat2` with `RESOLVE_BENEATH |
//! RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`. If the kernel lacks it, `openat` with `O_NOFOLLOW`, which is
//! equivalent for a single component.)
//! Invariant: a directory created here is closed to other users until the cursor leaves it, and a file until its owner
//! is set. No other user can read or replace incomplete entries.
//! Invariant: in a directory that other users can change, metadata is set only on entries that this run created, and by a
//! descriptor of the creation. An existing entry there may be one of any user, which was given the name.
//! Invariant: metadata is set in the order owner, user attributes, mode, other attributes, times, because each step
//! resets a later one. A change of owner clears set-user-ID and capabilities.
//!
//! A thread may write the bytes of small files later ([`TreeWriter::behind`]). A property that cannot be kept, such as
//! an owner without the right to change it, is not an error. The [`Report`] counts it.

mod apply;
mod backup;
mod cursor;
mod dir;
mod later;
mod links;
mod options;
mod place;
mod replaced;
mod sink;
mod staging;

pub use backup::Backup;
pub use cursor::TreeWriter;
pub(crate) use dir::open_parent;
pub use links::LinkKey;
pub use options::{Existing, Keep, Loss, Lost, NewMode, Report, TreeOptions, Trust, Written};

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use obento_base::wire::to_u64;
use obento_base::{Name, NameBuf};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use crate::{FileId, HostError, Xattr};
use links::LinkTable;

/// The state that all cursors of one tree share.
struct Shared {
    options: TreeOptions,
    root_fd: OwnedFd,
    creator: Creator,
    links: Mutex<LinkTable>,
    /// The report of finished cursors.
    report: Mutex<Report>,
    /// Bytes of data and of extended attributes so far, for the limit.
    bytes: AtomicU64,
    /// Entries so far, for the limit.
    files: AtomicU64,
    /// Cleared by the first refusal, so that a process without the right to change owners tries once and not
    /// for each file.
    may_chown: AtomicBool,
    /// Cleared by the first refusal: the two files are on file systems that cannot copy between each other.
    may_copy_range: AtomicBool,
    /// Files that the source is read from. They are never removed to make room.
    spared: Vec<FileId>,
    made: CreatedEntries,
}

/// The entries that this run created, to distinguish them from existing ones: the file system may treat two
/// names as the same.
#[derive(Default)]
struct CreatedEntries {
    /// Inodes in directories that existed before, and in others if those may be entered again.
    inodes: Mutex<HashSet<FileId>>,
    /// Directories in directories that other users can change, and their names. Each was identified by a descriptor that
    /// no other user could exchange.
    directories: Mutex<HashMap<FileId, NameBuf>>,
    /// Whether a directory that was created and left may be entered again, for another source.
    returns: bool,
}

/// The user and group of new files.
struct Creator {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    umask: u16,
}

impl Creator {
    fn of_process() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(|gid| gid.as_raw()).collect(),
            umask: umask_of_process(),
        }
    }

    fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The umask before the process dropped the right to query it.
static UMASK: OnceLock<u16> = OnceLock::new();

/// Queries values that a sandboxed process cannot find out.
pub(crate) fn before_sandbox() {
    let _ = UMASK.set(umask_of_process());
    // Without handles, links and nodes are reported.
    let _ = crate::handle::addresses();
}

/// Returns the umask of this process. Works in a sandbox too.
pub fn umask() -> u16 {
    umask_of_process()
}

/// Returns the umask. `umask(2)` would change it for a moment in all threads. It is therefore only used without
/// `/proc`, and then with a umask that grants no permissions.
fn umask_of_process() -> u16 {
    umask_in_proc().or_else(|| UMASK.get().copied()).unwrap_or_else(|| {
        let umask = rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
        rustix::process::umask(umask);
        (umask.bits() & 0o777) as u16
    })
}

fn umask_in_proc() -> Option<u16> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u16::from_str_radix(line.trim(), 8).ok()
}

impl Shared {
    /// Returns whether this run created the inode `id`.
    fn was_made(&self, id: FileId) -> bool {
        self.made.inodes.lock().contains(&id)
    }

    /// Returns whether this run created the directory `id` as `name`, and no other user gave this name to it.
    fn has_made(&self, id: FileId, name: &Name) -> bool {
        self.made.directories.lock().get(&id).is_some_and(|made| **made == *name)
    }

    /// Counts one more entry. Fails with `FileLimit`.
    fn take_file(&self, path: impl FnOnce() -> PathBuf) -> Result<(), HostError> {
        let limit = self.options.max_files;
        match self.files.fetch_add(1, Ordering::Relaxed) < limit {
            true => Ok(()),
            false => Err(HostError::FileLimit { path: path(), limit }),
        }
    }

    /// Uncounts an entry that was not created.
    fn return_file(&self) {
        self.files.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts `len` more bytes. Returns whether the limit allows them.
    fn take(&self, len: u64) -> bool {
        let before = self.bytes.fetch_add(len, Ordering::Relaxed);
        before.checked_add(len).is_some_and(|total| total <= self.options.max_bytes)
    }

    /// Counts the extended attributes that are set with `keep`. They can be longer than the data. Fails with `Limit`.
    fn take_xattrs(
        &self,
        xattrs: &[Xattr],
        keep: Keep,
        path: impl FnOnce() -> PathBuf,
    ) -> Result<(), HostError> {
        let set = xattrs.iter().filter(|xattr| self.options.sets(xattr, keep));
        let len = set.map(|xattr| to_u64(xattr.name.len() + xattr.value.len())).sum();
        let limit = self.options.max_bytes;
        if len == 0 || self.take(len) { Ok(()) } else { Err(HostError::Limit { path: path(), limit }) }
    }
}

/// Flags of every directory that is opened.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests;
