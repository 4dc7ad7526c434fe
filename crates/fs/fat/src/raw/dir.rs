//! Directory entries of 32 bytes: a short entry for each file, preceded by the parts of its long name.
//!
//! Source: fatgen103, "FAT Directory Structure" and "FAT Long Directory Entries".

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};

/// A short entry.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
#[expect(non_snake_case, reason = "the specification's names")]
pub struct RawEntry {
    /// 0x0: base of 8 characters and extension of 3, padded with spaces. First byte 0: the end; 0xe5: free; 0x05
    /// represents 0xe5.
    pub DIR_Name: [u8; 11],
    /// 0xb
    pub DIR_Attr: u8,
    /// 0xc: Windows NT: bit 3, the base is in lower case; bit 4, the extension is.
    pub DIR_NTRes: u8,
    /// 0xd: creation time, in units of 10 ms after the two seconds of `DIR_CrtTime`: 0 to 199.
    pub DIR_CrtTimeTenth: u8,
    /// 0xe
    pub DIR_CrtTime: le::U16,
    /// 0x10
    pub DIR_CrtDate: le::U16,
    /// 0x12: the access time has no time of day.
    pub DIR_LstAccDate: le::U16,
    /// 0x14: 0 except on FAT32.
    pub DIR_FstClusHI: le::U16,
    /// 0x16
    pub DIR_WrtTime: le::U16,
    /// 0x18
    pub DIR_WrtDate: le::U16,
    /// 0x1a
    pub DIR_FstClusLO: le::U16,
    /// 0x1c: 0 for a directory.
    pub DIR_FileSize: le::U32,
}
const _: () = assert!(size_of::<RawEntry>() == 32);

/// A part of a long name.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(non_snake_case, reason = "the specification's names")]
pub struct RawLongEntry {
    /// 0x0: number of the part, from 1; bit 6 marks the last part, which comes first on disk.
    pub LDIR_Ord: u8,
    /// 0x1
    pub LDIR_Name1: [le::U16; 5],
    /// 0xb: 0x0f.
    pub LDIR_Attr: u8,
    /// 0xc: 0.
    pub LDIR_Type: u8,
    /// 0xd: checksum of the short name.
    pub LDIR_Chksum: u8,
    /// 0xe
    pub LDIR_Name2: [le::U16; 6],
    /// 0x1a: 0.
    pub LDIR_FstClusLO: le::U16,
    /// 0x1c
    pub LDIR_Name3: [le::U16; 2],
}
const _: () = assert!(size_of::<RawLongEntry>() == 32);

impl RawLongEntry {
    /// Returns the characters of this part.
    pub fn units(&self) -> impl Iterator<Item = u16> + '_ {
        self.LDIR_Name1.iter().chain(&self.LDIR_Name2).chain(&self.LDIR_Name3).map(|unit| unit.get())
    }
}
