//! Creating, removing and renaming names. Each function is one change. After an error, the volume is
//! unchanged.

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, Corrupt, Error, FileKind, Ino, Name, Result};
use obento_driver::{AskUsage, Cookie, NewNode, RemovalKind, RenameFlags, Usage};

use crate::{Directories, Entry, Inode, LockedInode, Op};

/// An entry, and the inode that it refers to.
type Named<'v, F> = (Entry<<F as Directories>::Place>, LockedInode<'v, <F as crate::Inodes>::Map>);

impl<'v, F: Directories> Op<'v, F> {
    /// Looks up a name. Fails with `NotDirectory` or `Corrupt`, or if the device fails.
    fn find(&self, dir: &Inode<F::Map>, name: &Name) -> Result<Option<Entry<F::Place>>> {
        dir.expect_dir()?;
        self.format().find(self, dir, name)
    }

    /// Returns a directory in which names may be created and that does not contain `name`. Fails with `NotDirectory`,
    /// `Exists`, or with `NotFound` if it was removed.
    fn dir_without(&self, dir: Ino, name: &Name) -> Result<LockedInode<'v, F::Map>> {
        let dir = self.inode(dir)?;
        dir.expect_dir()?;
        match () {
            () if dir.attr.nlink == 0 => Err(Error::NotFound),
            () if self.find(&dir, name)?.is_some() => Err(Error::Exists),
            () => Ok(dir),
        }
    }

    /// Returns an entry and the inode that it refers to. Fails with `NotDirectory`, `NotFound`, or with
    /// `Corrupt` for an inode that is not allocated.
    pub(crate) fn named(&self, dir: &Inode<F::Map>, name: &Name) -> Result<Named<'v, F>> {
        let entry = self.find(dir, name)?.ok_or(Error::NotFound)?;
        let damage = Corrupt::UnusedInode { ino: entry.ino };
        let inode = self.inode_if_used(entry.ino)?.ok_or(damage)?;
        Ok((entry, inode))
    }

    /// Checks that a directory is empty. Fails with `NotEmpty` or `Corrupt`, or if the device fails.
    fn expect_empty(&self, dir: &Inode<F::Map>) -> Result<()> {
        let mut from = Cookie::START;
        while let Some((entries, next)) = self.format().list(self, dir, from)? {
            if entries.into_iter().next().transpose()?.is_some() {
                return Err(Error::NotEmpty);
            }
            from = next;
        }
        Ok(())
    }

    pub(crate) fn create(&mut self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        let (mut dir, limits) = (self.dir_without(dir, name)?, self.format().limits());
        let is_link = node.kind == FileKind::Symlink;
        match node.target.len() {
            0 if is_link => return Err(Error::Invalid),
            len if is_link && to_u64(len) > limits.symlink_max.into() => return Err(Error::NameTooLong),
            _ => {}
        }
        if node.kind == FileKind::Directory {
            dir.add_link(limits.link_max)?;
        }
        let mut inode = self.new_inode(node, &dir)?;
        inode.attr.nlink = 1;
        match node.kind {
            FileKind::Directory => {
                inode.attr.nlink = 2;
                inode.parent = dir.ino();
            }
            FileKind::Symlink => self.write_target(&mut inode, node.target)?,
            _ => {}
        }
        self.format().insert(self, &mut dir, name, &inode)?;
        dir.attr.touch_data(self.now());
        self.put(&dir)?;
        self.put(&inode)?;
        self.stored(inode.ino())
    }

    /// Returns the attributes of an inode as the format stores them.
    pub(crate) fn stored(&self, ino: Ino) -> Result<Attr> {
        self.inode(ino).map(|inode| inode.attr)
    }

    /// Writes the target of a symbolic link as metadata, so that it becomes durable together with the link.
    fn write_target(&mut self, inode: &mut LockedInode<'_, F::Map>, target: &[u8]) -> Result<()> {
        let (block, _) = self.format().fill(self, inode, 0)?;
        self.edit(block)?.iter_mut().zip(target).for_each(|(to, from)| *to = *from);
        inode.attr.size = to_u64(target.len());
        Ok(())
    }

    pub(crate) fn link(&mut self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        let (mut inode, now) = (self.inode(ino)?, self.now());
        self.inode(dir)?.expect_dir()?;
        match () {
            () if inode.is_dir() => return Err(Error::NotPermitted),
            () if inode.attr.nlink == 0 => return Err(Error::NotFound),
            () => {}
        }
        let mut dir = self.dir_without(dir, name)?;
        inode.add_link(self.format().limits().link_max)?;
        self.format().insert(self, &mut dir, name, &inode)?;
        inode.attr.touch(now);
        dir.attr.touch_data(now);
        self.put(&dir)?;
        self.put(&inode)?;
        self.stored(ino)
    }

    pub(crate) fn remove(
        &mut self,
        dir: Ino,
        name: &Name,
        victim: RemovalKind,
        ask: &mut AskUsage<'_>,
    ) -> Result<()> {
        let (mut dir, now) = (self.inode(dir)?, self.now());
        let (entry, mut inode) = self.named(&dir, name)?;
        let usage = ask(&inode.attr)?;
        match victim {
            RemovalKind::File if inode.is_dir() => return Err(Error::IsDirectory),
            RemovalKind::File => {}
            RemovalKind::EmptyDirectory => {
                inode.expect_dir()?;
                self.expect_empty(&inode)?;
                dir.drop_link();
            }
        }
        self.format().remove(self, &mut dir, &entry)?;
        inode.drop_name();
        inode.attr.touch(now);
        dir.attr.touch_data(now);
        self.put(&dir)?;
        match usage {
            Usage::Unused if inode.attr.nlink == 0 => self.free_inode(inode),
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
        if new_dir.attr.nlink == 0 {
            return Err(Error::NotFound);
        }
        let target = match self.named(&new_dir, new_name) {
            Err(Error::NotFound) => None,
            found => Some(found?),
        };
        match target {
            Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Err(Error::Exists),
            None if flags.contains(RenameFlags::EXCHANGE) => Err(Error::NotFound),
            Some((_, target)) if target.ino() == moved.ino() => Ok(()),
            Some(other) if flags.contains(RenameFlags::EXCHANGE) => {
                self.exchange((old_dir, (entry, moved)), (new_dir, other))
            }
            target => self.replace((old_dir, (entry, moved)), (new_dir, new_name), target),
        }
    }

    fn replace(
        &mut self,
        (mut old_dir, (entry, mut moved)): (LockedInode<'v, F::Map>, Named<'v, F>),
        (mut new_dir, new_name): (LockedInode<'v, F::Map>, &Name),
        target: Option<Named<'v, F>>,
    ) -> Result<()> {
        let now = self.now();
        if moved.is_dir() {
            old_dir.drop_link();
        }
        if let Some((_, target)) = &target {
            match (moved.is_dir(), target.is_dir()) {
                (false, true) => return Err(Error::IsDirectory),
                (true, false) => return Err(Error::NotDirectory),
                (true, true) => self.expect_empty(target)?,
                (false, false) => {}
            }
        }
        // The first directory is stored before the second is read again, since both may be the same.
        self.format().remove(self, &mut old_dir, &entry)?;
        old_dir.attr.touch_data(now);
        self.put(&old_dir)?;
        if new_dir.ino() == old_dir.ino() {
            new_dir = old_dir;
        }
        if let Some((_, target)) = &target
            && target.is_dir()
        {
            new_dir.drop_link();
        }
        if moved.is_dir() {
            new_dir.add_link(self.format().limits().link_max)?;
            moved.parent = new_dir.ino();
        }
        match target {
            Some((place, mut target)) => {
                self.format().retarget(self, &place, &moved)?;
                target.drop_name();
                target.attr.touch(now);
                self.put(&target)?;
            }
            None => self.format().insert(self, &mut new_dir, new_name, &moved)?,
        }
        moved.attr.touch(now);
        new_dir.attr.touch_data(now);
        self.put(&new_dir)?;
        self.put(&moved)
    }

    fn exchange(
        &mut self,
        (mut old_dir, (entry, mut moved)): (LockedInode<'v, F::Map>, Named<'v, F>),
        (mut new_dir, (place, mut other)): (LockedInode<'v, F::Map>, Named<'v, F>),
    ) -> Result<()> {
        let now = self.now();
        self.format().retarget(self, &entry, &other)?;
        self.format().retarget(self, &place, &moved)?;
        if old_dir.ino() != new_dir.ino() && moved.is_dir() != other.is_dir() {
            let (less, more) =
                if moved.is_dir() { (&mut old_dir, &mut new_dir) } else { (&mut new_dir, &mut old_dir) };
            less.drop_link();
            more.add_link(self.format().limits().link_max)?;
        }
        for (inode, dir) in [(&mut other, &old_dir), (&mut moved, &new_dir)] {
            if inode.is_dir() {
                inode.parent = dir.ino();
            }
            inode.attr.touch(now);
            self.put(inode)?;
        }
        for dir in [&mut old_dir, &mut new_dir] {
            dir.attr.touch_data(now);
            self.put(dir)?;
        }
        Ok(())
    }

    /// Frees an inode that is not in use, if it has no name.
    pub(crate) fn forget(&mut self, ino: Ino) -> Result<()> {
        match self.inode(ino)? {
            inode if inode.attr.nlink == 0 => self.free_inode(inode),
            _ => Ok(()),
        }
    }

    /// Returns the target of a symbolic link. Fails with `Corrupt`, with `Invalid` for other types, or if the device
    /// fails.
    pub(crate) fn target(&self, ino: Ino) -> Result<alloc::vec::Vec<u8>> {
        let inode = self.inode(ino)?;
        if inode.attr.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        let (len, (block, _)) = (inode.attr.size, self.format().walk(self, &inode, 0)?);
        let bytes = block.filter(|_| len > 0).map(|block| self.get(block)).transpose()?;
        let target = bytes.as_ref().and_then(|bytes| bytes.get(..to_usize(len))).map(<[u8]>::to_vec);
        let damage = Corrupt::Truncated {
            structure: obento_base::Structure::Symlink(ino),
            block: block.unwrap_or(0).into(),
            offset: 0,
            len,
        };
        target.filter(|target| !target.contains(&0)).ok_or(damage.into())
    }
}
