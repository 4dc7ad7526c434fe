//! The items of a tree in an image.

use std::ops::Range;

use obento_base::{FileKind, Name};
use obento_driver::Span;
use obento_host::tree::Keep;
use obento_open::walk::{Entry, Order, Step, Walk};
use obento_vfs::Node;

use super::ahead::BYTES;
use super::{Body, Item, Items, Origin, Reader, unread};
use crate::copy::{CopyOptions, CopySource, Problem, ProblemReason};

/// Files up to this size are read together with the tree.
const AT_ONCE: u64 = 128 << 10;
/// Bytes of attributes that are read beyond the limit of the copy. They are more than one attribute has.
const BEYOND: u64 = 1 << 20;

/// The items of a tree in an image.
pub(in crate::copy) struct ImageItems {
    source: CopySource,
    index: usize,
    walk: Walk,
    keep: Keep,
    recursive: bool,
    /// Maximum number of bytes of attributes of one file.
    xattr_budget: usize,
    /// Bytes of small files that were read since the last `take_bytes`, or `None` if small files are not
    /// read.
    bytes: Option<Vec<u8>>,
}

impl ImageItems {
    pub fn new(source: CopySource, index: usize, options: &CopyOptions) -> Self {
        let walk = Walk::new(source.node.clone()).order(Order::Directory).symlinks(options.symlinks);
        let keep = options.tree.keep;
        // A file that exceeds the limit ends the copy, and is not a problem of its attributes.
        let most = options.tree.max_bytes.saturating_add(BEYOND);
        let xattr_budget = usize::try_from(most).unwrap_or(usize::MAX).min(crate::xattrs::MOST);
        Self { source, index, walk, keep, recursive: options.recursive, xattr_budget, bytes: None }
    }

    /// Returns a reader that reads small files as it lists them, for volumes with a high latency.
    pub fn reading(self) -> Self {
        Self { bytes: Some(Vec::new()), ..self }
    }

    fn item(&mut self, entry: Entry) -> Result<Item, Problem> {
        let shown = self.source.join(&entry.path);
        if entry.step == Step::Enter && !self.recursive {
            self.walk.prune();
        }
        let name = Name::new(entry.name()).ok().map(Name::to_buf);
        let is_start = entry.path.is_empty();
        let Entry { node, attr, step, .. } = entry;
        let (mut troubles, mut xattrs) = (Vec::new(), Vec::new());
        if self.keep.intersects(Keep::XATTRS | Keep::MODE) && step != Step::Leave {
            let wants = |name: &[u8]| self.keep.includes_name(name);
            let damaged =
                |name: Option<&[u8]>, error| troubles.push(ProblemReason::unread_xattr(name, error));
            xattrs = crate::xattrs::read(&node, self.xattr_budget, wants, damaged);
        }
        let body = match attr.kind {
            FileKind::Symlink => Body::Link(node.read_link().map_err(|error| unread(shown.clone(), error))?),
            FileKind::Regular => self.read(&node, attr.size).map_or(Body::Image(node), Body::Bytes),
            _ => Body::None,
        };
        let origin = Origin::Image(self.index, attr.ino);
        Ok(Item { shown, name, step, is_start, attr, origin, xattrs, body, troubles })
    }

    /// Reads a small file without holes, and returns the range of its bytes in the buffer. Returns `None` for
    /// another file, or if a plain read fails.
    fn read(&mut self, node: &Node, size: u64) -> Option<Range<usize>> {
        let bytes = self.bytes.as_mut().filter(|_| size <= AT_ONCE)?;
        let run = node.run(0, size).ok()??;
        if run.span() != Span::Driver || run.len() < size {
            return None;
        }
        drop(run);
        let start = bytes.len();
        bytes.resize(start + usize::try_from(size).ok()?, 0);
        let whole = node.read_at(0, &mut bytes[start..]).is_ok_and(|len| len as u64 == size);
        if !whole {
            bytes.truncate(start);
        }
        whole.then_some(start..bytes.len())
    }
}

impl Items for ImageItems {
    fn prune(&mut self) {
        self.walk.prune();
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}

impl Reader for ImageItems {
    fn take_bytes(&mut self, spare: Vec<u8>) -> Vec<u8> {
        self.bytes.as_mut().map(|bytes| std::mem::replace(bytes, spare)).unwrap_or_default()
    }
}

impl Iterator for ImageItems {
    type Item = Result<Item, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(bytes) = self.bytes.as_mut().filter(|bytes| bytes.len() >= BYTES) {
            bytes.clear();
        }
        Some(match self.walk.next()? {
            Ok(entry) => self.item(entry),
            Err(damage) => Err(Problem { path: self.source.join(&damage.path), ..damage.into() }),
        })
    }
}
