//! Small writes at the end of a file wait in memory, without a visible difference.

mod common;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use common::{Short, clock, name};
use obento_base::{DeviceError, Error, FileFlags, Result, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{FileSystem, SetAttr, Size, TimeChange};
use obento_env::Clock;
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::{Caller, Config, Node, OpenFlags, Vfs};

const OWNER: Caller = Caller::Owner;
const BLOCK: usize = 4096;
const EIO: Error = Error::Device(DeviceError::Write { offset: 0, len: 0, errno: 5 });

/// A device that reports each write, and can fail.
struct Watched {
    below: MemDevice,
    broken: AtomicBool,
    writes: Sender<usize>,
}

impl BlockDevice for Watched {
    fn len(&self) -> u64 {
        self.below.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.below.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(EIO);
        }
        // The receiver may be gone.
        let _ = self.writes.send(bytes.len());
        self.below.write_at(offset, bytes)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.below.discard(range)
    }
}

/// A volume whose driver, device and files can be looked at.
struct Bench {
    fs: Arc<Tmpfs>,
    device: Arc<Watched>,
    writes: std::sync::mpsc::Receiver<usize>,
    vfs: Vfs,
}

/// This number of untouched pages is contiguous; freed pages are not.
fn bench(pages: usize, age: Option<Duration>) -> Bench {
    bench_with(pages, age, clock())
}

fn bench_with(pages: usize, age: Option<Duration>, clock: Arc<dyn Clock>) -> Bench {
    let (sender, writes) = channel();
    let below = MemDevice::new(vec![0xdd; pages * BLOCK]);
    let device = Arc::new(Watched { below, broken: AtomicBool::new(false), writes: sender });
    let options =
        Options { device: Some(device.clone()), size: (pages * BLOCK) as u64, ..Options::new(clock) };
    let fs = Arc::new(Tmpfs::new(options));
    let vfs = Vfs::with(fs.clone(), Config { gather_age: age, ..Config::default() });
    Bench { fs, device, writes, vfs }
}

impl Bench {
    /// What the driver knows of.
    fn stored(&self, node: &Node) -> u64 {
        self.fs.getattr(node.ino()).unwrap().size
    }

    /// A file of which some was written and some is gathered.
    fn gathering(&self, file: &str) -> (Node, Vec<u8>) {
        let node = self.vfs.root().file(file);
        let model: Vec<u8> = (0..3 * BLOCK + 100).map(|n| (n / 7) as u8).collect();
        for (n, part) in model.chunks(BLOCK).enumerate() {
            assert_eq!(node.write_at((n * BLOCK) as u64, part), Ok(part.len()));
        }
        assert_eq!(self.stored(&node), BLOCK as u64, "the rest waits");
        (node, model)
    }

    fn written(&self) -> Vec<usize> {
        self.writes.try_iter().collect()
    }
}

#[test]
fn gathered_data_is_one_write_and_readers_see_it_at_once() {
    let bench = bench(1000, None);
    let (node, model) = bench.gathering("f");
    assert_eq!(bench.written(), [BLOCK]);
    let mut part = vec![0; 2 * BLOCK];
    assert_eq!(node.read_at(BLOCK as u64 + 50, &mut part), Ok(2 * BLOCK));
    assert!(part == model[BLOCK + 50..][..2 * BLOCK]);
    assert_eq!(bench.written(), [2 * BLOCK, BLOCK], "whole blocks, and the last with zeros");
    assert!(node.bytes() == model);
}

