//! Directory entries as records, by their type.

use alloc::string::String;

use obento_base::wire::{FromBytes, FromZeros, IntoBytes as _, le};
use obento_driver::record::Builder;
use obento_driver::{Record, fields};

use crate::raw::{
    RawBitmap, RawEntry, RawFile, RawGuid, RawLabel, RawName, RawSecondary, RawStream, RawUpCase, kind,
};

fn as_kind<T: FromBytes + FromZeros>(entry: &RawEntry) -> T {
    T::read_from_bytes(entry.as_bytes()).unwrap_or_else(|_| T::new_zeroed())
}

fn text(units: &[le::U16], count: usize) -> String {
    let units = units.iter().take(count).map(|unit| unit.get());
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Returns the record of the entry at byte `start` of the volume.
pub(super) fn record(raw: &RawEntry, depth: u8, start: u64) -> Record {
    let begin = |kind| {
        let mut record = Builder::new(kind, depth, start);
        record.hex("EntryType", 0, 1, raw.EntryType.into());
        record
    };
    match raw.EntryType {
        kind::FILE => {
            let (raw, mut record): (RawFile, _) = (as_kind(raw), begin("file entry"));
            fields!(
                record,
                raw,
                RawFile {
                    SecondaryCount: Number,
                    SetChecksum: Hex,
                    FileAttributes: Hex,
                    CreateTimestamp: Hex,
                    LastModifiedTimestamp: Hex,
                    LastAccessedTimestamp: Hex,
                    Create10msIncrement: Number,
                    LastModified10msIncrement: Number,
                    CreateUtcOffset: Hex,
                    LastModifiedUtcOffset: Hex,
                    LastAccessedUtcOffset: Hex,
                }
            );
            record.finish()
        }
        kind::STREAM => {
            let (raw, mut record): (RawStream, _) = (as_kind(raw), begin("stream extension"));
            fields!(
                record,
                raw,
                RawStream {
                    GeneralSecondaryFlags: Hex,
                    NameLength: Number,
                    NameHash: Hex,
                    ValidDataLength: Number,
                    FirstCluster: Number,
                    DataLength: Number,
                }
            );
            record.finish()
        }
        kind::NAME => {
            let (raw, mut record): (RawName, _) = (as_kind(raw), begin("file name"));
            let end = raw.FileName.iter().position(|unit| unit.get() == 0).unwrap_or(raw.FileName.len());
            fields!(record, raw, RawName { GeneralSecondaryFlags: Hex });
            record.text("FileName", 2, 30, text(&raw.FileName, end)).finish()
        }
        kind::BITMAP => {
            let (raw, mut record): (RawBitmap, _) = (as_kind(raw), begin("allocation bitmap"));
            fields!(record, raw, RawBitmap { BitmapFlags: Hex, FirstCluster: Number, DataLength: Number });
            record.finish()
        }
        kind::UP_CASE => {
            let (raw, mut record): (RawUpCase, _) = (as_kind(raw), begin("up-case table"));
            fields!(record, raw, RawUpCase { TableChecksum: Hex, FirstCluster: Number, DataLength: Number });
            record.finish()
        }
        kind::LABEL => {
            let (raw, mut record): (RawLabel, _) = (as_kind(raw), begin("volume label"));
            fields!(record, raw, RawLabel { CharacterCount: Number });
            let label = text(&raw.VolumeLabel, raw.CharacterCount.into());
            record.text("VolumeLabel", 2, 22, label).finish()
        }
        kind::GUID => {
            let (raw, mut record): (RawGuid, _) = (as_kind(raw), begin("volume GUID"));
            fields!(
                record,
                raw,
                RawGuid {
                    SecondaryCount: Number,
                    SetChecksum: Hex,
                    GeneralPrimaryFlags: Hex,
                    VolumeGuid: Bytes,
                }
            );
            record.finish()
        }
        kind::END => begin("end of the directory").finish(),
        other if other & kind::IN_USE == 0 => begin("free entry").finish(),
        other if other & kind::SECONDARY != 0 => {
            let (raw, mut record): (RawSecondary, _) = (as_kind(raw), begin("vendor's entry"));
            fields!(
                record,
                raw,
                RawSecondary {
                    GeneralSecondaryFlags: Hex,
                    CustomDefined: Bytes,
                    FirstCluster: Number,
                    DataLength: Number,
                }
            );
            record.finish()
        }
        _ => {
            let mut record = begin("unknown entry");
            fields!(record, raw, RawEntry { rest: Bytes });
            record.finish()
        }
    }
}
