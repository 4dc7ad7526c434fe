//! A table of attributes as a value: decoded from an area, changed, and encoded.
//!
//! Layout: as in [`super`]. Entries of a block are sorted by name space, length and bytes of the name, since Linux
//! ends a search at the first greater name. The entries of an inode are in order of insertion.
//! Invariant: a table that [`Table::with`] returned fits its area.
//! Source: Linux fs/ext4/xattr.c `ext4_xattr_set_entry`, `xattr_find_entry`.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{IntoBytes, to_u64};

use super::MAGIC;
use super::area::AttributeArea;
use super::hash::{block_hash, entry_hash, words};
use super::name::StoredName;
use crate::raw::{RawXattrEntry, RawXattrHeader};

/// Size of the zeros that end a table.
const END: usize = 4;

/// The place of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// After an inode's fields.
    Inode,
    /// In a block of its own.
    Block,
}

impl Form {
    /// Returns the number of bytes before the first entry.
    pub(super) fn header(self) -> usize {
        match self {
            Self::Inode => size_of_val(&MAGIC),
            Self::Block => size_of::<RawXattrHeader>(),
        }
    }

    /// Returns the offset in the area from which value offsets count.
    fn base(self) -> usize {
        match self {
            Self::Inode => self.header(),
            Self::Block => 0,
        }
    }
}

/// The value of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    /// Beside its entry.
    Here(&'a [u8]),
    /// In an inode of its own.
    Inode {
        /// `e_value_inum`.
        ino: u32,
        /// `e_value_size`.
        size: u32,
        /// `e_hash`, which includes the hash in that inode.
        hash: u32,
    },
}

impl Value<'_> {
    /// Returns the size of the value in the table's area.
    fn room(&self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len().next_multiple_of(4),
            Self::Inode { .. } => 0,
        }
    }

    fn size(&self) -> u32 {
        match self {
            // Limited by the area.
            Self::Here(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Inode { size, .. } => *size,
        }
    }
}

/// One attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Attribute<'a> {
    pub(super) name: StoredName<'a>,
    pub(super) value: Value<'a>,
}

impl Attribute<'_> {
    fn entry_len(&self) -> usize {
        size_of::<RawXattrEntry>().saturating_add(self.name.rest.len().next_multiple_of(4))
    }

    fn room(&self) -> usize {
        self.entry_len().saturating_add(self.value.room())
    }

    /// Returns the hash of the attribute. In inodes, Linux leaves the hash of values 0, since these are not shared.
    fn hash(&self, form: Form) -> u32 {
        match (self.value, form) {
            (Value::Inode { hash, .. }, _) => hash,
            (Value::Here(value), Form::Block) => entry_hash(self.name.rest, words(value)),
            (Value::Here(_), Form::Inode) => 0,
        }
    }
}

/// Returns the order of entries in a block.
fn sort_key<'a>(name: &StoredName<'a>) -> (u8, usize, &'a [u8]) {
    (name.index, name.rest.len(), name.rest)
}

/// A table of attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Table<'a> {
    form: Form,
    /// Size of the area in bytes, including the part before the first entry.
    len: usize,
    attributes: Vec<Attribute<'a>>,
}

impl<'a> Table<'a> {
    /// Creates a table without attributes, in an area of `len` bytes.
    pub(super) fn empty(form: Form, len: usize) -> Self {
        Self { form, len, attributes: Vec::new() }
    }

