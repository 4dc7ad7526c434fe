//! A device that reads ahead of short reads in order.
//!
//! A change of the size reads tables of inodes, directories, the blocks that it changed, and the log, block by block.
//! Invariant: the window contains the bytes of the device below, because a write empties a window that it overlaps, after
//! the device has the new bytes. Nothing else writes to the device.
//! Locking: one lock for the window, which is held while the window is filled.
#![allow(clippy::arithmetic_side_effects, reason = "`check_range` limits the ends of ranges")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_block::{Backing, BlockDevice, check_range};
use obento_env::sync::Mutex;

/// Number of bytes that are read at once.
const WINDOW: u64 = 64 << 10;
/// Longer reads are passed on.
const LONGEST: usize = 16 << 10;

/// Passes reads and writes to another device, but fills a window if a short read begins where the previous one ended.
/// Several reads at once are separate reads.
pub(super) struct ReadAhead<D> {
    below: D,
    window: Mutex<Window>,
}

/// Bytes that were read.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
    /// The end of the last short read.
    next: u64,
}

impl<D: BlockDevice> ReadAhead<D> {
    pub fn new(below: D) -> Self {
        Self { below, window: Mutex::new(Window::default()) }
    }

    /// Empties the window if it overlaps a range whose bytes changed.
    fn forget(&self, range: &Range<u64>) {
        let mut window = self.window.lock();
        let end = window.start + to_u64(window.bytes.len());
        if range.start < end && window.start < range.end {
            window.bytes.clear();
        }
    }
}

impl Window {
    /// Copies bytes from byte `offset` of the device on, if all of them are in the window.
    fn copy(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(inside) = offset.checked_sub(self.start).map(to_usize) else { return false };
        let Some(bytes) = self.bytes.get(inside..).and_then(|bytes| bytes.get(..buf.len())) else {
            return false;
        };
        buf.copy_from_slice(bytes);
        true
    }

    /// Reads the bytes from `offset` on. The window is empty if the device fails, perhaps at a byte that was not requested.
    fn fill(&mut self, below: &dyn BlockDevice, offset: u64) {
        let len = to_usize(below.len().saturating_sub(offset).min(WINDOW));
        self.bytes.clear();
        if self.bytes.try_reserve_exact(len).is_err() {
            return;
        }
        self.bytes.resize(len, 0);
        self.start = offset;
        if below.read_at(offset, &mut self.bytes).is_err() {
            self.bytes.clear();
        }
    }
}

impl<D: BlockDevice> BlockDevice for ReadAhead<D> {
    obento_base::forward! { self.below;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn flush(&self) -> Result<()>;
        fn known_zeros(&self, range: Range<u64>) -> u64;
        fn backing(&self, range: Range<u64>) -> Option<Backing>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self.below.len(), offset, to_u64(buf.len()))?;
        if buf.len() > LONGEST {
            return self.below.read_at(offset, buf);
        }
        let mut window = self.window.lock();
        let end = offset + to_u64(buf.len());
        let is_next = core::mem::replace(&mut window.next, end) == offset;
        if window.copy(offset, buf) {
            return Ok(());
        }
        if is_next {
            window.fill(&self.below, offset);
            if window.copy(offset, buf) {
                return Ok(());
            }
        }
        drop(window);
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let written = self.below.write_at(offset, buf);
        self.forget(&(offset..offset.saturating_add(to_u64(buf.len()))));
        written
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let discarded = self.below.discard(range.clone());
        self.forget(&range);
        discarded
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        let punched = self.below.punch(range.clone());
        self.forget(&range);
        punched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};
    use obento_base::DeviceError;
    use obento_block::MemDevice;
    use proptest::prelude::*;

    /// A device that counts reads, and that cannot read the bytes from `bad` on.
    struct Medium {
        memory: MemDevice,
        bad: u64,
        reads: AtomicU32,
    }

    impl Medium {
        fn new(bad: u64) -> Self {
            let bytes = (0..=255).cycle().take(782).flat_map(|byte: u8| [byte; 512]).collect::<Vec<u8>>();
            Self { memory: MemDevice::new(bytes), bad, reads: AtomicU32::new(0) }
        }
    }

    impl BlockDevice for Medium {
        obento_base::forward! { self.memory;
            fn len(&self) -> u64;
            fn is_read_only(&self) -> bool;
            fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
            fn flush(&self) -> Result<()>;
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            if offset + to_u64(buf.len()) > self.bad {
                return Err(DeviceError::Read { offset, len: to_u64(buf.len()), errno: 5 }.into());
            }
            self.memory.read_at(offset, buf)
        }
    }

    #[test]
    fn short_reads_in_order_become_long_ones() {
        let device = ReadAhead::new(Medium::new(u64::MAX));
        let (mut buf, mut expected) = ([0; 4096], [0; 4096]);
        for block in 0..64 {
            device.read_at(block * 4096, &mut buf).unwrap();
            device.below.memory.read_at(block * 4096, &mut expected).unwrap();
            assert_eq!(buf, expected, "{block}");
        }
        assert_eq!(device.below.reads.load(Ordering::Relaxed), 4);
        // Reads in another order are passed on as they are.
        for block in (0..64).rev() {
            device.read_at(block * 4096, &mut buf[..1]).unwrap();
        }
        assert!(device.below.reads.load(Ordering::Relaxed) > 50);
    }

    #[test]
    fn a_bad_block_that_was_not_requested_fails_no_read() {
        let device = ReadAhead::new(Medium::new(3 * 4096));
        let mut buf = [0; 4096];
        let reads: Vec<bool> = (0..5).map(|block| device.read_at(block * 4096, &mut buf).is_ok()).collect();
        assert_eq!(reads, [true, true, true, false, false]);
    }

    proptest! {
        #[test]
        fn reads_return_what_was_written(
            steps in prop::collection::vec((0_u64..24, 0_usize..20_000, any::<Option<u8>>()), 1..60)
        ) {
            let device = ReadAhead::new(Medium::new(u64::MAX));
            let model = MemDevice::new(device.below.memory.snapshot());
            for (place, len, write) in steps {
                let offset = place * 16_384;
                match write {
                    Some(byte) => {
                        let bytes = alloc::vec![byte; len];
                        prop_assert_eq!(device.write_at(offset, &bytes), model.write_at(offset, &bytes));
                    }
                    None => {
                        // In pieces, so that the next one follows.
                        let (mut found, mut expected) = (alloc::vec![0; len], alloc::vec![0; len]);
                        for (at, (found, expected)) in
                            found.chunks_mut(4096).zip(expected.chunks_mut(4096)).enumerate()
                        {
                            let at = offset + to_u64(at) * 4096;
                            prop_assert_eq!(device.read_at(at, found), model.read_at(at, expected));
                        }
                        prop_assert_eq!(found, expected);
                    }
                }
            }
        }
    }
}
