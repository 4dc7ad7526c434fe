//! The source of a copy, on the host or in an image, as a sequence of items: a directory, its contents, and
//! its end.

mod ahead;
mod host;
mod image;

use std::ops::Range;

use obento_base::{Attr, Error, Ino, NameBuf};
use obento_host::source::{SourceEntry, SourceFile};
use obento_host::{CopiedEntries, FileId, HostDir, Xattr};
use obento_open::walk::Step;
use obento_vfs::Node;

use super::{CopyOptions, CopySource, Problem, ProblemReason};
pub(super) use ahead::Ahead;
pub(super) use host::HostItems;
pub(super) use image::ImageItems;

/// One item to copy.
pub(super) struct Item {
    /// The path of the item, for messages.
    pub shown: Vec<u8>,
    /// The last component of the path. `None` for the source itself, whose copy may have another name.
    pub name: Option<NameBuf>,
    pub step: Step,
    /// Whether the item is the source itself, and not an entry below the source.
    pub is_start: bool,
    pub attr: Attr,
    pub origin: Origin,
    pub xattrs: Vec<Xattr>,
    pub body: Body,
    /// Problems with parts of the item that do not prevent its copy.
    pub troubles: Vec<ProblemReason>,
}

/// The volume of an item: inodes of two volumes may have the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// A file of the host.
    Host(FileId),
    /// The volume of the source with this index.
    Image(usize, Ino),
}

/// The contents of an item.
pub(super) enum Body {
    /// A directory or a node, or a file without contents to copy.
    None,
    /// The target of a symbolic link.
    Link(Vec<u8>),
    /// The bytes of a small file, as a range of [`Items::bytes`].
    Bytes(Range<usize>),
    /// A file of the host.
    Host(SourceFile),
    /// A FIFO or device of the host, whose bytes are the contents.
    Stream(SourceEntry),
    /// A file of an image.
    Image(Node),
}

/// A sequence of items. Each directory that is entered is left, even after errors.
pub(super) trait Items: Iterator<Item = Result<Item, Problem>> {
    /// Allows the sequence to skip the contents of the directory that was returned last.
    fn prune(&mut self) {}

    /// Returns the buffer with the bytes of small files, at least those of the last item.
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// Items that another thread can read ahead.
pub(super) trait Reader: Items + Send {
    /// Takes the bytes of small files that were read, and provides a buffer for later ones.
    fn take_bytes(&mut self, spare: Vec<u8>) -> Vec<u8>;
}

/// The source of a copy.
#[derive(Clone, Debug)]
pub enum CopyFrom {
    /// A file in an image.
    Image(CopySource),
    /// A path on the host. If the path ends in `/.` or is `/`, the copy contains the contents of the
    /// directory.
    Host(Vec<u8>),
    /// An entry of an open directory of the host. The directory is used even if its path refers to another
    /// directory now. The copy records the entries that it reads, so that the caller can remove exactly these
    /// entries.
    HostEntry(HostDir, NameBuf, CopiedEntries),
}

impl CopyFrom {
    /// Returns the name of the copy in a directory, or `None` if the contents are copied.
    pub fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Image(source) => source.name(),
            Self::Host(path) => super::options::last_name(path),
            Self::HostEntry(_, name, _) => Some(name.as_bytes()),
        }
    }

    /// Returns the path, for messages.
    pub fn shown(&self) -> Vec<u8> {
        match self {
            Self::Image(source) => source.join(b""),
            Self::Host(path) => path.clone(),
            Self::HostEntry(dir, name, _) => dir.child(name).into_os_string().into_encoded_bytes(),
        }
    }

    /// Returns whether the source is in the volume of `node`.
    pub(super) fn is_in_volume_of(&self, node: &Node) -> bool {
        matches!(self, Self::Image(source) if source.node.vfs().root() == node.vfs().root())
    }

    /// Returns all items to copy. `index` distinguishes the volume of this source from those of others. No
    /// other thread changes the volumes in `still` during the copy.
    pub(super) fn items(
        &self,
        index: usize,
        options: &CopyOptions,
        still: bool,
    ) -> Result<Box<dyn Items>, Problem> {
        Ok(match self {
            Self::Image(source) if still && source.node.vfs().flushed_file_system().bulk().is_some() => {
                let items = ImageItems::new(source.clone(), index, options).reading();
                Box::new(Ahead::new(Box::new(items)))
            }
            Self::Image(source) => Box::new(ImageItems::new(source.clone(), index, options)),
            Self::Host(path) => Box::new(Ahead::new(Box::new(HostItems::new(path, options)?))),
            Self::HostEntry(dir, name, copied) => {
                let items = HostItems::of_entry(dir, name, options)?.recording(copied.clone());
                Box::new(Ahead::new(Box::new(items)))
            }
        })
    }
}

/// Returns the problem of an item that cannot be read.
fn unread(path: Vec<u8>, error: Error) -> Problem {
    Problem { path, trouble: ProblemReason::Volume(error) }
}