    /// Decodes `area`, which has `len` bytes with its header. Fails with `Corrupt` or `NoMemory`.
    pub(super) fn decode(form: Form, len: usize, area: &AttributeArea<'a>) -> Result<Self> {
        let mut this = Self::empty(form, len);
        for entry in area.entries() {
            let entry = entry?;
            let name = StoredName { index: entry.raw.e_name_index, rest: entry.name };
            let value = match entry.raw.e_value_inum.get() {
                0 => Value::Here(area.value(&entry)?),
                ino => Value::Inode { ino, size: entry.raw.e_value_size.get(), hash: entry.raw.e_hash.get() },
            };
            this.attributes.try_reserve(1)?;
            this.attributes.push(Attribute { name, value });
        }
        Ok(this)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// Returns the value of `name`.
    pub(super) fn get(&self, name: &StoredName<'_>) -> Option<Value<'a>> {
        self.attributes.iter().find(|held| held.name == *name).map(|held| held.value)
    }

    /// Returns the inodes that contain values of this table, with the hashes of their entries.
    pub(super) fn value_inodes(&self) -> impl Iterator<Item = (u32, u32)> {
        self.attributes.iter().filter_map(|held| match held.value {
            Value::Inode { ino, hash, .. } => Some((ino, hash)),
            Value::Here(_) => None,
        })
    }

    /// Returns the table without `name`.
    pub(super) fn without(mut self, name: &StoredName<'_>) -> Self {
        self.attributes.retain(|held| held.name != *name);
        self
    }

    /// Returns the table with `name` set to `value`. Returns `None` if the value does not fit. Also returns `None` if a
    /// new value beside its entry would overlap the first `reserve` bytes of the area, which are for names.
    pub(super) fn with(mut self, name: StoredName<'a>, value: Value<'a>, reserve: usize) -> Option<Self> {
        let attribute = Attribute { name, value };
        let before = match self.attributes.iter_mut().find(|held| held.name == name) {
            Some(held) => core::mem::replace(held, attribute).value.room(),
            None => {
                self.insert(attribute)?;
                0
            }
        };
        let crowds_names = value.room() != 0 && value.room() != before && self.values_start() < reserve;
        (self.room_left().is_some() && !crowds_names).then_some(self)
    }

    /// Sets the inode of the value that was added without one.
    pub(super) fn name_value_inode(&mut self, inum: u32) {
        for held in &mut self.attributes {
            if let Value::Inode { ino: ino @ 0, .. } = &mut held.value {
                *ino = inum;
            }
        }
    }

    fn insert(&mut self, attribute: Attribute<'a>) -> Option<()> {
        let key = sort_key(&attribute.name);
        let at = match self.form {
            Form::Inode => None,
            Form::Block => self.attributes.iter().position(|held| sort_key(&held.name) > key),
        };
        self.attributes.try_reserve(1).ok()?;
        self.attributes.insert(at.unwrap_or(self.attributes.len()), attribute);
        Some(())
    }

    fn values_start(&self) -> usize {
        self.len.saturating_sub(self.attributes.iter().map(|held| held.value.room()).sum())
    }

    /// Returns the number of bytes between the entries and the values, or `None` if they overlap.
    pub(super) fn room_left(&self) -> Option<usize> {
        let used = self.attributes.iter().map(Attribute::room).fold(0, usize::saturating_add);
        self.len.checked_sub(self.form.header().saturating_add(END))?.checked_sub(used)
    }

    /// Returns the hash by which equal blocks are found; 0 if this block must not be shared.
    pub(super) fn hash(&self) -> u32 {
        block_hash(self.attributes.iter().map(|held| held.hash(self.form)))
    }

    /// Writes the table to `area`, which has the size of the table's area. The caller writes the header of a block.
    /// Returns `None` if the table does not fit.
    pub(super) fn encode(&self, area: &mut [u8]) -> Option<()> {
        area.fill(0);
        if self.form == Form::Inode && !self.is_empty() {
            area.first_chunk_mut().map(|magic| *magic = MAGIC.to_le_bytes())?;
        }
        let (mut at, mut top) = (self.form.header(), area.len());
        for held in &self.attributes {
            top = top.checked_sub(held.value.room())?;
            if let Value::Here(value) = held.value {
                area.get_mut(top..)?.get_mut(..value.len())?.copy_from_slice(value);
            }
            let entry = self.raw_entry(held, top)?;
            let (head, rest) = area.get_mut(at..)?.split_at_mut_checked(size_of::<RawXattrEntry>())?;
            head.copy_from_slice(entry.as_bytes());
            rest.get_mut(..held.name.rest.len())?.copy_from_slice(held.name.rest);
            at = at.checked_add(held.entry_len())?;
        }
        (at.checked_add(END)? <= top).then_some(())
    }

    /// Returns the entry of `held`, whose value, if it is in the area, is at byte `at`.
    fn raw_entry(&self, held: &Attribute<'_>, at: usize) -> Option<RawXattrEntry> {
        let offset = if held.value.room() == 0 { 0 } else { at.checked_sub(self.form.base())? };
        let inum = match held.value {
            Value::Here(_) => 0,
            Value::Inode { ino, .. } => ino,
        };
        Some(RawXattrEntry {
            e_name_len: u8::try_from(held.name.rest.len()).ok()?,
            e_name_index: held.name.index,
            // Offsets have 16 bits, which suffice even for the last value of a block of 64 KiB.
            e_value_offs: u16::try_from(to_u64(offset)).ok()?.into(),
            e_value_inum: inum.into(),
            e_value_size: held.value.size().into(),
            e_hash: held.hash(self.form).into(),
        })
    }
}
