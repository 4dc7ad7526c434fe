//! What is copied, from the host or from an image, as one row of items: a directory, what is in it, and its end.

mod ahead;
mod host;
mod image;

use std::ops::Range;

use obento_base::{Attr, Error, Ino, NameBuf};
use obento_host::source::SourceFile;
use obento_host::{FileId, HostDir, Xattr};
use obento_vfs::Node;

use super::{CopyOptions, CopySource, Problem, Trouble};
use crate::walk::Step;
pub(super) use ahead::Ahead;
pub(super) use host::HostItems;
pub(super) use image::ImageItems;

/// Something to copy, looked at once.
pub(super) struct Item {
    /// Its path, for messages.
    pub shown: Vec<u8>,
    /// Its last component; none for the start, whose copy may have another.
    pub name: Option<NameBuf>,
    pub step: Step,
    /// Whether it is the source itself, and not below it.
    pub is_start: bool,
    pub attr: Attr,
    pub origin: Origin,
    pub xattrs: Vec<Xattr>,
    pub body: Body,
    /// What of it cannot be copied although it can.
    pub troubles: Vec<Trouble>,
}

/// Which volume an item comes from: inodes of two volumes may have one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// A file of the host.
    Host(FileId),
    /// The volume of the source with this index.
    Image(usize, Ino),
}

/// What is in an item, as far as it is known.
pub(super) enum Body {
    /// A directory or a node, or a file of which nothing is to be copied.
    None,
    /// The target of a symbolic link.
    Link(Vec<u8>),
    /// The bytes of a file, which is small: where among those that [`Items::bytes`] holds.
    Bytes(Range<usize>),
    /// A file of the host.
    Host(SourceFile),
    /// A file of an image.
    Image(Node),
}

/// A row of items. A directory that is entered is left, whatever happens in between.
pub(super) trait Items: Iterator<Item = Result<Item, Problem>> {
    /// Need not go into the directory that was handed over last.
    fn prune(&mut self) {}

    /// The bytes of small files that were handed over, of the last one at least.
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// Items that a thread can read ahead of those who ask for them.
pub(super) trait Reader: Items + Send {
    /// Takes the bytes of small files that were read, in exchange for memory for others.
    fn take_bytes(&mut self, spare: Vec<u8>) -> Vec<u8>;
}

/// Where a copy starts.
#[derive(Clone, Debug)]
pub enum CopyFrom {
    /// In an image.
    Image(CopySource),
    /// On the host. A path that ends in `/.` or is `/` means the contents.
    Host(Vec<u8>),
    /// The entry of a directory of the host that is open, whatever its path leads to by now.
    HostEntry(HostDir, NameBuf),
}

impl CopyFrom {
    /// The name that the copy has in a directory; `None` where the contents are meant.
    pub fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Image(source) => source.name(),
            Self::Host(path) => super::options::last_name(path),
            Self::HostEntry(_, name) => Some(name.as_bytes()),
        }
    }

    /// Its path, for messages.
    pub fn shown(&self) -> Vec<u8> {
        match self {
            Self::Image(source) => source.join(b""),
            Self::Host(path) => path.clone(),
            Self::HostEntry(dir, name) => dir.child(name).into_os_string().into_encoded_bytes(),
        }
    }

    /// Whether it starts in the volume of `node`.
    pub(super) fn is_in_volume_of(&self, node: &Node) -> bool {
        matches!(self, Self::Image(source) if source.node.vfs().root() == node.vfs().root())
    }

    /// All that is to be copied. `index` tells its volume from those of other sources; what is `still` does not change meanwhile.
    pub(super) fn items(
        &self,
        index: usize,
        options: &CopyOptions,
        still: bool,
    ) -> Result<Box<dyn Items>, Problem> {
        Ok(match self {
            Self::Image(source) if still && source.node.vfs().file_system().bulk().is_some() => {
                let items = ImageItems::new(source.clone(), index, options).reading();
                Box::new(Ahead::new(Box::new(items)))
            }
            Self::Image(source) => Box::new(ImageItems::new(source.clone(), index, options)),
            Self::Host(path) => Box::new(Ahead::new(Box::new(HostItems::new(path, options)?))),
            Self::HostEntry(dir, name) => {
                Box::new(Ahead::new(Box::new(HostItems::of_entry(dir, name, options)?)))
            }
        })
    }
}

/// The problem of an item that cannot be read.
fn unread(path: Vec<u8>, error: Error) -> Problem {
    Problem { path, trouble: Trouble::Volume(error) }
}
