//! The header of a qcow2 image.

use alloc::vec::Vec;

use obento_base::wire::{FromBytes, Immutable, KnownLayout, Unaligned, be, to_u64};
use obento_block::BlockDevice;

use crate::error::Opening;
use crate::read_bytes;

const MAGIC: u32 = u32::from_be_bytes(*b"QFI\xfb");
/// Cluster sizes from 512 bytes to 2 MiB.
const CLUSTER_BITS: core::ops::RangeInclusive<u32> = 9..=21;
const NAME_MAX: u32 = 1023;

/// Incompatible features.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 2;
const DATA_FILE: u64 = 4;
const COMPRESSION_TYPE: u64 = 8;
const EXTENDED_L2: u64 = 16;

/// The position of the autoclear features, and of the end of the header of version 2.
const AUTOCLEAR_AT: u64 = 88;
const HEADER_2: u64 = 72;
/// Reference counts of 16 bits.
const ORDER: u32 = 4;
/// The header extension with the format of the backing file.
const BACKING_FORMAT: u32 = 0xe279_2aca;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawHeader {
    magic: be::U32,
    version: be::U32,
    backing_at: be::U64,
    backing_len: be::U32,
    cluster_bits: be::U32,
    size: be::U64,
    encryption: be::U32,
    l1_len: be::U32,
    l1_at: be::U64,
    counts_at: be::U64,
    counts_clusters: be::U32,
    snapshots: be::U32,
    snapshots_at: be::U64,
    /// From here on in version 3.
    incompatible: be::U64,
    compatible: be::U64,
    autoclear: be::U64,
    refcount_order: be::U32,
    header_len: be::U32,
    compression: u8,
}
const RAW_LEN: usize = 105;
const _: () = assert!(size_of::<RawHeader>() == RAW_LEN);

/// A backing file, as the image that needs it names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackingFile {
    /// The path, in general relative to the image.
    pub name: Vec<u8>,
    /// The name of the format, if the image stores it.
    pub format: Option<Vec<u8>>,
}

/// How clusters are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Deflate without a header.
    Deflate,
    /// zstd.
    Zstd,
}

/// The decoded header.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub len: u64,
    pub l1_at: u64,
    pub l1_len: u32,
    pub counts_at: u64,
    pub counts_clusters: u32,
    pub snapshots: u32,
    pub snapshots_at: u64,
    pub compression: Compression,
    version: u32,
    cluster_bits: u32,
    refcount_order: u32,
    incompatible: u64,
    autoclear: u64,
    backing: Option<(u64, u32)>,
    header_len: u64,
}

impl Header {
    pub fn read(file: &dyn BlockDevice) -> Result<Self, Opening> {
        const HEADER: &str = "header";
        let mut bytes = read_bytes(file, 0, to_u64(RAW_LEN).min(file.len()), HEADER)?;
        bytes.resize(RAW_LEN, 0);
        let raw = RawHeader::read_from_bytes(&bytes).map_err(|_| Opening::damaged(HEADER, "too short"))?;
        let version = raw.version.get();
        if raw.magic.get() != MAGIC || !matches!(version, 2 | 3) {
            return Err(Opening::damaged(HEADER, "the magic number or version is wrong"));
        }
        if !CLUSTER_BITS.contains(&raw.cluster_bits.get()) {
            return Err(Opening::damaged(HEADER, "the cluster size is impossible"));
        }
        if raw.encryption.get() != 0 {
            return Err(Opening::Unsupported("encryption"));
        }
        let is_3 = version == 3;
        let incompatible = if is_3 { raw.incompatible.get() } else { 0 };
        check_features(incompatible)?;
        let header_len = if is_3 { raw.header_len.get().into() } else { HEADER_2 };
        let compression = match raw.compression {
            _ if incompatible & COMPRESSION_TYPE == 0 => Compression::Deflate,
            0 => Compression::Deflate,
            1 => Compression::Zstd,
            _ => return Err(Opening::Unsupported("clusters compressed by an unknown method")),
        };
        let backing_len = raw.backing_len.get();
        if backing_len > NAME_MAX {
            return Err(Opening::damaged(HEADER, "the name of the backing file is too long"));
        }
        let backing =
            (raw.backing_at.get() != 0 && backing_len > 0).then(|| (raw.backing_at.get(), backing_len));
        Ok(Self {
            len: raw.size.get(),
            l1_at: raw.l1_at.get(),
            l1_len: raw.l1_len.get(),
            counts_at: raw.counts_at.get(),
            counts_clusters: raw.counts_clusters.get(),
            snapshots: raw.snapshots.get(),
            snapshots_at: raw.snapshots_at.get(),
            compression,
            version,
            cluster_bits: raw.cluster_bits.get(),
            refcount_order: if is_3 { raw.refcount_order.get() } else { ORDER },
            incompatible,
            autoclear: if is_3 { raw.autoclear.get() } else { 0 },
            backing,
            header_len,
        })
    }

