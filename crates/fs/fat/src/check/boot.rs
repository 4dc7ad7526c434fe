//! The boot sector and its copy, FSInfo's signatures, the copies of the FAT and the marks of use.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{FromBytes as _, IntoBytes as _, le, to_usize};
use obento_block::BlockDevice;

use super::copies;
use super::mend::Edit;
use super::view::View;
use super::{Issue, Pass};
use crate::info::{DIRTY, ERRORS};
use crate::open::{Located, locate};
use crate::raw::RawFsInfo;
use crate::super_block::Width;
use crate::unit::Cluster;

/// Bytes of a boot sector that count.
const BOOT: usize = 512;
/// Byte offset of `BPB_BkBootSec`.
const BACKUP_FIELD: u64 = 0x32;

/// Looks at what the volume is measured by. `None` if what it measures is not all there. Errors: Corrupt without a usable
/// boot sector; those of the device.
pub fn open(device: &Arc<dyn BlockDevice>, pass: &mut Pass<'_>) -> Result<Option<View>> {
    let Located { sb, instead_of } = locate(&**device)?;
    let is_first = instead_of.is_none();
    if let Some(why) = instead_of {
        let sector = sb.backup.unwrap_or(0);
        let bytes = read(&**device, u64::from(sector).saturating_mul(sb.sector_size.into()))?;
        pass.found(Issue::BootSector { sector, why }, vec![Edit::write(0, &bytes)]);
    }
    let (found, expected) = (device.len(), sb.len);
    if found < expected {
        pass.found(Issue::Truncated { found, expected }, Vec::new());
        return Ok(None);
    }
    let mut view = View::new(Arc::clone(device), sb);
    let data = view.sb.len.saturating_sub(view.sb.data_start);
    let there = data.checked_div(view.sb.cluster_size.into()).and_then(|count| u32::try_from(count).ok());
    if let Some(expected) = there.filter(|&expected| expected > view.sb.clusters) {
        pass.found(Issue::ShortFat { found: view.sb.clusters, expected }, Vec::new());
    }
    if view.sb.width == Width::Fat32 && is_first {
        backup(&view, pass)?;
    }
    info(&view, pass)?;
    tables(&mut view, pass)?;
    marks(&view, pass)?;
    Ok(Some(view))
}

