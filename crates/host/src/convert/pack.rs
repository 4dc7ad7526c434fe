//! Compresses units of a disk.

use std::io::{self, Write};
use std::ops::Range;

use flate2::{Compress, Compression, FlushCompress, Status};
use lzma_rust2::{XzOptions, XzWriter};
use obento_containers::write::{Packing, Stream};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::guard::guard;

/// The window of deflate in qcow2, in bits. Source: qemu `block/qcow2-threads.c`.
const QCOW2_WINDOW: u8 = 12;
/// The level of gzip and zlib that qemu uses by default.
const LEVEL: u32 = 6;
/// The level of xz: much faster than the default of 6, for images of a few GiB.
const XZ_LEVEL: u32 = 3;

/// Compresses units, one at a time.
pub(super) struct Packer {
    packing: Packing,
    deflate: Option<Compress>,
    /// The compressed form of a unit of zeros.
    zeros: Option<(usize, Vec<u8>)>,
}

impl Packer {
    pub fn new(packing: Packing) -> Self {
        let level = Compression::new(LEVEL);
        let deflate = match packing {
            Packing::Deflate => Some(Compress::new_with_window_bits(level, false, QCOW2_WINDOW)),
            Packing::Zlib => Some(Compress::new(level, true)),
            Packing::Stored | Packing::Stream(_) => None,
        };
        Self { packing, deflate, zeros: None }
    }

    /// Returns whether zeros are compressed like data.
    pub fn packs_zeros(&self) -> bool {
        matches!(self.packing, Packing::Stream(_))
    }

    /// Appends the compressed form of `unit` to `out` and returns its place there, or `None` if the unit is to be
    /// stored as it is.
    ///
    /// # Errors
    ///
    /// The encoder failed.
    pub fn pack(&mut self, unit: &[u8], out: &mut Vec<u8>) -> io::Result<Option<Range<usize>>> {
        let start = out.len();
        match self.packing {
            Packing::Stored => return Ok(None),
            Packing::Deflate => {
                // A cluster that does not become smaller is stored.
                out.resize(start + unit.len() - 1, 0);
                let packed = self.deflate(unit, &mut out[start..]);
                out.truncate(start + packed.unwrap_or(0));
                if packed.is_none() {
                    return Ok(None);
                }
            }
            Packing::Zlib => {
                // Deflate adds a few bytes to data that it cannot compress.
                out.resize(start + unit.len() + unit.len() / 8 + 64, 0);
                let packed = self.deflate(unit, &mut out[start..]);
                out.truncate(start + packed.ok_or(io::ErrorKind::InvalidData)?);
            }
            Packing::Stream(stream) => self.stream(stream, unit, out)?,
        }
        Ok(Some(start..out.len()))
    }

    fn deflate(&mut self, unit: &[u8], out: &mut [u8]) -> Option<usize> {
        let deflate = self.deflate.as_mut()?;
        deflate.reset();
        let status = deflate.compress(unit, out, FlushCompress::Finish).ok()?;
        (status == Status::StreamEnd).then(|| usize::try_from(deflate.total_out()).ok()).flatten()
    }

    fn stream(&mut self, stream: Stream, unit: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let is_zero = super::is_zero(unit);
        if let Some((_, zeros)) = self.zeros.as_ref().filter(|(len, _)| is_zero && *len == unit.len()) {
            out.extend_from_slice(zeros);
            return Ok(());
        }
        let packed = packed(stream, unit)?;
        out.extend_from_slice(&packed);
        if is_zero {
            self.zeros = Some((unit.len(), packed));
        }
        Ok(())
    }
}

/// Returns `unit` as one stream.
fn packed(stream: Stream, unit: &[u8]) -> io::Result<Vec<u8>> {
    match stream {
        Stream::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::new(LEVEL));
            encoder.write_all(unit).and_then(|()| encoder.finish())
        }
        Stream::Xz => XzWriter::new(Vec::new(), XzOptions::with_preset(XZ_LEVEL))
            .and_then(|mut encoder| encoder.write_all(unit).and_then(|()| encoder.finish())),
        Stream::Zstd => guard(|| Ok(compress_to_vec(unit, CompressionLevel::Fastest))),
    }
}
