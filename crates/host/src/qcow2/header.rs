//! Checks the header for unsupported features and for tables that would need too much memory.
//!
//! Layout, big-endian: magic 0..4, version 4..8, backing file 8..20, cluster bits 20..24, size 24..32,
//! encryption 32..36, L1 entries 36..40, L1 offset 40..48. From version 3 on: incompatible features 72..80,
//! and the type of compression 104, which is valid if its feature bit is set.

use std::path::Path;

use obento_base::Cursor;
use obento_base::wire::{be, to_usize};
use obento_block::BlockDevice;

use super::damaged;
use crate::HostError;

const MAGIC: u32 = u32::from_be_bytes(*b"QFI\xfb");
/// The decoder caches this many L2 tables, of one cluster each.
const L2_TABLES: u64 = 128;
/// The most memory for L1 and L2 tables in bytes: the cached L2 tables with the largest clusters, and an L1
/// table. The decoder reads an L2 table when it is used.
const TABLES_MAX: u64 = (L2_TABLES * (2 << 20)) + (16 << 20);

/// Incompatible features.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 2;
const DATA_FILE: u64 = 4;
const COMPRESSION_TYPE: u64 = 8;
const EXTENDED_L2: u64 = 16;

/// The byte of the header with the bits of [`HIDDEN`].
pub(super) const FEATURES_LOW_BYTE: u64 = 79;
/// Bits that would make the decoder reject the image, and are hidden from it. They concern reference counts
/// and writing, which reading does not need, and the type of compression, which this module handles.
pub(super) const HIDDEN: u8 = 11;
const _: () = assert!(HIDDEN as u64 == DIRTY | CORRUPT | COMPRESSION_TYPE);

/// The position of the type of compression.
const COMPRESSION: usize = 104;

/// Largest byte offset in a file, and longest name of a backing file, that `imago` accepts.
const OFFSET_MAX: u64 = 1 << 56;
const BACKING_NAME_MAX: u32 = 1023;

/// The header fields that this module needs.
pub(super) struct Qcow2Header {
    pub cluster_size: u64,
    pub l1_offset: u64,
    pub l1_entries: u64,
    pub compression: ClusterCompression,
}

/// The compression of clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClusterCompression {
    Deflate,
    Zstd,
}

/// Returns whether `start`, the first bytes of a file, are those of a qcow2 image of an existing version.
pub fn is_qcow2(start: &[u8]) -> bool {
    let mut cursor = Cursor::new(start);
    let mut next = || cursor.take_raw::<be::U32>().map(|value| value.get());
    next() == Some(MAGIC) && matches!(next(), Some(2 | 3))
}

impl Qcow2Header {
    /// Reads and checks the header of the image at `path`. Fails with `Damaged` or `Unsupported`.
    pub fn read(device: &dyn BlockDevice, path: &Path) -> Result<Self, HostError> {
        let mut bytes = [0; COMPRESSION + 1];
        let len = to_usize(device.len()).min(bytes.len());
        let start = bytes.get_mut(..len).unwrap_or_default();
        device.read_at(0, start).map_err(|error| damaged(path, error))?;
        Self::decode(start, path)?.ok_or_else(|| damaged(path, "the header is too short"))
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>, HostError> {
        if !is_qcow2(bytes) {
            return Err(damaged(path, "the magic number or version is wrong"));
        }
        let word = |at: usize| Cursor::new(bytes.get(at..)?).take_raw::<be::U32>().map(|value| value.get());
        let (Some(version), Some(bits), Some(method), Some(l1)) = (word(4), word(20), word(32), word(36))
        else {
            return Ok(None);
        };
        let cluster_size = 1_u64.checked_shl(bits).filter(|size| (512..=2 << 20).contains(size));
        let cluster_size = cluster_size.ok_or_else(|| damaged(path, "the cluster size is impossible"))?;
        let unsupported =
            |feature: String| HostError::Unsupported { path: path.into(), format: "qcow2", feature };
        if method != 0 {
            return Err(unsupported("encryption".into()));
        }
        let long = |at: usize| Cursor::new(bytes.get(at..)?).take_raw::<be::U64>().map(|value| value.get());
        let features = if version >= 3 { long(72).unwrap_or(0) } else { 0 };
        check_features(features).map_err(unsupported)?;
        let compression = match bytes.get(COMPRESSION) {
            _ if features & COMPRESSION_TYPE == 0 => ClusterCompression::Deflate,
            Some(0) => ClusterCompression::Deflate,
            Some(1) => ClusterCompression::Zstd,
            other => {
                let number = other.copied().unwrap_or_default();
                return Err(unsupported(format!("clusters compressed by method {number}")));
            }
        };
        if l1 == 0 {
            return Err(damaged(path, "the header names no L1 table"));
        }
        let disk = long(24).ok_or_else(|| damaged(path, "the header is too short"))?;
        // An L2 table fills a cluster with entries of 8 bytes, each of which refers to a cluster.
        if u64::from(l1).saturating_mul(cluster_size / 8 * cluster_size) < disk {
            return Err(damaged(path, "the L1 table is too short for the disk"));
        }
        let (l1_offset, backing) = (long(40).unwrap_or(0), (long(8).unwrap_or(0), word(16).unwrap_or(0)));
        let l1_end = l1_offset.checked_add(u64::from(l1) * 8).filter(|end| *end <= OFFSET_MAX);
        l1_end.ok_or_else(|| damaged(path, "the L1 table ends after the maximum offset of the format"))?;
        let name_end = backing.0.saturating_add(backing.1.into());
        if backing.0 != 0 && (backing.1 > BACKING_NAME_MAX || name_end >= cluster_size) {
            return Err(damaged(
                path,
                "the name of the backing file is too long or outside the first cluster",
            ));
        }
        // An entry of the L1 table takes 8 bytes on disk and in memory, and refers to one L2 table.
        let l2 = u64::from(l1).min(L2_TABLES) * cluster_size;
        if u64::from(l1) * 16 + l2 > TABLES_MAX {
            return Err(unsupported(format!("{l1} tables of {cluster_size} bytes")));
        }
        Ok(Some(Self { cluster_size, l1_offset, l1_entries: l1.into(), compression }))
    }
}

fn check_features(features: u64) -> Result<(), String> {
    if features & EXTENDED_L2 != 0 {
        return Err("subclusters (extended L2 entries)".into());
    }
    match features & !(DIRTY | CORRUPT | DATA_FILE | COMPRESSION_TYPE) {
        0 => Ok(()),
        unknown => Err(format!("incompatible feature bits {unknown:#x}")),
    }
}
