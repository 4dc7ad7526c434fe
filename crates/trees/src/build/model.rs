//! The tree that all sources are read into, and the resolution of paths within it.
//!
//! Invariant: a path starts at the root of the tree. Links are followed within the tree. A path of a source that
//! contains `..` is rejected, and `..` in the target of a link does not lead above the root. A source therefore
//! cannot refer to a file of the host.

use std::collections::HashSet;
use std::ops::Range;

use obento_base::{FileKind, Name, NameBuf, Timestamp};
use obento_driver::tree::{Body, NodeAttr, TreeError, XattrsId};
use obento_driver::{NodeId, TreeBuilder};
use obento_host::Xattr;
use obento_host::compressed::UnpackLimits;
use obento_host::tar::FS_BLOCK;

/// Maximum number of links that are followed in one path: `MAXSYMLINKS` of Linux.
const MAX_LINKS: u32 = 40;
/// The maximum number of directories that sources contain only as parts of the paths of other entries. A single long
/// path can contain thousands of such directories.
const MAX_IMPLIED: u32 = 1 << 20;

/// The reason why a path of a source is not usable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum PathError {
    /// The path contains `..`.
    #[error("the path contains '..', which could lead out of the image")]
    LeadsUp,
    /// A component is not a valid name.
    #[error("invalid path")]
    NoPath,
    /// A component is not a directory.
    #[error("a component of the path is not a directory")]
    NotDirectory,
    /// The links form a loop.
    #[error("the path contains too many symbolic links")]
    Loop,
    /// The tree is full.
    #[error("too many files")]
    Full,
    /// A source contains a file with the name of the log.
    #[error("this is the name of the provenance log")]
    Log,
    /// The attributes, link targets and holes need too much memory.
    #[error(
        "the extended attributes, link targets and holes of the sources exceed the limit of {0} bytes of memory"
    )]
    Texts(u64),
    /// Too many directories are implied.
    #[error("it is in a directory that no source describes, and {0} such directories exist already")]
    Implied(u32),
}

impl From<TreeError> for PathError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::TooLarge => Self::Full,
            _ => Self::NotDirectory,
        }
    }
}

/// The tree while sources are read.
pub(super) struct Model {
    pub builder: TreeBuilder,
    /// Maximum number of implied directories, and the number that is left.
    implied_max: u32,
    implied_left: u32,
    /// Maximum number of bytes of extended attributes, link targets and maps of holes, and the number that is left.
    texts_max: u64,
    texts_left: u64,
    /// Nodes with smaller numbers belong to lower layers.
    layer_start: u32,
    /// Directories of lower layers that this layer also contains.
    touched: HashSet<NodeId>,
    /// Directories whose lower entries this layer hides, so that this is done once.
    opaque: HashSet<NodeId>,
}

/// Splits a path into names. Omits `.` and empty components. Fails with `LeadsUp` or `NoPath`.
pub(super) fn names(path: &[u8]) -> Result<Vec<NameBuf>, PathError> {
    let mut names = Vec::new();
    for part in path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
        if part == b".." {
            return Err(PathError::LeadsUp);
        }
        names.push(Name::new(part).map_err(|_| PathError::NoPath)?.to_buf());
    }
    Ok(names)
}

impl Model {
    /// Creates a tree with an empty root. `limits` apply to the blocks of implied directories, and to the memory for
    /// extended attributes, link targets and maps of holes.
    pub fn new(limits: UnpackLimits) -> Self {
        let builder = TreeBuilder::new(TreeBuilder::bare_directory(Timestamp::EPOCH));
        // A path of 60 KB in a compressed archive can imply 30,000 directories.
        let implied_max = u32::try_from(limits.bytes_for(0) / FS_BLOCK).unwrap_or(u32::MAX).min(MAX_IMPLIED);
        Self {
            builder,
            implied_max,
            implied_left: implied_max,
            texts_max: limits.memory,
            texts_left: limits.memory,
            layer_start: 1,
            touched: HashSet::new(),
            opaque: HashSet::new(),
        }
    }

