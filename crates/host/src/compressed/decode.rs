//! The decoders behind one `Read` implementation.

use std::io::{self, BufRead, ErrorKind, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use lzma_rust2::{LzmaReader, XzReader};
use obento_base::wire::to_u64;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Compression, UnpackError};
use crate::guard::guard;

/// Decodes a stream of any compression.
pub(super) enum Decoder<R: BufRead> {
    Bzip2(Box<Members<R, BzDecoder<R>>>),
    Gzip(Box<Members<R, GzDecoder<R>>>),
    Lzma(Box<Lzma<R>>),
    Xz(Box<Members<R, XzReader<R>>>),
    Zstd(Box<Zstd<R>>),
}

/// The place of a decoder in a file. Padding and unknown data can follow a zstd frame, but not precede the first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FramePlace {
    /// At the start.
    First,
    /// After other frames.
    Later,
}

impl<R: BufRead> Decoder<R> {
    /// Creates a decoder that uses at most `memory` bytes for its window.
    pub fn new(compression: Compression, input: R, place: FramePlace, memory: u64) -> Self {
        match compression {
            Compression::Bzip2 => Self::Bzip2(Box::new(Members::new(input, memory))),
            Compression::Gzip => Self::Gzip(Box::new(Members::new(input, memory))),
            Compression::Lzma => Self::Lzma(Box::new(Lzma::Start { input, memory })),
            Compression::Xz => Self::Xz(Box::new(Members::new(input, memory))),
            Compression::Zstd => Self::Zstd(Box::new(Zstd::new(input, place, memory))),
        }
    }

    /// Returns the source of the compressed bytes, or `None` after a header that is not usable.
    pub fn input(&self) -> Option<&R> {
        Some(match self {
            Self::Bzip2(bzip2) => bzip2.input(),
            Self::Gzip(gzip) => gzip.input(),
            Self::Lzma(lzma) => return lzma.input(),
            Self::Xz(xz) => xz.input(),
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
            Self::Xz(xz) => xz.read(buf).map_err(|error| of_lzma(error, xz.memory)),
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
    /// The byte that begins a member. The decoder verifies the rest of the header.
    const FIRST: u8;
    /// The unit of the padding between two members, if the format permits padding there.
    const PADDING: Option<u64>;

    fn start(input: R, memory: u64) -> Self;
    fn input(&self) -> &R;
    fn input_mut(&mut self) -> &mut R;
    fn into_input(self) -> R;
}

macro_rules! member {
    ($decoder:ident, $first:expr, $padding:expr, $start:expr, $inner:ident, $inner_mut:ident) => {
        impl<R: BufRead> MemberDecoder<R> for $decoder<R> {
            const FIRST: u8 = $first;
            const PADDING: Option<u64> = $padding;

            fn start(input: R, memory: u64) -> Self {
                $start(input, memory)
            }

            fn input(&self) -> &R {
                self.$inner()
            }

            fn input_mut(&mut self) -> &mut R {
                self.$inner_mut()
            }

            fn into_input(self) -> R {
                self.into_inner()
            }
        }
    };
}

member!(GzDecoder, 0x1f, None, |input, _| Self::new(input), get_ref, get_mut);
member!(BzDecoder, b'B', None, |input, _| Self::new(input), get_ref, get_mut);
// The .xz file format, section 2.2. The decoder of several streams requires that the input returns a header at once.
member!(
    XzReader,
    0xfd,
    Some(4),
    |input, memory| Self::new_mem_limit(input, false, kib(memory)),
    inner,
    inner_mut
);

/// Members one after another. Zeros after the last member are padding. Other bytes are an error: a damaged member, or
/// [`Trailing`].
pub(super) struct Members<R, D> {
    state: State<R, D>,
    /// The limit of each decoder.
    memory: u64,
}

enum State<R, D> {
    Member(D),
    End(R),
    /// The state while one member replaces another.
    Between,
}

impl<R: BufRead, D: MemberDecoder<R>> Members<R, D> {
    fn new(input: R, memory: u64) -> Self {
        Self { state: State::Member(D::start(input, memory)), memory }
    }

    fn input(&self) -> &R {
        match &self.state {
            State::Member(decoder) => decoder.input(),
            State::End(input) => input,
            State::Between => unreachable!("only within `read`"),
        }
    }
}

impl<R: BufRead, D: MemberDecoder<R>> Read for Members<R, D> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let State::Member(decoder) = &mut self.state else { return Ok(0) };
            let len = decoder.read(buf)?;
            if len > 0 || buf.is_empty() {
                return Ok(len);
            }
            // A member can follow any number of zeros then.
            let most = if D::PADDING.is_some() { u64::MAX } else { TAIL };
            let (zeros, next) = skip_zeros(decoder.input_mut(), most)?;
            let begins = next == Some(D::FIRST);
            let may_begin = zeros == 0 || D::PADDING.is_some_and(|unit| zeros.is_multiple_of(unit));
            if let State::Member(decoder) = std::mem::replace(&mut self.state, State::Between) {
                let input = decoder.into_input();
                self.state = match begins && may_begin {
                    true => State::Member(D::start(input, self.memory)),
                    false => State::End(input),
                };
            }
            if next.is_some() && !(begins && may_begin) {
                return Err(unknown(begins));
            }
        }
    }
}

