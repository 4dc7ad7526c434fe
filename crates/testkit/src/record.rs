//! A device that records all writes and flushes in order, for the crash explorer.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use obento_base::Result;
use obento_block::BlockDevice;

/// The contents of a discarded range, so that a reader of discarded data is detected.
const DISCARDED: u8 = 0xdd;

/// One event of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A write of whole sectors, because a disk writes no less. For a shorter write, the event contains the sectors
    /// after it. A discard is a write of arbitrary bytes.
    Write {
        /// Byte offset on the device.
        offset: u64,
        /// The contents of the sectors.
        bytes: Arc<[u8]>,
    },
    /// A flush: all earlier writes are on stable storage after it.
    Flush,
    /// A mark that the test sets to record its progress.
    Mark(usize),
}

impl Event {
    /// Returns the write of arbitrary bytes for a discard of `len` bytes at `offset`.
    pub(crate) fn discard(offset: u64, len: u64) -> Self {
        let len = usize::try_from(len).expect("a test's device is small");
        Self::Write { offset, bytes: vec![DISCARDED; len].into() }
    }

    /// Returns the discarded range, if the event is a discard: no other write has such contents.
    pub fn discarded(&self) -> Option<Range<u64>> {
        match self {
            Self::Write { offset, bytes } if bytes.iter().all(|byte| *byte == DISCARDED) => {
                Some(*offset..offset + bytes.len() as u64)
            }
            _ => None,
        }
    }
}

/// Passes all requests to `below` and records them.
///
/// Invariant: the order of the events is the order in which `below` received them, because one lock covers both.
#[derive(Debug)]
pub struct RecordDevice<D> {
    below: D,
    events: Mutex<Vec<Event>>,
}

impl<D: BlockDevice> RecordDevice<D> {
    /// Records from now on.
    pub fn new(below: D) -> Self {
        Self { below, events: Mutex::default() }
    }

    /// Records the progress of the test.
    pub fn mark(&self, mark: usize) {
        self.lock().push(Event::Mark(mark));
    }

    /// Returns the events so far, and starts a new recording.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.lock())
    }

    /// Returns the current sectors that the `len` bytes at `offset` touch.
    fn sectors(&self, offset: u64, len: usize) -> Result<Event> {
        let sector = u64::from(self.below.sector_size());
        let start = offset - offset % sector;
        let end = (offset + len as u64).next_multiple_of(sector).min(self.below.len());
        let mut bytes = vec![0; usize::try_from(end - start).expect("a test's device is small")];
        self.below.read_at(start, &mut bytes)?;
        Ok(Event::Write { offset: start, bytes: bytes.into() })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: BlockDevice> BlockDevice for RecordDevice<D> {
    obento_base::forward! { self.below;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let mut events = self.lock();
        self.below.write_at(offset, buf)?;
        if !buf.is_empty() {
            events.push(self.sectors(offset, buf.len())?);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut events = self.lock();
        self.below.flush()?;
        events.push(Event::Flush);
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).expect("a test's device is small");
        self.write_at(range.start, &vec![DISCARDED; len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    #[test]
    fn events_are_noted_in_order_by_whole_sectors_and_a_discard_spoils_the_bytes() {
        let device = RecordDevice::new(MemDevice::new(vec![0; 1024]));
        device.write_at(8, &[1, 2]).unwrap();
        device.flush().unwrap();
        device.mark(7);
        device.discard(512..514).unwrap();
        let write = |sector: u64, at: usize, bytes: &[u8]| {
            let mut whole = [0; 512];
            whole[at..at + bytes.len()].copy_from_slice(bytes);
            Event::Write { offset: sector * 512, bytes: whole.as_slice().into() }
        };
        let expected = [write(0, 8, &[1, 2]), Event::Flush, Event::Mark(7), write(1, 0, &[DISCARDED; 2])];
        assert_eq!(device.take_events(), expected);
        let mut buf = [0; 2];
        device.read_at(512, &mut buf).unwrap();
        assert_eq!(buf, [DISCARDED; 2]);
        assert!(device.write_at(1023, &[0, 0]).is_err());
        assert_eq!(device.take_events(), [], "a failed request has no effect");
    }
}
