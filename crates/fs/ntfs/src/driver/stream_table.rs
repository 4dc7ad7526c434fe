//! The named streams of a file and the records that contain them.
//!
//! A file can have thousands of streams in as many records. A caller lists them and then reads each one, so the table of
//! the last file is kept.
//!
//! Invariant: memory is bounded by the records of one file, which its attribute list of at most 256 KiB names.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::Result;

use crate::attribute::Attributes;
use crate::layout::raw::kind;
use crate::mft::{File, Mft, Value};

/// The named streams of a file.
pub struct StreamTable {
    /// The file.
    pub file: File,
    /// The streams by their names in UTF-16.
    streams: BTreeMap<Vec<u8>, Place>,
}

/// The place of a stream.
#[derive(Default)]
struct Place {
    /// Whether the first part of the stream exists.
    has_start: bool,
    /// The indexes of the records that contain its parts, in ascending order.
    records: Vec<usize>,
}

impl StreamTable {
    /// Finds the streams of a file.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: a record of the file is damaged.
    pub fn of(file: File) -> Result<Self> {
        let mut streams = BTreeMap::<Vec<u8>, Place>::new();
        for (index, record) in file.records().enumerate() {
            for attribute in Attributes::new(record) {
                let attribute = attribute?;
                if attribute.kind != kind::DATA || attribute.name.is_empty() {
                    continue;
                }
                let place = streams.entry(attribute.name.to_vec()).or_default();
                place.has_start |= attribute.is_first();
                if place.records.last() != Some(&index) {
                    place.records.push(index);
                }
            }
        }
        Ok(Self { file, streams })
    }

    /// Returns the names of the streams whose first part exists.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.streams.iter().filter(|(_, place)| place.has_start).map(|(name, _)| &name[..])
    }

    /// Returns the value of a stream.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the parts of the value do not follow each other.
    pub fn value(&self, mft: &Mft, name: &[u8]) -> Result<Option<Value>> {
        let Some(place) = self.streams.get(name) else { return Ok(None) };
        let records = place.records.iter().filter_map(|&index| self.file.record_at(index));
        File::value_in(records, mft, kind::DATA, name)
    }
}