    /// Adds a set of attributes. Fails with `Full` or `Texts`.
    pub fn xattrs(&mut self, list: &[Xattr]) -> Result<Option<XattrsId>, PathError> {
        let texts = PathError::Texts(self.texts_max);
        let len = list.iter().map(|xattr| (xattr.name.len() + xattr.value.len()) as u64).sum();
        if len > 0 && self.texts_left == 0 {
            return Err(texts);
        }
        let before = self.builder.xattr_set_count();
        let pairs = list.iter().map(|xattr| (xattr.name.as_slice().into(), xattr.value.as_slice().into()));
        let set = self.builder.xattrs(pairs)?;
        // Many files have the same set.
        if self.builder.xattr_set_count() > before {
            self.take_text(len)?;
        }
        Ok(set)
    }

    /// Sets the data ranges of a file with holes. Fails with `Texts`.
    pub fn set_data_ranges(&mut self, node: NodeId, ranges: Vec<Range<u64>>) -> Result<(), PathError> {
        self.take_text((ranges.len() * size_of::<Range<u64>>()) as u64)?;
        self.builder.set_data_ranges(node, ranges);
        Ok(())
    }

    /// Counts `len` bytes. After the first error no more are available, so that memory stays bounded. Fails with
    /// `Texts`.
    fn take_text(&mut self, len: u64) -> Result<(), PathError> {
        let left = self.texts_left.checked_sub(len);
        self.texts_left = left.unwrap_or(0);
        left.map(drop).ok_or(PathError::Texts(self.texts_max))
    }

    /// Begins a new layer.
    pub fn begin_layer(&mut self) {
        self.layer_start = u32::try_from(self.builder.len()).unwrap_or(u32::MAX);
        self.touched.clear();
        self.opaque.clear();
    }

    /// Returns the first node of the current layer.
    pub fn layer_start(&self) -> NodeId {
        NodeId(self.layer_start)
    }

    fn is_directory(&self, node: NodeId) -> bool {
        self.builder.node(node).is_some_and(|node| node.body == Body::Directory)
    }

    /// Returns the directory at `path`. Creates missing directories with the time `mtime`. Fails with `NotDirectory`,
    /// `Loop` or `Full`.
    pub fn directory(&mut self, path: &[NameBuf], mtime: Timestamp) -> Result<NodeId, PathError> {
        self.walk(path, Some(mtime))
    }

    /// Walks to a directory. A missing directory is created or an error. Fails with `NotDirectory`, `Loop` or `Full`.
    fn walk(&mut self, path: &[NameBuf], make: Option<Timestamp>) -> Result<NodeId, PathError> {
        let mut stack = vec![NodeId::ROOT];
        let mut links = 0;
        // The remaining steps, the next one last.
        let mut rest: Vec<Step> = path.iter().rev().map(|name| Step::Down(name.clone())).collect();
        while let Some(step) = rest.pop() {
            let at = stack.last().copied().unwrap_or(NodeId::ROOT);
            let name = match step {
                Step::Down(name) => name,
                Step::Up => {
                    if stack.len() > 1 {
                        stack.pop();
                    }
                    continue;
                }
                Step::Root => {
                    stack.truncate(1);
                    continue;
                }
            };
            let Some(node) = self.builder.lookup(at, &name) else {
                let attr = TreeBuilder::bare_directory(make.ok_or(PathError::NotDirectory)?);
                self.implied_left =
                    self.implied_left.checked_sub(1).ok_or(PathError::Implied(self.implied_max))?;
                stack.push(self.builder.put(at, &name, Body::Directory, attr, b"")?.node);
                continue;
            };
            match self.builder.node(node).map(|node| node.body) {
                Some(Body::Directory) => stack.push(node),
                Some(Body::Symlink) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(PathError::Loop);
                    }
                    push_target(self.builder.target(node), &mut rest)?;
                }
                _ => return Err(PathError::NotDirectory),
            }
        }
        Ok(stack.last().copied().unwrap_or(NodeId::ROOT))
    }

    /// Returns the node at `path`. Follows links on the way, but not at the end. Creates nothing.
    pub fn find(&mut self, path: &[NameBuf]) -> Option<NodeId> {
        let Some((last, parent)) = path.split_last() else { return Some(NodeId::ROOT) };
        let dir = self.walk(parent, None).ok()?;
        self.builder.lookup(dir, last)
    }

    /// Puts a node into `dir`. Fails with `NotDirectory` or `Full`.
    pub fn put(
        &mut self,
        dir: NodeId,
        name: &Name,
        body: Body,
        attr: NodeAttr,
        target: &[u8],
    ) -> Result<NodeId, PathError> {
        self.take_text(target.len() as u64)?;
        let placed = self.builder.put(dir, name, body, attr, target)?;
        if body == Body::Directory && placed.node.0 < self.layer_start {
            self.touched.insert(placed.node);
        }
        Ok(placed.node)
    }

    /// Returns whether a link in `dir` leads to a directory. An archive member that is a directory of the link's name
    /// then means that directory.
    pub fn link_to_directory(&mut self, path: &[NameBuf], dir: NodeId, name: &Name) -> bool {
        let Some(node) = self.builder.lookup(dir, name) else { return false };
        let is_link = self.builder.node(node).is_some_and(|node| node.body.kind() == FileKind::Symlink);
        is_link && self.walk(path, None).is_ok()
    }

    /// Removes the entry `name` of the lower layers from `dir`: a whiteout.
    pub fn hide(&mut self, dir: NodeId, name: &Name) {
        let Some(node) = self.builder.lookup(dir, name) else { return };
        if self.is_of_layer(node) {
            return self.hide_children(node);
        }
        self.builder.remove(dir, name);
    }

    fn is_of_layer(&self, node: NodeId) -> bool {
        node.0 >= self.layer_start || self.touched.contains(&node)
    }

    /// Removes all entries of the lower layers from `dir`: an opaque whiteout.
    pub fn hide_children(&mut self, dir: NodeId) {
        if !self.opaque.insert(dir) {
            return;
        }
        let mut waiting = vec![dir];
        while let Some(dir) = waiting.pop() {
            if !self.is_directory(dir) {
                continue;
            }
            let (start, touched) = (self.layer_start, &self.touched);
            self.builder.remove_children(dir, |node| node.0 >= start || touched.contains(&node));
            let kept = self.builder.children(dir).map(|(_, node)| node);
            waiting.extend(kept.filter(|node| touched.contains(node)));
        }
    }
}

