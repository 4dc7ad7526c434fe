//! The boot sector of a new volume.

use alloc::vec::Vec;

use obento_base::wire::{FromZeros as _, IntoBytes as _, le};

use super::NO_NAME;
use super::geometry::{Geometry, INFO};
use super::settings::Settings;
use crate::raw::{RawBoot, RawBpb16, RawBpb32};
use crate::super_block::Width;

/// The program that created the volume. Some systems test this field.
const OEM: &[u8; 8] = b"mkfs.fat";
/// Address to which the BIOS loads the sector.
const LOADED_AT: u16 = 0x7c00;
/// The program that runs if the BIOS boots the volume, as written by mkfs.fat. It prints the message after it, waits
/// for a key and reboots (`push cs; pop ds; mov si, MESSAGE; lodsb; and al, al; jz; ...; int 19h; jmp $`).
const CODE: [u8; 29] = [
    0x0e, 0x1f, 0xbe, 0x00, 0x00, 0xac, 0x22, 0xc0, 0x74, 0x0b, 0x56, 0xb4, 0x0e, 0xbb, 0x07, 0x00, 0xcd,
    0x10, 0x5e, 0xeb, 0xf0, 0x32, 0xe4, 0xcd, 0x16, 0xcd, 0x19, 0xeb, 0xfe,
];
/// Offset in `CODE` of the address of the message.
const MESSAGE_AT: usize = 3;
const MESSAGE: &[u8] = b"This is not a bootable disk.  Please insert a bootable floppy and\r\n\
    press any key to try again ... \r\n";
/// Number of bytes before the part of the sector that depends on the FAT type.
const COMMON: u16 = 0x24;

/// Offset of the disk signature and the partition table.
const MBR_AT: usize = 0x1b8;
/// Offset of the boot sector signature.
const MARK_AT: usize = 0x1fe;
/// Distance between tab stops.
const TAB: usize = 8;

/// Converts the text of a message to its form in the boot sector, as mkfs.fat does. Non-empty lines end with a carriage
/// return, and tabs become spaces. Each character becomes the byte with its number; returns `None` if there is no such
/// byte.
pub fn message(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut column) = (Vec::new(), 0_usize);
    for character in text.chars() {
        match u8::try_from(u32::from(character)).ok()? {
            b'\r' | 0 => {}
            b'\n' => {
                bytes.extend_from_slice(if column > 0 { b"\r\n" } else { b"\n" });
                column = 0;
            }
            b'\t' => {
                let stop = (column / TAB).saturating_add(1).saturating_mul(TAB);
                bytes.resize(bytes.len().saturating_add(stop.saturating_sub(column)), b' ');
                column = stop;
            }
            byte => {
                bytes.push(byte);
                column = column.saturating_add(1);
            }
        }
    }
    Some(bytes)
}

/// Returns the offset of the message in the boot sector.
fn message_at(width: Width) -> usize {
    let bpb_len = if width == Width::Fat32 { size_of::<RawBpb32>() } else { size_of::<RawBpb16>() };
    bpb_len.saturating_add(COMMON.into()).saturating_add(CODE.len())
}

/// Returns the maximum size of a message, which a zero byte ends.
pub fn message_max(width: Width, mbr: bool) -> usize {
    let end = if mbr { MBR_AT } else { MARK_AT };
    end.saturating_sub(message_at(width)).saturating_sub(1)
}

/// Returns the disk signature and a partition table with one partition, which begins with this sector. Source:
/// mkfs.fat 4.2; partition types and their limits from UEFI 2.10, 5.2.1, and the volumes of mkfs.fat.
pub fn partition(geometry: &Geometry, serial: u32) -> [u8; 22] {
    let sectors = geometry.sectors;
    let (heads, track) = (u32::from(geometry.disk.0), u32::from(geometry.disk.1));
    let tracks = sectors.checked_div(track).unwrap_or(0);
    let cylinder = tracks.checked_div(heads).unwrap_or(u32::MAX);
    let is_known = heads < 255 && track < 64;
    let has_chs = is_known && cylinder < 1024;
    // The sector after the last one, as in mkfs.fat.
    let end = match (tracks.checked_rem(heads), sectors.checked_rem(track)) {
        (Some(head), Some(sector)) if has_chs => {
            [head, cylinder >> 2 & 0xc0 | sector.saturating_add(1), cylinder]
        }
        _ => [0xfe, 0xff, 0xff],
    };
    let kind = match geometry.width {
        Width::Fat32 => 0x0c,
        Width::Fat12 if is_known && sectors < 65_536 => 0x01,
        Width::Fat16 if is_known && sectors < 65_536 => 0x04,
        _ if has_chs => 0x06,
        _ => 0x0e,
    };
    let mut bytes = [0; 22];
    let [first, second, third] = end.map(|number| number.to_le_bytes()[0]);
    let entry = [0x80, 0, 1, 0, kind, first, second, third];
    let fields = serial.to_le_bytes().into_iter().chain([0; 2]).chain(entry).chain([0; 4]);
    let fields = fields.chain(sectors.to_le_bytes());
    bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    bytes
}

