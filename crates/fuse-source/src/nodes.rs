//! What is known of the inodes of a server.
//!
//! A server names inodes by numbers that stay valid until they are forgotten as often as they were returned. A listing
//! returns numbers too, and the caller may use them later, so that the number of a file that is not in use is forgotten
//! only when the table is nearly full, or when the file has no name.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use obento_base::{Attr, Error, FileKind, Ino, Result};
use obento_fuse_abi::ROOT;

use crate::error::{NONSENSE, TOO_MANY_FILES};

/// Inodes that are known at most. A directory is known until the end. If only an eighth of the table is free, files that
/// are not in use are forgotten.
const COUNT_MAX: usize = 1 << 20;

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
    /// The entries of the current listing of a directory. Two listings of one directory share this count.
    pub listed: ListedCount,
    /// The time of the last change between use and no use: the value of [`Nodes::clock`].
    stamp: u64,
    /// How often the server returned the inode.
    lookups: u64,
    /// The number of names that the server returned last.
    nlink: u32,
    attr: Option<HeldAttr>,
}

/// A file that the caller no longer uses, while its stamp is that of the node.
#[derive(Clone, Copy, Debug)]
pub struct IdleFile {
    /// Its number.
    pub number: u64,
    stamp: u64,
}

/// The entries that the current listing of a directory has returned.
#[derive(Clone, Copy, Default, Debug)]
pub struct ListedCount {
    /// Entries without the first `.` and `..`.
    entries: u64,
    /// `.` and `..`, which are at most two.
    dots: u64,
}

impl ListedCount {
    /// Counts an entry. Returns the number of entries so far. More than two entries `.` and `..` count like all others,
    /// so that every listing ends.
    pub fn add(&mut self, is_dots: bool) -> u64 {
        let counted = if is_dots && self.dots < 2 { &mut self.dots } else { &mut self.entries };
        *counted += 1;
        self.entries
    }
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
    /// Files that the caller no longer uses, the first one longest. Entries whose stamp is old are void.
    released: VecDeque<IdleFile>,
    /// Increases whenever the server returns an inode, and whenever the caller releases an inode.
    clock: u64,
    pub(crate) count_max: usize,
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
            listed: ListedCount::default(),
            stamp: 0,
            lookups: 0,
            nlink: 2,
            attr: None,
        };
        Self {
            known: HashMap::from([(ROOT, root)]),
            released: VecDeque::new(),
            clock: 0,
            count_max: COUNT_MAX,
            epoch: 0,
        }
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
    /// have a part. The caller may use the inode from now on.
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
        self.clock += 1;
        let held = Some(HeldAttr { attr, until, epoch: self.epoch });
        if let Some(known) = self.known.get_mut(&number) {
            let is_moved = known.parent != parent && attr.kind == FileKind::Directory;
            if known.kind != attr.kind || is_moved {
                return Err(NONSENSE);
            }
            known.lookups = known.lookups.saturating_add(1);
            (known.parent, known.nlink, known.attr) = (parent, attr.nlink, held);
            known.stamp = self.clock;
            return Ok(());
        }
        if self.known.len() >= self.count_max {
            return Err(TOO_MANY_FILES);
        }
        let node = Node {
            parent,
            kind: attr.kind,
            generation,
            is_removed: false,
            listed: ListedCount::default(),
            stamp: self.clock,
            lookups: 1,
            nlink: attr.nlink,
            attr: held,
        };
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
            self.clock += 1;
            if let Some(known) = self.known.get_mut(&ino.0) {
                (known.is_removed, known.attr, known.stamp) = (true, None, self.clock);
            }
            return None;
        }
        self.known.remove(&ino.0).map(|node| (ino.0, node.lookups))
    }

    /// Records the entries that the current listing of a directory has returned.
    pub fn listed(&mut self, dir: Ino, count: ListedCount) {
        if let Some(known) = self.known.get_mut(&dir.0) {
            known.listed = count;
        }
    }

    /// Records that the caller no longer uses an inode. If the inode has no name, returns it with its number of
    /// lookups, to be forgotten.
    pub fn released(&mut self, ino: Ino) -> Option<(u64, u64)> {
        let known = self.known.get_mut(&ino.0)?;
        if known.is_removed {
            return self.removed(ino, false);
        }
        if known.kind != FileKind::Directory {
            self.clock += 1;
            known.stamp = self.clock;
            self.released.push_back(IdleFile { number: ino.0, stamp: self.clock });
        }
        if self.released.len() > self.count_max / 2 * 3 {
            let known = &self.known;
            self.released.retain(|idle| known.get(&idle.number).is_some_and(|node| node.stamp == idle.stamp));
        }
        None
    }

    /// Returns the file that has been out of use longest, if the table is nearly full. The caller syncs the file, and
    /// then calls [`evict`](Self::evict).
    pub fn idle(&mut self) -> Option<IdleFile> {
        while self.known.len() > self.count_max / 8 * 7 {
            let idle = self.released.pop_front()?;
            if self.known.get(&idle.number).is_some_and(|node| node.stamp == idle.stamp) {
                return Some(idle);
            }
        }
        None
    }

    /// Removes a file, unless the caller uses it again. Returns the file with its number of lookups, to be forgotten.
    pub fn evict(&mut self, idle: IdleFile) -> Option<(u64, u64)> {
        let is_idle = self.known.get(&idle.number).is_some_and(|node| node.stamp == idle.stamp);
        if is_idle { self.removed(Ino(idle.number), false) } else { None }
    }
}
