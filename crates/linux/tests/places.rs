//! The bytes of files are at the locations that types report, and reads in any steps return them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use obento_base::{DeviceNumber, FileKind, Ino, Mode, Name, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, Driver as _, FileSystem, LayoutLock, NewNode, OpenOptions, Span};
use obento_env::SystemClock;
use obento_linux::{KernelUse, LinuxDriver};
use obento_testkit::oracle::{Oracle, call, require};

/// Lengths of files, and the length of the parts whose first 64 KiB are holes.
const FILES: [(&str, u64, Option<u64>); 3] =
    [("whole", 9 << 20, None), ("holes", 5 << 20, Some(192 << 10)), ("odd", (2 << 20) + 777, None)];

/// The length of each written part, and of each hole.
const STEP: u64 = 64 << 10;

/// The contents of a file from `offset` on: each eight bytes contain their position.
fn bytes_at(offset: u64, len: u64, every: Option<u64>) -> Vec<u8> {
    let byte =
        |at: u64| if is_hole(at, every) { 0 } else { (at / 8 * 31 + 1).to_le_bytes()[(at % 8) as usize] };
    (offset..offset + len).map(byte).collect()
}

fn is_hole(offset: u64, every: Option<u64>) -> bool {
    every.is_some_and(|every| offset % every < STEP)
}

fn open(kind: &str, device: Arc<dyn BlockDevice>, access: Access) -> Arc<dyn FileSystem> {
    open_with("", kind, device, access)
}

/// Like [`open`], with options of mount(8).
fn open_with(
    words: &'static str,
    kind: &str,
    device: Arc<dyn BlockDevice>,
    access: Access,
) -> Arc<dyn FileSystem> {
    let how = KernelUse { options: words, ..KernelUse::default() };
    let driver = LinuxDriver::used(how).find(|driver| driver.names().contains(&kind)).unwrap();
    let options = OpenOptions { access, ..OpenOptions::new(Arc::new(SystemClock)) };
    driver.open(device, &options).unwrap()
}

fn fill(fs: &dyn FileSystem) {
    let (writable, lock, rdev) = (fs.writable().unwrap(), LayoutLock::new(), DeviceNumber::default());
    let mode = Mode::new(0o644);
    let node = NewNode { kind: FileKind::Regular, mode, uid: 0, gid: 0, rdev, target: b"" };
    for (name, len, every) in FILES {
        let ino = writable.create(fs.root(), Name::new(name.as_bytes()).unwrap(), &node).unwrap().ino;
        for at in (0..len).step_by(STEP as usize).filter(|at| !is_hole(*at, every)) {
            let bytes = bytes_at(at, STEP.min(len - at), every);
            assert_eq!(writable.write(&lock.shared(), ino, at, &bytes).unwrap(), bytes.len());
        }
    }
    writable.sync().unwrap();
}

/// Creates a volume with `mkfs.KIND` and these arguments.
fn made(kind: &str, words: &str, megabytes: u64) -> Arc<MemDevice> {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(megabytes << 20).unwrap();
    let words = ["-q"].into_iter().chain(words.split_whitespace()).map(AsRef::as_ref);
    call(&format!("mkfs.{kind}"), words.chain([image.path().as_os_str()])).unwrap();
    Arc::new(MemDevice::new(std::fs::read(image.path()).unwrap()))
}

/// A volume with the files, open for reading.
fn filled(kind: &str, megabytes: u64) -> Arc<dyn FileSystem> {
    let device = made(kind, "", megabytes);
    // The log is replayed before the first read, since the volume was not closed.
    fill(&*open(kind, device.clone(), Access::ReadWrite));
    open(kind, device, Access::ReadOnly)
}

/// The files of [`FILES`].
fn files(fs: &dyn FileSystem) -> [(Ino, u64, Option<u64>); 3] {
    FILES.map(|(name, len, every)| {
        (fs.lookup(fs.root(), Name::new(name.as_bytes()).unwrap()).unwrap(), len, every)
    })
}

/// A device that counts the bytes that its creating thread reads; the guest's disk is read by another thread.
struct Counting {
    device: Arc<MemDevice>,
    thread: ThreadId,
    read: AtomicU64,
}

impl Counting {
    fn new(device: Arc<MemDevice>) -> Arc<Self> {
        Arc::new(Self { device, thread: thread::current().id(), read: AtomicU64::new(0) })
    }

    /// Returns the number of bytes read since the last [`take`](Self::take).
    fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Like [`read`](Self::read), and resets the counter.
    fn take(&self) -> u64 {
        self.read.swap(0, Ordering::Relaxed)
    }
}

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if thread::current().id() == self.thread {
            self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        }
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.device.write_at(offset, buf)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
}

#[test]
fn mapped_bytes_equal_the_written_ones() {
    if !require(&["linux.uml", "mkfs.xfs", "mkfs.f2fs"].map(Oracle::Program)) {
        return;
    }
    for (kind, megabytes) in [("xfs", 310), ("f2fs", 128)] {
        let fs = filled(kind, megabytes);
        for (name, len, every) in FILES {
            let ino = fs.lookup(fs.root(), Name::new(name.as_bytes()).unwrap()).unwrap();
            let (lock, mut at, mut mapped) = (LayoutLock::new(), 0, 0);
            while at < len {
                let extent = fs.map(&lock.shared(), ino, at..len).unwrap();
                let mut found = vec![0; extent.len as usize];
                match extent.span {
                    Span::Mapped(place) => {
                        fs.device().unwrap().read_at(place, &mut found).unwrap();
                        mapped += extent.len;
                    }
                    Span::Hole => {}
                    other => panic!("{kind}: {name} at {at} is {other:?}"),
                }
                assert!(found == bytes_at(at, extent.len, every), "{kind}: {name}, {extent:?} at {at}");
                at += extent.len;
            }
            assert!(mapped > len / 2, "{kind}: {mapped} bytes of {name} are mapped");
        }
    }
}

