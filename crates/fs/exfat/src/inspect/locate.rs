//! Finding the structure that contains a byte of the volume.

use alloc::format;
use alloc::string::String;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_clusters::{Cluster, Volume as _};
use obento_driver::{ByteUse, Target};

use crate::boot::SECTORS;
use crate::volume::{SYSTEM, Volume};

/// Returns whether the bitmap marks `cluster` as used. Fails if the device fails.
pub(super) fn is_used(volume: &Volume, cluster: Cluster) -> Result<bool> {
    let bit = u64::from(cluster.0.saturating_sub(2));
    let (place, _) = volume.place_in(&volume.tables().bitmap, bit >> 3).ok_or(Error::Invalid)?;
    let size = u64::from(volume.super_block().sector_size);
    let block = volume.cache().get(place.checked_div(size).unwrap_or(0))?;
    let byte = block.get(to_usize(place.checked_rem(size).unwrap_or(0))).copied().unwrap_or(0);
    Ok(byte >> (bit & 7) & 1 != 0)
}

fn structure(name: impl Into<String>, target: Option<Target>) -> Result<ByteUse> {
    Ok(ByteUse::Structure { name: name.into(), target })
}

/// Returns the structure at `offset`, as the contract requires.
pub(super) fn locate(volume: &Volume, offset: u64) -> Result<ByteUse> {
    let sb = volume.super_block();
    let region = SECTORS.saturating_mul(sb.sector_size.into());
    let fat_end = sb.fat_start.saturating_add(sb.fat_len);
    match offset {
        _ if offset >= sb.len => return Err(Error::NotFound),
        _ if offset < region => return structure("the boot region", Some(Target::SuperBlock(0))),
        _ if offset < region.saturating_mul(2) => {
            return structure("the copy of the boot region", Some(Target::SuperBlock(1)));
        }
        _ if (sb.fat_start..fat_end).contains(&offset) => {
            let cluster = offset.saturating_sub(sb.fat_start) >> 2;
            let target = Some(Target::Block(cluster)).filter(|_| cluster >= 2);
            return structure(format!("the FAT's entry of cluster {cluster}"), target);
        }
        _ => {}
    }
    let Some((cluster, _)) = sb.cluster_at(offset) else { return Ok(ByteUse::Unused) };
    let tables = volume.tables();
    let lies_in =
        |runs: &[obento_clusters::Run]| runs.iter().any(|run| (run.start..=run.last()).contains(&cluster));
    match volume.owner_of(cluster) {
        Some(SYSTEM) if lies_in(&tables.bitmap) => structure("the allocation bitmap", None),
        Some(SYSTEM) => structure("the up-case table", None),
        _ if is_used(volume, cluster)? => Ok(ByteUse::OfFiles),
        _ => Ok(ByteUse::Unused),
    }
}
