//! Writes tar archives with pax headers. They contain all properties of Linux files, and none of the host, so
//! that the same tree gives the same bytes.
//!
//! Layout: for each file, an extended header (type `x`) with values that do not fit the ustar header, a ustar header,
//! and the data. Each of them is padded to 512 bytes. At the end two blocks of zeros, padded to a record of 10,240
//! bytes. Files with holes: GNU sparse format 1.0, with the map before the data.
//! Source: POSIX.1-2017, `pax`, "pax Interchange Format"; GNU tar manual, "Storing Sparse Files"; the
//! keywords `SCHILY.xattr.*` as in star(5). Owners are numbers, because the image defines their names.

mod acl;
mod header;
mod read;
mod records;
mod sink;

use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceNumber, FileKind};

use crate::{DataSink, HostError, Metadata};
use header::{BLOCK, Kind, TarHeader};
pub use read::{ACL_WORDS, AclName, FS_BLOCK, Member, MemberKind, TarError, TarReader, acl_from_words};
use records::RecordsBuilder;
use sink::ArchiveSink;

/// The unit that GNU tar writes at once and pads an archive to.
const RECORD: u64 = 20 * to_u64(BLOCK);
/// Bytes gathered before they are written.
const BUFFER: usize = 256 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Writes an archive.
pub struct PaxWriter<W: Write> {
    output: Output<W>,
    /// A buffer for copies from devices, which is reused between files.
    buffer: Vec<u8>,
}

/// The written part of the archive.
struct Output<W: Write> {
    writer: BufWriter<W>,
    path: PathBuf,
    written: u64,
}

impl<W: Write> Output<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        self.writer.write_all(bytes).map_err(|error| HostError::io("write to", &self.path, &error))?;
        self.written += to_u64(bytes.len());
        Ok(())
    }

    fn zeros(&mut self, mut len: u64) -> Result<(), HostError> {
        while len > 0 {
            let part = ZEROS.get(..to_usize(len)).unwrap_or(&ZEROS);
            self.write(part)?;
            len -= to_u64(part.len());
        }
        Ok(())
    }

    fn pad_to(&mut self, unit: u64) -> Result<(), HostError> {
        self.zeros(self.written.next_multiple_of(unit) - self.written)
    }
}

impl<W: Write> PaxWriter<W> {
    /// Creates an empty archive. `path` is for messages.
    pub fn new(output: W, path: &Path) -> Self {
        let writer = BufWriter::with_capacity(BUFFER, output);
        Self { output: Output { writer, path: path.into(), written: 0 }, buffer: Vec::new() }
    }

    /// Adds a directory. Errors, as of all methods: System or Stream if the archive cannot be written.
    pub fn directory(&mut self, path: &[u8], meta: &Metadata<'_>) -> Result<(), HostError> {
        let mut path = path.to_vec();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        self.header(TarHeader::new(Kind::Directory, &path, meta), RecordsBuilder::default())
    }

    /// Adds a regular file of `size` bytes. `data` lists the ranges that are not holes, in order; they begin
    /// and end at multiples of 512 or at `size`. `fill` hands over exactly their bytes, without the holes. If
    /// `fill` fails, zeros replace the missing bytes, and the archive stays usable.
    ///
    /// # Errors
    ///
    /// - Stream if `data` is not valid.
    /// - Errors of `fill`.
    /// - Stream if `fill` hands over too many bytes.
    pub fn file<E: From<HostError>>(
        &mut self,
        path: &[u8],
        meta: &Metadata<'_>,
        size: u64,
        data: &[Range<u64>],
        fill: impl FnOnce(&mut dyn DataSink) -> Result<(), E>,
    ) -> Result<(), E> {
        let stored = stored_bytes(size, data).ok_or_else(|| HostError::Stream {
            operation: "write to",
            path: self.output.path.clone(),
            reason: "the data of a sparse file does not begin and end at block boundaries".into(),
        })?;
        let map = if stored == size { Vec::new() } else { sparse_map(size, data)? };
        let mut header = TarHeader::new(Kind::File, path, meta);
        let mut records = RecordsBuilder::default();
        header.size = to_u64(map.len()).saturating_add(stored);
        if !map.is_empty() {
            // A reader that supports the format restores the real name and size.
            records.add("GNU.sparse.major", b"1");
            records.add("GNU.sparse.minor", b"0");
            records.add("GNU.sparse.name", path);
            records.add("GNU.sparse.realsize", size.to_string().as_bytes());
            header.path = header::beside(path, "GNUSparseFile.0");
        }
        self.header(header, records)?;
        self.output.write(&map)?;
        let mut sink = ArchiveSink { output: &mut self.output, buffer: &mut self.buffer, left: stored };
        let filled = fill(&mut sink);
        let left = sink.left;
        self.output.zeros(left)?;
        self.output.pad_to(to_u64(BLOCK))?;
        filled
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &[u8], meta: &Metadata<'_>, target: &[u8]) -> Result<(), HostError> {
        let mut header = TarHeader::new(Kind::Symlink, path, meta);
        header.target = target.to_vec();
        self.header(header, RecordsBuilder::default())
    }

