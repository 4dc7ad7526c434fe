//! Creating inodes and names.
//!
//! Invariant: a directory grows before an inode is allocated, and an inode gets its blocks before its name. A lack of
//! space therefore leaves nothing incomplete.
//! Source: Linux fs/ext4/namei.c `ext4_create`, `ext4_mkdir`, `ext4_mknod`, `ext4_symlink`, `ext4_link`.

use obento_base::wire::to_u64;
use obento_base::{Attr, Error, FileKind, Ino, Name, Result};
use obento_driver::NewNode;
use obento_journal::{Credits, Txn};

use super::names::{ENTRY, FIRST_BLOCK, GROWTH, LAST_NAME, NEW_INODE, OperationEnd, expect_same_project};
use crate::dir::{DirEdit, EntrySpace, FreeSlot, NewEntry, RecordRun};
use crate::inode::{Inode, InodeFlags, fits_device};
use crate::writer::{InodeEdit, InodeWrite, Writer};

/// Shorter targets are in `i_block`, with their NUL.
const FAST_MAX: usize = 60;

/// The names of a file that gets another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    None,
    Some,
}

impl Writer {
    /// [`obento_driver::WritableFileSystem::create`].
    pub(crate) fn create(&self, dir: Ino, name: &Name, new: &NewNode<'_>) -> Result<Attr> {
        self.with_space(|| self.create_once(dir, name, new))
    }

    fn create_once(&self, dir: Ino, name: &Name, new: &NewNode<'_>) -> Result<Attr> {
        let locked = self.locks().write(&[dir]);
        let parent = self.live_directory(dir)?;
        let room = self.volume().with_directory(&parent, |directory| directory.room(name))?;
        self.expect_sound(&parent, new)?;
        self.prepare_owners_of(&parent, new)?;
        let _room = self.room_for_inode(&parent, new)?;
        let growth = if matches!(room, EntrySpace::Grow(_)) { GROWTH } else { Credits(0) };
        let body = match new.kind {
            FileKind::Directory | FileKind::Symlink => FIRST_BLOCK,
            _ => Credits(0),
        };
        let mut txn = self.begin(ENTRY + NEW_INODE + growth + body)?;
        let made = self.create_in(&mut txn, locked.view(&parent), name, room, new);
        let ended = self.end(txn, &[&parent], made);
        drop(locked);
        self.settle(ended)
    }

    /// Checks the arguments. Fails with the first error: `Invalid` for an empty target; `NameTooLong` for a target;
    /// `OutOfRange` for a device number; `TooManyLinks`.
    fn expect_sound(&self, parent: &Inode, new: &NewNode<'_>) -> Result<()> {
        match new.kind {
            FileKind::Symlink if new.target.is_empty() => Err(Error::Invalid),
            FileKind::Symlink
                if to_u64(new.target.len()) > self.volume().super_block().symlink_max().into() =>
            {
                Err(Error::NameTooLong)
            }
            FileKind::Directory => self.expect_room_for_subdirectory(parent),
            kind if kind.is_device() && !fits_device(new.rdev) => Err(Error::OutOfRange),
            _ => Ok(()),
        }
    }

