//! A layer before a device has the device's duties: a layer that does not pass a request on loses a flush or a fast
//! path.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use obento_base::{DeviceError, Error, Result};
use obento_block::{
    Backing, BlockDevice, Cache, Handoff, MemDevice, Overlay, ReadRequest, Remap, Seal, Slice, Source,
};

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

/// A device that notes what it need not keep, and cannot read its second half.
#[derive(Default)]
struct Forgetful {
    forgotten: Mutex<Vec<(&'static str, Range<u64>)>>,
}

impl BlockDevice for Forgetful {
    fn len(&self) -> u64 {
        LEN
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset + buf.len() as u64 > LEN / 2 {
            return Err(DeviceError::Read { offset, len: 0, errno: 5 }.into());
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.forgotten.lock().unwrap().push(("discard", range));
        Ok(())
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.forgotten.lock().unwrap().push(("punch", range));
        Ok(true)
    }
}

/// Whether the range was refused as past the end.
fn is_outside<T>(done: Result<T>) -> bool {
    matches!(done, Err(Error::Device(DeviceError::OutOfBounds { .. })))
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
fn a_slice_behaves_like_its_device_from_its_start_on() {
    let below = Arc::new(Unusual::default());
    let slice = Slice::new(below.clone(), 4096..12288).unwrap();
    assert_eq!((slice.len(), slice.sector_size(), slice.is_read_only()), (8192, 4096, true));
    assert!(!Slice::new(MemDevice::new(vec![0; 9]), 3..6).unwrap().is_read_only());
    assert_eq!((backing(&slice, 5..9), backing(&slice, 5..9000)), (Some((4101, 4)), None));
    slice.flush().unwrap();
    assert_eq!(below.flushes.load(Ordering::Relaxed), 1);
}

#[test]
fn an_overlay_reports_the_backing_of_the_device_below_until_the_first_change() {
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
fn discards_are_passed_on_at_their_place_in_the_device_below() {
    let below = Arc::new(Forgetful::default());
    let shared: Arc<dyn BlockDevice> = below.clone();
    shared.discard(1..2).unwrap();
    assert!(shared.punch(3..4).unwrap());
    let slice = Slice::new(shared, 4096..12288).unwrap();
    slice.discard(10..20).unwrap();
    assert!(slice.punch(0..8192).unwrap());
    assert!(is_outside(slice.discard(8000..8193)) && is_outside(slice.punch(8192..8193)));
    let reported = [("discard", 1..2), ("punch", 3..4), ("discard", 4106..4116), ("punch", 4096..12288)];
    assert_eq!(*below.forgotten.lock().unwrap(), reported);
}

#[test]
fn a_device_without_discard_checks_the_range_first() {
    let device = MemDevice::new(vec![1; 100]);
    assert_eq!((device.discard(0..100), device.punch(0..100)), (Ok(()), Ok(false)));
    assert!(is_outside(device.discard(0..101)) && is_outside(device.punch(0..101)));
    let refused = MemDevice::read_only(vec![1; 100]).punch(0..1);
    assert_eq!(refused, Err(Error::Device(DeviceError::ReadOnly)));
    let mut byte = [0];
    device.read_at(99, &mut byte).unwrap();
    assert_eq!((byte, device.flush()), ([1], Ok(())));
}

#[test]
fn displaced_blocks_are_read_from_elsewhere_and_nothing_is_written() {
    let index = BTreeMap::from([(2, Source { block: 9, first: Some([7; 4]) })]);
    let view = Remap::new(Unusual::default(), 4096, index);
    assert_eq!((view.len(), view.sector_size(), view.is_read_only()), (LEN, 4096, true));
    assert_eq!(view.write_at(0, &[1]), Err(Error::Device(DeviceError::ReadOnly)));
    let mut bytes = [0; 4098];
    view.read_at(8190, &mut bytes).unwrap();
    assert_eq!((bytes[0], &bytes[2..7], bytes[4097]), (1, &[7, 7, 7, 7, 9][..], 9));
    assert_eq!((view.read_at(LEN, &mut []), view.flush()), (Ok(()), Ok(())));
    // Of what lies as it is below, up to the first block that does not.
    assert_eq!((backing(&view, 100..LEN), backing(&view, 8192..8193)), (Some((100, 8092)), None));
    assert_eq!(backing(&view, 3 * 4096..LEN), Some((3 * 4096, LEN - 3 * 4096)));
}

#[test]
fn an_overlay_reports_the_ranges_that_may_differ() {
    let overlay = Overlay::new(Unusual::default());
    overlay.write_at(40_000, &[1]).unwrap();
    let changed = overlay.changed();
    assert!(changed.len() == 1 && changed[0].contains(&40_000), "{changed:?}");
    assert_eq!((overlay.changed_len(), overlay.flush()), (changed[0].end - changed[0].start, Ok(())));
}

#[test]
fn a_block_whose_neighbours_cannot_be_read_is_read_alone() {
    let cache = Cache::new(Arc::new(Forgetful::default()), 4096, 1 << 20);
    assert_eq!((cache.block_size(), cache.device().len()), (4096, LEN));
    let block = cache.get_ahead(7, 7..12).unwrap();
    assert_eq!(format!("{block:?}"), "Block(7, 4096 bytes)");
    assert!(cache.is_current(&block) && cache.peek(8).is_none() && cache.get_ahead(8, 8..9).is_err());
    assert_eq!(format!("{:?}", cache.edit(&block)), "Edit(7)");
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

#[test]
fn a_read_only_device_refuses_a_write_before_it_examines_the_range() {
    let len = 8192;
    let below = || MemDevice::read_only(vec![7; len]);
    let replayed = Remap::new(below(), 512, BTreeMap::new());
    let devices: [(&str, Box<dyn BlockDevice>); 7] = [
        ("memory", Box::new(below())),
        ("shared", Box::new(Arc::new(below()))),
        ("slice", Box::new(Slice::new(below(), 0..8192).unwrap())),
        ("slice of a slice", Box::new(Slice::new(Slice::new(below(), 0..8192).unwrap(), 0..4096).unwrap())),
        ("handoff that passes", Box::new(Handoff::passing(Arc::new(below())))),
        ("handoff that holds", Box::new(Handoff::holding(Arc::new(below())))),
        ("replayed", Box::new(replayed)),
    ];
    for (name, device) in devices {
        assert!(device.is_read_only(), "{name}");
        for (offset, len) in [(0, 1), (8191, 1), (8191, 2), (8192, 1), (u64::MAX, 1), (0, 9000)] {
            let refused = Err(Error::Device(DeviceError::ReadOnly));
            assert_eq!(device.write_at(offset, &vec![0; len]), refused, "{name}: {len} at {offset}");
            let end = offset.saturating_add(len as u64);
            assert_eq!(device.punch(offset..end).map(drop), refused, "{name}: {len} at {offset}");
        }
    }
}

#[test]
fn a_block_that_is_written_during_an_edit_is_unpinned_when_the_edit_ends() {
    let cache = Cache::new(Arc::new(MemDevice::new(vec![0; 8192])), 512, 0);
    let change = |mark| {
        let mut edit = cache.edit(&cache.get(3).unwrap());
        edit[0] = 0xa1;
        edit.publish(mark)
    };
    change(1);
    let edit = cache.edit(&cache.get(3).unwrap());
    cache.unpin(3, 1);
    assert_eq!(cache.pinned(), 1, "the edit needs the block");
    drop(edit);
    assert_eq!(cache.pinned(), 0, "the device has the version that the edit would have changed");
    change(1);
    let mut edit = cache.edit(&cache.get(3).unwrap());
    cache.unpin(3, 1);
    edit[0] = 0xa2;
    edit.publish(2);
    cache.unpin(3, 1);
    assert_eq!(cache.pinned(), 1, "the device lacks the newest version");
    cache.unpin(3, 2);
    assert_eq!(cache.pinned(), 0);
}
