//! What the kernel asks, answered from the `vfs`.
//!
//! A request names inodes by the numbers of [`Nodes`], never by open files: the kernel is told to open nothing, and what
//! it knows stays in use until it forgets it. Permissions were decided by the kernel, so all is done as the image's
//! owner, in the name of whoever asked where something new gets an owner.
//!
//! Invariant: each answer that carries an entry counts one lookup, and no other does.

mod attributes;
mod data;
mod flags;
mod listing;
mod names;

use obento::{Attr, Caller, Errno, Error, Name, NameError, Node, Refusal, StatFs, Vfs, Volume};

use crate::nodes::{Known, Nodes};

pub(crate) use attributes::{Change, NamedValue, Time};
pub(crate) use data::{Source, Written};
pub(crate) use flags::{ioctl_changes, ioctl_is_short};
pub(crate) use listing::Listed;
pub(crate) use names::{Made, Moved};

/// For whom everything is done.
const OWNER: Caller = Caller::Owner;

/// How a volume is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerOptions {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Every change is durable before it is answered.
    pub sync: bool,
}

/// One volume behind a mount point.
pub struct Server {
    vfs: Vfs,
    nodes: Nodes,
    options: ServerOptions,
}

/// An answer, or the number of an error.
pub(crate) type Reply<T> = Result<T, Errno>;

/// What a name leads to.
pub(crate) struct Found {
    /// The number under which the kernel knows it from now on.
    pub(crate) id: u64,
    pub(crate) attr: Attr,
    /// Whether the kernel may remember the name.
    pub(crate) stays: bool,
}

impl Server {
    /// Serves `volume`.
    pub fn new(volume: &Volume, options: ServerOptions) -> Self {
        let vfs = volume.vfs().clone();
        Self { nodes: Nodes::new(&vfs), vfs, options }
    }

    /// How it serves.
    pub fn options(&self) -> ServerOptions {
        self.options
    }

    /// The step in which the volume keeps times, in nanoseconds.
    pub(crate) fn time_step(&self) -> u32 {
        self.vfs.limits().time_granularity
    }

    /// How many inodes the kernel knows.
    pub fn nodes_known(&self) -> usize {
        self.nodes.len()
    }

    /// Gives back what the kernel knew: the connection is over.
    pub fn end(&self) {
        self.nodes.clear();
    }

    fn known(&self, id: u64) -> Reply<Known> {
        self.nodes.get(id).ok_or_else(|| Error::Refused(Refusal::Stale).errno())
    }

    fn node(&self, id: u64) -> Reply<Node> {
        self.known(id).map(|known| known.node)
    }

    /// Tells the kernel of `node`, which counts a lookup.
    fn introduce(&self, dir: &Node, node: Node) -> Reply<Found> {
        let attr = node.attr().map_err(errno)?;
        let id = Nodes::id(&node);
        self.nodes.remember(id, node);
        Ok(Found { id, attr, stays: self.stays(dir) })
    }

    /// Whether the kernel may remember what names in `dir` lead to: not where it takes two spellings for two names.
    fn stays(&self, dir: &Node) -> bool {
        !dir.is_casefold().unwrap_or(true)
    }

    /// Brings a change to stable storage before it is answered, if that was asked for.
    fn settled<T>(&self, node: &Node, answer: T) -> Reply<T> {
        if self.options.sync && !self.options.read_only {
            node.sync().map_err(errno)?;
        }
        Ok(answer)
    }

    /// How full the volume is, and the longest name.
    pub(crate) fn statfs(&self) -> Reply<(StatFs, u32)> {
        let stat = self.vfs.file_system().statfs().map_err(errno)?;
        Ok((stat, self.vfs.limits().name_max))
    }

    /// Brings files and directories to stable storage, by one commit where all goes well; an answer for each.
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

    /// Whether what the kernel is told of the file `id` holds for long.
    pub(crate) fn holds_for_long(&self, id: u64) -> bool {
        self.nodes.tell_for_long(id)
    }

    /// Notes that `id` is being written to; whether the kernel has to be told that what it knows of it is old.
    pub(crate) fn grows_old(&self, id: u64) -> bool {
        self.nodes.note_write(id)
    }

    /// Takes back `lookups` of `id`.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        self.nodes.forget(id, lookups);
    }
}

/// The number of an error; what is damaged or broken is also told in the log.
pub(crate) fn errno(error: Error) -> Errno {
    if !matches!(error, Error::Refused(_)) {
        tracing::warn!(%error, "cannot be done");
    }
    error.errno()
}

/// A name from the wire. The kernel lets names pass that are longer than any format has them.
fn name(bytes: &[u8]) -> Reply<&Name> {
    Name::new(bytes).map_err(|error| {
        Errno(match error {
            NameError::TooLong => libc::ENAMETOOLONG,
            NameError::Empty => libc::ENOENT,
            NameError::Dots | NameError::Separator => libc::EINVAL,
        })
    })
}
