//! Changes of attributes on behalf of a caller.
//!
//! Invariant: the mode and the access control list of an inode agree, unless storing one of them failed. The owner bits
//! equal the entry of the owner. The group bits equal the mask, or the entry of the owning group if the list has no
//! mask. The last three permission bits equal the entry of all other users.
//! Source: Linux fs/attr.c `setattr_prepare`, fs/posix_acl.c; xattr(7) for the permissions of each namespace.

use alloc::vec::Vec;

use obento_base::{Attr, Error, FileFlags, FileKind, Mode, Result};
use obento_driver::{NewNode, SetAttr, TimeChange, XattrMode, Xattrs};

use crate::access;
use crate::acl::{self, Acl};
use crate::caller::{AccessRequest, Caller};
use crate::node::Node;
use crate::vfs::Vfs;

/// Flags that only the owner of the image may change.
const GUARDED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

impl Vfs {
    /// Changes all given attributes or none, with the exceptions that
    /// [`set_attr`](obento_driver::WritableFileSystem::set_attr) of the driver documents. Returns the new
    /// attributes.
    ///
    /// A new mode also changes the access control list, if the inode has one. The list is stored after the
    /// attributes. If storing the list fails, the call fails although the attributes have their new values.
    ///
    /// Two changes of the mode are implicit:
    ///
    /// - If `change` contains an owner or a group but no mode, the call clears set-user-ID, and set-group-ID
    ///   if the group may execute the file. The mode of a directory does not change.
    /// - If `change` contains a mode, the call clears set-group-ID in the new mode, unless the caller is in
    ///   the group that the file has afterwards.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotPermitted`, in these cases:
    ///    - The inode is immutable or append-only. Such an inode permits an empty change and a change of its flags
    ///      alone. If the new flags are neither immutable nor append-only, the change may also contain the project.
    ///      An append-only inode that is not immutable also permits setting both `atime` and `mtime` to the current
    ///      time, but not one of them alone.
    ///    - The caller is not the owner of the image, and the change contains a change time or a birth time.
    ///    - The caller is not the owner of the image, and the change contains another owner or another group that the
    ///      caller is not in.
    ///    - The caller is not the owner of the image, and the change sets or clears the immutable or append-only flag.
    ///    - The caller owns neither the inode nor the image. Exception: error 3 applies to a change that is empty or
    ///      only sets times to the current time.
    /// 3. `AccessDenied`: the change is empty or only sets times to the current time, and the caller neither
    ///    owns the inode nor may write to it.
    /// 4. `Invalid`: the change contains a mode or implicitly changes the mode, and the access control list of the
    ///    inode is malformed.
    /// 5. The errors of [`set_attr`](obento_driver::WritableFileSystem::set_attr).
    /// 6. The errors of [`set_xattr`](Xattrs::set_xattr) for the list.
    pub fn set_attr(&self, caller: &Caller, node: &Node, change: &SetAttr) -> Result<Attr> {
        let fs = self.writable()?;
        let _attributes = node.inode.guard.write();
        // A later write of gathered data would overwrite the new times.
        node.settle_to_change()?;
        let attr = node.stored()?;
        expect_allowed(caller, node, &attr, change)?;
        let change = adjust(caller, &attr, change);
        let list = node.list_after_chmod(change.mode)?;
        let after = fs.set_attr(node.ino(), &change)?;
        if change.flags.is_some() {
            // With FS_JOURNAL_DATA_FL, data passes through the driver from now on.
            drop(node.inode.exclusive());
        }
        if after.flags.contains(FileFlags::CASEFOLD) != attr.flags.contains(FileFlags::CASEFOLD) {
            // The names of this directory are compared differently from now on.
            self.drop_names();
        }
        node.inode.learn(crate::table::Facts::of(&after));
        if let (Some(list), Some(xattrs)) = (list, node.file_system().xattrs()) {
            xattrs.set_xattr(node.ino(), acl::ACCESS, &list.encode(), XattrMode::Replace)?;
        }
        Ok(after)
    }