fn read(device: &dyn BlockDevice, offset: u64) -> Result<[u8; BOOT]> {
    let mut bytes = [0; BOOT];
    device.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// The boot sector as it is on a volume that is not in use.
fn unused(view: &View) -> Result<[u8; BOOT]> {
    let mut bytes = read(&**view.device(), 0)?;
    if let Some(state) = bytes.get_mut(to_usize(view.sb.state_offset())) {
        *state &= !DIRTY;
    }
    Ok(bytes)
}

fn backup(view: &View, pass: &mut Pass<'_>) -> Result<()> {
    let size = u64::from(view.sb.sector_size);
    let first = unused(view)?;
    let Some(sector) = view.sb.backup else {
        let reserved = view.sb.fat_start.checked_div(size).and_then(|count| u16::try_from(count).ok());
        let sector = crate::format::backup_sector(reserved.unwrap_or(0));
        if sector > 0 {
            let mut bytes = first;
            bytes
                .iter_mut()
                .skip(to_usize(BACKUP_FIELD))
                .zip(sector.to_le_bytes())
                .for_each(|(to, from)| *to = from);
            let edits = vec![
                Edit::write(u64::from(sector).saturating_mul(size), &bytes),
                Edit::write(BACKUP_FIELD, &sector.to_le_bytes()),
            ];
            pass.found(Issue::NoBackup { sector }, edits);
        }
        return Ok(());
    };
    let start = u64::from(sector).saturating_mul(size);
    let mut copy = read(&**view.device(), start)?;
    // Whoever uses the volume marks the first alone.
    if let Some(state) = copy.get_mut(to_usize(view.sb.state_offset())) {
        *state &= !DIRTY;
    }
    if let Some(offset) = first.iter().zip(&copy).position(|(one, other)| one != other) {
        let offset = u32::try_from(offset).unwrap_or(0);
        pass.found(Issue::BackupBootSector { sector, offset }, vec![Edit::write(start, &first)]);
    }
    Ok(())
}

fn info(view: &View, pass: &mut Pass<'_>) -> Result<()> {
    let Some(offset) = view.sb.fs_info else { return Ok(()) };
    let mut bytes = read(&**view.device(), offset)?;
    let Ok(raw) = RawFsInfo::mut_from_bytes(&mut bytes) else { return Ok(()) };
    if raw.is_valid() && raw.FSI_TrailSig.get() == RawFsInfo::TRAIL {
        return Ok(());
    }
    raw.FSI_LeadSig = le::U32::new(RawFsInfo::LEAD);
    raw.FSI_StrucSig = le::U32::new(RawFsInfo::STRUCTURE);
    raw.FSI_TrailSig = le::U32::new(RawFsInfo::TRAIL);
    raw.FSI_Free_Count = le::U32::new(RawFsInfo::UNKNOWN);
    raw.FSI_Nxt_Free = le::U32::new(2);
    let sector = offset.checked_div(view.sb.sector_size.into()).and_then(|sector| u16::try_from(sector).ok());
    let edits = vec![Edit::write(offset, raw.as_bytes())];
    pass.found(Issue::FsInfo { sector: sector.unwrap_or(0) }, edits);
    Ok(())
}

/// Bits of the first entry that are set in every FAT, whatever the medium: its byte is 0xf0 or 0xf8 and more (fatgen103, `BPB_Media`).
fn start_bits(width: Width) -> u32 {
    match width {
        Width::Fat12 => 0xff0,
        Width::Fat16 => 0xfff0,
        Width::Fat32 => 0x0fff_fff0,
    }
}

/// Chooses the copy of the FAT that is read, and notes which copies differ from it.
fn tables(view: &mut View, pass: &mut Pass<'_>) -> Result<()> {
    let copies = if view.mirrored {
        0..view.sb.fats
    } else {
        view.sb.read_fat()..view.sb.read_fat().saturating_add(1)
    };
    let bits = start_bits(view.sb.width);
    let mut starts = Vec::new();
    for copy in copies.clone() {
        starts.push((copy, view.copy(copy).value(Cluster(0))?));
    }
    let sound = starts.iter().find(|&&(_, start)| start & bits == bits).copied();
    // The first that starts as it should is the one that is read.
    let (chosen, _) = sound.unwrap_or((copies.start, 0));
    view.sb.active_fat = Some(chosen);
    let value = sound.map_or(u32::from(view.sb.media) | 0x0fff_ff00, |(_, start)| start);
    let mut differing = Vec::new();
    for &(copy, found) in &starts {
        if found & bits != bits {
            let edit = Edit::Link { cluster: Cluster(0), value };
            pass.found(Issue::FatStart { copy, found }, vec![edit]);
        }
        if copy != chosen && copies::first_difference(view, chosen, copy, Cluster(1))?.is_some() {
            differing.push(copy);
        }
    }
    view.choices.get_mut().copies = differing;
    Ok(())
}

fn marks(view: &View, pass: &mut Pass<'_>) -> Result<()> {
    let sb = &view.sb;
    let mut edits = Vec::new();
    let mut has_errors = sb.state & ERRORS != 0;
    if sb.state & DIRTY != 0 {
        edits.push(Edit::write(sb.state_offset(), &[sb.state & !DIRTY]));
    }
    if let Some((clean, sound)) = sb.width.shutdown_bits() {
        let value = view.table().value(Cluster(1))?;
        has_errors |= value & sound == 0;
        if value & clean == 0 {
            edits.push(Edit::Link { cluster: Cluster(1), value: value | clean });
        }
    }
    if !edits.is_empty() {
        pass.found(Issue::InUse {}, edits);
    }
    if has_errors {
        pass.found(Issue::MarkedWithErrors {}, Vec::new());
    }
    Ok(())
}
