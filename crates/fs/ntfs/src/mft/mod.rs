//! The master file table: an array of records, one or more for each file.
//!
//! Invariant: memory is bounded by the budget of the volume, since chunks of records are cached in a fixed number of
//! slots. A table of a million files is read through them once.

mod file;
mod record;

pub use file::{File, Value};
pub use record::Record;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Ino, Result};
use obento_block::{BlockDevice, Slots};

use crate::attribute::{Attributes, Body, list};
use crate::data::stream::Stream;
use crate::layout::boot::Geometry;
use crate::layout::raw::{kind, record as numbers, record_of};

/// Bytes of the table that are read at once.
const CHUNK: u32 = 32 << 10;
/// Number of records that the copy of the table has at least.
pub const MIRRORED: u64 = 4;

/// Records that are next to each other.
type Chunk = Arc<[Result<Record>]>;

/// The table of an open volume.
pub struct Mft {
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    /// Location of the table.
    stream: Stream,
    chunks: Slots<u64, Chunk>,
    /// The damage for which the copy of the first record was used.
    pub damage: Option<Error>,
}

impl Mft {
    /// Opens the table, using at most about `budget` bytes for its cache.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: neither the first record nor its copy describes the table.
    pub fn open(device: Arc<dyn BlockDevice>, geometry: Geometry, budget: usize) -> Result<Self> {
        let main = read_first(&*device, &geometry, geometry.mft);
        let (first, damage) = match main {
            Ok(first) => (first, None),
            Err(error) => {
                let error = if error == Error::Stale { record::no_magic(&geometry) } else { error };
                (read_first(&*device, &geometry, geometry.mirror).map_err(|_| error)?, Some(error))
            }
        };
        let slots = budget.checked_div(to_usize(CHUNK.into())).unwrap_or(0).max(4);
        let stream = Stream::default();
        let mut mft = Self { device, geometry, stream, chunks: Slots::new(slots), damage };
        mft.find_parts(&first)?;
        Ok(mft)
    }

