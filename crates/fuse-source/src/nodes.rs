//! What is known of the inodes of a server.
//!
//! A server names inodes by numbers that stay valid until they are forgotten as often as they were returned. A listing
//! returns numbers too, and the caller may use them later, so that a number is forgotten only when the table is full.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use obento_base::{Attr, Error, FileKind, Ino, Result};

use crate::error::NONSENSE;
use crate::wire::ROOT;

/// Inodes that are known at most.
const COUNT_MAX: usize = 1 << 20;

/// An inode.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// The directory in which it was found.
    pub parent: u64,
    /// How often the server returned it.
    pub lookups: u64,
    /// Its kind.
    pub kind: FileKind,
    /// Its generation.
    pub generation: u64,
    /// Its attributes, and until when they hold.
    pub attr: Option<(Attr, Instant)>,
}

/// The inodes of a server.
#[derive(Debug)]
pub struct Nodes {
    known: HashMap<u64, Node>,
    /// Those that the caller no longer uses, the first one longest.
    released: VecDeque<u64>,
}

impl Nodes {
    /// Creates a table with the root.
    pub fn new() -> Self {
        let root = Node { parent: ROOT, lookups: 0, kind: FileKind::Directory, generation: 0, attr: None };
        Self { known: HashMap::from([(ROOT, root)]), released: VecDeque::new() }
    }

    /// Returns an inode.
    ///
    /// # Errors
    ///
    /// - `Stale`: the server never returned it, or it was forgotten.
    pub fn get(&self, ino: Ino) -> Result<Node> {
        self.known.get(&ino.0).copied().ok_or(Error::Stale)
    }

    /// Records that the server returned an inode in `parent`.
    ///
    /// # Errors
    ///
    /// 1. `Device`: the server returned a directory in two places, or an inode as two kinds.
    /// 2. `NoMemory`: the table is full of inodes that are in use.
    pub fn found(&mut self, number: u64, node: Node) -> Result<()> {
        if number == 0 || number == ROOT || number == node.parent {
            return Err(NONSENSE);
        }
        if let Some(known) = self.known.get_mut(&number) {
            let is_moved = known.parent != node.parent && node.kind == FileKind::Directory;
            if known.kind != node.kind || is_moved {
                return Err(NONSENSE);
            }
            known.lookups = known.lookups.saturating_add(node.lookups);
            known.attr = node.attr;
            return Ok(());
        }
        if self.known.len() >= COUNT_MAX {
            return Err(Error::NoMemory);
        }
        self.known.insert(number, node);
        Ok(())
    }

    /// Records the attributes of an inode.
    pub fn learnt(&mut self, ino: Ino, attr: Attr, until: Instant) {
        if let Some(known) = self.known.get_mut(&ino.0) {
            known.attr = Some((attr, until));
        }
    }

    /// Records that the caller no longer uses an inode. If the table is nearly full, returns the files to forget, each
    /// with its number of lookups.
    pub fn released(&mut self, ino: Ino) -> Vec<(u64, u64)> {
        let is_file = self.known.get(&ino.0).is_some_and(|node| node.kind != FileKind::Directory);
        if is_file {
            self.released.push_back(ino.0);
        }
        let mut forgotten = Vec::new();
        while self.known.len() > COUNT_MAX / 8 * 7 || self.released.len() > COUNT_MAX {
            let Some(number) = self.released.pop_front() else { break };
            if let Some(node) = self.known.remove(&number) {
                forgotten.push((number, node.lookups));
            }
        }
        forgotten
    }
}