#[test]
fn a_file_reads_the_same_in_any_steps_and_beside_any_other_reader() {
    if !require(&["linux.uml", "mkfs.f2fs"].map(Oracle::Program)) {
        return;
    }
    let (fs, lock) = (filled("f2fs", 128), LayoutLock::new());
    let files = files(&*fs);
    let read = |(ino, len, every): (_, u64, _), at: u64, step: usize| {
        let mut found = vec![0; step];
        let got = fs.read(&lock.shared(), ino, at, &mut found).unwrap();
        assert_eq!(got as u64, (step as u64).min(len.saturating_sub(at)), "short only at the end");
        assert!(found[..got] == bytes_at(at, got as u64, every), "{step} bytes at {at} of {len}");
    };
    for step in [60_001, 256 << 10, 5 << 20] {
        // From front to back, and one step past the end.
        for file in files {
            (0..file.1 + step as u64).step_by(step).for_each(|at| read(file, at, step));
        }
        // Two readers, and another request between: the guest's read-ahead is useless then.
        for at in (0..files[0].1).step_by(step) {
            read(files[0], at, step);
            read(files[1], at, step);
            fs.statfs().unwrap();
        }
        // From back to front, and the same bytes again.
        for at in (0..files[2].1).step_by(step).collect::<Vec<_>>().into_iter().rev() {
            read(files[2], at, step);
            read(files[2], at, step);
        }
    }
}

/// How a Btrfs volume is created and mounted, and whether checksums verify its data: checksums of one kind, of the bytes that
/// one disk contains.
const BTRFS: [(&str, &str, bool); 7] = [
    ("", "", true),
    ("-d dup", "", true),
    ("--mixed", "", true),
    ("-n 65536", "", true),
    ("--csum xxhash", "", false),
    ("", "nodatasum", false),
    ("", "compress-force=zlib", false),
];

#[test]
fn long_files_of_a_btrfs_are_read_past_the_guest_where_their_sums_prove_them() {
    if !require(&["linux.uml", "mkfs.btrfs"].map(Oracle::Program)) {
        return;
    }
    for (words, options, proves) in BTRFS {
        let device = made("btrfs", words, 256);
        fill(&*open_with(options, "btrfs", device.clone(), Access::ReadWrite));
        let counting = Counting::new(device);
        let (fs, lock) = (open("btrfs", counting.clone(), Access::ReadOnly), LayoutLock::new());
        counting.take();
        for (ino, len, every) in files(&*fs) {
            for step in [128 << 10, 1 << 20, 1_000_000] {
                for at in (0..len).step_by(step) {
                    let mut found = vec![0; step];
                    let got = fs.read(&lock.shared(), ino, at, &mut found).unwrap();
                    assert_eq!(got as u64, (step as u64).min(len - at), "short only at the end");
                    let is_right = found[..got] == bytes_at(at, got as u64, every);
                    assert!(is_right, "mkfs.btrfs {words}, -o {options}: {step} bytes at {at} of {len}");
                }
                let data = (0..len).step_by(4096).filter(|at| !is_hole(*at, every)).count() as u64 * 4096;
                // All steps except the first begin within a sector, so the guest reads them.
                let all =
                    if step.is_multiple_of(4096) { data } else { counting.read().min(step as u64 + 4096) };
                let read = counting.take();
                let reported =
                    format!("mkfs.btrfs {words}, -o {options}: {read} of {data} in steps of {step}");
                assert_eq!(read, if proves { all } else { 0 }, "{reported}");
            }
        }
    }
}

#[test]
fn damage_of_a_long_btrfs_file_is_reported_or_read_from_the_second_copy() {
    if !require(&["linux.uml", "mkfs.btrfs"].map(Oracle::Program)) {
        return;
    }
    const BAD: u64 = 8 << 20;
    // The damaged copy, and the number of copies.
    for (words, damaged, copies) in [("-d single", 0, 1), ("-d dup", 0, 2), ("-d dup", 1, 2)] {
        let device = made("btrfs", words, 256);
        fill(&*open("btrfs", device.clone(), Access::ReadWrite));
        let (bytes, wanted) = (device.snapshot(), bytes_at(BAD, 16, None));
        let is_copy = |at: &usize| bytes[*at..].starts_with(&wanted);
        let places: Vec<_> = (0..bytes.len()).step_by(4096).filter(is_copy).collect();
        assert_eq!(places.len(), copies, "{words}: {places:?}");
        device.write_at(places[damaged] as u64 + 100, b"damage").unwrap();
        let (fs, lock) = (open("btrfs", device, Access::ReadOnly), LayoutLock::new());
        let (ino, len, _) = files(&*fs)[0];
        let mut found = vec![0; 1 << 20];
        for at in (0..len).step_by(found.len()) {
            let got = fs.read(&lock.shared(), ino, at, &mut found);
            if at == BAD && copies == 1 {
                assert!(got.is_err(), "{got:?}");
            } else {
                assert_eq!(got, Ok(found.len()), "{words}: at {at}");
                assert!(found == bytes_at(at, found.len() as u64, None), "{words}: at {at}");
            }
        }
        // A later request returns the following bytes of the same step.
        assert_eq!(fs.read(&lock.shared(), ino, BAD + 4096, &mut found), Ok(found.len() - 4096), "{words}");
    }
}
