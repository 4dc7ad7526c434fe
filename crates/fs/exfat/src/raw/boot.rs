//! The boot sector.
//!
//! Source: exFAT specification, 3.1 "Main and Backup Boot Sector Sub-regions", Table 4.

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};

/// The first sector of a boot region.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
#[expect(non_snake_case, reason = "the specification's names")]
pub struct RawBoot {
    /// 0: `eb 76 90`.
    pub JumpBoot: [u8; 3],
    /// 3: `EXFAT   `.
    pub FileSystemName: [u8; 8],
    /// 11: zeros, so that FAT drivers do not recognise the volume.
    pub MustBeZero: [u8; 53],
    /// 64: number of sectors before the volume; 0 if unknown.
    pub PartitionOffset: le::U64,
    /// 72: number of sectors of the volume.
    pub VolumeLength: le::U64,
    /// 80: sector of the first FAT; at least 24.
    pub FatOffset: le::U32,
    /// 84: sectors per FAT.
    pub FatLength: le::U32,
    /// 88: sector of cluster 2.
    pub ClusterHeapOffset: le::U32,
    /// 92: number of clusters.
    pub ClusterCount: le::U32,
    /// 96
    pub FirstClusterOfRootDirectory: le::U32,
    /// 100
    pub VolumeSerialNumber: le::U32,
    /// 104: 0x0100 for version 1.00.
    pub FileSystemRevision: le::U16,
    /// 106: not in the checksum. Bit 0: the second FAT is active; 1: in use, or not unmounted; 2: the medium failed;
    /// 3: to be cleared.
    pub VolumeFlags: le::U16,
    /// 108: 9 to 12.
    pub BytesPerSectorShift: u8,
    /// 109: at most 25 minus `BytesPerSectorShift`.
    pub SectorsPerClusterShift: u8,
    /// 110: 1, or 2 with TexFAT.
    pub NumberOfFats: u8,
    /// 111: 0x80.
    pub DriveSelect: u8,
    /// 112: not in the checksum. 0 to 100, or 0xff.
    pub PercentInUse: u8,
    /// 113
    pub Reserved: [u8; 7],
    /// 120
    pub BootCode: [u8; 390],
    /// 510: `55 aa`.
    pub BootSignature: [u8; 2],
}
const _: () = assert!(size_of::<RawBoot>() == 512);
