//! Tagged fields. One version of a program encodes its state in such fields, and another version decodes
//! them.
//!
//! A field consists of a tag, a mark of the need for the field ([`Need`]), the length of the value, and the
//! value. Numbers are little-endian. A state consists of a head (magic number, version, length), the fields,
//! and the CRC-32C of the head and the fields.
//!
//! Invariant: decoding never panics. An unknown field that is marked as critical is an error.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use crate::crc::crc32c;
use crate::wire::to_u64;

/// Whether a reader may ignore a field that it does not support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A reader that does not support the field must reject the whole state.
    Critical,
    /// The field can be ignored.
    Optional,
}

/// The size of a tag, the need and a length.
const HEAD: usize = 8;
/// The sizes of the head and of the checksum of a state.
const STATE_HEAD: usize = 16;
const CHECKSUM: usize = 4;

/// The major and the minor version of a state. A reader rejects a state with another major version.
pub type Version = (u16, u16);

/// Fields that are being written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fields(Vec<u8>);

impl Fields {
    /// Returns an empty list with room for `count` fields whose values have `len` bytes in total. Appending
    /// these fields allocates no memory.
    ///
    /// # Errors
    ///
    /// - `NoMemory`: memory is exhausted.
    pub fn with_room(count: usize, len: usize) -> crate::Result<Self> {
        let heads = count.saturating_mul(HEAD).saturating_add(STATE_HEAD).saturating_add(CHECKSUM);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len.saturating_add(heads))?;
        Ok(Self(bytes))
    }

    /// Appends a field. A tag may occur several times, as a list. `value` must be shorter than 4 GiB. The
    /// length of a longer value would be stored as 2^32 - 1, and a reader would decode the rest of the value
    /// as further fields.
    #[must_use]
    pub fn with(mut self, tag: u16, need: Need, value: &[u8]) -> Self {
        let need: u16 = if need == Need::Critical { 1 } else { 0 };
        let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self.0.extend(tag.to_le_bytes());
        self.0.extend(need.to_le_bytes());
        self.0.extend(len.to_le_bytes());
        self.0.extend(value);
        self
    }

    /// Appends a critical field with a number.
    #[must_use]
    pub fn with_number(self, tag: u16, value: u64) -> Self {
        self.with(tag, Need::Critical, &value.to_le_bytes())
    }

    /// Appends a critical field with a list of records of `N` numbers each.
    #[must_use]
    pub fn with_records<const N: usize>(mut self, tag: u16, records: impl Iterator<Item = [u64; N]>) -> Self {
        // The length is known at the end.
        let start = self.0.len();
        self = self.with(tag, Need::Critical, &[]);
        let first = self.0.len();
        self.0.extend(records.flatten().flat_map(u64::to_le_bytes));
        let len = u32::try_from(self.0.len().saturating_sub(first)).unwrap_or(u32::MAX);
        let place = self.0.get_mut(start..first).and_then(|head| head.last_chunk_mut());
        if let Some(place) = place {
            *place = len.to_le_bytes();
        }
        self
    }

    /// Returns the encoded fields.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the fields as a state with a version and a checksum.
    pub fn seal(mut self, magic: u32, (major, minor): Version) -> Vec<u8> {
        let len = to_u64(self.0.len()).to_le_bytes();
        let head = magic.to_le_bytes().into_iter().chain(major.to_le_bytes()).chain(minor.to_le_bytes());
        drop(self.0.splice(0..0, head.chain(len)));
        let sum = crc32c(!0, &self.0);
        self.0.extend(sum.to_le_bytes());
        self.0
    }
}

/// The reason why a state or a message is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StateError {
    /// The bytes end too early, or their length differs from the length in the head.
    #[error("a field of the state is truncated")]
    Truncated,
    /// A field is missing.
    #[error("field {0} of the state is missing")]
    Missing(u16),
    /// A field has an invalid value.
    #[error("field {0} of the state is invalid")]
    Invalid(u16),
    /// A critical field is not supported.
    #[error("field {0} of the state is not supported by this version")]
    Unknown(u16),
    /// The major version is not supported. The values are the major and the minor version of the state, and
    /// the supported major version.
    #[error("the state has version {0}.{1}, and version {2}.x is supported")]
    Version(u16, u16, u16),
    /// The magic number is wrong: the bytes are not a state of this kind.
    #[error("the bytes are not a state of this kind")]
    Magic,
    /// The checksum is wrong.
    #[error("the checksum of the state is wrong")]
    Checksum,
    /// Memory is exhausted.
    #[error("not enough memory for the state")]
    NoMemory,
}

/// Fields that are being read. A method that takes a field returns its value and removes the field from the
/// list. [`finish`](Self::finish) then finds critical fields that the reader does not support. A state has
/// few fields, so a search of the list is fast enough.
#[derive(Debug)]
pub struct Parsed<'b>(Vec<ParsedField<'b>>);

#[derive(Clone, Copy, Debug)]
struct ParsedField<'b> {
    tag: u16,
    need: Need,
    value: &'b [u8],
}

