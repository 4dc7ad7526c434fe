//! zstd frames that several threads decode at the same time.
//!
//! A file can consist of many independent frames, such as those of `obento convert` and pzstd(1). The headers of blocks
//! contain lengths, so that the end of a frame is found without decoding it.
//! Invariant: only frames of at most [`FRAME_MAX`] bytes are decoded here, so that the memory of a thread has a limit. This
//! module ends before the first other data, and the caller decodes the rest in order.
//! Locking: `Scanner` and `Turn` have one lock each, which are never held together.
//! Source: RFC 8878, sections 3.1.1 and 3.1.2.

use std::io::{self, BufReader, Read};
use std::sync::mpsc::{SyncSender, sync_channel};

use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;
use parking_lot::{Condvar, Mutex};

use super::Compression;
use super::decode::{BLOCK, Decoder, FramePlace};
use super::pipeline::{Chunk, DeviceReader};
use crate::HostError;
use crate::guard::guard;

/// The maximum size of a frame, in bytes. The frames of pzstd(1) have at most 8 MiB at its default level.
const FRAME_MAX: u64 = 16 << 20;
/// The number of bytes of frames that a thread takes at once.
const PART: u64 = 1 << 20;
/// The maximum number of threads.
const THREADS: usize = 8;

const FRAME: u32 = 0xfd2f_b528;
const SKIPPABLE: u32 = 0x184d_2a50;
/// The longest header of a frame.
const HEADER_MAX: usize = 18;

/// The result of decoding frames.
pub(super) struct DecodedFrames {
    /// The offset of the first data that was not decoded.
    pub end: u64,
    /// The error in the last frame.
    pub failure: Option<io::Error>,
}

/// Decodes the frames at the start of `device` and passes their bytes to `take`, in order. `memory` limits the window of
/// each thread. Decodes nothing unless several threads have work. Fails if `take` fails.
pub(super) fn run(
    device: &dyn BlockDevice,
    memory: u64,
    take: &mut impl FnMut(&Chunk) -> Result<(), HostError>,
) -> Result<DecodedFrames, HostError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let none = DecodedFrames { end: 0, failure: None };
    let scanner = Scanner { device, position: 0, parts: 0 };
    let mut ahead = scanner.clone();
    if threads < 2 || ahead.next().is_none() || ahead.next().is_none() {
        return Ok(none);
    }
    let scanner = Mutex::new(scanner);
    let turn = Turn::default();
    std::thread::scope(|scope| {
        let (sender, chunks) = sync_channel(threads);
        let spawn = |_: &usize| {
            let (scanner, turn, sender) = (&scanner, &turn, sender.clone());
            let work = move || work(scanner, turn, &sender, memory);
            std::thread::Builder::new().name("zstd decoder".into()).spawn_scoped(scope, work).is_ok()
        };
        if (0..threads).filter(spawn).count() == 0 {
            return Ok(none);
        }
        drop(sender);
        let mut failure = None;
        for chunk in chunks {
            take(&chunk)?;
            failure = chunk.failure;
            if failure.is_some() {
                break;
            }
        }
        Ok(DecodedFrames { end: scanner.lock().position, failure })
    })
}

/// Decodes parts until none is left or the receiver is dropped.
fn work(scanner: &Mutex<Scanner<'_>>, turn: &Turn, sender: &SyncSender<Chunk>, memory: u64) {
    loop {
        let Some(part) = scanner.lock().next() else { return };
        // Without the chunk of this part, the other threads would wait for its turn for ever.
        let chunk = guard(|| Ok(part.decode(memory)))
            .unwrap_or_else(|error| Chunk::new(Vec::new(), part.end, Some(error)));
        if !turn.take(part.number, || sender.send(chunk).is_ok()) {
            return;
        }
    }
}

/// Lets threads send parts in the order of their numbers.
#[derive(Default)]
struct Turn {
    next: Mutex<NextPart>,
    moved: Condvar,
}

#[derive(Default)]
struct NextPart {
    number: u64,
    is_stopped: bool,
}

impl Turn {
    /// Waits for the turn of the part `number`, and then calls `send`. Returns whether the work goes on.
    fn take(&self, number: u64, send: impl FnOnce() -> bool) -> bool {
        let mut next = self.next.lock();
        while next.number != number && !next.is_stopped {
            self.moved.wait(&mut next);
        }
        next.is_stopped = next.is_stopped || !send();
        next.number += 1;
        self.moved.notify_all();
        !next.is_stopped
    }
}