#[test]
fn every_reader_of_a_file_finds_gathered_data() {
    type Look<'a> = (&'a str, &'a dyn Fn(&Node));
    let looks: [Look<'_>; 5] = [
        ("attr", &|node| assert_eq!(node.attr().unwrap().size, (3 * BLOCK + 100) as u64)),
        ("seek_hole", &|node| assert_eq!(node.seek_hole(0), Ok((3 * BLOCK + 100) as u64))),
        ("seek_data", &|node| assert_eq!(node.seek_data(3 * BLOCK as u64), Ok(3 * BLOCK as u64))),
        ("run", &|node| assert_eq!(node.run(3 * BLOCK as u64, 999).unwrap().unwrap().len(), 100)),
        ("append", &|node| assert_eq!(node.append(b"x"), Ok(((3 * BLOCK + 100) as u64, 1)))),
    ];
    for (what, look) in looks {
        let bench = bench(1000, None);
        let (node, mut model) = bench.gathering("f");
        look(&node);
        model.extend((what == "append").then_some(b'x'));
        assert!(node.bytes() == model, "{what}");
    }
}

#[test]
fn flags_are_returned_while_data_stays_gathered() {
    let bench = bench(1000, None);
    let (node, _) = bench.gathering("f");
    let before = (bench.written(), bench.stored(&node));
    assert_eq!(node.flags(), Ok(FileFlags::empty()));
    assert_eq!((bench.written(), bench.stored(&node)), (Vec::new(), before.1));
    assert_eq!(node.attr().unwrap().size, (3 * BLOCK + 100) as u64);
    assert!(!bench.written().is_empty());
}

#[test]
fn every_other_change_finds_gathered_data() {
    type Change<'a> = (&'a str, &'a dyn Fn(&Node), &'a dyn Fn(&mut Vec<u8>));
    let changes: [Change<'_>; 8] = [
        ("truncate", &|node| node.truncate(5000).unwrap(), &|model| model.truncate(5000)),
        ("grow", &|node| node.truncate(20_000).unwrap(), &|model| model.resize(20_000, 0)),
        ("write", &|node| assert_eq!(node.write_at(4000, &[1; 200]), Ok(200)), &|model| {
            model[4000..4200].fill(1)
        }),
        ("write past the end", &|node| assert_eq!(node.write_at(13_000, b"x"), Ok(1)), &|model| {
            model.resize(13_000, 0);
            model.push(b'x');
        }),
        ("punch", &|node| node.punch(4096..8192).unwrap(), &|model| model[4096..8192].fill(0)),
        ("zero", &|node| node.zero_range(9000..99_999, Size::Keep).unwrap(), &|model| model[9000..].fill(0)),
        ("collapse", &|node| node.collapse(0..4096).unwrap(), &|model| drop(model.drain(..4096))),
        ("insert", &|node| node.insert(8192..12_288).unwrap(), &|model| {
            drop(model.splice(8192..8192, [0; 4096]))
        }),
    ];
    for (what, change, expect) in changes {
        let bench = bench(1000, None);
        let (node, mut model) = bench.gathering("f");
        change(&node);
        expect(&mut model);
        assert!(node.bytes() == model, "{what}");
        assert_eq!(node.append(b"more"), Ok((model.len() as u64, 4)), "{what}");
    }
}

#[test]
fn a_time_that_was_set_is_not_that_of_a_later_write() {
    let bench = bench(1000, None);
    let (node, _) = bench.gathering("f");
    let then = Timestamp::new(7, 0);
    let change = SetAttr { mtime: Some(TimeChange::At(then)), ..SetAttr::default() };
    bench.vfs.set_attr(&OWNER, &node, &change).unwrap();
    bench.vfs.sync().unwrap();
    assert_eq!(node.attr().unwrap().mtime, then);
}

/// A clock whose time the test sets.
#[derive(Default)]
struct Steps(AtomicI64);

impl Clock for Steps {
    fn now(&self) -> Timestamp {
        Timestamp::new(self.0.load(Ordering::Relaxed), 0)
    }
}