impl<'b> Parsed<'b> {
    /// Splits a state that [`Fields::seal`] returned into fields.
    ///
    /// # Errors
    ///
    /// 1. `Truncated`: the bytes are shorter than a head and a checksum.
    /// 2. `Magic`: the magic number differs from `magic`.
    /// 3. `Version`: the major version of the state differs from the supported one.
    /// 4. `Truncated`: the length in the head differs from the length of the fields.
    /// 5. `Checksum`: the checksum is wrong.
    /// 6. The errors of [`of`](Self::of).
    pub fn unseal(magic: u32, (major, _): Version, bytes: &'b [u8]) -> Result<Self, StateError> {
        let (covered, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(StateError::Truncated)?;
        let (head, fields) = covered.split_first_chunk::<STATE_HEAD>().ok_or(StateError::Truncated)?;
        let [m0, m1, m2, m3, a0, a1, i0, i1, len @ ..] = *head;
        if u32::from_le_bytes([m0, m1, m2, m3]) != magic {
            return Err(StateError::Magic);
        }
        let (found, minor) = (u16::from_le_bytes([a0, a1]), u16::from_le_bytes([i0, i1]));
        if found != major {
            return Err(StateError::Version(found, minor, major));
        }
        if u64::from_le_bytes(len) != to_u64(fields.len()) {
            return Err(StateError::Truncated);
        }
        if crc32c(!0, covered) != u32::from_le_bytes(*sum) {
            return Err(StateError::Checksum);
        }
        Self::of(fields)
    }

    /// Splits `bytes`, the result of [`Fields::into_bytes`], into fields.
    ///
    /// # Errors
    ///
    /// - `Truncated`: the bytes end within a field.
    /// - `NoMemory`: memory is exhausted.
    pub fn of(mut bytes: &'b [u8]) -> Result<Self, StateError> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(StateError::Truncated)?;
            let [tag_low, tag_high, need_low, need_high, len @ ..] = *head;
            let tag = u16::from_le_bytes([tag_low, tag_high]);
            let need = match u16::from_le_bytes([need_low, need_high]) & 1 {
                0 => Need::Optional,
                _ => Need::Critical,
            };
            let len = usize::try_from(u32::from_le_bytes(len)).map_err(|_| StateError::Truncated)?;
            let (value, rest) = rest.split_at_checked(len).ok_or(StateError::Truncated)?;
            fields.try_reserve(1).map_err(|_| StateError::NoMemory)?;
            fields.push(ParsedField { tag, need, value });
            bytes = rest;
        }
        Ok(Self(fields))
    }

    /// Takes the field `tag`. Fails with `Missing` if the field does not occur, and with `Invalid` if it occurs several
    /// times.
    pub fn bytes(&mut self, tag: u16) -> Result<&'b [u8], StateError> {
        self.optional(tag)?.ok_or(StateError::Missing(tag))
    }

    /// Takes the field `tag` if it is present. Fails with `Invalid` if the field occurs several times.
    pub fn optional(&mut self, tag: u16) -> Result<Option<&'b [u8]>, StateError> {
        let mut found = self.0.iter().filter(|field| field.tag == tag);
        let (first, second) = (found.next().copied(), found.next());
        if second.is_some() {
            return Err(StateError::Invalid(tag));
        }
        self.0.retain(|field| field.tag != tag);
        Ok(first.map(|field| field.value))
    }

    /// Takes the values of all fields `tag`.
    pub fn list(&mut self, tag: u16) -> Vec<Vec<u8>> {
        let values =
            self.0.iter().filter(|field| field.tag == tag).map(|field| field.value.to_vec()).collect();
        self.0.retain(|field| field.tag != tag);
        values
    }

    /// Takes the number in the field `tag`. Fails as [`bytes`](Self::bytes) does, and with `Invalid` if the value is
    /// not a number.
    pub fn number(&mut self, tag: u16) -> Result<u64, StateError> {
        let value = self.bytes(tag)?;
        value.try_into().map(u64::from_le_bytes).map_err(|_| StateError::Invalid(tag))
    }

    /// Takes a number of type `T`. Fails as [`number`](Self::number) does, and with `Invalid` if the number is out of
    /// range.
    pub fn narrow<T: TryFrom<u64>>(&mut self, tag: u16) -> Result<T, StateError> {
        self.number(tag).and_then(|value| T::try_from(value).map_err(|_| StateError::Invalid(tag)))
    }

    /// Takes the number 0 as `false`, or the number 1 as `true`. Fails as [`number`](Self::number) does, and with
    /// `Invalid` for any other number.
    pub fn flag(&mut self, tag: u16) -> Result<bool, StateError> {
        match self.number(tag)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(StateError::Invalid(tag)),
        }
    }

    /// Takes a text in UTF-8. Fails as [`bytes`](Self::bytes) does, and with `Invalid` if the value is not UTF-8.
    pub fn text(&mut self, tag: u16) -> Result<String, StateError> {
        core::str::from_utf8(self.bytes(tag)?).map(str::to_owned).map_err(|_| StateError::Invalid(tag))
    }

    /// Takes a list of records of `N` numbers each. Fails as [`bytes`](Self::bytes) does, with `Invalid` if the value
    /// ends within a record, and with `NoMemory`.
    pub fn records<const N: usize>(&mut self, tag: u16) -> Result<Vec<[u64; N]>, StateError> {
        let (numbers, rest) = self.bytes(tag)?.as_chunks::<8>();
        let (records, odd) = numbers.as_chunks::<N>();
        if !rest.is_empty() || !odd.is_empty() {
            return Err(StateError::Invalid(tag));
        }
        let mut list = Vec::new();
        list.try_reserve_exact(records.len()).map_err(|_| StateError::NoMemory)?;
        list.extend(records.iter().map(|record| record.map(u64::from_le_bytes)));
        Ok(list)
    }

    /// Fails with `Unknown` if a critical field was not taken.
    pub fn finish(self) -> Result<(), StateError> {
        match self.0.iter().find(|field| field.need == Need::Critical) {
            Some(field) => Err(StateError::Unknown(field.tag)),
            None => Ok(()),
        }
    }
}
