//! Names made, removed and moved. Each function is one change; an error undoes what it did so far.

use obento_base::wire::to_u64;
use obento_base::{Attr, Corrupt, Error, FileKind, Ino, Name, Result};
use obento_driver::{AskUsage, NewNode, RenameFlags, Usage, Victim};

use crate::dir::Entry;
use crate::inode::Inode;
use crate::op::Op;
use crate::raw::BLOCK;

/// Names a file may have: as many as xv6's `short nlink` counts.
pub(crate) const LINK_MAX: u32 = 32_767;
/// A target lies in one block, as with xv6's `symlink` laboratory.
pub(crate) const SYMLINK_MAX: usize = BLOCK - 1;

impl Op<'_> {
    fn now(&self) -> obento_base::Timestamp {
        self.volume.clock.now()
    }

    /// A directory that names can be made in, which has no `name`. Errors: NotDirectory; NotFound if it was removed;
    /// Exists.
    fn dir_without(&self, dir: Ino, name: &Name) -> Result<Inode> {
        let dir = self.inode(dir)?;
        dir.expect_dir()?;
        match () {
            () if dir.raw.nlink.get() == 0 => Err(Error::NotFound),
            () if self.find(&dir, name)?.is_some() => Err(Error::Exists),
            () => Ok(dir),
        }
    }

    /// An entry and what it leads to. Errors: NotDirectory; NotFound; Corrupt for an inode that is not in use.
    pub(crate) fn named(&self, dir: &Inode, name: &Name) -> Result<(Entry, Inode)> {
        let entry = self.find(dir, name)?.ok_or(Error::NotFound)?;
        let inode = self.inode(entry.ino).map_err(|error| match error {
            Error::Stale => Corrupt::UnusedInode { ino: entry.ino }.into(),
            other => other,
        })?;
        Ok((entry, inode))
    }

    pub(crate) fn create(&mut self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        let mut dir = self.dir_without(dir, name)?;
        let is_link = node.kind == FileKind::Symlink;
        match node.target.len() {
            0 if is_link => return Err(Error::Invalid),
            len if is_link && len > SYMLINK_MAX => return Err(Error::NameTooLong),
            _ => {}
        }
        if node.kind == FileKind::Directory {
            add_link(&mut dir)?;
        }
        let now = self.now();
        let mut inode = self.new_inode(node, &dir, now)?;
        inode.raw.nlink.set(1);
        match node.kind {
            FileKind::Directory => {
                inode.raw.nlink.set(2);
                adopt(&mut inode, &dir);
            }
            FileKind::Symlink => self.write_target(&mut inode, node.target)?,
            _ => {}
        }
        self.insert(&mut dir, name, &inode)?;
        dir.touch_data(now);
        self.put(&dir)?;
        self.put(&inode)?;
        Ok(inode.attr())
    }

    /// Puts the target of a symbolic link into a block of metadata, so that it is there with the link or not at all.
    fn write_target(&mut self, inode: &mut Inode, target: &[u8]) -> Result<()> {
        let block = self.new_block()?;
        self.edit(block)?.iter_mut().zip(target).for_each(|(to, from)| *to = *from);
        inode.raw.addrs.iter_mut().take(1).for_each(|slot| slot.set(block));
        inode.raw.blocks.set(1);
        inode.raw.size.set(to_u64(target.len()));
        Ok(())
    }

    pub(crate) fn link(&mut self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        let (mut inode, now) = (self.inode(ino)?, self.now());
        self.inode(dir)?.expect_dir()?;
        match () {
            () if inode.is_dir() => return Err(Error::NotPermitted),
            () if inode.raw.nlink.get() == 0 => return Err(Error::NotFound),
            () => {}
        }
        let mut dir = self.dir_without(dir, name)?;
        add_link(&mut inode)?;
        self.insert(&mut dir, name, &inode)?;
        inode.touch(now);
        dir.touch_data(now);
        self.put(&dir)?;
        self.put(&inode)?;
        Ok(inode.attr())
    }

    pub(crate) fn remove(
        &mut self,
        dir: Ino,
        name: &Name,
        victim: Victim,
        ask: &mut AskUsage<'_>,
    ) -> Result<()> {
        let (mut dir, now) = (self.inode(dir)?, self.now());
        let (entry, mut inode) = self.named(&dir, name)?;
        let usage = ask(&inode.attr())?;
        match victim {
            Victim::File if inode.is_dir() => return Err(Error::IsDirectory),
            Victim::File => {}
            Victim::EmptyDirectory => {
                inode.expect_dir()?;
                self.expect_empty(&inode)?;
                drop_link(&mut dir);
            }
        }
        self.remove_entry(&mut dir, &entry)?;
        drop_name(&mut inode);
        inode.touch(now);
        dir.touch_data(now);
        self.put(&dir)?;
        match usage {
            Usage::Unused if inode.raw.nlink.get() == 0 => self.free_inode(inode),
            _ => self.put(&inode),
        }
    }

    pub(crate) fn rename(
        &mut self,
        (from, name): (Ino, &Name),
        (to, new_name): (Ino, &Name),
        flags: RenameFlags,
    ) -> Result<()> {
        if flags == RenameFlags::all() {
            return Err(Error::Invalid);
        }
        let (old_dir, new_dir) = (self.inode(from)?, self.inode(to)?);
        new_dir.expect_dir()?;
        let (entry, moved) = self.named(&old_dir, name)?;
        if new_dir.raw.nlink.get() == 0 {
            return Err(Error::NotFound);
        }
        let target = match self.named(&new_dir, new_name) {
            Err(Error::NotFound) => None,
            found => Some(found?),
        };
        match target {
            Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Err(Error::Exists),
            None if flags.contains(RenameFlags::EXCHANGE) => Err(Error::NotFound),
            Some((_, target)) if target.ino == moved.ino => Ok(()),
            Some(other) if flags.contains(RenameFlags::EXCHANGE) => {
                self.exchange((old_dir, entry, moved), (new_dir, other))
            }
            target => self.replace((old_dir, entry, moved), (new_dir, new_name), target),
        }
    }

    fn replace(
        &mut self,
        (mut old_dir, entry, mut moved): (Inode, Entry, Inode),
        (mut new_dir, new_name): (Inode, &Name),
        target: Option<(Entry, Inode)>,
    ) -> Result<()> {
        let now = self.now();
        if moved.is_dir() {
            drop_link(&mut old_dir);
        }
        if let Some((_, target)) = &target {
            match (moved.is_dir(), target.is_dir()) {
                (false, true) => return Err(Error::IsDirectory),
                (true, false) => return Err(Error::NotDirectory),
                (true, true) => self.expect_empty(target)?,
                (false, false) => {}
            }
        }
        // The first of the two is written back before the second is read again, should they be one.
        self.remove_entry(&mut old_dir, &entry)?;
        old_dir.touch_data(now);
        self.put(&old_dir)?;
        if new_dir.ino == old_dir.ino {
            new_dir = old_dir;
        }
        if let Some((_, target)) = &target
            && target.is_dir()
        {
            drop_link(&mut new_dir);
        }
        if moved.is_dir() {
            add_link(&mut new_dir)?;
            adopt(&mut moved, &new_dir);
        }
        match target {
            Some((place, mut target)) => {
                self.retarget(&place, &moved)?;
                drop_name(&mut target);
                target.touch(now);
                self.put(&target)?;
            }
            None => self.insert(&mut new_dir, new_name, &moved)?,
        }
        moved.touch(now);
        new_dir.touch_data(now);
        self.put(&new_dir)?;
        self.put(&moved)
    }

    fn exchange(
        &mut self,
        (mut old_dir, entry, mut moved): (Inode, Entry, Inode),
        (mut new_dir, (place, mut other)): (Inode, (Entry, Inode)),
    ) -> Result<()> {
        let now = self.now();
        self.retarget(&entry, &other)?;
        self.retarget(&place, &moved)?;
        if old_dir.ino != new_dir.ino && moved.is_dir() != other.is_dir() {
            let (less, more) =
                if moved.is_dir() { (&mut old_dir, &mut new_dir) } else { (&mut new_dir, &mut old_dir) };
            drop_link(less);
            add_link(more)?;
        }
        for (inode, dir) in [(&mut other, &old_dir), (&mut moved, &new_dir)] {
            if inode.is_dir() {
                adopt(inode, dir);
            }
            inode.touch(now);
            self.put(inode)?;
        }
        for dir in [&mut old_dir, &mut new_dir] {
            dir.touch_data(now);
            self.put(dir)?;
        }
        Ok(())
    }
}

/// One link more. Errors: TooManyLinks.
fn add_link(inode: &mut Inode) -> Result<()> {
    let more = inode.raw.nlink.get().saturating_add(1);
    inode.raw.nlink.set(more);
    if more > LINK_MAX { Err(Error::TooManyLinks) } else { Ok(()) }
}

fn drop_link(inode: &mut Inode) {
    inode.raw.nlink.set(inode.raw.nlink.get().saturating_sub(1));
}

/// Takes a name away from an inode; from a directory, with the one it has for itself.
fn drop_name(inode: &mut Inode) {
    if inode.is_dir() {
        inode.raw.nlink.set(0);
    } else {
        drop_link(inode);
    }
}

/// Gives a directory the parent `dir`.
fn adopt(inode: &mut Inode, dir: &Inode) {
    inode.raw.parent.set(u32::try_from(dir.ino.0).unwrap_or(0));
}
