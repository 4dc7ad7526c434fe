//! Changing the label and the serial number of a volume.
//!
//! The label is an entry of the root directory, and a field of the boot sectors. Each write is one sector, so a power
//! failure leaves a valid volume. The label may then differ in the two places, as drivers other than `fatlabel` leave
//! it.
//!
//! Source: fatgen103, "FAT Directory Structure", `ATTR_VOLUME_ID`; dosfstools src/fatlabel.c.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{FromBytes, FromZeros, IntoBytes, to_usize};
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_driver::{Tune, TuneError, TuneOptions};

use crate::format::is_label;
use crate::open::{FatDriver, locate};
use crate::raw::{RawBoot, RawBpb16, RawBpb32, RawEntry};
use crate::super_block::{Root, SuperBlock, Width};
use crate::undelete::chain_of;
use crate::unit::ENTRY_LEN;

/// The field of a boot sector of a volume without a label.
const NO_NAME: [u8; 11] = *b"NO NAME    ";
const FREE: u8 = 0xe5;
const END: u8 = 0;
const VOLUME_ID: u8 = 0x08;
const LONG: u8 = 0x0f;
/// 1 January 1980.
const FIRST_DAY: u16 = 0x21;
/// The value of `BS_BootSig` with which the serial number and the label are valid.
const EXTENDED: u8 = 0x29;

impl Tune for FatDriver {
    fn tune(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &TuneOptions,
    ) -> core::result::Result<Vec<String>, TuneError> {
        if device.is_read_only() {
            return Err(Error::ReadOnly.into());
        }
        options.expect_label_and_serial("FAT")?;
        let located = locate(&*device, None)?;
        if let Some(error) = located.instead_of {
            return Err(error.into());
        }
        let sb = located.sb;
        sb.expect_whole(&*device)?;
        if sb.serial.is_none() && options.serial.is_some() {
            return Err(TuneError::unavailable("serial", "the boot sector has no serial number"));
        }
        let label = options.label.as_deref().map(|label| self.label(label)).transpose()?;
        if let Some(label) = label {
            let slot = Slot::find(&*device, &sb)?;
            slot.write(&*device, label)?;
        }
        change_boot(&*device, &sb, label, options.serial)?;
        Ok(Vec::new())
    }
}

impl FatDriver {
    /// Returns the bytes of a label, or `None` for an empty one.
    fn label(&self, label: &[u8]) -> core::result::Result<Option<[u8; 11]>, TuneError> {
        if label.trim_ascii().is_empty() {
            return Ok(None);
        }
        let refused = || {
            TuneError::refused(
                "label",
                "must have at most 11 characters of the code page, none of *?.,;:/\\|+=<>[]\", and no leading space",
            )
        };
        let units = crate::name::to_units(label).map_err(|_| refused())?;
        let mut bytes = [b' '; 11];
        if units.len() > bytes.len() {
            return Err(refused());
        }
        for (byte, &unit) in bytes.iter_mut().zip(&units) {
            *byte = self.options.code_page.encode(unit).ok_or_else(refused)?;
        }
        if is_label(&bytes) { Ok(Some(bytes)) } else { Err(refused()) }
    }
}

/// The entry of the root directory that contains the label, or can contain it.
struct Slot {
    /// The byte offset on the volume, and the entry, if one exists.
    at: Option<(u64, RawEntry)>,
    /// The first unused entry.
    free: Option<u64>,
    /// The entry after `free`, if `free` was the end of the directory.
    next: Option<u64>,
}

