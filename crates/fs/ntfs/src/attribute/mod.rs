//! The attributes of a file: everything that a file consists of, including its data and its names.
//!
//! Layout: attributes follow each other in a record, ordered by type and name. A file whose attributes do not fit one
//! record has an attribute list, which names the other records ([`list`]).
//! Source: linux-ntfs documentation, "Attributes"; libfsntfs documentation, "The MFT attribute".

pub mod list;
pub mod name;
pub mod runs;

use obento_base::Result;
use obento_base::wire::{FromBytes as _, to_u64, to_usize};

use crate::layout::bytes::{slice, u32_at};
use crate::layout::raw::{RawAttribute, RawNonResident, RawResident, kind};
use crate::mft::Record;

/// Bits of the compression method in the flags of an attribute.
pub const COMPRESSION: u16 = 0xff;
/// The value is encrypted.
pub const ENCRYPTED: u16 = 0x4000;
/// The value may have holes.
pub const SPARSE: u16 = 0x8000;

/// An attribute, or the part of one that a record contains.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    /// Type.
    pub kind: u32,
    /// Name in UTF-16; empty for the unnamed attribute.
    pub name: &'a [u8],
    /// Compression method, encryption, sparseness.
    pub flags: u16,
    /// Number within the record.
    pub instance: u16,
    /// Byte offset in the record.
    pub offset: usize,
    /// Bytes of the attribute.
    pub length: usize,
    /// Value, or its location.
    pub body: Body<'a>,
}

/// The value of an attribute, or its location.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// The value is in the record.
    Resident(&'a [u8]),
    /// The value is in clusters.
    NonResident(Part<'a>),
}

/// A part of a value in clusters.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// First cluster of the value.
    pub lowest: u64,
    /// Last cluster of the value; one less than `lowest` if the value has no clusters.
    pub highest: u64,
    /// Encoded runs.
    pub runs: &'a [u8],
    /// Logarithm of the clusters of a compression unit.
    pub unit_bits: u8,
    /// Sizes in bytes; valid in the first part.
    pub sizes: Sizes,
}

/// The sizes of a value in clusters, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Clusters that the value spans, including holes.
    pub allocated: u64,
    /// Size.
    pub size: u64,
    /// Bytes that were written; the rest reads as zeros.
    pub initialized: u64,
    /// Space on the volume, if the value is compressed or sparse.
    pub stored: Option<u64>,
}

impl<'a> Attribute<'a> {
    /// Returns the value of an attribute that is in its record.
    pub fn resident(&self) -> Option<&'a [u8]> {
        match self.body {
            Body::Resident(value) => Some(value),
            Body::NonResident(_) => None,
        }
    }

    /// Returns whether the attribute is a whole value or the first part of one.
    pub fn is_first(&self) -> bool {
        match self.body {
            Body::Resident(_) => true,
            Body::NonResident(part) => part.lowest == 0,
        }
    }

    /// Decodes the attribute at `offset` of a record.
    fn decode(record: &'a [u8], offset: usize, length: usize) -> Option<Self> {
        let bytes = slice(record, offset, length)?;
        let (raw, rest) = RawAttribute::ref_from_prefix(bytes).ok()?;
        let name_len = usize::from(raw.name_length).checked_mul(2)?;
        let name =
            if name_len == 0 { &[][..] } else { slice(bytes, raw.name_offset.get().into(), name_len)? };
        let body = if raw.non_resident == 0 {
            let (raw, _) = RawResident::ref_from_prefix(rest).ok()?;
            let len = to_usize(raw.value_length.get().into());
            Body::Resident(slice(bytes, raw.value_offset.get().into(), len)?)
        } else {
            let (part, rest) = RawNonResident::ref_from_prefix(rest).ok()?;
            let is_small = raw.flags.get() & (COMPRESSION | SPARSE) != 0 && part.lowest_vcn.get() == 0;
            let stored = obento_base::wire::le::U64::ref_from_prefix(rest).ok().filter(|_| is_small);
            Body::NonResident(Part {
                lowest: part.lowest_vcn.get(),
                highest: part.highest_vcn.get(),
                runs: bytes.get(usize::from(part.runs_offset.get())..)?,
                unit_bits: part.compression_unit,
                sizes: Sizes {
                    allocated: part.allocated.get(),
                    size: part.size.get(),
                    initialized: part.initialized.get(),
                    stored: stored.map(|(stored, _)| stored.get()),
                },
            })
        };
        let (flags, instance) = (raw.flags.get(), raw.instance.get());
        Some(Self { kind: raw.kind.get(), name, flags, instance, offset, length, body })
    }
}

/// The attributes of a record. After damage, the iterator returns the error and ends.
pub struct Attributes<'a> {
    record: &'a Record,
    at: usize,
}

impl<'a> Attributes<'a> {
    /// Starts with the first attribute.
    pub fn new(record: &'a Record) -> Self {
        Self { record, at: usize::from(record.header().attributes.get()) }
    }

    fn step(&mut self) -> Option<Result<Attribute<'a>>> {
        let bytes = self.record.bytes();
        let at = self.at;
        // The mark is the last thing in use, so a record may end with its first four bytes.
        let kind = u32_at(bytes, at);
        if kind == Some(kind::END) {
            return None;
        }
        let length = at.checked_add(4).and_then(|at| u32_at(bytes, at)).unwrap_or(0);
        let len = to_usize(length.into());
        let is_aligned = at.is_multiple_of(8) && len.is_multiple_of(8) && len >= size_of::<RawAttribute>();
        let found = if is_aligned { Attribute::decode(bytes, at, len) } else { None };
        self.at = at.saturating_add(len);
        Some(found.ok_or_else(|| self.record.field("AttributeLength", at, length.into())))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = if self.at == usize::MAX { None } else { self.step() };
        if !matches!(next, Some(Ok(_))) {
            self.at = usize::MAX;
        }
        next
    }
}

impl Sizes {
    /// Returns the first size that contradicts the others, for a value of so many clusters.
    pub fn wrong(&self, clusters: u64, cluster_size: u32) -> Option<(&'static str, u64)> {
        if self.size > self.allocated {
            return Some(("DataSize", self.size));
        }
        if self.initialized > self.size {
            return Some(("InitializedSize", self.initialized));
        }
        let expected = clusters.saturating_mul(cluster_size.into());
        (self.allocated != expected).then_some(("AllocatedSize", self.allocated))
    }
}

/// Returns the byte offset of `inner` in `outer`, if it is a part of it.
pub fn offset_in(outer: &[u8], inner: &[u8]) -> u64 {
    to_u64(inner.as_ptr().addr().saturating_sub(outer.as_ptr().addr()))
}