/// Consecutive frames that one thread decodes.
struct Part<'a> {
    device: &'a dyn BlockDevice,
    number: u64,
    start: u64,
    end: u64,
    /// The maximum number of bytes that the frames contain.
    most: u64,
}

impl Part<'_> {
    fn decode(&self, memory: u64) -> Chunk {
        let input = DeviceReader { device: self.device, position: self.start, end: self.end };
        let mut decoder = Decoder::new(
            Compression::Zstd,
            BufReader::with_capacity(BLOCK, input),
            FramePlace::First,
            memory,
        );
        let mut bytes = Vec::new();
        let failure = match bytes.try_reserve_exact(to_usize(self.most)) {
            Ok(()) => decoder.by_ref().take(self.most.saturating_add(1)).read_to_end(&mut bytes).err(),
            Err(_) => Some(io::ErrorKind::OutOfMemory.into()),
        };
        Chunk::new(bytes, self.end, failure)
    }
}

/// Finds parts, one after the other.
#[derive(Clone)]
struct Scanner<'a> {
    device: &'a dyn BlockDevice,
    position: u64,
    parts: u64,
}

impl<'a> Scanner<'a> {
    /// Returns the next part, or `None` if it cannot be decoded here.
    fn next(&mut self) -> Option<Part<'a>> {
        let (number, start) = (self.parts, self.position);
        let (mut end, mut most) = (start, 0);
        while most < PART {
            let Some(frame) = frame(self.device, end) else { break };
            if most > 0 && most + frame.most > FRAME_MAX {
                break;
            }
            (end, most) = (frame.end, most + frame.most);
        }
        if most == 0 {
            return None;
        }
        (self.position, self.parts) = (end, number + 1);
        Some(Part { device: self.device, number, start, end, most })
    }
}

/// A frame, or a skippable frame.
struct Frame {
    end: u64,
    /// The maximum number of bytes that the frame contains.
    most: u64,
}

/// Finds the end of the frame at `at`. Returns `None` if it is long, damaged or truncated.
fn frame(device: &dyn BlockDevice, at: u64) -> Option<Frame> {
    let mut bytes = [0; HEADER_MAX];
    let there = to_usize(device.len().saturating_sub(at)).min(bytes.len());
    device.read_at(at, bytes.get_mut(..there)?).ok()?;
    let header = bytes.get(..there)?;
    let word = |at: usize| header.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
    let (end, most) = match word(0)? {
        FRAME => blocks(device, at, *header.get(4)?)?,
        magic if magic & !15 == SKIPPABLE => (at.checked_add(8)?.checked_add(word(4)?.into())?, 0),
        _ => return None,
    };
    (end <= device.len()).then_some(Frame { end, most })
}

/// Returns the end of the frame at `at`, and the maximum number of bytes that it contains. `descriptor` is
/// `Frame_Header_Descriptor`.
fn blocks(device: &dyn BlockDevice, at: u64, descriptor: u8) -> Option<(u64, u64)> {
    let is_single = descriptor & 0x20 != 0;
    let content = match descriptor >> 6 {
        0 => u64::from(is_single),
        flag => 1 << flag,
    };
    let dictionary = [0, 1, 2, 4].get(usize::from(descriptor & 3))?;
    let mut at = at.checked_add(5 + u64::from(!is_single) + dictionary + content)?;
    let mut most = 0;
    loop {
        let mut header = [0; 4];
        device.read_at(at, header.first_chunk_mut::<3>()?).ok()?;
        let header = u32::from_le_bytes(header);
        let size = u64::from(header >> 3);
        // Raw_Block, RLE_Block and Compressed_Block.
        let (stored, contained) = match header >> 1 & 3 {
            0 => (size, size),
            1 => (1, size),
            2 => (size, to_u64(BLOCK)),
            _ => return None,
        };
        at = at.checked_add(3 + stored)?;
        most += contained;
        if most > FRAME_MAX {
            return None;
        }
        if header & 1 != 0 {
            let checksum = if descriptor & 4 != 0 { 4 } else { 0 };
            return Some((at.checked_add(checksum)?, most));
        }
    }
}
