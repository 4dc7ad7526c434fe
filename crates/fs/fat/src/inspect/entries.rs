//! Directory entries as records, by their type.

use alloc::string::String;

use obento_base::wire::{FromBytes as _, IntoBytes as _};
use obento_driver::record::Builder;
use obento_driver::{Record, fields};

use crate::inode::Kind;
use crate::raw::{RawEntry, RawLongEntry};

/// Returns the record of the entry at byte `start` of the volume.
pub(super) fn record(raw: &RawEntry, depth: u8, start: u64) -> Record {
    if let (Kind::LongName, Ok(part)) = (raw.kind(), RawLongEntry::read_from_bytes(raw.as_bytes())) {
        return long(&part, depth, start);
    }
    let kind = match raw.kind() {
        Kind::End => return Builder::new("end of the directory", depth, start).finish(),
        Kind::Free => "free entry",
        Kind::Label => "volume label",
        Kind::Dots => "dot entry",
        Kind::LongName | Kind::File => "short entry",
    };
    let mut record = Builder::new(kind, depth, start);
    fields!(
        record,
        raw,
        RawEntry {
            DIR_Name: Bytes,
            DIR_Attr: Hex,
            DIR_NTRes: Hex,
            DIR_CrtTimeTenth: Number,
            DIR_CrtTime: Hex,
            DIR_CrtDate: Hex,
            DIR_LstAccDate: Hex,
            DIR_FstClusHI: Number,
            DIR_WrtTime: Hex,
            DIR_WrtDate: Hex,
            DIR_FstClusLO: Number,
            DIR_FileSize: Number,
        }
    );
    record.finish()
}

/// Returns the record of a part of a long name. Its characters, which are in three places, are shown as one field.
fn long(part: &RawLongEntry, depth: u8, start: u64) -> Record {
    let units = part.units().take_while(|&unit| unit != 0 && unit != 0xffff);
    let text: String =
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    let mut record = Builder::new("part of a long name", depth, start);
    fields!(record, part, RawLongEntry { LDIR_Ord: Hex });
    record.text("LDIR_Name", core::mem::offset_of!(RawLongEntry, LDIR_Name1), 31, text);
    fields!(
        record,
        part,
        RawLongEntry { LDIR_Attr: Hex, LDIR_Type: Hex, LDIR_Chksum: Hex, LDIR_FstClusLO: Number }
    );
    record.finish()
}
