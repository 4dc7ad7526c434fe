//! Construction of a tree.
//!
//! Invariant: a live entry is in the table of names and in the list of its directory; a removed entry is
//! only in the list.
//! Invariant: `links` of a node is the number of its live entries.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::num::NonZeroU32;
use core::ops::Range;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use obento_base::wire::to_usize;
use obento_base::{Mode, Name, Timestamp};

use super::text::{Text, Texts};
use super::{Body, Node, NodeAttr, NodeId, XattrList, XattrPair, XattrsId};

/// No entry, or a removed entry.
pub(super) const NONE: u32 = u32::MAX;

/// The reason why a file cannot be added to a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeError {
    /// The number of files, or the total length of the names and targets, does not fit into 32 bits. Or the
    /// target of a symbolic link is longer than 65,535 bytes. Or memory is exhausted.
    TooLarge,
    /// The target of a hard link is a directory or does not exist.
    LinkToDirectory,
    /// The parent is not a directory or does not exist.
    NotDirectory,
}

/// The result of adding a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The node that the name refers to now.
    pub node: NodeId,
    /// Whether the name existed before.
    pub replaced: bool,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) dir: u32,
    pub(super) name: Text,
    /// [`NONE`] after removal.
    pub(super) node: u32,
    /// Next entry of the directory.
    pub(super) next: u32,
}

/// A tree under construction.
#[derive(Debug)]
pub struct TreeBuilder {
    pub(super) texts: Texts,
    /// `extra` of a directory is the index of its newest entry.
    pub(super) nodes: Vec<Node>,
    pub(super) entries: Vec<Entry>,
    pub(super) by_name: HashTable<u32>,
    hasher: DefaultHashBuilder,
    pub(super) xattrs: Vec<XattrList>,
    pub(super) known_xattrs: HashMap<XattrList, XattrsId>,
    pub(super) holes: BTreeMap<NodeId, Box<[Range<u64>]>>,
}

impl TreeBuilder {
    /// Creates a tree with an empty root that has these attributes.
    pub fn new(root: NodeAttr) -> Self {
        let root = Node { body: Body::Directory, attr: root, links: 0, extra: NONE, count: 0 };
        Self {
            texts: Texts::default(),
            nodes: Vec::from([root]),
            entries: Vec::new(),
            by_name: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            xattrs: Vec::new(),
            known_xattrs: HashMap::new(),
            holes: BTreeMap::new(),
        }
    }

    /// Returns the attributes of a directory for which no source defines attributes: owner 0, group 0, mode 0755.
    pub fn bare_directory(mtime: Timestamp) -> NodeAttr {
        NodeAttr { mode: Mode::new(0o755), uid: 0, gid: 0, mtime, xattrs: None }
    }

    /// Returns the number of nodes, including nodes without a name.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the root is the only node. Nodes without a name are counted.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    /// Returns the node `id`. Its [`links`](Node::links) is the number of its names, also for a directory.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// Returns the attributes of the node `id` for modification.
    pub fn attr_mut(&mut self, id: NodeId) -> Option<&mut NodeAttr> {
        self.nodes.get_mut(id.index()).map(|node| &mut node.attr)
    }

    /// Returns the target of a symbolic link. Returns an empty target for other types.
    pub fn target(&self, id: NodeId) -> &[u8] {
        match self.node(id) {
            Some(Node { body: Body::Symlink, extra, .. }) => self.texts.get(Text(*extra)),
            _ => &[],
        }
    }

    fn hash(hasher: &DefaultHashBuilder, dir: u32, name: &[u8]) -> u64 {
        hasher.hash_one((dir, name))
    }

    fn find(&self, dir: NodeId, name: &[u8]) -> Option<u32> {
        let is_it = |&at: &u32| {
            self.entries
                .get(to_usize(at.into()))
                .is_some_and(|entry| entry.dir == dir.0 && self.texts.get(entry.name) == name)
        };
        self.by_name.find(Self::hash(&self.hasher, dir.0, name), is_it).copied()
    }

    /// Returns the node that `name` refers to in `dir`.
    pub fn lookup(&self, dir: NodeId, name: &Name) -> Option<NodeId> {
        let at = self.find(dir, name.as_bytes())?;
        self.entries.get(to_usize(at.into())).map(|entry| NodeId(entry.node))
    }