/// Returns the boot sector.
pub fn sector(geometry: &Geometry, settings: &Settings) -> RawBoot {
    let is_32 = geometry.width == Width::Fat32;
    let bpb_len = if is_32 { size_of::<RawBpb32>() } else { size_of::<RawBpb16>() };
    let code_at = u16::try_from(bpb_len).unwrap_or(0).saturating_add(COMMON);
    let few = u16::try_from(geometry.sectors).unwrap_or(0);
    let mut raw = RawBoot::new_zeroed();
    raw.BS_jmpBoot = [0xeb, u8::try_from(code_at.saturating_sub(2)).unwrap_or(0), 0x90];
    raw.BS_OEMName = *OEM;
    raw.BPB_BytsPerSec = le::U16::new(u16::try_from(geometry.sector_size).unwrap_or(0));
    raw.BPB_SecPerClus = geometry.per_cluster;
    raw.BPB_RsvdSecCnt = le::U16::new(geometry.reserved);
    raw.BPB_NumFATs = geometry.fats;
    raw.BPB_RootEntCnt = le::U16::new(geometry.root_entries);
    raw.BPB_TotSec16 = le::U16::new(few);
    raw.BPB_TotSec32 = le::U32::new(if few == 0 { geometry.sectors } else { 0 });
    raw.BPB_Media = geometry.media;
    raw.BPB_SecPerTrk = le::U16::new(geometry.disk.1);
    raw.BPB_NumHeads = le::U16::new(geometry.disk.0);
    raw.BPB_HiddSec = le::U32::new(settings.hidden);
    raw.signature = [0x55, 0xaa];
    let tail = tail(geometry, settings);
    let (bpb, code) = raw.rest.split_at_mut(bpb_len);
    if is_32 {
        let mut bpb32 = RawBpb32::new_zeroed();
        bpb32.BPB_FATSz32 = le::U32::new(geometry.fat_sectors);
        bpb32.BPB_RootClus = le::U32::new(super::ROOT_CLUSTER.0);
        bpb32.BPB_FSInfo = le::U16::new(INFO);
        bpb32.BPB_BkBootSec = le::U16::new(geometry.backup);
        bpb32.tail = tail;
        bpb.copy_from_slice(bpb32.as_bytes());
    } else {
        raw.BPB_FATSz16 = le::U16::new(u16::try_from(geometry.fat_sectors).unwrap_or(0));
        bpb.copy_from_slice(tail.as_bytes());
    }
    let message = LOADED_AT.saturating_add(code_at).saturating_add(29).to_le_bytes();
    let said = settings.message.as_deref().unwrap_or(MESSAGE);
    let said = said.iter().take(message_max(geometry.width, settings.mbr));
    code.iter_mut().zip(CODE.iter().chain(said)).for_each(|(to, from)| *to = *from);
    code.iter_mut().skip(MESSAGE_AT).zip(message).for_each(|(to, from)| *to = from);
    if settings.mbr {
        let table = partition(geometry, settings.serial);
        let at = MBR_AT.saturating_sub(COMMON.into()).saturating_sub(bpb_len);
        code.iter_mut().skip(at).zip(table).for_each(|(to, from)| *to = from);
    }
    raw
}

fn tail(geometry: &Geometry, settings: &Settings) -> RawBpb16 {
    let mut tail = RawBpb16::new_zeroed();
    tail.BS_DrvNum = settings.drive.unwrap_or(if geometry.media == 0xf8 { 0x80 } else { 0 });
    tail.BS_BootSig = 0x29;
    tail.BS_VolID = le::U32::new(settings.serial);
    tail.BS_VolLab = settings.label.unwrap_or(NO_NAME);
    tail.BS_FilSysType = *match geometry.width {
        Width::Fat12 => b"FAT12   ",
        Width::Fat16 => b"FAT16   ",
        Width::Fat32 => b"FAT32   ",
    };
    tail
}
