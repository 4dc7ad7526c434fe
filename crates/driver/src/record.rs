//! Construction of the records of [`Inspect`](crate::Inspect) from raw structures.

use alloc::string::String;
use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, be, le, to_u64};

use crate::{Field, FieldValue, Record};

/// A field of a raw structure, which can be converted to a displayable value.
pub trait RawField {
    /// Returns the field as a number; 0 for an array.
    fn number(&self) -> u64;
    /// Returns the field as bytes. An integer is converted to big-endian; an array keeps its byte order.
    fn bytes(&self) -> Vec<u8>;
}

macro_rules! raw_integers {
    ($($type:ty)*) => { $(
        impl RawField for $type {
            fn number(&self) -> u64 { self.get().into() }
            fn bytes(&self) -> Vec<u8> { self.get().to_be_bytes().to_vec() }
        }
    )* };
}
raw_integers!(le::U16 le::U32 le::U64 be::U16 be::U32 be::U64);

impl RawField for u8 {
    fn number(&self) -> u64 {
        (*self).into()
    }
    fn bytes(&self) -> Vec<u8> {
        Vec::from([*self])
    }
}

impl<const N: usize> RawField for [u8; N] {
    fn number(&self) -> u64 {
        0
    }
    fn bytes(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl<const N: usize> RawField for [le::U32; N] {
    fn number(&self) -> u64 {
        0
    }
    fn bytes(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

/// A record under construction, for a structure at a known offset of the volume.
pub struct Builder {
    record: Record,
    start: u64,
}

impl Builder {
    /// Starts a record of the kind `kind`, for the structure at byte `start` of the volume. `depth` is the
    /// nesting depth ([`Record::depth`]).
    pub fn new(kind: &'static str, depth: u8, start: u64) -> Self {
        Self { record: Record { kind, depth, fields: Vec::new() }, start }
    }

    /// Adds a field of `len` bytes at byte `offset` of the structure.
    pub fn add(&mut self, name: &'static str, offset: usize, len: usize, value: FieldValue) -> &mut Self {
        let offset = self.start.saturating_add(to_u64(offset));
        self.record.fields.push(Field { name, offset, len: u32::try_from(len).unwrap_or(u32::MAX), value });
        self
    }

    /// Adds a number.
    pub fn number(&mut self, name: &'static str, offset: usize, len: usize, value: u64) -> &mut Self {
        self.add(name, offset, len, FieldValue::Number(value))
    }

    /// Adds a number that is displayed in hexadecimal.
    pub fn hex(&mut self, name: &'static str, offset: usize, len: usize, value: u64) -> &mut Self {
        self.add(name, offset, len, FieldValue::Hex(value))
    }

    /// Adds a text.
    pub fn text(
        &mut self,
        name: &'static str,
        offset: usize,
        len: usize,
        value: impl Into<String>,
    ) -> &mut Self {
        self.add(name, offset, len, FieldValue::Text(value.into()))
    }

    /// Returns the record and replaces it with an empty record.
    pub fn finish(&mut self) -> Record {
        core::mem::replace(&mut self.record, Record { kind: "", depth: 0, fields: Vec::new() })
    }
}

/// Adds fields of a raw structure to a builder, by name: `fields!(builder, raw, RawX { a: Number, b: Hex,
/// c: Bytes })`.
#[macro_export]
macro_rules! fields {
    ($builder:expr, $raw:expr, $type:ty { $($field:ident : $kind:ident),* $(,)? }) => { $(
        $builder.add(
            stringify!($field),
            core::mem::offset_of!($type, $field),
            size_of_val(&$raw.$field),
            $crate::field_value!($kind, $raw.$field),
        );
    )* };
}

/// Converts a raw field to a value of a kind, for [`fields!`](crate::fields).
#[doc(hidden)]
#[macro_export]
macro_rules! field_value {
    (Bytes, $field:expr) => {
        $crate::FieldValue::Bytes($crate::record::RawField::bytes(&$field))
    };
    ($kind:ident, $field:expr) => {
        $crate::FieldValue::$kind($crate::record::RawField::number(&$field))
    };
}
