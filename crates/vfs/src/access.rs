//! Access checks: POSIX permission bits and access control lists.
//!
//! Source: POSIX.1-2024 section 4.7 "File Access Permissions"; acl(5).

use alloc::vec::Vec;

use bitflags::bitflags;
use obento_base::{Attr, Error, FileKind, Mode, Result};

use crate::acl::{self, Acl};
use crate::node::Node;

/// The user for whom an operation is performed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// The owner of the image, who has the rights of root.
    Owner,
    /// A user that is defined in the image.
    User {
        /// User ID in the image.
        uid: u32,
        /// Group ID in the image.
        gid: u32,
        /// Supplementary groups.
        groups: Vec<u32>,
    },
}

bitflags! {
    /// The requested kinds of access. The values are those of the permission bits of one class (`rwx`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct AccessRequest: u8 {
        /// Execute a file, or look up names in a directory.
        const EXEC = 1;
        /// Write a file, or create and remove names in a directory.
        const WRITE = 2;
        /// Read a file, or list the names in a directory.
        const READ = 4;
    }
}

impl Caller {
    /// Returns whether the caller is the user `uid`. Returns `false` for the owner of the image, for every `uid`.
    pub fn is_user(&self, uid: u32) -> bool {
        matches!(self, Self::User { uid: own, .. } if *own == uid)
    }

    /// Returns whether the caller is in the group `gid`. Returns `true` for the owner of the image.
    pub fn in_group(&self, gid: u32) -> bool {
        match self {
            Self::Owner => true,
            Self::User { gid: own, groups, .. } => *own == gid || groups.contains(&gid),
        }
    }

    /// Returns whether the caller is the owner of the file, or the owner of the image. Only these callers may
    /// change the mode, the flags and the access control lists of the file. Only these callers may set its
    /// times to other values than the current time.
    pub fn owns(&self, attr: &Attr) -> bool {
        *self == Self::Owner || self.is_user(attr.uid)
    }
}

/// Returns whether the mode grants `want` to a caller other than the superuser.
fn mode_grants(caller: &Caller, attr: &Attr, want: AccessRequest) -> bool {
    let shift = match () {
        () if caller.is_user(attr.uid) => 6,
        () if caller.in_group(attr.gid) => 3,
        () => 0,
    };
    let bits = attr.mode.bits() >> shift & 7;
    u8::try_from(bits).is_ok_and(|bits| AccessRequest::from_bits_truncate(bits).contains(want))
}

/// Returns whether the superuser has the access. The superuser may do everything except execute a file
/// without any execute bit.
fn owner_may(attr: &Attr, want: AccessRequest) -> bool {
    let executable = attr.is_dir() || attr.mode.bits() & 0o111 != 0;
    executable || !want.contains(AccessRequest::EXEC)
}

/// Checks the access. Fails with `AccessDenied`, also if the deciding access control list is damaged.
pub(crate) fn check(node: &Node, attr: &Attr, caller: &Caller, want: AccessRequest) -> Result<()> {
    let granted = match caller {
        Caller::Owner => owner_may(attr, want),
        Caller::User { .. } => match acl_of(node, attr, caller)? {
            Some(acl) => acl.grants(caller, attr.uid, attr.gid, want),
            None => mode_grants(caller, attr, want),
        },
    };
    if granted { Ok(()) } else { Err(Error::AccessDenied) }
}

/// Returns the access control list that decides about the access, or `None` if the mode decides. As on Linux, the
/// mode decides for the owner of the file, for a file without group bits (an empty mask), and for a symbolic link.
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

/// Returns whether the sticky bit of `dir` prevents `caller` from removing or renaming `victim`.
pub(crate) fn sticky_forbids(dir: &Attr, victim: &Attr, caller: &Caller) -> bool {
    dir.mode.contains(Mode::STICKY) && !caller.owns(dir) && !caller.owns(victim)
}
