//! The known files: a number for each handle.
//!
//! The number of a file is that of the server. A file of a second file system inside an export gets a number with the top
//! bit set, which depends on its file system and its number there. Such a file therefore never gets the number of a file
//! that was forgotten. If two files of a server have the same number, the second one gets another number with the top bit
//! set.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use obento_base::{Error, FileKind, Ino, Result};

use crate::error::{NONSENSE, TOO_MANY_FILES};
use crate::protocol::{Attributes, Handle};

/// Files that are known at most. A directory is known until the end. If only an eighth of the table is free, files that
/// are not in use are forgotten.
pub const FILES: usize = 1 << 20;
/// The first number that no server gave.
const OWN: u64 = 1 << 63;
/// An odd number that distributes numbers: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A file.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name for the server.
    pub handle: Handle,
    /// The directory in which it was found.
    pub parent: u64,
    /// Its kind.
    pub kind: FileKind,
    /// Its attributes, and until when they hold. A directory that is not in use has none.
    pub attributes: Option<Arc<(Attributes, Instant)>>,
    /// What a directory must be listed with.
    pub verifier: [u8; 8],
    /// The entries of the current listing of a directory. Two listings of one directory share this count.
    pub listed: ListedCount,
    /// Whether its last name was removed while the caller used it.
    is_removed: bool,
    /// The time of the last change between use and no use: the value of [`Nodes::clock`].
    stamp: u64,
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

/// The known files of a server.
#[derive(Debug)]
pub struct Nodes {
    known: HashMap<u64, Node>,
    numbers: HashMap<Handle, u64>,
    /// Files that the caller no longer uses, the first one longest. Entries whose stamp is old are void.
    released: VecDeque<IdleFile>,
    /// Increases whenever the server returns a file, and whenever the caller releases a file.
    clock: u64,
    count_max: usize,
    next: u64,
    root: u64,
    /// The file system of the root.
    file_system: u64,
}

impl Nodes {
    /// Creates a table of at most `count_max` files, with the root.
    pub fn new(handle: Handle, attributes: Attributes, until: Instant, count_max: usize) -> Self {
        let root = if attributes.number == 0 || attributes.number >= OWN { 1 } else { attributes.number };
        let mut nodes = Self {
            known: HashMap::new(),
            numbers: HashMap::from([(handle.clone(), root)]),
            released: VecDeque::new(),
            clock: 0,
            count_max,
            next: OWN,
            root,
            file_system: attributes.file_system,
        };
        nodes.known.insert(root, node(handle, root, attributes, until, 0));
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

    /// Records that the server returned a file in `parent`. The caller may use the file from now on.
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
        self.clock += 1;
        if let Some(&number) = self.numbers.get(&handle) {
            let node = self.known.get_mut(&number).filter(|node| node.kind == attributes.kind);
            let node = node.filter(|_| number != self.root && number != parent).ok_or(NONSENSE)?;
            (node.parent, node.attributes) = (parent, Some(Arc::new((attributes, until))));
            node.stamp = self.clock;
            return Ok(Ino(number));
        }
        if self.known.len() >= self.count_max {
            return Err(TOO_MANY_FILES);
        }
        let number = self.number_for(&attributes);
        self.numbers.insert(handle.clone(), number);
        self.known.insert(number, node(handle, parent, attributes, until, self.clock));
        Ok(Ino(number))
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
        if is_valid && !self.known.contains_key(&wanted) {
            return wanted;
        }
        loop {
            self.next += 1;
            if !self.known.contains_key(&self.next) {
                return self.next;
            }
        }
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
            self.clock += 1;
            let stamp = self.clock;
            return self.update(ino, |node| {
                (node.is_removed, node.attributes, node.stamp) = (true, None, stamp);
            });
        }
        if let Some(node) = self.known.remove(&ino.0) {
            self.numbers.remove(&node.handle);
        }
    }

    /// Records that the caller no longer uses a file.
    pub fn released(&mut self, ino: Ino) {
        if self.known.get(&ino.0).is_some_and(|node| node.is_removed) {
            self.removed(ino, false);
        }
        self.clock += 1;
        match self.known.get_mut(&ino.0) {
            Some(node) if node.kind == FileKind::Directory => node.attributes = None,
            Some(node) => {
                node.stamp = self.clock;
                self.released.push_back(IdleFile { number: ino.0, stamp: self.clock });
            }
            None => {}
        }
        if self.released.len() > self.count_max / 2 * 3 {
            let known = &self.known;
            self.released.retain(|idle| known.get(&idle.number).is_some_and(|node| node.stamp == idle.stamp));
        }
    }

    /// Returns the file that has been out of use longest, if the table is nearly full. The caller saves the data of the
    /// file, and then calls [`evict`](Self::evict).
    pub fn idle(&mut self) -> Option<IdleFile> {
        while self.known.len() > self.count_max / 8 * 7 {
            let idle = self.released.pop_front()?;
            if self.known.get(&idle.number).is_some_and(|node| node.stamp == idle.stamp) {
                return Some(idle);
            }
        }
        None
    }

    /// Forgets a file, unless the caller uses it again.
    pub fn evict(&mut self, idle: IdleFile) {
        if self.known.get(&idle.number).is_some_and(|node| node.stamp == idle.stamp) {
            self.removed(Ino(idle.number), false);
        }
    }
}

