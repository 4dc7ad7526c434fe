//! The extents of a regular file, and how its data is read.

use alloc::vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, Feature, Ino, Result, Structure};
use obento_driver::{Extent, Span};

use super::compressed::{self, Unit};
use super::content::Content;
use super::stream::Stream;
use crate::driver::volume::Volume;
use crate::layout::bytes::round_up;
use crate::mft::Value;

/// Number of compression units that are looked at for one extent.
const UNITS_AT_ONCE: u32 = 64;

impl Volume {
    /// Returns the extent of `content` at the start of `range`.
    pub fn extent(&self, content: &Content, range: Range<u64>) -> Result<Extent> {
        let asked = range.end.saturating_sub(range.start);
        if let Content::Refused(feature) = content {
            return Err(Error::Unsupported(*feature));
        }
        let left = content.size().saturating_sub(range.start);
        if left == 0 {
            return Ok(Extent { len: asked, span: Span::Hole });
        }
        match content {
            Content::Plain(stream) => self.plain_extent(stream, range, left.min(asked)),
            Content::Packed(stream) => self.packed_extent(stream, range, left.min(asked)),
            _ => Ok(Extent { len: left.min(asked), span: Span::Driver }),
        }
    }

    /// Returns the extent of a value in clusters. `most` is the length up to the end of the data or the request.
    fn plain_extent(&self, stream: &Stream, range: Range<u64>, most: u64) -> Result<Extent> {
        let (at, asked) = (range.start, range.end.saturating_sub(range.start));
        let cluster = u64::from(self.geometry().cluster_size);
        let (start, len) = stream.place(at, self.geometry())?;
        let Some(start) = start else { return Ok(Extent { len: len.min(asked), span: Span::Hole }) };
        let written = stream.initialized();
        if written >= stream.size() {
            return self.mapped(stream, at, start, len.min(most));
        }
        // Whole clusters are mapped; the driver clears the rest of the last one.
        let whole = written.checked_div(cluster).unwrap_or(0).saturating_mul(cluster);
        let partial = round_up(written, cluster);
        if at < whole {
            return self.mapped(stream, at, start, len.min(most).min(whole.saturating_sub(at)));
        }
        if at < partial {
            let len = len.min(most).min(partial.saturating_sub(at));
            return Ok(Extent { len, span: Span::Driver });
        }
        Ok(Extent { len: len.min(asked), span: Span::Unwritten })
    }

    /// Returns a mapped extent, as far as the device reaches.
    fn mapped(&self, stream: &Stream, at: u64, start: u64, len: u64) -> Result<Extent> {
        let room = self.device_len().saturating_sub(start);
        if room == 0 {
            let cluster = u64::from(self.geometry().cluster_size);
            let in_clusters = |bytes: u64| bytes.checked_div(cluster).unwrap_or(0);
            let structure = Structure::Inode(Ino(stream.number));
            let (at, start, len) = (in_clusters(at), in_clusters(start), in_clusters(len).max(1));
            return Err(Corrupt::BlockRange { structure, at, start, len }.into());
        }
        Ok(Extent { len: len.min(room), span: Span::Mapped(start) })
    }

    fn packed_extent(&self, stream: &Stream, range: Range<u64>, most: u64) -> Result<Extent> {
        let geometry = self.geometry();
        let size = compressed::unit_size(stream, geometry)?;
        let asked = range.end.saturating_sub(range.start);
        let first = range.start.checked_div(size).unwrap_or(0).saturating_mul(size);
        let kind = |unit: u64| -> Result<Unit> {
            let has_data = stream.initialized() > unit;
            if has_data { compressed::unit(stream, geometry, unit) } else { Ok(Unit::Hole) }
        };
        let found = kind(first)?;
        let whole = stream.initialized() >= first.saturating_add(size).min(stream.size());
        let is_same = |other: Unit| (other == Unit::Hole) == (found == Unit::Hole);
        if found == Unit::Plain && whole {
            let (start, len) = stream.place(range.start, geometry)?;
            let inside = first.saturating_add(size).saturating_sub(range.start);
            let start = start.ok_or_else(|| stream.missing(first))?;
            return self.mapped(stream, range.start, start, len.min(inside).min(most));
        }
        // Units of one kind are one extent, so that a caller asks less often.
        let mut end = first.saturating_add(size);
        for _ in 0..UNITS_AT_ONCE {
            if end >= stream.size() || end >= range.end || !kind(end).is_ok_and(is_same) {
                break;
            }
            end = end.saturating_add(size);
        }
        let len = end.saturating_sub(range.start);
        Ok(match found {
            Unit::Hole => Extent { len: len.min(asked), span: Span::Hole },
            _ => Extent { len: len.min(most), span: Span::Driver },
        })
    }

