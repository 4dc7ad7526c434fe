//! The options of a copy.

use std::collections::HashSet;

use obento_host::FileId;
use obento_host::tree::{Keep, TreeOptions};
use obento_vfs::{Node, Symlinks};

use super::Holes;

/// The treatment of a file with several names in a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HardLinks {
    /// The copies are names of one file.
    #[default]
    Keep,
    /// Each name becomes a separate file.
    Separate,
}

/// The role of the target of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TargetIs {
    /// If the target is an existing directory, the directory to copy into. Otherwise, the copy itself.
    #[default]
    Either,
    /// The directory to copy into, which must exist (`cp -t`).
    Directory,
    /// The copy itself, even if a directory exists (`cp -T`).
    Copy,
}

/// The options of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyOptions {
    /// Whether the copy includes directories with their contents, devices, FIFOs and sockets. If `false`, the
    /// copy reads the bytes of a FIFO or device that is itself a source on the host. It omits each other such
    /// file and reports a [`Problem`](super::Problem).
    pub recursive: bool,
    /// The treatment of symbolic links below the sources.
    pub symlinks: Symlinks,
    /// The treatment of a source on the host that is a symbolic link itself. For a source in an image, the
    /// caller decides this when it looks up the source.
    pub named_symlinks: Symlinks,
    /// Whether mount points below the sources on the host are copied as empty directories (`cp -x`).
    pub one_file_system: bool,
    /// The treatment of files with several names.
    pub hard_links: HardLinks,
    /// The treatment of holes and zeros.
    pub holes: Holes,
    /// The role of the target.
    pub target: TargetIs,
    /// The metadata to preserve, the treatment of existing names, the trust in the image, and the maximum number of
    /// bytes to write.
    pub tree: TreeOptions,
    /// The files of the images that are read and written. A copy never replaces such a file on the host, and
    /// never copies such a file into an image.
    pub spared: Vec<FileId>,
}

impl CopyOptions {
    /// Returns the options of `cp -a`, which copies trees and preserves all properties.
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

    /// Returns the options of `cp` without options, which copies the bytes of single files. The copies have the
    /// permission bits of new files.
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

/// A source in an image.
#[derive(Clone, Debug)]
pub struct CopySource {
    /// The file or directory.
    pub node: Node,
    /// The path as the user wrote it. Its last component is the name of the copy. If the path ends in `/.` or is the
    /// root, the contents of the directory are copied.
    pub path: Vec<u8>,
    /// The prefix of the path in messages: `disk.img:`.
    pub prefix: Vec<u8>,
}

impl CopySource {
    /// Returns the name of the copy in a directory, or `None` if the contents are copied.
    pub fn name(&self) -> Option<&[u8]> {
        last_name(&self.path)
    }

    /// Returns the path of the entry at `below` in the source, for messages.
    pub(super) fn join(&self, below: &[u8]) -> Vec<u8> {
        [&self.prefix[..], &join(&self.path, below)].concat()
    }
}

/// Returns whether two sources with these names may put entries into the same directory below the target.
pub(super) fn may_meet_twice<'n>(names: impl Iterator<Item = Option<&'n [u8]>> + Clone) -> bool {
    let has_contents = names.clone().count() > 1 && names.clone().any(|name| name.is_none());
    let mut met = HashSet::new();
    has_contents || !names.flatten().all(|name| met.insert(name))
}

/// Returns the last component of `path`, or `None` if it is the root or dots.
pub(super) fn last_name(path: &[u8]) -> Option<&[u8]> {
    let trimmed = path.iter().rposition(|&byte| byte != b'/').map_or(&b""[..], |last| &path[..=last]);
    let name = trimmed.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    (!matches!(name, b"" | b"." | b"..")).then_some(name)
}

/// Returns the path of the entry at `below` in `path`.
pub(crate) fn join(path: &[u8], below: &[u8]) -> Vec<u8> {
    match (below, path.last()) {
        ([], _) => path.to_vec(),
        (_, Some(b'/')) => [path, below].concat(),
        _ => [path, &b"/"[..], below].concat(),
    }
}
