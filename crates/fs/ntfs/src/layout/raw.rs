//! Headers of records, attributes and index blocks.
//!
//! Sources: linux-ntfs documentation, "FILE Record", "Attributes", "Index"; libfsntfs documentation, "The MFT
//! entry", "The MFT attribute", "The index".

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};

/// The start of a record of the master file table.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawRecord {
    /// 0: `FILE`, or `BAAD` after `chkdsk` found a torn write.
    pub magic: [u8; 4],
    /// 4: offset of the update sequence array.
    pub usa_offset: le::U16,
    /// 6: number of its words.
    pub usa_count: le::U16,
    /// 8: sequence number of the log file.
    pub lsn: le::U64,
    /// 16: number of times that the record was used; 0 in a reference matches every value.
    pub sequence: le::U16,
    /// 18: number of `$FILE_NAME` attributes, including short names.
    pub link_count: le::U16,
    /// 20: offset of the first attribute.
    pub attributes: le::U16,
    /// 22: bit 0: in use; 1: has an index of names; 2: in `$Extend`; 3: has another index.
    pub flags: le::U16,
    /// 24: bytes in use.
    pub used: le::U32,
    /// 28: bytes of the record.
    pub allocated: le::U32,
    /// 32: reference of the base record; 0 in a base record.
    pub base: le::U64,
    /// 40: next attribute number.
    pub next_instance: le::U16,
    /// 42
    pub reserved: le::U16,
    /// 44: number of the record, since version 3.1.
    pub number: le::U32,
}
const _: () = assert!(size_of::<RawRecord>() == 48);

/// The part of an attribute that all attributes have.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawAttribute {
    /// 0
    pub kind: le::U32,
    /// 4: bytes of the attribute, including this header.
    pub length: le::U32,
    /// 8: 0 if the value is in the record.
    pub non_resident: u8,
    /// 9: units of the name.
    pub name_length: u8,
    /// 10
    pub name_offset: le::U16,
    /// 12: bits 0 to 7: compression method; 14: encrypted; 15: sparse.
    pub flags: le::U16,
    /// 14
    pub instance: le::U16,
}
const _: () = assert!(size_of::<RawAttribute>() == 16);

/// The rest of the header of an attribute whose value is in the record.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawResident {
    /// 16
    pub value_length: le::U32,
    /// 20
    pub value_offset: le::U16,
    /// 22: bit 0: the value is a key of an index.
    pub indexed: u8,
    /// 23
    pub reserved: u8,
}
const _: () = assert!(size_of::<RawResident>() == 8);

/// The rest of the header of an attribute whose value is in clusters.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawNonResident {
    /// 16: first cluster of the value that this part describes.
    pub lowest_vcn: le::U64,
    /// 24: last cluster of the value that this part describes.
    pub highest_vcn: le::U64,
    /// 32: offset of the runs.
    pub runs_offset: le::U16,
    /// 34: logarithm of the clusters of a compression unit; 0 if the value is not compressed.
    pub compression_unit: u8,
    /// 35
    pub reserved: [u8; 5],
    /// 40: multiple of the cluster size, and of the compression unit.
    pub allocated: le::U64,
    /// 48
    pub size: le::U64,
    /// 56: bytes that were written; the rest reads as zeros.
    pub initialized: le::U64,
}
const _: () = assert!(size_of::<RawNonResident>() == 48);

/// The header of the entries of an index, in the root and in each block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawIndexHeader {
    /// 0: offset of the first entry from this header.
    pub entries_offset: le::U32,
    /// 4: end of the entries from this header.
    pub entries_end: le::U32,
    /// 8: end of the room for entries.
    pub allocated: le::U32,
    /// 12: bit 0: entries have children.
    pub flags: u8,
    /// 13
    pub reserved: [u8; 3],
}
const _: () = assert!(size_of::<RawIndexHeader>() == 16);

/// The header of an index entry.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawIndexEntry {
    /// 0: file reference; in other indexes, offset and length of the data.
    pub reference: le::U64,
    /// 8: bytes of the entry.
    pub length: le::U16,
    /// 10: bytes of the key.
    pub key_length: le::U16,
    /// 12: bit 0: has a child; 1: is the last entry, without a key.
    pub flags: le::U16,
    /// 14
    pub reserved: le::U16,
}
const _: () = assert!(size_of::<RawIndexEntry>() == 16);

/// The start of a `$FILE_NAME` attribute and of a key of a directory.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFileName {
    /// 0: reference of the directory.
    pub parent: le::U64,
    /// 8: creation, modification, change of the record, access.
    pub times: [le::U64; 4],
    /// 40
    pub allocated: le::U64,
    /// 48
    pub size: le::U64,
    /// 56: attributes, and `0x10000000` for a directory.
    pub flags: le::U32,
    /// 60: reparse tag, or the length of the extended attributes.
    pub reparse_tag: le::U32,
    /// 64: units of the name.
    pub name_length: u8,
    /// 65: 0: POSIX, 1: Win32, 2: DOS, 3: Win32 and DOS.
    pub namespace: u8,
}
const _: () = assert!(size_of::<RawFileName>() == 66);

