//! The structures on disk, field by field.
//!
//! An inode is its records with their attributes and runs; a block is a cluster. `inode 0` is the master file table.

use alloc::format;
use alloc::vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Ino, Result};
use obento_driver::record::Builder;
use obento_driver::{ByteUse, FieldValue, Inspect, Record, Target, fields};

use super::volume::Volume;
use crate::attribute::name::{FileName, to_utf8};
use crate::attribute::{Attribute, Attributes, Body, offset_in};
use crate::index::{Entry, Index, NAMES, Node};
use crate::layout::boot::{self, RawBoot};
use crate::layout::raw::{RawRecord, kind, record_of, sequence_of};
use crate::mft::{self, Value};

type Sink<'s> = &'s mut dyn FnMut(Result<Record>);

impl Inspect for Volume {
    fn inspect(&self, target: Target, sink: &mut dyn FnMut(Result<Record>)) -> Result<()> {
        match target {
            Target::SuperBlock(0) => self.inspect_boot(0, sink),
            Target::SuperBlock(1) => {
                let (offset, _) = boot::backup(self.device_ref()).ok_or(Error::NotFound)?;
                self.inspect_boot(offset, sink)
            }
            Target::SuperBlock(_) => Err(Error::NotFound),
            Target::Inode(ino) => self.inspect_inode(ino, sink),
            Target::Directory(ino) => self.inspect_directory(ino, sink),
            Target::Block(lcn) => self.inspect_cluster(lcn, sink),
            Target::Group(_) | Target::Journal => Err(Error::NotSupported),
        }
    }

    fn locate(&self, offset: u64) -> Result<ByteUse> {
        let geometry = *self.geometry();
        if offset >= geometry.len {
            return Err(Error::NotFound);
        }
        if offset < u64::from(geometry.sector_size) {
            return Ok(ByteUse::Structure {
                name: "boot sector".into(),
                target: Some(Target::SuperBlock(0)),
            });
        }
        let cluster = offset.checked_div(geometry.cluster_size.into()).unwrap_or(0);
        if let Some(number) = self.record_at(offset) {
            let is_used = self.mft().base(Ino(number)).is_ok();
            let target = Some(Target::Inode(Ino(number))).filter(|_| is_used);
            return Ok(ByteUse::Structure {
                name: format!("record {number} of the master file table"),
                target,
            });
        }
        match self.is_allocated(cluster)? {
            true => Ok(ByteUse::OfFiles),
            false => Ok(ByteUse::Unused),
        }
    }
}

impl Volume {
    /// Returns the record that contains a byte of the volume.
    fn record_at(&self, offset: u64) -> Option<u64> {
        let (mut at, size) = (0_u64, u64::from(self.geometry().cluster_size));
        for run in self.mft().stream().runs.iter() {
            let start = run.lcn?.checked_mul(size)?;
            let len = run.len.checked_mul(size)?;
            if (start..start.saturating_add(len)).contains(&offset) {
                let inside = at.checked_add(offset.checked_sub(start)?)?;
                let number = inside.checked_div(self.geometry().record_size.into())?;
                return Some(number).filter(|&number| number < self.mft().records());
            }
            at = at.checked_add(len)?;
        }
        None
    }

    /// Returns the bit of a cluster in `$Bitmap`.
    pub fn is_allocated(&self, lcn: u64) -> Result<bool> {
        let file = self.mft().file(Ino(crate::layout::raw::record::BITMAP))?;
        let Some(Value::Stream(stream)) = file.value(self.mft(), kind::DATA, &[])? else {
            return Err(file.base.field("Bitmap", 0, 0));
        };
        let mut byte = [0];
        if lcn >> 3 < stream.size() {
            stream.read(self.device_ref(), self.geometry(), lcn >> 3, &mut byte)?;
        }
        let [byte] = byte;
        Ok(byte.checked_shr(u32::try_from(lcn & 7).unwrap_or(0)).unwrap_or(0) & 1 == 1)
    }

