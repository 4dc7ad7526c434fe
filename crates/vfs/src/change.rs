//! Changes of names on behalf of a caller.
//!
//! Invariant: no directory becomes its own descendant. A name moves to another directory only under the rename lock.
//! Therefore, the parents of the target directory do not change while they are checked.
//! Locking: the rename lock, then the exclusive guards of the directories in ascending order of inode numbers. A thread
//! that removes the last name of an inode in use releases the guards first and its reference to the inode afterwards,
//! since freeing an inode may take long. Under the guards, the driver frees an inode that is not in use, and an inode
//! whose creation fails.

use obento_base::{Attr, DeviceNumber, Error, FileFlags, FileKind, Ino, Mode, Name, Result};
use obento_driver::{NewNode, RemovalKind, RenameFlags, Usage};

use crate::access;
use crate::caller::{AccessRequest, Caller};
use crate::node::Node;
use crate::table::{Facts, Users};
use crate::vfs::Vfs;

/// Maximum number of parents that a rename visits. It is far above the depth of real trees, and bounds the
/// time for damaged trees that contain a cycle.
const MAX_DEPTH: u32 = 1 << 20;

/// The flags that protect the names of an inode. An inode with one of these flags can neither lose nor get a name.
const FROZEN: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

impl Vfs {
    /// Creates an inode with the name `name` in `dir`, and returns a node for it.
    ///
    /// - Owner and group: if `caller` is a [`Caller::User`], the inode gets the user ID and the group ID of the
    ///   caller. If `caller` is [`Caller::Owner`], the inode gets `new.uid` and `new.gid`.
    /// - If `dir` has set-group-ID, the inode gets the group of `dir` instead. If the inode is a directory,
    ///   it also gets set-group-ID.
    /// - If `new.mode` permits the group of the new inode to execute the file and the caller is not in this group, the
    ///   call clears set-group-ID. Exception: directories.
    /// - If `dir` has a default access control list, the inode inherits it, unless the inode is a symbolic link:
    ///   - The mode of the inode consists of the permission bits in `new.mode` that the list grants.
    ///   - The inode gets the list, reduced to this mode, as its access list. Exception: if permission bits alone can
    ///     represent the list, the inode gets no access list.
    ///   - A new directory also gets the unchanged list as its default list.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotDirectory`: `dir` is not a directory.
    /// 3. `NameTooLong`: the name exceeds the limit of the format.
    /// 4. `AccessDenied`: the caller lacks write or execute permission for `dir`.
    /// 5. `NotPermitted`: `dir` is immutable, or the inode is a device and the caller is not the owner of the
    ///    image.
    /// 6. `Invalid`: the default access control list of `dir` is malformed.
    /// 7. The errors of [`create`](obento_driver::WritableFileSystem::create).
    /// 8. The errors of [`set_xattr`](obento_driver::Xattrs::set_xattr) for the inherited list. The call then
    ///    removes the inode again. If the removal fails, the inode remains without its list.
    pub fn create(&self, caller: &Caller, dir: &Node, name: &Name, new: &NewNode<'_>) -> Result<Node> {
        self.create_masked(caller, dir, name, new, Mode::new(0))
    }

    /// Creates an inode as [`create`](Self::create) does, and removes the bits of `umask` from `new.mode`. If
    /// `dir` has a default access control list and the inode is not a symbolic link, `umask` has no effect. Fails as
    /// `create` does.
    pub fn create_masked(
        &self,
        caller: &Caller,
        dir: &Node,
        name: &Name,
        new: &NewNode<'_>,
        umask: Mode,
    ) -> Result<Node> {
        let fs = self.writable()?;
        let _names = dir.inode.guard.write();
        let dir_attr = dir.expect_changeable(caller, name)?;
        if new.kind.is_device() && *caller != Caller::Owner {
            return Err(Error::NotPermitted);
        }
        let acl = dir.default_acl(new.kind)?;
        let mut new = inherit(caller, &dir_attr, new);
        new.mode = match &acl {
            Some(acl) => acl.child_mode(new.mode),
            None => new.mode.without(umask),
        };
        let made = dir.made(&fs.create(dir.ino(), name, &new)?, Some(name))?;
        if let Some(acl) = acl
            && let Err(error) = made.inherit_acl(&acl, &new)
        {
            // Undo the creation. If that fails too, the file remains without its list.
            let removed = match new.kind {
                FileKind::Directory => fs.rmdir(dir.ino(), name),
                _ => fs.unlink(dir.ino(), name),
            };
            dir.note(name, removed.is_err().then_some(&made));
            return Err(error);
        }
        dir.note(name, Some(&made));
        Ok(made)
    }

