//! What is known of the inodes of a server.
//!
//! A server names inodes by numbers that stay valid until they are forgotten as often as they were returned. A listing
//! returns numbers too, and the caller may use them later, so that the number of an idle file is forgotten only when too
//! many files are idle, or when the file has no name.

use std::sync::Arc;
use std::time::Instant;

use obento_base::{Attr, FileKind, Ino, Result};
use obento_fuse_abi::ROOT;
use obento_remote_nodes::{FoundBy, IDLE_BYTES, IdleFile, KnownFile, KnownFiles, ListedCount, idle_bytes};

use crate::error::{NONSENSE, TOO_MANY_FILES};

// Attributes, the header of their allocation, and the overhead of the allocator.
const _: () = assert!(idle_bytes::<Remote>(size_of::<HeldAttr>() + 32) <= IDLE_BYTES);

/// An inode.
pub type Node = KnownFile<Remote>;

/// The properties of an inode that only this source stores.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its generation.
    pub generation: u64,
    /// How often the server returned the inode.
    lookups: u64,
    /// The number of names that the server returned last.
    nlink: u32,
    attr: Option<Arc<HeldAttr>>,
}

/// Attributes that the server returned.
#[derive(Clone, Copy, Debug)]
struct HeldAttr {
    attr: Attr,
    /// The time at which the attributes expire.
    until: Instant,
    /// The value of [`Nodes::epoch`] for which the attributes are valid.
    epoch: u64,
}

/// The inodes of a server.
#[derive(Debug)]
pub struct Nodes {
    pub(crate) files: KnownFiles<Remote>,
    /// Increases when the attributes of any inode may have changed.
    epoch: u64,
}

impl Nodes {
    /// Creates a table with the root.
    pub fn new() -> Self {
        Self { files: KnownFiles::new(ROOT, Remote::ROOT), epoch: 0 }
    }

    /// Returns an inode.
    ///
    /// # Errors
    ///
    /// - `Stale`: the server never returned it, or it was forgotten.
    pub fn get(&self, ino: Ino) -> Result<Node> {
        self.files.get(ino).cloned()
    }

    /// Returns the attributes of an inode, if they are known.
    pub fn attr(&self, ino: Ino) -> Option<Attr> {
        let held = self.files.get(ino).ok()?.own.attr.as_ref()?;
        (held.epoch == self.epoch && Instant::now() < held.until).then_some(held.attr)
    }

    /// Records that the server returned an inode in `parent`. `generation` is the full number, of which the attributes
    /// have a part.
    ///
    /// # Errors
    ///
    /// 1. `Device`: the server returned a directory in two places, or an inode as two kinds.
    /// 2. `Device`: the table is full of directories and of files that are in use.
    pub fn found(
        &mut self,
        parent: u64,
        generation: u64,
        attr: Attr,
        until: Instant,
        by: FoundBy,
    ) -> Result<()> {
        let Attr { ino, kind, nlink, .. } = attr;
        if ino.0 == 0 || ino.0 == ROOT || ino.0 == parent {
            return Err(NONSENSE);
        }
        let held = Some(Arc::new(HeldAttr { attr, until, epoch: self.epoch }));
        if let Some(known) = self.files.get_mut(ino) {
            let is_moved = known.parent != parent && kind == FileKind::Directory;
            if known.kind != kind || is_moved {
                return Err(NONSENSE);
            }
            known.parent = parent;
            let lookups = known.own.lookups.saturating_add(1);
            (known.own.lookups, known.own.nlink, known.own.attr) = (lookups, nlink, held);
            self.files.found(ino, by);
            return Ok(());
        }
        let remote = Remote { generation, lookups: 1, nlink, attr: held };
        if self.files.insert(ino, parent, kind, remote, by) { Ok(()) } else { Err(TOO_MANY_FILES) }
    }

    /// Records that the caller uses an inode. Returns whether the inode is known.
    pub fn acquire(&mut self, ino: Ino) -> bool {
        self.files.acquire(ino)
    }

    /// Records the attributes of an inode.
    pub fn learnt(&mut self, attr: Attr, until: Instant) {
        if let Some(known) = self.files.get_mut(attr.ino) {
            known.own.nlink = attr.nlink;
            known.own.attr = Some(Arc::new(HeldAttr { attr, until, epoch: self.epoch }));
        }
    }

    /// Records that an inode was moved to another directory.
    pub fn moved(&mut self, ino: Ino, parent: Ino) {
        if let Some(known) = self.files.get_mut(ino) {
            known.parent = parent.0;
        }
    }

    /// Records that the attributes of an inode have changed. A server may have a number for each name of a file, so
    /// that the attributes of all inodes are forgotten if the inode has several names.
    pub fn changed(&mut self, ino: Ino) {
        if let Some(known) = self.files.get_mut(ino) {
            known.own.attr = None;
            self.epoch += u64::from(known.kind != FileKind::Directory && known.own.nlink > 1);
        }
    }

    /// Records that the attributes of any inode may have changed.
    pub fn all_changed(&mut self) {
        self.epoch += 1;
    }

    /// Records that the last name of an inode was removed. If the caller does not use the inode, returns it with its
    /// number of lookups, to be forgotten.
    pub fn removed(&mut self, ino: Ino, is_used: bool) -> Option<(u64, u64)> {
        if let Some(known) = self.files.get_mut(ino) {
            known.own.attr = None;
        }
        self.files.removed(ino, is_used).map(|node| (ino.0, node.own.lookups))
    }

    /// Records the entries that the current listing of a directory has returned.
    pub fn listed(&mut self, dir: Ino, count: ListedCount) {
        if let Some(known) = self.files.get_mut(dir) {
            known.listed = count;
        }
    }

    /// Records that the caller no longer uses an inode. If the inode has no name, returns it with its number of
    /// lookups, to be forgotten.
    pub fn released(&mut self, ino: Ino) -> Option<(u64, u64)> {
        self.files.released(ino).map(|node| (ino.0, node.own.lookups))
    }

    /// Returns the oldest idle file, as [`KnownFiles::idle`] does. The caller syncs the file, and then calls
    /// [`evict`](Self::evict).
    pub fn idle(&mut self) -> Option<IdleFile> {
        self.files.idle()
    }

    /// Removes an idle file, unless it was found again. Returns the file with its number of lookups, to be forgotten.
    pub fn evict(&mut self, idle: &IdleFile) -> Option<(u64, u64)> {
        self.files.evict(idle).map(|node| (idle.number, node.own.lookups))
    }
}

impl Remote {
    pub(crate) const ROOT: Self = Self { generation: 0, lookups: 0, nlink: 2, attr: None };
}