    fn inspect_boot(&self, offset: u64, sink: Sink<'_>) -> Result<()> {
        let raw = boot::read(self.device_ref(), offset)?;
        let mut record = Builder::new("boot sector", 0, offset);
        fields!(
            record,
            raw,
            RawBoot {
                oem_id: Bytes,
                bytes_per_sector: Number,
                sectors_per_cluster: Number,
                media: Hex,
                hidden_sectors: Number,
                sectors: Number,
                mft: Number,
                mirror: Number,
                record_size: Hex,
                index_size: Hex,
                serial: Hex,
                checksum: Hex,
                signature: Bytes,
            }
        );
        sink(Ok(record.finish()));
        Ok(())
    }

    fn inspect_inode(&self, ino: Ino, sink: Sink<'_>) -> Result<()> {
        let base = self.mft().record(ino.0).map_err(|error| match error {
            Error::Stale => Error::NotFound,
            other => other,
        })?;
        self.inspect_record(&base, sink);
        if base.is_used() && base.is_base() {
            match self.mft().file(ino) {
                Ok(file) => file.others.iter().for_each(|other| self.inspect_record(other, sink)),
                Err(error) => sink(Err(error)),
            }
        }
        Ok(())
    }

    fn inspect_record(&self, found: &mft::Record, sink: Sink<'_>) {
        let raw = found.header();
        let mut record = Builder::new("file record", 0, found.offset);
        fields!(
            record,
            raw,
            RawRecord {
                magic: Bytes,
                lsn: Number,
                sequence: Number,
                link_count: Number,
                attributes: Number,
                flags: Hex,
                used: Number,
                allocated: Number,
                base: Hex,
                next_instance: Number,
                number: Number,
            }
        );
        sink(Ok(record.finish()));
        for attribute in Attributes::new(found) {
            match attribute {
                Ok(attribute) => self.inspect_attribute(found, &attribute, sink),
                Err(error) => sink(Err(error)),
            }
        }
    }

    fn inspect_attribute(&self, found: &mft::Record, attribute: &Attribute<'_>, sink: Sink<'_>) {
        let start = found.offset.saturating_add(number(attribute.offset));
        let place = |part: &[u8]| to_usize(offset_in(found.bytes(), part)).saturating_sub(attribute.offset);
        let mut record = Builder::new("attribute", 1, start);
        record.text("type", 0, 4, kind::name(attribute.kind)).number(
            "length",
            4,
            4,
            number(attribute.length),
        );
        record.hex("flags", 12, 2, attribute.flags.into()).number(
            "instance",
            14,
            2,
            attribute.instance.into(),
        );
        let name = |record: &mut Builder| {
            if !attribute.name.is_empty() {
                let name = FieldValue::Bytes(to_utf8(attribute.name));
                record.add("name", place(attribute.name), attribute.name.len(), name);
            }
        };
        match attribute.body {
            Body::Resident(value) => {
                record.number("value length", 16, 4, number(value.len()));
                name(&mut record);
                if let Some(name) = FileName::decode(value).filter(|_| attribute.kind == kind::FILE_NAME) {
                    let (parent, at) = (name.raw.parent.get(), place(value));
                    let inside = |offset: usize| at.saturating_add(offset);
                    record.number("parent", inside(0), 6, record_of(parent));
                    record.number("parent sequence", inside(6), 2, sequence_of(parent).into());
                    record.number("namespace", inside(65), 1, name.raw.namespace.into());
                    record.add(
                        "file name",
                        inside(66),
                        name.name.len(),
                        FieldValue::Bytes(to_utf8(name.name)),
                    );
                }
                sink(Ok(record.finish()));
            }
            Body::NonResident(part) => {
                record.number("lowest VCN", 16, 8, part.lowest).number("highest VCN", 24, 8, part.highest);
                record.number("compression unit", 34, 1, part.unit_bits.into());
                record.number("allocated", 40, 8, part.sizes.allocated).number(
                    "size",
                    48,
                    8,
                    part.sizes.size,
                );
                record.number("initialized", 56, 8, part.sizes.initialized);
                name(&mut record);
                sink(Ok(record.finish()));
                let mut runs = crate::attribute::runs::Runs::default();
                let result = runs.append(part.runs, self.geometry().clusters);
                for run in runs.iter() {
                    let offset = run.lcn.and_then(|lcn| self.geometry().offset_of(lcn)).unwrap_or(start);
                    let mut record = Builder::new(if run.lcn.is_some() { "run" } else { "hole" }, 2, offset);
                    record
                        .number("VCN", 0, 0, run.vcn.saturating_add(part.lowest))
                        .number("clusters", 0, 0, run.len);
                    if let Some(lcn) = run.lcn {
                        record.number("LCN", 0, 0, lcn);
                    }
                    sink(Ok(record.finish()));
                }
                if result.is_err() {
                    sink(Err(found.field("MappingPairs", attribute.offset, 0)));
                }
            }
        }
    }