/// One step of a path.
enum Step {
    Down(NameBuf),
    Up,
    Root,
}

fn push_target(target: &[u8], rest: &mut Vec<Step>) -> Result<(), PathError> {
    let mut steps = Vec::new();
    if target.starts_with(b"/") {
        steps.push(Step::Root);
    }
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => steps.push(Step::Up),
            part => steps.push(Step::Down(Name::new(part).map_err(|_| PathError::NoPath)?.to_buf())),
        }
    }
    rest.extend(steps.into_iter().rev());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_do_not_imply_directories_without_end() {
        let mut model = Model::new(UnpackLimits { bytes: Some(3 * 4096), memory: 0 });
        let mut directory = |path: &[u8]| model.directory(&names(path).unwrap(), Timestamp::EPOCH);
        assert!(directory(b"a/b").is_ok() && directory(b"a/b").is_ok());
        assert_eq!(directory(b"c/d"), Err(PathError::Implied(3)));
        assert!(directory(b"a/b").is_ok());
    }
    #[test]
    fn attributes_and_link_targets_do_not_use_memory_without_end() {
        let mut model = Model::new(UnpackLimits { memory: 100, ..UnpackLimits::default() });
        let xattr = |value: u8, len| [Xattr { name: b"user.a".to_vec(), value: vec![value; len] }];
        let set = model.xattrs(&xattr(1, 54)).unwrap();
        for _ in 0..10 {
            assert_eq!(model.xattrs(&xattr(1, 54)), Ok(set));
        }
        let link = |model: &mut Model, len| {
            let (attr, name) = (TreeBuilder::bare_directory(Timestamp::EPOCH), Name::new(b"link").unwrap());
            model.put(NodeId::ROOT, name, Body::Symlink, attr, &vec![b'x'; len]).map(drop)
        };
        assert_eq!(link(&mut model, 30), Ok(()));
        assert_eq!(model.xattrs(&xattr(2, 54)), Err(PathError::Texts(100)));
        assert_eq!((link(&mut model, 1), model.xattrs(&[])), (Err(PathError::Texts(100)), Ok(None)));
        assert_eq!(model.xattrs(&xattr(3, 1)), Err(PathError::Texts(100)));
        assert_eq!(model.builder.xattr_set_count(), 2);
    }
}
