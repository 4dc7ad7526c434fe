//! What stands before a device answers for it: a layer that keeps to itself what a device is asked loses a flush, or a fast way.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use obento_base::Result;
use obento_block::{Backing, BlockDevice, Cache, MemDevice, Overlay, ReadRequest, Seal, Slice};

const LEN: u64 = 64 << 10;

/// A device whose answers are no default's, and that counts its flushes.
#[derive(Default)]
struct Unusual {
    flushes: AtomicU32,
}

impl BlockDevice for Unusual {
    fn len(&self) -> u64 {
        LEN
    }

    fn sector_size(&self) -> u32 {
        4096
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(u8::try_from(offset / 4096).unwrap());
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        Some(Backing { object: Arc::new(()), offset: range.start, len: range.end - range.start })
    }
}

/// Where the bytes of `range` are, and how many.
fn backing(device: &dyn BlockDevice, range: Range<u64>) -> Option<(u64, u64)> {
    device.backing(range).map(|backing| (backing.offset, backing.len))
}

#[test]
fn a_shared_device_answers_as_itself() {
    let below = Arc::new(Unusual::default());
    let shared: &dyn BlockDevice = &Arc::clone(&below);
    assert_eq!((shared.len(), shared.sector_size(), shared.is_read_only()), (LEN, 4096, true));
    assert_eq!(backing(shared, 5..9), Some((5, 4)));
    shared.flush().unwrap();
    assert_eq!(below.flushes.load(Ordering::Relaxed), 1);
}

#[test]
fn a_slice_answers_as_what_it_is_of_from_where_it_begins() {
    let below = Arc::new(Unusual::default());
    let slice = Slice::new(below.clone(), 4096..12288).unwrap();
    assert_eq!((slice.len(), slice.sector_size(), slice.is_read_only()), (8192, 4096, true));
    assert!(!Slice::new(MemDevice::new(vec![0; 9]), 3..6).unwrap().is_read_only());
    assert_eq!((backing(&slice, 5..9), backing(&slice, 5..9000)), (Some((4101, 4)), None));
    slice.flush().unwrap();
    assert_eq!(below.flushes.load(Ordering::Relaxed), 1);
}

#[test]
fn an_overlay_lies_on_what_is_below_up_to_the_first_change() {
    let overlay = Overlay::new(Unusual::default());
    assert_eq!((overlay.sector_size(), overlay.is_read_only()), (4096, false));
    assert_eq!(backing(&overlay, 100..LEN), Some((100, LEN - 100)));
    overlay.write_at(40_000, &[1]).unwrap();
    let (at, len) = backing(&overlay, 100..LEN).unwrap();
    assert!(at == 100 && len <= 40_000 - 100, "{len}");
    assert_eq!(backing(&overlay, 40_000..40_001), None);
}

#[test]
fn many_reads_are_each_done() {
    let (mut first, mut second) = ([9; 3], [9; 5]);
    let mut requests =
        [ReadRequest { offset: 4096, buf: &mut first }, ReadRequest { offset: 3 * 4096, buf: &mut second }];
    Unusual::default().read_many(&mut requests).unwrap();
    assert_eq!((first, second), ([1; 3], [3; 5]));
    assert!(MemDevice::new(Vec::new()).is_empty() && !Unusual::default().is_empty());
}

#[test]
fn a_device_that_names_no_object_has_its_bytes_read() {
    assert!(MemDevice::new(vec![0; 9]).backing(0..9).is_none());
}

/// What is owed to a block is done once, before it is written.
#[test]
fn a_block_is_sealed_by_the_mark_that_changed_it_and_by_no_other() {
    fn apply(bytes: &mut [u8], seed: u32) {
        bytes[0] = u8::try_from(seed).unwrap();
        bytes[1] += 1;
    }
    let cache = Cache::new(Arc::new(MemDevice::new(vec![0; 4096])), 512, 1 << 20);
    let mut edit = cache.edit(&cache.get(3).unwrap());
    assert_eq!(edit.number(), 3);
    edit.seal_later(Seal { apply, seed: 7 });
    edit.publish(1);
    assert!(cache.seal(3, 2).is_none(), "another's");
    for _ in 0..2 {
        let sealed = cache.seal(3, 1).unwrap();
        assert_eq!((sealed[0], sealed[1], sealed.is_verified()), (7, 1, true));
    }
}