    /// Creates a regular file without a name. Its attributes are those of a file that is created in `dir`.
    /// The file is freed after its last use, unless [`name`](Self::name) has given it a name. The call
    /// ignores `new.kind`. `umask` has the same effect as in [`create_masked`](Self::create_masked).
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotSupported`: the format does not support files without names.
    /// 3. `NotDirectory`: `dir` is not a directory.
    /// 4. `AccessDenied`: the caller lacks write or execute permission for `dir`.
    /// 5. `NotPermitted`: `dir` is immutable, or has been removed.
    /// 6. `Invalid`: the default access control list of `dir` is malformed.
    /// 7. The errors of [`create_nameless`](obento_driver::Nameless::create_nameless).
    /// 8. The errors of [`set_xattr`](obento_driver::Xattrs::set_xattr) for the inherited list. The file is
    ///    freed.
    pub fn create_nameless(
        &self,
        caller: &Caller,
        dir: &Node,
        new: &NewNode<'_>,
        umask: Mode,
    ) -> Result<Node> {
        self.writable()?;
        let nameless = self.0.fs.nameless().ok_or(Error::NotSupported)?;
        let _names = dir.inode.guard.write();
        let dir_attr = dir.expect_open_to_change(caller, true)?;
        if dir_attr.nlink == 0 {
            return Err(Error::NotPermitted);
        }
        let acl = dir.default_acl(FileKind::Regular)?;
        let mut new = NewNode { kind: FileKind::Regular, ..inherit(caller, &dir_attr, new) };
        new.mode = match &acl {
            Some(acl) => acl.child_mode(new.mode),
            None => new.mode.without(umask),
        };
        let made = dir.made(&nameless.create_nameless(dir.ino(), &new)?, None)?;
        if let Some(acl) = acl {
            made.inherit_acl(&acl, &new)?;
        }
        Ok(made)
    }

    /// Gives the file `node`, which [`create_nameless`](Self::create_nameless) created, its first name:
    /// `name` in `dir`.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotSupported`: the format does not support files without names.
    /// 3. `NotDirectory`, `NameTooLong`, `AccessDenied` and `NotPermitted`: as for [`link`](Self::link).
    /// 4. The errors of [`name`](obento_driver::Nameless::name).
    pub fn name(&self, caller: &Caller, node: &Node, dir: &Node, name: &Name) -> Result<()> {
        self.writable()?;
        let nameless = self.0.fs.nameless().ok_or(Error::NotSupported)?;
        self.link_by(caller, node, dir, name, || nameless.name(node.ino(), dir.ino(), name))
    }

    /// Creates `name` in `dir` as another name for `node`.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotDirectory`: `dir` is not a directory.
    /// 3. `NameTooLong`: the name exceeds the limit of the format.
    /// 4. `AccessDenied`: the caller lacks write or execute permission for `dir`.
    /// 5. `NotPermitted`: `dir` is immutable, or `node` is immutable or append-only.
    /// 6. The errors of [`link`](obento_driver::WritableFileSystem::link).
    pub fn link(&self, caller: &Caller, node: &Node, dir: &Node, name: &Name) -> Result<()> {
        let fs = self.writable()?;
        self.link_by(caller, node, dir, name, || fs.link(node.ino(), dir.ino(), name))
    }

    fn link_by(
        &self,
        caller: &Caller,
        node: &Node,
        dir: &Node,
        name: &Name,
        link: impl FnOnce() -> Result<Attr>,
    ) -> Result<()> {
        let _names = dir.inode.guard.write();
        dir.expect_changeable(caller, name)?;
        if node.attr()?.flags.intersects(FROZEN) {
            return Err(Error::NotPermitted);
        }
        link()?;
        dir.note(name, Some(node));
        Ok(())
    }