#[test]
fn a_file_was_changed_when_its_last_write_was_taken_and_not_when_it_went_out() {
    let steps = Arc::new(Steps::default());
    let at = |secs| steps.0.store(secs, Ordering::Relaxed);
    let bench = bench_with(1000, None, steps.clone());
    let node = bench.vfs.root().file("f");
    let times = || node.attr().map(|attr| [attr.mtime, attr.ctime].map(|time| time.secs())).unwrap();
    for (n, secs) in [(0, 3), (1, 5), (2, 7)] {
        at(secs);
        node.write_at(n * 100, &[1; 100]).unwrap();
    }
    at(20);
    assert_eq!(times(), [7, 7]);
    // What fills the buffer goes out within the write.
    (3..800).for_each(|n| assert_eq!(node.write_at(n * 100, &[2; 100]), Ok(100)));
    at(30);
    assert_eq!(times(), [20, 20]);
    node.append(b"1").unwrap();
    node.append(b"2").unwrap();
    at(40);
    bench.vfs.link(&OWNER, &node, &bench.vfs.root(), name("g")).unwrap();
    at(50);
    assert_eq!(times(), [30, 40], "what changed meanwhile without looking is not undone");
}

#[test]
fn two_handles_that_append_in_turn_gather_together() {
    let bench = bench(1000, None);
    let node = bench.vfs.root().file("f");
    let open = || bench.vfs.open(&OWNER, &node, OpenFlags::WRITE | OpenFlags::APPEND).unwrap();
    let (one, two) = (open(), open());
    let mut model = vec![];
    for n in 0..2000_u32 {
        let bytes = n.to_le_bytes();
        assert_eq!(if n % 2 == 0 { &one } else { &two }.write_at(0, &bytes), Ok(4));
        model.extend(bytes);
    }
    assert!(node.bytes() == model);
    assert!(bench.written().len() < 100, "far fewer than 2000");
}

#[test]
fn a_file_that_does_not_end_with_a_block_gathers_too() {
    let bench = bench(1000, None);
    let node = bench.vfs.root().file("f");
    let mut model = vec![];
    for n in 0..3000_usize {
        let part = vec![n as u8; n % 200 + 1];
        assert_eq!(node.write_at(model.len() as u64, &part), Ok(part.len()));
        model.extend(part);
    }
    assert!(bench.written().len() < 50, "far fewer than 3000");
    assert!(node.bytes() == model);
}

#[test]
fn sync_and_close_write_gathered_data() {
    let sync: fn(&Bench, &Node) = |_, node| node.sync().unwrap();
    for act in [sync, |bench, _| bench.vfs.sync().unwrap(), |bench, _| bench.vfs.close().unwrap()] {
        let bench = bench(1000, None);
        let (node, model) = bench.gathering("f");
        act(&bench, &node);
        assert_eq!(bench.stored(&node), model.len() as u64);
        assert!(node.bytes() == model);
    }
}

#[test]
fn the_returned_driver_contains_all_written_data() {
    let bench = bench(1000, None);
    let (node, model) = bench.gathering("f");
    assert_eq!(bench.vfs.flushed_file_system().getattr(node.ino()).unwrap().size, model.len() as u64);
}

#[test]
fn the_last_user_of_a_file_leaves_nothing_behind() {
    let bench = bench(1000, None);
    let (node, model) = bench.gathering("f");
    let ino = node.ino();
    drop(node);
    bench.vfs.drop_names();
    assert_eq!(bench.fs.getattr(ino).unwrap().size, model.len() as u64);
    assert!(bench.vfs.root().get("f").unwrap().bytes() == model);
}

#[test]
fn an_unclosed_volume_keeps_gathered_data() {
    let bench = bench(1000, None);
    let (node, model) = bench.gathering("f");
    let Bench { fs, vfs, .. } = bench;
    drop((node, vfs));
    assert!(Vfs::new(fs).root().get("f").unwrap().bytes() == model);
}

#[test]
fn an_unnamed_unused_file_is_never_written() {
    let bench = bench(1000, None);
    let free = bench.fs.statfs().unwrap().free;
    let node = bench.vfs.root().file("f");
    bench.vfs.unlink(&OWNER, &bench.vfs.root(), name("f")).unwrap();
    for n in 0..3 {
        node.write_at(n * BLOCK as u64, &[1; BLOCK]).unwrap();
    }
    assert_eq!(bench.written(), [BLOCK]);
    drop(node);
    assert_eq!((bench.written(), bench.fs.statfs().unwrap().free), (vec![], free));
}

