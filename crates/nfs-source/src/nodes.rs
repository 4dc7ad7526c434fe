//! The known files: a number for each handle.
//!
//! The number of a file is that of the server. If a file has the same number as another file, it gets a separate number
//! with the top bit set. Files of a second file system inside an export can cause this.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use obento_base::{Error, FileKind, Ino, Result};

use crate::error::{NONSENSE, TOO_MANY_FILES};
use crate::protocol::{Attributes, Handle};

/// Files that are known at most. A directory is known until the end.
const COUNT_MAX: usize = 1 << 20;
/// Files that stay known after their last use. A server may list any number of them.
const RELEASED_MAX: usize = 1 << 16;
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
    /// Its attributes, and until when they hold. A file that is not in use has none.
    pub attributes: Option<Arc<(Attributes, Instant)>>,
    /// What a directory must be listed with.
    pub verifier: [u8; 8],
    /// Entries that the current listing of a directory has returned.
    pub listed: u64,
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
    /// 2. `Device`: the table is full of directories and of files that are in use.
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
            (node.parent, node.attributes) = (parent, Some(Arc::new((attributes, until))));
            return Ok(Ino(number));
        }
        if self.known.len() >= COUNT_MAX {
            return Err(TOO_MANY_FILES);
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
            let found = attributes.filter(|found| found.kind == node.kind);
            node.attributes = found.map(|found| Arc::new((found, until)));
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

    /// Records that the caller no longer uses a file. If many files are not in use, forgets the oldest ones.
    pub fn released(&mut self, ino: Ino) {
        if self.known.get(&ino.0).is_some_and(|node| node.is_removed) {
            self.removed(ino, false);
        }
        match self.known.get_mut(&ino.0) {
            Some(node) if node.kind == FileKind::Directory => node.attributes = None,
            Some(_) => self.released.push_back(ino.0),
            None => {}
        }
        while self.known.len() > COUNT_MAX / 8 * 7 || self.released.len() > RELEASED_MAX {
            let Some(number) = self.released.pop_front() else { break };
            if let Some(node) = self.known.remove(&number) {
                self.numbers.remove(&node.handle);
            }
        }
    }
}

fn node(handle: Handle, parent: u64, attributes: Attributes, until: Instant) -> Node {
    let (kind, attributes) = (attributes.kind, Some(Arc::new((attributes, until))));
    Node { handle, parent, kind, attributes, verifier: [0; 8], listed: 0, is_removed: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Reader;

    /// The attributes of a file of this kind (`ftype3`) with this number.
    fn attributes(kind: u32, number: u64) -> Attributes {
        let mut bytes = [kind.to_be_bytes(), [0; 4], [0, 0, 0, 1]].concat();
        bytes.resize(52, 0);
        bytes.extend(number.to_be_bytes());
        bytes.resize(84, 0);
        Attributes::take(&mut Reader(&bytes)).unwrap()
    }

    #[test]
    fn any_number_of_files_out_of_use_takes_bounded_memory() {
        let until = Instant::now();
        let mut nodes = Nodes::new(Handle::new(b"root"), attributes(2, 2), until);
        for number in 10..300_000_u64 {
            let handle = Handle::new(&number.to_be_bytes());
            let ino = nodes.found(2, handle, attributes(1, number), until).unwrap();
            nodes.released(ino);
        }
        assert_eq!((nodes.known.len(), nodes.numbers.len()), (RELEASED_MAX + 1, RELEASED_MAX + 1));
        assert_eq!(nodes.released.len(), RELEASED_MAX);
    }

    #[test]
    fn more_directories_than_fit_are_an_error_and_the_known_ones_stay() {
        let until = Instant::now();
        let mut nodes = Nodes::new(Handle::new(b"root"), attributes(2, 2), until);
        let mut find = |number: u64| {
            let handle = Handle::new(&number.to_be_bytes());
            let found = nodes.found(2, handle, attributes(2, number), until);
            found.inspect(|ino| nodes.released(*ino))
        };
        let count = COUNT_MAX as u64;
        assert!((10..count + 9).all(|number| find(number) == Ok(Ino(number))));
        assert_eq!(find(count + 9), Err(TOO_MANY_FILES));
        assert_eq!(find(10), Ok(Ino(10)));
    }
}
