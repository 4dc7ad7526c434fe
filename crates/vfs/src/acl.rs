//! POSIX access control lists, as stored in extended attributes.
//!
//! Layout: `u32` version 2, then entries of `u16` tag, `u16` permissions, `u32` id, all little-endian.
//! Source: Linux include/uapi/linux/posix_acl_xattr.h. Access decision: POSIX 1003.1e draft 17, section
//! 23.1.5 (Linux fs/posix_acl.c).

use alloc::vec::Vec;

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};
use obento_base::{Cursor, Error, Mode, Result};

use crate::caller::{AccessRequest, Caller};

/// Name of the attribute with the access list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute with the default list of a directory. New files in the directory inherit this list.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

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

/// Returns whether the value is a list without any entries. Setting such a list removes the list of the inode. Source:
/// Linux fs/posix_acl.c `posix_acl_from_xattr`.
pub(crate) fn is_empty_list(value: &[u8]) -> bool {
    value == VERSION.to_le_bytes()
}

/// The subject of an entry, in the order of the entries of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tag {
    /// The owner of the file.
    Owner,
    /// A named user.
    User(u32),
    /// The group of the file.
    OwningGroup,
    /// A named group.
    Group(u32),
    /// The maximum rights of named users, of named groups and of the owning group.
    Mask,
    /// All other users.
    Other,
}

/// An entry of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Subject.
    pub tag: Tag,
    /// Rights.
    pub perm: AccessRequest,
}

/// An access control list.
///
/// Invariant: the list has exactly one entry each for the owner, the owning group and all other users. It has at most
/// one mask, and it has a mask if it names a user or a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Creates a list and sorts it into the order that the kernel requires.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the entry of the owner, of the owning group or of all other users is missing. Or: the list names a
    ///   user or a group and has no mask. Or: two entries have the same subject.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self> {
        entries.sort_by_key(|entry| entry.tag);
        let is_double = entries.windows(2).any(|pair| matches!(pair, [a, b] if a.tag == b.tag));
        let acl = Self(entries);
        if acl.is_complete() && !is_double { Ok(acl) } else { Err(Error::Invalid) }
    }

    /// Returns the list that grants the same rights as permission bits.
    pub fn from_mode(mode: Mode) -> Self {
        let entry = |tag| Entry { tag, perm: AccessRequest::empty() };
        Self([Tag::Owner, Tag::OwningGroup, Tag::Other].map(entry).into()).with_mode(mode)
    }

    /// Returns the entries. They are sorted by subject in a list of [`new`](Self::new) or
    /// [`from_mode`](Self::from_mode), and in stored order in a list of [`decode`](Self::decode).
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Decodes the value of an attribute. The entries may be in any order, and keep their order.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the value is malformed, or the list violates the invariant of [`Acl`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
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

    /// Returns whether the kinds of subjects are in the order that Linux requires of a list that a caller sets. Several
    /// users or groups may be in any order among themselves. Source: Linux fs/posix_acl.c `posix_acl_valid`.
    pub(crate) fn is_in_order(&self) -> bool {
        self.0.is_sorted_by_key(|entry| encode_entry(entry).tag.get())
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

    fn perm_of(&self, tag: Tag) -> Option<AccessRequest> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    /// Returns the subject that the group bits of a mode represent.
    fn group_class(&self) -> Tag {
        if self.count(Tag::Mask) == 0 { Tag::OwningGroup } else { Tag::Mask }
    }

    /// Returns the permission bits of a file with this list. The group bits are those of the mask, if the list has a
    /// mask.
    pub fn mode(&self) -> Mode {
        let class = |tag: Tag| u16::from(self.perm_of(tag).unwrap_or(AccessRequest::empty()).bits());
        Mode::new(class(Tag::Owner) << 6 | class(self.group_class()) << 3 | class(Tag::Other))
    }

    /// Returns whether permission bits can represent the list: its only entries are those of the owner, the owning
    /// group and all other users.
    pub fn is_mode_alone(&self) -> bool {
        self.0.len() == 3
    }

    /// Returns the mode of a new file in a directory with this default list, if the caller requests `mode`.
    pub(crate) fn child_mode(&self, mode: Mode) -> Mode {
        Mode::new(mode.bits() & (self.mode().bits() | 0o7000))
    }

    /// Returns the list after a change of the mode to `mode`. The group bits change the mask if the list has
    /// a mask, and the entry of the owning group otherwise.
    pub fn with_mode(&self, mode: Mode) -> Self {
        let group = self.group_class();
        let change = |entry: &Entry| {
            let shift = match entry.tag {
                Tag::Owner => 6,
                Tag::Other => 0,
                tag if tag == group => 3,
                _ => return *entry,
            };
            let bits = u8::try_from(mode.bits() >> shift & 7).unwrap_or(0);
            Entry { perm: AccessRequest::from_bits_truncate(bits), ..*entry }
        };
        Self(self.0.iter().map(change).collect())
    }

    /// Returns the list as the value of an attribute, with the entries in the order of
    /// [`entries`](Self::entries).
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend_from_slice(encode_entry(entry).as_bytes());
        }
        bytes
    }

    /// Returns whether the list grants `want` to a caller other than the superuser. `owner` and `group` are
    /// those of the file.
    pub(crate) fn grants(&self, caller: &Caller, owner: u32, group: u32, want: AccessRequest) -> bool {
        let mask = self.perm_of(Tag::Mask).unwrap_or(AccessRequest::all());
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
            // A single matching entry must grant everything: the rights of several groups do not add up.
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
    let perm = u8::try_from(raw.perm.get()).ok().and_then(AccessRequest::from_bits).ok_or(Error::Invalid)?;
    Ok(Entry { tag, perm })
}

