//! The boot sector and its backup, the signatures of FSInfo, the copies of the FAT, and the marks of use.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{FromBytes as _, IntoBytes as _, le, to_usize};
use obento_block::BlockDevice;
use obento_driver::Probe;

use super::choices::Choices;
use super::copies;
use super::edit::Edit;
use super::geometry::{self, BootFallback, Chosen};
use super::issue::Issue;
use super::pass::Pass;
use super::view::View;
use crate::info::{DIRTY, ERRORS};
use crate::raw::RawFsInfo;
use crate::super_block::{SuperBlock, Width};
use crate::table::place;
use crate::unit::Cluster;

/// Number of bytes of a boot sector that are used.
const BOOT: usize = 512;
/// Byte offset of `BPB_BkBootSec`.
const BACKUP_FIELD: u64 = 0x32;
/// Byte offset of `BPB_FSInfo`.
const INFO_FIELD: u64 = 0x30;
/// FSInfo is searched in the sectors that nearly every FAT32 volume reserves.
const RESERVED: u16 = 32;

/// Checks the structures that define the layout. `probe` may contain the boot sector. Returns `None` if a part of the
/// volume is missing. Fails with `Corrupt` without a usable boot sector, or if the device fails.
pub fn open(
    device: &Arc<dyn BlockDevice>,
    probe: Option<&Probe>,
    pass: &mut Pass<'_>,
) -> Result<Option<View>> {
    let Chosen { sb, bytes, fallback } = geometry::choose(device, probe)?;
    let is_first = fallback.is_none();
    let edits = vec![Edit::write(0, &bytes)];
    let sector = sb.backup.unwrap_or(0);
    match fallback {
        Some(BootFallback::Error(why)) => pass.found(Issue::BootSector { sector, why }, edits),
        Some(BootFallback::Copy(sector)) => pass.found(Issue::BootSectorFits { sector }, edits),
        Some(BootFallback::Field { field, found, expected }) => {
            pass.found(Issue::BootField { field, found, expected }, edits);
        }
        None => {}
    }
    let (found, expected) = (device.len(), sb.len);
    if found < expected {
        pass.found(Issue::Truncated { found, expected }, Vec::new());
        return Ok(None);
    }
    let mut view = View::new(Arc::clone(device), sb);
    if is_first {
        sizes(&view, pass);
    }
    if view.sb.width == Width::Fat32 && is_first {
        backup(&view, &bytes, pass)?;
    }
    if view.sb.width != Width::Fat32 || !is_first || info_place(&view, &bytes, pass)? {
        info(&view, pass)?;
    }
    tables(&mut view, pass)?;
    marks(&view, pass)?;
    Ok(Some(view))
}

/// Checks fields of a usable boot sector for which other systems refuse the volume.
fn sizes(view: &View, pass: &mut Pass<'_>) {
    let sb = &view.sb;
    if let Some((field, offset, found, expected)) = geometry::refused(sb) {
        let (value, copy) = (u16::try_from(expected).unwrap_or(0).to_le_bytes(), copy_of(sb));
        let places = [Some(0), copy].into_iter().flatten();
        let edits = places.map(|start| Edit::write(start.saturating_add(offset), &value)).collect();
        pass.found(Issue::BootField { field, found, expected }, edits);
    }
    let data = sb.len.saturating_sub(sb.data_start);
    let there = data.checked_div(sb.cluster_size.into()).and_then(|count| u32::try_from(count).ok());
    if let Some(expected) = there.filter(|&expected| expected > sb.clusters) {
        let len = u64::from(sb.clusters).saturating_mul(sb.cluster_size.into()).saturating_add(sb.data_start);
        let sectors = len.checked_div(sb.sector_size.into()).and_then(|sectors| u32::try_from(sectors).ok());
        let edits = [Some(0), copy_of(sb)].into_iter().flatten().flat_map(|start| {
            [
                Edit::write(start.saturating_add(0x13), &[0; 2]),
                Edit::write(start.saturating_add(0x20), &sectors.unwrap_or(0).to_le_bytes()),
            ]
        });
        let edits = edits.collect();
        pass.found(Issue::ShortFat { found: sb.clusters, expected }, edits);
    }
}

/// Returns the byte offset of the backup boot sector.
fn copy_of(sb: &SuperBlock) -> Option<u64> {
    sb.backup.map(|sector| u64::from(sector).saturating_mul(sb.sector_size.into()))
}