impl Slot {
    fn find(device: &dyn BlockDevice, sb: &SuperBlock) -> Result<Self> {
        let mut slot = Self { at: None, free: None, next: None };
        for range in root_ranges(device, sb)? {
            let mut bytes = vec![0; to_usize(range.end.saturating_sub(range.start))];
            device.read_at(range.start, &mut bytes)?;
            let places = (range.start..range.end).step_by(to_usize(ENTRY_LEN));
            for (place, entry) in places.zip(bytes.chunks_exact(to_usize(ENTRY_LEN))) {
                let Ok(raw) = RawEntry::read_from_bytes(entry) else { continue };
                match raw.DIR_Name.first() {
                    _ if slot.free.is_some() && slot.next == Some(0) => {
                        slot.next = Some(place);
                        return Ok(slot);
                    }
                    Some(&END) if slot.free.is_none() => {
                        (slot.free, slot.next) = (Some(place), Some(0));
                    }
                    Some(&END) => return Ok(slot),
                    Some(&FREE) => slot.free = slot.free.or(Some(place)),
                    _ if raw.DIR_Attr & LONG != LONG && raw.DIR_Attr & VOLUME_ID != 0 => {
                        slot.at = Some((place, raw));
                        return Ok(slot);
                    }
                    _ => {}
                }
            }
        }
        slot.next = slot.next.filter(|next| *next != 0);
        Ok(slot)
    }

    fn write(
        &self,
        device: &dyn BlockDevice,
        label: Option<[u8; 11]>,
    ) -> core::result::Result<(), TuneError> {
        match (self.at, label) {
            (None, None) => Ok(()),
            (Some((at, _)), None) => Ok(device.write_at(at, &[FREE])?),
            (Some((at, mut raw)), Some(label)) => {
                raw.DIR_Name = escaped(label);
                Ok(device.write_at(at, raw.as_bytes())?)
            }
            (None, Some(label)) => {
                let at = self
                    .free
                    .ok_or_else(|| TuneError::unavailable("label", "the root directory has no free entry"))?;
                if let Some(next) = self.next {
                    // The entry becomes the last one.
                    device.write_at(next, &[END])?;
                    device.flush()?;
                }
                let mut raw = RawEntry::new_zeroed();
                raw.DIR_Name = escaped(label);
                raw.DIR_Attr = VOLUME_ID;
                raw.DIR_WrtDate.set(FIRST_DAY);
                Ok(device.write_at(at, raw.as_bytes())?)
            }
        }
    }
}

/// Returns the label as an entry stores it: a first byte that would mark a free entry is replaced.
fn escaped(mut label: [u8; 11]) -> [u8; 11] {
    if let Some(first) = label.first_mut().filter(|first| **first == FREE) {
        *first = 0x05;
    }
    label
}

fn root_ranges(device: &dyn BlockDevice, sb: &SuperBlock) -> Result<Vec<Range<u64>>> {
    match sb.root {
        Root::Region { start, len } => Ok(core::iter::once(start..start.saturating_add(len)).collect()),
        Root::Chain(first) => {
            let starts = chain_of(device, sb, first)?.into_iter().filter_map(|cluster| sb.offset_of(cluster));
            Ok(starts.map(|start| start..start.saturating_add(sb.cluster_size.into())).collect())
        }
    }
}

/// Changes the boot sector and its backup, each of which is one sector.
fn change_boot(
    device: &dyn BlockDevice,
    sb: &SuperBlock,
    label: Option<Option<[u8; 11]>>,
    serial: Option<u32>,
) -> Result<()> {
    let backup = sb.backup.map(|sector| u64::from(sector).saturating_mul(sb.sector_size.into()));
    for at in backup.into_iter().chain([0]) {
        let mut bytes = [0; size_of::<RawBoot>()];
        device.read_at(at, &mut bytes)?;
        let Ok(raw) = RawBoot::mut_from_bytes(&mut bytes) else { continue };
        if raw.signature != [0x55, 0xaa] {
            continue;
        }
        let wide = size_of::<RawBpb32>().saturating_sub(size_of::<RawBpb16>());
        let start = if sb.width == Width::Fat32 { wide } else { 0 };
        let rest = raw.rest.get_mut(start..).unwrap_or_default();
        let Ok((tail, _)) = RawBpb16::mut_from_prefix(rest) else { continue };
        if let Some(serial) = serial {
            tail.BS_VolID.set(serial);
        }
        if let Some(label) = label.filter(|_| tail.BS_BootSig == EXTENDED) {
            tail.BS_VolLab = label.unwrap_or(NO_NAME);
        }
        device.write_at(at, &bytes)?;
        device.flush()?;
    }
    Ok(())
}
