//! The inodes and names of a volume: what is left of the log when only the newest version of everything counts.
//!
//! Source: Linux `fs/jffs2/build.c` and `fs/jffs2/nodelist.c` (`jffs2_add_fd_to_list`).
//!
//! Invariant: every child is an inode of the catalogue, and every directory except the root is the child of one directory,
//! which the root reaches. So no directory is below itself.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{FileKind, Name};

use crate::nodes::{Dirent, Inode, Node, Xattr, Xref};

/// Inode number of the root directory.
pub const ROOT: u32 = 1;

/// A contradiction between nodes that are valid by themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A name refers to an inode without nodes.
    Dangling(Place),
    /// A name is in an inode that is no directory, or that no directory contains.
    MissingParent(Place),
    /// A name refers to a directory that has another name.
    SecondName(Place),
    /// The bytes of a name are no name.
    BadName(Place),
    /// The type in an entry is not that of the inode.
    WrongType(Place, u8),
    /// A directory has entries and no inode node.
    NoInode(u32),
    /// The type of an inode is unknown.
    UnknownType(u32, u16),
}

/// A directory entry in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Position of the node.
    pub at: u32,
    /// Directory.
    pub parent: u32,
    /// Name.
    pub name: Vec<u8>,
    /// Inode that the name refers to.
    pub ino: u32,
}

/// A directory entry without its name.
#[derive(Clone, Copy, Debug)]
struct Entry {
    parent: u32,
    version: u32,
    ino: u32,
    time: u32,
    at: u32,
    name: u32,
    name_len: u8,
    kind: u8,
    is_shown: bool,
}

/// The name of a file.
#[derive(Clone, Copy, Debug)]
pub struct Child {
    /// Inode that the name refers to.
    pub ino: u32,
    name: u32,
    name_len: u8,
}

/// An inode.
#[derive(Clone, Debug)]
pub struct File {
    /// Inode number.
    pub ino: u32,
    /// Its nodes, by version.
    nodes: Range<u32>,
    /// Its names, if it is a directory.
    children: Range<u32>,
    /// Number of names; of a directory, number of its subdirectories.
    pub links: u32,
    /// Directory that contains this directory; 0 if no directory does.
    pub parent: u32,
    /// Version and time of the last change of an entry.
    pub changed: (u32, u32),
}

/// Nodes as they are found, in any order.
#[derive(Default)]
pub struct Collector {
    nodes: Vec<Inode>,
    entries: Vec<Entry>,
    names: Vec<u8>,
    xattrs: Vec<Xattr>,
    xrefs: Vec<Xref>,
}

impl Collector {
    /// Adds a node.
    pub fn add(&mut self, node: Node) {
        match node {
            Node::Inode(inode) => self.nodes.push(inode),
            Node::Dirent(dirent) => self.add_entry(&dirent),
            Node::Xattr(xattr) => self.xattrs.push(xattr),
            Node::Xref(xref) => self.xrefs.push(xref),
        }
    }

    fn add_entry(&mut self, dirent: &Dirent) {
        // The image has at most 4 GiB, so that positions in its names have 32 bits.
        let (Ok(name), Ok(name_len)) = (u32::try_from(self.names.len()), u8::try_from(dirent.name.len()))
        else {
            return;
        };
        self.names.extend_from_slice(&dirent.name);
        let Dirent { parent, version, ino, time, at, kind, .. } = *dirent;
        self.entries.push(Entry { parent, version, ino, time, at, name, name_len, kind, is_shown: false });
    }

    /// Resolves versions, and passes contradictions to `problems`.
    pub fn finish(mut self, problems: &mut dyn FnMut(Problem)) -> Catalogue {
        self.nodes.sort_unstable_by_key(|node| (node.ino, node.version, node.at));
        // Garbage collection copies a node with its version. The first copy counts.
        self.nodes.dedup_by_key(|node| (node.ino, node.version));
        let names = &self.names;
        self.entries.sort_unstable_by(|a, b| {
            let by_name = || text(names, a.name, a.name_len).cmp(text(names, b.name, b.name_len));
            a.parent.cmp(&b.parent).then_with(by_name).then((b.version, b.at).cmp(&(a.version, a.at)))
        });
        let mut files = files_of(&self.nodes);
        changes(&self.entries, &mut files, problems);
        // The newest version of each name is the first.
        self.entries.dedup_by(|later, first| {
            later.parent == first.parent
                && text(names, later.name, later.name_len) == text(names, first.name, first.name_len)
        });
        self.entries.retain(|entry| entry.ino != 0);
        let Self { nodes, entries, names, mut xattrs, mut xrefs } = self;
        xattrs.sort_unstable_by_key(|xattr| (xattr.id, core::cmp::Reverse((xattr.version, xattr.at))));
        xattrs.dedup_by_key(|xattr| xattr.id);
        xrefs.sort_unstable_by_key(|xref| (xref.ino, xref.id, core::cmp::Reverse(xref.sequence)));
        xrefs.dedup_by_key(|xref| (xref.ino, xref.id));
        xrefs.retain(|xref| !xref.is_removed);
        let catalogue = Catalogue { nodes, files, children: Vec::new(), names, xattrs, xrefs };
        catalogue.with_tree(entries, problems)
    }
}

