//! Gathered appends on volumes that another file fills: a write that succeeded is never lost, although the mapping of
//! the file needs another block when the data is written.

use std::fs;
use std::sync::Arc;
use std::thread;

use obento_base::{DeviceNumber, Error, FileKind, Mode, Name, Result, Timestamp};
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{Access, Driver, NewNode, OpenOptions, Size};
use obento_env::FixedClock;
use obento_ext4::Ext4Driver;
use obento_testkit::oracle::{Oracle, call, require};
use obento_vfs::{Caller, Config, Node, Vfs};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")];
const BLOCK: u64 = 1024;
/// Length of an append: several fit into a block, and one may continue in the next block.
const PIECE: usize = 300;
/// Length of the largest volume.
const VOLUME: usize = 6 << 20;
/// The number of extents in a leaf, and of direct blocks.
const LEAF: u64 = 84;
const DIRECT: u64 = 12;
/// The numbers of free blocks when the file starts to gather: a buffer has 64 blocks at most, and 16 at least.
const FREE: &[u64] = &[2, 16, 17, 18, 20, 24, 40, 64, 65, 66, 67, 68, 69, 72, 90];

/// The state of the mapping of the file before the appends.
#[derive(Clone, Copy, Debug)]
enum Map {
    /// The only leaf of the extent tree is full.
    FullLeaf,
    /// The leaf is full, and its last extent is space past the end of the file.
    FullLeafWithSpace,
    /// The next block needs an indirect block.
    Indirect,
    /// The next block needs a second block of the double indirect level.
    DoubleIndirect,
}

const MAPS: &[(Map, &str, &[&str])] = &[
    (Map::FullLeaf, "6M", &["-t", "ext4", "-J", "size=1"]),
    (Map::FullLeafWithSpace, "6M", &["-t", "ext4", "-J", "size=1"]),
    (Map::Indirect, "3M", &["-t", "ext2"]),
    (Map::DoubleIndirect, "3M", &["-t", "ext2"]),
];

fn mount(device: Arc<MemDevice>) -> Vfs {
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    let fs = Ext4Driver.open(device, &options).unwrap();
    Vfs::with(fs, Config { gather_age: None, ..Config::default() })
}

fn new(vfs: &Vfs, name: &str, kind: FileKind) -> Result<Node> {
    let (mode, rdev) = (Mode::new(0o755), DeviceNumber::default());
    let new = NewNode { kind, mode, uid: 0, gid: 0, rdev, target: b"" };
    vfs.create(&Caller::Owner, &vfs.root(), Name::new(name.as_bytes()).unwrap(), &new)
}

fn file(vfs: &Vfs, name: &str) -> Node {
    new(vfs, name, FileKind::Regular).unwrap()
}

/// Writes to the end of `node` until data finds no free block.
fn fill(node: &Node) {
    while node.append(&[7; 64 * BLOCK as usize]).is_ok() {}
    while node.append(&[7; BLOCK as usize]).is_ok() {}
}

/// Creates directories, which may use blocks that data leaves to metadata, until none is free.
fn fill_with_directories(vfs: &Vfs, prefix: &str) {
    while new(vfs, &format!("{prefix}{}", vfs.root().attr().unwrap().nlink), FileKind::Directory).is_ok() {}
}

fn free(vfs: &Vfs) -> u64 {
    vfs.flushed_file_system().statfs().unwrap().free
}

/// Creates the file, whose last write ended at its end.
fn prepare(vfs: &Vfs, map: Map) -> (Node, Vec<u8>) {
    let log = file(vfs, "log");
    let separate = match map {
        Map::FullLeaf => LEAF,
        Map::FullLeafWithSpace => LEAF - 1,
        Map::Indirect | Map::DoubleIndirect => 0,
    };
    let mut model = Vec::new();
    for n in 0..separate {
        assert_eq!(log.write_at(2 * n * BLOCK, &[1; BLOCK as usize]), Ok(BLOCK as usize));
        model.resize((2 * n * BLOCK) as usize, 0);
        model.resize(((2 * n + 1) * BLOCK) as usize, 1);
    }
    match map {
        Map::FullLeaf => {}
        Map::FullLeafWithSpace => {
            let (start, end) = (model.len() as u64 - BLOCK, model.len() as u64);
            log.allocate(end..end + 200 * BLOCK, Size::Keep).unwrap();
            assert_eq!(log.write_at(start, &[1; BLOCK as usize]), Ok(BLOCK as usize));
        }
        Map::Indirect => model.resize((DIRECT * BLOCK) as usize, 1),
        Map::DoubleIndirect => model.resize(((DIRECT + 2 * BLOCK / 4) * BLOCK) as usize, 1),
    }
    if separate == 0 {
        assert_eq!(log.write_at(0, &model), Ok(model.len()));
    }
    (log, model)
}

