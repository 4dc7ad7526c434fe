//! A tree of files as data: what a volume is built of ([`Build`](crate::Build)).
//!
//! A [`TreeBuilder`] takes files, one layer over the other, and [`TreeBuilder::finish`] makes a [`Tree`] of them: in an order
//! that follows from names alone, and numbered by it.
//!
//! Invariant: names are proved [`Name`]s and lead from directories of the tree to nodes of the tree, so that nothing in a
//! source can lead out of it.
//! Invariant: a directory has one name, but for the root, which has none; so a tree has no circle.
//! Memory: about 110 bytes a file and the bytes of its name, because a million files have to fit a quarter of a GiB.

mod builder;
mod finish;
#[cfg(test)]
mod tests;
mod text;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{DeviceNumber, FileKind, Mode, Name, Timestamp};

pub use builder::{Placed, TreeBuilder, TreeError};
use text::{Text, Texts};

/// A file of a tree, whatever its names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The directory that all others are in.
    pub const ROOT: Self = Self(0);

    fn index(self) -> usize {
        to_usize(self.0.into())
    }
}

/// What the bytes of a regular file are called by whoever has them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DataId(pub u32);

/// A set of extended attributes that several files may share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct XattrsId(NonZeroU32);

impl XattrsId {
    /// Its place in [`Tree::xattr_sets`].
    pub fn index(self) -> usize {
        to_usize(self.0.get().saturating_sub(1).into())
    }
}

/// The attributes of a file that a source decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAttr {
    /// Permission bits.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the data; all other times of the file are this one too.
    pub mtime: Timestamp,
    /// Extended attributes, if it has any.
    pub xattrs: Option<XattrsId>,
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// A directory.
    Directory,
    /// A regular file of `size` bytes.
    File {
        /// Its length.
        size: u64,
        /// Its bytes; none of them if it is all hole.
        data: Option<DataId>,
    },
    /// A symbolic link; [`Tree::target`] is where it leads.
    Symlink,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl Body {
    /// The type.
    pub fn kind(&self) -> FileKind {
        match self {
            Self::Directory => FileKind::Directory,
            Self::File { .. } => FileKind::Regular,
            Self::Symlink => FileKind::Symlink,
            Self::CharDevice(_) => FileKind::CharDevice,
            Self::BlockDevice(_) => FileKind::BlockDevice,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
        }
    }
}

/// One file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// What it is.
    pub body: Body,
    /// Mode, owner, time, attributes.
    pub attr: NodeAttr,
    /// How many names it has; for a directory how many directories are in it.
    pub links: u32,
    /// The target of a link; for a directory where its children begin in the list.
    extra: u32,
    /// How many children a directory has.
    count: u32,
}

/// Names of a directory, in the list of all.
#[derive(Clone, Copy, Debug)]
struct Child {
    name: Text,
    node: NodeId,
}

/// An extended attribute: its name with its name space, and its value as `getxattr(2)` gives it.
pub type XattrPair = (Box<[u8]>, Box<[u8]>);

/// Extended attributes, sorted by name.
pub type XattrList = Box<[XattrPair]>;

/// A tree that is whole. Nodes are numbered so that those of one directory follow each other, before those of the
/// directories in it; names are sorted by their bytes.
#[derive(Debug)]
pub struct Tree {
    texts: Texts,
    nodes: Vec<Node>,
    children: Vec<Child>,
    xattrs: Vec<XattrList>,
    holes: BTreeMap<NodeId, Box<[Range<u64>]>>,
}

impl Tree {
    /// How many nodes there are; the root is one.
    pub fn len(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    /// All nodes, in their order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        let ids = 0..self.len();
        ids.map(NodeId).zip(&self.nodes)
    }

    /// One of them.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// What is in the directory `id`, sorted by name; nothing for what is none.
    pub fn children(&self, id: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> + Clone {
        self.child_list(id).iter().map(|child| (self.texts.get(child.name), child.node))
    }

    fn child_list(&self, id: NodeId) -> &[Child] {
        let Some(node) = self.node(id).filter(|node| node.body == Body::Directory) else { return &[] };
        let start = to_usize(node.extra.into());
        let end = start.saturating_add(to_usize(node.count.into()));
        self.children.get(start..end).unwrap_or_default()
    }

    /// The name `name` in the directory `id`.
    pub fn child(&self, id: NodeId, name: &Name) -> Option<NodeId> {
        let list = self.child_list(id);
        let at = list.binary_search_by(|child| self.texts.get(child.name).cmp(name.as_bytes())).ok()?;
        list.get(at).map(|child| child.node)
    }

    /// Where a symbolic link leads; empty for anything else.
    pub fn target(&self, node: &Node) -> &[u8] {
        match node.body {
            Body::Symlink => self.texts.get(Text(node.extra)),
            _ => &[],
        }
    }

    /// The sets of extended attributes that files have.
    pub fn xattr_sets(&self) -> &[XattrList] {
        &self.xattrs
    }

    /// Where the file `id` has data, in order and apart; none for one that has it everywhere.
    pub fn data_ranges(&self, id: NodeId) -> Option<&[Range<u64>]> {
        self.holes.get(&id).map(|ranges| &**ranges)
    }

    /// A path of `id` from the root, for messages: the first in order.
    pub fn path(&self, id: NodeId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = id;
        // A tree is no deeper than it has nodes.
        for _ in 0..self.nodes.len() {
            if at == NodeId::ROOT {
                break;
            }
            let Some(place) = self.children.iter().position(|child| child.node == at) else { break };
            names.extend(self.children.get(place).map(|child| self.texts.get(child.name)));
            at = self.directory_of(place);
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        path
    }

    /// The directory whose list holds entry `place`.
    fn directory_of(&self, place: usize) -> NodeId {
        let holds = |(_, node): &(NodeId, &Node)| {
            let (start, count) = (to_usize(node.extra.into()), to_usize(node.count.into()));
            node.body == Body::Directory && place.checked_sub(start).is_some_and(|at| at < count)
        };
        self.nodes().find(holds).map_or(NodeId::ROOT, |(id, _)| id)
    }
}