    /// Sets the size of a file to `size` bytes. Unless the caller is the owner of the image, also clears
    /// set-user-ID, and set-group-ID if the group may execute the file. If clearing these bits fails, the
    /// call fails although the file has its new size.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `IsDirectory`: the inode is a directory.
    /// 3. `Invalid`: the inode is not a regular file.
    /// 4. `AccessDenied`: the caller may not write to the file.
    /// 5. `NotPermitted`: the file is immutable or append-only.
    /// 6. The other errors of [`Node::truncate`].
    pub fn truncate(&self, caller: &Caller, node: &Node, size: u64) -> Result<()> {
        self.writable()?;
        node.data_size()?;
        node.access(caller, AccessRequest::WRITE)?;
        if node.stored()?.flags.intersects(GUARDED) {
            return Err(Error::NotPermitted);
        }
        node.truncate(size)?;
        self.strip_privileges(caller, node)
    }

    /// Clears set-user-ID, and set-group-ID if the group may execute the file. Does nothing if the caller is the owner
    /// of the image.
    pub(crate) fn strip_privileges(&self, caller: &Caller, node: &Node) -> Result<()> {
        if *caller == Caller::Owner {
            return Ok(());
        }
        let attr = node.stored()?;
        if without_privileges(&attr) == attr.mode {
            return Ok(());
        }
        // A mode that another thread sets meanwhile is not lost.
        let _attributes = node.inode.guard.write();
        let mode = without_privileges(&node.stored()?);
        self.writable()?.set_attr(node.ino(), &SetAttr { mode: Some(mode), ..SetAttr::default() }).map(drop)
    }

    /// Returns the value of the extended attribute `name`. The name includes the namespace: `user.note`.
    ///
    /// # Errors
    ///
    /// 1. `NoData`: the name is in the namespace `trusted`, and the caller is not the owner of the image.
    /// 2. `AccessDenied`: the name is in the namespace `user`, and the caller may not read the file.
    /// 3. The errors of [`Node::get_xattr`].
    pub fn get_xattr(&self, caller: &Caller, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        if name.starts_with(b"trusted.") && *caller != Caller::Owner {
            return Err(Error::NoData);
        }
        if name.starts_with(b"user.") {
            node.access(caller, AccessRequest::READ)?;
        }
        node.get_xattr(name)
    }

    /// Sets the extended attribute `name`.
    ///
    /// If the attribute is an access control list, these rules apply:
    ///
    /// - An access list also sets the mode of the inode, and clears set-group-ID if the caller is not in the
    ///   group of the file. If setting the mode fails, the call fails although the inode has its new list.
    /// - If permission bits alone can represent an access list, only the mode is set, and the inode has no
    ///   access list afterwards.
    /// - A list without entries removes the list of the inode.
    /// - The call ignores the condition `mode`.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotSupported`: the format has no extended attributes.
    /// 3. `Invalid`: the name is a namespace alone, such as `user.`.
    /// 4. `NotPermitted`: the inode is immutable or append-only.
    /// 5. `NotPermitted` or `AccessDenied`: xattr(7) does not permit the attribute for the type of the file,
    ///    or the caller lacks the permission for the namespace.
    /// 6. `Invalid`, for an access control list, in one of these cases:
    ///    - A default list is set on a file that is not a directory.
    ///    - The value is malformed, or its entries are not in the order that Linux requires.
    /// 7. The errors of [`set_xattr`](Xattrs::set_xattr).
    /// 8. The errors of [`set_attr`](obento_driver::WritableFileSystem::set_attr) for the mode.
    pub fn set_xattr(
        &self,
        caller: &Caller,
        node: &Node,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let fs = self.writable()?;
        let xattrs = node.file_system().xattrs().ok_or(Error::NotSupported)?;
        expect_whole_name(name)?;
        let _attributes = node.inode.guard.write();
        let attr = node.stored()?;
        expect_xattr_allowed(caller, node, &attr, name)?;
        if name == acl::DEFAULT && !attr.is_dir() {
            return Err(Error::Invalid);
        }
        if !is_acl(name) {
            return xattrs.set_xattr(node.ino(), name, value, mode);
        }
        if acl::is_empty_list(value) {
            return remove_list(xattrs, node, name);
        }
        let list = Acl::decode(value)?;
        if !list.is_in_order() {
            return Err(Error::Invalid);
        }
        if name == acl::ACCESS && list.is_mode_alone() {
            remove_list(xattrs, node, name)?;
        } else {
            xattrs.set_xattr(node.ino(), name, value, XattrMode::Set)?;
        }
        if name == acl::DEFAULT {
            return Ok(());
        }
        // Source: Linux fs/posix_acl.c `posix_acl_update_mode`.
        let kept = if caller.in_group(attr.gid) { attr.mode } else { attr.mode.without(Mode::SET_GID) };
        let bits = kept.bits() & 0o7000 | list.mode().bits();
        let change = SetAttr { mode: Some(Mode::new(bits)), ..SetAttr::default() };
        fs.set_attr(node.ino(), &change).map(drop)
    }

