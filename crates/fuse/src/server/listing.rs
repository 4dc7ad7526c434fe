//! Directory listings.
//!
//! A position in a listing is 0 at the start, 1 after `.` and 2 after `..`. After any other entry it is the cookie of
//! the entry plus 2. A cookie is at least 1.

use std::ops::ControlFlow;

use obento_base::{Attr, Errno, Error, FileKind};
use obento_driver::{Cookie, DirEntry};
use obento_vfs::Node;

use super::{Found, Reply, Server, damage, errno};
use crate::nodes::{Nodes, ROOT};

const AFTER_DOT: u64 = 1;
const AFTER_DOTS: u64 = 2;

/// One entry of a listing.
pub(crate) struct Listed<'a> {
    pub(crate) ino: u64,
    pub(crate) name: &'a [u8],
    pub(crate) kind: FileKind,
    /// The position after the entry.
    pub(crate) next: u64,
}

/// Takes entries. Returns `true` for the first entry that does not fit.
pub(crate) type Sink<'s> = dyn FnMut(&Listed<'_>) -> bool + 's;
/// Takes entries with their inodes, like [`Sink`].
pub(crate) type PlusSink<'s> = dyn FnMut(&Listed<'_>, &Found) -> bool + 's;

impl Server {
    /// Passes the entries of `dir` after the position `place` to `sink`.
    pub(crate) fn list(&self, dir: u64, place: u64, sink: &mut Sink<'_>) -> Reply<()> {
        let node = self.node(dir)?;
        if self.dots(&node, place, |listed, _| sink(listed))? {
            return Ok(());
        }
        each(&node, place, |entry, next| {
            let kind = match entry.kind {
                Some(kind) => kind,
                None => node.child(entry).and_then(|child| child.kind()).map_err(errno)?,
            };
            Ok(sink(&Listed { ino: entry.ino.0, name: entry.name.as_bytes(), kind, next }))
        })
    }

    /// Lists entries like [`list`](Self::list), and counts a lookup of each entry that fits, except `.` and `..`.
    pub(crate) fn list_plus(&self, dir: u64, place: u64, sink: &mut PlusSink<'_>) -> Reply<()> {
        let node = self.node(dir)?;
        let stays = self.stays(&node);
        let is_full = self
            .dots(&node, place, |entry, attr| sink(entry, &Found { id: ROOT, attr: *attr, stays: false }))?;
        if is_full {
            return Ok(());
        }
        each(&node, place, |entry, next| {
            let child = match node.child(entry) {
                Ok(child) => child,
                // The entry was removed during the listing.
                Err(Error::NotFound) => return Ok(false),
                Err(error) => return Err(errno(error)),
            };
            let id = Nodes::id(&child);
            let attr = match child.attr() {
                Ok(attr) => attr,
                Err(error) => return self.unreadable(entry, next, &error, sink),
            };
            let found = Found { id, attr, stays };
            let listed = Listed { ino: attr.ino.0, name: entry.name.as_bytes(), kind: attr.kind, next };
            let full = sink(&listed, &found);
            if !full {
                self.nodes.remember(id, child, attr.kind == FileKind::Regular);
            }
            Ok(full)
        })
    }

    /// Lists an entry whose inode cannot be read, without a node ID. The rest of the directory stays accessible.
    fn unreadable(
        &self,
        entry: &DirEntry<'_>,
        next: u64,
        error: &Error,
        sink: &mut PlusSink<'_>,
    ) -> Reply<bool> {
        damage::log(error, "an inode cannot be read");
        let kind = entry.kind.unwrap_or(FileKind::Regular);
        let attr = Attr { kind, ..self.node(ROOT)?.attr().map_err(errno)? };
        let listed = Listed { ino: entry.ino.0, name: entry.name.as_bytes(), kind, next };
        Ok(sink(&listed, &Found { id: 0, attr, stays: false }))
    }

    /// Passes `.` and `..` to `sink` if they are after `place`. Returns whether the sink is full.
    fn dots(&self, dir: &Node, place: u64, mut sink: impl FnMut(&Listed<'_>, &Attr) -> bool) -> Reply<bool> {
        if place >= AFTER_DOTS {
            return Ok(false);
        }
        let own = dir.attr().map_err(errno)?;
        let mut give = |name: &[u8], attr: &Attr, next: u64| {
            sink(&Listed { ino: attr.ino.0, name, kind: FileKind::Directory, next }, attr)
        };
        if place < AFTER_DOT && give(b".", &own, AFTER_DOT) {
            return Ok(true);
        }
        // The parent of a removed or damaged directory is shown as the directory itself.
        let parent = dir.parent().and_then(|parent| parent.attr()).unwrap_or(own);
        Ok(give(b"..", &parent, AFTER_DOTS))
    }
}

/// Calls `take` for each entry after `place`, with the position after the entry, until it returns `true`. An error is
/// returned only if no entry was taken before it.
fn each(dir: &Node, place: u64, mut take: impl FnMut(&DirEntry<'_>, u64) -> Reply<bool>) -> Reply<()> {
    let from = Cookie(place.saturating_sub(AFTER_DOTS));
    let mut result = Ok(());
    let mut taken = false;
    dir.read_dir(from, &mut |entry| {
        let step = match &entry {
            Ok(entry) => match entry.next.0.checked_add(AFTER_DOTS).filter(|&next| next <= i64::MAX as u64) {
                Some(next) => take(entry, next),
                None => Err(Errno(libc::EOVERFLOW)),
            },
            Err(error) => {
                damage::log(error, "a part of a directory is damaged");
                Ok(false)
            }
        };
        match step {
            Ok(false) => {
                taken = true;
                ControlFlow::Continue(())
            }
            Ok(true) => ControlFlow::Break(()),
            Err(error) => {
                // The reply contains the entries so far; the next request fails with the error.
                result = if taken { Ok(()) } else { Err(error) };
                ControlFlow::Break(())
            }
        }
    })
    .map_err(errno)?;
    result
}