    /// Adds another name of an earlier entry of the archive, whose path is `original`.
    pub fn hard_link(&mut self, path: &[u8], meta: &Metadata<'_>, original: &[u8]) -> Result<(), HostError> {
        let mut header = TarHeader::new(Kind::HardLink, path, meta);
        header.target = original.to_vec();
        // The original entry contains the attributes.
        header.xattrs = &[];
        self.header(header, RecordsBuilder::default())
    }

    /// Adds a device node or FIFO. Returns false and writes nothing for a socket, which tar cannot store.
    pub fn node(
        &mut self,
        path: &[u8],
        meta: &Metadata<'_>,
        kind: FileKind,
        rdev: DeviceNumber,
    ) -> Result<bool, HostError> {
        let kind = match kind {
            FileKind::CharDevice => Kind::CharDevice,
            FileKind::BlockDevice => Kind::BlockDevice,
            FileKind::Fifo => Kind::Fifo,
            _ => return Ok(false),
        };
        let mut header = TarHeader::new(kind, path, meta);
        if kind != Kind::Fifo {
            header.rdev = rdev;
        }
        self.header(header, RecordsBuilder::default())?;
        Ok(true)
    }

    /// Ends the archive and returns the output.
    pub fn finish(mut self) -> Result<W, HostError> {
        self.output.zeros(2 * to_u64(BLOCK))?;
        self.output.pad_to(RECORD)?;
        let Output { writer, path, .. } = self.output;
        writer.into_inner().map_err(|error| HostError::io("write to", &path, error.error()))
    }

    fn header(&mut self, header: TarHeader<'_>, mut records: RecordsBuilder) -> Result<(), HostError> {
        header.add_records(&mut records);
        let records = records.into_bytes();
        if !records.is_empty() {
            let block = header::extended(&header.path, to_u64(records.len()));
            self.output.write(&block)?;
            self.output.write(&records)?;
            self.output.pad_to(to_u64(BLOCK))?;
        }
        self.output.write(&header.block())
    }
}

/// Returns the total number of bytes in `data`. Returns `None` unless its ranges are in order, block-aligned,
/// and within `size` bytes.
fn stored_bytes(size: u64, data: &[Range<u64>]) -> Option<u64> {
    let at_block = |offset: u64| offset.is_multiple_of(to_u64(BLOCK)) || offset == size;
    let mut before = 0;
    data.iter().try_fold(0, |sum, range| {
        let ordered = before <= range.start && range.start <= range.end && range.end <= size;
        before = range.end;
        (ordered && at_block(range.start) && at_block(range.end)).then(|| sum + range.end - range.start)
    })
}

/// Returns the map of a sparse file before its data. It contains the number of ranges, then offset and length of each,
/// in decimal lines, padded with zeros. A file that ends in a hole has an empty range at its end.
fn sparse_map(size: u64, data: &[Range<u64>]) -> Result<Vec<u8>, HostError> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    ranges
        .try_reserve(data.len().saturating_add(1))
        .map_err(|_| HostError::out_of_memory("map the holes of a file"))?;
    ranges.extend(data.iter().map(|range| (range.start, range.end - range.start)));
    if data.last().is_none_or(|last| last.end < size) {
        ranges.push((size, 0));
    }
    let mut map = format!("{}\n", ranges.len()).into_bytes();
    for (offset, len) in ranges {
        map.extend(format!("{offset}\n{len}\n").bytes());
    }
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    Ok(map)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a file with one run of data")]
mod tests;