    /// Removes the extended attribute `name`.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotSupported`: the format has no extended attributes.
    /// 3. `Invalid`, `NotPermitted` or `AccessDenied`: the errors 3 to 5 of [`set_xattr`](Self::set_xattr).
    /// 4. `NoData`: the inode has no such attribute. Exception: removing an access or default list that the inode does
    ///    not have succeeds.
    /// 5. The errors of [`remove_xattr`](Xattrs::remove_xattr).
    pub fn remove_xattr(&self, caller: &Caller, node: &Node, name: &[u8]) -> Result<()> {
        self.writable()?;
        let xattrs = node.file_system().xattrs().ok_or(Error::NotSupported)?;
        expect_whole_name(name)?;
        let _attributes = node.inode.guard.write();
        expect_xattr_allowed(caller, node, &node.stored()?, name)?;
        if is_acl(name) { remove_list(xattrs, node, name) } else { xattrs.remove_xattr(node.ino(), name) }
    }
}

/// Fails with `Invalid` for a namespace without a name. Source: Linux fs/xattr.c `xattr_resolve_name`.
fn expect_whole_name(name: &[u8]) -> Result<()> {
    let is_namespace = [&b"user."[..], b"trusted.", b"security."].contains(&name);
    if is_namespace { Err(Error::Invalid) } else { Ok(()) }
}

