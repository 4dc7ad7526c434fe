//! Several writes that are open at the same time, on volumes that `fsck.fat` checks afterwards.

mod common;

use std::sync::Arc;

use common::{FORMAT, read};
use obento_base::FileKind;
use obento_block::MemDevice;
use obento_driver::{FileSystem, LayoutLock, Span, TimeChange};
use obento_testkit::changes::create;
use obento_testkit::fault::{Fault, FaultDevice, FaultKind, Lasting, Request};
use obento_testkit::open_writes::writes_that_are_open_together_keep_their_blocks;

/// The seeds of one shape.
const SEEDS: std::ops::Range<u64> = 1..25;
/// The contents of free clusters.
const STALE: u8 = 0xee;

#[test]
fn open_writes_that_end_in_any_order_keep_their_blocks() {
    for shape in ["fat12", "fat12-4k", "fat16", "fat32"] {
        for seed in SEEDS {
            let Some(volume) = FORMAT.to_change(shape) else { return };
            writes_that_are_open_together_keep_their_blocks(&*volume, seed, 150, seed % 2 == 0);
        }
    }
}

/// Begins two writes, ends the second one and abandons the first one. Every call may fail. Returns the file.
fn end_the_second_write(fs: &dyn FileSystem) -> Option<obento_base::Ino> {
    let ino = create(fs, fs.root(), "file", FileKind::Regular).ok()?;
    let (lock, writable) = (LayoutLock::new(), fs.writable()?);
    let layout = lock.shared();
    let first = writable.begin_write(&layout, ino, 0..4096).ok()?;
    let second = writable.begin_write(&layout, ino, 4096..8192).ok()?;
    let Span::Mapped(at) = second.extent().span else { panic!("{second:?}") };
    if fs.device()?.write_at(at, &[7; 4096]).is_ok() {
        let _ = writable.end_write(second, TimeChange::Now);
    }
    drop(first);
    let _ = writable.sync();
    Some(ino)
}

#[test]
fn no_failed_write_shows_the_old_contents_of_clusters() {
    let folder = tempfile::tempdir().unwrap();
    let Some(image) = (FORMAT.make)("fat12", folder.path()) else { return };
    let mut bytes = std::fs::read(image).unwrap();
    // All sectors from here on belong to free clusters.
    bytes[128 << 10..].fill(STALE);
    for (nth, lasting) in (0..).flat_map(|nth| [(nth, Lasting::Once), (nth, Lasting::ForGood)]) {
        let fault = Fault { request: Request::Write, nth, lasting, failure: FaultKind::Io };
        let device = Arc::new(FaultDevice::new(MemDevice::new(bytes.clone()), Some(fault)));
        let fs = FORMAT.open_to_write(device.clone());
        // Other clusters than the first ones.
        let room = create(&*fs, fs.root(), "room", FileKind::Regular);
        if let Ok(room) = room {
            let _ = fs.writable().unwrap().truncate(&LayoutLock::new().exclusive(), room, 200 << 10);
        }
        if let Some(ino) = end_the_second_write(&*fs) {
            // The clusters that were added are zeros, or the volume is read-only.
            let size = fs.getattr(ino).unwrap().size + (64 << 10);
            let layout = LayoutLock::new();
            let _ = fs.writable().map(|writable| writable.truncate(&layout.exclusive(), ino, size));
            let size = fs.getattr(ino).unwrap().size;
            let found = read(&*fs, ino, size).unwrap();
            let old = found.iter().position(|&byte| byte == STALE);
            assert_eq!(old, None, "write {nth} of the device fails, {lasting:?}");
        }
        if device.hits() == 0 {
            assert!(nth > 3, "writes of the device fail");
            return;
        }
    }
}
