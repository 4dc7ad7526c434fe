//! A stream that may be compressed, decoded in its own thread while the decoded bytes are used.
//!
//! Invariant: at most [`CHUNKS`] chunks wait, and the limits bound the returned bytes for any stream.
//! Invariant: a stream ends with its last chunk. If the thread ends without one, a decoder failed, and the
//! stream reports it.
//!
//! Dropping the stream does not wait for the thread. The thread may wait for more bytes of a pipe, and ends
//! when it receives bytes that are no longer needed.

use std::io::{self, BufReader, Cursor, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use obento_base::wire::to_u64;

use super::decode::{Decoder, FramePlace, is_trailing};
use super::scratch::{CHUNK, fill};
use super::{Compression, UnpackError, UnpackLimits};
use crate::interrupt;

/// Bytes read from the stream at once.
const READ_AHEAD: usize = 128 << 10;
const CHUNKS: usize = 4;
/// The time after which a wait for a chunk looks for a signal. A signal does not interrupt the wait.
const PATIENCE: Duration = Duration::from_millis(100);

/// The bytes of a stream, decoded if the stream is compressed.
pub struct Stream {
    compression: Option<Compression>,
    start: Vec<u8>,
    limits: UnpackLimits,
    chunks: Receiver<Chunk>,
    current: Cursor<Vec<u8>>,
    /// Bytes of all chunks so far.
    unpacked: u64,
    /// Compressed bytes of all chunks so far.
    read: u64,
    /// Bytes that the contents need in addition to their own.
    additional: u64,
    /// Whether the previous chunk was the last.
    is_ended: bool,
    /// An error that is returned once, after the bytes before it.
    failure: Option<io::Error>,
}

struct Chunk {
    bytes: Vec<u8>,
    /// Compressed bytes of the stream read so far.
    read: u64,
    is_last: bool,
    failure: Option<io::Error>,
}

impl Stream {
    /// Examines the first bytes of `input`, and continues to read in a thread. Fails with the errors of the input, or
    /// if the thread cannot start.
    pub fn new(mut input: impl Read + Send + 'static, limits: UnpackLimits) -> io::Result<Self> {
        let mut start = [0; Compression::MAGIC_LEN];
        let (len, failure) = fill(&mut input, &mut start);
        if let Some(error) = failure {
            return Err(error);
        }
        let start = start.get(..len).unwrap_or_default().to_vec();
        let compression = Compression::detect(&start);
        let counted = Counted { input: Cursor::new(start.clone()).chain(input), read: 0 };
        let input = BufReader::with_capacity(READ_AHEAD, counted);
        let (sender, chunks) = sync_channel(CHUNKS);
        let read = move || match compression {
            Some(compression) => {
                let decoder = Decoder::new(compression, input, FramePlace::First, limits.memory);
                send(decoder, &sender, |decoder| decoder.input().map_or(0, |input| input.get_ref().read));
            }
            None => send(input, &sender, |input| input.get_ref().read),
        };
        std::thread::Builder::new().name("stream reader".into()).spawn(read)?;
        Ok(Self {
            compression,
            start,
            limits,
            chunks,
            current: Cursor::default(),
            unpacked: 0,
            read: 0,
            additional: 0,
            is_ended: false,
            failure: None,
        })
    }

    /// Returns the first bytes of the stream, before they are decoded.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// Returns the compression.
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Counts `bytes` that the contents need in addition to those of the stream. Fails with `Bytes`.
    pub fn require(&mut self, bytes: u64) -> Result<(), UnpackError> {
        self.additional = self.additional.saturating_add(bytes);
        if self.additional == 0 { Ok(()) } else { self.limits.check(self.read, self.required()) }
    }

    /// Returns how many bytes the contents so far need that the stream does not contain.
    pub fn required(&self) -> u64 {
        let unpacked = if self.compression.is_some() { self.unpacked } else { 0 };
        self.additional.saturating_add(unpacked)
    }
}

/// Sends all of `input`, until it ends or the receiver is dropped. Unknown data after a compressed stream is ignored. `read` returns how many bytes of the
/// stream were read.
fn send<R: Read>(mut input: R, sender: &SyncSender<Chunk>, read: impl Fn(&R) -> u64) {
    loop {
        let mut bytes = vec![0; CHUNK];
        let (len, failure) = fill(&mut input, &mut bytes);
        bytes.truncate(len);
        // The stream is complete.
        let failure = failure.filter(|error| !is_trailing(error));
        let is_last = len < CHUNK || failure.is_some();
        let chunk = Chunk { bytes, read: read(&input), is_last, failure };
        if sender.send(chunk).is_err() || is_last {
            return;
        }
    }
}

/// An input that counts the bytes read.
struct Counted<R> {
    input: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buf)?;
        self.read += to_u64(len);
        Ok(len)
    }
}

impl Stream {
    /// Waits for the next chunk. Fails if the decoder failed, or if a signal was caught.
    fn next_chunk(&self) -> io::Result<Chunk> {
        loop {
            match self.chunks.recv_timeout(PATIENCE) {
                Ok(chunk) => return Ok(chunk),
                Err(RecvTimeoutError::Timeout) if !interrupt::is_requested() => {}
                Err(RecvTimeoutError::Timeout) => return Err(interrupt::stopped()),
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the decoder failed")),
            }
        }
    }

    /// Receives the next chunk. Returns false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if self.is_ended {
            return Ok(false);
        }
        self.is_ended = true;
        let chunk = self.next_chunk()?;
        self.unpacked += to_u64(chunk.bytes.len());
        self.read = chunk.read;
        if self.compression.is_some() {
            self.limits.check(self.read, self.required())?;
        }
        self.is_ended = chunk.is_last;
        (self.current, self.failure) = (Cursor::new(chunk.bytes), chunk.failure);
        Ok(true)
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = self.current.read(buf)?;
            if len > 0 || buf.is_empty() || !self.advance()? {
                return Ok(len);
            }
        }
    }
}
