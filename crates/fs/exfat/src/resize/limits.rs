//! The possible sizes of a volume.

use obento_driver::{ResizeError, ResizeRefusal, ResizeResult};

use super::fat::len_for;
use super::plan::{Plan, folder_clusters};
use super::structures::Structures;
use crate::super_block::CLUSTERS_MAX;
use crate::super_block::SuperBlock;

/// Minimum size of a volume (specification, 3.1.5 "VolumeLength"). Programs create
/// smaller volumes, which may stay smaller.
const LEN_MIN: u64 = 1 << 20;
/// The reason if a larger FAT has no place.
pub const FULL: &str = "the size of its FAT";

/// Returns the boot sector of a volume of at most `len` bytes, or `None` if the length stays the same, or
/// grows by less than a cluster. The FAT becomes longer in place, or moves to the first clusters. Refuses a
/// length above the limit.
pub fn planned(sb: &SuperBlock, len: u64) -> ResizeResult<Option<SuperBlock>> {
    let len = floor(sb, len);
    let count = |start: u64| {
        let clusters = len.saturating_sub(start).checked_div(sb.cluster_size.into());
        u32::try_from(clusters.unwrap_or(0)).unwrap_or(u32::MAX)
    };
    let clusters = count(sb.data_start);
    // A longer volume with the same clusters has no more room, and a full one has none for the structures of
    // a change.
    if len == sb.len || len > sb.len && clusters <= sb.clusters {
        return Ok(None);
    }
    if clusters > CLUSTERS_MAX {
        return Err(too_long(sb, CLUSTERS_MAX, "the limit of exFAT"));
    }
    if clusters <= room(sb) {
        let fat_len = sb.fat_len.max(len_for(sb, clusters));
        return Ok(Some(SuperBlock { len, clusters, fat_len, ..sb.clone() }));
    }
    // The new FAT needs clusters, so that the volume gets fewer clusters than without it.
    let fat_start = sb.data_start;
    let fat_len = len_for(sb, clusters);
    let data_start = fat_start.saturating_add(fat_len.next_multiple_of(sb.cluster_size.into()));
    let fits = u32::try_from(data_start.checked_div(sb.sector_size.into()).unwrap_or(0)).is_ok();
    let new = SuperBlock { len, clusters: count(data_start), fat_start, fat_len, data_start, ..sb.clone() };
    match fits && new.clusters >= sb.clusters {
        true => Ok(Some(new)),
        false => Err(too_long(sb, room(sb), FULL)),
    }
}

/// Returns the number of clusters for which there are entries before the first cluster.
pub fn room(sb: &SuperBlock) -> u32 {
    let entries = sb.data_start.saturating_sub(sb.fat_start) / 4;
    u32::try_from(entries).unwrap_or(u32::MAX).saturating_sub(2)
}

/// Returns the number of clusters in whose place the new FAT is.
pub fn shift(old: &SuperBlock, new: &SuperBlock) -> u32 {
    let bytes = new.data_start.saturating_sub(old.data_start);
    u32::try_from(bytes.checked_div(old.cluster_size.into()).unwrap_or(0)).unwrap_or(u32::MAX)
}

/// Returns the refusal of a volume with more than `clusters` clusters.
pub fn too_long(sb: &SuperBlock, clusters: u32, why: &'static str) -> ResizeError {
    let most = u64::from(clusters).saturating_add(1).saturating_mul(sb.cluster_size.into());
    let end = sb.data_start.saturating_add(most).saturating_sub(1);
    ResizeRefusal::TooLong { max: floor(sb, end).max(sb.len), why }.into()
}

/// Rounds a length down to whole sectors.
fn floor(sb: &SuperBlock, len: u64) -> u64 {
    len.saturating_sub(len.checked_rem(sb.sector_size.into()).unwrap_or(0))
}

/// Returns the length of the shortest volume that has room for all contents, and for the new versions of structures
/// that change.
pub fn shortest(from: &Structures) -> ResizeResult<u64> {
    let sb = &from.sb;
    let end_of = |clusters: u32| {
        let data = u64::from(clusters).saturating_mul(sb.cluster_size.into());
        sb.data_start.saturating_add(data)
    };
    let least = LEN_MIN.saturating_sub(sb.data_start).div_ceil(sb.cluster_size.max(1).into()).max(1);
    let (mut low, mut high) = (u32::try_from(least).unwrap_or(u32::MAX).min(sb.clusters), sb.clusters);
    while low < high {
        let middle = low.midpoint(high);
        match shrunk(from, middle) {
            Ok(_) => high = middle,
            Err(ResizeError::Refused(ResizeRefusal::NoRoom)) => low = middle.saturating_add(1),
            Err(error) => return Err(error),
        }
    }
    Ok(end_of(high).min(sb.len))
}

/// Plans a volume of fewer clusters. Fails with `NoRoom`.
pub fn shrunk(from: &Structures, clusters: u32) -> ResizeResult<Plan> {
    let new = SuperBlock { clusters, ..from.sb.clone() };
    let vacated = clusters.saturating_add(2)..from.sb.clusters.saturating_add(2);
    Plan::new(from, &new, vacated, 0)
}

/// Returns whether the volume has room for new versions of all directories and of the bitmap, as they are needed for
/// other cluster numbers.
pub fn has_room_to_renumber(from: &Structures, new: &SuperBlock) -> bool {
    let used = u64::from(from.used.count(from.sb.numbers()));
    let bitmap = from.sb.clusters_for(new.bitmap_len()).into();
    used.saturating_add(folder_clusters(from)).saturating_add(bitmap) <= new.clusters.into()
}
