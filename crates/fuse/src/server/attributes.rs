//! Attributes and extended attributes.

use obento_base::{Attr, Errno, Error, FileFlags, Mode, Timestamp};
use obento_driver::{SetAttr, StoredProperties, TimeChange, XattrMode};
use obento_vfs::Node;

use super::{OWNER, Reply, Server, errno};
use crate::mount::ACCESS_TIMES;
use crate::nodes::{KernelInode, ROOT};

/// The attribute with the capabilities of a program. A change of the file removes the attribute.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// A new time.
#[derive(Clone, Copy)]
pub(crate) enum Time {
    Now,
    At(Timestamp),
}

impl Time {
    fn change(self) -> TimeChange {
        match self {
            Self::Now => TimeChange::Now,
            Self::At(time) => TimeChange::At(time),
        }
    }
}

/// A SETATTR request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<Time>,
    pub(crate) mtime: Option<Time>,
    pub(crate) ctime: Option<Time>,
    /// Whether the change clears set-user-ID and set-group-ID.
    pub(crate) kill_privileges: bool,
}

/// A SETXATTR request.
#[derive(Clone, Copy)]
pub(crate) struct NamedValue<'b> {
    pub(crate) name: &'b [u8],
    pub(crate) value: &'b [u8],
    pub(crate) flags: i32,
    /// Whether to clear set-group-ID, because the caller changes the access control list and is not in the group.
    pub(crate) kill_set_gid: bool,
}

impl Change {
    /// Returns whether the request is that of touch(1). The kernel sets the times of a file itself while it caches
    /// writes. touch(1) therefore arrives as `ATIME_NOW` with a modification time and a change time from the kernel's
    /// clock.
    fn is_touch(&self) -> bool {
        let times = Self { atime: None, mtime: None, ctime: None, kill_privileges: false, ..*self };
        matches!(self.atime, Some(Time::Now))
            && self.mtime.is_some()
            && self.ctime.is_some()
            && times.is_none()
    }

    /// Returns whether the request only writes back times that the kernel cached.
    fn is_handed_over(&self) -> bool {
        let others = Self { mtime: None, ctime: None, kill_privileges: false, ..*self };
        self.mtime.is_some() && self.ctime.is_some() && others.is_none()
    }

    fn is_none(&self) -> bool {
        let Self { mode, uid, gid, size, atime, mtime, ctime, kill_privileges: _ } = self;
        let times = atime.is_none() && mtime.is_none() && ctime.is_none();
        times && mode.is_none() && uid.is_none() && gid.is_none() && size.is_none()
    }
}

impl Server {
    /// Returns the attributes of `id`.
    pub(crate) fn getattr(&self, id: u64) -> Reply<Attr> {
        Self::checked(id, self.node(id)?.attr().map_err(errno)?)
    }

    /// Changes attributes of `id`. Returns the new attributes.
    pub(crate) fn setattr(&self, id: u64, change: &Change) -> Reply<Attr> {
        let node = self.node(id)?;
        if change.is_handed_over() {
            let attr = node.attr().map_err(errno)?;
            // Only the kernel shows the times of a file without a name, and it has them already. An append-only
            // file got its times when its bytes were written. The kernel hands over the change time of an immutable file
            // after it has refused a write.
            let is_same = matches!(change.mtime, Some(Time::At(time)) if time == attr.mtime);
            let is_refused = attr.flags.contains(FileFlags::IMMUTABLE) && is_same;
            if attr.nlink == 0 || attr.flags.contains(FileFlags::APPEND) || is_refused {
                return Ok(attr);
            }
        }
        let touch = Change { mtime: Some(Time::Now), ctime: None, ..*change };
        let change = if change.is_touch() { &touch } else { change };
        // As vfat and exfat of Linux do, which ignore other bits that they cannot store.
        let is_stored = self.vfs.limits().keeps.contains(StoredProperties::MODES);
        if !is_stored && change.mode.is_some_and(|mode| mode & 0o7000 != 0) {
            return Err(Error::NotPermitted.errno());
        }
        if let Some(size) = change.size {
            self.note_resize(id);
            self.vfs.truncate(&OWNER, &node, size).map_err(errno)?;
            self.drop_privileges(id, change.kill_privileges)?;
        }
        let set = SetAttr {
            mode: change.mode.map(|mode| Mode::new((mode & 0o7777) as u16)),
            uid: change.uid,
            gid: change.gid,
            atime: change.atime.map(Time::change),
            mtime: change.mtime.map(Time::change),
            ctime: change.ctime.map(Time::change),
            ..SetAttr::default()
        };
        if set.uid.is_some() || set.gid.is_some() {
            self.drop_capability(&node)?;
        }
        let attr = match set == SetAttr::default() {
            true => node.attr(),
            false => self.vfs.set_attr(&OWNER, &node, &set),
        };
        self.settled(&node, Self::checked(id, attr.map_err(errno)?)?)
    }