fn node(handle: Handle, parent: u64, attributes: Attributes, until: Instant, stamp: u64) -> Node {
    let (kind, attributes) = (attributes.kind, Some(Arc::new((attributes, until))));
    let listed = ListedCount::default();
    Node { handle, parent, kind, attributes, verifier: [0; 8], listed, is_removed: false, stamp }
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

    /// A table of at most 800 files.
    fn small_table() -> Nodes {
        Nodes::new(Handle::new(b"root"), attributes(2, 2), Instant::now(), 800)
    }

    fn find(nodes: &mut Nodes, kind: u32, number: u64) -> Ino {
        let handle = Handle::new(&number.to_be_bytes());
        nodes.found(2, handle, attributes(kind, number), Instant::now()).unwrap()
    }

    /// Releases a file, and forgets the oldest ones.
    fn release(nodes: &mut Nodes, ino: Ino) {
        nodes.released(ino);
        while let Some(idle) = nodes.idle() {
            nodes.evict(idle);
        }
    }

    #[test]
    fn any_number_of_files_out_of_use_takes_bounded_memory() {
        let mut nodes = small_table();
        for number in 10..30_000 {
            let ino = find(&mut nodes, 1, number);
            release(&mut nodes, ino);
        }
        assert_eq!((nodes.known.len(), nodes.numbers.len(), nodes.released.len()), (700, 700, 699));
        for _ in 0..30_000 {
            let ino = find(&mut nodes, 1, 10);
            release(&mut nodes, ino);
        }
        assert!(nodes.known.len() <= 700 && nodes.released.len() <= 1200);
    }

    #[test]
    fn a_file_that_is_found_again_stays_while_it_is_in_use() {
        let mut nodes = small_table();
        let ino = find(&mut nodes, 1, 10);
        release(&mut nodes, ino);
        assert_eq!(find(&mut nodes, 1, 10), ino);
        for number in 11..5000 {
            let other = find(&mut nodes, 1, number);
            release(&mut nodes, other);
        }
        assert!(nodes.get(ino).is_ok());
        release(&mut nodes, ino);
        for number in 5000..6000 {
            let other = find(&mut nodes, 1, number);
            release(&mut nodes, other);
        }
        assert_eq!(nodes.get(ino).err(), Some(Error::Stale));
    }

    #[test]
    fn a_file_that_is_used_again_before_its_eviction_stays() {
        let mut nodes = small_table();
        let inos: Vec<Ino> = (10..720).map(|number| find(&mut nodes, 1, number)).collect();
        inos.iter().for_each(|&ino| nodes.released(ino));
        let idle = nodes.idle().unwrap();
        assert_eq!((Ino(idle.number), find(&mut nodes, 1, 10)), (inos[0], inos[0]));
        nodes.evict(idle);
        assert!(nodes.get(inos[0]).is_ok());
    }

    #[test]
    fn a_directory_with_the_number_of_a_removed_file_stays() {
        let mut nodes = small_table();
        let ino = find(&mut nodes, 1, 10);
        release(&mut nodes, ino);
        nodes.removed(ino, false);
        assert_eq!(find(&mut nodes, 2, 10), ino);
        for number in 11..5000 {
            let other = find(&mut nodes, 1, number);
            release(&mut nodes, other);
        }
        assert!(nodes.get(ino).is_ok());
    }

    #[test]
    fn a_second_walk_in_the_opposite_order_finds_the_files_that_it_listed() {
        let mut nodes = small_table();
        let forth: Vec<u64> = (10..5000).collect();
        let back: Vec<u64> = forth.iter().rev().copied().collect();
        for numbers in [&forth, &back, &forth] {
            for portion in numbers.chunks(90) {
                let listed: Vec<Ino> = portion.iter().map(|&number| find(&mut nodes, 1, number)).collect();
                for ino in listed {
                    assert!(nodes.get(ino).is_ok());
                    release(&mut nodes, ino);
                }
            }
        }
    }

    #[test]
    fn a_file_of_a_second_file_system_never_gets_the_number_of_a_forgotten_file() {
        let mut nodes = small_table();
        let first = find(&mut nodes, 1, 10);
        release(&mut nodes, first);
        for number in 11..5000 {
            let other = find(&mut nodes, 1, number);
            release(&mut nodes, other);
        }
        assert_eq!(nodes.get(first).err(), Some(Error::Stale));
        let mut in_second = |number: u64| {
            let mut found = attributes(1, number);
            found.file_system = 1;
            nodes.found(2, Handle::new(&[1, number as u8]), found, Instant::now()).unwrap()
        };
        let second = in_second(10);
        assert!(second.0 >= OWN && second != in_second(11));
        assert_eq!(in_second(10), second);
    }

    #[test]
    fn more_directories_than_fit_are_an_error_and_the_known_ones_stay() {
        let until = Instant::now();
        let mut nodes = Nodes::new(Handle::new(b"root"), attributes(2, 2), until, FILES);
        let mut find = |number: u64| {
            let handle = Handle::new(&number.to_be_bytes());
            let found = nodes.found(2, handle, attributes(2, number), until);
            found.inspect(|ino| nodes.released(*ino))
        };
        let count = FILES as u64;
        assert!((10..count + 9).all(|number| find(number) == Ok(Ino(number))));
        assert_eq!(find(count + 9), Err(TOO_MANY_FILES));
        assert_eq!(find(10), Ok(Ino(10)));
    }
}