fn read(device: &dyn BlockDevice, offset: u64) -> Result<[u8; BOOT]> {
    let mut bytes = [0; BOOT];
    device.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// Checks the backup of the boot sector, which has these bytes.
fn backup(view: &View, boot: &[u8; BOOT], pass: &mut Pass<'_>) -> Result<()> {
    let size = u64::from(view.sb.sector_size);
    let mut first = *boot;
    if let Some(state) = first.get_mut(to_usize(view.sb.state_offset())) {
        *state &= !DIRTY;
    }
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
    // A wrong sector number does not justify overwriting that sector.
    if let Some(expected) = crate::open::backup(&**view.device()).and_then(|copy| copy.backup)
        && expected != sector
        && !SuperBlock::of_bytes(&read(&**view.device(), u64::from(sector).saturating_mul(size))?)
            .is_ok_and(|copy| copy.backup == Some(sector))
    {
        let (field, found) = ("BPB_BkBootSec", sector.into());
        let edits = vec![Edit::write(BACKUP_FIELD, &expected.to_le_bytes())];
        pass.found(Issue::BootField { field, found, expected: expected.into() }, edits);
        return Ok(());
    }
    let start = u64::from(sector).saturating_mul(size);
    let copy = read(&**view.device(), start)?;
    // Systems that use the volume mark only the primary boot sector, so the backup has no mark.
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

/// Finds FSInfo, and returns whether the sector in `BPB_FSInfo` may contain it. This sector must not belong to another
/// structure. If FSInfo is in another sector, reports this and returns false. The boot sector has the bytes `boot`.
fn info_place(view: &View, boot: &[u8; BOOT], pass: &mut Pass<'_>) -> Result<bool> {
    let size = u64::from(view.sb.sector_size);
    let reserved =
        view.sb.fat_start.checked_div(size).and_then(|count| u16::try_from(count).ok()).unwrap_or(0);
    let is_valid = |sector: u16| -> Result<bool> {
        let bytes = read(&**view.device(), u64::from(sector).saturating_mul(size))?;
        let (lead, structure) = (RawFsInfo::LEAD, RawFsInfo::STRUCTURE);
        let is_one = |raw: &RawFsInfo| raw.FSI_LeadSig.get() == lead || raw.FSI_StrucSig.get() == structure;
        Ok(RawFsInfo::ref_from_bytes(&bytes).is_ok_and(is_one))
    };
    let found = boot.get(to_usize(INFO_FIELD)..).and_then(|rest| rest.first_chunk().copied());
    let found = u16::from_le_bytes(found.unwrap_or([0; 2]));
    // After the backup boot sector there is a copy of FSInfo.
    let copies = view.sb.backup.map(|sector| sector..=sector.saturating_add(1));
    let is_copy = |sector: u16| copies.as_ref().is_some_and(|copies| copies.contains(&sector));
    let may_be = |sector: u16| sector > 0 && sector < reserved && !is_copy(sector);
    if may_be(found) && is_valid(found)? {
        return Ok(true);
    }
    let mut expected = if may_be(found) { found } else { 1 };
    for sector in (1..reserved.min(RESERVED)).filter(|&sector| may_be(sector)) {
        if is_valid(sector)? {
            expected = sector;
            break;
        }
    }
    if expected == found || !may_be(expected) {
        return Ok(may_be(found));
    }
    let places = [Some(0), copy_of(&view.sb)].into_iter().flatten();
    let edits = places.map(|start| Edit::write(start.saturating_add(INFO_FIELD), &expected.to_le_bytes()));
    let (field, found, expected, edits) = ("BPB_FSInfo", found.into(), expected.into(), edits.collect());
    pass.found(Issue::BootField { field, found, expected }, edits);
    Ok(false)
}

/// Returns the bits of the first entry that are set in every FAT, whatever the media type. The media type is 0xf0 or at
/// least 0xf8 (fatgen103, `BPB_Media`).
pub fn start_bits(width: Width) -> u32 {
    match width {
        Width::Fat12 => 0xff0,
        Width::Fat16 => 0xfff0,
        Width::Fat32 => 0x0fff_fff0,
    }
}

/// Chooses the copy of the FAT that is read, and records which copies differ from it.
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
    // The first copy with a correct start is read.
    let (chosen, _) = sound.unwrap_or((copies.start, 0));
    view.sb.active_fat = Some(chosen);
    let value = sound.map_or(u32::from(view.sb.media) | 0x0fff_ff00, |(_, start)| start);
    let mut differing = Vec::new();
    for &(copy, found) in &starts {
        if found & bits != bits {
            let edit = Edit::Link { cluster: Cluster(0), value };
            pass.found(Issue::FatStart { copy, found }, vec![edit]);
        }
        // A wrong start is already reported.
        let start = Cluster(u32::from(found & bits != bits));
        if copy != chosen && copies::first_difference(view, chosen, copy, start)?.is_some() {
            differing.push((copy, start));
        }
    }
    if !differing.is_empty() {
        let used = view.used()?.count(2..view.sb.clusters.saturating_add(2));
        *view.choices.get_mut() = Choices::new(differing, used);
    }
    for &(copy, _) in starts.iter().filter(|(copy, _)| *copy != chosen) {
        rest(view, chosen, copy, pass)?;
    }
    for copy in (0..view.sb.fats).filter(|copy| !copies.contains(copy)) {
        if let Some(Cluster(cluster)) = copies::first_difference(view, chosen, copy, Cluster(0))? {
            pass.found(Issue::UnusedFat { copy, cluster }, vec![Edit::Mirror { copy }]);
        }
    }
    Ok(())
}

/// Reports that the four bits after the last of an odd number of entries differ, since `fsck.fat` compares whole bytes.
fn rest(view: &View, chosen: u8, copy: u8, pass: &mut Pass<'_>) -> Result<()> {
    let sb = &view.sb;
    let entries = sb.clusters.saturating_add(2);
    let (last, _) = place(sb.width, Cluster(entries.saturating_sub(1)));
    let at = last.saturating_add(1);
    if sb.width != Width::Fat12 || entries.is_multiple_of(2) || at >= sb.fat_len {
        return Ok(());
    }
    let [byte] = view.bytes(sb.fat_offset(chosen).saturating_add(at))?;
    let offset = sb.fat_offset(copy).saturating_add(at);
    let [other]: [u8; 1] = view.bytes(offset)?;
    // Otherwise the last entry differs, too, and the next pass compares the rest.
    if byte != other && byte & 0xf == other & 0xf {
        pass.found(Issue::FatCopy { copy, cluster: entries }, vec![Edit::write(offset, &[byte])]);
    }
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