    /// Fills `buf` from byte `offset` of `content` of file `ino`. Returns the number of bytes, which is less only at
    /// the end.
    pub fn read_content(&self, ino: Ino, content: &Content, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = to_usize(content.size().saturating_sub(offset));
        let len = left.min(buf.len());
        let Some(buf) = buf.get_mut(..len) else { return Ok(0) };
        match content {
            Content::Refused(feature) => return Err(Error::Unsupported(*feature)),
            Content::Resident(bytes) => {
                let start = to_usize(offset);
                buf.copy_from_slice(bytes.get(start..start.saturating_add(len)).unwrap_or_default());
            }
            Content::Plain(stream) => stream.read(self.device_ref(), self.geometry(), offset, buf)?,
            Content::Packed(stream) => {
                let size = compressed::unit_size(stream, self.geometry())?;
                let read = |unit: u64| {
                    compressed::read_unit(
                        stream,
                        self.device_ref(),
                        self.geometry(),
                        unit.saturating_mul(size),
                    )
                };
                self.read_pieces(ino, size, offset, buf, read)?;
            }
            Content::Wof { method, size, chunks } => {
                let source = Self::source_of(chunks);
                let read = |number: u64| {
                    let read = |at: u64, buf: &mut [u8]| self.read_source(ino, &source, at, buf);
                    method.read(ino.0, *size, chunks.size(), number, read)
                };
                self.read_pieces(ino, method.chunk(), offset, buf, read)?;
            }
        }
        Ok(len)
    }

    /// The stream of chunks as data of its own.
    fn source_of(chunks: &Value) -> Content {
        match chunks {
            Value::Resident(bytes, _) => Content::Resident(bytes.clone()),
            Value::Stream(stream) if stream.is_compressed() => {
                Content::Refused(Feature::Named("a WofCompressedData stream that NTFS compresses again"))
            }
            Value::Stream(stream) => Content::Plain(stream.clone()),
        }
    }

    fn read_source(&self, ino: Ino, source: &Content, at: u64, buf: &mut [u8]) -> Result<()> {
        match source {
            Content::Resident(bytes) => {
                let start = to_usize(at);
                let found = bytes.get(start..start.saturating_add(buf.len()));
                buf.copy_from_slice(found.ok_or_else(|| compressed::broken(ino.0, at, 1))?);
                Ok(())
            }
            Content::Plain(stream) => stream.read(self.device_ref(), self.geometry(), at, buf),
            Content::Refused(feature) => Err(Error::Unsupported(*feature)),
            _ => Err(compressed::broken(ino.0, at, 1)),
        }
    }

    /// Fills `buf` from pieces of `size` bytes, of which the last ones are cached.
    fn read_pieces(
        &self,
        ino: Ino,
        size: u64,
        offset: u64,
        buf: &mut [u8],
        read: impl Fn(u64) -> Result<alloc::vec::Vec<u8>>,
    ) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let number = at.checked_div(size).unwrap_or(0);
            let key = (ino.0, number);
            let piece = match self.pieces().get(&key) {
                Some(piece) => piece,
                None => self.pieces().put(key, read(number)?.into()),
            };
            let inside = to_usize(at.saturating_sub(number.saturating_mul(size)));
            let source = piece.get(inside..).unwrap_or_default();
            let len = source.len().min(rest.len());
            if len == 0 {
                return Err(compressed::broken(ino.0, number, 1));
            }
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(source.get(..len).unwrap_or_default());
            at = at.saturating_add(to_u64(len));
            rest = later;
        }
        Ok(())
    }

    /// Returns the whole value of an attribute, if it has at most `max` bytes.
    ///
    /// # Errors
    ///
    /// - `OutOfRange`: the value is longer.
    pub fn read_value(&self, ino: Ino, value: Value, max: u64) -> Result<alloc::vec::Vec<u8>> {
        let content = Content::from(value);
        if content.size() > max {
            return Err(Error::OutOfRange);
        }
        let mut bytes = vec![0; to_usize(content.size())];
        match &content {
            Content::Packed(stream) => {
                let size = compressed::unit_size(stream, self.geometry())?;
                for (start, piece) in (0..).step_by(to_usize(size)).zip(bytes.chunks_mut(to_usize(size))) {
                    let unit = compressed::read_unit(stream, self.device_ref(), self.geometry(), start)?;
                    piece.copy_from_slice(unit.get(..piece.len()).unwrap_or_default());
                }
            }
            other => drop(self.read_content(ino, other, 0, &mut bytes)?),
        }
        Ok(bytes)
    }
}
