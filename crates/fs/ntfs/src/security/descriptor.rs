//! Security descriptors and their permissions.
//!
//! Source: MS-DTYP 2.4.2 "SID", 2.4.4 "ACE", 2.4.5 "ACL", 2.4.6 "SECURITY_DESCRIPTOR".

use obento_base::wire::to_usize;

use crate::layout::bytes::{slice, u16_at, u32_at};

/// A security descriptor, self-relative.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// SID of the owner.
    pub owner: Option<&'a [u8]>,
    /// SID of the group.
    pub group: Option<&'a [u8]>,
    /// Discretionary list; `None` grants everything.
    acl: Option<&'a [u8]>,
}

/// Returns the SID at `at`.
fn sid(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let count = usize::from(*bytes.get(at.checked_add(1)?)?);
    slice(bytes, at, count.checked_mul(4)?.checked_add(8)?).filter(|sid| sid.first() == Some(&1))
}

/// Everyone, S-1-1-0.
const EVERYONE: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
/// Authenticated users, S-1-5-11.
const AUTHENTICATED: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 5, 11, 0, 0, 0];
/// Users, S-1-5-32-545.
const USERS: &[u8] = &[1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x21, 2, 0, 0];

/// The entry is for new children alone.
const INHERIT_ONLY: u8 = 8;
/// Rights that mean reading, writing and executing (MS-DTYP 2.4.3, MS-SMB2 2.2.13.1).
const RIGHTS: [(u32, u16); 3] = [(0x9000_0001, 4), (0x5000_0002, 2), (0x3000_0020, 1)];

impl<'a> Descriptor<'a> {
    /// Decodes a descriptor. `None` if it is damaged.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let control = u16_at(bytes, 2)?;
        let part = |at| u32_at(bytes, at).map(|at| to_usize(at.into())).filter(|&at| at >= 20);
        let acl = match part(16).filter(|_| control & 4 != 0) {
            Some(at) => Some(slice(bytes, at, u16_at(bytes, at.checked_add(2)?)?.into())?),
            None => None,
        };
        let sid_at = |at| part(at).and_then(|at| sid(bytes, at));
        Some(Self { owner: sid_at(4), group: sid_at(8), acl })
    }

    /// Returns the permission bits that the list grants to the owner, the group and all others.
    pub fn permissions(&self) -> u16 {
        let Some(acl) = self.acl else { return 0o777 };
        let mut found = 0;
        for (shift, own) in [(6, self.owner), (3, self.group), (0, None)] {
            // The group of a descriptor is often the owner as well; the owner's class has the rights of both.
            let also = if shift == 6 { self.group } else { None };
            found |= class(acl, own, also) << shift;
        }
        found
    }
}

/// Returns the rights of the members of a class. The first entry decides about each right.
fn class(acl: &[u8], own: Option<&[u8]>, also: Option<&[u8]>) -> u16 {
    let (mut allowed, mut denied) = (0, 0);
    let (count, mut at) = (u16_at(acl, 4).unwrap_or(0), 8_usize);
    for _ in 0..count {
        let Some((kind, flags, size)) = acl
            .get(at)
            .zip(acl.get(at.saturating_add(1)))
            .zip(u16_at(acl, at.saturating_add(2)))
            .map(|((kind, flags), size)| (*kind, *flags, usize::from(size)))
        else {
            break;
        };
        let Some(entry) = slice(acl, at, size).filter(|_| size >= 8) else { break };
        at = at.saturating_add(size);
        let (Some(who), Some(mask)) = (sid(entry, 8), u32_at(entry, 4)) else { continue };
        let is_all = [EVERYONE, AUTHENTICATED, USERS].contains(&who);
        let applies = is_all || own == Some(who) || also == Some(who);
        if flags & INHERIT_ONLY != 0 || !applies {
            continue;
        }
        let rights = RIGHTS.iter().filter(|(right, _)| mask & right != 0).fold(0, |sum, (_, bit)| sum | bit);
        match kind {
            0 => allowed |= rights & !denied,
            1 => denied |= rights & !allowed,
            _ => {}
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const OWNER: &[u8] = &[1, 2, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0, 0xe8, 3, 0, 0];
    const GROUP: &[u8] = &[1, 2, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0, 0xe9, 3, 0, 0];

    fn descriptor(entries: &[(u8, u8, u32, &[u8])]) -> Vec<u8> {
        let mut acl = Vec::new();
        for (kind, flags, mask, who) in entries {
            acl.extend([*kind, *flags]);
            acl.extend((8 + who.len() as u16).to_le_bytes());
            acl.extend(mask.to_le_bytes());
            acl.extend(*who);
        }
        let mut bytes = std::vec![1, 0, 4, 0x80, 20, 0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 0, 52, 0, 0, 0];
        bytes.extend(OWNER);
        bytes.extend(GROUP);
        bytes.extend([2, 0]);
        bytes.extend((8 + acl.len() as u16).to_le_bytes());
        bytes.extend((entries.len() as u16).to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(acl);
        bytes
    }

    #[test]
    fn entries_become_the_bits_of_their_classes() {
        let bytes = descriptor(&[
            (0, 0, 0x1f01ff, OWNER),
            (0, 0, 0x1200a9, GROUP),
            (0, 0, 0x120089, EVERYONE),
            (0, INHERIT_ONLY, 0x1f01ff, EVERYONE),
        ]);
        let found = Descriptor::decode(&bytes).unwrap();
        assert_eq!((found.owner, found.group), (Some(OWNER), Some(GROUP)));
        assert_eq!(found.permissions(), 0o754);
    }

    #[test]
    fn the_first_entry_decides_about_a_right() {
        let bytes = descriptor(&[(1, 0, 2, OWNER), (0, 0, 0x1f01ff, EVERYONE), (1, 0, 4, EVERYONE)]);
        assert_eq!(Descriptor::decode(&bytes).unwrap().permissions(), 0o577);
        let none = descriptor(&[]);
        assert_eq!(Descriptor::decode(&none).unwrap().permissions(), 0);
    }

    #[test]
    fn damaged_descriptors_grant_nothing_that_they_do_not_contain() {
        let bytes = descriptor(&[(0, 0, 0x1f01ff, EVERYONE)]);
        for len in 0..bytes.len() {
            let _ = Descriptor::decode(&bytes[..len]).map(|found| found.permissions());
        }
    }
}
