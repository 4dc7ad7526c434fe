//! The structures of a volume, field by field: super blocks, inodes, directories, segments, and what follows the
//! checkpoint.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Ino, Result};
use obento_driver::{Field, FieldValue, Inspect, Record, Target};

use crate::inode::DIRECT;
use crate::raw::Encoding;
use crate::roll::Part;
use crate::super_block::{FIRST, SuperBlock, read};
use crate::volume::Volume;

/// A number: its name, its place in narrow and in wide structures, and its lengths there.
type Place = (&'static str, usize, usize, usize, usize);

const SUPER_BLOCK: [Place; 15] = [
    ("dlfs_magic", 0, 0, 4, 4),
    ("dlfs_version", 4, 4, 4, 4),
    ("dlfs_size", 8, 8, 4, 8),
    ("dlfs_ssize", 12, 24, 4, 4),
    ("dlfs_bsize", 20, 28, 4, 4),
    ("dlfs_fsize", 24, 32, 4, 4),
    ("dlfs_idaddr", 52, 72, 4, 8),
    ("dlfs_offset", 72, 112, 4, 8),
    ("dlfs_nseg", 116, 164, 4, 4),
    ("dlfs_pflags", 322, 402, 2, 2),
    ("dlfs_serial", 336, 424, 8, 8),
    ("dlfs_ibsize", 344, 416, 4, 4),
    ("dlfs_s0addr", 348, 432, 4, 8),
    ("dlfs_ident", 368, 452, 4, 4),
    ("dlfs_cksum", 508, 508, 4, 4),
];

const INODE: [Place; 11] = [
    ("di_mode", 0, 0, 2, 2),
    ("di_nlink", 2, 2, 2, 2),
    ("di_inumber", 4, 240, 4, 8),
    ("di_size", 8, 16, 8, 8),
    ("di_atime", 16, 32, 4, 8),
    ("di_mtime", 24, 40, 4, 8),
    ("di_flags", 100, 88, 4, 4),
    ("di_blocks", 104, 24, 4, 8),
    ("di_gen", 108, 80, 4, 4),
    ("di_uid", 112, 4, 4, 4),
    ("di_gid", 116, 8, 4, 4),
];

const USAGE: [Place; 4] = [
    ("su_nbytes", 0, 0, 4, 4),
    ("su_nsums", 8, 8, 2, 2),
    ("su_ninos", 10, 10, 2, 2),
    ("su_flags", 12, 12, 4, 4),
];

/// Names of fields that are shown in hexadecimal.
const HEX: [&str; 7] =
    ["dlfs_magic", "dlfs_pflags", "dlfs_ident", "dlfs_cksum", "di_mode", "di_flags", "su_flags"];

/// Decodes numbers of `bytes`, which are at byte `base` of the volume.
fn fields(encoding: Encoding, places: &[Place], bytes: &[u8], base: u64) -> Vec<Field> {
    let mut fields: Vec<Field> = places
        .iter()
        .map(|&(name, narrow, wide, narrow_len, wide_len)| {
            let (at, len) = if encoding.is_64 { (wide, wide_len) } else { (narrow, narrow_len) };
            let number = match len {
                2 => encoding.u16(bytes, at).into(),
                4 => encoding.u32(bytes, at).into(),
                _ => encoding.u64(bytes, at),
            };
            let value =
                if HEX.contains(&name) { FieldValue::Hex(number) } else { FieldValue::Number(number) };
            Field {
                name,
                offset: base.saturating_add(to_u64(at)),
                len: u32::try_from(len).unwrap_or(0),
                value,
            }
        })
        .collect();
    fields.sort_by_key(|field| field.offset);
    fields
}

/// Receives records.
type Sink<'s> = dyn FnMut(Result<Record>) + 's;

impl Volume {
    fn inspect_super_block(&self, index: u32, sink: &mut Sink<'_>) -> Result<()> {
        let copies = &self.super_block.copies;
        let at = match (index, copies.get(to_usize(index.into()))) {
            (0, _) => FIRST,
            (_, Some(&address)) => self.super_block.bytes(address),
            _ => return Err(Error::NotFound),
        };
        sink(read(&**self.shared_device(), at).and_then(|bytes| {
            let found = SuperBlock::decode(&bytes, at)?;
            let fields = fields(found.encoding, &SUPER_BLOCK, &bytes, at);
            Ok(Record { kind: "super block", depth: 0, fields })
        }));
        Ok(())
    }

    fn inspect_inode(&self, ino: Ino, sink: &mut Sink<'_>) -> Result<()> {
        let inode =
            self.inode(ino).map_err(|error| if error == Error::Stale { Error::NotFound } else { error })?;
        let encoding = self.super_block.encoding;
        let mut bytes = vec![0; encoding.inode_len()];
        self.shared_device().read_at(inode.at, &mut bytes)?;
        let mut fields = fields(encoding, &INODE, &bytes, inode.at);
        let base: usize = if encoding.is_64 { 112 } else { 40 };
        for index in 0..DIRECT.saturating_add(3) {
            let place = base.saturating_add(index.saturating_mul(encoding.word_len()));
            let address = encoding.word(&bytes, place);
            if address != 0 {
                let name = if index < DIRECT { "di_db" } else { "di_ib" };
                let len = u32::try_from(encoding.word_len()).unwrap_or(0);
                let offset = inode.at.saturating_add(to_u64(place));
                fields.push(Field { name, offset, len, value: FieldValue::Number(address) });
            }
        }
        fields.sort_by_key(|field| field.offset);
        sink(Ok(Record { kind: "inode", depth: 0, fields }));
        Ok(())
    }

    fn inspect_directory(&self, ino: Ino, sink: &mut Sink<'_>) -> Result<()> {
        let inode = self.directory(ino).map_err(|error| match error {
            Error::Stale => Error::NotFound,
            Error::NotDirectory => Error::Invalid,
            error => error,
        })?;
        let encoding = self.super_block.encoding;
        let len = u32::try_from(encoding.word_len()).unwrap_or(0);
        self.entries(ino, &inode, 0, &mut |entry| {
            sink(entry.map(|entry| {
                let at = entry.block.saturating_mul(512).saturating_add(entry.offset.into());
                let name_at = at.saturating_add(to_u64(encoding.dirent_len()));
                let name_len = u32::try_from(entry.name.len()).unwrap_or(0);
                let fields = Vec::from([
                    Field { name: "dh_ino", offset: at, len, value: FieldValue::Number(entry.ino) },
                    Field {
                        name: "name",
                        offset: name_at,
                        len: name_len,
                        value: FieldValue::Bytes(entry.name.to_vec()),
                    },
                ]);
                Record { kind: "directory entry", depth: 0, fields }
            }));
            ControlFlow::Continue(())
        });
        Ok(())
    }

    fn inspect_segment(&self, segment: u64, sink: &mut Sink<'_>) -> Result<()> {
        let found = &self.super_block;
        if segment >= found.segments.into() {
            return Err(Error::NotFound);
        }
        let usages = u64::from(found.usages);
        let block = u64::from(found.cleaner_blocks).saturating_add(segment.checked_div(usages).unwrap_or(0));
        let (bytes, base) = self.index_place(block)?.ok_or(Error::NotFound)?;
        let at =
            to_usize(segment.checked_rem(usages).unwrap_or(0)).saturating_mul(found.encoding.usage_len());
        let bytes = bytes.get(at..).unwrap_or_default();
        let fields = fields(found.encoding, &USAGE, bytes, base.saturating_add(to_u64(at)));
        sink(Ok(Record { kind: "segment usage", depth: 0, fields }));
        Ok(())
    }

    /// Passes the checkpoint and the partial segments after it.
    fn inspect_log(&self, sink: &mut Sink<'_>) -> Result<()> {
        let found = &self.super_block;
        let bytes = read(&**self.shared_device(), self.super_block_at)?;
        let places =
            SUPER_BLOCK.iter().filter(|place| matches!(place.0, "dlfs_offset" | "dlfs_serial")).copied();
        let places: Vec<Place> = places.collect();
        let shown = fields(found.encoding, &places, &bytes, self.super_block_at);
        sink(Ok(Record { kind: "checkpoint", depth: 0, fields: shown }));
        let Ok(mut address) = u64::try_from(found.next) else { return Ok(()) };
        let mut serial = found.serial.wrapping_add(1);
        while let Some(partial) = self.partial(address, serial)? {
            let at = found.bytes(partial.at);
            let inodes = partial.parts.iter().filter(|part| matches!(part, Part::Inodes(_))).count();
            let blocks = partial.parts.len().saturating_sub(inodes);
            let number = |name, value| Field { name, offset: at, len: 0, value: FieldValue::Number(value) };
            let fields = Vec::from([
                number("ss_serial", serial),
                number("blocks", to_u64(blocks)),
                number("inode blocks", to_u64(inodes)),
                number("next", partial.next),
            ]);
            sink(Ok(Record { kind: "partial segment", depth: 0, fields }));
            address = partial.next;
            serial = serial.wrapping_add(1);
        }
        Ok(())
    }
}

impl Inspect for Volume {
    fn inspect(&self, target: Target, sink: &mut Sink<'_>) -> Result<()> {
        match target {
            Target::SuperBlock(index) => self.inspect_super_block(index, sink),
            Target::Inode(ino) => self.inspect_inode(ino, sink),
            Target::Group(segment) => self.inspect_segment(segment, sink),
            Target::Journal if self.super_block.encoding.version == 1 => Err(Error::NotSupported),
            Target::Journal => self.inspect_log(sink),
            Target::Directory(dir) => self.inspect_directory(dir, sink),
            Target::Block(number) if self.super_block.bytes(number) >= self.limit() => Err(Error::NotFound),
            Target::Block(_) => Err(Error::NotSupported),
        }
    }
}