    fn inspect_directory(&self, ino: Ino, sink: Sink<'_>) -> Result<()> {
        let file = self
            .mft()
            .file(ino)
            .map_err(|error| if error == Error::Stale { Error::NotFound } else { error })?;
        if !file.base.is_directory() {
            return Err(Error::Invalid);
        }
        let index = Index::open(self, &file, NAMES)?;
        self.inspect_node(&index, &index.root, file.base.offset, sink);
        for block in (0..index.blocks()).filter(|&block| index.is_used(block)) {
            match index.node(self, block) {
                Ok(node) => self.inspect_node(&index, &node, node.offset, sink),
                Err(error) => sink(Err(error)),
            }
        }
        Ok(())
    }

    fn inspect_node(&self, index: &Index, node: &Node, start: u64, sink: Sink<'_>) {
        let kind = if node.offset == 0 { "index root" } else { "index block" };
        let mut record = Builder::new(kind, 0, start);
        sink(Ok(record.number("block size", 0, 0, index.block_size.into()).finish()));
        for entry in node.entries() {
            match entry {
                Ok(entry) => sink(Ok(entry_record(&entry, start))),
                Err(at) => sink(Err(index.field(self, node.offset, "IndexEntry", at, 0))),
            }
        }
    }

    fn inspect_cluster(&self, lcn: u64, sink: Sink<'_>) -> Result<()> {
        let start = self.geometry().offset_of(lcn).ok_or(Error::NotFound)?;
        let mut bytes = vec![0; to_usize(self.geometry().cluster_size.into())];
        self.device_ref().read_at(start, &mut bytes)?;
        let used = if self.is_allocated(lcn)? { "in use" } else { "free" };
        let mut record = Builder::new("cluster", 0, start);
        let len = bytes.len();
        record.text("by the bitmap", 0, len, used).add("bytes", 0, len, FieldValue::Bytes(bytes));
        sink(Ok(record.finish()));
        Ok(())
    }
}

fn number(value: usize) -> u64 {
    obento_base::wire::to_u64(value)
}

fn entry_record(entry: &Entry<'_>, start: u64) -> Record {
    let mut record = Builder::new("directory entry", 1, start.saturating_add(number(entry.offset)));
    let (reference, name) = (entry.raw.reference.get(), FileName::decode(entry.key));
    if name.is_some() {
        record.number("record", 0, 6, record_of(reference)).number(
            "sequence",
            6,
            2,
            sequence_of(reference).into(),
        );
    }
    record.number("length", 8, 2, entry.raw.length.get().into()).hex(
        "flags",
        12,
        2,
        entry.raw.flags.get().into(),
    );
    if let Some(name) = name {
        record.number("namespace", 81, 1, name.raw.namespace.into());
        record.add("name", 82, name.name.len(), FieldValue::Bytes(to_utf8(name.name)));
    }
    if let Some(child) = entry.child {
        record.number("child", entry.bytes.len().saturating_sub(8), 8, child);
    }
    record.finish()
}
