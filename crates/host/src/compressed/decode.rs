//! The decoders behind one `Read` implementation.

use std::io::{self, BufRead, ErrorKind, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use lzma_rust2::{LzmaReader, XzReader};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Compression, UnpackError};
use crate::guard::guard;

/// Decodes a stream of any compression.
pub(super) enum Decoder<R: BufRead> {
    Bzip2(Box<Members<R, BzDecoder<R>>>),
    Gzip(Box<Members<R, GzDecoder<R>>>),
    Lzma(Box<Lzma<R>>),
    Xz(Box<Xz<R>>),
    Zstd(Box<Zstd<R>>),
}

impl<R: BufRead> Decoder<R> {
    /// Creates a decoder that uses at most `memory` bytes for its window.
    pub fn new(compression: Compression, input: R, memory: u64) -> Self {
        match compression {
            Compression::Bzip2 => Self::Bzip2(Box::new(Members::Member(BzDecoder::new(input)))),
            Compression::Gzip => Self::Gzip(Box::new(Members::Member(GzDecoder::new(input)))),
            Compression::Lzma => Self::Lzma(Box::new(Lzma::Start { input, memory })),
            Compression::Xz => {
                let reader = XzReader::new_mem_limit(input, true, kib(memory));
                Self::Xz(Box::new(Xz { reader, memory }))
            }
            Compression::Zstd => Self::Zstd(Box::new(Zstd::new(input, memory))),
        }
    }

    /// Returns the source of the compressed bytes, or `None` after a header that is not usable.
    pub fn input(&self) -> Option<&R> {
        Some(match self {
            Self::Bzip2(bzip2) => bzip2.input(),
            Self::Gzip(gzip) => gzip.input(),
            Self::Lzma(lzma) => return lzma.input(),
            Self::Xz(xz) => xz.reader.inner(),
            Self::Zstd(zstd) => &zstd.input,
        })
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        guard(|| match self {
            Self::Bzip2(bzip2) => bzip2.read(buf),
            Self::Gzip(gzip) => gzip.read(buf),
            Self::Lzma(lzma) => lzma.read(buf),
            Self::Xz(xz) => xz.reader.read(buf).map_err(|error| of_lzma(error, xz.memory)),
            Self::Zstd(zstd) => zstd.read(buf),
        })
    }
}

/// Converts `memory` to the unit of the decoder, in which the largest number means no limit.
fn kib(memory: u64) -> u32 {
    u32::try_from(memory >> 10).unwrap_or(u32::MAX - 1)
}

/// Converts the error of an LZMA decoder, which does not say how much memory is needed.
fn of_lzma(error: io::Error, memory: u64) -> io::Error {
    match error.kind() {
        ErrorKind::OutOfMemory => UnpackError::Memory { needed: None, limit: memory }.into(),
        _ => error,
    }
}

pub(super) struct Xz<R: Read> {
    reader: XzReader<R>,
    memory: u64,
}

/// One stream in the .lzma format.
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub(super) enum Lzma<R> {
    /// Nothing was read. The header is checked when the first bytes are requested.
    Start {
        input: R,
        memory: u64,
    },
    Reader(LzmaReader<R>),
    /// The header is not usable, and its error was returned.
    Failed,
}

impl<R: BufRead> Lzma<R> {
    fn input(&self) -> Option<&R> {
        match self {
            Self::Start { input, .. } => Some(input),
            Self::Reader(reader) => Some(reader.inner()),
            Self::Failed => None,
        }
    }
}

impl<R: BufRead> Read for Lzma<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if matches!(self, Self::Start { .. })
            && let Self::Start { input, memory } = std::mem::replace(self, Self::Failed)
        {
            let reader = LzmaReader::new_mem_limit(input, kib(memory), None);
            *self = Self::Reader(reader.map_err(|error| of_lzma(error, memory))?);
        }
        match self {
            Self::Reader(reader) => reader.read(buf),
            Self::Start { .. } | Self::Failed => Ok(0),
        }
    }
}

/// Returns whether the compressed stream is truncated.
pub(crate) fn is_truncation(error: &io::Error) -> bool {
    if error.kind() == ErrorKind::UnexpectedEof {
        return true;
    }
    // The decoder of zstd wraps the errors of its input.
    let mut source = error.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
    while let Some(inner) = source {
        if inner.downcast_ref::<io::Error>().is_some_and(|inner| inner.kind() == ErrorKind::UnexpectedEof) {
            return true;
        }
        source = inner.source();
    }
    false
}

/// A decoder of one of several members of a file.
pub(super) trait MemberDecoder<R>: Read {
    /// The bytes that begin a member.
    const MAGIC: &'static [u8];

