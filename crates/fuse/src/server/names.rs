//! Looking names up, making, moving and removing them.

use obento::{DeviceNumber, Error, FileKind, Mode, NewNode, RenameFlags};

use super::{Found, OWNER, Reply, Server, errno, name};
use crate::nodes::Nodes;

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
        let dir = self.node(dir)?;
        match dir.lookup(name(bytes)?) {
            Ok(node) => self.introduce(&dir, node).map(Some),
            Err(Error::NotFound) if self.stays(&dir) => Ok(None),
            Err(error) => Err(errno(error)),
        }
    }

    /// Makes an inode and names it.
    pub(crate) fn make(&self, dir: u64, bytes: &[u8], made: &Made<'_>) -> Reply<Found> {
        let dir = self.node(dir)?;
        let new = NewNode {
            kind: made.kind,
            mode: permissions(made.mode),
            uid: made.uid,
            gid: made.gid,
            rdev: made.rdev,
            target: made.target,
        };
        let umask = permissions(made.umask & 0o777);
        let node = self.vfs.create_masked(&OWNER, &dir, name(bytes)?, &new, umask).map_err(errno)?;
        let id = Nodes::id(&node);
        let found = self.introduce(&dir, node.clone())?;
        if let (Some(id), FileKind::Regular) = (id, made.kind) {
            // Nobody had it before: neither a capability nor a flag that forbids writing.
            self.nodes.set_plain(id, true);
            // What is made is about to be written to.
            self.nodes.note_write(id);
        }
        self.settled(&node, found)
    }

    /// Gives `id` another name.
    pub(crate) fn link(&self, id: u64, dir: u64, bytes: &[u8]) -> Reply<Found> {
        let (node, dir) = (self.node(id)?, self.node(dir)?);
        self.vfs.link(&OWNER, &node, &dir, name(bytes)?).map_err(errno)?;
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
