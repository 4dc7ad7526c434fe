//! The known files: a number for each handle.
//!
//! The number of a file is that of the server. A file of a second file system inside an export gets a number with the top
//! bit set, which depends on its file system and its number there. Such a file therefore never gets the number of a file
//! that was forgotten. If two files of a server have the same number, the second one gets another number with the top bit
//! set.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use obento_base::{FileKind, Ino, Result};
use obento_remote_nodes::{FoundBy, IDLE_BYTES, IDLE_MAX, IdleFile, KnownFile, KnownFiles, idle_bytes};

use crate::error::{NONSENSE, TOO_MANY_FILES};
use crate::protocol::{Attributes, Handle};

/// The first number that no server gave.
const OWN: u64 = 1 << 63;
/// An odd number that distributes numbers: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// The header of a reference-counted allocation, and the overhead of the allocator, in bytes.
const ALLOCATION: usize = 32;
// An entry of `numbers`, its free buckets, the longest handle, and attributes.
const _: () = assert!(
    idle_bytes::<Remote>(
        3 * size_of::<(Handle, u64)>() + 2 * ALLOCATION + 64 + size_of::<(Attributes, Instant)>()
    ) <= IDLE_BYTES
);

/// A file.
pub type Node = KnownFile<Remote>;

/// The properties of a file that only this source stores.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its name for the server.
    pub handle: Handle,
    /// Its attributes, and until when they hold. A directory that is not in use has none.
    pub attributes: Option<Arc<(Attributes, Instant)>>,
    /// What a directory must be listed with.
    pub verifier: [u8; 8],
}

/// The known files of a server.
#[derive(Debug)]
pub struct Nodes {
    files: KnownFiles<Remote>,
    numbers: HashMap<Handle, u64>,
    next: u64,
    root: u64,
    /// The file system of the root.
    file_system: u64,
}

impl Nodes {
    /// Creates a table of at most `count_max` files, with the root.
    pub fn new(handle: Handle, attributes: Attributes, until: Instant, count_max: usize) -> Self {
        let root = if attributes.number == 0 || attributes.number >= OWN { 1 } else { attributes.number };
        let numbers = HashMap::from([(handle.clone(), root)]);
        let root_file = Remote::new(handle, attributes, until);
        let files = KnownFiles::with_limits(root, root_file, count_max, IDLE_MAX);
        Self { files, numbers, next: OWN, root, file_system: attributes.file_system }
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
        self.files.get(ino).cloned()
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
        by: FoundBy,
    ) -> Result<Ino> {
        if let Some(ino) = self.numbers.get(&handle).copied().map(Ino) {
            let node = self.files.get_mut(ino).filter(|node| node.kind == attributes.kind);
            let node = node.filter(|_| ino.0 != self.root && ino.0 != parent).ok_or(NONSENSE)?;
            (node.parent, node.own.attributes) = (parent, Some(Arc::new((attributes, until))));
            self.files.found(ino, by);
            return Ok(ino);
        }
        let ino = Ino(self.number_for(&attributes));
        let remote = Remote::new(handle.clone(), attributes, until);
        if !self.files.insert(ino, parent, attributes.kind, remote, by) {
            return Err(TOO_MANY_FILES);
        }
        self.numbers.insert(handle, ino.0);
        Ok(ino)
    }

    /// Returns a number for a new file.
    fn number_for(&mut self, attributes: &Attributes) -> u64 {
        let Attributes { file_system, number, .. } = *attributes;
        let mut wanted = number;
        if file_system != self.file_system {
            wanted = OWN
                | number.rotate_left(32).wrapping_add(file_system).wrapping_mul(MULTIPLIER).rotate_left(23);
        }
        let is_valid = wanted != 0 && (wanted < OWN || file_system != self.file_system);
        if is_valid && self.files.get(Ino(wanted)).is_err() {
            return wanted;
        }
        loop {
            self.next += 1;
            if self.files.get(Ino(self.next)).is_err() {
                return self.next;
            }
        }
    }

    /// Records that the caller uses a file. Returns whether the file is known.
    pub fn acquire(&mut self, ino: Ino) -> bool {
        self.files.acquire(ino)
    }