    /// Removes the name `name` of a file that is not a directory from `dir`. If the file has no other name,
    /// the driver frees the file after its last use. The last use ends when the last [`Node`] or
    /// [`File`](crate::File) of the inode is dropped.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotDirectory`: `dir` is not a directory.
    /// 3. `NameTooLong`: the name exceeds the limit of the format.
    /// 4. `AccessDenied`: the caller lacks write or execute permission for `dir`.
    /// 5. `NotPermitted`: `dir` is immutable.
    /// 6. `NotFound`: the name does not exist.
    /// 7. `NotPermitted`: the file is immutable or append-only, `dir` is append-only, or `dir` is sticky and the caller
    ///    owns neither `dir` nor the file.
    /// 8. `IsDirectory`: the name refers to a directory.
    pub fn unlink(&self, caller: &Caller, dir: &Node, name: &Name) -> Result<()> {
        self.remove(caller, dir, name, RemovalKind::File)
    }

    /// Removes the empty directory `name` from `dir`. The driver frees the directory after its last use, as
    /// for [`unlink`](Self::unlink).
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotDirectory`: `dir` is not a directory.
    /// 3. `NameTooLong`: the name exceeds the limit of the format.
    /// 4. `AccessDenied`: the caller lacks write or execute permission for `dir`.
    /// 5. `NotPermitted`: `dir` is immutable.
    /// 6. `NotFound`: the name does not exist.
    /// 7. `NotPermitted`: as for [`unlink`](Self::unlink).
    /// 8. `NotDirectory`: the name does not refer to a directory.
    /// 9. `NotEmpty`: the directory is not empty.
    pub fn rmdir(&self, caller: &Caller, dir: &Node, name: &Name) -> Result<()> {
        self.remove(caller, dir, name, RemovalKind::EmptyDirectory)
    }

    fn remove(&self, caller: &Caller, dir: &Node, name: &Name, victim: RemovalKind) -> Result<()> {
        let fs = self.writable()?;
        let names = dir.inode.guard.write();
        let dir_attr = dir.expect_changeable(caller, name)?;
        let key = self.0.names.key(dir.ino(), name);
        // An inode that only the cache uses can be freed together with its name.
        let was_known = match self.0.names.take(&key) {
            None => false,
            Some(None) => {
                dir.note_key(&key, None);
                return Err(Error::NotFound);
            }
            Some(Some(inode)) => {
                self.0.release(&inode);
                true
            }
        };
        loop {
            let (mut used, mut awaited) = (None, None);
            // No other thread reuses the inode number before this guard is dropped.
            let mut unused = None;
            let removed = fs.remove(dir.ino(), name, victim, &mut |attr| {
                expect_removable(caller, &dir_attr, attr)?;
                match self.0.table.users(attr.ino) {
                    Users::Some(inode) => {
                        used = Some(Node::new(self.clone(), inode));
                        Ok(Usage::Used)
                    }
                    Users::None(leaving) => {
                        unused = Some(leaving);
                        Ok(Usage::Unused)
                    }
                    Users::Leaving => {
                        awaited = Some(attr.ino);
                        Err(Error::Busy)
                    }
                }
            });
            drop(unused);
            if let Some(ino) = awaited {
                self.0.table.wait_gone(ino);
                continue;
            }
            if removed.is_ok() && was_known {
                dir.note_key(&key, None);
            }
            drop(names);
            return removed;
        }
    }

    /// Moves a name, as [`rename`](obento_driver::WritableFileSystem::rename) does. `from` is the old
    /// directory and the old name; `to` is the new directory and the new name. A file that loses its last
    /// name is freed after its last use, as for [`unlink`](Self::unlink).
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. For the old directory, and then for the new directory:
    ///    1. `NotDirectory`: the inode is not a directory.
    ///    2. `NameTooLong`: the old or, respectively, the new name exceeds the limit of the format.
    ///    3. `AccessDenied`: the caller lacks write or execute permission for the directory.
    ///    4. `NotPermitted`: the directory is immutable.
    /// 3. `NotFound`: the old name does not exist.
    /// 4. `NotPermitted`: the caller may not remove the old name, or the existing new name, for the reasons in
    ///    [`unlink`](Self::unlink). `vfs` may check the existing new name only after the errors 5 and 6.
    /// 5. `AccessDenied`: a directory would get another parent, and the caller lacks write permission for this
    ///    directory.
    /// 6. One of these errors, if a directory would get another parent:
    ///    - `Invalid`: the directory would become its own descendant.
    ///    - `Loop`: the volume is damaged, and the parents of the new directory form a cycle.
    /// 7. The errors of [`rename`](obento_driver::WritableFileSystem::rename).
    pub fn rename(
        &self,
        caller: &Caller,
        from: (&Node, &Name),
        to: (&Node, &Name),
        flags: RenameFlags,
    ) -> Result<()> {
        self.rename_with(caller, from, to, flags, None)
    }

    /// Moves a name, and gives the old name to a whiteout, as `RENAME_WHITEOUT` of rename(2) does. A whiteout is a
    /// character device with the number 0:0 and mode 0. The whiteout gets the owner and the group that
    /// [`create`](Self::create) gives to a file in the old directory. `owner` and `group` are the values of `new.uid`
    /// and `new.gid`.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `Invalid`: the driver does not support whiteouts.
    /// 3. The errors 2 to 6 of [`rename`](Self::rename).
    /// 4. The errors of [`rename_leaving`](obento_driver::Whiteouts::rename_leaving).
    pub fn rename_leaving_whiteout(
        &self,
        caller: &Caller,
        from: (&Node, &Name),
        to: (&Node, &Name),
        flags: RenameFlags,
        (owner, group): (u32, u32),
    ) -> Result<()> {
        let whiteout = NewNode {
            kind: FileKind::CharDevice,
            mode: Mode::new(0),
            uid: owner,
            gid: group,
            rdev: DeviceNumber::default(),
            target: &[],
        };
        self.rename_with(caller, from, to, flags, Some(&whiteout))
    }

    fn rename_with(
        &self,
        caller: &Caller,
        from: (&Node, &Name),
        to: (&Node, &Name),
        flags: RenameFlags,
        whiteout: Option<&NewNode<'_>>,
    ) -> Result<()> {
        let fs = self.writable()?;
        let whiteouts = match whiteout {
            Some(node) => Some((self.0.fs.whiteouts().ok_or(Error::Invalid)?, node)),
            None => None,
        };
        let crosses = from.0 != to.0;
        let _rename = crosses.then(|| self.0.rename.lock());
        let mut dirs = [from.0, to.0];
        dirs.sort_by_key(|dir| dir.ino());
        let [first, second] = dirs.map(|dir| &dir.inode.guard);
        let guards = (first.write(), crosses.then(|| second.write()));

        let attrs = {
            let from_attr = from.0.expect_changeable(caller, from.1)?;
            match crosses {
                true => (from_attr, to.0.expect_changeable(caller, to.1)?),
                false if self.name_fits(to.1) => (from_attr, from_attr),
                false => return Err(Error::NameTooLong),
            }
        };
        let whiteout = whiteouts.map(|(whiteouts, node)| (whiteouts, inherit(caller, &attrs.0, node)));
        let apply = |flags| {
            let (from_dir, to_dir) = (from.0.ino(), to.0.ino());
            match &whiteout {
                Some((whiteouts, node)) => {
                    whiteouts.rename_leaving(from_dir, from.1, to_dir, to.1, flags, node)
                }
                None => fs.rename(from_dir, from.1, to_dir, to.1, flags),
            }
        };
        let note_left = || match &whiteout {
            Some(_) => from.0.drop_cached(from.1),
            None => from.0.note_gone(from.1),
        };
        let moved = from.0.lookup_to_change(from.1)?;
        expect_removable(caller, &attrs.0, &moved.attr()?)?;
        if flags.is_empty() && to.0.known(to.1).is_none_or(|known| known.is_err()) {
            // The new name usually does not exist; the driver finds out when it inserts the name.
            if crosses {
                self.expect_no_cycle(caller, &moved, to.0)?;
            }
            match apply(RenameFlags::NO_REPLACE) {
                Err(Error::Exists) => {}
                renamed => {
                    if renamed.is_ok() {
                        note_left();
                        to.0.note(to.1, Some(&moved));
                    }
                    drop(guards);
                    return renamed;
                }
            }
        }
        let target = match to.0.lookup_to_change(to.1) {
            Err(Error::NotFound) => None,
            found => Some(found?),
        };
        if let Some(target) = &target {
            expect_removable(caller, &attrs.1, &target.attr()?)?;
        }
        if crosses {
            self.expect_no_cycle(caller, &moved, to.0)?;
            if let Some(target) = target.as_ref().filter(|_| flags.contains(RenameFlags::EXCHANGE)) {
                self.expect_no_cycle(caller, target, from.0)?;
            }
        }
        apply(flags)?;
        if target.as_ref() != Some(&moved) {
            match target.as_ref().filter(|_| flags.contains(RenameFlags::EXCHANGE)) {
                Some(target) => from.0.note(from.1, Some(target)),
                None => note_left(),
            }
            to.0.note(to.1, Some(&moved));
        }
        drop(guards);
        Ok(())
    }

    /// Checks that `moved` may become an entry of `to`. The caller holds the rename lock.
    ///
    /// # Errors
    ///
    /// 1. `AccessDenied`: the caller may not change the parent of a moved directory.
    /// 2. `Invalid`: `to` is `moved` or below it.
    fn expect_no_cycle(&self, caller: &Caller, moved: &Node, to: &Node) -> Result<()> {
        if moved.kind()? != FileKind::Directory {
            return Ok(());
        }
        moved.access(caller, AccessRequest::WRITE)?;
        if self.is_at_or_below(to.ino(), moved.ino())? { Err(Error::Invalid) } else { Ok(()) }
    }

    fn is_at_or_below(&self, dir: Ino, ancestor: Ino) -> Result<bool> {
        let mut dir = dir;
        for _ in 0..MAX_DEPTH {
            if dir == ancestor {
                return Ok(true);
            }
            if dir == self.0.root.ino {
                return Ok(false);
            }
            dir = self.0.fs.parent(dir)?;
        }
        Err(Error::Loop)
    }
}

impl Node {
    /// Returns the attributes of this directory if `caller` may change the entry `name`.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: this is not a directory.
    /// 2. `NameTooLong`: the name exceeds the limit of the format.
    /// 3. `AccessDenied`: the caller lacks write or execute permission for the directory.
    /// 4. `NotPermitted`: the directory is immutable.
    pub(crate) fn expect_changeable(&self, caller: &Caller, name: &Name) -> Result<Attr> {
        self.expect_open_to_change(caller, self.vfs.name_fits(name))
    }

    /// Checks as [`expect_changeable`](Self::expect_changeable) does. `name_fits` is the result of checking the
    /// length of the name.
    fn expect_open_to_change(&self, caller: &Caller, name_fits: bool) -> Result<Attr> {
        let attr = self.attr()?;
        match () {
            () if !attr.is_dir() => return Err(Error::NotDirectory),
            () if !name_fits => return Err(Error::NameTooLong),
            () => access::check(self, &attr, caller, AccessRequest::WRITE | AccessRequest::EXEC)?,
        }
        if attr.flags.contains(FileFlags::IMMUTABLE) { Err(Error::NotPermitted) } else { Ok(attr) }
    }

    /// Returns a node for an inode that was just created in this directory. Another thread may have used the inode
    /// since and called `forget`, so that the driver dropped its number. The function then looks up `name`.
    fn made(&self, attr: &Attr, name: Option<&Name>) -> Result<Node> {
        let made = self.vfs().take(attr.ino);
        if !self.file_system().acquire(attr.ino)
            && let Some(name) = name
        {
            return self.look_up_in_driver(name);
        }
        made.inode.learn(Facts::of(attr));
        Ok(made)
    }
}

/// Checks that the caller may remove a name of the inode `victim`. Fails with `NotPermitted`.
fn expect_removable(caller: &Caller, dir: &Attr, victim: &Attr) -> Result<()> {
    let frozen = victim.flags.intersects(FROZEN) || dir.flags.contains(FileFlags::APPEND);
    if frozen || access::sticky_forbids(dir, victim, caller) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Returns the attributes of a new inode, derived from its directory and its creator. Source: Linux
/// fs/inode.c `inode_init_owner`.
pub(crate) fn inherit<'a>(caller: &Caller, dir: &Attr, new: &NewNode<'a>) -> NewNode<'a> {
    let mut new = *new;
    if let Caller::User { uid, gid, .. } = caller {
        new.uid = *uid;
        new.gid = *gid;
    }
    if dir.mode.contains(Mode::SET_GID) {
        new.gid = dir.gid;
        if new.kind == FileKind::Directory {
            new.mode = Mode::new(new.mode.bits() | Mode::SET_GID.bits());
        }
    }
    if new.kind != FileKind::Directory && !caller.in_group(new.gid) && new.mode.bits() & 0o010 != 0 {
        new.mode = new.mode.without(Mode::SET_GID);
    }
    new
}
