//! Entries of L1 and L2 tables.

/// The cluster has one reference and may be changed in place.
pub(super) const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// The cluster reads as zeros (version 3).
pub(super) const ZERO: u64 = 1;
/// The place of a table or of a cluster that is not compressed.
pub(super) const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const SECTOR: u64 = 512;

/// The meaning of an L2 entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// The bytes are those of the backing file, or zeros.
    Unallocated,
    Zeros,
    /// The place of the cluster.
    Data(u64),
    /// The place of the compressed bytes, and the most bytes that they have.
    Packed {
        at: u64,
        len: u64,
    },
}

pub(super) fn decode(entry: u64, cluster_bits: u32) -> Entry {
    if entry & COMPRESSED != 0 {
        let shift = 62_u32.saturating_sub(cluster_bits.saturating_sub(8));
        let mask = 1_u64.checked_shl(shift).unwrap_or(0).wrapping_sub(1);
        let at = entry & mask;
        let sectors = (entry & !(COPIED | COMPRESSED)).checked_shr(shift).unwrap_or(0).saturating_add(1);
        return Entry::Packed { at, len: sectors.saturating_mul(SECTOR).saturating_sub(at % SECTOR) };
    }
    if entry & ZERO != 0 {
        return Entry::Zeros;
    }
    match entry & OFFSET {
        0 => Entry::Unallocated,
        at => Entry::Data(at),
    }
}

/// Returns the place of a cluster that may be changed in place.
pub(super) fn in_place(entry: u64) -> Option<u64> {
    let is_plain = entry & COPIED != 0 && entry & (COMPRESSED | ZERO) == 0;
    Some(entry & OFFSET).filter(|&at| is_plain && at != 0)
}

/// Returns whether a cluster reads as zeros.
pub(super) fn is_zero(entry: u64, has_backing: bool) -> bool {
    match entry {
        _ if entry & COMPRESSED != 0 => false,
        _ if entry & ZERO != 0 => true,
        _ => entry & OFFSET == 0 && !has_backing,
    }
}

/// Returns the bytes of the file that an entry refers to.
pub(super) fn extent(entry: u64, cluster_bits: u32) -> Option<(u64, u64)> {
    let cluster = 1_u64.checked_shl(cluster_bits).unwrap_or(1);
    match decode(entry, cluster_bits) {
        Entry::Packed { at, len } => Some((at, len)),
        // A cluster that reads as zeros may have a place, too.
        Entry::Zeros | Entry::Data(_) | Entry::Unallocated => {
            Some((entry & OFFSET, cluster)).filter(|&(at, _)| at != 0)
        }
    }
}
