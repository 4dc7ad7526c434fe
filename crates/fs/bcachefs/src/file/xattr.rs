//! Extended attributes.
//!
//! Source: Linux `fs/bcachefs/xattr_format.h`, `xattr.c`, `acl.c` (`bch2_acl_from_disk`), `include/uapi/linux/posix_acl_xattr.h`.

use alloc::vec::Vec;

use crate::btree::key::Key;
use crate::layout::bytes::{slice, u8_at, u16_at, u32_at};

/// An attribute.
#[derive(Clone, Copy, Debug)]
pub struct Xattr<'a> {
    space: u8,
    name: &'a [u8],
    value: &'a [u8],
}

/// `ACL_USER` and `ACL_GROUP`: entries with an identifier.
const WITH_ID: [u16; 2] = [2, 8];

impl<'a> Xattr<'a> {
    /// Decodes the value of a key.
    pub fn decode(key: Key<'a>) -> Option<Self> {
        let (space, len) = (u8_at(key.value, 0)?, usize::from(u8_at(key.value, 1)?));
        let name = slice(key.value, 4, len)?;
        let value = slice(key.value, len.checked_add(4)?, u16_at(key.value, 2)?.into())?;
        Some(Self { space, name, value })
    }

    /// Returns the name with its namespace, or `None` for a namespace that Linux does not know and for a name with a NUL.
    pub fn full_name(&self) -> Option<Vec<u8>> {
        if self.name.contains(&0) {
            return None;
        }
        let space: &[u8] = match self.space {
            0 => b"user.",
            1 => b"system.posix_acl_access",
            2 => b"system.posix_acl_default",
            3 => b"trusted.",
            4 => b"security.",
            _ => return None,
        };
        Some([space, self.name].concat())
    }

    /// Returns the value as Linux shows it: access control lists have another form on disk.
    pub fn value(&self) -> Option<Vec<u8>> {
        if matches!(self.space, 1 | 2) { acl(self.value) } else { Some(self.value.to_vec()) }
    }
}

/// Converts an access control list: on disk, only entries of users and groups have an identifier.
fn acl(disk: &[u8]) -> Option<Vec<u8>> {
    (u32_at(disk, 0)? == 1).then_some(())?;
    let mut list = Vec::from(2_u32.to_le_bytes());
    let mut rest = disk.get(4..)?;
    while !rest.is_empty() {
        let tag = u16_at(rest, 0)?;
        let has_id = WITH_ID.contains(&tag);
        list.extend_from_slice(rest.get(..4)?);
        let id = if has_id { u32_at(rest, 4)? } else { u32::MAX };
        list.extend_from_slice(&id.to_le_bytes());
        rest = rest.get(if has_id { 8 } else { 4 }..)?;
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_control_lists_are_converted() {
        let disk = [1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 5, 0, 0xe8, 3, 0, 0, 0x20, 0, 4, 0];
        let list = acl(&disk).unwrap();
        assert_eq!(list[..4], [2, 0, 0, 0]);
        assert_eq!(list[4..12], [1, 0, 7, 0, 255, 255, 255, 255]);
        assert_eq!(list[12..20], [2, 0, 5, 0, 0xe8, 3, 0, 0]);
        assert_eq!(list.len(), 28);
        assert_eq!(acl(&disk[..14]), None);
    }
}
