//! The decoders behind one `Read`.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Compression, MEMORY_MAX};
use crate::guard::guard;

/// Decodes a stream of any compression.
pub(super) enum Decoder<R: BufRead> {
    Gzip(Box<Gzip<R>>),
    Xz(Box<XzReader<R>>),
    Zstd(Box<Zstd<R>>),
}

impl<R: BufRead> Decoder<R> {
    pub fn new(compression: Compression, input: R) -> Self {
        match compression {
            Compression::Gzip => Self::Gzip(Box::new(Gzip::Member(GzDecoder::new(input)))),
            Compression::Xz => Self::Xz(Box::new(XzReader::new_mem_limit(input, true, MEMORY_MAX >> 10))),
            Compression::Zstd => Self::Zstd(Box::new(Zstd::new(input))),
        }
    }

    /// Where the compressed bytes come from.
    pub fn input(&self) -> &R {
        match self {
            Self::Gzip(gzip) => gzip.input(),
            Self::Xz(xz) => xz.inner(),
            Self::Zstd(zstd) => &zstd.input,
        }
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        guard(|| match self {
            Self::Gzip(gzip) => gzip.read(buf),
            Self::Xz(xz) => xz.read(buf),
            Self::Zstd(zstd) => zstd.read(buf),
        })
    }
}

/// Whether the compressed stream ended before its end.
pub(crate) fn is_truncation(error: &io::Error) -> bool {
    if error.kind() == ErrorKind::UnexpectedEof {
        return true;
    }
    // The decoder of zstd wraps what it got from its input.
    let mut source = error.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
    while let Some(inner) = source {
        if inner.downcast_ref::<io::Error>().is_some_and(|inner| inner.kind() == ErrorKind::UnexpectedEof) {
            return true;
        }
        source = inner.source();
    }
    false
}

/// gzip members one after another. What follows the last one and is none is ignored, as gzip(1) does.
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub(super) enum Gzip<R: BufRead> {
    Member(GzDecoder<R>),
    End(R),
    /// Only while one member makes place for the next.
    Between,
}

impl<R: BufRead> Gzip<R> {
    fn input(&self) -> &R {
        match self {
            Self::Member(decoder) => decoder.get_ref(),
            Self::End(input) => input,
            Self::Between => unreachable!("only within `read`"),
        }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Self::Member(decoder) = self else { return Ok(0) };
            let len = decoder.read(buf)?;
            if len > 0 || buf.is_empty() {
                return Ok(len);
            }
            let more = decoder.get_mut().fill_buf()?.starts_with(&[0x1f, 0x8b]);
            if let Self::Member(decoder) = std::mem::replace(self, Self::Between) {
                let input = decoder.into_inner();
                *self = if more { Self::Member(GzDecoder::new(input)) } else { Self::End(input) };
            }
        }
    }
}

/// zstd frames and skippable frames one after another.
pub(super) struct Zstd<R> {
    decoder: FrameDecoder,
    input: R,
    /// Whether a frame has been started, so that bytes that start no other are what follows the last.
    started: bool,
    ended: bool,
    /// Told once what was decoded before it has been handed over.
    failure: Option<io::Error>,
}

/// Ends a frame: the header of a last block without content (RFC 8878, section 3.1.1.2), and room for a checksum.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl<R: BufRead> Zstd<R> {
    fn new(input: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MEMORY_MAX.into());
        Self { decoder, input, started: false, ended: false, failure: None }
    }

    /// Starts the next frame that holds data; false at the end of the stream.
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
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Compares the frame's checksum, if it has one.
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
    /// Decodes some more; false at the end of the stream.
    fn advance(&mut self, len: usize) -> io::Result<bool> {
        if self.started && self.decoder.is_finished() {
            self.check()?;
        }
        if self.decoder.is_finished() && !self.next_frame()? {
            return Ok(false);
        }
        let some = BlockDecodingStrategy::UptoBytes(len);
        self.decoder.decode_blocks(&mut self.input, some).map_err(io::Error::other)?;
        Ok(true)
    }

    /// Lets go of what was decoded before the frame failed: a decoder keeps its window until the frame ends.
    fn end_frame(&mut self) {
        if !self.decoder.is_finished() {
            // What is wrong is known already.
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