    fn start(input: R) -> Self;
    fn input(&self) -> &R;
    fn input_mut(&mut self) -> &mut R;
    fn into_input(self) -> R;
}

macro_rules! member {
    ($decoder:ident, $magic:expr) => {
        impl<R: BufRead> MemberDecoder<R> for $decoder<R> {
            const MAGIC: &'static [u8] = $magic;

            fn start(input: R) -> Self {
                Self::new(input)
            }

            fn input(&self) -> &R {
                self.get_ref()
            }

            fn input_mut(&mut self) -> &mut R {
                self.get_mut()
            }

            fn into_input(self) -> R {
                self.into_inner()
            }
        }
    };
}

member!(GzDecoder, &[0x1f, 0x8b]);
member!(BzDecoder, b"BZh");

/// Members one after another. Bytes after the last member that begin no further one are ignored, as in
/// gzip(1) and bzip2(1).
pub(super) enum Members<R, D> {
    Member(D),
    End(R),
    /// The state while one member replaces another.
    Between,
}

impl<R: BufRead, D: MemberDecoder<R>> Members<R, D> {
    fn input(&self) -> &R {
        match self {
            Self::Member(decoder) => decoder.input(),
            Self::End(input) => input,
            Self::Between => unreachable!("only within `read`"),
        }
    }
}

impl<R: BufRead, D: MemberDecoder<R>> Read for Members<R, D> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Self::Member(decoder) = self else { return Ok(0) };
            let len = decoder.read(buf)?;
            if len > 0 || buf.is_empty() {
                return Ok(len);
            }
            let more = decoder.input_mut().fill_buf()?.starts_with(D::MAGIC);
            if let Self::Member(decoder) = std::mem::replace(self, Self::Between) {
                let input = decoder.into_input();
                *self = if more { Self::Member(D::start(input)) } else { Self::End(input) };
            }
        }
    }
}

/// zstd frames and skippable frames one after another.
pub(super) struct Zstd<R> {
    decoder: FrameDecoder,
    input: R,
    /// Whether a frame was started, so that bytes that start no further one are ignored.
    started: bool,
    ended: bool,
    /// An error that is returned once, after the bytes that were decoded before it.
    failure: Option<io::Error>,
}

/// `Block_Maximum_Size` (RFC 8878, section 3.1.1.2.4).
const BLOCK: usize = 128 << 10;
/// Bytes that end a frame: the header of a last block without content (RFC 8878, section 3.1.1.2), and space
/// for a checksum.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl<R: BufRead> Zstd<R> {
    fn new(input: R, memory: u64) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(memory);
        Self { decoder, input, started: false, ended: false, failure: None }
    }

    /// Starts the next frame with data. Returns false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => {
                    self.started = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(&mut (&mut self.input).take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::BadMagicNumber(_)))
                    if self.started =>
                {
                    return Ok(false);
                }
                Err(FrameDecoderError::WindowSizeTooBig { requested, .. }) => {
                    let limit = self.decoder.max_window_size();
                    return Err(UnpackError::Memory { needed: Some(requested), limit }.into());
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Verifies the checksum of the frame, if it has one.
    fn check(&self) -> io::Result<()> {
        match self.decoder.get_checksum_from_data() {
            Some(stored) if Some(stored) != self.decoder.get_calculated_checksum() => {
                Err(io::Error::new(ErrorKind::InvalidData, "checksum mismatch"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Zstd<R> {
    /// Decodes more bytes. Returns false at the end of the stream.
    fn advance(&mut self, len: usize) -> io::Result<bool> {
        if self.started && self.decoder.is_finished() {
            self.check()?;
        }
        if self.decoder.is_finished() && !self.next_frame()? {
            return Ok(false);
        }
        // With more than a block at once, the buffer of the decoder becomes twice as long as the window.
        let some = BlockDecodingStrategy::UptoBytes(len.min(BLOCK));
        self.decoder.decode_blocks(&mut self.input, some).map_err(io::Error::other)?;
        Ok(true)
    }

    /// Releases the bytes that were decoded before the frame failed. A decoder holds its window until the
    /// frame ends.
    fn end_frame(&mut self) {
        if !self.decoder.is_finished() {
            // The error is already known.
            let _ = self.decoder.decode_blocks(LAST_BLOCK.as_slice(), BlockDecodingStrategy::All);
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buf);
            }
            if self.ended {
                return self.failure.take().map_or(Ok(0), Err);
            }
            match self.advance(buf.len()) {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    self.failure = Some(error);
                    self.ended = true;
                    self.end_frame();
                }
            }
        }
    }
}
