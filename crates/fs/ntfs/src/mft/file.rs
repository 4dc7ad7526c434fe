//! A file: its base record and the records that its attribute list names.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_u64;
use obento_base::{Error, Ino, Result};
use obento_block::BlockDevice;

use super::{Mft, Record};
use crate::attribute::{Attribute, Attributes, Body, list};
use crate::data::stream::Stream;
use crate::layout::raw::{kind, record_of};

/// The records of a file.
#[derive(Clone, Debug)]
pub struct File {
    /// Base record.
    pub base: Record,
    /// The other records, in the order of their numbers.
    pub others: Vec<Record>,
}

/// The value of an attribute, complete.
#[derive(Clone, Debug)]
pub enum Value {
    /// The bytes, which are in the record, and the flags of the attribute.
    Resident(Arc<[u8]>, u16),
    /// The location of the bytes.
    Stream(Arc<Stream>),
}

impl Value {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Resident(bytes, _) => to_u64(bytes.len()),
            Self::Stream(stream) => stream.size(),
        }
    }

    /// Returns the flags of the attribute.
    pub fn flags(&self) -> u16 {
        match self {
            Self::Resident(_, flags) => *flags,
            Self::Stream(stream) => stream.flags,
        }
    }
}

impl File {
    /// Returns the number of the file.
    pub fn ino(&self) -> Ino {
        Ino(self.base.number)
    }

    /// Returns the records of the file.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        core::iter::once(&self.base).chain(&self.others)
    }

    /// Returns the record with this index in [`records`](Self::records).
    pub fn record_at(&self, index: usize) -> Option<&Record> {
        match index.checked_sub(1) {
            None => Some(&self.base),
            Some(index) => self.others.get(index),
        }
    }

    /// Returns the attributes of all records.
    pub fn attributes(&self) -> impl Iterator<Item = Result<Attribute<'_>>> {
        self.records().flat_map(Attributes::new)
    }

    /// Returns the attributes of a type.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: a record is damaged.
    pub fn all(&self, kind: u32) -> Result<Vec<Attribute<'_>>> {
        let wanted =
            |found: &Result<Attribute<'_>>| found.as_ref().is_ok_and(|it| it.kind == kind) || found.is_err();
        self.attributes().filter(wanted).collect()
    }

    /// Returns the first attribute of a type that is in a record, with its value.
    pub fn resident(&self, kind: u32) -> Result<Option<&[u8]>> {
        for attribute in self.attributes() {
            let attribute = attribute?;
            if attribute.kind == kind && attribute.resident().is_some() {
                return Ok(attribute.resident());
            }
        }
        Ok(None)
    }

    /// Returns the value of an attribute by its type and its name in UTF-16.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: a record is damaged, or the parts of the value do not follow each other.
    pub fn value(&self, mft: &Mft, kind: u32, name: &[u8]) -> Result<Option<Value>> {
        Self::value_in(self.records(), mft, kind, name)
    }

    /// As [`value`](Self::value), with the records that contain all parts of the value.
    pub fn value_in<'a>(
        records: impl Iterator<Item = &'a Record>,
        mft: &Mft,
        kind: u32,
        name: &[u8],
    ) -> Result<Option<Value>> {
        let mut parts = Vec::new();
        for record in records {
            for attribute in Attributes::new(record) {
                let attribute = attribute?;
                if attribute.kind != kind || attribute.name != name {
                    continue;
                }
                match attribute.body {
                    Body::Resident(value) => {
                        return Ok(Some(Value::Resident(value.into(), attribute.flags)));
                    }
                    Body::NonResident(part) => parts.push((part.lowest, record, attribute)),
                }
            }
        }
        parts.sort_by_key(|(lowest, ..)| *lowest);
        let mut stream = Stream::default();
        for (_, record, attribute) in &parts {
            stream.append(record, attribute, mft.geometry())?;
        }
        Ok((!parts.is_empty()).then(|| Value::Stream(Arc::new(stream))))
    }
}

impl Mft {
    /// Returns a file in use.
    ///
    /// # Errors
    ///
    /// - `Stale`: no file has this number.
    /// - `Corrupt`: its records are damaged.
    pub fn file(&self, ino: Ino) -> Result<File> {
        let base = self.base(ino)?;
        let others = self.others(&base)?;
        Ok(File { base, others })
    }

    /// Returns the records that the attribute list of a base record names.
    fn others(&self, base: &Record) -> Result<Vec<Record>> {
        let mut list = None;
        for attribute in Attributes::new(base) {
            let attribute = attribute?;
            // Attributes are in the order of their types, and the list follows the first.
            if attribute.kind > kind::ATTRIBUTE_LIST {
                break;
            }
            if attribute.kind == kind::ATTRIBUTE_LIST {
                list = Some(attribute);
                break;
            }
        }
        let Some(list) = list else { return Ok(Vec::new()) };
        let bytes = match list.body {
            Body::Resident(value) => value.to_vec(),
            Body::NonResident(_) => {
                let mut stream = Stream::default();
                stream.append(base, &list, &self.geometry)?;
                stream.read_all(self.device(), &self.geometry, list::LEN_MAX)?
            }
        };
        let mut numbers = Vec::new();
        for entry in list::entries(&bytes) {
            let entry = entry.ok_or_else(|| base.field("AttributeList", list.offset, to_u64(bytes.len())))?;
            numbers.push(record_of(entry.reference.get()));
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|&number| number != base.number);
        numbers.into_iter().map(|number| self.part_of(base, number, list.offset)).collect()
    }

    fn part_of(&self, base: &Record, number: u64, at: usize) -> Result<Record> {
        let found = match self.record(number) {
            Err(Error::Stale) => return Err(base.field("AttributeList", at, number)),
            found => found?,
        };
        if record_of(found.header().base.get()) != base.number || !found.is_used() {
            return Err(found.field("BaseFileRecordSegment", 32, found.header().base.get()));
        }
        Ok(found)
    }

    /// Returns the device.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }
}