    /// Clears set-user-ID and set-group-ID of a file that is not a directory, as a change of the owner does.
    pub(crate) fn clear_set_ids(&self, id: u64) -> Reply<()> {
        let node = self.node(id)?;
        let attr = node.attr().map_err(errno)?;
        let mode = without_set_ids(attr.mode);
        if attr.is_dir() || mode == attr.mode {
            return Ok(());
        }
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.vfs.set_attr(&OWNER, &node, &set).map(drop).map_err(errno)
    }

    /// Removes the privileges that a file loses when its data changes: always the capability, and with `kill` also
    /// set-user-ID and set-group-ID. Returns the file. Fails with `NotPermitted` for an immutable file. OPEN, which would
    /// report the error earlier, is not supported.
    pub(super) fn drop_privileges(&self, id: u64, kill: bool) -> Reply<KernelInode> {
        let known = self.known(id)?;
        if known.is_plain && !kill {
            return Ok(known);
        }
        let attr = known.node.attr().map_err(errno)?;
        if kill && attr.mode.bits() & 0o6000 != 0 {
            let set = SetAttr { mode: Some(without_set_ids(attr.mode)), ..SetAttr::default() };
            self.vfs.set_attr(&OWNER, &known.node, &set).map_err(errno)?;
        }
        if attr.flags.contains(FileFlags::IMMUTABLE) {
            return Err(Error::NotPermitted.errno());
        }
        if known.is_plain {
            return Ok(known);
        }
        self.drop_capability(&known.node)?;
        let is_plain = !attr.flags.contains(FileFlags::APPEND);
        self.nodes.set_plain(id, is_plain);
        Ok(KernelInode { is_plain, ..known })
    }

    fn drop_capability(&self, node: &Node) -> Reply<()> {
        match node.get_xattr(CAPABILITY) {
            Ok(_) => self.vfs.remove_xattr(&OWNER, node, CAPABILITY).map_err(errno),
            Err(Error::NoData | Error::NotSupported) => Ok(()),
            Err(error) => Err(errno(error)),
        }
    }

    /// Returns the value of an extended attribute. Fails with ENOSYS if the format has no extended attributes; the
    /// kernel then sends no further GETXATTR.
    pub(crate) fn get_xattr(&self, id: u64, name: &[u8]) -> Reply<Vec<u8>> {
        if self.vfs.flushed_file_system().xattrs().is_none() {
            return Err(Errno(libc::ENOSYS));
        }
        self.node(id)?.get_xattr(name).map_err(errno)
    }

    /// Returns the names of all extended attributes, each followed by a NUL. Only root sees the names `trusted.*`, whose
    /// values the kernel requests only for root. Source: Linux fs/ext4/xattr_trusted.c `ext4_xattr_trusted_list`.
    pub(crate) fn list_xattrs(&self, id: u64, uid: u32) -> Reply<Vec<u8>> {
        let names = self.node(id)?.list_xattrs().map_err(errno)?;
        let seen = names.into_iter().filter(|name| uid == 0 || !name.starts_with(b"trusted."));
        Ok(seen.flat_map(|name| [name, vec![0]]).flatten().collect())
    }

    /// Sets an extended attribute.
    pub(crate) fn set_xattr(&self, id: u64, set: &NamedValue<'_>) -> Reply<()> {
        let NamedValue { name, value, flags, kill_set_gid } = *set;
        if id == ROOT && name == ACCESS_TIMES.as_bytes() {
            return self.set_access_times(value);
        }
        let node = self.node(id)?;
        let mode = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            0 => XattrMode::Set,
            // With both flags, the attribute must exist and must not exist.
            _ => {
                node.get_xattr(name).map_err(errno)?;
                return Err(Error::Exists.errno());
            }
        };
        let attr = node.attr().map_err(errno)?;
        if kill_set_gid && attr.mode.contains(Mode::SET_GID) {
            // The bit is cleared before the new list grants any right.
            let set = SetAttr { mode: Some(attr.mode.without(Mode::SET_GID)), ..SetAttr::default() };
            self.vfs.set_attr(&OWNER, &node, &set).map_err(errno)?;
        }
        self.vfs.set_xattr(&OWNER, &node, name, value, mode).map_err(errno)?;
        if name == CAPABILITY {
            self.nodes.set_plain(id, false);
        }
        self.settled(&node, ())
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&self, id: u64, name: &[u8]) -> Reply<()> {
        let node = self.node(id)?;
        self.vfs.remove_xattr(&OWNER, &node, name).map_err(errno)?;
        self.settled(&node, ())
    }
}

/// Returns `mode` without set-user-ID, and without set-group-ID if the group may execute the file.
fn without_set_ids(mode: Mode) -> Mode {
    let is_group_executable = mode.bits() & 0o010 != 0;
    let mode = mode.without(Mode::SET_UID);
    if is_group_executable { mode.without(Mode::SET_GID) } else { mode }
}
