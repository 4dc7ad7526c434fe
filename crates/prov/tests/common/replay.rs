//! Executes the records of a log, and compares the names with those of a tree.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;

use obento_base::{FileKind, Ino};
use obento_driver::FileSystem;
use obento_prov::{Entries, FileId, Record};

use super::list;

/// Names by directory and bytes.
pub type Names = BTreeMap<(Ino, Vec<u8>), FileId>;
/// Inode numbers by path.
pub type Paths = BTreeMap<Vec<u8>, u64>;

/// Executes the records of a log on an empty tree. Panics if one contradicts the tree.
pub fn replay(segments: &[Vec<u8>]) -> Names {
    let mut names = Names::new();
    let mut next = 0;
    for segment in segments {
        for entry in Entries::new(segment) {
            let entry = entry.unwrap();
            assert!(entry.sequence >= next, "{entry:?}");
            next = entry.sequence + 1;
            step(&mut names, &entry.record).unwrap();
        }
    }
    names
}

/// Executes a record. Returns whether it concerns a name. Fails if it contradicts the tree.
pub fn step(names: &mut Names, record: &Record<'_>) -> Result<bool, String> {
    let expect = |holds: bool| if holds { Ok(true) } else { Err(format!("{record:?} contradicts the tree")) };
    match *record {
        // A file that was created without a name.
        Record::Create { name: b"", .. } => Ok(false),
        Record::Create { parent, name, file, .. } | Record::Link { parent, name, file, .. } => {
            expect(names.insert((parent, name.to_vec()), file).is_none())
        }
        Record::Remove { parent, name, file, .. } => {
            expect(names.remove(&(parent, name.to_vec())) == Some(file))
        }
        Record::Rename { from, name, to, new_name, moved, replaced, exchange, .. } => {
            let was_there = names.remove(&(from, name.to_vec())) == Some(moved);
            let old = names.insert((to, new_name.to_vec()), moved);
            if let Some(other) = replaced.filter(|_| exchange) {
                names.insert((from, name.to_vec()), other);
            }
            expect(was_there && old == replaced)
        }
        _ => Ok(false),
    }
}

/// Returns the names of a volume without the log, and without those that it had when it was formatted.
pub fn names_of(fs: &dyn FileSystem) -> Names {
    let mut names = Names::new();
    let mut dirs = vec![fs.root()];
    let is_known = |name: &[u8]| name == b"lost+found" || name == obento_prov::DIRECTORY.as_bytes();
    while let Some(dir) = dirs.pop() {
        for (name, ino) in list(fs, dir).into_iter().filter(|(name, _)| !is_known(name)) {
            let attr = fs.getattr(ino).unwrap();
            if attr.kind == FileKind::Directory {
                dirs.push(ino);
            }
            names.insert((dir, name), FileId { ino, generation: attr.generation });
        }
    }
    names
}

/// Returns the paths of all names below `root`.
pub fn paths(names: &Names, root: Ino) -> Paths {
    let mut found = Paths::new();
    let mut dirs = vec![(root, Vec::new())];
    while let Some((dir, prefix)) = dirs.pop() {
        let after = (dir, Vec::new());
        for ((parent, name), file) in names.range(after..).take_while(|((parent, _), _)| *parent == dir) {
            debug_assert_eq!(*parent, dir);
            let path = [&prefix[..], name].join(if prefix.is_empty() { &b""[..] } else { b"/" });
            found.insert(path.clone(), file.ino.0);
            dirs.push((file.ino, path));
        }
    }
    found
}
