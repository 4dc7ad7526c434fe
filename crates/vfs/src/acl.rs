//! POSIX access control lists as extended attributes carry them.
//!
//! Layout: `u32` version 2, then entries of `u16` tag, `u16` permissions, `u32` id, all little-endian.
//! Source: Linux include/uapi/linux/posix_acl_xattr.h; the decision as in POSIX 1003.1e draft 17, section 23.1.5
//! (Linux fs/posix_acl.c).

use alloc::vec::Vec;

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};
use obento_base::{Cursor, Error, Result};

use crate::access::{Caller, Want};

/// Attribute that holds the list which is asked on access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute of a directory that holds the list which new files in it start with.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    /// `e_tag`, offset 0.
    tag: le::U16,
    /// `e_perm`, offset 2.
    perm: le::U16,
    /// `e_id`, offset 4.
    id: le::U32,
}
const _: () = assert!(size_of::<RawEntry>() == 8);

/// Whom an entry speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tag {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) tag: Tag,
    pub(crate) perm: Want,
}

/// A list. Invariant: it has an entry each for the owner, the owning group and the others, and at most one mask,
/// which is there if any user or group is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// Decodes an attribute's value. Errors: Invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(bytes);
        let version = cursor.take_raw::<le::U32>().ok_or(Error::Invalid)?;
        if version.get() != VERSION {
            return Err(Error::Invalid);
        }
        let mut entries = Vec::new();
        entries.try_reserve(cursor.rest().len().div_ceil(size_of::<RawEntry>()))?;
        while let Some(raw) = cursor.take_raw::<RawEntry>() {
            entries.push(decode_entry(raw)?);
        }
        let acl = Self(entries);
        if cursor.is_empty() && acl.is_complete() { Ok(acl) } else { Err(Error::Invalid) }
    }

    fn count(&self, tag: Tag) -> usize {
        self.0.iter().filter(|entry| entry.tag == tag).count()
    }

    fn is_complete(&self) -> bool {
        let names = self.0.iter().any(|entry| matches!(entry.tag, Tag::User(_) | Tag::Group(_)));
        let masks = self.count(Tag::Mask);
        [Tag::Owner, Tag::OwningGroup, Tag::Other].iter().all(|&tag| self.count(tag) == 1)
            && (masks == 1 || masks == 0 && !names)
    }

    fn perm_of(&self, tag: Tag) -> Option<Want> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    /// Whether the list grants `want` to a caller that is not the super user. `owner` and `group` are the file's.
    pub(crate) fn grants(&self, caller: &Caller, owner: u32, group: u32, want: Want) -> bool {
        let mask = self.perm_of(Tag::Mask).unwrap_or(Want::all());
        if caller.is_user(owner) {
            return self.perm_of(Tag::Owner).is_some_and(|perm| perm.contains(want));
        }
        let by_name = self.0.iter().find(|entry| matches!(entry.tag, Tag::User(id) if caller.is_user(id)));
        if let Some(entry) = by_name {
            return (entry.perm & mask).contains(want);
        }
        let mut groups = self
            .0
            .iter()
            .filter(|entry| match entry.tag {
                Tag::OwningGroup => caller.in_group(group),
                Tag::Group(id) => caller.in_group(id),
                _ => false,
            })
            .peekable();
        if groups.peek().is_some() {
            // One matching entry must grant all: the permissions of several groups do not add up.
            return groups.any(|entry| (entry.perm & mask).contains(want));
        }
        self.perm_of(Tag::Other).is_some_and(|perm| perm.contains(want))
    }
}

fn decode_entry(raw: &RawEntry) -> Result<Entry> {
    let id = raw.id.get();
    // ACL_USER_OBJ, ACL_USER, ... of include/uapi/linux/posix_acl.h.
    let tag = match raw.tag.get() {
        0x01 => Tag::Owner,
        0x02 => Tag::User(id),
        0x04 => Tag::OwningGroup,
        0x08 => Tag::Group(id),
        0x10 => Tag::Mask,
        0x20 => Tag::Other,
        _ => return Err(Error::Invalid),
    };
    let perm = u8::try_from(raw.perm.get()).ok().and_then(Want::from_bits).ok_or(Error::Invalid)?;
    Ok(Entry { tag, perm })
}
