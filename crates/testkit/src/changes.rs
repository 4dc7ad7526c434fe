//! Random changes to volumes of formats with only files and directories, compared with a map of the expected contents.
//!
//! The plans of [`crate::plan`] test links, owners and holes. Here names differ only by case and need several entries,
//! and files grow and shrink across clusters.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::{Attr, Error, FileKind, Ino, Mode, Name, Result};
use obento_driver::{Cookie, FileSystem, LayoutLock, NewNode, RenameFlags, Span};
use obento_vfs::Vfs;

use crate::mutants::Random;

/// The result of a walk: the attributes, and the bytes of files.
pub type Found = BTreeMap<String, (Attr, Vec<u8>)>;

/// Returns the bytes of a file.
pub fn read(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<Vec<u8>> {
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let mut bytes = vec![0; size as usize];
    let mut at = 0;
    while at < size {
        let extent = fs.map(&layout, ino, at..size)?;
        let buf = &mut bytes[at as usize..(at + extent.len) as usize];
        match extent.span {
            Span::Mapped(offset) => fs.device().expect("a device").read_at(offset, buf)?,
            Span::Driver => assert_eq!(fs.read(&layout, ino, at, buf)?, buf.len(), "all that was mapped"),
            Span::Hole | Span::Unwritten => {}
        }
        at += extent.len;
    }
    Ok(bytes)
}

/// Returns everything below the root.
pub fn walk(fs: &dyn FileSystem) -> Found {
    let mut found = Found::new();
    let mut todo = vec![(String::new(), fs.root())];
    while let Some((path, dir)) = todo.pop() {
        let mut children = Vec::new();
        fs.read_dir(dir, Cookie::START, &mut |entry| {
            let entry = entry.expect("a sound directory");
            children.push((entry.name.to_buf(), entry.ino));
            ControlFlow::Continue(())
        })
        .expect("a directory");
        for (name, ino) in children {
            assert_eq!(fs.lookup(dir, &name), Ok(ino), "{name}");
            let attr = fs.getattr(ino).expect("in use");
            let path = format!("{path}/{}", String::from_utf8_lossy(name.as_bytes()));
            let bytes = match attr.kind {
                FileKind::Regular => read(fs, ino, attr.size).expect("a sound file"),
                _ => {
                    todo.push((path.clone(), ino));
                    Vec::new()
                }
            };
            found.insert(path, (attr, bytes));
        }
    }
    found
}

/// Returns the inode at `path`, which starts with `/`.
pub fn resolve(fs: &dyn FileSystem, path: &str) -> Result<Ino> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .try_fold(fs.root(), |dir, part| fs.lookup(dir, Name::new(part.as_bytes()).expect("a name")))
}

/// Converts a valid name.
pub fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).expect("it can be done")
}

/// Returns a new inode of user 0.
pub fn node(kind: FileKind) -> NewNode<'static> {
    NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev: Default::default(), target: b"" }
}

/// Creates `text` in `dir`.
pub fn create(fs: &dyn FileSystem, dir: Ino, text: &str, kind: FileKind) -> Result<Ino, Error> {
    fs.writable().expect("it can be done").create(dir, name(text), &node(kind)).map(|attr| attr.ino)
}

/// Closes a changed volume.
pub fn close(fs: &dyn FileSystem) {
    fs.writable().expect("it can be done").close().expect("it can be done");
}

/// The contents of a volume by path: the bytes of files, `None` for directories.
pub type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// Returns the contents of a volume.
pub fn tree_of(fs: &dyn FileSystem) -> Tree {
    walk(fs)
        .into_iter()
        .map(|(path, (attr, bytes))| (path, (attr.kind == FileKind::Regular).then_some(bytes)))
        .collect()
}

/// A volume with random changes, and its expected contents.
pub struct Model {
    /// The volume.
    pub fs: Arc<dyn FileSystem>,
    vfs: Vfs,
    /// The expected contents.
    pub tree: Tree,
    random: Random,
}

const NAMES: &[&str] = &[
    "a",
    "B.TXT",
    "readme.txt",
    "Mixed Case.html",
    "a rather long name of a file, which takes several entries",
    "\u{fc}ber",
    "x.y.z",
    "12345678.123",
    "123456789",
    ".dot",
];

