//! The faults of Bento's xv6fs, none of which is here.

mod common;

use std::sync::Arc;

use common::{clock, findings, format, judged, open};
use obento_base::{FileKind, Name};
use obento_block::MemDevice;
use obento_driver::StatFs;
use obento_testkit::plan::{Actor, Op};
use obento_vfs::Vfs;

const LEN: u64 = 16 << 20;

fn device() -> Arc<MemDevice> {
    Arc::new(MemDevice::new(format(LEN, 256)))
}

fn volume(device: &Arc<MemDevice>) -> Vfs {
    Vfs::new(open(device.clone(), clock()).expect("a sound volume"))
}

fn create(path: &str) -> Op {
    Op::Create(path.into(), FileKind::Regular, 0o644)
}

fn act(actor: &mut Actor, ops: impl IntoIterator<Item = Op>) {
    for op in ops {
        actor.act(1, &op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }
}

fn read(vfs: &Vfs, path: &str) -> Vec<u8> {
    let node = Actor::new(vfs.clone()).node(path).expect("it exists");
    let mut bytes = vec![0xaa; usize::try_from(node.attr().unwrap().size).unwrap()];
    assert_eq!(node.read_at(0, &mut bytes), Ok(bytes.len()));
    bytes
}

fn free(vfs: &Vfs) -> StatFs {
    vfs.flushed_file_system().statfs().unwrap()
}

/// "Allocation state lost at restart": what was in use was handed out once more.
#[test]
fn inode_numbers_in_use_stay_in_use_after_a_reopen() {
    let device = device();
    let mut actor = Actor::new(volume(&device));
    act(&mut actor, [create("old"), Op::Write("old".into(), 0, 300_000), Op::Sync]);
    let (before, old) = (free(actor.vfs()), read(actor.vfs(), "old"));
    // Without a word: as after a crash.
    drop(actor);
    let mut actor = Actor::new(volume(&device));
    assert_eq!(free(actor.vfs()), before);
    act(&mut actor, (0..50).flat_map(|n| [create(&format!("{n}")), Op::Write(format!("{n}"), 0, 100_000)]));
    assert!(read(actor.vfs(), "old") == old);
    actor.vfs().close().unwrap();
    assert_eq!(findings(device), []);
}

/// "Dropped sparse writes".
#[test]
fn a_write_far_behind_the_end_is_kept() {
    let device = device();
    let mut actor = Actor::new(volume(&device));
    let places = [200_000, 4_500_000, 4_290_000_000, 5];
    act(&mut actor, [create("f")]);
    act(&mut actor, places.map(|at| Op::Write("f".into(), at, 5000)));
    actor.vfs().close().unwrap();
    drop(actor);
    let vfs = volume(&device);
    let node = Actor::new(vfs).node("f").unwrap();
    for at in places {
        let mut bytes = vec![0; 5000];
        assert_eq!(node.read_at(at, &mut bytes), Ok(5000));
        assert!(bytes == obento_testkit::plan::bytes(1, at, 5000), "{at}");
    }
}

/// "Holes that give an error".
#[test]
fn a_hole_reads_as_zeros_at_every_level() {
    let device = device();
    let mut actor = Actor::new(volume(&device));
    let size = actor.vfs().limits().file_size_max;
    act(&mut actor, [create("f"), Op::Truncate("f".into(), size)]);
    let node = actor.node("f").unwrap();
    for at in [0, 36 * 4096, (36 + 1024) * 4096, size - 4096] {
        let mut bytes = vec![0xaa; 4096];
        assert_eq!((node.read_at(at, &mut bytes), bytes), (Ok(4096), vec![0; 4096]), "{at}");
    }
    assert_eq!(node.attr().unwrap().blocks, 0);
}

/// "Truncate that frees nothing".
#[test]
fn truncate_frees_all_that_it_cuts_off_at_every_level() {
    let device = device();
    let mut actor = Actor::new(volume(&device));
    let before = free(actor.vfs());
    let spread = (0..40).map(|n| Op::Write("f".into(), n * 200_000, 5000));
    act(&mut actor, [create("f")].into_iter().chain(spread));
    assert!(free(actor.vfs()).free < before.free - 80);
    act(&mut actor, [Op::Truncate("f".into(), 3)]);
    assert_eq!(free(actor.vfs()).free, before.free - 2, "a block of the directory, one of the file");
    act(&mut actor, [Op::Truncate("f".into(), 0)]);
    assert_eq!(free(actor.vfs()).free, before.free - 1);
    act(&mut actor, [Op::Unlink("f".into()), create("g")]);
    assert_eq!(free(actor.vfs()).free_inodes, before.free_inodes - 1);
    actor.vfs().close().unwrap();
    assert_eq!(findings(device), []);
}

/// "Data of open-unlinked files lost".
#[test]
fn a_file_that_was_unlinked_while_open_reads_and_writes_until_it_is_closed() {
    let device = device();
    let mut actor = Actor::new(volume(&device));
    let before = free(actor.vfs());
    act(&mut actor, [create("f"), Op::Write("f".into(), 0, 50_000), Op::Sync]);
    let node = actor.node("f").unwrap();
    act(
        &mut actor,
        [Op::Unlink("f".into()), Op::Sync, create("g"), Op::Write("g".into(), 0, 200_000), Op::Sync],
    );
    let mut bytes = vec![0; 50_000];
    assert_eq!(node.read_at(0, &mut bytes), Ok(50_000));
    assert!(bytes == obento_testkit::plan::bytes(1, 0, 50_000));
    assert_eq!(node.write_at(49_000, &[9; 9000]), Ok(9000));
    assert_eq!(node.attr().unwrap().size, 58_000);
    drop(node);
    act(&mut actor, [Op::Unlink("g".into())]);
    assert_eq!(free(actor.vfs()).free, before.free);
    assert_eq!(free(actor.vfs()).free_inodes, before.free_inodes);
}

/// The same, when the power goes before it is closed.
#[test]
fn a_file_that_was_unlinked_while_open_is_freed_at_the_next_open_after_a_crash() {
    let device = device();
    let mut actor = Actor::new(volume(&device));
    let before = free(actor.vfs());
    let ops = [
        create("f"),
        Op::Write("f".into(), 0, 50_000),
        Op::Hold("f".into()),
        Op::Unlink("f".into()),
        Op::Sync,
    ];
    act(&mut actor, ops);
    let after_crash = Arc::new(MemDevice::new(device.snapshot()));
    let vfs = volume(&after_crash);
    assert_eq!((free(&vfs).free, free(&vfs).free_inodes), (before.free, before.free_inodes));
    vfs.close().unwrap();
    assert_eq!(findings(after_crash), []);
}

/// "Full hash buckets that panic": with one inode of many names, so that levels are added.
#[test]
fn a_directory_takes_names_when_its_buckets_are_full() {
    let fs = judged(format(LEN, 256));
    let writable = fs.writable().unwrap();
    let root = fs.root();
    let node = obento_driver::NewNode {
        kind: FileKind::Fifo,
        mode: obento_base::Mode::new(0o600),
        uid: 0,
        gid: 0,
        rdev: Default::default(),
        target: b"",
    };
    let name = |n: usize| format!("{n:0>width$}", width = 1 + n * 7 % 255);
    let named = |n: usize| obento_base::NameBuf::new(name(n).into_bytes()).unwrap();
    let ino = writable.create(root, Name::new(b"first").unwrap(), &node).unwrap().ino;
    for n in 0..5000 {
        writable.link(ino, root, &named(n)).unwrap_or_else(|error| panic!("{n}: {error}"));
    }
    assert!((0..5000).all(|n| fs.lookup(root, &named(n)) == Ok(ino)));
    (0..5000).filter(|n| n % 3 > 0).for_each(|n| writable.unlink(root, &named(n)).unwrap());
    assert!((0..5000).all(|n| fs.lookup(root, &named(n)).is_ok() == (n % 3 == 0)));
    let size = fs.getattr(root).unwrap().size;
    for n in (0..5000).filter(|n| n % 3 > 0) {
        writable.link(ino, root, &named(n)).unwrap();
    }
    assert_eq!(fs.getattr(root).unwrap().size, size, "what was freed is used again");
}

/// What the framework carries: the driver is what its format is, and no more.
#[test]
fn the_driver_has_fewer_than_1200_lines() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).expect("its source");
    let lines = files.map(|file| {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("Rust is UTF-8");
        text.lines().count()
    });
    let lines: usize = lines.sum();
    assert!((1..1200).contains(&lines), "{lines}");
}
