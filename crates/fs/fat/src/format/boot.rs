//! The boot sector of a new volume.

use obento_base::wire::{FromZeros as _, IntoBytes as _, le};

use super::NO_NAME;
use super::geometry::{Geometry, INFO};
use super::settings::Settings;
use crate::raw::{RawBoot, RawBpb16, RawBpb32};
use crate::super_block::Width;

/// Who says that it made the volume: some systems look at it.
const OEM: &[u8; 8] = b"mkfs.fat";
/// Where the BIOS puts the sector.
const LOADED_AT: u16 = 0x7c00;
/// What is run if the BIOS starts the volume, as each volume of mkfs.fat has it: it prints what stands behind it, waits for
/// a key and starts the machine again (`push cs; pop ds; mov si, MESSAGE; lodsb; and al, al; jz; ...; int 19h; jmp $`).
const CODE: [u8; 29] = [
    0x0e, 0x1f, 0xbe, 0x00, 0x00, 0xac, 0x22, 0xc0, 0x74, 0x0b, 0x56, 0xb4, 0x0e, 0xbb, 0x07, 0x00, 0xcd,
    0x10, 0x5e, 0xeb, 0xf0, 0x32, 0xe4, 0xcd, 0x16, 0xcd, 0x19, 0xeb, 0xfe,
];
/// Where `CODE` names the message.
const MESSAGE_AT: usize = 3;
const MESSAGE: &[u8] = b"This is not a bootable disk.  Please insert a bootable floppy and\r\n\
    press any key to try again ... \r\n";
/// Bytes before the part of the sector that depends on the width.
const COMMON: u16 = 0x24;

/// The boot sector.
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
    code.iter_mut().zip(CODE.iter().chain(MESSAGE)).for_each(|(to, from)| *to = *from);
    code.iter_mut().skip(MESSAGE_AT).zip(message).for_each(|(to, from)| *to = from);
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