/// Removes an access control list, if the inode has one.
fn remove_list(xattrs: &dyn Xattrs, node: &Node, name: &[u8]) -> Result<()> {
    match xattrs.remove_xattr(node.ino(), name) {
        Err(Error::NoData) => Ok(()),
        removed => removed,
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == acl::ACCESS || name == acl::DEFAULT
}

/// Returns the mode after a change of the data or the owner. The mode of a directory does not change. Source:
/// Linux fs/attr.c `setattr_should_drop_sgid`, fs/open.c `chown_common`.
fn without_privileges(attr: &Attr) -> Mode {
    let executable_by_group = attr.mode.bits() & 0o010 != 0;
    match attr.kind {
        FileKind::Directory => attr.mode,
        _ if executable_by_group => attr.mode.without(Mode::SET_UID).without(Mode::SET_GID),
        _ => attr.mode.without(Mode::SET_UID),
    }
}

/// Checks that the caller may make the change. Fails with `NotPermitted` or `AccessDenied`.
fn expect_allowed(caller: &Caller, node: &Node, attr: &Attr, change: &SetAttr) -> Result<()> {
    if attr.flags.intersects(GUARDED) && !is_allowed_by_flags(attr, change) {
        return Err(Error::NotPermitted);
    }
    if *caller == Caller::Owner {
        return Ok(());
    }
    let other_owner = change.uid.is_some_and(|uid| uid != attr.uid);
    let other_group = change.gid.is_some_and(|gid| gid != attr.gid && !caller.in_group(gid));
    let guarded = change.flags.is_some_and(|flags| (flags ^ attr.flags).intersects(GUARDED));
    if other_owner || other_group || guarded || change.ctime.is_some() || change.btime.is_some() {
        return Err(Error::NotPermitted);
    }
    match () {
        () if caller.owns(attr) => Ok(()),
        () if is_touch(change) => access::check(node, attr, caller, AccessRequest::WRITE),
        () => Err(Error::NotPermitted),
    }
}

/// Returns whether the change only sets times to the current time, or is empty.
fn is_touch(change: &SetAttr) -> bool {
    let is_now = |time: Option<TimeChange>| matches!(time, None | Some(TimeChange::Now));
    let times = SetAttr { atime: change.atime, mtime: change.mtime, ..SetAttr::default() };
    *change == times && is_now(change.atime) && is_now(change.mtime)
}

/// Returns whether an immutable or append-only inode permits the change. Three changes are permitted:
/// - of the flags;
/// - of the flags and the project, if the new flags are neither immutable nor append-only;
/// - of both times to the current time, if the inode is append-only and not immutable.
///
/// Source: Linux fs/attr.c `may_setattr`, fs/ext4/ioctl.c `ext4_fileattr_set`.
fn is_allowed_by_flags(attr: &Attr, change: &SetAttr) -> bool {
    let flags = SetAttr { flags: change.flags, ..SetAttr::default() };
    let flags_and_project = SetAttr { project: change.project, ..flags };
    let ends_protection = change.flags.is_some_and(|flags| !flags.intersects(GUARDED));
    *change == flags
        || *change == flags_and_project && ends_protection
        || is_touch(change)
            && change.atime.is_some() == change.mtime.is_some()
            && !attr.flags.contains(FileFlags::IMMUTABLE)
}

/// Adds side effects to a change. A new owner or group clears set-user-ID, and set-group-ID if the group may execute
/// the file, unless the change contains a mode. A caller that is not in the group of a file cannot set the set-group-ID
/// bit of the file.
fn adjust(caller: &Caller, attr: &Attr, change: &SetAttr) -> SetAttr {
    let mut change = *change;
    let group = change.gid.unwrap_or(attr.gid);
    if let Some(mode) = change.mode
        && !caller.in_group(group)
    {
        change.mode = Some(mode.without(Mode::SET_GID));
    }
    if change.mode.is_none() && (change.uid.is_some() || change.gid.is_some()) {
        change.mode = Some(without_privileges(attr)).filter(|&mode| mode != attr.mode);
    }
    change
}

/// Checks that the caller may change the attribute. Fails with `NotPermitted` or `AccessDenied`.
fn expect_xattr_allowed(caller: &Caller, node: &Node, attr: &Attr, name: &[u8]) -> Result<()> {
    if attr.flags.intersects(GUARDED) {
        return Err(Error::NotPermitted);
    }
    if name.starts_with(b"user.") {
        let sticky = attr.is_dir() && attr.mode.contains(Mode::STICKY) && !caller.owns(attr);
        if sticky || !matches!(attr.kind, FileKind::Regular | FileKind::Directory) {
            return Err(Error::NotPermitted);
        }
        return access::check(node, attr, caller, AccessRequest::WRITE);
    }
    let allowed = if is_acl(name) { caller.owns(attr) } else { *caller == Caller::Owner };
    if allowed { Ok(()) } else { Err(Error::NotPermitted) }
}

impl Node {
    /// Returns the value of the extended attribute `name`. The name includes the namespace: `user.note`.
    ///
    /// # Errors
    ///
    /// 1. `NotSupported`: the format has no extended attributes.
    /// 2. `Invalid`: the name is a namespace alone, such as `user.`.
    /// 3. The errors of [`get_xattr`](Xattrs::get_xattr).
    pub fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.asks_for_xattrs();
        let xattrs = self.file_system().xattrs().ok_or(Error::NotSupported)?;
        expect_whole_name(name)?;
        xattrs.get_xattr(self.ino(), name)
    }

    fn acl(&self, xattrs: &dyn Xattrs, name: &[u8]) -> Result<Option<Acl>> {
        match xattrs.get_xattr(self.ino(), name) {
            Ok(value) => Acl::decode(&value).map(Some),
            Err(Error::NoData | Error::NotSupported) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the access control list for the new mode, if `mode` is given and the inode has a list.
    fn list_after_chmod(&self, mode: Option<Mode>) -> Result<Option<Acl>> {
        let (Some(mode), Some(xattrs)) = (mode, self.file_system().xattrs()) else { return Ok(None) };
        Ok(self.acl(xattrs, acl::ACCESS)?.map(|acl| acl.with_mode(mode)))
    }

    /// Returns the list that new inodes of this kind inherit from this directory.
    pub(crate) fn default_acl(&self, kind: FileKind) -> Result<Option<Acl>> {
        match self.file_system().xattrs() {
            Some(xattrs) if kind != FileKind::Symlink => self.acl(xattrs, acl::DEFAULT),
            _ => Ok(None),
        }
    }

    /// Gives a new inode the default list of its directory.
    pub(crate) fn inherit_acl(&self, default: &Acl, new: &NewNode<'_>) -> Result<()> {
        let xattrs = self.file_system().xattrs().ok_or(Error::NotSupported)?;
        let set = |name: &[u8], acl: &Acl| xattrs.set_xattr(self.ino(), name, &acl.encode(), XattrMode::Set);
        if !default.is_mode_alone() {
            set(acl::ACCESS, &default.with_mode(new.mode))?;
        }
        if new.kind == FileKind::Directory { set(acl::DEFAULT, default) } else { Ok(()) }
    }
}
