//! What is known of the inodes of a server.
//!
//! A server names inodes by numbers that stay valid until they are forgotten as often as they were returned. A listing
//! returns numbers too, and the caller may use them later, so that a number is forgotten only when the table is full, or
//! when its file has no name and is not in use.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use obento_base::{Attr, Error, FileKind, Ino, Result};
use obento_fuse_abi::ROOT;

use crate::error::{NONSENSE, TOO_MANY_FILES};

/// Inodes that are known at most. A directory is known until the end.
const COUNT_MAX: usize = 1 << 20;
/// Files that stay known after their last use. A server may list any number of them.
const RELEASED_MAX: usize = 1 << 16;

/// An inode.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// The directory in which it was found.
    pub parent: u64,
    /// Its kind.
    pub kind: FileKind,
    /// Its generation.
    pub generation: u64,
    /// Whether its last name was removed while the caller used it.
    pub is_removed: bool,
    /// Entries that the current listing of a directory has returned.
    listed: u64,
    /// How often the server returned the inode.
    lookups: u64,
    /// The number of names that the server returned last.
    nlink: u32,
    attr: Option<HeldAttr>,
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
    known: HashMap<u64, Node>,
    /// Those that the caller no longer uses, the first one longest.
    released: VecDeque<u64>,
    /// Increases when the attributes of any inode may have changed.
    epoch: u64,
}

impl Nodes {
    /// Creates a table with the root.
    pub fn new() -> Self {
        let root = Node {
            parent: ROOT,
            kind: FileKind::Directory,
            generation: 0,
            is_removed: false,
            listed: 0,
            lookups: 0,
            nlink: 2,
            attr: None,
        };
        Self { known: HashMap::from([(ROOT, root)]), released: VecDeque::new(), epoch: 0 }
    }

    /// Returns an inode.
    ///
    /// # Errors
    ///
    /// - `Stale`: the server never returned it, or it was forgotten.
    pub fn get(&self, ino: Ino) -> Result<Node> {
        self.known.get(&ino.0).copied().ok_or(Error::Stale)
    }

    /// Returns the attributes of an inode, if they are known.
    pub fn attr(&self, ino: Ino) -> Option<Attr> {
        let held = self.known.get(&ino.0)?.attr?;
        (held.epoch == self.epoch && Instant::now() < held.until).then_some(held.attr)
    }

    /// Records that the server returned an inode in `parent`. `generation` is the full number, of which the attributes
    /// have a part.
    ///
    /// # Errors
    ///
    /// 1. `Device`: the server returned a directory in two places, or an inode as two kinds.
    /// 2. `Device`: the table is full of directories and of files that are in use.
    pub fn found(&mut self, parent: u64, generation: u64, attr: Attr, until: Instant) -> Result<()> {
        let number = attr.ino.0;
        if number == 0 || number == ROOT || number == parent {
            return Err(NONSENSE);
        }
        let held = Some(HeldAttr { attr, until, epoch: self.epoch });
        if let Some(known) = self.known.get_mut(&number) {
            let is_moved = known.parent != parent && attr.kind == FileKind::Directory;
            if known.kind != attr.kind || is_moved {
                return Err(NONSENSE);
            }
            known.lookups = known.lookups.saturating_add(1);
            (known.parent, known.nlink, known.attr) = (parent, attr.nlink, held);
            return Ok(());
        }
        if self.known.len() >= COUNT_MAX {
            return Err(TOO_MANY_FILES);
        }
        let (kind, nlink) = (attr.kind, attr.nlink);
        let node =
            Node { parent, kind, generation, is_removed: false, listed: 0, lookups: 1, nlink, attr: held };
        self.known.insert(number, node);
        Ok(())
    }

    /// Records the attributes of an inode.
    pub fn learnt(&mut self, attr: Attr, until: Instant) {
        if let Some(known) = self.known.get_mut(&attr.ino.0) {
            known.nlink = attr.nlink;
            known.attr = Some(HeldAttr { attr, until, epoch: self.epoch });
        }
    }

    /// Records that an inode was moved to another directory.
    pub fn moved(&mut self, ino: Ino, parent: Ino) {
        if let Some(known) = self.known.get_mut(&ino.0) {
            known.parent = parent.0;
        }
    }

    /// Records that the attributes of an inode have changed. A server may have a number for each name of a file, so
    /// that the attributes of all inodes are forgotten if the inode has several names.
    pub fn changed(&mut self, ino: Ino) {
        if let Some(known) = self.known.get_mut(&ino.0) {
            known.attr = None;
            self.epoch += u64::from(known.kind != FileKind::Directory && known.nlink > 1);
        }
    }

    /// Records that the attributes of any inode may have changed.
    pub fn all_changed(&mut self) {
        self.epoch += 1;
    }

    /// Records that the last name of an inode was removed. If the caller does not use the inode, returns it with its
    /// number of lookups, to be forgotten.
    pub fn removed(&mut self, ino: Ino, is_used: bool) -> Option<(u64, u64)> {
        if is_used {
            if let Some(known) = self.known.get_mut(&ino.0) {
                (known.is_removed, known.attr) = (true, None);
            }
            return None;
        }
        self.known.remove(&ino.0).map(|node| (ino.0, node.lookups))
    }

    /// Records that a listing of a directory starts.
    pub fn listing_starts(&mut self, dir: Ino) {
        if let Some(known) = self.known.get_mut(&dir.0) {
            known.listed = 0;
        }
    }

    /// Counts an entry of the current listing of a directory. Returns the number of entries so far.
    pub fn listing_continues(&mut self, dir: Ino) -> u64 {
        let Some(known) = self.known.get_mut(&dir.0) else { return 0 };
        known.listed += 1;
        known.listed
    }

    /// Records that the caller no longer uses an inode. If the inode has no name, or many files are not in use, returns
    /// the inodes to forget, each with its number of lookups.
    pub fn released(&mut self, ino: Ino) -> Vec<(u64, u64)> {
        if self.known.get(&ino.0).is_some_and(|node| node.is_removed) {
            return self.removed(ino, false).into_iter().collect();
        }
        let is_file = self.known.get(&ino.0).is_some_and(|node| node.kind != FileKind::Directory);
        if is_file {
            self.released.push_back(ino.0);
        }
        let mut forgotten = Vec::new();
        while self.known.len() > COUNT_MAX / 8 * 7 || self.released.len() > RELEASED_MAX {
            let Some(number) = self.released.pop_front() else { break };
            if let Some(node) = self.known.remove(&number) {
                forgotten.push((number, node.lookups));
            }
        }
        forgotten
    }
}