fn encode_entry(entry: &Entry) -> RawEntry {
    /// `ACL_UNDEFINED_ID`: the ID in an entry that names neither a user nor a group.
    const NOBODY: u32 = u32::MAX;
    let (tag, id) = match entry.tag {
        Tag::Owner => (0x01, NOBODY),
        Tag::User(id) => (0x02, id),
        Tag::OwningGroup => (0x04, NOBODY),
        Tag::Group(id) => (0x08, id),
        Tag::Mask => (0x10, NOBODY),
        Tag::Other => (0x20, NOBODY),
    };
    let perm = u16::from(entry.perm.bits());
    RawEntry { tag: le::U16::new(tag), perm: le::U16::new(perm), id: le::U32::new(id) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn acl(entries: &[(Tag, u8)]) -> Acl {
        let entries =
            entries.iter().map(|&(tag, perm)| Entry { tag, perm: AccessRequest::from_bits(perm).unwrap() });
        Acl(entries.collect())
    }

    fn user(uid: u32, gid: u32) -> Caller {
        Caller::User { uid, gid, groups: vec![] }
    }

    const BASE: [(Tag, u8); 3] = [(Tag::Owner, 6), (Tag::OwningGroup, 4), (Tag::Other, 0)];

    #[test]
    fn a_list_round_trips_and_corresponds_to_a_mode() {
        let list = acl(&[BASE[0], (Tag::User(7), 6), BASE[1], (Tag::Group(9), 2), (Tag::Mask, 6), BASE[2]]);
        assert_eq!(Acl::decode(&list.encode()), Ok(list.clone()));
        assert_eq!(list.mode(), Mode::new(0o660));
        assert_eq!(list.with_mode(Mode::new(0o704)).mode(), Mode::new(0o704));
        assert_eq!(list.child_mode(Mode::new(0o777)), Mode::new(0o660));
    }

    #[test]
    fn a_list_without_its_three_classes_or_its_mask_is_invalid() {
        let no_mask = acl(&[BASE[0], (Tag::User(7), 6), BASE[1], BASE[2]]);
        assert_eq!(Acl::decode(&no_mask.encode()), Err(Error::Invalid));
        assert_eq!(Acl::decode(&acl(&BASE[..2]).encode()), Err(Error::Invalid));
        let mut cut = acl(&BASE).encode();
        cut.pop();
        assert_eq!(Acl::decode(&cut), Err(Error::Invalid));
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), Err(Error::Invalid));
    }

    #[test]
    fn the_mask_limits_named_users_and_groups_but_not_the_owner_and_the_others() {
        let list = acl(&[(Tag::Owner, 7), (Tag::User(7), 7), BASE[1], (Tag::Mask, 4), (Tag::Other, 1)]);
        assert!(list.grants(&user(1, 1), 1, 2, AccessRequest::all()));
        assert!(list.grants(&user(7, 1), 1, 2, AccessRequest::READ));
        assert!(!list.grants(&user(7, 1), 1, 2, AccessRequest::WRITE));
        assert!(list.grants(&user(8, 8), 1, 2, AccessRequest::EXEC));
    }

    #[test]
    fn permissions_of_several_groups_do_not_add_up() {
        let list =
            acl(&[BASE[0], (Tag::OwningGroup, 4), (Tag::Group(9), 2), (Tag::Mask, 7), (Tag::Other, 7)]);
        let caller = Caller::User { uid: 5, gid: 2, groups: vec![9] };
        assert!(
            list.grants(&caller, 1, 2, AccessRequest::READ)
                && list.grants(&caller, 1, 2, AccessRequest::WRITE)
        );
        assert!(!list.grants(&caller, 1, 2, AccessRequest::READ | AccessRequest::WRITE));
        assert!(
            !list.grants(&caller, 1, 2, AccessRequest::EXEC),
            "who is in a group is not one of the others"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_that_are_a_list_round_trip(
            entries in proptest::collection::vec((0..0x30_u16, 0..9_u16, 0..3_u32), 0..8),
            cut in 0..9_usize,
        ) {
            let mut bytes = VERSION.to_le_bytes().to_vec();
            for (tag, perm, id) in entries {
                bytes.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
                bytes.extend(id.to_le_bytes());
            }
            bytes.truncate(bytes.len() - cut.min(bytes.len()).saturating_sub(5));
            if let Ok(list) = Acl::decode(&bytes) {
                let list_again = Acl::decode(&list.encode());
                proptest::prop_assert_eq!(list_again.as_ref(), Ok(&list));
                proptest::prop_assert_eq!(list.with_mode(list.mode()), list);
            }
        }
    }
}