    /// Returns the names in `dir`, the newest name first.
    pub fn children(&self, dir: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> {
        self.live(dir).map(|(_, entry)| (self.texts.get(entry.name), NodeId(entry.node)))
    }

    fn live(&self, dir: NodeId) -> impl Iterator<Item = (u32, &Entry)> {
        let first = match self.node(dir) {
            Some(Node { body: Body::Directory, extra, .. }) => *extra,
            _ => NONE,
        };
        let entry = |at: u32| self.entries.get(to_usize(at.into())).map(|entry| (at, entry));
        core::iter::successors(entry(first), move |(_, before)| entry(before.next))
            .filter(|(_, entry)| entry.node != NONE)
    }

    /// Adds a file to `dir`. If the name exists, replaces the existing file. A replaced directory is removed
    /// with its tree. Exception: if both files are directories, only the attributes of the existing directory
    /// are replaced. `target` is the target of a symbolic link, and is ignored for other types.
    ///
    /// # Errors
    ///
    /// - `NotDirectory`: `dir` is not a directory or does not exist.
    /// - `TooLarge`: the tree cannot grow, or `target` is longer than 65,535 bytes.
    pub fn put(
        &mut self,
        dir: NodeId,
        name: &Name,
        body: Body,
        attr: NodeAttr,
        target: &[u8],
    ) -> Result<Placed, TreeError> {
        let before = self.find(dir, name.as_bytes());
        let old = before.and_then(|at| self.entries.get(to_usize(at.into()))).map(|entry| NodeId(entry.node));
        if let Some(old) = old
            && body == Body::Directory
            && self.node(old).is_some_and(|node| node.body == Body::Directory)
        {
            if let Some(held) = self.attr_mut(old) {
                *held = attr;
            }
            return Ok(Placed { node: old, replaced: true });
        }
        let extra = match body {
            Body::Symlink => self.texts.add(target).ok_or(TreeError::TooLarge)?.0,
            _ => NONE,
        };
        let id = u32::try_from(self.nodes.len()).ok().filter(|&id| id != NONE).ok_or(TreeError::TooLarge)?;
        self.nodes.try_reserve(1).map_err(|_| TreeError::TooLarge)?;
        self.nodes.push(Node { body, attr, links: 0, extra, count: 0 });
        self.name(dir, name, NodeId(id), before)?;
        Ok(Placed { node: NodeId(id), replaced: before.is_some() })
    }

    /// Adds the name `name` in `dir` for `node`. If the name exists, it refers to `node` afterwards, and the
    /// node that it referred to before loses the name.
    ///
    /// # Errors
    ///
    /// 1. `LinkToDirectory`: `node` is a directory or does not exist.
    /// 2. `NotDirectory`: `dir` is not a directory or does not exist.
    /// 3. `TooLarge`: the tree cannot grow.
    pub fn link(&mut self, dir: NodeId, name: &Name, node: NodeId) -> Result<(), TreeError> {
        if self.node(node).is_none_or(|node| node.body == Body::Directory) {
            return Err(TreeError::LinkToDirectory);
        }
        let before = self.find(dir, name.as_bytes());
        self.name(dir, name, node, before)
    }

    /// Makes `name` in `dir` refer to `node`. `before` is the existing entry with this name.
    fn name(&mut self, dir: NodeId, name: &Name, node: NodeId, before: Option<u32>) -> Result<(), TreeError> {
        if self.node(dir).is_none_or(|node| node.body != Body::Directory) {
            return Err(TreeError::NotDirectory);
        }
        if let Some(at) = before {
            // The new link first: the name may refer to `node` already.
            self.linked(node);
            let entry = self.entries.get_mut(to_usize(at.into()));
            if let Some(old) = entry.map(|entry| core::mem::replace(&mut entry.node, node.0)) {
                self.unlinked(NodeId(old));
            }
            return Ok(());
        }
        let text = self.texts.add(name.as_bytes()).ok_or(TreeError::TooLarge)?;
        let at =
            u32::try_from(self.entries.len()).ok().filter(|&at| at != NONE).ok_or(TreeError::TooLarge)?;
        self.entries.try_reserve(1).map_err(|_| TreeError::TooLarge)?;
        let (texts, entries, hasher) = (&self.texts, &self.entries, &self.hasher);
        let rehash = |&at: &u32| {
            let entry = entries.get(to_usize(at.into()));
            entry.map_or(0, |entry| Self::hash(hasher, entry.dir, texts.get(entry.name)))
        };
        self.by_name.try_reserve(1, rehash).map_err(|_| TreeError::TooLarge)?;
        self.by_name.insert_unique(Self::hash(hasher, dir.0, name.as_bytes()), at, rehash);
        let Some(list) = self.nodes.get_mut(dir.index()) else { return Err(TreeError::NotDirectory) };
        let next = core::mem::replace(&mut list.extra, at);
        self.entries.push(Entry { dir: dir.0, name: text, node: node.0, next });
        self.linked(node);
        Ok(())
    }

    fn linked(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.links = node.links.saturating_add(1);
        }
    }

