//! The kernel's requests, answered from the `vfs`.
//!
//! A request refers to inodes by the node IDs of [`Nodes`]. OPEN is supported only for the recorder of [`open`], and an
//! inode stays in use until the kernel forgets it. The kernel has checked permissions, so every operation runs as the owner
//! of the image. A new inode belongs to the requesting user, or to root with `fakeroot`: the kernel then checks only which
//! user sends requests.
//!
//! Invariant: a reply that contains an entry counts one lookup; no other reply does.

mod attributes;
mod damage;
mod data;
mod flags;
mod listing;
mod names;
mod open;
mod reply;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use obento_base::{Attr, Corrupt, Errno, Error, FileFlags, FileKind, Name, NameError, Refusal};
use obento_driver::StatFs;
use obento_vfs::{Caller, Node, Vfs};

use crate::handover::NodeState;
use crate::ledger::Ledger;
use crate::nodes::{KernelInode, Nodes, ROOT};
use crate::options::AccessTimes;

pub(crate) use attributes::{CAPABILITY, Change, NamedValue, Time};
pub(crate) use data::{Source, Written};
pub(crate) use flags::{ioctl_changes, ioctl_is_short};
pub(crate) use listing::Listed;
pub(crate) use names::{CreateRequest, RenameRequest};
pub(crate) use open::{FileData, Opened, Sender};
pub(crate) use reply::{Found, Reply};

/// The caller of all operations.
const OWNER: Caller = Caller::Owner;

/// The part of a volume, and the number of blocks, that ext4 reserves for metadata at most. ext4 reserves 2 % of all
/// blocks, which are slightly more than the blocks for files.
const METADATA_PART: u64 = 48;
const METADATA_MOST: u64 = 4096;

/// The options of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerOptions {
    /// The volume cannot be changed.
    pub read_only: bool,
    /// Every change is durable before its reply is sent.
    pub sync: bool,
    /// When reading updates access times: the policy of the volume.
    pub atime: AccessTimes,
    /// The kernel checks no permissions, and new inodes belong to root.
    pub fakeroot: bool,
    /// Quota limits are enforced.
    pub has_limits: bool,
}

/// One volume behind a mount point.
pub struct Server {
    vfs: Vfs,
    nodes: Nodes,
    options: ServerOptions,
    /// Whether reading updates no access times, whatever the policy of the volume.
    no_atime: AtomicBool,
    /// An error has made the volume read-only.
    has_failed: AtomicBool,
    recorder: Option<open::Recorder>,
    notices: damage::Notices,
}

impl Server {
    /// Returns a server of the volume that `vfs` uses.
    pub fn new(vfs: Vfs, options: ServerOptions) -> Self {
        let no_atime = AtomicBool::new(options.atime == AccessTimes::Never);
        let notices = damage::Notices::new(&vfs);
        let has_failed = AtomicBool::new(false);
        Self { nodes: Nodes::new(&vfs), vfs, options, no_atime, has_failed, recorder: None, notices }
    }

