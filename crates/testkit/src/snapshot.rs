//! A whole tree at one moment, small enough that many can be stored, for comparing states of a volume or two volumes.
//!
//! Invariant: objects are identified by the first of their names in byte order, so that volumes with different inode
//! numbers can be compared. The numbers are stored too, so that an object can be followed through renames.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::{FileKind, NameBuf, Result, Timestamp};
use obento_driver::Cookie;
use obento_vfs::{Node, Vfs};

/// The most bytes that are read: the trees of plans are small, but a damaged size is not.
const MAX_CONTENT: u64 = 64 << 20;
/// The most entries: more than a plan creates, so that the listing of a damaged volume ends.
const MAX_ENTRIES: usize = 1 << 20;

/// One use of an inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id {
    /// Inode number.
    pub ino: u64,
    /// Generation.
    pub generation: u32,
}

/// The attributes of an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Type.
    pub kind: FileKind,
    /// Permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Length in bytes; 0 unless the inode is a regular file.
    pub size: u64,
    /// Device number.
    pub rdev: (u32, u32),
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Flags that a user can set.
    pub flags: u32,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
}

/// One object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// The attributes.
    pub meta: Meta,
    /// The bytes of a regular file.
    pub content: Arc<[u8]>,
    /// The inode.
    pub id: Id,
}

/// A tree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Objects by their first name; the root is the empty one.
    pub objects: BTreeMap<Vec<u8>, Arc<Object>>,
    /// The other names, with the first name of the same object.
    pub links: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Whether times are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// Compare everything.
    Compared,
    /// Compare everything except times.
    Ignored,
}

impl Snapshot {
    /// Reads the tree of `vfs`. Contents that equal those of `before` are shared with it.
    pub fn read(vfs: &Vfs, before: Option<&Self>) -> Result<Self> {
        let shared = before.map(|before| before.objects.values().map(|object| (object.id, object)).collect());
        let mut reader =
            Reader { found: BTreeMap::new(), ids: HashMap::new(), shared: shared.unwrap_or_default() };
        reader.visit(vfs.root())?;
        Ok(Self::of(reader.found, reader.ids))
    }

    /// Returns the tree with these names and objects.
    pub fn of(names: BTreeMap<Vec<u8>, Id>, objects: HashMap<Id, Object>) -> Self {
        let (mut tree, mut first) = (Self::default(), HashMap::new());
        for (path, id) in names {
            let original = first.entry(id).or_insert_with(|| path.clone());
            if *original != path {
                tree.links.insert(path, original.clone());
            }
        }
        for (id, object) in objects {
            if let Some(path) = first.remove(&id) {
                tree.objects.insert(path, Arc::new(object));
            }
        }
        tree
    }

    /// Returns the object at `path`.
    pub fn get(&self, path: &[u8]) -> Option<&Arc<Object>> {
        self.objects.get(self.links.get(path).map_or(path, Vec::as_slice))
    }

    /// Returns the object with this inode, if it has a name.
    pub fn by_id(&self, id: Id) -> Option<&Arc<Object>> {
        self.objects.values().find(|object| object.id == id)
    }

    /// Returns the tree with the generations of `other` for the same inode numbers, because an inode number is in use
    /// only once at a time.
    pub fn with_ids_of(&self, other: &Self) -> Self {
        let ids: HashMap<u64, Id> = other.objects.values().map(|object| (object.id.ino, object.id)).collect();
        let known = |object: &Arc<Object>| match ids.get(&object.id.ino) {
            Some(id) => Arc::new(Object { id: *id, ..Object::clone(object) }),
            None => Arc::clone(object),
        };
        let objects = self.objects.iter().map(|(path, object)| (path.clone(), known(object)));
        Self { objects: objects.collect(), links: self.links.clone() }
    }

    /// Returns the tree in which a file with an ID that no file at its path had in `trees` gets the ID of the last file at
    /// this path.
    pub fn with_ids_at_paths_of(&self, trees: &[Self]) -> Self {
        let known = |path: &Vec<u8>, object: &Arc<Object>| {
            let at_path = || trees.iter().rev().filter_map(|tree| tree.get(path));
            match at_path().next() {
                Some(last) if at_path().all(|other| other.id != object.id) => {
                    Arc::new(Object { id: last.id, ..Object::clone(object) })
                }
                _ => Arc::clone(object),
            }
        };
        let objects = self.objects.iter().map(|(path, object)| (path.clone(), known(path, object)));
        Self { objects: objects.collect(), links: self.links.clone() }
    }

    /// Returns the tree with each object's [`Meta`] changed by `change`.
    pub fn map_meta(&self, change: impl Fn(&Meta) -> Meta) -> Self {
        let changed = |object: &Object| Object { meta: change(&object.meta), ..object.clone() };
        let objects = self.objects.iter().map(|(path, object)| (path.clone(), Arc::new(changed(object))));
        Self { objects: objects.collect(), links: self.links.clone() }
    }

    /// Returns every name with its object.
    pub fn names(&self) -> impl Iterator<Item = (&Vec<u8>, &Arc<Object>)> {
        let links = self.links.iter().filter_map(|(path, first)| Some((path, self.objects.get(first)?)));
        self.objects.iter().chain(links)
    }