#[test]
fn a_write_without_space_fails_and_accepted_bytes_are_never_lost() {
    let bench = bench(40, None);
    let (first, mut model) = bench.gathering("f");
    // Takes what is left but for what was promised.
    let second = bench.vfs.root().file("g");
    let len = second.write_at(0, &vec![9; 40 * BLOCK]).unwrap();
    assert_eq!(second.write_at(len as u64, &[9]), Err(Error::NoSpace));
    while let Ok(len) = first.write_at(model.len() as u64, &[3; 1000]) {
        model.resize(model.len() + len, 3);
    }
    assert_eq!(first.write_at(model.len() as u64, &[3]), Err(Error::NoSpace));
    first.sync().unwrap();
    assert!(first.bytes() == model && second.bytes() == vec![9; len]);
    assert_eq!(model.len().div_ceil(BLOCK) + len.div_ceil(BLOCK), 40);
}

#[test]
fn unused_reserved_space_is_released() {
    let bench = bench(40, None);
    let (node, _) = bench.gathering("f");
    node.sync().unwrap();
    assert_eq!(bench.fs.statfs().unwrap().free, 36);
}

#[test]
fn lost_bytes_are_reported_by_every_later_sync_and_changes_end() {
    let bench = bench(1000, None);
    let other = bench.vfs.root().file("g");
    let (node, _) = bench.gathering("f");
    bench.device.broken.store(true, Ordering::Relaxed);
    assert_eq!(node.attr().unwrap().size, BLOCK as u64, "a lookup does not report the error");
    bench.device.broken.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!((node.sync(), other.sync(), bench.vfs.sync()), (Err(EIO), Err(EIO), Err(EIO)));
    }
    assert_eq!(node.write_at(0, b"x"), Err(Error::ReadOnly));
    assert_eq!(node.read_at(0, &mut [0; 4]), Ok(4));
    assert_eq!(bench.vfs.close(), Err(EIO));
}

#[test]
fn the_write_that_fills_a_buffer_returns_its_write_error() {
    let bench = bench(1000, None);
    let (node, model) = bench.gathering("f");
    bench.device.broken.store(true, Ordering::Relaxed);
    let writes = |n: usize| node.write_at((model.len() + n * 1000) as u64, &[1; 1000]);
    let error = (0..100).find_map(|n| writes(n).err());
    assert_eq!(error, Some(EIO));
}

#[test]
fn gathered_data_is_written_after_a_time_without_a_request() {
    let bench = bench(1000, Some(Duration::from_millis(2)));
    let node = bench.vfs.root().file("f");
    for n in 0..3 {
        node.write_at(n * 100, &[7; 100]).unwrap();
    }
    // The first block with zeros, then what was gathered.
    for len in [BLOCK, 200] {
        assert_eq!(bench.writes.recv_timeout(Duration::from_secs(60)), Ok(len));
    }
    assert_eq!(node.bytes(), [7; 300]);
}

#[test]
fn writers_readers_and_the_thread_agree() {
    let bench = bench(3000, Some(Duration::from_millis(1)));
    let nodes: Vec<Node> = ["a", "b", "c"].map(|file| bench.vfs.root().file(file)).into();
    std::thread::scope(|scope| {
        for (letter, node) in (b'a'..).zip(&nodes) {
            for _ in 0..2 {
                scope.spawn(move || {
                    (0..2000).for_each(|_| assert_eq!(node.append(&[letter; 333]).unwrap().1, 333))
                });
            }
            scope.spawn(move || {
                let mut last = 0;
                while last < 4000 * 333 {
                    let size = node.attr().unwrap().size;
                    assert!(size >= last);
                    last = size;
                }
            });
        }
    });
    for (letter, node) in (b'a'..).zip(&nodes) {
        assert!(node.bytes() == vec![letter; 4000 * 333]);
    }
}
