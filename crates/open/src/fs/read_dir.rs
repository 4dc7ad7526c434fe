//! The entries of a directory.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use obento_base::{Error, FileKind, Ino, NameBuf};
use obento_driver::Cookie;
use obento_vfs::Node;

use super::{FsError, Metadata, Result};

/// Entries that are read at once.
const BATCH: usize = 256;

/// An iterator over the entries of a directory, in the order of the format, without `.` and `..`.
///
/// An entry that is added or removed during the iteration may or may not be returned. Damage is returned as an error
/// item, and the iteration continues after it.
///
/// ```
/// use obento::Volume;
///
/// let volume = Volume::in_memory();
/// volume.create_dir("/d")?;
/// volume.write("/d/file", "12345")?;
/// for entry in volume.read_dir("/d")? {
///     let entry = entry?;
///     assert_eq!((entry.file_name(), entry.path()), (&b"file"[..], b"/d/file".to_vec()));
///     assert_eq!(entry.metadata()?.len(), 5);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ReadDir {
    dir: Node,
    path: Vec<u8>,
    from: Cookie,
    entries: VecDeque<std::result::Result<Listed, Error>>,
    finished: bool,
}

#[derive(Debug)]
struct Listed {
    name: NameBuf,
    ino: Ino,
    kind: Option<FileKind>,
}

impl ReadDir {
    pub(super) fn new(dir: Node, path: Vec<u8>) -> Self {
        Self { dir, path, from: Cookie::START, entries: VecDeque::new(), finished: false }
    }

    fn read(&mut self) {
        let (start, mut from, entries) = (self.from, self.from, &mut self.entries);
        let mut full = false;
        let listed = self.dir.read_dir(start, &mut |entry| {
            if let Ok(entry) = &entry {
                from = entry.next;
            }
            let listed = |entry: obento_driver::DirEntry<'_>| Listed {
                name: entry.name.to_buf(),
                ino: entry.ino,
                kind: entry.kind,
            };
            entries.push_back(entry.map(listed));
            full = entries.len() >= BATCH;
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // A driver whose cookies do not advance must not cause an endless loop.
        self.finished = !full || listed.is_err() || from == start;
        entries.extend(listed.err().map(Err));
        self.from = from;
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.entries.is_empty() && !self.finished {
            self.read();
        }
        let entry = self.entries.pop_front()?;
        Some(match entry {
            Ok(Listed { name, ino, kind }) => Ok(DirEntry {
                dir: self.dir.clone(),
                path: join(&self.path, name.as_bytes()),
                name,
                ino,
                kind,
            }),
            Err(error) => Err(FsError::new("read all of", &self.path, error)),
        })
    }
}

/// An entry of a directory, like `std::fs::DirEntry`.
///
/// ```
/// use obento::Volume;
/// use obento::base::FileKind;
///
/// let volume = Volume::in_memory();
/// volume.symlink("a", "/link")?;
/// let entry = volume.read_dir("/")?.next().unwrap()?;
/// assert_eq!((entry.file_name(), entry.file_type()?), (&b"link"[..], FileKind::Symlink));
/// assert_eq!((entry.ino(), entry.metadata()?.len()), (entry.node()?.ino(), 1));
/// # Ok::<(), obento::fs::FsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DirEntry {
    dir: Node,
    path: Vec<u8>,
    name: NameBuf,
    ino: Ino,
    kind: Option<FileKind>,
}

impl DirEntry {
    /// Returns the name.
    pub fn file_name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// Returns the path: the path of the directory, followed by the name.
    pub fn path(&self) -> Vec<u8> {
        self.path.clone()
    }

    /// Returns the inode number that the entry contains.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the kind of the file. Does not follow a symbolic link. Fails if the file was removed.
    pub fn file_type(&self) -> Result<FileKind> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => self.metadata().map(|metadata| metadata.file_type()),
        }
    }

    /// Returns the attributes of the file. Does not follow a symbolic link. Fails if the file was removed.
    pub fn metadata(&self) -> Result<Metadata> {
        let attr = self.dir.lookup(&self.name).and_then(|node| node.attr());
        attr.map(Metadata::from).map_err(|error| FsError::new("examine", &self.path, error))
    }

    /// Returns the file. Fails if the file was removed.
    pub fn node(&self) -> Result<Node> {
        self.dir.lookup(&self.name).map_err(|error| FsError::new("find", &self.path, error))
    }
}

/// Joins the path of a directory and a name, with exactly one slash between them.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}
