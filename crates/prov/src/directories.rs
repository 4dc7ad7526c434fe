//! The names of directories, from which paths are built.

use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::{FileKind, Ino};

use crate::record::Record;

/// Maximum number of directories of a path. A log may contain a cycle, because directories that existed before the log
/// began are not part of it.
const DEPTH_MAX: usize = 512;

/// Maximum length of a path, which is also that of the kernel. A damaged log may name directories with much longer paths, one
/// for each of its records.
const PATH_MAX: usize = 4096;

/// A directory entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The directory that contains the entry.
    pub parent: Ino,
    /// The name of the entry.
    pub name: Vec<u8>,
}

/// The path of a directory entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryPath {
    /// The path from the root, or from a directory with its inode number: `#12/name`.
    pub bytes: Vec<u8>,
    /// Whether the path starts with an inode number because the whole path has more than 512 directories or 4096 bytes.
    pub is_cut: bool,
}

/// The directories that a log names, up to the records that were added.
#[derive(Clone, Debug, Default)]
pub struct Directories(HashMap<Ino, Location>);

impl Directories {
    /// Adds the next record of the log.
    pub fn add(&mut self, record: &Record<'_>) {
        match *record {
            Record::Create { parent, name, file, kind: FileKind::Directory, .. } => {
                self.0.insert(file.ino, Location { parent, name: name.into() });
            }
            Record::Rename { from, name, to, new_name, moved, replaced, exchange, .. } => {
                self.moves(moved.ino, to, new_name);
                if let Some(other) = replaced.filter(|_| exchange) {
                    self.moves(other.ino, from, name);
                }
            }
            _ => {}
        }
    }

    /// Records the new name of `ino` if it is a directory that the log names.
    fn moves(&mut self, ino: Ino, parent: Ino, name: &[u8]) {
        if let Some(location) = self.0.get_mut(&ino) {
            *location = Location { parent, name: name.into() };
        }
    }

    /// Returns the last name of a directory, and its parent.
    pub fn get(&self, ino: Ino) -> Option<&Location> {
        self.0.get(&ino)
    }

    /// Returns the [path](entry_path) of the entry `name` in `parent`. The caller's `look_up` returns the location of a directory
    /// that the log does not name.
    pub fn path(
        &self,
        root: Ino,
        parent: Ino,
        name: &[u8],
        look_up: &mut dyn FnMut(Ino) -> Option<Location>,
    ) -> EntryPath {
        entry_path(root, parent, name, &mut |dir| self.get(dir).cloned().or_else(|| look_up(dir)))
    }
}

/// Returns the path of the entry `name` in `parent`. The caller's `look_up` returns the location of a directory. If that
/// fails, or the path is too long, the path starts with the inode number: `#12/name`.
pub fn entry_path(
    root: Ino,
    parent: Ino,
    name: &[u8],
    look_up: &mut dyn FnMut(Ino) -> Option<Location>,
) -> EntryPath {
    let mut names: Vec<Vec<u8>> = Vec::new();
    names.push(name.into());
    // A slash precedes each name.
    let mut len = name.len().saturating_add(1);
    let (mut dir, mut is_cut) = (parent, false);
    while dir != root {
        let found = look_up(dir);
        let is_known = found.is_some();
        let fits = |location: &Location| {
            len = len.saturating_add(location.name.len()).saturating_add(1);
            len <= PATH_MAX && names.len() < DEPTH_MAX
        };
        let Some(Location { parent, name }) = found.filter(fits) else {
            is_cut = is_known;
            names.push(alloc::format!("#{dir}").into_bytes());
            break;
        };
        names.push(name);
        dir = parent;
    }
    if dir == root {
        names.push(Vec::new());
    }
    names.reverse();
    EntryPath { bytes: names.join(&b'/'), is_cut }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use obento_base::Generation;

    use super::*;
    use crate::actor::ActorId;
    use crate::record::FileId;

    const ROOT: Ino = Ino(2);

    fn file(ino: u64) -> FileId {
        FileId { ino: Ino(ino), generation: Generation(0) }
    }

    fn made(parent: u64, name: &'static [u8], ino: u64) -> Record<'static> {
        let kind = FileKind::Directory;
        let (actor, parent, file) = (ActorId(0), Ino(parent), file(ino));
        Record::Create { actor, parent, name, file, kind, mode: 0o755, target: b"" }
    }

    fn path(directories: &Directories, parent: u64, name: &[u8]) -> String {
        let mut look_up = |ino| (ino == Ino(90)).then(|| Location { parent: ROOT, name: b"old".to_vec() });
        String::from_utf8(directories.path(ROOT, Ino(parent), name, &mut look_up).bytes).unwrap()
    }

    #[test]
    fn a_path_consists_of_the_names_at_the_time() {
        let mut directories = Directories::default();
        directories.add(&made(2, b"a", 10));
        directories.add(&made(10, b"b", 11));
        directories.add(&made(90, b"c", 12));
        assert_eq!(path(&directories, 11, b"f"), "/a/b/f");
        assert_eq!(path(&directories, 12, b"f"), "/old/c/f");
        assert_eq!(path(&directories, 2, b"f"), "/f");
        assert_eq!(path(&directories, 77, b"f"), "#77/f");
        directories.add(&Record::Rename {
            actor: ActorId(0),
            from: Ino(2),
            name: b"a",
            to: Ino(90),
            new_name: b"z",
            moved: file(10),
            replaced: None,
            links: 0,
            exchange: false,
        });
        assert_eq!(path(&directories, 11, b"f"), "/old/z/b/f");
    }

    #[test]
    fn a_path_is_no_longer_than_a_path_of_the_kernel() {
        let name = [b'n'; 1024];
        let mut look_up = |ino: Ino| Some(Location { parent: Ino(ino.0 - 1), name: name.to_vec() });
        let whole = entry_path(ROOT, Ino(5), &name[..1020], &mut look_up);
        assert_eq!((whole.bytes.len(), whole.bytes[0], whole.is_cut), (4096, b'/', false));
        let cut = entry_path(ROOT, Ino(5), &name[..1021], &mut look_up);
        assert_eq!((cut.bytes.len(), &cut.bytes[..3], cut.is_cut), (2 + 3 * 1025 - 3, &b"#3/"[..], true));
        assert!(!entry_path(ROOT, Ino(5), &name, &mut |_| None).is_cut);
    }

    #[test]
    fn a_cycle_of_directories_ends() {
        let mut directories = Directories::default();
        directories.add(&made(11, b"a", 10));
        directories.add(&made(10, b"b", 11));
        assert!(path(&directories, 10, b"f").len() < 2 * DEPTH_MAX + 10);
    }
}
