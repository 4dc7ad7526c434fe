//! Writing a directory tree of the host from hostile input.
//!
//! Invariant: every name handed to the kernel is one [`Name`](obento_base::Name), looked up in a directory that is already open, without
//! following a symbolic link; so nothing outside the root can be reached, whatever the source says and whoever swaps
//! directories meanwhile. (`openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`; where the
//! kernel lacks it `openat` with `O_NOFOLLOW`, which for a single component means the same.)
//! Invariant: a directory made here is closed to others until it is left, and a file until its owner is set, so that
//! nobody reads or swaps what is half done.
//! Invariant: metadata is set in the order owner, attributes of users, mode, other attributes, times, because each of
//! these resets one that follows: a change of owner clears set-user-ID and capabilities.
//!
//! Bytes of small files may be written by a thread, a little later ([`TreeWriter::behind`]).
//! What cannot be kept (an owner, without the right to give files away) is counted in the [`Report`], not an error.

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

pub use backup::Backup;
pub use cursor::TreeWriter;
pub use links::LinkKey;
pub use options::{Existing, Keep, Loss, Lost, NewMode, Report, TreeOptions, Trust, Written};

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::OFlags;

use crate::FileId;
use links::Links;

/// What all cursors of one tree share.
struct Shared {
    options: TreeOptions,
    root_fd: OwnedFd,
    creator: Creator,
    links: Mutex<Links>,
    /// What cursors that are done have written.
    report: Mutex<Report>,
    /// Bytes of data so far, for the limit.
    bytes: AtomicU64,
    /// Cleared by the first refusal, so that a run without the right to give files away asks once and not per file.
    may_chown: AtomicBool,
    /// Cleared by the first refusal: the two files lie on file systems that do not copy between each other.
    may_copy_range: AtomicBool,
    /// Files that the source is read from: they are never removed to make room.
    spared: Vec<FileId>,
    made: Made,
}

/// What this run made, to tell it from what was there before: the file system may take two names for one.
#[derive(Default)]
struct Made {
    /// Inodes in directories that were there before, and in others if those may be entered again.
    inodes: Mutex<HashSet<FileId>>,
    /// Whether a directory that was made and left may be entered again, for another source.
    returns: bool,
}

/// As whom new files are made.
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

/// The umask before the process gave up the right to ask.
static UMASK: OnceLock<u16> = OnceLock::new();

/// Asks what a writer needs to know and a sandboxed process cannot find out.
pub(crate) fn before_sandbox() {
    let _ = UMASK.set(umask_of_process());
}

/// The umask of this process, which may be asked for in a sandbox too.
pub fn umask() -> u16 {
    umask_of_process()
}

/// The umask. Asking by `umask(2)` means to have another one for a moment, in all threads: only where there is no
/// `/proc`, and then one that gives nothing away.
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
    /// Whether the inode `id`, which a directory has under some name, was made by this run.
    fn was_made(&self, id: FileId) -> bool {
        self.made.inodes.lock().contains(&id)
    }

    /// Counts `len` more bytes; whether the limit allows them.
    fn take(&self, len: u64) -> bool {
        let before = self.bytes.fetch_add(len, Ordering::Relaxed);
        before.checked_add(len).is_some_and(|total| total <= self.options.max_bytes)
    }
}

/// Flags of every directory that is opened.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests;
