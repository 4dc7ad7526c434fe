//! A table of attributes with its values, in an inode or in a block.
//!
//! Invariant: everything that is returned is within the area. A walk ends, since each entry has at least 16 bytes.

use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result, Structure};
use zerocopy::FromBytes;

use super::hash::{entry_hash, signed_entry_hash};
use super::name::{INLINE_DATA, SYSTEM, is_listed, prefix};
use crate::raw::RawXattrEntry;

/// `EXT4_XATTR_SIZE_MAX`: maximum size of a value with `ea_inode`.
pub(crate) const VALUE_MAX: u32 = 1 << 24;

/// A table of attributes with its values.
pub(crate) struct AttributeArea<'a> {
    pub(crate) ino: Ino,
    /// For error messages: the block, and the offset in it from which offsets are counted.
    pub(crate) block: u64,
    pub(crate) base: u32,
    /// The bytes from the origin of value offsets to the end.
    pub(crate) bytes: &'a [u8],
    /// Byte offset of the first entry.
    pub(crate) table: usize,
}

/// An entry whose name is within its area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeEntry<'a> {
    pub(crate) offset: usize,
    pub(crate) raw: &'a RawXattrEntry,
    pub(crate) name: &'a [u8],
}

impl AttributeEntry<'_> {
    pub(crate) fn has_name(&self, wanted: &[u8]) -> bool {
        let index = self.raw.e_name_index;
        if index == SYSTEM && self.name == INLINE_DATA {
            return false;
        }
        prefix(index).and_then(|prefix| wanted.strip_prefix(prefix)) == Some(self.name)
    }
}

impl<'a> AttributeArea<'a> {
    /// Returns the entries in their order; an error is the last item.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Result<AttributeEntry<'a>>> {
        let mut next = Some(self.table);
        core::iter::from_fn(move || {
            let entry = self.entry(next.take()?)?;
            next = entry.as_ref().ok().and_then(|entry| entry.end());
            Some(entry)
        })
    }

    /// Returns the entry at `offset`, or `None` at the end of the table.
    fn entry(&self, offset: usize) -> Option<Result<AttributeEntry<'a>>> {
        let bytes = self.bytes.get(offset..)?;
        if bytes.first_chunk().is_none_or(|end| *end == [0; 4]) {
            return None;
        }
        let Ok((raw, rest)) = RawXattrEntry::ref_from_prefix(bytes) else {
            return Some(Err(self.truncated(offset, size_of::<RawXattrEntry>())));
        };
        let Some(name) = rest.get(..usize::from(raw.e_name_len)) else {
            return Some(Err(self.truncated(offset, usize::from(raw.e_name_len).saturating_add(16))));
        };
        let entry = AttributeEntry { offset, raw, name };
        if name.contains(&0) {
            return Some(Err(self.bad_field(&entry, "e_name", u64::from(raw.e_name_len))));
        }
        Some(Ok(entry))
    }

    pub(crate) fn find(
        &self,
        is_wanted: impl Fn(&AttributeEntry<'_>) -> bool,
    ) -> Result<Option<AttributeEntry<'a>>> {
        for entry in self.entries() {
            let entry = entry?;
            if is_wanted(&entry) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    pub(crate) fn list(&self, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut full = Vec::new();
        for entry in self.entries() {
            let entry = entry?;
            if let Some(prefix) = prefix(entry.raw.e_name_index).filter(|_| is_listed(entry.raw.e_name_index))
            {
                full.clear();
                full.try_reserve(prefix.len().saturating_add(entry.name.len()))?;
                full.extend_from_slice(prefix);
                full.extend_from_slice(entry.name);
                sink(&full);
            }
        }
        Ok(())
    }

    /// Returns the value of `entry`, which is in this area, after the table.
    pub(crate) fn value(&self, entry: &AttributeEntry<'_>) -> Result<&'a [u8]> {
        let (offset, size) = (entry.raw.e_value_offs.get(), entry.raw.e_value_size.get());
        if size > VALUE_MAX {
            return Err(self.bad_field(entry, "e_value_size", size.into()));
        }
        if size == 0 {
            return Ok(&[]);
        }
        let start = usize::from(offset);
        let value = self.bytes.get(start..start.saturating_add(to_usize(size.into())));
        let end = self.entries().filter_map(|entry| entry.ok()?.end()).last();
        if end.is_some_and(|end| start < end) {
            return Err(self.bad_field(entry, "e_value_offs", offset.into()));
        }
        value.ok_or_else(|| self.bad_field(entry, "e_value_size", size.into()))
    }

    /// Compares `e_hash` with the hash of name and value. 0 was once written for attributes in inodes.
    pub(crate) fn check_hash(
        &self,
        entry: &AttributeEntry<'_>,
        value: impl Iterator<Item = u32> + Clone,
    ) -> Result<()> {
        let found = entry.raw.e_hash.get();
        let expected = entry_hash(entry.name, value.clone());
        if found == 0 || found == expected || found == signed_entry_hash(entry.name, value) {
            return Ok(());
        }
        let structure = Structure::Xattr(self.ino);
        Err(Corrupt::Checksum { structure, block: self.block, found, expected }.into())
    }

    fn place(&self, offset: usize) -> u32 {
        self.base.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX))
    }

    fn truncated(&self, offset: usize, len: usize) -> Error {
        let (structure, len) = (Structure::Xattr(self.ino), to_u64(len));
        Corrupt::Truncated { structure, block: self.block, offset: self.place(offset), len }.into()
    }

    pub(crate) fn bad_field(&self, entry: &AttributeEntry<'_>, field: &'static str, found: u64) -> Error {
        let (structure, offset) = (Structure::Xattr(self.ino), self.place(entry.offset));
        Corrupt::Field { structure, field, block: self.block, offset, found }.into()
    }
}