impl Model {
    /// Starts with the current contents of the volume.
    pub fn new(fs: Arc<dyn FileSystem>, seed: u64) -> Self {
        Self { vfs: Vfs::new(fs.clone()), tree: tree_of(&*fs), fs, random: Random::new(seed) }
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.random.below(from.len() as u64) as usize]
    }

    fn directory(&mut self) -> String {
        let mut dirs = vec![String::new()];
        dirs.extend(self.tree.iter().filter(|(_, bytes)| bytes.is_none()).map(|(path, _)| path.clone()));
        self.pick(&dirs).clone()
    }

    /// Returns a path that may exist.
    fn path(&mut self) -> String {
        let dir = self.directory();
        format!("{dir}/{}", self.pick(NAMES))
    }

    fn existing(&mut self) -> Option<String> {
        let paths: Vec<_> = self.tree.keys().cloned().collect();
        (!paths.is_empty()).then(|| self.pick(&paths).clone())
    }

    fn split(path: &str) -> (&str, &str) {
        path.rsplit_once('/').expect("it can be done")
    }

    fn ino(&self, path: &str) -> Ino {
        resolve(&*self.fs, path).expect("it can be done")
    }

    fn has_children(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.tree.keys().any(|other| other.starts_with(&below))
    }

    /// Makes one change.
    pub fn step(&mut self) {
        match self.random.below(10) {
            0 | 1 => self.make(FileKind::Regular),
            2 => self.make(FileKind::Directory),
            3..=5 => self.write(),
            6 => self.truncate(),
            7 => self.remove(),
            _ => self.rename(),
        }
    }

    fn make(&mut self, kind: FileKind) {
        let path = self.path();
        let (dir, file) = Self::split(&path);
        let made = create(&*self.fs, self.ino(dir), file, kind);
        match self.tree.contains_key(&path) {
            true => assert_eq!(made, Err(Error::Exists)),
            false => {
                made.expect("it can be done");
                self.tree.insert(path, (kind == FileKind::Regular).then(Vec::new));
            }
        }
    }

    fn write(&mut self) {
        let Some(path) = self.existing() else { return };
        let offset = self.random.below(6000) as usize;
        let bytes = vec![self.random.number() as u8; 1 + self.random.below(5000) as usize];
        let ino = self.ino(&path);
        let Some(Some(content)) = self.tree.get_mut(&path) else { return };
        let node = self.vfs.node(ino).expect("it can be done");
        assert_eq!(node.write_at(offset as u64, &bytes), Ok(bytes.len()));
        let end = offset + bytes.len();
        content.resize(content.len().max(end), 0);
        content[offset..end].copy_from_slice(&bytes);
    }

    fn truncate(&mut self) {
        let Some(path) = self.existing() else { return };
        let size = self.random.below(8000) as usize;
        let ino = self.ino(&path);
        let Some(Some(content)) = self.tree.get_mut(&path) else { return };
        self.vfs.node(ino).expect("it can be done").truncate(size as u64).expect("it can be done");
        content.resize(size, 0);
    }

    fn remove(&mut self) {
        let Some(path) = self.existing() else { return };
        let (dir, file) = Self::split(&path);
        let (ino, dir) = (self.ino(&path), self.ino(dir));
        let writable = self.fs.writable().expect("it can be done");
        match self.tree[&path] {
            Some(_) => writable.unlink(dir, name(file)).expect("it can be done"),
            None if self.has_children(&path) => {
                assert_eq!(writable.rmdir(dir, name(file)), Err(Error::NotEmpty));
                return;
            }
            None => writable.rmdir(dir, name(file)).expect("it can be done"),
        }
        self.fs.forget(ino);
        self.tree.remove(&path);
    }

    fn rename(&mut self) {
        let Some(from) = self.existing() else { return };
        let to = self.path();
        // Renames that `vfs` refuses, or that change nothing.
        if from == to || to.starts_with(&format!("{from}/")) {
            return;
        }
        let ((from_dir, from_name), (to_dir, to_name)) = (Self::split(&from), Self::split(&to));
        let replaced = self.tree.contains_key(&to).then(|| self.ino(&to));
        let renamed = self.fs.writable().expect("it can be done").rename(
            self.ino(from_dir),
            name(from_name),
            self.ino(to_dir),
            name(to_name),
            RenameFlags::empty(),
        );
        let (source, target) = (self.tree[&from].is_none(), self.tree.get(&to).map(Option::is_none));
        match (source, target) {
            (false, Some(true)) => return assert_eq!(renamed, Err(Error::IsDirectory)),
            (true, Some(false)) => return assert_eq!(renamed, Err(Error::NotDirectory)),
            (true, Some(true)) if self.has_children(&to) => return assert_eq!(renamed, Err(Error::NotEmpty)),
            _ => renamed.expect("it can be done"),
        }
        if let Some(replaced) = replaced {
            self.fs.forget(replaced);
        }
        let below = format!("{from}/");
        let moved: Vec<_> = self.tree.keys().filter(|path| path.starts_with(&below)).cloned().collect();
        for path in moved {
            let bytes = self.tree.remove(&path).expect("it can be done");
            self.tree.insert(format!("{to}/{}", &path[below.len()..]), bytes);
        }
        let bytes = self.tree.remove(&from).expect("it can be done");
        self.tree.insert(to, bytes);
    }

    /// Panics with `what` if the contents differ from the expected ones.
    pub fn compare(&self, what: &str) {
        assert!(tree_of(&*self.fs) == self.tree, "{what}");
    }
}

/// Panics unless every file has a chain of its own that is long enough and allocated.
pub fn nothing_worse_than_lost_clusters(fs: &dyn FileSystem, what: &str) {
    let lock = LayoutLock::new();
    let block = u64::from(fs.statfs().expect("statfs succeeds").block_size);
    let mut owners: BTreeMap<u64, String> = BTreeMap::new();
    for (path, (attr, _)) in walk(fs) {
        let mut at = 0;
        while at < attr.size && attr.kind == FileKind::Regular {
            let extent = fs.map(&lock.shared(), attr.ino, at..attr.size);
            let extent = extent.unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
            if let Span::Mapped(offset) = extent.span {
                for block in (offset - offset % block..offset + extent.len).step_by(block as usize) {
                    if let Some(other) = owners.insert(block, path.clone()).filter(|other| *other != path) {
                        panic!("{what}: a block of {path} is one of {other}");
                    }
                }
            }
            at += extent.len;
        }
    }
}