    /// Makes all changes and lookups survive a failure of this process, in `ledger`. The volume was opened with the same
    /// ledger.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Arc<Ledger>) -> Self {
        self.nodes.set_ledger(ledger);
        self
    }

    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.nodes.ledger()
    }

    /// Starts a change that must not be divided.
    pub(crate) fn hold(&self) -> Result<(), Error> {
        self.vfs.hold()
    }

    /// Adds all changes to the ledger, and ends the change that must not be divided.
    pub(crate) fn publish(&self) -> Result<(), Error> {
        self.vfs.publish()
    }

    /// Commits all changes. The next sync reports an error.
    pub(crate) fn commit(&self) {
        if let Err(error) = self.vfs.sync() {
            tracing::warn!(%error, "a commit failed");
        }
    }

    /// Returns whether changes are possible: after an error that made the volume read-only, each sync fails. Must not be
    /// called within a change that must not be divided.
    pub(crate) fn accepts_changes(&self) -> bool {
        self.ledger().is_some() || self.vfs.sync().is_ok()
    }

    /// Notes that an error has made the volume read-only.
    pub(crate) fn note_end_of_changes(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Returns whether a request has shown that an error made the volume read-only.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Returns the options of the server.
    pub fn options(&self) -> ServerOptions {
        self.options
    }

    /// Returns the resolution of times on the volume, in nanoseconds.
    pub(crate) fn time_step(&self) -> u32 {
        self.vfs.limits().time_granularity
    }

    /// Returns the number of inodes that the kernel has not forgotten.
    pub fn nodes_known(&self) -> usize {
        self.nodes.len()
    }

    /// Forgets all inodes, when the connection has ended.
    pub fn end(&self) {
        self.notices.log_all(&self.vfs);
        self.nodes.clear();
    }

    /// Returns the inodes that the kernel has not forgotten, for another process.
    pub(crate) fn export(&self) -> Vec<NodeState> {
        self.nodes.export()
    }

    /// Returns whether reading updates no access times, whatever the policy of the volume.
    pub(crate) fn has_no_atime(&self) -> bool {
        self.no_atime.load(Ordering::Relaxed)
    }

    /// Continues where another process stopped.
    pub(crate) fn import(&self, nodes: &[NodeState], has_no_atime: bool) {
        self.nodes.import(&self.vfs, nodes);
        self.no_atime.store(has_no_atime, Ordering::Relaxed);
    }

    fn known(&self, id: u64) -> Reply<KernelInode> {
        self.nodes.get(id).ok_or_else(|| Error::Refused(Refusal::Stale).errno())
    }

    fn node(&self, id: u64) -> Reply<Node> {
        self.known(id).map(|known| known.node)
    }

    /// Returns the entry of `node` for a reply, and counts a lookup.
    fn introduce(&self, dir: &Node, node: Node) -> Reply<Found> {
        let id = Nodes::id(&node);
        let attr = Self::checked(id, node.attr().map_err(errno)?)?;
        self.nodes.remember(id, node, attr.kind == FileKind::Regular);
        Ok(Found { id, attr, stays: self.stays(dir) })
    }

    /// Returns whether the kernel may cache the names in `dir`. The kernel takes two spellings for two names. If names are
    /// compared without case, a change by one spelling would not reach the other one in the cache.
    fn stays(&self, dir: &Node) -> bool {
        self.options.read_only || !dir.is_casefold().unwrap_or(true)
    }

    /// Returns the attributes of `id` for a reply. The kernel cannot unmount a root that is not a directory.
    fn checked(id: u64, attr: Attr) -> Reply<Attr> {
        match (id, attr.kind) {
            (ROOT, FileKind::Directory) => Ok(attr),
            (ROOT, _) => Err(errno(Corrupt::RootKind { ino: attr.ino }.into())),
            _ => Ok(attr),
        }
    }

    /// Flushes `node` to stable storage if the server is synchronous, and returns `answer`.
    fn settled<T>(&self, node: &Node, answer: T) -> Reply<T> {
        if self.options.sync && !self.options.read_only {
            node.sync().map_err(errno)?;
        }
        Ok(answer)
    }

    /// Returns the space of the volume, as the limits of the project of `id` bound it, and the length of the longest name.
    pub(crate) fn statfs(&self, id: u64) -> Reply<(StatFs, u32)> {
        let fs = self.vfs.flushed_file_system();
        let node = if self.options.has_limits { self.nodes.get(id) } else { None };
        let stat = node.map_or_else(|| fs.statfs(), |known| fs.statfs_at(known.node.ino())).map_err(errno)?;
        Ok((stat, self.vfs.limits().name_max))
    }

    /// Changes when reading updates access times. Fails with `Invalid` for a policy other than the volume's policy and
    /// `noatime`.
    fn set_access_times(&self, name: &[u8]) -> Reply<()> {
        let is_none = name == AccessTimes::Never.name().as_bytes();
        if !is_none && name != self.options.atime.name().as_bytes() {
            return Err(Error::Invalid.errno());
        }
        self.no_atime.store(is_none, Ordering::Relaxed);
        Ok(())
    }

    /// The free space for data of any user and the size of the volume, in bytes.
    pub(crate) fn free_and_total(&self) -> Reply<(u64, u64)> {
        let stat = self.vfs.flushed_file_system().statfs().map_err(errno)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.block_size.into());
        // ext4 counts clusters as free that it reserves for metadata (`ext4_calculate_resv_clusters`).
        let unavailable = stat.free.saturating_sub(stat.available);
        let for_metadata = unavailable.min(stat.blocks / METADATA_PART).min(METADATA_MOST);
        Ok((bytes(stat.free.saturating_sub(for_metadata)), bytes(stat.blocks)))
    }

    /// The free space in bytes.
    pub(crate) fn free(&self) -> Reply<u64> {
        self.free_and_total().map(|(free, _)| free)
    }

    /// The regular files that the kernel has looked up.
    pub(crate) fn regular_files(&self) -> Vec<u64> {
        self.nodes.regular_files()
    }

    /// Notes that data of `id`, which the kernel had gathered, is lost.
    pub(crate) fn note_failure(&self, id: u64, error: Errno) {
        self.nodes.set_failure(id, Some(error));
    }

    /// Returns the error that lost data of `id`, until a write has reported it.
    pub(crate) fn failure(&self, id: u64) -> Option<Errno> {
        self.nodes.failure(id)
    }

    /// Returns the error with which the next write to `id` must fail: the loss of earlier data, or a flag that forbids
    /// every write. Writes nothing, since the thread that receives requests calls this.
    pub(crate) fn write_obstacle(&self, id: u64) -> Option<Errno> {
        self.failure(id).or_else(|| {
            let known = self.nodes.get(id).filter(|known| !known.is_plain)?;
            let is_immutable = known.node.flags().is_ok_and(|flags| flags.contains(FileFlags::IMMUTABLE));
            is_immutable.then(|| Error::NotPermitted.errno())
        })
    }

    /// Notes that a write has reported the loss.
    pub(crate) fn end_failure(&self, id: u64) {
        self.nodes.set_failure(id, None);
    }

    /// Flushes files and directories to stable storage, by one commit if no error occurs. Returns a result for each.
    pub(crate) fn fsync(&self, ids: &[u64]) -> Vec<Reply<()>> {
        if self.options.read_only {
            return vec![Ok(()); ids.len()];
        }
        let nodes: Vec<_> = ids.iter().map(|&id| self.node(id)).collect();
        let known: Vec<_> = nodes.iter().flatten().cloned().collect();
        let together = self.vfs.sync_nodes(&known);
        let one = |node: Reply<Node>| node.and_then(|node| together.or_else(|_| node.sync()).map_err(errno));
        nodes.into_iter().map(one).collect()
    }

    /// Returns whether the kernel may cache the attributes of the file `id` for long.
    pub(crate) fn holds_for_long(&self, id: u64) -> bool {
        self.nodes.may_cache_for_long(id)
    }

    /// Records a write to `id`. Returns whether the caller must invalidate the attributes that the kernel caches.
    pub(crate) fn grows_old(&self, id: u64) -> bool {
        self.nodes.note_write(id)
    }

    /// Subtracts `lookups` from the lookups of `id`.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        self.nodes.forget(id, lookups);
    }
}

/// Returns the number of an error. Logs the error unless it is a refusal, and each damaged structure once.
pub(crate) fn errno(error: Error) -> Errno {
    damage::log(&error, "a request failed");
    error.errno()
}

/// Checks a name of a request. The kernel sends names that are longer than any format allows.
fn name(bytes: &[u8]) -> Reply<&Name> {
    Name::new(bytes).map_err(|error| {
        Errno(match error {
            NameError::TooLong => libc::ENAMETOOLONG,
            NameError::Empty => libc::ENOENT,
            NameError::Dots | NameError::Separator => libc::EINVAL,
        })
    })
}
