//! The operations of workloads that only read. Paths are bytes, because an existing tree has names in any encoding.

use std::io;

use super::OpenFile;

/// The type of a file, as far as a workload distinguishes types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeFileKind {
    /// A directory that can be listed.
    Directory,
    /// A regular file that can be read.
    Regular,
    /// Any other file: a symbolic link, a device, a file that the user may not read, or the mount point of another
    /// file system.
    Other,
}

/// A file of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeFile {
    /// The path below the root.
    pub path: Vec<u8>,
    /// The type.
    pub kind: TreeFileKind,
    /// The length in bytes.
    pub len: u64,
}

/// A tree of files that is read. The path of its root is empty.
pub trait Tree: Send + Sync {
    /// Visits all files below the root, in any order. Does not enter other file systems that are mounted in the tree.
    fn visit(&self, found: &mut dyn FnMut(TreeFile)) -> io::Result<()>;
    /// Reads the names of a directory and the attributes of each file. Returns the number of names.
    fn list_attributes(&self, directory: &[u8]) -> io::Result<u64>;
    /// Looks up a file and reads its attributes. Does not follow a symbolic link.
    fn look_up(&self, path: &[u8]) -> io::Result<()>;
    /// Opens a file for reading.
    fn open_file(&self, path: &[u8]) -> io::Result<Box<dyn OpenFile>>;
}
