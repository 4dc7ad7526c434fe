//! Finding the structure that contains a byte of the volume.

use alloc::format;
use alloc::string::String;

use obento_base::{Error, Result};
use obento_clusters::{Entry, Links as _, ROOT};
use obento_driver::{ByteUse, Target};

use crate::super_block::Root;
use crate::volume::Volume;

fn structure(name: impl Into<String>, target: Option<Target>) -> Result<ByteUse> {
    Ok(ByteUse::Structure { name: name.into(), target })
}

/// Returns the structure at `offset`, as the contract requires.
pub(super) fn locate(volume: &Volume, offset: u64) -> Result<ByteUse> {
    let sb = volume.super_block();
    let sector_size = u64::from(sb.sector_size);
    if offset >= sb.len {
        return Err(Error::NotFound);
    }
    if offset < sb.fat_start {
        let sector = offset.checked_div(sector_size).unwrap_or(0);
        let is_fs_info = sb.fs_info.is_some_and(|at| at.checked_div(sector_size) == Some(sector));
        return match sector {
            0 => structure("the boot sector", Some(Target::SuperBlock(0))),
            _ if is_fs_info => structure("FSInfo", Some(Target::SuperBlock(0))),
            _ if sb.backup.is_some_and(|copy| u64::from(copy) == sector) => {
                structure("the copy of the boot sector", Some(Target::SuperBlock(1)))
            }
            _ => structure(format!("reserved sector {sector}"), None),
        };
    }
    if let Some(within) = offset.checked_sub(sb.fat_offset(sb.fats)).filter(|_| offset < sb.data_start) {
        return match sb.root {
            Root::Region { .. } => structure(
                format!("entry {} of the root directory", within / 32),
                Some(Target::Directory(ROOT)),
            ),
            Root::Chain(_) => Ok(ByteUse::Unused),
        };
    }
    if offset < sb.data_start {
        let within = offset.saturating_sub(sb.fat_start);
        let copy = within.checked_div(sb.fat_len).unwrap_or(0);
        let byte = within.checked_rem(sb.fat_len).unwrap_or(0);
        // If two 12-bit entries share the byte, the first one is reported.
        let cluster = byte.saturating_mul(8).checked_div(sb.width.bits().into()).unwrap_or(0);
        let target = (2..u64::from(sb.clusters).saturating_add(2)).contains(&cluster);
        return structure(
            format!("FAT {copy}'s entry of cluster {cluster}"),
            target.then_some(Target::Block(cluster)),
        );
    }
    let Some((cluster, _)) = sb.cluster_at(offset) else { return Ok(ByteUse::Unused) };
    match volume.table().entry(cluster)? {
        Entry::Free => Ok(ByteUse::Unused),
        Entry::Bad => structure(format!("bad cluster {}", cluster.0), Some(Target::Block(cluster.0.into()))),
        _ => Ok(ByteUse::OfFiles),
    }
}
