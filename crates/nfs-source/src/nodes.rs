//! The known files: a number for each handle.
//!
//! The number of a file is that of the server. If a file has the same number as another file, it gets a separate number
//! with the top bit set. Files of a second file system inside an export can cause this.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use obento_base::{Error, FileKind, Ino, Result};

use crate::error::NONSENSE;
use crate::protocol::{Attributes, Handle};

/// Files that are known at most.
const COUNT_MAX: usize = 1 << 20;
/// The first number that no server gave.
const OWN: u64 = 1 << 63;

/// A file.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name for the server.
    pub handle: Handle,
    /// The directory in which it was found.
    pub parent: u64,
    /// Its kind.
    pub kind: FileKind,
    /// Its attributes, and until when they hold.
    pub attributes: Option<(Attributes, Instant)>,
    /// What a directory must be listed with.
    pub verifier: [u8; 8],
    /// Whether its last name was removed while the caller used it.
    is_removed: bool,
}

/// The known files of a server.
#[derive(Debug)]
pub struct Nodes {
    known: HashMap<u64, Node>,
    numbers: HashMap<Handle, u64>,
    /// Those that the caller no longer uses, the first one longest.
    released: VecDeque<u64>,
    next: u64,
    root: u64,
}

impl Nodes {
    /// Creates a table with the root.
    pub fn new(handle: Handle, attributes: Attributes, until: Instant) -> Self {
        let root = if attributes.number == 0 || attributes.number >= OWN { 1 } else { attributes.number };
        let mut nodes = Self {
            known: HashMap::new(),
            numbers: HashMap::from([(handle.clone(), root)]),
            released: VecDeque::new(),
            next: OWN,
            root,
        };
        nodes.known.insert(root, node(handle, root, attributes, until));
        nodes
    }

    /// Returns the root.
    pub fn root(&self) -> Ino {
        Ino(self.root)
    }

    /// Returns a file.
    ///
    /// # Errors
    ///
    /// - `Stale`: the server never returned it, or it was forgotten.
    pub fn get(&self, ino: Ino) -> Result<Node> {
        self.known.get(&ino.0).cloned().ok_or(Error::Stale)
    }

    /// Records that the server returned a file in `parent`.
    ///
    /// # Errors
    ///
    /// 1. `Device`: the server returned the root or the directory itself as its entry, or a file as two kinds.
    /// 2. `NoMemory`: the table is full.
    pub fn found(
        &mut self,
        parent: u64,
        handle: Handle,
        attributes: Attributes,
        until: Instant,
    ) -> Result<Ino> {
        if let Some(&number) = self.numbers.get(&handle) {
            let node = self.known.get_mut(&number).filter(|node| node.kind == attributes.kind);
            let node = node.filter(|_| number != self.root && number != parent).ok_or(NONSENSE)?;
            (node.parent, node.attributes) = (parent, Some((attributes, until)));
            return Ok(Ino(number));
        }
        if self.known.len() >= COUNT_MAX {
            return Err(Error::NoMemory);
        }
        let wanted = attributes.number;
        let number = if wanted == 0 || wanted >= OWN || self.known.contains_key(&wanted) {
            self.next += 1;
            self.next
        } else {
            wanted
        };
        self.numbers.insert(handle.clone(), number);
        self.known.insert(number, node(handle, parent, attributes, until));
        Ok(Ino(number))
    }

    /// Changes what is known of a file.
    pub fn update(&mut self, ino: Ino, f: impl FnOnce(&mut Node)) {
        if let Some(node) = self.known.get_mut(&ino.0) {
            f(node);
        }
    }

    /// Records that the server has new attributes of a file. `None` means that they are unknown.
    pub fn changed(&mut self, ino: Ino, attributes: Option<Attributes>, until: Instant) {
        self.update(ino, |node| {
            node.attributes = attributes.filter(|found| found.kind == node.kind).map(|found| (found, until));
        });
    }

    /// Forgets a file whose last name was removed, at once or after its last use.
    pub fn removed(&mut self, ino: Ino, is_used: bool) {
        if is_used {
            return self.update(ino, |node| (node.is_removed, node.attributes) = (true, None));
        }
        if let Some(node) = self.known.remove(&ino.0) {
            self.numbers.remove(&node.handle);
        }
    }

    /// Records that the caller no longer uses a file, and forgets the oldest ones if the table is nearly full.
    pub fn released(&mut self, ino: Ino) {
        if self.known.get(&ino.0).is_some_and(|node| node.is_removed) {
            self.removed(ino, false);
        }
        if self.known.get(&ino.0).is_some_and(|node| node.kind != FileKind::Directory) {
            self.released.push_back(ino.0);
        }
        while self.known.len() > COUNT_MAX / 8 * 7 || self.released.len() > COUNT_MAX {
            let Some(number) = self.released.pop_front() else { break };
            if let Some(node) = self.known.remove(&number) {
                self.numbers.remove(&node.handle);
            }
        }
    }
}

fn node(handle: Handle, parent: u64, attributes: Attributes, until: Instant) -> Node {
    let (kind, attributes) = (attributes.kind, Some((attributes, until)));
    Node { handle, parent, kind, attributes, verifier: [0; 8], is_removed: false }
}