    fn create_in<'t>(
        &self,
        txn: &mut Txn<'t>,
        parent: InodeWrite<'t>,
        name: &Name,
        room: EntrySpace,
        new: &NewNode<'_>,
    ) -> Result<Attr> {
        let mut dir = DirEdit::new(self, txn, parent)?;
        let prepared = dir.make_room(txn, name, room).and_then(|place| {
            let made = self.make_inode(txn, &parent, new)?;
            Ok((place, made))
        });
        let ((run, slot), (made, attr)) = prepared.inspect_err(|_| dir.store_grown(txn))?;
        self.store_inode(txn, &made);
        if new.kind == FileKind::Directory {
            self.gain_subdirectory(&mut dir.inode);
        }
        self.name_inode(txn, &mut dir, (&run, slot), name, (made.ino(), new.kind));
        Ok(attr)
    }

    /// Writes the entry into its slot and stores the directory.
    fn name_inode(
        &self,
        txn: &mut Txn<'_>,
        dir: &mut DirEdit<'_>,
        (run, slot): (&RecordRun, FreeSlot),
        name: &Name,
        (ino, kind): (Ino, FileKind),
    ) {
        let ino = u32::try_from(ino.0).unwrap_or(0);
        dir.put(txn, run, slot, &NewEntry { name: name.as_bytes(), ino, kind });
        dir.inode.touch_data(self.now());
        dir.store(txn);
    }

    /// Allocates an inode for `new`, which is not stored yet. Fails with `NoSpace`, and then allocates nothing.
    pub(super) fn make_inode(
        &self,
        txn: &mut Txn<'_>,
        parent: &Inode,
        new: &NewNode<'_>,
    ) -> Result<(InodeEdit, Attr)> {
        let mut inode = self.new_inode(txn, parent, new)?;
        let made = self.give_body(txn, &mut inode, parent.ino(), new).and_then(|()| self.attr_of(&inode));
        match made {
            Ok(attr) => Ok((inode, attr)),
            Err(error) => Err(self.discard_new(txn, Some(inode), error)),
        }
    }

    /// Frees a new inode that gets no name because of `error`, and returns that error.
    pub(super) fn discard_new(&self, txn: &mut Txn<'_>, inode: Option<InodeEdit>, error: Error) -> Error {
        if let Some(mut inode) = inode
            && let Err(error) = self.free_inode(txn, &mut inode)
        {
            // An inode in use without a name can be repaired only by a check.
            self.txns().abort(error);
        }
        error
    }

    /// Creates the contents of a new inode: `.` and `..`, or a target. Fails with `NoSpace`, and then allocates no
    /// block.
    fn give_body(
        &self,
        txn: &mut Txn<'_>,
        inode: &mut InodeEdit,
        parent: Ino,
        new: &NewNode<'_>,
    ) -> Result<()> {
        match new.kind {
            FileKind::Directory => {
                let view = inode.inode()?;
                let mut dir = DirEdit::of(self, inode.clone(), &view)?;
                dir.start(txn, parent)?;
                *inode = dir.inode;
            }
            FileKind::Symlink if new.target.len() < FAST_MAX => {
                inode.remove_flags(InodeFlags::EXTENTS);
                let i_block = inode.i_block_mut();
                i_block.fill(0);
                i_block.iter_mut().zip(new.target).for_each(|(to, from)| *to = *from);
                inode.set_size(to_u64(new.target.len()));
            }
            FileKind::Symlink => {
                let (_, taken) = self.append_dir_block(txn, inode)?;
                let mut block = txn.edit(&taken);
                block.fill(0);
                block.iter_mut().zip(new.target).for_each(|(to, from)| *to = *from);
                drop(block);
                inode.set_size(to_u64(new.target.len()));
            }
            _ => {}
        }
        Ok(())
    }

    /// [`obento_driver::Nameless::create_nameless`]. The inode is on the orphan list until it gets a name.
    pub(crate) fn create_nameless(&self, dir: Ino, new: &NewNode<'_>) -> Result<Attr> {
        self.with_space(|| {
            let locked = self.locks().write(&[dir]);
            let parent = self.live_directory(dir)?;
            self.expect_sound(&parent, new)?;
            self.prepare_owners_of(&parent, new)?;
            let _room = self.room_for_inode(&parent, new)?;
            let mut txn = self.begin(NEW_INODE + LAST_NAME)?;
            let made = self.make_inode(&mut txn, &parent, new).and_then(|(mut inode, attr)| {
                if let Err(error) = self.add_orphan(inode.ino()) {
                    self.free_inode(&mut txn, &mut inode).inspect_err(|error| self.txns().abort(*error))?;
                    return Err(error);
                }
                inode.set_links(0);
                self.store_inode(&mut txn, &inode);
                Ok(Attr { nlink: 0, ..attr })
            });
            let ended = self.end(txn, &[], made);
            drop(locked);
            self.settle(ended)
        })
    }

    /// [`obento_driver::WritableFileSystem::link`].
    pub(crate) fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.with_space(|| self.link_once(ino, dir, name, Names::Some))
    }

    /// [`obento_driver::Nameless::name`].
    pub(crate) fn name(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.with_space(|| self.link_once(ino, dir, name, Names::None))
    }

    fn link_once(&self, ino: Ino, dir: Ino, name: &Name, names: Names) -> Result<Attr> {
        let locked = self.locks().write(&[dir, ino]);
        let parent = match self.live_directory(dir) {
            Err(Error::NotFound) => None,
            parent => Some(parent?),
        };
        let inode = match self.volume().user_inode(ino) {
            Err(Error::Stale) => return Err(Error::NotFound),
            inode => inode?,
        };
        let parent = match names {
            Names::Some if inode.is_dir() => return Err(Error::NotPermitted),
            Names::Some => parent.filter(|_| inode.links() > 0),
            Names::None if inode.is_dir() || inode.links() > 0 => return Err(Error::Invalid),
            Names::None => parent,
        };
        let parent = parent.ok_or(Error::NotFound)?;
        let sb = self.volume().super_block();
        let room = self.volume().with_directory(&parent, |directory| directory.room(name))?;
        if u32::from(inode.links()) >= sb.link_max() {
            return Err(Error::TooManyLinks);
        }
        expect_same_project(sb, &parent, &inode)?;
        let growth = if matches!(room, EntrySpace::Grow(_)) { GROWTH } else { Credits(0) };
        let orphan = if names == Names::None { LAST_NAME } else { Credits(0) };
        let mut txn = self.begin(ENTRY + ENTRY + growth + orphan)?;
        let linked = self.link_in(&mut txn, (locked.view(&parent), locked.view(&inode)), name, room);
        let ended: OperationEnd<Attr> = self.end(txn, &[&parent], linked);
        drop(locked);
        self.settle(ended)
    }

    fn link_in<'t>(
        &self,
        txn: &mut Txn<'t>,
        (parent, inode): (InodeWrite<'t>, InodeWrite<'t>),
        name: &Name,
        room: EntrySpace,
    ) -> Result<Attr> {
        let mut dir = DirEdit::new(self, txn, parent)?;
        let prepared = dir.make_room(txn, name, room).and_then(|place| {
            let mut linked = self.edit_inode(txn, inode)?;
            if linked.links() == 0 {
                self.remove_orphan(txn, &mut linked)?;
            }
            linked.set_links(linked.links().saturating_add(1));
            linked.touch(self.now());
            let attr = self.attr_of(&linked)?;
            Ok((place, linked, attr))
        });
        let ((run, slot), linked, attr) = prepared.inspect_err(|_| dir.store_grown(txn))?;
        self.store_inode(txn, &linked);
        self.name_inode(txn, &mut dir, (&run, slot), name, (inode.ino(), inode.kind()));
        Ok(attr)
    }

    /// Gives an inode without a name a name, for a repair: its link count does not change. Fails in the same cases as
    /// [`Self::link`].
    pub(crate) fn adopt(&self, ino: Ino, dir: Ino, name: &Name) -> Result<()> {
        let locked = self.locks().write(&[dir, ino]);
        let (parent, inode) = (self.live_directory(dir)?, self.volume().inode(ino)?);
        let room = self.volume().with_directory(&parent, |directory| directory.room(name))?;
        let mut txn = self.begin(ENTRY + ENTRY + GROWTH)?;
        let adopted = DirEdit::new(self, &mut txn, locked.view(&parent)).and_then(|mut dir| {
            let (run, slot) =
                dir.make_room(&mut txn, name, room).inspect_err(|_| dir.store_grown(&mut txn))?;
            self.name_inode(&mut txn, &mut dir, (&run, slot), name, (ino, inode.kind()));
            Ok(())
        });
        let ended = self.end(txn, &[&parent], adopted);
        drop(locked);
        self.settle(ended)
    }
}
