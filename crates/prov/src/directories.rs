//! The names of directories, from which paths are built.

use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::{FileKind, Ino};

use crate::record::Record;

/// Maximum number of directories of a path. A log may contain a cycle, because directories that existed before the log
/// began are not part of it.
const DEPTH_MAX: usize = 512;

/// A directory entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The directory that contains the entry.
    pub parent: Ino,
    /// The name of the entry.
    pub name: Vec<u8>,
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
    ) -> Vec<u8> {
        entry_path(root, parent, name, &mut |dir| self.get(dir).cloned().or_else(|| look_up(dir)))
    }
}

/// Returns the path of the entry `name` in `parent`. The caller's `look_up` returns the location of a directory. If that
/// fails, the path starts with the inode number: `#12/name`.
pub fn entry_path(
    root: Ino,
    parent: Ino,
    name: &[u8],
    look_up: &mut dyn FnMut(Ino) -> Option<Location>,
) -> Vec<u8> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    names.push(name.into());
    let mut dir = parent;
    while dir != root {
        match look_up(dir).filter(|_| names.len() < DEPTH_MAX) {
            Some(Location { parent, name }) => {
                names.push(name);
                dir = parent;
            }
            None => {
                names.push(alloc::format!("#{dir}").into_bytes());
                break;
            }
        }
    }
    if dir == root {
        names.push(Vec::new());
    }
    names.reverse();
    names.join(&b'/')
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
        String::from_utf8(directories.path(ROOT, Ino(parent), name, &mut look_up)).unwrap()
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
    fn a_cycle_of_directories_ends() {
        let mut directories = Directories::default();
        directories.add(&made(11, b"a", 10));
        directories.add(&made(10, b"b", 11));
        assert!(path(&directories, 10, b"f").len() < 2 * DEPTH_MAX + 10);
    }
}
