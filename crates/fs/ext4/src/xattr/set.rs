//! Encoding all attributes of a new inode at once.
//!
//! Invariant: files with equal attributes have equal sets, so that they share one encoding. Equal values in inodes of
//! their own are one value.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::Error;
use obento_base::wire::{FromBytes as _, to_usize};
use obento_driver::XattrMode;
use obento_driver::tree::XattrPair;

use super::block::{self, USERS_MAX};
use super::name::StoredName;
use super::plan::{Tables, ValueInodes};
use super::table::{Form, Table};
use crate::acl;
use crate::checksum::Crc;
use crate::raw::RawXattrEntry;
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

/// `XATTR_SIZE_MAX` of Linux include/uapi/linux/limits.h: maximum size of a value that a kernel returns.
const READABLE: usize = 64 << 10;

/// The encoded attributes of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AttributeSet {
    /// The bytes after the inode's fields; may be empty.
    pub(crate) inside: Vec<u8>,
    /// The block, with one user and no checksum.
    pub(crate) block: Option<Vec<u8>>,
    /// Indices into [`LargeValues`] of the values that the inode refers to, with repetitions.
    pub(crate) named_inside: Vec<usize>,
    /// Indices of the values that the block refers to.
    pub(crate) named_in_block: Vec<usize>,
}

/// A value in an inode of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LargeValue {
    pub(crate) bytes: Box<[u8]>,
    /// The hash in its inode.
    pub(crate) hash: u32,
}

/// The values of a tree that are in inodes of their own, equal ones once.
#[derive(Default)]
pub(crate) struct LargeValues {
    seed: u32,
    pub(crate) all: Vec<LargeValue>,
    known: BTreeMap<u32, Vec<usize>>,
}

impl LargeValues {
    /// Creates an empty list, for a volume whose checksums begin with `seed`.
    pub(crate) fn new(seed: u32) -> Self {
        Self { seed, ..Self::default() }
    }

    fn hash(&self, value: &[u8]) -> u32 {
        Crc::new(self.seed).add(value).get()
    }

    /// Adds `value`, unless it is present, and returns its index.
    fn add(&mut self, value: &[u8], hash: u32) -> usize {
        let known = self.known.entry(hash).or_default();
        let is_it = |at: &&usize| self.all.get(**at).is_some_and(|held| *held.bytes == *value);
        if let Some(&at) = known.iter().find(is_it) {
            return at;
        }
        let at = self.all.len();
        known.push(at);
        self.all.push(LargeValue { bytes: value.into(), hash });
        at
    }
}

/// The reason why attributes cannot be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetError {
    /// A name space without a handler in Linux, a name that is too long, or an invalid access control list.
    Name,
    /// The attributes exceed the space of the inode and a block, or a value is too long for Linux.
    TooLarge,
}

impl AttributeSet {
    /// Encodes `list` for inodes with `room` bytes after their fields. With `ea_inode`, a value that is too long for a
    /// block is added to `large`. Its index there takes the place of its inode until [`Self::name_values`].
    pub(crate) fn new(
        list: &[XattrPair],
        room: usize,
        block_size: usize,
        mut large: Option<&mut LargeValues>,
    ) -> Result<Self, SetError> {
        let mut stored = Vec::new();
        for (name, value) in list {
            let name = StoredName::parse(name).map_err(|_| SetError::Name)?;
            name.expect_short().map_err(|_| SetError::Name)?;
            let value = match name.is_acl() {
                true => acl::from_xattr(value).map_err(|_| SetError::Name)?,
                false => value.to_vec(),
            };
            stored.push((name, value));
        }
        let inode = (room > Form::Inode.header()).then(|| Table::empty(Form::Inode, room));
        let mut tables = Tables { inode, block: Table::empty(Form::Block, block_size) };
        for (name, value) in &stored {
            if value.len() > READABLE {
                return Err(SetError::TooLarge);
            }
            let own = match &large {
                Some(large) => ValueInodes::Allowed { hash: large.hash(value) },
                None => ValueInodes::Never,
            };
            let plan = tables.plan_set(*name, value, XattrMode::Set, own, block_size);
            let Some(mut plan) = plan.map_err(|_: Error| SetError::TooLarge)? else { continue };
            if let (true, Some(large), ValueInodes::Allowed { hash }) = (plan.wants_inode, &mut large, own) {
                plan.name_value_inode(number_of(large.add(value, hash)));
            }
            tables = plan.tables;
        }
        let named_inside = tables.inode.as_ref().map(places).unwrap_or_default();
        let named_in_block = places(&tables.block);
        let mut inside = Vec::new();
        if let Some(table) = tables.inode.filter(|table| !table.is_empty()) {
            inside.resize(room, 0);
            table.encode(&mut inside).ok_or(SetError::TooLarge)?;
        }
        let block = match tables.block.is_empty() {
            true => None,
            false => Some(block::encode(&tables.block, block_size).map_err(|_| SetError::TooLarge)?),
        };
        Ok(Self { inside, block, named_inside, named_in_block })
    }