/// The start of a `$STANDARD_INFORMATION` attribute, which all versions have.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawStandardInformation {
    /// 0: creation, modification, change of the record, access.
    pub times: [le::U64; 4],
    /// 32
    pub flags: le::U32,
    /// 36
    pub versions: [le::U32; 3],
}
const _: () = assert!(size_of::<RawStandardInformation>() == 48);

/// Types of attributes.
pub mod kind {
    /// `$STANDARD_INFORMATION`
    pub const STANDARD_INFORMATION: u32 = 0x10;
    /// `$ATTRIBUTE_LIST`
    pub const ATTRIBUTE_LIST: u32 = 0x20;
    /// `$FILE_NAME`
    pub const FILE_NAME: u32 = 0x30;
    /// `$SECURITY_DESCRIPTOR`
    pub const SECURITY_DESCRIPTOR: u32 = 0x50;
    /// `$VOLUME_NAME`
    pub const VOLUME_NAME: u32 = 0x60;
    /// `$VOLUME_INFORMATION`
    pub const VOLUME_INFORMATION: u32 = 0x70;
    /// `$DATA`
    pub const DATA: u32 = 0x80;
    /// `$INDEX_ROOT`
    pub const INDEX_ROOT: u32 = 0x90;
    /// `$INDEX_ALLOCATION`
    pub const INDEX_ALLOCATION: u32 = 0xa0;
    /// `$BITMAP`
    pub const BITMAP: u32 = 0xb0;
    /// `$REPARSE_POINT`
    pub const REPARSE_POINT: u32 = 0xc0;
    /// `$EA`
    pub const EA: u32 = 0xe0;
    /// The mark after the last attribute of a record.
    pub const END: u32 = 0xffff_ffff;

    /// Returns the name of a type in the documentation.
    pub fn name(kind: u32) -> &'static str {
        match kind {
            STANDARD_INFORMATION => "$STANDARD_INFORMATION",
            ATTRIBUTE_LIST => "$ATTRIBUTE_LIST",
            FILE_NAME => "$FILE_NAME",
            0x40 => "$OBJECT_ID",
            SECURITY_DESCRIPTOR => "$SECURITY_DESCRIPTOR",
            VOLUME_NAME => "$VOLUME_NAME",
            VOLUME_INFORMATION => "$VOLUME_INFORMATION",
            DATA => "$DATA",
            INDEX_ROOT => "$INDEX_ROOT",
            INDEX_ALLOCATION => "$INDEX_ALLOCATION",
            BITMAP => "$BITMAP",
            REPARSE_POINT => "$REPARSE_POINT",
            0xd0 => "$EA_INFORMATION",
            EA => "$EA",
            0x100 => "$LOGGED_UTILITY_STREAM",
            _ => "unknown",
        }
    }
}

/// Attributes of a file, in `$STANDARD_INFORMATION` and `$FILE_NAME` (MS-FSCC 2.6).
pub mod file {
    /// Cannot be written.
    pub const READ_ONLY: u32 = 0x1;
    /// Belongs to the operating system; also the mark of the special files of Interix.
    pub const SYSTEM: u32 = 0x4;
    /// Has a reparse point.
    pub const REPARSE_POINT: u32 = 0x400;
    /// New data is compressed.
    pub const COMPRESSED: u32 = 0x800;
    /// Is encrypted.
    pub const ENCRYPTED: u32 = 0x4000;
    /// Has extended attributes that matter before it is opened (WSL).
    pub const RECALL_ON_OPEN: u32 = 0x4_0000;
    /// Has an index of names.
    pub const DIRECTORY: u32 = 0x1000_0000;
}

/// Numbers of the records that every volume has.
pub mod record {
    /// `$MFT`
    pub const MFT: u64 = 0;
    /// `$LogFile`
    pub const LOG_FILE: u64 = 2;
    /// `$Volume`
    pub const VOLUME: u64 = 3;
    /// The root directory.
    pub const ROOT: u64 = 5;
    /// `$Bitmap`
    pub const BITMAP: u64 = 6;
    /// `$BadClus`
    pub const BAD_CLUSTERS: u64 = 8;
    /// `$Secure`
    pub const SECURE: u64 = 9;
    /// `$UpCase`
    pub const UP_CASE: u64 = 10;
    /// The first record that can be a file of a user.
    pub const FIRST_USER: u64 = 16;
}

/// Returns the record number of a file reference.
pub fn record_of(reference: u64) -> u64 {
    reference & 0xffff_ffff_ffff
}

/// Returns the sequence number of a file reference.
pub fn sequence_of(reference: u64) -> u16 {
    u16::try_from(reference >> 48).unwrap_or(0)
}