impl AttributeEntry<'_> {
    /// Returns the offset of the next entry.
    fn end(&self) -> Option<usize> {
        let len = usize::from(self.raw.e_name_len).checked_next_multiple_of(4)?;
        self.offset.checked_add(size_of::<RawXattrEntry>())?.checked_add(len)
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::words;
    use super::*;
    use proptest::prelude::*;
    use std::string::String;
    use std::vec;

    /// An attribute: name index, name, value.
    type Attribute<'a> = (u8, &'a [u8], &'a [u8]);

    fn area(bytes: &[u8]) -> AttributeArea<'_> {
        AttributeArea { ino: Ino(12), block: 99, base: 160, bytes, table: 0 }
    }

    fn table(attributes: &[Attribute<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut values = Vec::new();
        for (index, name, value) in attributes {
            let hash = entry_hash(name, words(value));
            values.splice(0..0, [value, &[0; 3][..(4 - value.len() % 4) % 4]].concat());
            let offset = u16::try_from(256 - values.len()).unwrap();
            bytes.extend([u8::try_from(name.len()).unwrap(), *index]);
            bytes.extend(offset.to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
            bytes.extend(hash.to_le_bytes());
            bytes.extend(*name);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes.resize(256 - values.len(), 0);
        bytes.extend(values);
        bytes
    }

    fn sample() -> Vec<u8> {
        table(&[
            (1, b"note", b"hello"),
            (6, b"capability", b"caps"),
            (7, b"data", b"more"),
            (1, b"empty", b""),
        ])
    }

    fn get(bytes: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>> {
        let area = area(bytes);
        let Some(entry) = area.find(|entry| entry.has_name(name))? else { return Ok(None) };
        let value = area.value(&entry)?;
        area.check_hash(&entry, words(value)).map(|()| Some(value.into()))
    }

    fn list(bytes: &[u8]) -> (Vec<String>, Result<()>) {
        let mut names = Vec::new();
        let result = area(bytes).list(&mut |name| names.push(String::from_utf8_lossy(name).into()));
        (names, result)
    }

    fn field(field: &'static str, offset: u32, found: u64) -> Error {
        Corrupt::Field { structure: Structure::Xattr(Ino(12)), field, block: 99, offset, found }.into()
    }

    #[test]
    fn attributes_are_listed_by_full_name_and_inline_data_is_not_listed() {
        let expected = ["user.note", "security.capability", "user.empty"];
        assert_eq!(list(&sample()), (expected.map(String::from).to_vec(), Ok(())));
        assert_eq!(get(&sample(), b"user.note"), Ok(Some(b"hello".to_vec())));
        assert_eq!(get(&sample(), b"user.empty"), Ok(Some(vec![])));
        assert_eq!(get(&sample(), b"user.absent"), Ok(None));
        assert_eq!(get(&sample(), b"system.data"), Ok(None));
    }

    #[test]
    fn name_spaces_without_a_handler_in_linux_are_readable_but_not_listed() {
        let bytes =
            table(&[(7, b"other", b"1"), (8, b"", b"2"), (9, b"c", b"3"), (4, b"t", b"4"), (2, b"", b"5")]);
        let expected = ["trusted.t", "system.posix_acl_access"];
        assert_eq!(list(&bytes).0, expected);
        assert_eq!(get(&bytes, b"system.richacl"), Ok(Some(b"2".to_vec())));
        assert_eq!(get(&bytes, b"system.other"), Ok(Some(b"1".to_vec())));
    }

    #[test]
    fn each_damage_of_an_entry_is_reported_with_its_place() {
        let hash = |found| Corrupt::Checksum {
            structure: Structure::Xattr(Ino(12)),
            block: 99,
            found,
            expected: u32::from_le_bytes(sample()[12..16].try_into().unwrap()),
        };
        let stored = u32::from_le_bytes(sample()[12..16].try_into().unwrap());
        for (at, value, expected) in [
            (2, 8, field("e_value_offs", 160, 8)),
            (9, 1, field("e_value_size", 160, 261)),
            (11, 2, field("e_value_size", 160, (2 << 24) + 5)),
            (17, 0, field("e_name", 160, 4)),
            (12, 0xee, hash(stored & !0xff | 0xee).into()),
        ] {
            let mut bytes = sample();
            bytes[at] = value;
            let seen = get(&bytes, b"user.note").and(area(&bytes).list(&mut |_| {}));
            assert_eq!(seen, Err(expected), "byte {at}");
        }
        let short =
            Corrupt::Truncated { structure: Structure::Xattr(Ino(12)), block: 99, offset: 180, len: 16 };
        assert_eq!(list(&sample()[..32]), (vec!["user.note".into()], Err(short.into())));
    }

    #[test]
    fn hashes_of_old_kernels_with_signed_characters_are_right_too() {
        let mut bytes = table(&[(1, b"na\xefve", b"12345678")]);
        let hash = signed_entry_hash(b"na\xefve", words(b"12345678"));
        assert_ne!(bytes[12..16], hash.to_le_bytes());
        bytes[12..16].copy_from_slice(&hash.to_le_bytes());
        assert_eq!(get(&bytes, b"user.na\xefve"), Ok(Some(b"12345678".to_vec())));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_make_a_table_panic_or_run_on(
            noise in proptest::collection::vec(any::<u8>(), 0..300),
            changes in proptest::collection::vec((0_usize..256, any::<u8>()), 0..9),
            made_well in any::<bool>(),
        ) {
            let mut bytes = if made_well { sample() } else { noise };
            changes.iter().for_each(|&(at, value)| if let Some(byte) = bytes.get_mut(at) { *byte = value });
            for entry in area(&bytes).entries().take(1000).filter_map(Result::ok) {
                let _ = area(&bytes).value(&entry).and_then(|value| area(&bytes).check_hash(&entry, words(value)));
            }
            prop_assert!(area(&bytes).entries().count() <= 20);
            prop_assert!(list(&bytes).0.len() <= 20);
        }
    }
}