    /// Describes the first difference between two trees without the bytes of files; `skip` is not compared.
    pub fn difference(&self, found: &Self, times: Times, skip: Option<Id>) -> Option<String> {
        if self.links != found.links {
            return Some(format!(
                "other names: expected {}, found {}",
                list(&self.links),
                list(&found.links)
            ));
        }
        for (path, object) in &self.objects {
            let Some(other) = found.objects.get(path) else {
                return Some(format!("{}: missing", show(path)));
            };
            let same = match times {
                Times::Compared => object.meta == other.meta,
                Times::Ignored => object.meta.without_times() == other.meta.without_times(),
            };
            if !same && skip != Some(object.id) {
                return Some(format!(
                    "{}:\n  expected {:?}\n  found    {:?}",
                    show(path),
                    object.meta,
                    other.meta
                ));
            }
        }
        let extra = found.objects.keys().find(|path| !self.objects.contains_key(*path));
        extra.map(|path| format!("{}: extra", show(path)))
    }

    /// Describes the first file whose bytes differ between two trees with the same names.
    pub fn content_difference(&self, found: &Self) -> Option<String> {
        self.objects.iter().find_map(|(path, object)| {
            let other = found.objects.get(path)?;
            if object.content == other.content {
                return None;
            }
            let pairs = object.content.iter().zip(other.content.iter());
            let at = pairs.take_while(|(a, b)| a == b).count();
            let lens = (object.content.len(), other.content.len());
            Some(format!("{}: bytes differ from {at} on; lengths are {lens:?}", show(path)))
        })
    }
}

impl Meta {
    /// Returns the attributes with both times at the epoch.
    pub fn without_times(&self) -> Self {
        Self { mtime: Timestamp::EPOCH, ctime: Timestamp::EPOCH, ..self.clone() }
    }

    /// Returns the attributes with the seconds of both times.
    pub fn in_whole_seconds(&self) -> Self {
        let whole = |time: Timestamp| Timestamp::new(time.secs(), 0);
        Self { mtime: whole(self.mtime), ctime: whole(self.ctime), ..self.clone() }
    }
}

/// Formats a path for messages.
pub fn show(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

fn list(links: &BTreeMap<Vec<u8>, Vec<u8>>) -> String {
    let pairs: Vec<String> = links.iter().map(|(a, b)| format!("{} = {}", show(a), show(b))).collect();
    format!("[{}]", pairs.join(", "))
}

struct Reader<'a> {
    found: BTreeMap<Vec<u8>, Id>,
    ids: HashMap<Id, Object>,
    shared: HashMap<Id, &'a Arc<Object>>,
}

impl Reader<'_> {
    fn visit(&mut self, root: Node) -> Result<()> {
        let mut todo = vec![(Vec::new(), root)];
        while let Some((path, node)) = todo.pop() {
            let is_dir = self.object(&path, &node)?;
            for name in if is_dir { names(&node)? } else { Vec::new() } {
                let child = node.lookup(&name)?;
                let mut below = path.clone();
                below.extend((!path.is_empty()).then_some(b'/'));
                below.extend_from_slice(name.as_bytes());
                todo.push((below, child));
            }
        }
        Ok(())
    }

    /// Records the object of a name. Returns whether it is a directory that was not seen before.
    fn object(&mut self, path: &[u8], node: &Node) -> Result<bool> {
        let attr = node.attr()?;
        let id = Id { ino: attr.ino.0, generation: attr.generation.0 };
        self.found.insert(path.to_vec(), id);
        if self.ids.contains_key(&id) {
            return Ok(false);
        }
        let mut xattrs = BTreeMap::new();
        for name in node.list_xattrs()? {
            let value = node.get_xattr(&name)?;
            xattrs.insert(name, value);
        }
        let regular = attr.kind == FileKind::Regular;
        let meta = Meta {
            kind: attr.kind,
            mode: attr.mode.bits(),
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            size: if regular { attr.size } else { 0 },
            rdev: (attr.rdev.major, attr.rdev.minor),
            target: if attr.kind == FileKind::Symlink { node.read_link()? } else { Vec::new() },
            xattrs,
            flags: if regular || attr.is_dir() { attr.flags.bits() & USER_FLAGS } else { 0 },
            mtime: attr.mtime,
            ctime: attr.ctime,
        };
        let content = if regular { self.content(id, node, attr.size)? } else { Arc::from([]) };
        self.ids.insert(id, Object { meta, content, id });
        Ok(attr.is_dir())
    }

    fn content(&self, id: Id, node: &Node, size: u64) -> Result<Arc<[u8]>> {
        let mut bytes = vec![0xaa; size.min(MAX_CONTENT) as usize];
        let mut done = 0;
        while done < bytes.len() {
            match node.read_at(done as u64, &mut bytes[done..])? {
                0 => break,
                len => done += len,
            }
        }
        bytes.truncate(done);
        let known = self.shared.get(&id).filter(|object| object.content[..] == bytes[..]);
        Ok(known.map_or_else(|| bytes.into(), |object| Arc::clone(&object.content)))
    }
}

/// `SYNC | IMMUTABLE | APPEND | NO_DUMP | NO_ATIME`: flags that do not describe how a format stores a file.
pub(crate) const USER_FLAGS: u32 = 0x8 | 0x10 | 0x20 | 0x40 | 0x80;

fn names(dir: &Node) -> Result<Vec<NameBuf>> {
    let (mut names, mut damage) = (Vec::new(), Ok(()));
    dir.read_dir(Cookie::START, &mut |entry| {
        match entry {
            Ok(entry) => names.push(entry.name.to_buf()),
            Err(error) => damage = Err(error),
        }
        assert!(names.len() < MAX_ENTRIES, "the listing does not end");
        ControlFlow::Continue(())
    })?;
    damage.map(|()| names)
}
