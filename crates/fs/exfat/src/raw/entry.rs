//! Directory entries: 32 bytes each.
//!
//! Source: exFAT specification, 6 "Directory Structure" and 7 "Directory Entry Definitions".

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};

/// The first byte of an entry. Bit 7: in use; 6: secondary, belongs to the previous primary entry; 5: benign, may be
/// skipped if unknown.
pub mod kind {
    /// In use.
    pub const IN_USE: u8 = 0x80;
    /// Belongs to the previous primary entry.
    pub const SECONDARY: u8 = 0x40;
    /// May be skipped if unknown.
    pub const BENIGN: u8 = 0x20;
    /// The end of the directory.
    pub const END: u8 = 0;
    /// The allocation bitmap.
    pub const BITMAP: u8 = 0x81;
    /// The up-case table.
    pub const UP_CASE: u8 = 0x82;
    /// The label of the volume.
    pub const LABEL: u8 = 0x83;
    /// A file or directory.
    pub const FILE: u8 = 0x85;
    /// The GUID of the volume.
    pub const GUID: u8 = 0xa0;
    /// Padding on a TexFAT volume.
    pub const PADDING: u8 = 0xa1;
    /// The clusters and lengths of a file.
    pub const STREAM: u8 = 0xc0;
    /// Fifteen units of a name.
    pub const NAME: u8 = 0xc1;
    /// Vendor extension.
    pub const VENDOR: u8 = 0xe0;
    /// Vendor extension with clusters.
    pub const VENDOR_ALLOCATION: u8 = 0xe1;
}

macro_rules! entry {
    ($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(C)]
        #[expect(non_snake_case, reason = "the specification's names")]
        pub struct $name {
            /// 0: see [`kind`].
            pub EntryType: u8,
            $($(#[$field_about])* pub $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == 32);
    };
}

entry! {
    /// Any entry.
    RawEntry {
        /// 1
        rest: [u8; 31],
    }
}

entry! {
    /// 7.4: a file or directory, the first of its set.
    RawFile {
        /// 1: number of following entries of the set, 2 to 18.
        SecondaryCount: u8,
        /// 2: checksum of the set without this field.
        SetChecksum: le::U16,
        /// 4
        FileAttributes: le::U16,
        /// 6
        Reserved1: le::U16,
        /// 8: the time in the lower half, the date in the upper.
        CreateTimestamp: le::U32,
        /// 12
        LastModifiedTimestamp: le::U32,
        /// 16
        LastAccessedTimestamp: le::U32,
        /// 20: 0 to 199.
        Create10msIncrement: u8,
        /// 21
        LastModified10msIncrement: u8,
        /// 22: if bit 7 is set, the other bits are a signed number: the offset of local time from UTC in quarters of
        /// an hour.
        CreateUtcOffset: u8,
        /// 23
        LastModifiedUtcOffset: u8,
        /// 24
        LastAccessedUtcOffset: u8,
        /// 25
        Reserved2: [u8; 7],
    }
}

entry! {
    /// 7.6: the clusters and lengths of a file, the second entry of its set.
    RawStream {
        /// 1: bit 0: the last two fields are valid; bit 1: the clusters are contiguous, and the FAT has no entries
        /// for them.
        GeneralSecondaryFlags: u8,
        /// 2
        Reserved1: u8,
        /// 3: length of the name in units, 1 to 255.
        NameLength: u8,
        /// 4: hash of the name in upper case.
        NameHash: le::U16,
        /// 6
        Reserved2: le::U16,
        /// 8: bytes past it read as zeros.
        ValidDataLength: le::U64,
        /// 16
        Reserved3: le::U32,
        /// 20: 0 for none.
        FirstCluster: le::U32,
        /// 24: size in bytes.
        DataLength: le::U64,
    }
}

entry! {
    /// 7.7: a part of a name.
    RawName {
        /// 1: 0.
        GeneralSecondaryFlags: u8,
        /// 2: UTF-16; zeros past the end.
        FileName: [le::U16; 15],
    }
}

entry! {
    /// 6.4: the fields that all secondary entries share.
    RawSecondary {
        /// 1: as in [`RawStream`].
        GeneralSecondaryFlags: u8,
        /// 2
        CustomDefined: [u8; 18],
        /// 20
        FirstCluster: le::U32,
        /// 24
        DataLength: le::U64,
    }
}

entry! {
    /// 7.1: the allocation bitmap.
    RawBitmap {
        /// 1: bit 0: the bitmap of the second FAT.
        BitmapFlags: u8,
        /// 2
        Reserved: [u8; 18],
        /// 20
        FirstCluster: le::U32,
        /// 24: size in bytes, with one bit per cluster.
        DataLength: le::U64,
    }
}

entry! {
    /// 7.2: the up-case table.
    RawUpCase {
        /// 1
        Reserved1: [u8; 3],
        /// 4
        TableChecksum: le::U32,
        /// 8
        Reserved2: [u8; 12],
        /// 20
        FirstCluster: le::U32,
        /// 24
        DataLength: le::U64,
    }
}

entry! {
    /// 7.3: the label.
    RawLabel {
        /// 1: 0 to 11.
        CharacterCount: u8,
        /// 2
        VolumeLabel: [le::U16; 11],
        /// 24
        Reserved: [u8; 8],
    }
}

entry! {
    /// 7.5: the GUID.
    RawGuid {
        /// 1: 0.
        SecondaryCount: u8,
        /// 2
        SetChecksum: le::U16,
        /// 4
        GeneralPrimaryFlags: le::U16,
        /// 6
        VolumeGuid: [u8; 16],
        /// 22
        Reserved: [u8; 10],
    }
}
