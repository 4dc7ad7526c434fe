//! A stream that may be compressed, decoded in a thread of its own while what was decoded is used.
//!
//! Invariant: at most [`CHUNKS`] chunks wait, whatever the stream unpacks to.
//!
//! Nobody waits for the thread: it may itself wait for more of a pipe, and ends with the next bytes of it that nobody wants.

use std::io::{self, BufReader, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::Compression;
use super::decode::Decoder;
use super::scratch::{CHUNK, fill};

/// Bytes read from the stream at once.
const READ_AHEAD: usize = 128 << 10;
const CHUNKS: usize = 4;

/// The bytes of a stream, decoded if it was compressed.
pub struct Stream {
    compression: Option<Compression>,
    chunks: Receiver<Chunk>,
    current: Cursor<Vec<u8>>,
    /// Told once what came before it was read.
    failure: Option<io::Error>,
}

type Chunk = (Vec<u8>, Option<io::Error>);

impl Stream {
    /// Looks at the first bytes of `input`, and reads on in a thread. Errors: those of the input; there is no thread.
    pub fn new(mut input: impl Read + Send + 'static) -> io::Result<Self> {
        let mut start = [0; Compression::MAGIC_LEN];
        let (len, failure) = fill(&mut input, &mut start);
        if let Some(error) = failure {
            return Err(error);
        }
        let start = start.get(..len).unwrap_or_default().to_vec();
        let compression = Compression::detect(&start);
        let input = BufReader::with_capacity(READ_AHEAD, Cursor::new(start).chain(input));
        let (sender, chunks) = sync_channel(CHUNKS);
        let read = move || match compression {
            Some(compression) => send(Decoder::new(compression, input), &sender),
            None => send(input, &sender),
        };
        std::thread::Builder::new().name("stream reader".into()).spawn(read)?;
        Ok(Self { compression, chunks, current: Cursor::default(), failure: None })
    }

    /// What it is compressed with.
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }
}

/// Sends all of `input`, until it ends or nobody wants more.
fn send(mut input: impl Read, sender: &SyncSender<Chunk>) {
    loop {
        let mut buffer = vec![0; CHUNK];
        let (len, failure) = fill(&mut input, &mut buffer);
        buffer.truncate(len);
        let is_last = len < CHUNK || failure.is_some();
        if sender.send((buffer, failure)).is_err() || is_last {
            return;
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = self.current.read(buf)?;
            if len > 0 || buf.is_empty() {
                return Ok(len);
            }
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            // The thread is done when it hangs up.
            let Ok((chunk, failure)) = self.chunks.recv() else { return Ok(0) };
            (self.current, self.failure) = (Cursor::new(chunk), failure);
        }
    }
}