    /// Collects the runs of the table. Records that describe more of it are in a part that earlier ones describe.
    fn find_parts(&mut self, first: &Record) -> Result<()> {
        let mut list = None;
        for attribute in Attributes::new(first) {
            let attribute = attribute?;
            match (attribute.kind, attribute.body) {
                (kind::ATTRIBUTE_LIST, Body::Resident(value)) => list = Some(value.to_vec()),
                (kind::ATTRIBUTE_LIST, Body::NonResident(_)) => {
                    let mut stream = Stream::default();
                    stream.append(first, &attribute, &self.geometry)?;
                    list = Some(stream.read_all(&*self.device, &self.geometry, list::LEN_MAX)?);
                }
                (kind::DATA, Body::NonResident(_)) if attribute.name.is_empty() => {
                    self.stream.append(first, &attribute, &self.geometry)?;
                }
                _ => {}
            }
        }
        if self.stream.size() < u64::from(self.geometry.record_size) {
            return Err(first.field("DataSize", 0, self.stream.size()));
        }
        let entries = list.iter().flat_map(|list| list::entries(list)).map_while(|entry| entry);
        let mut known = Vec::from([numbers::MFT]);
        for entry in entries.filter(|entry| entry.kind.get() == kind::DATA && entry.name_length == 0) {
            let number = record_of(entry.reference.get());
            if known.contains(&number) {
                continue;
            }
            known.push(number);
            let part = self.read_uncached(number)?;
            for attribute in Attributes::new(&part) {
                let attribute = attribute?;
                if attribute.kind == kind::DATA && attribute.name.is_empty() {
                    self.stream.append(&part, &attribute, &self.geometry)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the geometry of the volume.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the location of the table.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.stream.size().checked_div(self.geometry.record_size.into()).unwrap_or(0)
    }

    /// Returns the byte offset of a record on the volume.
    pub fn offset_of(&self, number: u64) -> Option<u64> {
        let at = number.checked_mul(self.geometry.record_size.into())?;
        self.stream.offset_of(at, &self.geometry)
    }

    fn read_uncached(&self, number: u64) -> Result<Record> {
        if number >= self.records() {
            return Err(Error::Stale);
        }
        let at = number.saturating_mul(self.geometry.record_size.into());
        let mut bytes = vec![0; to_usize(self.geometry.record_size.into())];
        self.stream.read(&*self.device, &self.geometry, at, &mut bytes)?;
        Record::decode(number, self.offset_of(number).unwrap_or(0), &mut bytes, &self.geometry)
    }

    fn per_chunk(&self) -> u64 {
        u64::from(CHUNK).checked_div(self.geometry.record_size.into()).unwrap_or(1).max(1)
    }

    fn load(&self, chunk: u64) -> Result<Chunk> {
        let first = chunk.saturating_mul(self.per_chunk());
        let count = self.records().saturating_sub(first).min(self.per_chunk());
        let size = to_usize(self.geometry.record_size.into());
        let mut bytes = vec![0; to_usize(count).saturating_mul(size)];
        let start = first.saturating_mul(to_u64(size));
        self.stream.read(&*self.device, &self.geometry, start, &mut bytes)?;
        let decode = |(number, bytes): (u64, &mut [u8])| {
            let offset = self.offset_of(number).unwrap_or(0);
            let found = Record::decode(number, offset, bytes, &self.geometry);
            found.or_else(|error| self.mirrored(number).ok_or(error))
        };
        Ok((first..).zip(bytes.chunks_exact_mut(size)).map(decode).collect())
    }

    /// Returns the copy of one of the first records.
    fn mirrored(&self, number: u64) -> Option<Record> {
        if number >= MIRRORED {
            return None;
        }
        let at = number.checked_mul(self.geometry.record_size.into())?.checked_add(self.geometry.mirror)?;
        read_at(&*self.device, &self.geometry, number, at).ok()
    }

    /// Returns one of the first records and its copy, as each is.
    pub fn both(&self, number: u64) -> (Result<Record>, Result<Record>) {
        let at = number.saturating_mul(self.geometry.record_size.into());
        let copy = read_at(&*self.device, &self.geometry, number, self.geometry.mirror.saturating_add(at));
        (self.read_uncached(number), copy)
    }

    /// Returns a record.
    ///
    /// # Errors
    ///
    /// - `Stale`: the table has no such record, or it was never used.
    /// - `Corrupt`: the record is damaged.
    pub fn record(&self, number: u64) -> Result<Record> {
        if number >= self.records() {
            return Err(Error::Stale);
        }
        let (chunk, index) = (
            number.checked_div(self.per_chunk()).unwrap_or(0),
            number.checked_rem(self.per_chunk()).unwrap_or(0),
        );
        let records = match self.chunks.get(&chunk) {
            Some(records) => records,
            None => match self.load(chunk) {
                Ok(records) => self.chunks.put(chunk, records),
                // A part of the chunk cannot be read; the rest stays readable.
                Err(_) => return self.read_uncached(number),
            },
        };
        records.get(to_usize(index)).cloned().unwrap_or(Err(Error::Stale))
    }

    /// Returns a record that is the base record of a file in use.
    ///
    /// # Errors
    ///
    /// - `Stale`: no file has this number.
    pub fn base(&self, ino: Ino) -> Result<Record> {
        let found = self.record(ino.0)?;
        if !found.is_used() || !found.is_base() {
            return Err(Error::Stale);
        }
        Ok(found)
    }
}

fn read_at(device: &dyn BlockDevice, geometry: &Geometry, number: u64, offset: u64) -> Result<Record> {
    let mut bytes = vec![0; to_usize(geometry.record_size.into())];
    device.read_at(offset, &mut bytes)?;
    Record::decode(number, offset, &mut bytes, geometry)
}

/// Reads the record of the table itself. It must contain what describes the table, or it is not one.
fn read_first(device: &dyn BlockDevice, geometry: &Geometry, offset: u64) -> Result<Record> {
    let found = read_at(device, geometry, numbers::MFT, offset)?;
    let mut attributes = Attributes::new(&found);
    let has_data = attributes.any(|attribute| {
        attribute.is_ok_and(|it| it.kind == kind::DATA && matches!(it.body, Body::NonResident(_)))
    });
    if has_data { Ok(found) } else { Err(found.field("AttributeType", 0, kind::DATA.into())) }
}

impl Mft {
    /// Returns one of the first records, which are next to each other in the first run of the table, without opening it.
    pub fn first(device: &dyn BlockDevice, geometry: &Geometry, number: u64) -> Option<Record> {
        let at = number.checked_mul(geometry.record_size.into())?;
        let read = |start: u64| read_at(device, geometry, number, start.checked_add(at)?).ok();
        read(geometry.mft).or_else(|| read(geometry.mirror))
    }
}