/// The zeros after a stream that are examined. A device may be much longer than the stream on it.
const TAIL: u64 = 64 << 10;

/// Skips zeros, until `most` were skipped. Returns their number, and the other byte that follows.
fn skip_zeros(input: &mut impl BufRead, most: u64) -> io::Result<(u64, Option<u8>)> {
    let mut zeros = 0;
    while zeros < most {
        let bytes = input.fill_buf()?;
        let len = bytes.iter().take_while(|&&byte| byte == 0).count();
        if len == 0 {
            return Ok((zeros, bytes.first().copied()));
        }
        input.consume(len);
        zeros += to_u64(len);
    }
    Ok((zeros, None))
}

const FOLLOWED: &str = "unknown data follows the compressed data";

/// The error after the last member, when other bytes than zeros follow. Bytes that begin as a member does may be a
/// damaged one, so that contents are missing.
fn unknown(begins_member: bool) -> io::Error {
    match begins_member {
        true => io::Error::new(ErrorKind::InvalidData, FOLLOWED),
        false => io::Error::new(ErrorKind::InvalidData, Trailing),
    }
}

/// Bytes after the last member that belong to another program, such as the metadata at the end of firmware. The
/// members are complete, and their checksums are correct.
#[derive(Debug, thiserror::Error)]
#[error("{FOLLOWED}")]
struct Trailing;

/// Returns whether the stream is complete, and unknown data follows it.
pub(super) fn is_trailing(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Trailing>())
}

/// zstd frames and skippable frames one after another.
pub(super) struct Zstd<R> {
    decoder: FrameDecoder,
    input: R,
    /// Whether a frame was started, so that zeros may follow.
    started: bool,
    ended: bool,
    /// An error that is returned once, after the bytes that were decoded before it.
    failure: Option<io::Error>,
}

/// `Block_Maximum_Size` (RFC 8878, section 3.1.1.2.4).
pub(super) const BLOCK: usize = 128 << 10;
/// Bytes that end a frame: the header of a last block without content (RFC 8878, section 3.1.1.2), and space
/// for a checksum.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// Returns whether a frame or a skippable frame can begin with `first` (RFC 8878, sections 3.1.1 and 3.1.2).
fn begins_frame(first: u8) -> bool {
    matches!(first, 0x28 | 0x50..=0x5f)
}

impl<R: BufRead> Zstd<R> {
    fn new(input: R, place: FramePlace, memory: u64) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(memory);
        Self { decoder, input, started: place == FramePlace::Later, ended: false, failure: None }
    }

    /// Starts the next frame with data. Returns false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        while let Some(&first) = self.input.fill_buf()?.first() {
            if self.started && !begins_frame(first) {
                let (_, next) = skip_zeros(&mut self.input, TAIL)?;
                return next.map_or(Ok(false), |next| Err(unknown(begins_frame(next))));
            }
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
                    return Err(unknown(true));
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
