//! Names of attributes: Linux uses a prefix for a name space, the format stores its number.
//!
//! Source: Linux fs/ext4/xattr.h (`EXT4_XATTR_INDEX_*`), fs/ext4/xattr.c `ext4_xattr_handler_map`; the limits:
//! include/uapi/linux/limits.h.

use obento_base::{Error, Result};

/// `EXT4_XATTR_INDEX_*`.
pub(super) const ACL_ACCESS: u8 = 2;
pub(super) const ACL_DEFAULT: u8 = 3;
pub(super) const SYSTEM: u8 = 7;
const RICHACL: u8 = 8;
/// The attribute in `SYSTEM` that contains the inline data after `i_block`.
pub(super) const INLINE_DATA: &[u8] = b"data";
/// `XATTR_NAME_MAX`, including the name space. The format has space for 255 bytes without it.
const NAME_MAX: usize = 255;

/// Returns the prefix of a name index.
pub(super) fn prefix(index: u8) -> Option<&'static [u8]> {
    Some(match index {
        1 => b"user.",
        ACL_ACCESS => b"system.posix_acl_access",
        ACL_DEFAULT => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        SYSTEM => b"system.",
        RICHACL => b"system.richacl",
        10 => b"gnu.",
        _ => return None,
    })
}

/// Returns whether Linux lists attributes with this index. It has no handler for the others.
pub(super) fn is_listed(index: u8) -> bool {
    prefix(index).is_some() && !matches!(index, SYSTEM | RICHACL)
}

/// A name as an entry stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredName<'a> {
    /// `e_name_index`.
    pub(super) index: u8,
    /// The name after the prefix.
    pub(super) rest: &'a [u8],
}

impl<'a> StoredName<'a> {
    /// The attribute that continues a file's inline data.
    pub(super) const INLINE_DATA: Self = Self { index: SYSTEM, rest: INLINE_DATA };

    /// Returns the stored form of `name`, if Linux can set it. Fails with `NotSupported` for a name space without a
    /// handler.
    pub(super) fn parse(name: &'a [u8]) -> Result<Self> {
        let whole = [ACL_ACCESS, ACL_DEFAULT].map(|index| (index, true));
        let spaces = [1, 4, 6, 10].map(|index| (index, false));
        for (index, is_whole) in whole.into_iter().chain(spaces) {
            let rest = prefix(index).and_then(|prefix| name.strip_prefix(prefix));
            if let Some(rest) = rest.filter(|rest| rest.is_empty() == is_whole && !rest.contains(&0)) {
                return Ok(Self { index, rest });
            }
        }
        Err(Error::NotSupported)
    }

    /// Fails with `OutOfRange` for a name that is longer than Linux permits.
    pub(super) fn expect_short(&self) -> Result<()> {
        let len = prefix(self.index).map_or(0, <[u8]>::len).saturating_add(self.rest.len());
        if len <= NAME_MAX { Ok(()) } else { Err(Error::OutOfRange) }
    }

    /// Returns whether it is one of the two access control lists, which have a stored form of their own.
    pub(super) fn is_acl(&self) -> bool {
        matches!(self.index, ACL_ACCESS | ACL_DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stored_by_its_namespace_and_one_without_a_handler_is_not_supported() {
        let parse =
            |name: &'static str| StoredName::parse(name.as_bytes()).map(|name| (name.index, name.rest));
        assert_eq!(parse("user.a.b"), Ok((1, &b"a.b"[..])));
        assert_eq!(parse("security.selinux"), Ok((6, &b"selinux"[..])));
        assert_eq!(parse("system.posix_acl_default"), Ok((3, &b""[..])));
        for name in [
            "user.",
            "nowhere.a",
            "system.data",
            "system.richacl",
            "system.posix_acl_accessor",
            "",
            "user.\0",
        ] {
            assert_eq!(parse(name), Err(Error::NotSupported), "{name}");
        }
    }

    #[test]
    fn a_name_has_at_most_255_bytes_with_its_space() {
        let name = [&b"user."[..], &[b'x'; 251]].concat();
        assert_eq!(StoredName::parse(&name[..255]).unwrap().expect_short(), Ok(()));
        assert_eq!(StoredName::parse(&name).unwrap().expect_short(), Err(Error::OutOfRange));
    }
}
