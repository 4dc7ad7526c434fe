//! Records of inodes that change often, in inodes of every size.

mod common;

use std::sync::Arc;

use common::volumes::{e2fsck, open};
use obento_base::{DeviceNumber, FileKind, Ino, Mode, Name, Timestamp};
use obento_block::MemDevice;
use obento_driver::{DataMode, NewNode, SetAttr, TimeChange};
use obento_env::FixedClock;
use obento_testkit::oracle::{Oracle, call, require};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")];
const FILES: u32 = 40;
const ROUNDS: u32 = 30;

/// The change in a round, different for each file and round.
fn change(round: u32, file: u32) -> SetAttr {
    let mtime = Timestamp::new(1_700_000_000 + i64::from(round), 0);
    let mode = u16::try_from((round * 41 + file * 7) % 0o1000).unwrap();
    SetAttr {
        mode: Some(Mode::new(mode)),
        uid: Some(round + file),
        mtime: Some(TimeChange::At(mtime)),
        ..SetAttr::default()
    }
}

#[test]
fn changed_attributes_are_returned_and_stored_in_inodes_of_every_size() {
    if !require(TOOLS) {
        return;
    }
    for size in ["128", "256", "512"] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        call("mke2fs", ["-q", "-F", "-t", "ext4", "-I", size, image.to_str().unwrap(), "16M"]).unwrap();
        let device = Arc::new(MemDevice::new(std::fs::read(&image).unwrap()));
        let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
        let fs = open(device.clone(), clock.clone(), DataMode::Ordered).unwrap();
        let writable = fs.writable().unwrap();
        let inos: Vec<Ino> = (0..FILES)
            .map(|file| {
                let (name, rdev) = (format!("f{file}"), DeviceNumber::default());
                let mode = Mode::new(0o644);
                let node = NewNode { kind: FileKind::Regular, mode, uid: 0, gid: 0, rdev, target: b"" };
                writable.create(fs.root(), Name::new(name.as_bytes()).unwrap(), &node).unwrap().ino
            })
            .collect();
        for round in 0..ROUNDS {
            for (file, &ino) in (0..FILES).zip(&inos) {
                let set = change(round, file);
                let attr = writable.set_attr(ino, &set).unwrap();
                assert_eq!(attr, fs.getattr(ino).unwrap(), "-I {size}, round {round}, file {file}");
                assert_eq!((Some(attr.mode), Some(attr.uid)), (set.mode, set.uid));
            }
            // Records of a durable transaction are replaced, too.
            if round % 7 == 0 {
                writable.sync().unwrap();
            }
        }
        let before: Vec<_> = inos.iter().map(|&ino| fs.getattr(ino).unwrap()).collect();
        writable.close().unwrap();
        drop(fs);
        e2fsck(&*device).unwrap();
        let again = open(device, clock, DataMode::Ordered).unwrap();
        let after: Vec<_> = inos.iter().map(|&ino| again.getattr(ino).unwrap()).collect();
        assert_eq!(after, before, "-I {size}");
    }
}
