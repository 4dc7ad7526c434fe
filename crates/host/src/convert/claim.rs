//! The parts of a disk, in order: each thread takes the next one.

use std::sync::Arc;

use obento_block::BlockDevice;
use obento_containers::write::Packing;
use parking_lot::Mutex;

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
    /// Whether zeros have to be passed in parts of the usual length, since they are compressed.
    is_zero_data: bool,
    next: Mutex<(u64, u64)>,
}

impl<'a> Claims<'a> {
    pub fn new(disk: &'a Arc<dyn BlockDevice>, chunk: u64, packing: Packing) -> Self {
        let is_zero_data = matches!(packing, Packing::Stream(_));
        Self { disk, chunk, is_zero_data, next: Mutex::new((0, 0)) }
    }

    /// Returns the next part: a chunk, or several chunks that are known to consist of zeros.
    pub fn next(&self) -> Option<DiskPart> {
        let mut next = self.next.lock();
        let (number, start) = *next;
        let left = self.disk.len().checked_sub(start).filter(|&left| left > 0)?;
        let zeros = self.disk.known_zeros(start..self.disk.len()).min(left);
        let whole = if zeros == left { left } else { zeros - zeros % self.chunk };
        let is_zero = whole > 0;
        let limit = if self.is_zero_data || !is_zero { self.chunk } else { u64::MAX };
        let len = if is_zero { whole } else { left }.min(limit);
        *next = (number + 1, start + len);
        Some(DiskPart { number, start, len, is_zero })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    #[test]
    fn parts_cover_the_disk_in_order_without_gaps() {
        let disk: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(vec![1; 1000]));
        let claims = Claims::new(&disk, 300, Packing::Stored);
        let parts: Vec<_> = std::iter::from_fn(|| claims.next()).map(|part| (part.start, part.len)).collect();
        assert_eq!(parts, [(0, 300), (300, 300), (600, 300), (900, 100)]);
    }
}