/// Appends until a write fails, and fills the rest of the volume after `before` appends.
fn append(vfs: &Vfs, log: &Node, model: &mut Vec<u8>, before: usize) {
    for n in 0..VOLUME / PIECE {
        if n == before {
            fill(&file(vfs, "other"));
            fill_with_directories(vfs, "d");
        }
        let piece: Vec<u8> = (0..PIECE).map(|at| (at + n) as u8).collect();
        match log.write_at(model.len() as u64, &piece) {
            Ok(len) => model.extend(&piece[..len]),
            Err(error) => return assert_eq!(error, Error::NoSpace),
        }
    }
    panic!("no write found the volume full");
}

fn bytes(node: &Node) -> Vec<u8> {
    let mut bytes = vec![0; node.attr().unwrap().size as usize];
    assert_eq!(node.read_at(0, &mut bytes), Ok(bytes.len()));
    bytes
}

/// Returns an empty volume.
fn format((map, size, options): &(Map, &str, &[&str])) -> (Map, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let common = ["-q", "-F", "-b", "1024", "-N", "512", "-m", "0"];
    call("mke2fs", [&common[..], options, &[image.to_str().unwrap(), size]].concat()).unwrap();
    (*map, fs::read(&image).unwrap())
}

/// Creates the file on a volume with `spare` other free blocks.
fn with_volume((map, empty): &(Map, Vec<u8>), spare: u64, act: impl FnOnce(&Vfs, &Node, Vec<u8>)) {
    let device = Arc::new(MemDevice::new(empty.clone()));
    let vfs = mount(Arc::clone(&device));
    let (log, model) = prepare(&vfs, *map);
    // The free blocks do not follow the blocks of the file.
    let (between, hole) = (file(&vfs, "between"), file(&vfs, "hole"));
    between.append(&[7; 100 * BLOCK as usize]).unwrap();
    hole.append(&vec![7; (spare * BLOCK) as usize]).unwrap();
    fill(&file(&vfs, "filler"));
    hole.truncate(0).unwrap();
    drop((between, hole));
    vfs.sync().unwrap();
    act(&vfs, &log, model);
    let left = free(&vfs);
    drop(log);
    vfs.close().unwrap();
    drop(vfs);
    assert_eq!(free(&mount(Arc::clone(&device))), left, "{map:?} {spare}: nothing stays reserved");
    let (folder, mut bytes) = (tempfile::tempdir().unwrap(), vec![0; empty.len()]);
    device.read_at(0, &mut bytes).unwrap();
    let image = folder.path().join("image");
    fs::write(&image, bytes).unwrap();
    call("e2fsck", ["-fn", image.to_str().unwrap()])
        .unwrap_or_else(|error| panic!("{map:?} {spare}: {error}"));
}

#[test]
fn gathered_appends_are_stored_although_their_mapping_needs_the_last_blocks() {
    if !require(TOOLS) {
        return;
    }
    for volume in MAPS.iter().map(format) {
        let map = volume.0;
        for &spare in FREE {
            for before in [1, 60] {
                with_volume(&volume, spare, |vfs, log, mut model| {
                    append(vfs, log, &mut model, before);
                    assert_eq!(log.sync(), Ok(()), "{map:?} {spare} {before}");
                    assert!(bytes(log) == model, "{map:?} {spare} {before}");
                    log.truncate(BLOCK).expect("the volume accepts changes");
                });
            }
        }
    }
}

#[test]
fn files_that_gather_keep_their_data_while_threads_fill_the_volume() {
    if !require(TOOLS) {
        return;
    }
    for volume in MAPS.iter().map(format) {
        let map = volume.0;
        with_volume(&volume, 300, |vfs, log, mut model| {
            thread::scope(|scope| {
                for n in 0..2 {
                    let other = file(vfs, &format!("other{n}"));
                    scope.spawn(move || {
                        fill(&other);
                        fill_with_directories(vfs, &format!("d{n}-"));
                    });
                }
                append(vfs, log, &mut model, usize::MAX);
            });
            assert_eq!(log.sync(), Ok(()), "{map:?}");
            assert!(bytes(log) == model, "{map:?}");
        });
    }
}
