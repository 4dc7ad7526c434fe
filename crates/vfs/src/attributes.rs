//! Changes of attributes, on behalf of a caller.
//!
//! Invariant: the mode and the access control list of an inode say the same: the owner's and the others' bits are those
//! of their entries, the group bits those of the mask, or of the owning group where there is no mask.
//! Source: Linux fs/attr.c `setattr_prepare`, fs/posix_acl.c; xattr(7) for who may change which name space.

use alloc::vec::Vec;

use obento_base::{Attr, Error, FileFlags, FileKind, Mode, Result};
use obento_driver::{NewNode, SetAttr, TimeChange, XattrMode, Xattrs};

use crate::access::{self, Caller, Want};
use crate::acl::{self, Acl};
use crate::node::Node;
use crate::vfs::Vfs;

/// Flags that only the image's owner may change.
const GUARDED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

impl Vfs {
    /// Changes attributes, all or none. Answers what they are now. Errors, the first that holds: ReadOnly;
    /// NotPermitted for an inode that is immutable, and for what only its owner, or the image's, may change;
    /// AccessDenied for times that are to be now; OutOfRange.
    pub fn set_attr(&self, caller: &Caller, node: &Node, change: &SetAttr) -> Result<Attr> {
        let fs = self.writable()?;
        let _attributes = node.inode.guard.write();
        // Or the times that are set would be those of a later write.
        node.settle_to_change()?;
        let attr = node.stored()?;
        expect_allowed(caller, node, &attr, change)?;
        let change = adjust(caller, &attr, change);
        let list = node.list_after_chmod(change.mode)?;
        let after = fs.set_attr(node.ino(), &change)?;
        if after.flags.contains(FileFlags::CASEFOLD) != attr.flags.contains(FileFlags::CASEFOLD) {
            // From now on one name of this directory is another.
            self.drop_names();
        }
        node.inode.learn(crate::table::Facts::of(&after));
        if let (Some(list), Some(xattrs)) = (list, node.file_system().xattrs()) {
            xattrs.set_xattr(node.ino(), acl::ACCESS, &list.encode(), XattrMode::Replace)?;
        }
        Ok(after)
    }

    /// Sets the size of a file. Errors, the first that holds: ReadOnly; IsDirectory; Invalid for what is no regular
    /// file; AccessDenied; NotPermitted for what is immutable or only to be appended to; FileTooBig.
    pub fn truncate(&self, caller: &Caller, node: &Node, size: u64) -> Result<()> {
        self.writable()?;
        node.data_size()?;
        node.access(caller, Want::WRITE)?;
        if node.stored()?.flags.intersects(GUARDED) {
            return Err(Error::NotPermitted);
        }
        node.truncate(size)?;
        self.strip_privileges(caller, node)
    }

    /// What a change by somebody else than the image's owner takes from a file: set-user-ID and set-group-ID.
    pub(crate) fn strip_privileges(&self, caller: &Caller, node: &Node) -> Result<()> {
        if *caller == Caller::Owner {
            return Ok(());
        }
        let attr = node.stored()?;
        let mode = without_privileges(&attr);
        if mode == attr.mode {
            return Ok(());
        }
        self.writable()?.set_attr(node.ino(), &SetAttr { mode: Some(mode), ..SetAttr::default() }).map(drop)
    }

    /// The value of an extended attribute, if `caller` may see it. Errors, the first that holds: NotSupported;
    /// AccessDenied; NoData.
    pub fn get_xattr(&self, caller: &Caller, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        if name.starts_with(b"trusted.") && *caller != Caller::Owner {
            return Err(Error::NoData);
        }
        if name.starts_with(b"user.") {
            node.access(caller, Want::READ)?;
        }
        node.get_xattr(name)
    }

