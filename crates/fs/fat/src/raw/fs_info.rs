//! The FSInfo sector of FAT32. It contains only hints, which may be wrong.
//!
//! Source: fatgen103, "FAT32 FSInfo Sector Structure and Backup Boot Sector".

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};

/// The sector, up to 512 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(non_snake_case, reason = "the specification's names")]
pub struct RawFsInfo {
    /// 0x0: 0x41615252.
    pub FSI_LeadSig: le::U32,
    /// 0x4
    pub FSI_Reserved1: [u8; 480],
    /// 0x1e4: 0x61417272.
    pub FSI_StrucSig: le::U32,
    /// 0x1e8: last known number of free clusters; all ones for unknown.
    pub FSI_Free_Count: le::U32,
    /// 0x1ec: where to search for free clusters; all ones for unknown.
    pub FSI_Nxt_Free: le::U32,
    /// 0x1f0
    pub FSI_Reserved2: [u8; 12],
    /// 0x1fc: 0xaa550000.
    pub FSI_TrailSig: le::U32,
}
const _: () = assert!(size_of::<RawFsInfo>() == 512);

impl RawFsInfo {
    /// `FSI_LeadSig`.
    pub const LEAD: u32 = 0x4161_5252;
    /// `FSI_StrucSig`.
    pub const STRUCTURE: u32 = 0x6141_7272;
    /// `FSI_TrailSig`.
    pub const TRAIL: u32 = 0xaa55_0000;
    /// Represents an unknown number.
    pub const UNKNOWN: u32 = u32::MAX;

    /// Returns whether the signatures are right.
    pub fn is_valid(&self) -> bool {
        self.FSI_LeadSig.get() == Self::LEAD && self.FSI_StrucSig.get() == Self::STRUCTURE
    }
}
