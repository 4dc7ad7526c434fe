//! Changing the label and the serial number of a volume.
//!
//! The label is one entry of the root directory. The serial number is in both boot regions, which have checksums. The
//! backup is written first. After a power failure, a check restores the main region from it.
//!
//! Source: exFAT specification, 3.1.11 "VolumeSerialNumber", 3.4 "Main and Backup Boot Checksum", 7.3 "Volume Label".

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_clusters::Cluster;
use obento_driver::{Tune, TuneError, TuneOptions};

use crate::boot::{BootRegion, Region};
use crate::name::to_units;
use crate::open::{ExFatDriver, locate};
use crate::raw::kind;
use crate::super_block::SuperBlock;
use crate::tables::LABEL_MAX;

const ENTRY: usize = 32;
/// A label that is not in use.
const UNUSED_LABEL: u8 = kind::LABEL & !kind::IN_USE;
/// The offset of `VolumeSerialNumber` in a boot sector.
const SERIAL: usize = 100;
/// The most clusters of a root directory that are searched: 256 MiB of entries in the smallest clusters.
const MOST: usize = 1 << 19;

impl Tune for ExFatDriver {
    fn tune(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &TuneOptions,
    ) -> core::result::Result<Vec<String>, TuneError> {
        if device.is_read_only() {
            return Err(Error::ReadOnly.into());
        }
        options.expect_label_and_serial("exFAT")?;
        let located = locate(&*device, None)?;
        if let Some(error) = located.damage {
            return Err(error.into());
        }
        let sb = located.region.sb;
        sb.expect_changeable(&*device)?;
        let label = options.label.as_deref().map(entry).transpose()?;
        if let Some(label) = label {
            let place = place(&*device, &sb)?;
            let place = place
                .ok_or_else(|| TuneError::unavailable("label", "the root directory has no free entry"))?;
            device.write_at(place, &label)?;
            device.flush()?;
        }
        if let Some(serial) = options.serial {
            for region in [Region::Backup, Region::Main] {
                set_serial(&*device, region, &sb, serial)?;
            }
        }
        Ok(Vec::new())
    }
}

/// Returns the entry of a label.
fn entry(label: &[u8]) -> core::result::Result<[u8; ENTRY], TuneError> {
    let refused = || TuneError::refused("label", "must have at most 11 UTF-16 units");
    let units = to_units(label).map_err(|_| refused())?;
    let count = u8::try_from(units.len()).ok().filter(|_| units.len() <= LABEL_MAX).ok_or_else(refused)?;
    let mut entry = [0; ENTRY];
    let head = [if units.is_empty() { UNUSED_LABEL } else { kind::LABEL }, count];
    let bytes = head.into_iter().chain(units.iter().flat_map(|unit| unit.to_le_bytes()));
    entry.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    Ok(entry)
}

/// Returns the byte offset of the label, or of an entry that is not in use.
fn place(device: &dyn BlockDevice, sb: &SuperBlock) -> Result<Option<u64>> {
    let (mut cluster, mut seen, mut free) = (sb.root, BTreeSet::new(), None);
    while let Some(start) = sb.offset_of(cluster).filter(|_| seen.len() < MOST && seen.insert(cluster.0)) {
        let mut bytes = vec![0; to_usize(sb.cluster_size.into())];
        device.read_at(start, &mut bytes)?;
        let places = (start..).step_by(ENTRY);
        for (place, entry) in places.zip(bytes.chunks_exact(ENTRY)) {
            match entry.first().copied().unwrap_or(kind::END) {
                kind::LABEL | UNUSED_LABEL => return Ok(Some(place)),
                // All entries after the end are zeros (6.2.1), so the next one is the end afterwards.
                kind::END => return Ok(free.or(Some(place))),
                other if other & kind::IN_USE == 0 => free = free.or(Some(place)),
                _ => {}
            }
        }
        let mut next = [0; 4];
        let fat = sb.fat_start.saturating_add(u64::from(cluster.0).saturating_mul(4));
        device.read_at(fat, &mut next)?;
        cluster = Cluster(u32::from_le_bytes(next));
    }
    Ok(free)
}

/// Sets the serial number of a boot region, and its checksum.
fn set_serial(device: &dyn BlockDevice, region: Region, sb: &SuperBlock, serial: u32) -> Result<()> {
    let mut found = BootRegion::read(device, region, sb.sector_size)?;
    let field = found.bytes.get_mut(SERIAL..SERIAL.saturating_add(4)).unwrap_or_default();
    field.iter_mut().zip(serial.to_le_bytes()).for_each(|(to, byte)| *to = byte);
    found.write(device, region)
}
