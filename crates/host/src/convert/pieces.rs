//! A part of a disk, split into pieces with the same kind of contents.

use std::io;
use std::ops::Range;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;
use obento_containers::write::Content;

use super::is_zero;
use super::pack::Packer;

/// The number of bytes that are read, and are not stored as data, which count as one byte of data.
const READ_PER_BYTE: u64 = 64;
/// The number of zeros that are compressed without a read, which count as one byte of data.
const PACKED_PER_BYTE: u64 = 1024;

/// Units with the same contents, or one unit with data.
#[derive(Debug)]
pub(super) struct Piece {
    pub content: Content,
    pub units: u64,
    /// The place in the file.
    pub at: u64,
    /// The bytes to write, in the part or in the compressed bytes.
    bytes: Range<usize>,
}

/// The pieces of a part, and its bytes.
pub(super) struct Pieces {
    unit: usize,
    patterns: bool,
    packer: Packer,
    /// The bytes of the part, padded to whole units.
    data: Vec<u8>,
    packed: Vec<u8>,
    pieces: Vec<Piece>,
    /// The number of units, if the part is known to consist of zeros.
    zeros: u64,
}

impl Pieces {
    pub fn new(chunk: usize, unit: usize, patterns: bool, packer: Packer) -> Self {
        Self {
            unit,
            patterns,
            packer,
            data: vec![0; chunk.next_multiple_of(unit)],
            packed: Vec::new(),
            pieces: Vec::new(),
            zeros: 0,
        }
    }

    /// Replaces the bytes by `len` zeros, which may be more than those of a part.
    pub fn set_zeros(&mut self, len: u64) {
        self.zeros = len.div_ceil(to_u64(self.unit));
        self.data.fill(0);
    }

    /// Replaces the bytes by `len` bytes of `disk`.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn read(&mut self, disk: &dyn BlockDevice, start: u64, len: u64) -> Result<()> {
        self.zeros = 0;
        let len = to_usize(len);
        disk.read_at(start, &mut self.data[..len])?;
        let padded = len.next_multiple_of(self.unit);
        self.data[len..padded].fill(0);
        Ok(())
    }

    /// Splits the bytes, of which there are `len`, into pieces, and compresses them.
    ///
    /// # Errors
    ///
    /// The encoder failed.
    pub fn split(&mut self, len: u64) -> io::Result<()> {
        self.pieces.clear();
        self.packed.clear();
        if self.zeros > 0 && !self.packer.packs_zeros() {
            self.pieces.push(Piece { content: Content::Zeros, units: self.zeros, at: 0, bytes: 0..0 });
            return Ok(());
        }
        let len = to_usize(len);
        let end = len.next_multiple_of(self.unit);
        for start in (0..end).step_by(self.unit) {
            // A stream has no padding.
            let stop = if self.packer.packs_zeros() { len.min(start + self.unit) } else { start + self.unit };
            let unit = &self.data[start..stop];
            let content = match self.packer.packs_zeros() {
                true => Content::Data,
                false => classify(unit, self.patterns),
            };
            let (content, bytes) = match content {
                Content::Data => match self.packer.pack(unit, &mut self.packed)? {
                    Some(packed) => {
                        (Content::Packed(u32::try_from(packed.len()).unwrap_or(u32::MAX)), packed)
                    }
                    None => (Content::Data, start..stop),
                },
                other => (other, 0..0),
            };
            match self.pieces.last_mut() {
                Some(last) if last.content == content && bytes.is_empty() => last.units += 1,
                _ => self.pieces.push(Piece { content, units: 1, at: 0, bytes }),
            }
        }
        Ok(())
    }

    /// Returns the number of bytes of a part of `len` bytes that count towards a limit: those that are stored as data, in
    /// whole units. Zeros and patterns that are read or compressed count a little, since they take time.
    pub fn cost(&self, len: u64) -> u64 {
        let is_stream = self.packer.packs_zeros();
        if self.zeros > 0 && !is_stream {
            return 0;
        }
        let is_data = |piece: &&Piece| matches!(piece.content, Content::Data | Content::Packed(_));
        let data = match is_stream {
            true if self.zeros > 0 || is_zero(&self.data) => 0,
            true => len,
            false => self.pieces.iter().filter(is_data).map(|piece| piece.units * to_u64(self.unit)).sum(),
        };
        let per_byte = if self.zeros > 0 { PACKED_PER_BYTE } else { READ_PER_BYTE };
        data + len.saturating_sub(data) / per_byte
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Piece> {
        self.pieces.iter_mut()
    }

    /// Passes the bytes of the part, of `len` bytes, to `hash`.
    pub fn bytes(&self, len: u64, hash: &mut dyn FnMut(&[u8])) {
        let mut left = to_usize(len);
        while left > 0 {
            let part = left.min(self.data.len());
            hash(&self.data[..part]);
            left -= part;
        }
    }

    /// Passes the bytes to write to `write`, neighbours in the file together.
    ///
    /// # Errors
    ///
    /// The first of `write`.
    pub fn runs<E>(
        &self,
        mut write: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut run: Option<(u64, Range<usize>, bool)> = None;
        let source = |is_packed: bool| if is_packed { &self.packed } else { &self.data };
        for piece in self.pieces.iter().filter(|piece| !piece.bytes.is_empty()) {
            let is_packed = matches!(piece.content, Content::Packed(_));
            match &mut run {
                Some((at, bytes, was_packed))
                    if *was_packed == is_packed
                        && *at + to_u64(bytes.len()) == piece.at
                        && bytes.end == piece.bytes.start =>
                {
                    bytes.end = piece.bytes.end;
                }
                _ => {
                    if let Some((at, bytes, was_packed)) = run.take() {
                        write(at, &source(was_packed)[bytes])?;
                    }
                    run = Some((piece.at, piece.bytes.clone(), is_packed));
                }
            }
        }
        match run {
            Some((at, bytes, is_packed)) => write(at, &source(is_packed)[bytes]),
            None => Ok(()),
        }
    }
}

/// Returns the contents of a unit that is not compressed.
pub(super) fn classify(unit: &[u8], patterns: bool) -> Content {
    if is_zero(unit) {
        return Content::Zeros;
    }
    let words = unit.as_chunks::<4>().0;
    match words.first() {
        Some(&first) if patterns && words.iter().all(|&word| word == first) => Content::Fill(first),
        _ => Content::Data,
    }
}