    /// Removes `name` from `dir`. A directory is removed with its tree. Returns whether the name existed.
    pub fn remove(&mut self, dir: NodeId, name: &Name) -> bool {
        let Some(at) = self.find(dir, name.as_bytes()) else { return false };
        self.remove_entry(at);
        true
    }

    /// Removes the children of `dir` for which `keep` returns `false`. A directory is removed with its tree.
    pub fn remove_children(&mut self, dir: NodeId, mut keep: impl FnMut(NodeId) -> bool) {
        let doomed: Vec<u32> =
            self.live(dir).filter(|(_, entry)| !keep(NodeId(entry.node))).map(|(at, _)| at).collect();
        doomed.into_iter().for_each(|at| self.remove_entry(at));
    }

    fn remove_entry(&mut self, at: u32) {
        let Some(entry) = self.entries.get_mut(to_usize(at.into())) else { return };
        let old = core::mem::replace(&mut entry.node, NONE);
        let (dir, name) = (entry.dir, entry.name);
        let hash = Self::hash(&self.hasher, dir, self.texts.get(name));
        if let Ok(found) = self.by_name.find_entry(hash, |&held| held == at) {
            found.remove();
        }
        self.unlinked(NodeId(old));
    }

    /// Removes one link of a node. If no link is left, everything below the node is removed too.
    fn unlinked(&mut self, id: NodeId) {
        let mut dead = Vec::from([id]);
        while let Some(id) = dead.pop() {
            let Some(node) = self.nodes.get_mut(id.index()) else { continue };
            node.links = node.links.saturating_sub(1);
            if node.links > 0 || node.body != Body::Directory {
                continue;
            }
            let doomed: Vec<u32> = self.live(id).map(|(at, _)| at).collect();
            for at in doomed {
                let Some(entry) = self.entries.get_mut(to_usize(at.into())) else { continue };
                dead.push(NodeId(core::mem::replace(&mut entry.node, NONE)));
                let (dir, name) = (entry.dir, entry.name);
                let hash = Self::hash(&self.hasher, dir, self.texts.get(name));
                if let Ok(found) = self.by_name.find_entry(hash, |&held| held == at) {
                    found.remove();
                }
            }
        }
    }

    /// Sets the ranges of a regular file that contain data. The ranges are in bytes of the file. They must be
    /// sorted, must not overlap, and must end within the file.
    pub fn set_data_ranges(&mut self, id: NodeId, ranges: impl Into<Box<[Range<u64>]>>) {
        self.holes.insert(id, ranges.into());
    }

    /// Stores a set of extended attributes. Equal sets are stored once. If a name occurs several times, the set
    /// contains its last value. Returns `None` for an empty set.
    ///
    /// # Errors
    ///
    /// - `TooLarge`: the tree cannot grow.
    pub fn xattrs(
        &mut self,
        list: impl IntoIterator<Item = XattrPair>,
    ) -> Result<Option<XattrsId>, TreeError> {
        let mut list: Vec<_> = list.into_iter().collect();
        // The last value of a name wins.
        list.reverse();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list.dedup_by(|later, first| later.0 == first.0);
        if list.is_empty() {
            return Ok(None);
        }
        let list = XattrList::from(list);
        if let Some(&id) = self.known_xattrs.get(&list) {
            return Ok(Some(id));
        }
        self.xattrs.push(list.clone());
        let id = u32::try_from(self.xattrs.len()).ok().and_then(NonZeroU32::new).map(XattrsId);
        let id = id.ok_or(TreeError::TooLarge)?;
        self.known_xattrs.insert(list, id);
        Ok(Some(id))
    }

    /// Returns the number of different sets of attributes.
    pub fn xattr_set_count(&self) -> usize {
        self.xattrs.len()
    }

    /// Returns a stored set.
    pub fn xattr_list(&self, id: XattrsId) -> &[XattrPair] {
        self.xattrs.get(id.index()).map_or(&[], |list| &**list)
    }
}
