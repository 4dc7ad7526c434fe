//! Attribute lists: where the attributes are of a file that has several records.
//!
//! Source: linux-ntfs documentation, "$ATTRIBUTE_LIST"; libfsntfs documentation, "The attribute list".

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};

use crate::layout::bytes::slice;

/// Windows limits an attribute list to this many bytes.
pub const LEN_MAX: u64 = 256 << 10;

/// The fixed part of an entry of an attribute list.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawListEntry {
    /// 0
    pub kind: le::U32,
    /// 4: bytes of the entry.
    pub length: le::U16,
    /// 6: units of the name.
    pub name_length: u8,
    /// 7
    pub name_offset: u8,
    /// 8: first cluster of the value that the part describes.
    pub lowest_vcn: le::U64,
    /// 16: reference of the record that contains the attribute.
    pub reference: le::U64,
    /// 24
    pub instance: le::U16,
}
const _: () = assert!(size_of::<RawListEntry>() == 26);

/// Returns the entries of a list; `None` in place of an entry that does not fit, after which the list ends.
pub fn entries(list: &[u8]) -> impl Iterator<Item = Option<RawListEntry>> + '_ {
    let mut at = Some(0_usize);
    core::iter::from_fn(move || {
        let start = at.filter(|&start| start < list.len())?;
        let entry = slice(list, start, size_of::<RawListEntry>());
        let entry = entry.and_then(|bytes| RawListEntry::read_from_bytes(bytes).ok());
        let entry = entry.filter(|entry| usize::from(entry.length.get()) >= size_of::<RawListEntry>());
        at = entry.and_then(|entry| start.checked_add(entry.length.get().into()));
        Some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_with_an_entry_that_does_not_fit() {
        let mut list = [0; 64];
        list[0] = 0x80;
        list[4] = 32;
        list[16] = 40;
        let found: std::vec::Vec<_> = entries(&list)
            .map(|entry| entry.map(|entry| (entry.kind.get(), entry.reference.get())))
            .collect();
        assert_eq!(found, [Some((0x80, 40)), None]);
        assert_eq!(entries(&[]).count(), 0);
        assert!(entries(&[1; 3]).eq_by_none());
    }

    trait EqByNone {
        fn eq_by_none(self) -> bool;
    }
    impl<I: Iterator<Item = Option<RawListEntry>>> EqByNone for I {
        fn eq_by_none(mut self) -> bool {
            matches!(self.next(), Some(None)) && self.next().is_none()
        }
    }
}