    /// # Errors
    ///
    /// Changing the image would damage it further, or is not supported.
    pub fn expect_writable(&self) -> Result<(), Opening> {
        if self.incompatible & (DIRTY | CORRUPT) != 0 {
            return Err(Opening::WrongCounts);
        }
        if self.refcount_order != ORDER {
            return Err(Opening::Unsupported("changes of reference counts of other than 16 bits"));
        }
        Ok(())
    }

    /// Returns the cluster size in bytes.
    pub fn cluster(&self) -> u64 {
        1_u64.checked_shl(self.cluster_bits).unwrap_or(1)
    }

    pub fn cluster_bits(&self) -> u32 {
        self.cluster_bits
    }

    /// Returns the number of entries of an L2 table.
    pub fn entries(&self) -> u64 {
        self.cluster() / 8
    }

    /// Returns the number of bytes of the disk that an L2 table locates.
    pub fn bytes_per_table(&self) -> u64 {
        self.entries().saturating_mul(self.cluster())
    }

    /// Returns the position of byte `offset` in its cluster.
    pub fn inside(&self, offset: u64) -> u64 {
        offset & self.cluster().saturating_sub(1)
    }

    /// Returns the L2 table of byte `offset` and the entry in it.
    pub fn place(&self, offset: u64) -> (u64, usize) {
        let index = offset.checked_shr(self.cluster_bits).unwrap_or(0);
        let row = index.checked_div(self.entries()).unwrap_or(0);
        (row, crate::to_usize(index.checked_rem(self.entries()).unwrap_or(0)))
    }

    /// Returns whether an entry can state that a cluster reads as zeros.
    pub fn has_zero_flag(&self) -> bool {
        self.version >= 3
    }

    /// Returns the position of the bits to clear before the first change, if any bit is set. The bits declare that an
    /// extension, such as a bitmap of changes, is consistent with the data.
    pub fn autoclear_at(&self) -> Option<u64> {
        (self.autoclear != 0).then_some(AUTOCLEAR_AT)
    }

    /// Returns the backing file that the header names.
    pub fn backing(&self, file: &dyn BlockDevice) -> Result<Option<BackingFile>, Opening> {
        let Some((at, len)) = self.backing else { return Ok(None) };
        let name = read_bytes(file, at, len.into(), "name of the backing file")?;
        Ok(Some(BackingFile { name, format: self.extension(file, BACKING_FORMAT)? }))
    }

    /// Returns the data of the header extension `kind`.
    fn extension(&self, file: &dyn BlockDevice, kind: u32) -> Result<Option<Vec<u8>>, Opening> {
        const EXTENSION: &str = "header extension";
        let end = self.backing.map_or(self.cluster(), |(at, _)| at).min(self.cluster());
        let mut at = self.header_len;
        while at.saturating_add(8) <= end {
            let head = read_bytes(file, at, 8, EXTENSION)?;
            let word = |from: usize| {
                head.get(from..).and_then(<[u8]>::first_chunk).map_or(0, |&b| u32::from_be_bytes(b))
            };
            let (found, len) = (word(0), u64::from(word(4)));
            at = at.saturating_add(8);
            if found == 0 || at.saturating_add(len) > end {
                break;
            }
            if found == kind {
                return read_bytes(file, at, len, EXTENSION).map(Some);
            }
            at = at.saturating_add(len.next_multiple_of(8));
        }
        Ok(None)
    }
}

fn check_features(features: u64) -> Result<(), Opening> {
    if features & EXTENDED_L2 != 0 {
        return Err(Opening::Unsupported("subclusters (extended L2 entries)"));
    }
    if features & DATA_FILE != 0 {
        return Err(Opening::Unsupported("an external data file"));
    }
    match features & !(DIRTY | CORRUPT | COMPRESSION_TYPE) {
        0 => Ok(()),
        _ => Err(Opening::Unsupported("unknown incompatible features")),
    }
}
