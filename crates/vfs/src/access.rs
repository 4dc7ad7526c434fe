//! Access checks: POSIX permission bits and access control lists.
//!
//! Source: POSIX.1-2024 section 4.7 "File Access Permissions"; acl(5).

use obento_base::{Attr, Error, FileKind, Mode, Result};

use crate::acl::{self, Acl};
use crate::caller::{AccessRequest, Caller};
use crate::node::Node;

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

/// Returns the access control list that decides about the access, or `None` if the mode decides. The mode decides if
/// the caller owns the file, or if the file has no group bits (an empty mask) or is a symbolic link. Linux does the
/// same.
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
