//! The items of a tree in an image.

use obento_base::{FileKind, Name};
use obento_host::tree::Keep;

use super::{Body, Item, Items, Origin, unread};
use crate::copy::{CopyOptions, CopySource, Problem, Trouble};
use crate::walk::{Entry, Order, Step, Walk};

/// See the module.
pub(in crate::copy) struct ImageItems {
    source: CopySource,
    index: usize,
    walk: Walk,
    xattrs: bool,
    recursive: bool,
}

impl ImageItems {
    pub fn new(source: CopySource, index: usize, options: &CopyOptions) -> Self {
        let walk = Walk::new(source.node.clone()).order(Order::Directory).symlinks(options.symlinks);
        let xattrs = options.tree.keep.contains(Keep::XATTRS);
        Self { source, index, walk, xattrs, recursive: options.recursive }
    }

    fn item(&mut self, entry: Entry) -> Result<Item, Problem> {
        let shown = self.source.join(&entry.path);
        if entry.step == Step::Enter && !self.recursive {
            self.walk.prune();
        }
        let name = Name::new(entry.name()).ok().map(Name::to_buf);
        let Entry { node, attr, step, .. } = entry;
        let (mut troubles, mut xattrs) = (Vec::new(), Vec::new());
        if self.xattrs && step != Step::Leave {
            xattrs = crate::xattrs::read(&node, |error| troubles.push(Trouble::Xattrs(error)));
        }
        let body = match attr.kind {
            FileKind::Symlink => Body::Link(node.read_link().map_err(|error| unread(shown.clone(), error))?),
            FileKind::Regular => Body::Image(node),
            _ => Body::None,
        };
        let origin = Origin::Image(self.index, attr.ino);
        Ok(Item { shown, name, step, attr, origin, xattrs, body, troubles })
    }
}

impl Items for ImageItems {
    fn prune(&mut self) {
        self.walk.prune();
    }
}

impl Iterator for ImageItems {
    type Item = Result<Item, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.walk.next()? {
            Ok(entry) => self.item(entry),
            Err(damage) => Err(unread(self.source.join(&damage.path), damage.error)),
        })
    }
}
