//! From paths to inodes.
//!
//! Iterative: what is left of the path is one byte string, in which a symbolic link is replaced by its target.
//! Source: POSIX.1-2024 section 4.16 "Pathname Resolution"; Linux path_resolution(7).

use alloc::borrow::Cow;

use obento_base::{Error, FileKind, Name, NameBuf, NameError, Result};

use crate::access::{Caller, Want};
use crate::node::Node;
use crate::vfs::Vfs;

/// Symbolic links that one walk follows: Linux include/linux/namei.h `MAXSYMLINKS`.
const MAX_SYMLINKS: u32 = 40;
/// Bytes of a path that are left to walk, links replaced: sixteen times Linux's `PATH_MAX`, because an image can hold
/// deeper trees than a kernel can name in one call.
const MAX_PATH: usize = 16 * 4096;

/// What to do with a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Symlinks {
    /// Go where it leads.
    Follow,
    /// Stay at it, unless a slash follows.
    Keep,
}

/// Where a path leads whose last component need not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Last {
    /// The directory.
    pub dir: Node,
    /// The last component.
    pub name: NameBuf,
    /// Whether a slash follows it: it must be, or become, a directory.
    pub slash: bool,
}

/// A walk under way.
struct Walk<'p> {
    at: Node,
    rest: Cow<'p, [u8]>,
    /// Where in `rest` it goes on.
    position: usize,
    symlinks: u32,
}

/// One component. `slash`: a slash follows. `last`: nothing but slashes follows.
struct Component {
    bytes: core::ops::Range<usize>,
    slash: bool,
    last: bool,
}

impl Vfs {
    /// The inode that `path` leads to, starting at `from`, or at the root if `path` starts with `/`. Errors, the
    /// first that holds at each step: NotDirectory if there is more to walk, or a final slash, and this is none;
    /// AccessDenied if `caller` may not look names up here; NameTooLong; NotFound, also for an empty path; Loop after
    /// 40 symbolic links.
    pub fn resolve(&self, from: &Node, path: &[u8], symlinks: Symlinks, caller: &Caller) -> Result<Node> {
        let mut walk = Walk::start(self, from, path)?;
        while let Some(component) = walk.next() {
            let follow = !component.last || component.slash || symlinks == Symlinks::Follow;
            walk.step(&component, follow, caller)?;
        }
        if walk.rest.last() == Some(&b'/') {
            walk.at.expect_directory()?;
        }
        Ok(walk.at)
    }

    /// The directory that the last component of `path` is or would be in. Symbolic links on the way are followed, one
    /// at the end is not. Errors: as [`resolve`](Self::resolve) for the directory, which must let `caller` look names
    /// up; Invalid if the last component is `.` or `..` or there is none; NameTooLong.
    pub fn resolve_parent(&self, from: &Node, path: &[u8], caller: &Caller) -> Result<Last> {
        let mut walk = Walk::start(self, from, path)?;
        while let Some(component) = walk.next() {
            if !component.last {
                walk.step(&component, true, caller)?;
                continue;
            }
            walk.at.expect_directory()?;
            let name = match Name::new(walk.bytes(&component)) {
                Ok(name) if self.name_fits(name) => name.to_buf(),
                Ok(_) | Err(NameError::TooLong) => return Err(Error::NameTooLong),
                Err(_) => return Err(Error::Invalid),
            };
            walk.at.access(caller, Want::EXEC)?;
            return Ok(Last { dir: walk.at, name, slash: component.slash });
        }
        Err(Error::Invalid)
    }
}

impl<'p> Walk<'p> {
    fn start(vfs: &Vfs, from: &Node, path: &'p [u8]) -> Result<Self> {
        match path {
            [] => return Err(Error::NotFound),
            _ if path.len() > MAX_PATH => return Err(Error::NameTooLong),
            _ => {}
        }
        let at = if path.first() == Some(&b'/') { vfs.root() } else { from.clone() };
        Ok(Self { at, rest: Cow::Borrowed(path), position: 0, symlinks: 0 })
    }

    fn bytes(&self, component: &Component) -> &[u8] {
        self.rest.get(component.bytes.clone()).unwrap_or_default()
    }

    /// Takes the next component off the path.
    fn next(&mut self) -> Option<Component> {
        let rest = self.rest.get(self.position..)?;
        let start = self.position.checked_add(rest.iter().position(|&b| b != b'/')?)?;
        let tail = self.rest.get(start..)?;
        let len = tail.iter().position(|&b| b == b'/').unwrap_or(tail.len());
        let after = tail.get(len..)?;
        self.position = start.checked_add(len)?;
        let last = after.iter().all(|&b| b == b'/');
        Some(Component { bytes: start..self.position, slash: !after.is_empty(), last })
    }

    fn step(&mut self, component: &Component, follow: bool, caller: &Caller) -> Result<()> {
        self.at.expect_directory()?;
        if *caller != Caller::Owner {
            self.at.access(caller, Want::EXEC)?;
        }
        let next = match Name::new(self.bytes(component)) {
            Ok(name) => self.at.lookup(name)?,
            Err(NameError::Dots) if self.bytes(component) == b"." => return Ok(()),
            Err(NameError::Dots) => self.at.parent()?,
            Err(NameError::TooLong) => return Err(Error::NameTooLong),
            Err(NameError::Empty | NameError::Separator) => return Err(Error::NotFound),
        };
        if follow && next.kind()? == FileKind::Symlink { self.follow(&next) } else { self.arrive(next) }
    }

    fn arrive(&mut self, next: Node) -> Result<()> {
        self.at = next;
        Ok(())
    }

    /// Puts the target of `link` in front of what is left.
    fn follow(&mut self, link: &Node) -> Result<()> {
        self.symlinks = self.symlinks.saturating_add(1);
        if self.symlinks > MAX_SYMLINKS {
            return Err(Error::Loop);
        }
        let mut path = link.read_link()?;
        let rest = self.rest.get(self.position..).unwrap_or_default();
        match path.len().checked_add(rest.len()) {
            Some(len) if len <= MAX_PATH => path.try_reserve_exact(rest.len())?,
            _ => return Err(Error::NameTooLong),
        }
        path.extend_from_slice(rest);
        if path.first() == Some(&b'/') {
            self.at = link.vfs().root();
        }
        self.rest = Cow::Owned::<[u8]>(path);
        self.position = 0;
        Ok(())
    }
}

impl Node {
    /// Errors: NotDirectory.
    pub(crate) fn expect_directory(&self) -> Result<()> {
        if self.kind()? == FileKind::Directory { Ok(()) } else { Err(Error::NotDirectory) }
    }
}
