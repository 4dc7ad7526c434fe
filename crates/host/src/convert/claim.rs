//! The parts of a disk, in order: each thread takes the next one.

use std::sync::Arc;

use obento_block::BlockDevice;
use parking_lot::Mutex;

/// The length of parts that are known to consist of zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ZeroParts {
    /// As long as the zeros.
    Whole,
    /// The usual length, because each byte is processed.
    Usual,
}

/// A part of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DiskPart {
    /// The number of the part, in the order of the disk.
    pub number: u64,
    pub start: u64,
    pub len: u64,
    /// The part is known to consist of zeros. It may then be of any length.
    pub is_zero: bool,
}

/// The parts that no thread has taken.
pub(super) struct Claims<'a> {
    disk: &'a Arc<dyn BlockDevice>,
    chunk: u64,
    zero_parts: ZeroParts,
    next: Mutex<NextPart>,
}

/// The start of the next part.
#[derive(Default)]
struct NextPart {
    number: u64,
    start: u64,
    /// The end of the zeros that were found. They are searched for once, not for each of their parts.
    zeros_end: u64,
}

impl<'a> Claims<'a> {
    pub fn new(disk: &'a Arc<dyn BlockDevice>, chunk: u64, zero_parts: ZeroParts) -> Self {
        Self { disk, chunk, zero_parts, next: Mutex::default() }
    }

    /// Returns the next part: a chunk, or several chunks that are known to consist of zeros.
    pub fn next(&self) -> Option<DiskPart> {
        let mut next = self.next.lock();
        let (number, start) = (next.number, next.start);
        let left = self.disk.len().checked_sub(start).filter(|&left| left > 0)?;
        if next.zeros_end <= start {
            next.zeros_end = start + self.disk.known_zeros(start..self.disk.len()).min(left);
        }
        let zeros = next.zeros_end - start;
        let whole = if zeros == left { left } else { zeros - zeros % self.chunk };
        let is_zero = whole > 0;
        let is_limited = self.zero_parts == ZeroParts::Usual || !is_zero;
        let limit = if is_limited { self.chunk } else { u64::MAX };
        let len = if is_zero { whole } else { left }.min(limit);
        (next.number, next.start) = (number + 1, start + len);
        Some(DiskPart { number, start, len, is_zero })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use obento_block::MemDevice;

    #[test]
    fn parts_cover_the_disk_in_order_without_gaps() {
        let disk: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(vec![1; 1000]));
        let claims = Claims::new(&disk, 300, ZeroParts::Whole);
        let parts: Vec<_> = std::iter::from_fn(|| claims.next()).map(|part| (part.start, part.len)).collect();
        assert_eq!(parts, [(0, 300), (300, 300), (600, 300), (900, 100)]);
    }

    /// A disk of zeros that counts the searches for zeros.
    struct Zeros(u64, AtomicU64);

    impl BlockDevice for Zeros {
        fn len(&self) -> u64 {
            self.0
        }

        fn is_read_only(&self) -> bool {
            true
        }

        fn read_at(&self, _offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
            buf.fill(0);
            Ok(())
        }

        fn write_at(&self, _offset: u64, _buf: &[u8]) -> obento_base::Result<()> {
            Err(obento_base::DeviceError::ReadOnly.into())
        }

        fn flush(&self) -> obento_base::Result<()> {
            Ok(())
        }

        fn known_zeros(&self, range: std::ops::Range<u64>) -> u64 {
            self.1.fetch_add(1, Ordering::Relaxed);
            range.end - range.start
        }
    }

    #[test]
    fn zeros_are_searched_for_once_however_long_their_parts_are() {
        let zeros = Arc::new(Zeros(1000, AtomicU64::new(0)));
        let disk: Arc<dyn BlockDevice> = zeros.clone();
        for (zero_parts, count) in [(ZeroParts::Whole, 1), (ZeroParts::Usual, 4)] {
            let claims = Claims::new(&disk, 300, zero_parts);
            let parts: Vec<_> = std::iter::from_fn(|| claims.next()).collect();
            assert!(parts.len() == count && parts.iter().all(|part| part.is_zero), "{parts:?}");
            assert_eq!(parts.iter().map(|part| part.len).sum::<u64>(), 1000);
            assert_eq!(zeros.1.swap(0, Ordering::Relaxed), 1);
        }
    }
}
