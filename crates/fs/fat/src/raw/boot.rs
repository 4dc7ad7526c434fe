//! The boot sector, which contains the BIOS parameter block.
//!
//! Source: Microsoft, "FAT: General Overview of On-Disk Format" 1.03 (fatgen103), "Boot Sector and BPB"; the state
//! byte: Linux include/uapi/linux/msdos_fs.h, `struct fat_boot_sector`.

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};

/// The fields that all FAT types share.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(non_snake_case, reason = "the specification's names")]
pub struct RawBoot {
    /// 0x0: `eb xx 90` or `e9 xx xx`.
    pub BS_jmpBoot: [u8; 3],
    /// 0x3: the program that created the volume.
    pub BS_OEMName: [u8; 8],
    /// 0xb: 512, 1024, 2048 or 4096.
    pub BPB_BytsPerSec: le::U16,
    /// 0xd: a power of two.
    pub BPB_SecPerClus: u8,
    /// 0xe: number of sectors before the first FAT; never 0.
    pub BPB_RsvdSecCnt: le::U16,
    /// 0x10: number of FATs; 2 on nearly all volumes.
    pub BPB_NumFATs: u8,
    /// 0x11: number of entries of the root directory; 0 on FAT32.
    pub BPB_RootEntCnt: le::U16,
    /// 0x13: number of sectors of the volume, if fewer than 65,536 and not FAT32.
    pub BPB_TotSec16: le::U16,
    /// 0x15: 0xf0, or at least 0xf8.
    pub BPB_Media: u8,
    /// 0x16: sectors per FAT; 0 on FAT32.
    pub BPB_FATSz16: le::U16,
    /// 0x18
    pub BPB_SecPerTrk: le::U16,
    /// 0x1a
    pub BPB_NumHeads: le::U16,
    /// 0x1c: number of sectors before the volume.
    pub BPB_HiddSec: le::U32,
    /// 0x20: number of sectors of the volume, if `BPB_TotSec16` is 0.
    pub BPB_TotSec32: le::U32,
    /// 0x24: a [`RawBpb32`] or a [`RawBpb16`].
    pub rest: [u8; 474],
    /// 0x1fe: `55 aa`.
    pub signature: [u8; 2],
}
const _: () = assert!(size_of::<RawBoot>() == 512);

/// The fields from 0x24 on, on FAT12 and FAT16.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(non_snake_case, reason = "the specification's names")]
pub struct RawBpb16 {
    /// 0x24
    pub BS_DrvNum: u8,
    /// 0x25: Linux and Windows: bit 0 while the volume is in use, bit 1 after an error of the medium.
    pub BS_Reserved1: u8,
    /// 0x26: 0x29 if the next three fields are valid.
    pub BS_BootSig: u8,
    /// 0x27
    pub BS_VolID: le::U32,
    /// 0x2b: padded with spaces.
    pub BS_VolLab: [u8; 11],
    /// 0x36: informational only.
    pub BS_FilSysType: [u8; 8],
}
const _: () = assert!(size_of::<RawBpb16>() == 0x1a);

/// The fields from 0x24 on, on FAT32.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(non_snake_case, reason = "the specification's names")]
pub struct RawBpb32 {
    /// 0x24: sectors per FAT.
    pub BPB_FATSz32: le::U32,
    /// 0x28: bit 7: only the FAT in bits 0 to 3 is active.
    pub BPB_ExtFlags: le::U16,
    /// 0x2a: 0.
    pub BPB_FSVer: le::U16,
    /// 0x2c: first cluster of the root directory.
    pub BPB_RootClus: le::U32,
    /// 0x30: sector of the FSInfo structure.
    pub BPB_FSInfo: le::U16,
    /// 0x32: sector of the backup of the boot sectors, usually 6.
    pub BPB_BkBootSec: le::U16,
    /// 0x34
    pub BPB_Reserved: [u8; 12],
    /// 0x40: like [`RawBpb16`].
    pub tail: RawBpb16,
}
const _: () = assert!(size_of::<RawBpb32>() == 0x36);