    /// Returns the indices of values in inodes of their own, with repetitions.
    pub(crate) fn named(&self) -> impl Iterator<Item = usize> {
        self.named_inside.iter().chain(&self.named_in_block).copied()
    }

    /// Sets the inodes of values. `first` is the inode of the very first value. Callers must call this once.
    pub(crate) fn name_values(&mut self, first: u32) {
        if !self.named_inside.is_empty() {
            name_values(&mut self.inside, Form::Inode, first);
        }
        if let Some(block) = self.block.as_mut().filter(|_| !self.named_in_block.is_empty()) {
            name_values(block, Form::Block, first);
        }
    }

    /// Returns the block for `users` files at `number`.
    pub(crate) fn block_at(&self, number: VolBlock, users: u32, sb: &SuperBlock) -> Vec<u8> {
        let mut bytes = self.block.clone().unwrap_or_default();
        block::set_users(&mut bytes, users.min(USERS_MAX));
        if sb.has_metadata_csum() {
            block::set_checksum(&mut bytes, number, sb.checksum_seed);
        }
        bytes
    }
}

/// Returns the number that represents the inode of the value at index `at`. It is not 0, which means no inode.
fn number_of(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1)
}

/// Returns the indices of the values that `table` refers to.
fn places(table: &Table<'_>) -> Vec<usize> {
    table.value_inodes().map(|(number, _)| to_usize(number.saturating_sub(1).into())).collect()
}

/// Replaces index 0 by inode `first`, and so on.
fn name_values(bytes: &mut [u8], form: Form, first: u32) {
    let mut at = form.header();
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.first_chunk() != Some(&[0; 4])) {
        let Ok((entry, _)) = RawXattrEntry::mut_from_prefix(rest) else { return };
        let number = entry.e_value_inum.get();
        if number != 0 {
            entry.e_value_inum.set(number.saturating_sub(1).saturating_add(first));
        }
        let name = usize::from(entry.e_name_len).next_multiple_of(4);
        at = at.saturating_add(size_of::<RawXattrEntry>()).saturating_add(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, &[u8])]) -> Vec<XattrPair> {
        pairs.iter().map(|(name, value)| (name.as_bytes().into(), (*value).into())).collect()
    }

    #[test]
    fn attributes_that_fit_are_stored_in_the_inode_and_the_rest_in_a_block() {
        let small = AttributeSet::new(&list(&[("user.a", b"1")]), 96, 1024, None).unwrap();
        assert!(small.block.is_none() && small.inside.len() == 96);
        let both =
            AttributeSet::new(&list(&[("user.a", &[7; 300]), ("user.b", b"2")]), 96, 1024, None).unwrap();
        assert!(both.block.is_some() && !both.inside.is_empty());
        let old = AttributeSet::new(&list(&[("user.a", b"1")]), 0, 1024, None).unwrap();
        assert!(old.block.is_some() && old.inside.is_empty());
    }

    #[test]
    fn values_that_cannot_be_stored_are_refused() {
        let new = |pairs| AttributeSet::new(&list(pairs), 96, 1024, None);
        assert_eq!(new(&[("nowhere.a", b"1")]), Err(SetError::Name));
        assert_eq!(new(&[("system.posix_acl_access", b"no list")]), Err(SetError::Name));
        assert_eq!(new(&[("user.a", &[1; 1000])]), Err(SetError::TooLarge));
        assert_eq!(AttributeSet::default(), AttributeSet::new(&[], 96, 1024, None).unwrap());
    }

    #[test]
    fn values_that_are_too_long_for_a_block_are_named_and_equal_ones_are_one() {
        let mut large = LargeValues::new(7);
        let pairs = list(&[("user.a", &[1; 2000]), ("user.b", &[2; 2000]), ("user.c", &[1; 2000])]);
        let mut set = AttributeSet::new(&pairs, 96, 1024, Some(&mut large)).unwrap();
        assert_eq!((large.all.len(), set.named().collect::<Vec<_>>()), (2, [0, 1, 0].into()));
        set.name_values(100);
        let numbers = |bytes: &[u8], start: usize| -> Vec<u32> {
            bytes[start..]
                .chunks(20)
                .map(|entry| u32::from_le_bytes(entry[4..8].try_into().unwrap()))
                .collect()
        };
        assert_eq!(numbers(&set.inside[..64], 4), [100, 101, 100]);
        let long = list(&[("user.a", &[1; READABLE + 1])]);
        assert_eq!(AttributeSet::new(&long, 96, 1024, Some(&mut large)), Err(SetError::TooLarge));
    }
}
