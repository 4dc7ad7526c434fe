//! Writes behind: written bytes are copied into rows of memory, and a thread writes the rows to the device
//! below.
//!
//! Only flushed bytes are on stable storage, so other bytes may wait. A read, punch or copy of waiting bytes
//! waits until they are written.
//! Invariant: at most [`ROWS`] rows of [`ROW`] bytes wait.
//! Invariant: rows are written in the order in which they were filled, so that the later of two writes to one
//! place counts.
//! Invariant: an error of the thread is returned by later calls. Nothing is written after it, and each flush
//! returns it.
//! Locking: a lock protects the rows. The thread does not hold it while it writes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use obento_base::wire::to_u64;
use obento_base::{DeviceError, Error, Result};
use obento_block::{Backing, BlockDevice, ReadRequest, check_range};

/// Bytes of a row: enough to hide the cost of handing it over, and few enough to stay in a processor cache.
const ROW: usize = 512 << 10;
/// The most rows that wait.
const ROWS: usize = 4;
/// The most ranges of a row, so that a search is cheap.
const PIECES: usize = 64;
/// Longer writes are passed to the device at once: copying them costs more than it saves.
const LONGEST: usize = ROW / 2;

/// A device with write-behind.
pub struct BehindDevice {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    below: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The row that is being filled.
    row: Row,
    /// Full rows. The thread writes the first one.
    waiting: VecDeque<Arc<Row>>,
    spare: Vec<Row>,
    error: Option<Error>,
    worker: Worker,
}

/// Whether a thread writes rows.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Worker {
    #[default]
    None,
    Runs,
    /// No thread could start: the caller that fills a row writes it.
    Refused,
    Ends,
}

/// Bytes and their positions.
#[derive(Default)]
struct Row {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

struct Piece {
    offset: u64,
    bytes: Range<usize>,
}

impl Row {
    fn has_room(&self, offset: u64, len: usize) -> bool {
        self.bytes.len() + len <= ROW && (self.pieces.len() < PIECES || self.goes_on(offset))
    }

    fn goes_on(&self, offset: u64) -> bool {
        self.pieces.last().is_some_and(|last| last.offset + to_u64(last.bytes.len()) == offset)
    }

    fn push(&mut self, offset: u64, bytes: &[u8]) {
        if self.bytes.capacity() < ROW {
            self.bytes.reserve_exact(ROW);
        }
        let (start, end) = (self.bytes.len(), self.bytes.len() + bytes.len());
        self.bytes.extend_from_slice(bytes);
        match self.pieces.last_mut().filter(|last| last.offset + to_u64(last.bytes.len()) == offset) {
            Some(last) => last.bytes.end = end,
            None => self.pieces.push(Piece { offset, bytes: start..end }),
        }
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.pieces
            .iter()
            .any(|piece| piece.offset < range.end && range.start < piece.offset + to_u64(piece.bytes.len()))
    }

    fn write(&self, below: &dyn BlockDevice) -> Result<()> {
        self.pieces.iter().try_for_each(|piece| {
            below.write_at(piece.offset, self.bytes.get(piece.bytes.clone()).unwrap_or_default())
        })
    }

    fn emptied(mut self) -> Self {
        self.bytes.clear();
        self.pieces.clear();
        self
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the first row, if there is one. Releases the lock meanwhile.
    fn write_front<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let Some(row) = state.waiting.front().cloned() else { return state };
        let has_failed = state.error.is_some();
        drop(state);
        // After an error, nothing is written, because earlier bytes may be missing.
        let written = if has_failed { Ok(()) } else { row.write(&*self.below) };
        let mut state = self.lock();
        state.waiting.pop_front();
        if let Some(row) = Arc::into_inner(row) {
            state.spare.push(row.emptied());
        }
        if let Err(error) = written {
            state.error.get_or_insert(error);
        }
        self.changed.notify_all();
        state
    }

    /// The loop of the thread.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            state = match state.waiting.is_empty() {
                true if state.worker == Worker::Ends => return,
                true => self.wait(state),
                false => self.write_front(state),
            };
        }
    }
}

impl BehindDevice {
    /// Writes to `below`, from another thread if possible.
    pub fn new(below: Arc<dyn BlockDevice>) -> Self {
        let shared = Shared { below, state: Mutex::default(), changed: Condvar::new() };
        Self { shared: Arc::new(shared), thread: Mutex::default() }
    }

    fn start(&self) -> Worker {
        let shared = self.shared.clone();
        match Builder::new().name("image-writer".into()).spawn(move || shared.work()) {
            Ok(thread) => {
                *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
                Worker::Runs
            }
            Err(_) => Worker::Refused,
        }
    }

    /// Hands over the row that is being filled.
    fn hand_over<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        if state.worker == Worker::None {
            state.worker = self.start();
        }
        if state.worker != Worker::Runs {
            self.write_row(&mut state);
            return state;
        }
        while state.waiting.len() >= ROWS {
            state = self.shared.wait(state);
        }
        let next = state.spare.pop().unwrap_or_default();
        let row = std::mem::replace(&mut state.row, next);
        state.waiting.push_back(Arc::new(row));
        self.shared.changed.notify_all();
        state
    }

    /// Writes the row that is being filled, if no row waits.
    fn write_row(&self, state: &mut State) {
        let row = std::mem::take(&mut state.row);
        let written = if state.error.is_some() { Ok(()) } else { row.write(&*self.shared.below) };
        state.row = row.emptied();
        if let Err(error) = written {
            state.error.get_or_insert(error);
        }
    }

    /// Writes all waiting bytes to the device below. Fails with the errors of any earlier write.
    fn settle(&self) -> Result<()> {
        let mut state = self.shared.lock();
        while !state.waiting.is_empty() {
            state = self.shared.wait(state);
        }
        self.write_row(&mut state);
        state.error.map_or(Ok(()), Err)
    }

    /// Writes all waiting bytes in `range`.
    fn settle_range(&self, range: &Range<u64>) -> Result<()> {
        let state = self.shared.lock();
        let waits = state.row.overlaps(range) || state.waiting.iter().any(|row| row.overlaps(range));
        drop(state);
        if waits { self.settle() } else { Ok(()) }
    }
}

