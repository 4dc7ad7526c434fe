//! What to copy, and how.

use std::collections::HashSet;

use obento_host::FileId;
use obento_host::tree::{Keep, TreeOptions};
use obento_vfs::{Node, Symlinks};

use super::Holes;

/// What to do with a file that has several names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HardLinks {
    /// The copies are names of one file too.
    #[default]
    Keep,
    /// Each name becomes a file of its own.
    Separate,
}

/// What the target is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TargetIs {
    /// A directory if there is one, otherwise the copy itself.
    #[default]
    Either,
    /// The directory to copy into, which must exist (`cp -t`).
    Directory,
    /// The copy itself, even where there is a directory (`cp -T`).
    Copy,
}

/// How to copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyOptions {
    /// Whether directories are copied, with what is in them.
    pub recursive: bool,
    /// What to do with symbolic links below the sources.
    pub symlinks: Symlinks,
    /// What to do with a source on the host that is a symbolic link itself. In an image, whoever found the source has
    /// followed it or not.
    pub named_symlinks: Symlinks,
    /// Whether directories of the host on which another file system is mounted are left empty (`cp -x`).
    pub one_file_system: bool,
    /// What to do with files that have several names.
    pub hard_links: HardLinks,
    /// What to do with holes and zeros.
    pub holes: Holes,
    /// What the target is.
    pub target: TargetIs,
    /// What is kept of the metadata, what to do with names that are taken, how far the image is believed, and the
    /// most bytes to write.
    pub tree: TreeOptions,
    /// Files of the host that are never replaced, and never copied into an image: those that images are read from and
    /// written to.
    pub spared: Vec<FileId>,
}

impl CopyOptions {
    /// `cp -a`: everything, as it is in the image.
    pub fn archive() -> Self {
        Self {
            recursive: true,
            symlinks: Symlinks::Keep,
            named_symlinks: Symlinks::Keep,
            one_file_system: false,
            hard_links: HardLinks::Keep,
            holes: Holes::Keep,
            target: TargetIs::Either,
            tree: TreeOptions::default(),
            spared: Vec::new(),
        }
    }

    /// `cp`: the bytes of single files, with the permission bits that a new file gets.
    pub fn plain() -> Self {
        Self {
            recursive: false,
            symlinks: Symlinks::Follow,
            named_symlinks: Symlinks::Follow,
            one_file_system: false,
            hard_links: HardLinks::Separate,
            holes: Holes::Keep,
            target: TargetIs::Either,
            tree: TreeOptions { keep: Keep::empty(), ..TreeOptions::default() },
            spared: Vec::new(),
        }
    }
}

/// What to copy.
#[derive(Clone, Debug)]
pub struct CopySource {
    /// The file or directory.
    pub node: Node,
    /// Its path as it was written: its last component names the copy. A path that ends in `/.` or is the root means the
    /// contents.
    pub path: Vec<u8>,
    /// What messages put before the path: `disk.img:`.
    pub prefix: Vec<u8>,
}

impl CopySource {
    /// The name that the copy has in a directory; `None` where the contents are meant.
    pub fn name(&self) -> Option<&[u8]> {
        last_name(&self.path)
    }

    /// The path of what lies at `below` in it, for messages.
    pub(super) fn join(&self, below: &[u8]) -> Vec<u8> {
        [&self.prefix[..], &join(&self.path, below)].concat()
    }
}

/// Whether two sources of these names may put entries into the same directory below the target.
pub(super) fn may_meet_twice<'n>(names: impl Iterator<Item = Option<&'n [u8]>> + Clone) -> bool {
    let has_contents = names.clone().count() > 1 && names.clone().any(|name| name.is_none());
    let mut met = HashSet::new();
    has_contents || !names.flatten().all(|name| met.insert(name))
}

/// The last component of `path`; none if it is the root or dots.
pub(super) fn last_name(path: &[u8]) -> Option<&[u8]> {
    let trimmed = path.iter().rposition(|&byte| byte != b'/').map_or(&b""[..], |last| &path[..=last]);
    let name = trimmed.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    (!matches!(name, b"" | b"." | b"..")).then_some(name)
}

/// The path of what lies at `below` in `path`.
pub(crate) fn join(path: &[u8], below: &[u8]) -> Vec<u8> {
    match (below, path.last()) {
        ([], _) => path.to_vec(),
        (_, Some(b'/')) => [path, below].concat(),
        _ => [path, &b"/"[..], below].concat(),
    }
}