    /// Changes what is known of a file.
    pub fn update(&mut self, ino: Ino, f: impl FnOnce(&mut Node)) {
        if let Some(node) = self.files.get_mut(ino) {
            f(node);
        }
    }

    /// Records that the server has new attributes of a file. `None` means that they are unknown.
    pub fn changed(&mut self, ino: Ino, attributes: Option<Attributes>, until: Instant) {
        self.update(ino, |node| {
            let found = attributes.filter(|found| found.kind == node.kind);
            node.own.attributes = found.map(|found| Arc::new((found, until)));
        });
    }

    /// Forgets a file whose last name was removed, at once or after its last use.
    pub fn removed(&mut self, ino: Ino, is_used: bool) {
        self.changed(ino, None, Instant::now());
        let forgotten = self.files.removed(ino, is_used);
        self.forget_handle(forgotten);
    }

    /// Records that the caller no longer uses a file.
    pub fn released(&mut self, ino: Ino) {
        let forgotten = self.files.released(ino);
        self.forget_handle(forgotten);
        self.update(ino, |node| {
            if node.kind == FileKind::Directory {
                node.own.attributes = None;
            }
        });
    }

    /// Returns the oldest idle file, as [`KnownFiles::idle`] does. The caller saves the data of the file, and then calls
    /// [`evict`](Self::evict).
    pub fn idle(&mut self) -> Option<IdleFile> {
        self.files.idle()
    }

    /// Forgets an idle file, unless it was found again.
    pub fn evict(&mut self, idle: &IdleFile) {
        let forgotten = self.files.evict(idle);
        self.forget_handle(forgotten);
    }

    fn forget_handle(&mut self, forgotten: Option<Node>) {
        if let Some(node) = forgotten {
            self.numbers.remove(&node.own.handle);
        }
    }
}

impl Remote {
    fn new(handle: Handle, attributes: Attributes, until: Instant) -> Self {
        Self { handle, attributes: Some(Arc::new((attributes, until))), verifier: [0; 8] }
    }
}

#[cfg(test)]
mod tests {
    use obento_base::Error;

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

    /// A table of at most 800 files, of which 100 are idle.
    fn small_table() -> Nodes {
        let (handle, attributes) = (Handle::new(b"root"), attributes(2, 2));
        let mut nodes = Nodes::new(handle.clone(), attributes, Instant::now(), 800);
        nodes.files = KnownFiles::with_limits(2, Remote::new(handle, attributes, Instant::now()), 800, 100);
        nodes
    }

    fn find(nodes: &mut Nodes, kind: u32, number: u64) -> Ino {
        let handle = Handle::new(&number.to_be_bytes());
        nodes.found(2, handle, attributes(kind, number), Instant::now(), FoundBy::Lookup).unwrap()
    }

    /// Uses files once.
    fn use_files(nodes: &mut Nodes, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let ino = find(nodes, 1, number);
            nodes.released(ino);
            while let Some(idle) = nodes.idle() {
                nodes.evict(&idle);
            }
        }
    }

    #[test]
    fn a_forgotten_file_leaves_no_handle() {
        let mut nodes = small_table();
        use_files(&mut nodes, 10..5000);
        assert_eq!(nodes.numbers.len(), 101);
        let ino = find(&mut nodes, 1, 10);
        nodes.removed(ino, true);
        nodes.released(ino);
        assert_eq!(nodes.numbers.len(), 101);
    }

    #[test]
    fn a_file_of_a_second_file_system_never_gets_the_number_of_a_forgotten_file() {
        let mut nodes = small_table();
        let first = Ino(10);
        use_files(&mut nodes, 10..5000);
        assert_eq!(nodes.get(first).err(), Some(Error::Stale));
        let mut in_second = |number: u64| {
            let mut found = attributes(1, number);
            found.file_system = 1;
            let handle = Handle::new(&[1, number as u8]);
            nodes.found(2, handle, found, Instant::now(), FoundBy::Lookup).unwrap()
        };
        let second = in_second(10);
        assert!(second.0 >= OWN && second != in_second(11));
        assert_eq!(in_second(10), second);
    }
}
