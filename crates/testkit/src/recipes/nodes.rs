//! A tree of the host as a list of its files and folders, in a fixed order.
//!
//! Invariant: the root is first, and a folder precedes its entries, which are in byte order of their names.

use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The permissions of a mode, without the type.
const PERMISSIONS: u32 = 0o7777;

/// A file, folder or link. A file with two names occurs twice.
pub(super) struct Node {
    pub(super) name: Vec<u8>,
    /// The folder that contains it; the root contains itself.
    pub(super) parent: usize,
    /// The entries of a folder.
    pub(super) children: Vec<usize>,
    /// The type and the permissions, as in `st_mode`.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds since 1970.
    pub(super) mtime: i64,
    /// The contents of a file, or the target of a link.
    pub(super) bytes: Vec<u8>,
}

impl Node {
    fn read(path: &Path, parent: usize) -> Self {
        let meta = path.symlink_metadata().expect("it exists");
        let bytes = match meta.file_type() {
            kind if kind.is_file() => fs::read(path).expect("it can be read"),
            kind if kind.is_symlink() => {
                fs::read_link(path).expect("it is a link").into_os_string().into_vec()
            }
            _ => Vec::new(),
        };
        Self {
            name: path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default(),
            parent,
            children: Vec::new(),
            mode: meta.mode(),
            uid: meta.uid(),
            gid: meta.gid(),
            mtime: meta.mtime(),
            bytes,
        }
    }

    pub(super) fn is_folder(&self) -> bool {
        self.mode & !PERMISSIONS == 0o040_000
    }

    pub(super) fn is_link(&self) -> bool {
        self.mode & !PERMISSIONS == 0o120_000
    }
}

/// Returns all nodes of `tree`.
pub(super) fn nodes(tree: &Path) -> Vec<Node> {
    let mut nodes = vec![Node::read(tree, 0)];
    let mut paths = vec![tree.to_owned()];
    let mut at = 0;
    while at < nodes.len() {
        if nodes[at].is_folder() {
            for path in sorted(&paths[at]) {
                let number = nodes.len();
                nodes[at].children.push(number);
                nodes.push(Node::read(&path, at));
                paths.push(path);
            }
        }
        at += 1;
    }
    nodes
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is a folder");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    paths
}

/// Returns the number of names, with `.` and `..` of folders.
pub(super) fn links(nodes: &[Node], at: usize) -> usize {
    let folders = nodes[at].children.iter().filter(|child| nodes[**child].is_folder());
    if nodes[at].is_folder() { 2 + folders.count() } else { 1 }
}

/// Returns the entries of a folder with `.` and `..` first: names and node indexes.
pub(super) fn entries(nodes: &[Node], at: usize) -> Vec<(&[u8], usize)> {
    let own = [(&b"."[..], at), (&b".."[..], nodes[at].parent)];
    own.into_iter().chain(nodes[at].children.iter().map(|child| (&*nodes[*child].name, *child))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_precedes_its_contents_and_names_are_sorted() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b/d")).unwrap();
        for name in ["c", "a", "b/e"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("a", folder.path().join("b/f")).unwrap();
        let nodes = nodes(folder.path());
        let found: Vec<_> = nodes[1..].iter().map(|node| (&*node.name, node.parent, &*node.bytes)).collect();
        let expected: [(&[u8], usize, &[u8]); 6] = [
            (b"a", 0, b"a"),
            (b"b", 0, b""),
            (b"c", 0, b"c"),
            (b"d", 2, b""),
            (b"e", 2, b"b/e"),
            (b"f", 2, b"a"),
        ];
        assert_eq!(found, expected);
        assert_eq!(nodes[2].children, [4, 5, 6]);
        assert_eq!([0, 1, 2].map(|at| links(&nodes, at)), [3, 1, 3]);
        assert!(nodes[4].is_folder() && nodes[6].is_link() && !nodes[5].is_link());
    }
}
