//! POSIX ACLs: conversion between the form that ext4 stores and the form of `getxattr(2)` and `setxattr(2)`.
//!
//! Layout on disk: version 1, then entries of 4 bytes, or of 8 bytes for a named user or group.
//! Layout of the system calls: version 2, then entries of 8 bytes. The ID of an entry without a name is all ones.
//! Source: Linux fs/ext4/acl.h, `ext4_acl_from_disk`, `ext4_acl_to_disk`; include/uapi/linux/posix_acl_xattr.h,
//! posix_acl.h.

use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, le};
use obento_base::{Cursor, Error, Result};

use crate::raw::RawAclEntry;

const DISK_VERSION: u32 = 1;
const XATTR_VERSION: u32 = 2;
/// `ACL_UNDEFINED_ID`.
const NOBODY: u32 = u32::MAX;

/// Tags of entries: `ACL_USER_OBJ` and so on.
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Returns the bytes of the attribute, or `None` if `disk` is not an ACL. Fails with `NoMemory`.
pub(crate) fn to_xattr(disk: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut cursor = Cursor::new(disk);
    let mut bytes = Vec::new();
    // An entry grows from 4 to at most 8 bytes.
    bytes.try_reserve_exact(disk.len().saturating_mul(2))?;
    bytes.extend_from_slice(&XATTR_VERSION.to_le_bytes());
    if cursor.take_raw::<le::U32>().map(|version| version.get()) != Some(DISK_VERSION) {
        return Ok(None);
    }
    while !cursor.is_empty() {
        let Some((entry, id)) = take_entry(&mut cursor) else { return Ok(None) };
        bytes.extend_from_slice(&entry.e_tag.get().to_le_bytes());
        bytes.extend_from_slice(&entry.e_perm.get().to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    Ok(Some(bytes))
}

/// Returns the stored form of the attribute `given`. Fails with `NoMemory`, or with `Invalid` if it is not an ACL.
pub(crate) fn from_xattr(given: &[u8]) -> Result<Vec<u8>> {
    let mut cursor = Cursor::new(given);
    let version = cursor.take_raw::<le::U32>().map(|version| version.get());
    if version != Some(XATTR_VERSION) || cursor.is_empty() {
        return Err(Error::Invalid);
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(given.len())?;
    bytes.extend_from_slice(&DISK_VERSION.to_le_bytes());
    while !cursor.is_empty() {
        let entry = cursor.take_raw::<RawAclEntry>().ok_or(Error::Invalid)?;
        let id = cursor.take_raw::<le::U32>().ok_or(Error::Invalid)?;
        bytes.extend_from_slice(entry.as_bytes());
        match entry.e_tag.get() {
            USER_OBJ | GROUP_OBJ | MASK | OTHER => {}
            USER | GROUP => bytes.extend_from_slice(id.as_bytes()),
            _ => return Err(Error::Invalid),
        }
    }
    Ok(bytes)
}

fn take_entry(cursor: &mut Cursor<'_>) -> Option<(RawAclEntry, u32)> {
    let entry = *cursor.take_raw::<RawAclEntry>()?;
    let id = match entry.e_tag.get() {
        USER_OBJ | GROUP_OBJ | MASK | OTHER => NOBODY,
        USER | GROUP => cursor.take_raw::<le::U32>()?.get(),
        _ => return None,
    };
    Some((entry, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn an_acl_gets_the_bytes_that_getxattr_gives() {
        let disk = [
            &[1, 0, 0, 0][..],
            &[1, 0, 7, 0],
            &[2, 0, 6, 0, 0xe8, 3, 0, 0],
            &[4, 0, 5, 0],
            &[16, 0, 7, 0],
            &[32, 0, 4, 0],
        ]
        .concat();
        let given = [
            &[2, 0, 0, 0][..],
            &[1, 0, 7, 0, 255, 255, 255, 255],
            &[2, 0, 6, 0, 0xe8, 3, 0, 0],
            &[4, 0, 5, 0, 255, 255, 255, 255],
            &[16, 0, 7, 0, 255, 255, 255, 255],
            &[32, 0, 4, 0, 255, 255, 255, 255],
        ]
        .concat();
        assert_eq!(from_xattr(&given), Ok(disk.clone()));
        assert_eq!(to_xattr(&disk), Ok(Some(given)));
    }

    #[test]
    fn a_given_value_that_is_not_an_acl_is_invalid() {
        for given in [
            vec![],
            vec![2, 0, 0, 0],
            vec![1, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255],
            vec![2, 0, 0, 0, 3, 0, 7, 0, 255, 255, 255, 255],
            vec![2, 0, 0, 0, 1, 0, 7, 0, 255, 255],
        ] {
            assert_eq!(from_xattr(&given), Err(Error::Invalid), "{given:?}");
        }
    }

    #[test]
    fn a_value_that_is_not_an_acl_is_rejected() {
        for disk in [
            vec![],
            vec![1, 0, 0],
            vec![2, 0, 0, 0],
            vec![1, 0, 0, 0, 1, 0, 7],
            vec![1, 0, 0, 0, 2, 0, 7, 0, 1, 0],
            vec![1, 0, 0, 0, 3, 0, 7, 0],
        ] {
            assert_eq!(to_xattr(&disk), Ok(None), "{disk:?}");
        }
    }
}
