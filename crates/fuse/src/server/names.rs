//! Lookup, creation, renaming and removal of names.

use obento_base::{DeviceNumber, Error, FileFlags, FileKind, Mode};
use obento_driver::{NewNode, RenameFlags};
use obento_vfs::{Node, Vfs};

use super::{Found, OWNER, Reply, Server, errno, name};
use crate::nodes::Nodes;

/// Flags that forbid writes.
const GUARDED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

/// An inode to create.
pub(crate) struct CreateRequest<'a> {
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: DeviceNumber,
    pub(crate) target: &'a [u8],
}

impl CreateRequest<'_> {
    fn node(&self) -> NewNode<'_> {
        let Self { kind, mode, uid, gid, rdev, target, umask: _ } = *self;
        NewNode { kind, mode: permissions(mode), uid, gid, rdev, target }
    }
}

/// A rename.
pub(crate) struct RenameRequest<'a> {
    pub(crate) from: (u64, &'a [u8]),
    pub(crate) to: (u64, &'a [u8]),
    pub(crate) flags: u32,
    /// The user and the group of the requesting process.
    pub(crate) owner: (u32, u32),
}

/// `RENAME_WHITEOUT` of rename(2).
const RENAME_WHITEOUT: u32 = 4;

/// Returns the permissions of a mode.
fn permissions(mode: u32) -> Mode {
    Mode::new((mode & 0o7777) as u16)
}

impl Server {
    /// Returns the inode that the name `bytes` refers to in `dir`. Returns `None` if the name does not exist and the
    /// kernel may cache that. Fails with ENOENT if it may not.
    pub(crate) fn lookup(&self, dir: u64, bytes: &[u8]) -> Reply<Option<Found>> {
        match bytes {
            b"." => return self.find_again(dir).map(Some),
            b".." => {
                let parent = self.node(dir)?.parent().map_err(errno)?;
                return self.introduce(&parent.clone(), parent).map(Some);
            }
            _ => {}
        }
        let dir = self.node(dir)?;
        match dir.lookup(name(bytes)?) {
            Ok(node) => {
                self.notices.log_sometimes(&self.vfs);
                self.introduce(&dir, node).map(Some)
            }
            Err(Error::NotFound) if self.stays(&dir) => Ok(None),
            Err(error) => Err(errno(error)),
        }
    }

    /// Returns the inode of a file handle. The kernel may have forgotten the inode since it created the handle.
    fn find_again(&self, id: u64) -> Reply<Found> {
        let node = match self.nodes.get(id) {
            Some(known) => known.node,
            None => self.vfs.node(Nodes::ino(&self.vfs, id)).map_err(errno)?,
        };
        self.introduce(&node.clone(), node)
    }

    /// Creates an inode with a name.
    pub(crate) fn make(&self, dir: u64, bytes: &[u8], made: &CreateRequest<'_>) -> Reply<Found> {
        let dir = self.node(dir)?;
        let (new, umask) = (made.node(), permissions(made.umask & 0o777));
        let node = self.vfs.create_masked(&OWNER, &dir, name(bytes)?, &new, umask).map_err(errno)?;
        self.introduce_new(&dir, node)
    }

    /// Creates a regular file without a name.
    pub(crate) fn make_nameless(&self, dir: u64, made: &CreateRequest<'_>) -> Reply<Found> {
        let dir = self.node(dir)?;
        let (new, umask) = (made.node(), permissions(made.umask & 0o777));
        let node = self.vfs.create_nameless(&OWNER, &dir, &new, umask).map_err(errno)?;
        self.introduce_new(&dir, node)
    }

    fn introduce_new(&self, dir: &Node, node: Node) -> Reply<Found> {
        let found = self.introduce(dir, node.clone())?;
        if found.attr.kind == FileKind::Regular {
            // A new file has no capability, and no flag that forbids writes unless it inherits the flag from `dir`.
            self.nodes.set_plain(found.id, !found.attr.flags.intersects(GUARDED));
            // A new file is usually written to next.
            self.nodes.note_write(found.id);
        }
        self.settled(&node, found)
    }

    /// Creates another name for `id`.
    pub(crate) fn link(&self, id: u64, dir: u64, bytes: &[u8]) -> Reply<Found> {
        let (node, dir) = (self.node(id)?, self.node(dir)?);
        // The kernel links an inode without a name only if the inode was created without one.
        let is_nameless = node.attr().map_err(errno)?.nlink == 0;
        let link = if is_nameless { Vfs::name } else { Vfs::link };
        link(&self.vfs, &OWNER, &node, &dir, name(bytes)?).map_err(|error| match error {
            // The format supports no hard links, which link(2) reports differently.
            Error::TooManyLinks if self.vfs.limits().link_max <= 1 => Error::NotPermitted.errno(),
            error => errno(error),
        })?;
        let found = self.introduce(&dir, node.clone())?;
        self.settled(&node, found)
    }

    /// Removes the name of a file that is not a directory.
    pub(crate) fn unlink(&self, dir: u64, bytes: &[u8]) -> Reply<()> {
        let dir = self.node(dir)?;
        self.vfs.unlink(&OWNER, &dir, name(bytes)?).map_err(errno)?;
        self.settled(&dir, ())
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, dir: u64, bytes: &[u8]) -> Reply<()> {
        let dir = self.node(dir)?;
        self.vfs.rmdir(&OWNER, &dir, name(bytes)?).map_err(errno)?;
        self.settled(&dir, ())
    }

    /// Renames a file or directory, with the flags of renameat2(2).
    pub(crate) fn rename(&self, moved: &RenameRequest<'_>) -> Reply<()> {
        // The bits are the same as in renameat2(2). Unsupported ones are refused.
        let flags = RenameFlags::from_bits(moved.flags & !RENAME_WHITEOUT);
        let flags = flags.ok_or_else(|| Error::Invalid.errno())?;
        let (from, to) = (self.node(moved.from.0)?, self.node(moved.to.0)?);
        let (old, new) = (name(moved.from.1)?, name(moved.to.1)?);
        let (before, after) = ((&from, old), (&to, new));
        let renamed = match moved.flags & RENAME_WHITEOUT {
            0 => self.vfs.rename(&OWNER, before, after, flags),
            _ => self.vfs.rename_leaving_whiteout(&OWNER, before, after, flags, moved.owner),
        };
        renamed.map_err(errno)?;
        self.settled(&from, ())?;
        self.settled(&to, ())
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn read_link(&self, id: u64) -> Reply<Vec<u8>> {
        self.node(id)?.read_link().map_err(errno)
    }
}
