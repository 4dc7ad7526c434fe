//! Journalled data is read from its place on the device only while the device has the newest version.

mod common;

use std::sync::Arc;

use common::volumes::{SMALL, e2fsck, open};
use obento_base::{DeviceNumber, FileKind, Ino, Mode, Name, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{DataMode, FileSystem, LayoutLock, NewNode, Span, TimeChange};
use obento_env::FixedClock;
use obento_testkit::mutants::Random;
use obento_testkit::oracle::{Oracle, require};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")];
const LEN: u64 = 200_000;
const STEPS: u64 = 400;

/// Reads the file from where the driver says, and counts the parts on the device and in the driver.
fn read(fs: &dyn FileSystem, device: &dyn BlockDevice, ino: Ino, parts: &mut [u32; 2]) -> Vec<u8> {
    let (lock, size) = (LayoutLock::new(), fs.getattr(ino).unwrap().size);
    let (layout, mut bytes, mut at) = (lock.shared(), vec![0; size as usize], 0);
    while at < size {
        let extent = fs.map_to_read(&layout, ino, at..size).unwrap();
        let part = &mut bytes[at as usize..(at + extent.len) as usize];
        match extent.span {
            Span::Hole | Span::Unwritten => {}
            Span::Mapped(place) => {
                parts[0] += 1;
                device.read_at(place, part).unwrap();
            }
            Span::Driver => {
                parts[1] += 1;
                assert_eq!(fs.read(&layout, ino, at, part), Ok(part.len()));
            }
        }
        at += extent.len;
    }
    bytes
}

/// Writes as Linux does, and sets the time with the data.
fn write(fs: &dyn FileSystem, ino: Ino, offset: u64, bytes: &[u8], when: Timestamp) {
    let (lock, writable) = (LayoutLock::new(), fs.writable().unwrap());
    let (layout, mut done) = (lock.shared(), 0);
    while done < bytes.len() {
        let at = offset + done as u64;
        let len = writable.write_delayed(&layout, ino, at, &bytes[done..], TimeChange::At(when)).unwrap();
        done += len.expect("the data is journalled, and not in the inode");
    }
}

#[test]
fn journalled_data_is_mapped_to_read_only_while_the_device_has_the_newest_version() {
    if !require(TOOLS) {
        return;
    }
    for shape in SMALL.iter().filter(|shape| shape.name != "inline-data") {
        let device = Arc::new(MemDevice::new(shape.bytes().to_vec()));
        let now = Timestamp::new(1_700_000_000, 0);
        let fs = open(device.clone(), Arc::new(FixedClock(now)), DataMode::Journal).unwrap();
        let (name, rdev) = (Name::new(b"file").unwrap(), DeviceNumber::default());
        let node =
            NewNode { kind: FileKind::Regular, mode: Mode::new(0o644), uid: 0, gid: 0, rdev, target: b"" };
        let ino = fs.writable().unwrap().create(fs.root(), name, &node).unwrap().ino;
        let (mut random, mut model, mut parts) = (Random::new(32), Vec::new(), [0, 0]);
        for step in 0..STEPS {
            let start = random.below(LEN);
            // Whole blocks and parts of blocks, at the start and at the end.
            let start = if random.below(2) == 0 { start & !4095 } else { start };
            let len = if random.below(2) == 0 { 4096 } else { 1 + random.below(20_000) };
            let (bytes, end) = (vec![step as u8 | 1; len as usize], (start + len) as usize);
            let when = Timestamp::new(1_700_000_000 + step as i64, 0);
            write(&*fs, ino, start, &bytes, when);
            model.resize(model.len().max(end), 0);
            model[start as usize..end].copy_from_slice(&bytes);
            assert_eq!(fs.getattr(ino).unwrap().mtime, when, "{}", shape.name);
            if random.below(4) == 0 {
                fs.writable().unwrap().sync().unwrap();
            }
            if random.below(4) == 0 {
                assert!(read(&*fs, &*device, ino, &mut parts) == model, "{}: step {step}", shape.name);
            }
        }
        assert!(parts.iter().all(|&count| count > 0), "{}: {parts:?}", shape.name);
        fs.writable().unwrap().close().unwrap();
        drop(fs);
        assert_eq!(e2fsck(&*device), Ok(()), "{}", shape.name);
        let fs = open(device.clone(), Arc::new(FixedClock(now)), DataMode::Journal).unwrap();
        let mut parts = [0, 0];
        assert!(read(&*fs, &*device, ino, &mut parts) == model, "{}: after the close", shape.name);
        assert_eq!(parts[1], 0, "{}: a closed volume has all data in its place", shape.name);
    }
}