fn text(names: &[u8], start: u32, len: u8) -> &[u8] {
    let start = to_usize(start.into());
    names.get(start..start.saturating_add(len.into())).unwrap_or_default()
}

fn index(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn usize_range(range: &Range<u32>) -> Range<usize> {
    to_usize(range.start.into())..to_usize(range.end.into())
}

/// Returns an inode for each run of nodes, and one for the root.
fn files_of(nodes: &[Inode]) -> Vec<File> {
    let file = |ino, nodes| File { ino, nodes, children: 0..0, links: 0, parent: 0, changed: (0, 0) };
    let mut files = Vec::new();
    let mut start = 0_usize;
    for run in nodes.chunk_by(|a, b| a.ino == b.ino) {
        let end = start.saturating_add(run.len());
        files.extend(run.first().map(|node| file(node.ino, index(start)..index(end))));
        start = end;
    }
    if let Err(at) = files.binary_search_by_key(&ROOT, |file| file.ino) {
        files.insert(at, file(ROOT, 0..0));
    }
    files
}

/// Stores the time of the last change of each directory. A directory without an inode node is added.
fn changes(entries: &[Entry], files: &mut Vec<File>, problems: &mut dyn FnMut(Problem)) {
    let mut missing = Vec::new();
    for run in entries.chunk_by(|a, b| a.parent == b.parent) {
        let Some(parent) = run.first().map(|entry| entry.parent) else { continue };
        let timed = run.iter().filter(|entry| entry.time != 0);
        let newest = timed.max_by_key(|entry| entry.version).map(|entry| (entry.version, entry.time));
        let changed = newest.unwrap_or((0, 0));
        match files.binary_search_by_key(&parent, |file| file.ino) {
            Ok(at) => {
                if let Some(file) = files.get_mut(at) {
                    file.changed = changed;
                }
            }
            Err(_) if parent != 0 && run.iter().any(|entry| entry.ino != 0) => {
                missing.push(File { ino: parent, nodes: 0..0, children: 0..0, links: 0, parent: 0, changed })
            }
            Err(_) => {}
        }
    }
    if !missing.is_empty() {
        missing.iter().for_each(|file: &File| problems(Problem::NoInode(file.ino)));
        files.append(&mut missing);
        files.sort_unstable_by_key(|file| file.ino);
    }
}

/// The inodes and names of a volume.
pub struct Catalogue {
    nodes: Vec<Inode>,
    files: Vec<File>,
    children: Vec<Child>,
    names: Vec<u8>,
    xattrs: Vec<Xattr>,
    xrefs: Vec<Xref>,
}

impl Catalogue {
    /// Returns the inode `ino`, if the root reaches it.
    pub fn file(&self, ino: u32) -> Option<&File> {
        self.any(ino).filter(|file| file.links > 0 || file.parent != 0)
    }

    fn any(&self, ino: u32) -> Option<&File> {
        self.position(ino).and_then(|at| self.files.get(at))
    }

    fn position(&self, ino: u32) -> Option<usize> {
        self.files.binary_search_by_key(&ino, |file| file.ino).ok()
    }

    /// Returns all inodes that the root reaches.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.links > 0 || file.parent != 0)
    }

    /// Returns the nodes of an inode, the oldest first. Only a directory may have none.
    pub fn nodes(&self, file: &File) -> &[Inode] {
        self.nodes.get(usize_range(&file.nodes)).unwrap_or_default()
    }

    /// Returns the node whose attributes count.
    pub fn latest(&self, file: &File) -> Option<&Inode> {
        self.nodes(file).last()
    }

    /// Returns the type of an inode, or its invalid mode.
    pub fn kind(&self, file: &File) -> Result<FileKind, u16> {
        match self.latest(file) {
            Some(node) => FileKind::from_mode(node.mode).ok_or(node.mode),
            // As Linux does.
            None => Ok(FileKind::Directory),
        }
    }

    /// Returns the names in a directory, in the order of their bytes.
    pub fn children(&self, file: &File) -> &[Child] {
        self.children.get(usize_range(&file.children)).unwrap_or_default()
    }

    /// Returns the bytes of a name.
    pub fn name(&self, child: &Child) -> &[u8] {
        text(&self.names, child.name, child.name_len)
    }

    /// Returns the inode that a name refers to.
    pub fn find(&self, file: &File, name: &[u8]) -> Option<u32> {
        let children = self.children(file);
        let at = children.binary_search_by(|child| self.name(child).cmp(name)).ok()?;
        children.get(at).map(|child| child.ino)
    }

    /// Returns the extended attributes of an inode, with their sequence numbers.
    pub fn xattrs(&self, ino: u32) -> impl Iterator<Item = (u32, &Xattr)> {
        let start = self.xrefs.partition_point(|xref| xref.ino < ino);
        let run = self.xrefs.get(start..).unwrap_or_default();
        run.iter().take_while(move |xref| xref.ino == ino).filter_map(|xref| {
            let at = self.xattrs.binary_search_by_key(&xref.id, |xattr| xattr.id).ok()?;
            self.xattrs.get(at).map(|xattr| (xref.sequence, xattr))
        })
    }

    /// Returns the uses of attributes by an inode or of an attribute that does not exist.
    pub fn dangling_xattrs(&self) -> impl Iterator<Item = (u32, u32)> {
        let is_dangling = |xref: &&Xref| {
            self.file(xref.ino).is_some()
                && self.xattrs.binary_search_by_key(&xref.id, |xattr| xattr.id).is_err()
        };
        self.xrefs.iter().filter(is_dangling).map(|xref| (xref.ino, xref.id))
    }

    /// Walks from the root through `entries`, which have one version each, and keeps those that are consistent.
    fn with_tree(mut self, mut entries: Vec<Entry>, problems: &mut dyn FnMut(Problem)) -> Self {
        if let Some(root) = self.position(ROOT).and_then(|at| self.files.get_mut(at)) {
            root.parent = ROOT;
        }
        let mut todo = Vec::from([ROOT]);
        let mut next = 0_usize;
        while let Some(&dir) = todo.get(next) {
            next = next.saturating_add(1);
            let start = entries.partition_point(|entry| entry.parent < dir);
            let end = entries.partition_point(|entry| entry.parent <= dir);
            for entry in entries.get_mut(start..end).unwrap_or_default() {
                match self.link(entry) {
                    Ok(true) => todo.push(entry.ino),
                    Ok(false) => {}
                    Err(problem) => {
                        problems(problem);
                        continue;
                    }
                }
                self.compare_type(entry, problems);
                entry.is_shown = true;
            }
        }
        for entry in entries.iter().filter(|entry| !entry.is_shown && self.is_lost(entry)) {
            problems(Problem::MissingParent(self.place(entry)));
        }
        entries.retain(|entry| entry.is_shown);
        self.place_children(&entries);
        let unknown = self.files().filter_map(|file| self.kind(file).err().map(|mode| (file.ino, mode)));
        unknown.for_each(|(ino, mode)| problems(Problem::UnknownType(ino, mode)));
        self
    }

    /// Returns whether the entry of a live inode is in no directory.
    fn is_lost(&self, entry: &Entry) -> bool {
        let is_reached = self
            .any(entry.parent)
            .is_some_and(|parent| self.kind(parent) == Ok(FileKind::Directory) && parent.parent != 0);
        !is_reached && self.any(entry.ino).is_some()
    }

    /// Counts an entry of a directory that the root reaches. Returns whether it is a subdirectory.
    fn link(&mut self, entry: &Entry) -> Result<bool, Problem> {
        if Name::new(text(&self.names, entry.name, entry.name_len)).is_err() {
            return Err(Problem::BadName(self.place(entry)));
        }
        let Some(at) = self.position(entry.ino) else {
            return Err(Problem::Dangling(self.place(entry)));
        };
        let Some(file) = self.files.get(at) else { return Ok(false) };
        let is_directory = self.kind(file) == Ok(FileKind::Directory);
        if is_directory && file.parent != 0 {
            return Err(Problem::SecondName(self.place(entry)));
        }
        if let Some(file) = self.files.get_mut(at) {
            if is_directory {
                file.parent = entry.parent;
            } else {
                file.links = file.links.saturating_add(1);
            }
        }
        let parent = self.position(entry.parent).filter(|_| is_directory);
        if let Some(parent) = parent.and_then(|at| self.files.get_mut(at)) {
            parent.links = parent.links.saturating_add(1);
        }
        Ok(is_directory)
    }

    fn compare_type(&self, entry: &Entry, problems: &mut dyn FnMut(Problem)) {
        let Some(file) = self.any(entry.ino) else { return };
        // `DT_` types are the upper bits of a mode.
        let expected = self.kind(file).map(|kind| kind.mode_bits() >> 12);
        if expected.is_ok_and(|expected| expected != u16::from(entry.kind)) {
            problems(Problem::WrongType(self.place(entry), entry.kind));
        }
    }

    fn place(&self, entry: &Entry) -> Place {
        let name = text(&self.names, entry.name, entry.name_len).to_vec();
        Place { at: entry.at, parent: entry.parent, name, ino: entry.ino }
    }

    /// Stores the entries, which are sorted by directory and name.
    fn place_children(&mut self, entries: &[Entry]) {
        let child = |entry: &Entry| Child { ino: entry.ino, name: entry.name, name_len: entry.name_len };
        self.children = entries.iter().map(child).collect();
        let mut files = self.files.iter_mut();
        let mut start = 0_usize;
        for run in entries.chunk_by(|a, b| a.parent == b.parent) {
            let end = start.saturating_add(run.len());
            let parent = run.first().map_or(0, |entry| entry.parent);
            if let Some(file) = files.find(|file| file.ino.cmp(&parent) == Ordering::Equal) {
                file.children = index(start)..index(end);
            }
            start = end;
        }
    }
}
