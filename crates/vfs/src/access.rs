//! Who may do what: POSIX permission bits and access control lists.
//!
//! Source: POSIX.1-2024 section 4.7 "File Access Permissions"; acl(5).

use alloc::vec::Vec;

use bitflags::bitflags;
use obento_base::{Attr, Error, FileKind, Mode, Result};

use crate::acl::{self, Acl};
use crate::node::Node;

/// For whom something is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// The owner of the image, who may do everything in it, like root.
    Owner,
    /// A user of the image.
    User {
        /// User id in the image.
        uid: u32,
        /// Group id in the image.
        gid: u32,
        /// Further groups.
        groups: Vec<u32>,
    },
}

bitflags! {
    /// What a caller wants to do with a file, as the permission bits number it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Want: u8 {
        /// Execute it; for a directory, look names up in it.
        const EXEC = 1;
        /// Write to it; for a directory, change its names.
        const WRITE = 2;
        /// Read it; for a directory, list it.
        const READ = 4;
    }
}

impl Caller {
    /// Whether the caller is the user `uid`. The image's owner is nobody in particular.
    pub fn is_user(&self, uid: u32) -> bool {
        matches!(self, Self::User { uid: own, .. } if *own == uid)
    }

    /// Whether the caller is in the group `gid`, or may act as if.
    pub fn in_group(&self, gid: u32) -> bool {
        match self {
            Self::Owner => true,
            Self::User { gid: own, groups, .. } => *own == gid || groups.contains(&gid),
        }
    }

    /// Whether the caller may change what only a file's owner may: mode, times, flags, access control lists.
    pub fn owns(&self, attr: &Attr) -> bool {
        *self == Self::Owner || self.is_user(attr.uid)
    }
}

/// The permissions that `mode` gives to a caller that is not the super user.
fn mode_grants(caller: &Caller, attr: &Attr, want: Want) -> bool {
    let shift = match () {
        () if caller.is_user(attr.uid) => 6,
        () if caller.in_group(attr.gid) => 3,
        () => 0,
    };
    let bits = attr.mode.bits() >> shift & 7;
    u8::try_from(bits).is_ok_and(|bits| Want::from_bits_truncate(bits).contains(want))
}

/// The super user may do everything but execute a file that nobody may execute.
fn owner_may(attr: &Attr, want: Want) -> bool {
    let executable = attr.is_dir() || attr.mode.bits() & 0o111 != 0;
    executable || !want.contains(Want::EXEC)
}

/// Errors: AccessDenied, also where the list that would tell is damaged.
pub(crate) fn check(node: &Node, attr: &Attr, caller: &Caller, want: Want) -> Result<()> {
    let granted = match caller {
        Caller::Owner => owner_may(attr, want),
        Caller::User { .. } => match acl_of(node, attr, caller)? {
            Some(acl) => acl.grants(caller, attr.uid, attr.gid, want),
            None => mode_grants(caller, attr, want),
        },
    };
    if granted { Ok(()) } else { Err(Error::AccessDenied) }
}

/// The list to ask. As on Linux, the owner's own bits need none, and where the group bits, which are the list's
/// mask, are all off, it could grant nothing.
fn acl_of(node: &Node, attr: &Attr, caller: &Caller) -> Result<Option<Acl>> {
    if caller.is_user(attr.uid) || attr.mode.bits() & 0o070 == 0 || attr.kind == FileKind::Symlink {
        return Ok(None);
    }
    let Some(xattrs) = node.file_system().xattrs() else { return Ok(None) };
    match xattrs.get_xattr(node.ino(), acl::ACCESS) {
        Ok(value) => Acl::decode(&value).map(Some).map_err(|_| Error::AccessDenied),
        Err(Error::NoData | Error::NotSupported) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the sticky bit of `dir` keeps `caller` from removing or moving `victim`.
pub(crate) fn sticky_forbids(dir: &Attr, victim: &Attr, caller: &Caller) -> bool {
    dir.mode.contains(Mode::STICKY) && !caller.owns(dir) && !caller.owns(victim)
}
