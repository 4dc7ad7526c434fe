//! A tree of files in memory: the contents of a volume to build ([`Build`](crate::Build)).
//!
//! A [`TreeBuilder`] accepts files in any order. A later file replaces an earlier file with the same path.
//! [`TreeBuilder::finish`] converts the builder to a [`Tree`]. The order and the numbers of the nodes do not depend on
//! the order in which the files were added.
//!
//! Invariant: names are checked [`Name`]s. Each name is in a directory of the tree and refers to a node of the tree.
//! A source therefore cannot refer to anything outside of the tree.
//! Invariant: the root has no name, and every other directory has exactly one name. The tree therefore has no cycle.
//! Memory: about 110 bytes per file plus its name. A million files must fit into 256 MiB.

mod builder;
mod finish;
#[cfg(test)]
mod tests;
mod text;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{DeviceNumber, FileKind, Mode, Name, Timestamp};

pub use builder::{Placed, TreeBuilder, TreeError};
use text::{Text, Texts};

/// The number of a file of a tree. All names of a file refer to the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: Self = Self(0);

    fn index(self) -> usize {
        to_usize(self.0.into())
    }
}

/// An identifier of the contents of a regular file. The source of the contents chooses the identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DataId(pub u32);

/// The number of a set of extended attributes, which several files may share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct XattrsId(NonZeroU32);

impl XattrsId {
    /// Returns the index in [`Tree::xattr_sets`].
    pub fn index(self) -> usize {
        to_usize(self.0.get().saturating_sub(1).into())
    }
}

/// The attributes of a file that the source of the file defines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAttr {
    /// Permission bits.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time. It is also used for all other times of the file.
    pub mtime: Timestamp,
    /// Extended attributes, if the file has any.
    pub xattrs: Option<XattrsId>,
}

/// The type of a file and its type-specific properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// Identifier of the contents, or `None` if the file contains no data.
        data: Option<DataId>,
    },
    /// A symbolic link; [`Tree::target`] returns its target.
    Symlink,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

impl Body {
    /// Returns the device number. Returns 0:0 for types that are not devices.
    pub fn rdev(&self) -> DeviceNumber {
        match *self {
            Self::CharDevice(number) | Self::BlockDevice(number) => number,
            _ => DeviceNumber::default(),
        }
    }

    /// Returns the type.
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

/// A file of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Type and type-specific properties.
    pub body: Body,
    /// Mode, owner, time and extended attributes.
    pub attr: NodeAttr,
    /// For a directory, the number of its subdirectories; otherwise the number of names.
    pub links: u32,
    /// For a symbolic link, its target; for a directory, the index of its first child.
    extra: u32,
    /// Number of children of a directory.
    count: u32,
}

/// A name and the node that it refers to.
#[derive(Clone, Copy, Debug)]
struct Child {
    name: Text,
    node: NodeId,
}

/// An extended attribute. The first element is the name including the namespace. The second element is the value that
/// `getxattr(2)` returns.
pub type XattrPair = (Box<[u8]>, Box<[u8]>);

/// Extended attributes, sorted by name.
pub type XattrList = Arc<[XattrPair]>;

/// A complete tree. The names of each directory are sorted by their bytes.
///
/// The root has number 0. The other numbers are assigned directory by directory, starting with the root:
///
/// 1. The nodes in the directory get the next numbers, in the order of their names. A node that already has a number
///    keeps it.
/// 2. The same two steps apply to each subdirectory, in the order of their names. A subdirectory is completed with all
///    directories below it before the next one starts.
#[derive(Debug)]
pub struct Tree {
    texts: Texts,
    nodes: Vec<Node>,
    children: Vec<Child>,
    xattrs: Vec<XattrList>,
    holes: BTreeMap<NodeId, Box<[Range<u64>]>>,
}

impl Tree {
    /// Returns the number of nodes, including the root.
    pub fn len(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// Returns whether the root is the only node.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    /// Returns all nodes in order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        let ids = 0..self.len();
        ids.map(NodeId).zip(&self.nodes)
    }

    /// Returns the node `id`, or `None` if the tree has no such node.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// Returns the names in the directory `id`, sorted. Returns no names if `id` is not a directory.
    pub fn children(&self, id: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> + Clone {
        self.child_list(id).iter().map(|child| (self.texts.get(child.name), child.node))
    }

    fn child_list(&self, id: NodeId) -> &[Child] {
        let Some(node) = self.node(id).filter(|node| node.body == Body::Directory) else { return &[] };
        let start = to_usize(node.extra.into());
        let end = start.saturating_add(to_usize(node.count.into()));
        self.children.get(start..end).unwrap_or_default()
    }

    /// Returns the node that `name` refers to in the directory `id`.
    pub fn child(&self, id: NodeId, name: &Name) -> Option<NodeId> {
        let list = self.child_list(id);
        let at = list.binary_search_by(|child| self.texts.get(child.name).cmp(name.as_bytes())).ok()?;
        list.get(at).map(|child| child.node)
    }

    /// Returns the target of a symbolic link. Returns an empty target for other types.
    pub fn target(&self, node: &Node) -> &[u8] {
        match node.body {
            Body::Symlink => self.texts.get(Text(node.extra)),
            _ => &[],
        }
    }

    /// Returns the sets of extended attributes of all files.
    pub fn xattr_sets(&self) -> &[XattrList] {
        &self.xattrs
    }

    /// Returns the ranges of the regular file `id` that contain data, in bytes of the file, sorted and
    /// without overlap. Returns `None` if the whole file is data.
    pub fn data_ranges(&self, id: NodeId) -> Option<&[Range<u64>]> {
        self.holes.get(&id).map(|ranges| &**ranges)
    }

    /// Returns the path of `id` from the root, for messages. If the node has several names, uses the name that comes
    /// first in the tree.
    pub fn path(&self, id: NodeId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = id;
        // The depth of the tree is at most its number of nodes.
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

    /// Returns the directory that contains the child with this index.
    fn directory_of(&self, place: usize) -> NodeId {
        let holds = |(_, node): &(NodeId, &Node)| {
            let (start, count) = (to_usize(node.extra.into()), to_usize(node.count.into()));
            node.body == Body::Directory && place.checked_sub(start).is_some_and(|at| at < count)
        };
        self.nodes().find(holds).map_or(NodeId::ROOT, |(id, _)| id)
    }
}
