//! Decodes in one thread while another thread writes the decoded bytes.

use std::io::{self, BufReader, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;

use super::Compression;
use super::decode::{Decoder, FramePlace};
use super::frames;
use super::scratch::{CHUNK, fill};
use crate::HostError;

/// Bytes read from the compressed image at once.
const READ_AHEAD: usize = 128 << 10;
/// The number of chunks in use, which hides short delays of either thread.
const CHUNKS: usize = 4;

/// Decoded bytes.
pub(super) struct Chunk {
    buffer: Vec<u8>,
    len: usize,
    /// Compressed bytes read so far.
    pub read: u64,
    /// The error after these bytes.
    pub failure: Option<io::Error>,
}

impl Chunk {
    /// Returns the chunk of all of `buffer`.
    pub fn new(buffer: Vec<u8>, read: u64, failure: Option<io::Error>) -> Self {
        Self { len: buffer.len(), buffer, read, failure }
    }

    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

/// Hands the decoded bytes of `device` to `take`, in order. Returns the error of decoding, if any. Fails if
/// `take` fails.
pub(super) fn run(
    device: &dyn BlockDevice,
    compression: Compression,
    memory: u64,
    mut take: impl FnMut(&Chunk) -> Result<(), HostError>,
) -> Result<Option<io::Error>, HostError> {
    let mut start = 0;
    if compression == Compression::Zstd {
        let frames = frames::run(device, memory, &mut take)?;
        if frames.failure.is_some() || frames.end == device.len() {
            return Ok(frames.failure);
        }
        start = frames.end;
    }
    std::thread::scope(|scope| {
        let (full, decoded) = sync_channel(CHUNKS);
        let (empty, buffers) = channel();
        for _ in 0..CHUNKS {
            // The receiver exists in this function.
            let _ = empty.send(vec![0; CHUNK]);
        }
        let name = format!("{} decoder", compression.name());
        let started = std::thread::Builder::new()
            .name(name)
            .spawn_scoped(scope, move || decode(device, start, (compression, memory), &buffers, &full));
        let decoder =
            started.map_err(|error| HostError::io("start a thread to decode", "".as_ref(), &error))?;
        let result = receive(&decoded, &empty, &mut take);
        // Without the channels, the decoder ends at its next step.
        drop((decoded, empty));
        match (decoder.join(), result) {
            (Ok(()), result) => result,
            // A panic of a decoder affects the rest of the image, and not the program.
            (Err(_), result) => result.map(|_| Some(io::Error::other("the decoder failed"))),
        }
    })
}

fn receive(
    decoded: &Receiver<Chunk>,
    empty: &Sender<Vec<u8>>,
    take: &mut impl FnMut(&Chunk) -> Result<(), HostError>,
) -> Result<Option<io::Error>, HostError> {
    for chunk in decoded {
        take(&chunk)?;
        if chunk.failure.is_some() {
            return Ok(chunk.failure);
        }
        // At the end of the stream, the decoder no longer receives buffers.
        let _ = empty.send(chunk.buffer);
    }
    Ok(None)
}

/// Fills buffers with the data from `start` on until the stream ends or fails, or the receiver is dropped.
fn decode(
    device: &dyn BlockDevice,
    start: u64,
    (compression, memory): (Compression, u64),
    buffers: &Receiver<Vec<u8>>,
    full: &SyncSender<Chunk>,
) {
    let input =
        BufReader::with_capacity(READ_AHEAD, DeviceReader { device, position: start, end: device.len() });
    let place = if start == 0 { FramePlace::First } else { FramePlace::Later };
    let mut decoder = Decoder::new(compression, input, place, memory);
    for mut buffer in buffers {
        let (len, failure) = fill(&mut decoder, &mut buffer);
        let read = decoder.input().map_or(0, |input| input.get_ref().position);
        let last = failure.is_some() || len < buffer.len();
        if full.send(Chunk { buffer, len, read, failure }).is_err() || last {
            return;
        }
    }
}

/// Fills `buffer` with the first bytes of the stream on `device`. Returns how many could be decoded.
pub(super) fn start(
    device: &dyn BlockDevice,
    compression: Compression,
    memory: u64,
    buffer: &mut [u8],
) -> usize {
    let input = DeviceReader { device, position: 0, end: device.len() };
    let input = BufReader::with_capacity(READ_AHEAD, input);
    fill(&mut Decoder::new(compression, input, FramePlace::First, memory), buffer).0
}

/// A part of a device as a stream.
pub(super) struct DeviceReader<'a> {
    pub device: &'a dyn BlockDevice,
    pub position: u64,
    pub end: u64,
}

impl Read for DeviceReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = to_usize(self.end.saturating_sub(self.position)).min(buf.len());
        let part = buf.get_mut(..len).unwrap_or_default();
        self.device.read_at(self.position, part).map_err(io::Error::other)?;
        self.position += to_u64(len);
        Ok(len)
    }
}