    /// Sets an extended attribute; an access control list also sets the mode. Errors, the first that holds: ReadOnly;
    /// NotSupported if the format has none; NotPermitted or AccessDenied as xattr(7) has it for the name space;
    /// Invalid for an access control list that is none, and a default one for what is no directory; those of
    /// [`set_xattr`](Xattrs::set_xattr).
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
        let _attributes = node.inode.guard.write();
        let attr = node.stored()?;
        expect_xattr_allowed(caller, node, &attr, name)?;
        if name == acl::DEFAULT && !attr.is_dir() {
            return Err(Error::Invalid);
        }
        let list = if is_acl(name) { Some(Acl::decode(value)?) } else { None };
        xattrs.set_xattr(node.ino(), name, value, mode)?;
        match list {
            Some(list) if name == acl::ACCESS => {
                let bits = attr.mode.bits() & 0o7000 | list.mode().bits();
                let change = SetAttr { mode: Some(Mode::new(bits)), ..SetAttr::default() };
                fs.set_attr(node.ino(), &change).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Removes an extended attribute. Errors, the first that holds: ReadOnly; NotSupported if the format has none;
    /// NotPermitted or AccessDenied as for [`set_xattr`](Self::set_xattr); NoData.
    pub fn remove_xattr(&self, caller: &Caller, node: &Node, name: &[u8]) -> Result<()> {
        self.writable()?;
        let xattrs = node.file_system().xattrs().ok_or(Error::NotSupported)?;
        let _attributes = node.inode.guard.write();
        expect_xattr_allowed(caller, node, &node.stored()?, name)?;
        xattrs.remove_xattr(node.ino(), name)
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == acl::ACCESS || name == acl::DEFAULT
}

fn without_privileges(attr: &Attr) -> Mode {
    let executable_by_group = attr.mode.bits() & 0o010 != 0;
    match attr.kind {
        FileKind::Regular if executable_by_group => attr.mode.without(Mode::SET_UID).without(Mode::SET_GID),
        FileKind::Regular => attr.mode.without(Mode::SET_UID),
        _ => attr.mode,
    }
}

/// Errors: NotPermitted; AccessDenied.
fn expect_allowed(caller: &Caller, node: &Node, attr: &Attr, change: &SetAttr) -> Result<()> {
    let only_flags = SetAttr { flags: change.flags, ..SetAttr::default() };
    if attr.flags.intersects(GUARDED) && *change != only_flags {
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
    let now = |time: Option<TimeChange>| matches!(time, None | Some(TimeChange::Now));
    let only_touched = SetAttr { atime: change.atime, mtime: change.mtime, ..SetAttr::default() };
    match () {
        () if caller.owns(attr) => Ok(()),
        () if *change == only_touched && now(change.atime) && now(change.mtime) => {
            access::check(node, attr, caller, Want::WRITE)
        }
        () => Err(Error::NotPermitted),
    }
}

/// The change with what it brings about: another owner takes the privileges from a file, and nobody gives a group's
/// privileges to a file without being in that group.
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

/// Errors: NotPermitted; AccessDenied.
fn expect_xattr_allowed(caller: &Caller, node: &Node, attr: &Attr, name: &[u8]) -> Result<()> {
    if attr.flags.intersects(GUARDED) {
        return Err(Error::NotPermitted);
    }
    if name.starts_with(b"user.") {
        let sticky = attr.is_dir() && attr.mode.contains(Mode::STICKY) && !caller.owns(attr);
        if sticky || !matches!(attr.kind, FileKind::Regular | FileKind::Directory) {
            return Err(Error::NotPermitted);
        }
        return access::check(node, attr, caller, Want::WRITE);
    }
    let allowed = if is_acl(name) { caller.owns(attr) } else { *caller == Caller::Owner };
    if allowed { Ok(()) } else { Err(Error::NotPermitted) }
}

impl Node {
    fn acl(&self, xattrs: &dyn Xattrs, name: &[u8]) -> Result<Option<Acl>> {
        match xattrs.get_xattr(self.ino(), name) {
            Ok(value) => Acl::decode(&value).map(Some),
            Err(Error::NoData | Error::NotSupported) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The access control list that goes with a new mode, if there are both.
    fn list_after_chmod(&self, mode: Option<Mode>) -> Result<Option<Acl>> {
        let (Some(mode), Some(xattrs)) = (mode, self.file_system().xattrs()) else { return Ok(None) };
        Ok(self.acl(xattrs, acl::ACCESS)?.map(|acl| acl.with_mode(mode)))
    }

    /// The list that new inodes of this kind in this directory start with.
    pub(crate) fn default_acl(&self, kind: FileKind) -> Result<Option<Acl>> {
        match self.file_system().xattrs() {
            Some(xattrs) if kind != FileKind::Symlink => self.acl(xattrs, acl::DEFAULT),
            _ => Ok(None),
        }
    }

    /// Gives a new inode the list of its directory.
    pub(crate) fn inherit_acl(&self, default: &Acl, new: &NewNode<'_>) -> Result<()> {
        let xattrs = self.file_system().xattrs().ok_or(Error::NotSupported)?;
        let set = |name: &[u8], acl: &Acl| xattrs.set_xattr(self.ino(), name, &acl.encode(), XattrMode::Set);
        if !default.is_mode_alone() {
            set(acl::ACCESS, &default.with_mode(new.mode))?;
        }
        if new.kind == FileKind::Directory { set(acl::DEFAULT, default) } else { Ok(()) }
    }
}
