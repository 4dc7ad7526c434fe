//! A record of the master file table.

use alloc::sync::Arc;

use obento_base::wire::{FromBytes as _, FromZeros as _, to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result, Structure};

use crate::layout::boot::Geometry;
use crate::layout::fixup::{self, FixupError};
use crate::layout::raw::{RawRecord, record_of};

/// A record whose update sequence is verified.
#[derive(Clone, Debug)]
pub struct Record {
    /// Number in the table.
    pub number: u64,
    /// Byte offset on the volume.
    pub offset: u64,
    /// Size of a cluster, to name places.
    cluster_size: u32,
    bytes: Arc<[u8]>,
}

/// Bit of the flags: the record is in use.
pub const IN_USE: u16 = 1;
/// Bit of the flags: the file has an index of names.
pub const DIRECTORY: u16 = 2;

fn bad_magic(number: u64, block: u64, found: u32) -> Error {
    let expected = u64::from(u32::from_le_bytes(*b"FILE"));
    Corrupt::Magic { structure: Structure::Inode(Ino(number)), block, found: found.into(), expected }.into()
}

/// Returns the error for a first record of the table that contains only zeros.
pub fn no_magic(geometry: &Geometry) -> Error {
    bad_magic(0, geometry.mft.checked_div(geometry.cluster_size.into()).unwrap_or(0), 0)
}

impl Record {
    /// Verifies a record. `bytes` is changed to its contents.
    ///
    /// # Errors
    ///
    /// - `Stale`: the record was never used.
    /// - `Corrupt`: the magic number, the update sequence or a field of the header is wrong.
    pub fn decode(number: u64, offset: u64, bytes: &mut [u8], geometry: &Geometry) -> Result<Self> {
        let empty = Self { number, offset, cluster_size: geometry.cluster_size, bytes: Arc::from(&[][..]) };
        match bytes.first_chunk::<4>() {
            Some(b"FILE") => {}
            Some(&[0, 0, 0, 0]) => return Err(Error::Stale),
            magic => {
                let found = magic.map_or(0, |&magic| u32::from_le_bytes(magic));
                return Err(bad_magic(number, empty.block(), found));
            }
        }
        match fixup::apply(bytes) {
            Ok(()) => {}
            Err(FixupError::Array(found)) => return Err(empty.field("UpdateSequenceArray", 4, found.into())),
            Err(FixupError::Torn(sector, found)) => {
                let at = usize::from(sector).saturating_mul(fixup::STRIDE).saturating_add(510);
                return Err(empty.field("UpdateSequenceNumber", at, found.into()));
            }
        }
        let raw = RawRecord::read_from_prefix(bytes).map(|(raw, _)| raw).unwrap_or(RawRecord::new_zeroed());
        let used = to_usize(raw.used.get().into());
        let attributes = usize::from(raw.attributes.get());
        if used > bytes.len() || used < size_of::<RawRecord>() {
            return Err(empty.field("BytesInUse", 24, raw.used.get().into()));
        }
        if attributes % 8 != 0 || attributes < 42 || attributes >= used {
            return Err(empty.field("FirstAttributeOffset", 20, raw.attributes.get().into()));
        }
        Ok(Self { bytes: bytes.get(..used).unwrap_or_default().into(), ..empty })
    }

    fn block(&self) -> u64 {
        self.offset.checked_div(self.cluster_size.into()).unwrap_or(0)
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the header.
    pub fn header(&self) -> RawRecord {
        RawRecord::read_from_prefix(&self.bytes).map(|(raw, _)| raw).unwrap_or(RawRecord::new_zeroed())
    }

    /// Returns whether the record is in use.
    pub fn is_used(&self) -> bool {
        self.header().flags.get() & IN_USE != 0
    }

    /// Returns whether the file is a directory.
    pub fn is_directory(&self) -> bool {
        self.header().flags.get() & DIRECTORY != 0
    }

    /// Returns whether the record is the first one of its file.
    pub fn is_base(&self) -> bool {
        record_of(self.header().base.get()) == 0
    }

    /// Returns the error for a field at byte `at` of the record.
    pub fn field(&self, field: &'static str, at: usize, found: u64) -> Error {
        let inside = self.offset.checked_rem(self.cluster_size.into()).unwrap_or(0);
        let offset = u32::try_from(inside.saturating_add(to_u64(at))).unwrap_or(u32::MAX);
        let structure = Structure::Inode(Ino(self.number));
        Corrupt::Field { structure, field, block: self.block(), offset, found }.into()
    }
}
