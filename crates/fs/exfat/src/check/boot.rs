//! The boot region, its copy, and the marks.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::BlockDevice;

use super::Look;
use super::edit::Edit;
use super::issue::Issue;
use crate::boot::{self, BootRegion, Region, SECTORS, UNSUMMED, checksum};
use crate::super_block::{DIRTY, MEDIA_FAILURE, SuperBlock};

/// `PercentInUse` where nobody counted.
const UNKNOWN: u8 = 0xff;

/// What the volume says of itself. Errors: Corrupt if neither region does; Unsupported for two FATs.
pub fn check(device: &Arc<dyn BlockDevice>, look: &mut Look<'_>) -> Result<SuperBlock> {
    let size = boot::sector_size(&**device).unwrap_or(512);
    let main = BootRegion::read(&**device, Region::Main, size);
    let verified = main.as_ref().map_err(|error| *error).and_then(|region| region.verify(Region::Main));
    let region = match (main, verified) {
        (Ok(main), Ok(())) => main,
        (_, Err(error @ Error::Unsupported(_))) => return Err(error),
        (main, verified) => {
            let why = verified.err().unwrap_or(Error::Invalid);
            match (boot::backup(&**device), main) {
                (Some(copy), _) => {
                    look.found(Issue::BootRegion { why }, restore(&copy));
                    copy
                }
                (None, Ok(main)) => {
                    look.found(Issue::BootChecksum { why }, sum_up(&main));
                    main
                }
                (None, Err(error)) => return Err(error),
            }
        }
    };
    if region.sb.fats > 1 {
        return Err(Error::Unsupported(obento_base::Feature::Named(
            "checking a volume with two FATs (TexFAT)",
        )));
    }
    backup(device, &region, look)?;
    marks(device, &region, look);
    Ok(region.sb)
}

/// Writes a region over the first.
fn restore(copy: &BootRegion) -> Vec<Edit> {
    let mut bytes = copy.bytes.clone();
    if let [.., percent] = UNSUMMED
        && let Some(byte) = bytes.get_mut(percent)
    {
        *byte = UNKNOWN;
    }
    Vec::from([Edit::Write(0, bytes)])
}

/// Writes the checksum that belongs to the region.
fn sum_up(main: &BootRegion) -> Vec<Edit> {
    let size = to_usize(main.sb.sector_size.into());
    let sum = checksum(&main.bytes, size).to_le_bytes();
    let words: Vec<u8> = core::iter::repeat_n(sum, size / 4).flatten().collect();
    Vec::from([Edit::Write(u64::from(main.sb.sector_size).saturating_mul(11), words)])
}

fn backup(device: &Arc<dyn BlockDevice>, main: &BootRegion, look: &mut Look<'_>) -> Result<()> {
    let size = u64::from(main.sb.sector_size);
    let mut copy = main.bytes.clone();
    device.read_at(size.saturating_mul(SECTORS), &mut copy)?;
    let differs = main.bytes.iter().zip(&copy).enumerate();
    let mut differs = differs.filter(|(at, (one, other))| one != other && !UNSUMMED.contains(at));
    // Where the first is damaged it is not what the copy is measured by.
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

fn marks(device: &Arc<dyn BlockDevice>, main: &BootRegion, look: &mut Look<'_>) {
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
