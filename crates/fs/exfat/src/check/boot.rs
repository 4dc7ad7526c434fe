//! The boot region, its backup, and the marks.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, to_usize};
use obento_base::{Error, Result};
use obento_block::{BlockDevice, Cache};
use obento_clusters::Cluster;
use obento_driver::{Decoded, Probe};

use super::Pass;
use super::edit::Edit;
use super::issue::Issue;
use crate::boot::{BootRegion, Region, SECTORS, UNSUMMED, checksum};
use crate::open::{Located, find};
use crate::raw::{RawBitmap, RawUpCase, kind};
use crate::super_block::{DIRTY, MEDIA_FAILURE, SuperBlock};
use crate::table::Reader;
use crate::up_case;

/// The value of `PercentInUse` if it is unknown.
const UNKNOWN: u8 = 0xff;
/// Version 1.00, the only one that exists.
const REVISION: u16 = 0x100;
/// Number of bytes of the root directory that are examined to see whether a boot sector fits.
const FIT_ROOT: u32 = 4096;
/// Cache size for the FAT during this test.
const FIT_CACHE: usize = 64 << 10;

/// Checks the boot regions, which `probe` may contain, and returns the boot sector. Fails with `Corrupt` if neither
/// region is usable, or with `Unsupported` for two FATs.
pub fn check(
    device: &Arc<dyn BlockDevice>,
    probe: Option<&Probe>,
    look: &mut Pass<'_>,
) -> Result<SuperBlock> {
    let Located { mut region, damage, is_backup } = Decoded::of(probe, || find(&**device))?;
    match damage {
        None => {
            if let Some(copy) = better(device, &region)? {
                look.found(Issue::BootRegionFits {}, restore(&copy));
                region = copy;
            }
        }
        Some(why) if is_backup => look.found(Issue::BootRegion { why }, restore(&region)),
        Some(why) => look.found(Issue::BootChecksum { why }, sum_up(&region)),
    }
    if region.sb.fats > 1 {
        return Err(Error::Unsupported(obento_base::Feature::Named(
            "checking a volume with two FATs (TexFAT)",
        )));
    }
    backup(device, &region, look)?;
    marks(device, &region, look);
    Ok(region.sb)
}

/// Returns the backup, if it differs and fits the volume, and the main region does not. Fails if the device fails.
fn better(device: &Arc<dyn BlockDevice>, main: &BootRegion) -> Result<Option<BootRegion>> {
    let copy = match BootRegion::whole(&**device, Region::Backup, main.sb.sector_size) {
        Ok(copy) if copy.sb != main.sb => copy,
        // A backup that cannot be read is not a different one.
        Err(error @ Error::Device(_)) => return Err(error),
        _ => return Ok(None),
    };
    let is_better = fit(device, &copy.sb)? > fit(device, &main.sb)?;
    Ok(Some(copy).filter(|_| is_better))
}

/// Returns a score for a boot sector, which is higher if more of the structures that it refers to are present. These
/// are the FAT, and in the root directory a bitmap and an up-case table. Fails if the device fails.
fn fit(device: &Arc<dyn BlockDevice>, sb: &SuperBlock) -> Result<u32> {
    let cache = Cache::new(Arc::clone(device), sb.sector_size, FIT_CACHE);
    if sb.len > device.len() {
        return Ok(0);
    }
    let mut points = 1_u32;
    points = points.saturating_add(u32::from(sb.revision == REVISION));
    let starts = Reader::new(sb, &cache).value(Cluster(0))?;
    points = points.saturating_add(u32::from(starts & 0xffff_ff00 == 0xffff_ff00));
    let Some(root) = sb.offset_of(sb.root) else { return Ok(points) };
    let len = sb.cluster_size.min(FIT_ROOT);
    let mut bytes = vec![0; to_usize(len.into())];
    device.read_at(root, &mut bytes)?;
    for entry in bytes.chunks_exact(32) {
        let Ok(raw) = RawBitmap::read_from_bytes(entry) else { break };
        let is_there = sb.has(Cluster(raw.FirstCluster.get()));
        match raw.EntryType {
            kind::BITMAP if is_there => {
                points = points.saturating_add(if raw.DataLength.get() == sb.bitmap_len() { 2 } else { 1 });
            }
            kind::UP_CASE if is_there && up_case::is_len(raw.DataLength.get()) => {
                let Ok(raw) = RawUpCase::read_from_bytes(entry) else { continue };
                let mut table = vec![0; to_usize(raw.DataLength.get())];
                let place = sb.offset_of(Cluster(raw.FirstCluster.get())).unwrap_or(0);
                // A structure that cannot be read is an error, not a mismatch.
                device.read_at(place, &mut table)?;
                let is_it = up_case::checksum(&table) == raw.TableChecksum.get();
                points = points.saturating_add(if is_it { 3 } else { 1 });
            }
            kind::END => break,
            _ => {}
        }
    }
    Ok(points)
}

/// Returns edits that write a region over the main one.
fn restore(copy: &BootRegion) -> Vec<Edit> {
    let mut bytes = copy.bytes.clone();
    if let [.., percent] = UNSUMMED
        && let Some(byte) = bytes.get_mut(percent)
    {
        *byte = UNKNOWN;
    }
    Vec::from([Edit::Write(0, bytes)])
}

/// Returns edits that correct the checksum of the region.
fn sum_up(main: &BootRegion) -> Vec<Edit> {
    let size = to_usize(main.sb.sector_size.into());
    let sum = checksum(&main.bytes, size).to_le_bytes();
    let words: Vec<u8> = core::iter::repeat_n(sum, size / 4).flatten().collect();
    Vec::from([Edit::Write(u64::from(main.sb.sector_size).saturating_mul(11), words)])
}

fn backup(device: &Arc<dyn BlockDevice>, main: &BootRegion, look: &mut Pass<'_>) -> Result<()> {
    let size = u64::from(main.sb.sector_size);
    let mut copy = main.bytes.clone();
    device.read_at(size.saturating_mul(SECTORS), &mut copy)?;
    let differs = main.bytes.iter().zip(&copy).enumerate();
    let mut differs = differs.filter(|(at, (one, other))| one != other && !UNSUMMED.contains(at));
    // If the main region is damaged, the backup is not compared with it.
    if let Some((at, _)) = differs.next().filter(|_| look.found.is_empty()) {
        let mut bytes = main.bytes.clone();
        for at in UNSUMMED {
            if let (Some(to), Some(from)) = (bytes.get_mut(at), copy.get(at)) {
                *to = *from;
            }
        }
        let offset = u32::try_from(at).unwrap_or(0);
        let at = size.saturating_mul(SECTORS);
        look.found(Issue::BackupBootRegion { offset }, Vec::from([Edit::Write(at, bytes)]));
    }
    Ok(())
}

fn marks(device: &Arc<dyn BlockDevice>, main: &BootRegion, look: &mut Pass<'_>) {
    let (expected, found) = (main.sb.len, device.len());
    if expected > found {
        look.found(Issue::Truncated { found, expected }, Vec::new());
    }
    if main.sb.flags & MEDIA_FAILURE != 0 {
        look.found(Issue::MarkedWithErrors {}, Vec::new());
    }
    if main.sb.flags & DIRTY != 0 {
        let flags = (main.sb.flags & !DIRTY).to_le_bytes();
        let [at, ..] = UNSUMMED;
        look.found(Issue::InUse {}, Vec::from([Edit::Write(obento_base::wire::to_u64(at), flags.to_vec())]));
    }
}
