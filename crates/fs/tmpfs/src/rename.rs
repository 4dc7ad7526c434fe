//! Renames: both directories, the moved inode, and the replaced or exchanged inode are locked as one set.

use alloc::sync::Arc;

use obento_base::{Error, Ino, Name, Result};
use obento_driver::{NewNode, RenameFlags, WritableFileSystem};

use crate::dir::Entry;
use crate::inode::{Inode, LockSet};
use crate::names::{one_more, unname};
use crate::volume::Tmpfs;

/// A rename whose inodes are known.
struct Plan<'a> {
    from: &'a Arc<Inode>,
    name: &'a Name,
    to: &'a Arc<Inode>,
    new_name: &'a Name,
    moved: Arc<Inode>,
    target: Option<Arc<Inode>>,
}

impl Tmpfs {
    pub(crate) fn move_name(
        &self,
        from: Ino,
        name: &Name,
        to: Ino,
        new_name: &Name,
        flags: RenameFlags,
        whiteout: Option<&NewNode<'_>>,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if flags == RenameFlags::all() || (exchange && whiteout.is_some()) {
            return Err(Error::Invalid);
        }
        let (from, to) = (self.inode(from)?, self.inode(to)?);
        loop {
            let plan = self.plan(&from, name, &to, new_name)?;
            let mut locked = LockSet::new([&from, &to, &plan.moved].into_iter().chain(&plan.target));
            if !plan.still_holds(&mut locked)? {
                continue;
            }
            return match &plan.target {
                Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Err(Error::Exists),
                None if exchange => Err(Error::NotFound),
                Some(target) if target.ino == plan.moved.ino => Ok(()),
                Some(target) if exchange => plan.exchange(self, &mut locked, target),
                _ => plan.replace(self, &mut locked, whiteout),
            };
        }
    }

    /// Looks up both names. Fails with `NotDirectory` or `NotFound`.
    fn plan<'a>(
        &self,
        from: &'a Arc<Inode>,
        name: &'a Name,
        to: &'a Arc<Inode>,
        new_name: &'a Name,
    ) -> Result<Plan<'a>> {
        from.state.read().directory()?;
        to.state.read().directory()?;
        let moved = self.peek(from, name)?;
        let target = match self.peek(to, new_name) {
            Ok(target) => Some(target),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        Ok(Plan { from, name, to, new_name, moved, target })
    }
}

impl Plan<'_> {
    /// Returns whether both names still refer to the same inodes. Fails with `NotFound` if `to` was
    /// removed.
    fn still_holds(&self, locked: &mut LockSet<'_>) -> Result<bool> {
        let source = locked.of(self.from)?.directory()?.get(self.name).map(|entry| entry.ino);
        let to = locked.of(self.to)?;
        if to.attr.nlink == 0 {
            return Err(Error::NotFound);
        }
        let target = to.directory()?.get(self.new_name).map(|entry| entry.ino);
        Ok(source == Some(self.moved.ino) && target == self.target.as_ref().map(|inode| inode.ino))
    }

    fn crosses(&self) -> bool {
        self.from.ino != self.to.ino
    }

    /// Fails with `TooManyLinks` if a directory enters `to` and none leaves it.
    fn check_links(&self, locked: &mut LockSet<'_>, comes: &Inode, leaves: Option<&Inode>) -> Result<()> {
        let leaves = leaves.is_some_and(Inode::is_directory);
        if self.crosses() && comes.is_directory() && !leaves {
            one_more(locked.of(self.to)?.attr.nlink)?;
        }
        Ok(())
    }

    fn replace(
        &self,
        volume: &Tmpfs,
        locked: &mut LockSet<'_>,
        whiteout: Option<&NewNode<'_>>,
    ) -> Result<()> {
        if let Some(target) = &self.target {
            match (self.moved.is_directory(), target.is_directory()) {
                (false, true) => return Err(Error::IsDirectory),
                (true, false) => return Err(Error::NotDirectory),
                (true, true) if !locked.of(target)?.directory()?.is_empty() => return Err(Error::NotEmpty),
                _ => {}
            }
        }
        self.check_links(locked, &self.moved, self.target.as_deref())?;
        let now = volume.now();
        let from = locked.of(self.from)?;
        from.directory()?;
        let left = match whiteout {
            Some(node) => Some(volume.add_child(self.from.ino, from, node, 1)?),
            None => None,
        };
        from.directory_mut()?.remove(self.name);
        if let Some(left) = left {
            from.directory_mut()?.insert(Entry { name: self.name.to_buf(), ino: left.ino, kind: left.kind });
        }
        from.attr.touch_data(now);
        if let Some(target) = &self.target {
            unname(locked.of(target)?, now);
        }
        let entry = Entry { name: self.new_name.to_buf(), ino: self.moved.ino, kind: self.moved.kind };
        let to = locked.of(self.to)?;
        to.directory_mut()?.remove(self.new_name);
        to.directory_mut()?.insert(entry);
        to.attr.touch_data(now);
        locked.of(&self.moved)?.attr.touch(now);
        self.count_directories(
            locked,
            self.target.as_deref().filter(|target| target.is_directory()).is_some(),
        )?;
        self.adopt(locked, &self.moved, self.to.ino)
    }

    /// Updates the link counts of both parents after a rename that replaces.
    fn count_directories(&self, locked: &mut LockSet<'_>, replaced: bool) -> Result<()> {
        if !self.moved.is_directory() {
            return Ok(());
        }
        let from = locked.of(self.from)?;
        from.attr.nlink = from.attr.nlink.saturating_sub(1);
        if !replaced {
            let to = locked.of(self.to)?;
            to.attr.nlink = to.attr.nlink.saturating_add(1);
        }
        Ok(())
    }

    fn exchange(&self, volume: &Tmpfs, locked: &mut LockSet<'_>, target: &Arc<Inode>) -> Result<()> {
        self.check_links(locked, &self.moved, Some(target))?;
        if self.crosses() && target.is_directory() && !self.moved.is_directory() {
            one_more(locked.of(self.from)?.attr.nlink)?;
        }
        let now = volume.now();
        for (dir, name, comes, leaves) in
            [(self.from, self.name, target, &self.moved), (self.to, self.new_name, &self.moved, target)]
        {
            let state = locked.of(dir)?;
            state.directory_mut()?.retarget(name, comes.ino, comes.kind);
            state.attr.nlink = state.attr.nlink.saturating_add(u32::from(comes.is_directory()));
            state.attr.nlink = state.attr.nlink.saturating_sub(u32::from(leaves.is_directory()));
            state.attr.touch_data(now);
            locked.of(comes)?.attr.touch(now);
            self.adopt(locked, comes, dir.ino)?;
        }
        Ok(())
    }

    /// Sets the parent of a moved directory.
    fn adopt(&self, locked: &mut LockSet<'_>, moved: &Inode, parent: Ino) -> Result<()> {
        if let Ok(directory) = locked.of(moved)?.directory_mut() {
            directory.parent = parent;
        }
        Ok(())
    }
}