impl Drop for BehindDevice {
    fn drop(&mut self) {
        // A caller that needs the error has flushed.
        let _ = self.settle();
        self.shared.lock().worker = Worker::Ends;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl BlockDevice for BehindDevice {
    obento_base::forward! { self.shared.below;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.settle_range(&(offset..offset.saturating_add(to_u64(buf.len()))))?;
        self.shared.below.read_at(offset, buf)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        for request in requests.iter() {
            let end = request.offset.saturating_add(to_u64(request.buf.len()));
            self.settle_range(&(request.offset..end))?;
        }
        self.shared.below.read_many(requests)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        if self.is_read_only() {
            return Err(DeviceError::ReadOnly.into());
        }
        check_range(self.len(), offset, to_u64(buf.len()))?;
        if buf.len() > LONGEST {
            self.settle_range(&(offset..offset.saturating_add(to_u64(buf.len()))))?;
            return self.shared.below.write_at(offset, buf);
        }
        let mut state = self.shared.lock();
        if !state.row.has_room(offset, buf.len()) {
            state = self.hand_over(state);
        }
        if let Some(error) = state.error {
            return Err(error);
        }
        state.row.push(offset, buf);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.settle()?;
        self.shared.below.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.settle_range(&range)?;
        self.shared.below.discard(range)
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.settle_range(&range)?;
        self.shared.below.punch(range)
    }

    fn known_zeros(&self, range: Range<u64>) -> u64 {
        match self.settle_range(&range) {
            Ok(()) => self.shared.below.known_zeros(range),
            Err(_) => 0,
        }
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        self.settle_range(&range).ok()?;
        self.shared.below.backing(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    /// A device that fails a write that covers `bad`.
    struct Bad(MemDevice, u64);

    impl BlockDevice for Bad {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn is_read_only(&self) -> bool {
            false
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
            let len = to_u64(buf.len());
            if (offset..offset + len).contains(&self.1) {
                return Err(DeviceError::Write { offset, len, errno: 5 }.into());
            }
            self.0.write_at(offset, buf)
        }
        fn flush(&self) -> Result<()> {
            self.0.flush()
        }
    }

    #[test]
    fn written_bytes_are_read_whether_they_wait_or_not() {
        let memory = Arc::new(MemDevice::new(vec![0; 8 << 20]));
        let device = BehindDevice::new(memory.clone());
        let mut expected = vec![0; 8 << 20];
        let mut seed = 1_u64;
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let len = [512, 4096, 30_000, 300_000][(seed >> 33) as usize % 4];
            let offset = (seed >> 35) as usize % (expected.len() - len);
            let byte = (seed >> 50) as u8;
            match seed >> 60 {
                0..=2 => {
                    let mut read = vec![0; len];
                    device.read_at(offset as u64, &mut read).unwrap();
                    assert!(read == expected[offset..offset + len], "{len} bytes at {offset}");
                }
                3 => device.flush().unwrap(),
                _ => {
                    expected[offset..offset + len].fill(byte);
                    device.write_at(offset as u64, &vec![byte; len]).unwrap();
                }
            }
        }
        device.flush().unwrap();
        assert!(memory.snapshot() == expected);
    }

    #[test]
    fn known_zeros_end_at_bytes_that_wait() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4 << 20).unwrap();
        let device = BehindDevice::new(Arc::new(crate::FileDevice::open_writable(file.path()).unwrap()));
        device.write_at(1 << 20, b"bytes").unwrap();
        let zeros = device.known_zeros(0..4 << 20);
        assert!(zeros > 0 && zeros <= 1 << 20, "{zeros}");
    }

    #[test]
    fn unflushed_bytes_are_written_when_the_device_is_dropped() {
        let memory = Arc::new(MemDevice::new(vec![0; 4096]));
        BehindDevice::new(memory.clone()).write_at(7, b"seven").unwrap();
        assert_eq!(memory.snapshot()[7..12], *b"seven");
    }

    #[test]
    fn writes_outside_and_on_devices_for_reading_are_refused_at_once() {
        let device = BehindDevice::new(Arc::new(MemDevice::new(vec![0; 4096])));
        let outside = DeviceError::OutOfBounds { offset: 4000, len: 200, device_len: 4096 };
        assert_eq!(device.write_at(4000, &[0; 200]), Err(outside.into()));
        let device = BehindDevice::new(Arc::new(MemDevice::read_only(vec![0; 4096])));
        assert_eq!(device.write_at(0, &[0]), Err(DeviceError::ReadOnly.into()));
    }

    #[test]
    fn a_failed_write_is_reported_by_every_flush_and_nothing_is_written_after_it() {
        let bad = Arc::new(Bad(MemDevice::new(vec![0; 8 << 20]), 100));
        let device = BehindDevice::new(bad.clone());
        device.write_at(0, &[1; 4096]).unwrap();
        let failed = Err(DeviceError::Write { offset: 0, len: 4096, errno: 5 }.into());
        assert_eq!((device.flush(), device.flush()), (failed, failed));
        assert_eq!(device.write_at(4 << 20, &[1; 4096]), failed);
        drop(device);
        assert!(bad.0.snapshot().iter().all(|&byte| byte == 0));
    }
}
