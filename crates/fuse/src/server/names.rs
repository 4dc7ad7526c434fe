//! Looking names up, making, moving and removing them.

use obento::{DeviceNumber, Error, FileFlags, FileKind, Mode, NewNode, Node, RenameFlags, Vfs};

use super::{Found, OWNER, Reply, Server, errno, name};
use crate::nodes::Nodes;

/// Flags that forbid writes.
const GUARDED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

/// What is to be made, by whom.
pub(crate) struct Made<'a> {
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: DeviceNumber,
    pub(crate) target: &'a [u8],
}

impl Made<'_> {
    fn node(&self) -> NewNode<'_> {
        let Self { kind, mode, uid, gid, rdev, target, umask: _ } = *self;
        NewNode { kind, mode: permissions(mode), uid, gid, rdev, target }
    }
}

/// A name that moves.
pub(crate) struct Moved<'a> {
    pub(crate) from: (u64, &'a [u8]),
    pub(crate) to: (u64, &'a [u8]),
    pub(crate) flags: u32,
}

/// The bits of a mode that are permissions.
fn permissions(mode: u32) -> Mode {
    Mode::new((mode & 0o7777) as u16)
}

impl Server {
    /// What `bytes` leads to in `dir`; none if it leads nowhere and the kernel may remember that.
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
            Ok(node) => self.introduce(&dir, node).map(Some),
            Err(Error::NotFound) if self.stays(&dir) => Ok(None),
            Err(error) => Err(errno(error)),
        }
    }

    /// The inode of a file handle: the kernel may have forgotten it since it made the handle.
    fn find_again(&self, id: u64) -> Reply<Found> {
        let node = match self.nodes.get(id) {
            Some(known) => known.node,
            None => self.vfs.node(Nodes::ino(&self.vfs, id)).map_err(errno)?,
        };
        self.introduce(&node.clone(), node)
    }

    /// Makes an inode and names it.
    pub(crate) fn make(&self, dir: u64, bytes: &[u8], made: &Made<'_>) -> Reply<Found> {
        let dir = self.node(dir)?;
        let (new, umask) = (made.node(), permissions(made.umask & 0o777));
        let node = self.vfs.create_masked(&OWNER, &dir, name(bytes)?, &new, umask).map_err(errno)?;
        self.introduce_new(&dir, node)
    }

    /// Makes a regular file without a name.
    pub(crate) fn make_nameless(&self, dir: u64, made: &Made<'_>) -> Reply<Found> {
        let dir = self.node(dir)?;
        let (new, umask) = (made.node(), permissions(made.umask & 0o777));
        let node = self.vfs.create_nameless(&OWNER, &dir, &new, umask).map_err(errno)?;
        self.introduce_new(&dir, node)
    }

    fn introduce_new(&self, dir: &Node, node: Node) -> Reply<Found> {
        let found = self.introduce(dir, node.clone())?;
        if found.attr.kind == FileKind::Regular {
            // Nobody had it before: neither a capability nor a flag that forbids writing, unless it got that from `dir`.
            self.nodes.set_plain(found.id, !found.attr.flags.intersects(GUARDED));
            // What is made is about to be written to.
            self.nodes.note_write(found.id);
        }
        self.settled(&node, found)
    }

    /// Gives `id` another name.
    pub(crate) fn link(&self, id: u64, dir: u64, bytes: &[u8]) -> Reply<Found> {
        let (node, dir) = (self.node(id)?, self.node(dir)?);
        // The kernel asks that only for what it knows to be nameless from the start.
        let is_nameless = node.attr().map_err(errno)?.nlink == 0;
        let link = if is_nameless { Vfs::name } else { Vfs::link };
        link(&self.vfs, &OWNER, &node, &dir, name(bytes)?).map_err(errno)?;
        let found = self.introduce(&dir, node.clone())?;
        self.settled(&node, found)
    }

    /// Removes a name that is not a directory's.
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

    /// Moves a name, with the flags of renameat2(2).
    pub(crate) fn rename(&self, moved: &Moved<'_>) -> Reply<()> {
        // The numbers are the same; what stands for nothing here, as a whiteout, is refused.
        let flags = RenameFlags::from_bits(moved.flags).ok_or_else(|| Error::Invalid.errno())?;
        let (from, to) = (self.node(moved.from.0)?, self.node(moved.to.0)?);
        let (old, new) = (name(moved.from.1)?, name(moved.to.1)?);
        self.vfs.rename(&OWNER, (&from, old), (&to, new), flags).map_err(errno)?;
        self.settled(&from, ())?;
        self.settled(&to, ())
    }

    /// The target of a symbolic link.
    pub(crate) fn read_link(&self, id: u64) -> Reply<Vec<u8>> {
        self.node(id)?.read_link().map_err(errno)
    }
}
