//! Threads change a small volume at random until it is full, close or drop it, and continue. A lack of space is
//! reported as such, and the volume stays consistent. Each seed does the same on one thread; with several threads,
//! their interleaving differs.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode, Name, NameBuf, Result, Timestamp};
use obento_driver::{
    Access, DataMode, Driver, FileSystem, Journalling, LayoutLock, NewNode, OpenOptions, RenameFlags,
    SetAttr, Size, Span, TimeChange, XattrMode,
};
use obento_env::FixedClock;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::oracle::{Oracle, call, require};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")];
const SEED: u64 = 21;
const STEPS: usize = 1500;
/// The unit of ranges of files: a multiple of every block and cluster size here.
const PIECE: u64 = 16_384;

/// Little space, few inodes, the smallest journal.
const VOLUMES: &[(&[&str], &str)] = &[
    (&["-t", "ext4", "-b", "1024", "-N", "200", "-J", "size=1"], "4M"),
    (&["-t", "ext4", "-b", "1024", "-C", "8192", "-O", "bigalloc", "-N", "200", "-J", "size=1"], "8M"),
    (&["-t", "ext4", "-b", "1024", "-N", "200", "-J", "size=1", "-O", "quota,project"], "4M"),
    (&["-t", "ext2", "-b", "1024", "-N", "100"], "3M"),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "200",
            "-J",
            "size=1",
            "-O",
            "inline_data,ea_inode,orphan_file,quota",
        ],
        "6M",
    ),
];

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Returns a range of whole pieces at the start of a file.
    fn range(&mut self) -> std::ops::Range<u64> {
        let start = self.below(10) * PIECE;
        start..start + (self.below(5) + 1) * PIECE
    }
}

fn open(image: &Path, mode: DataMode) -> Arc<dyn FileSystem> {
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
    let journalling = Journalling { mode, ..Journalling::default() };
    let options = OpenOptions { access: Access::ReadWrite, journalling, ..OpenOptions::new(clock) };
    Ext4Driver.open(Arc::new(FileDevice::open_writable(image).unwrap()), &options).unwrap()
}

fn node(kind: FileKind) -> NewNode<'static> {
    let target: &[u8] = if kind == FileKind::Symlink { b"somewhere/else" } else { b"" };
    NewNode { kind, mode: Mode::new(0o644), uid: 0, gid: 0, rdev: DeviceNumber::default(), target }
}

fn name(text: &str) -> NameBuf {
    Name::new(text.as_bytes()).unwrap().to_buf()
}

fn directory(fs: &dyn FileSystem, text: &str) -> Ino {
    match fs.writable().unwrap().create(fs.root(), &name(text), &node(FileKind::Directory)) {
        Err(Error::Exists) => fs.lookup(fs.root(), &name(text)).unwrap(),
        made => made.unwrap().ino,
    }
}

fn write(fs: &dyn FileSystem, ino: Ino, range: std::ops::Range<u64>) -> Result<()> {
    let (lock, writable) = (LayoutLock::new(), fs.writable().unwrap());
    let layout = lock.shared();
    let mut at = range.start;
    while at < range.end {
        let ticket = writable.begin_write(&layout, ino, at..range.end)?;
        let extent = ticket.extent();
        let bytes = vec![7; usize::try_from(extent.len).unwrap()];
        at += match extent.span {
            Span::Mapped(to) => {
                fs.device().unwrap().write_at(to, &bytes)?;
                writable.end_write(ticket, TimeChange::Now)?;
                extent.len
            }
            Span::Driver => writable.write(&layout, ino, at, &bytes)? as u64,
            span => panic!("begin_write returned {span:?}"),
        };
    }
    Ok(())
}

/// Executes one operation on names that only thread `thread` uses.
fn act(fs: &dyn FileSystem, dirs: &[Ino; 3], thread: u64, random: &mut Random) -> Result<()> {
    let (writable, lock) = (fs.writable().unwrap(), LayoutLock::new());
    let mut pick = || dirs[random.below(3) as usize];
    let (dir, other) = (pick(), pick());
    let long = "x".repeat(random.below(3) as usize * 60);
    let (one, two) = (name(&format!("{thread}-{}{long}", random.below(40))), random.below(40));
    let two = name(&format!("{thread}-{two}"));
    let file = || fs.lookup(dir, &one);
    match random.below(16) {
        0..=2 => writable.create(dir, &one, &node(FileKind::Regular)).map(drop),
        3 => writable.create(dir, &one, &node(FileKind::Symlink)).map(drop),
        4 => {
            let ino = fs.lookup(other, &two)?;
            writable.unlink(other, &two)?;
            fs.forget(ino);
            Ok(())
        }
        5 => {
            let replaced = fs.lookup(other, &two);
            writable.rename(dir, &one, other, &two, RenameFlags::empty())?;
            replaced.into_iter().for_each(|ino| fs.forget(ino));
            Ok(())
        }
        6 => writable.link(file()?, other, &two).map(drop),
        7..=9 => write(fs, file()?, random.range()),
        10 => writable.truncate(&lock.exclusive(), file()?, random.below(200_000)),
        11 => writable.punch(&lock.exclusive(), file()?, random.range()),
        12 => {
            let size = if random.below(2) == 0 { Size::Keep } else { Size::Grow };
            let start = random.below(100_000);
            writable.allocate(&lock.shared(), file()?, start..start + 1 + random.below(100_000), size)
        }
        13 => match random.below(2) {
            0 => writable.insert(&lock.exclusive(), file()?, random.range()),
            _ => writable.collapse(&lock.exclusive(), file()?, random.range()),
        },
        14 => {
            let value = vec![9; random.below(900) as usize];
            // e2fsck 1.47.0 interprets the target of a short link as block numbers if its attribute is in a separate
            // inode. The blocks of that inode count as the link's (`ext2fs_inode_has_valid_blocks2`). Linux has no
            // `user.` attributes on links.
            match file()? {
                ino if fs.getattr(ino)?.kind == FileKind::Symlink => Ok(()),
                ino => fs.xattrs().unwrap().set_xattr(ino, b"user.x", &value, XattrMode::Set),
            }
        }
        _ => {
            let (ino, uid) = (file()?, Some(random.below(1 << 30) as u32));
            writable.set_attr(ino, &SetAttr { uid, ..SetAttr::default() })?;
            if random.below(4) == 0 { writable.sync_file(ino) } else { Ok(()) }
        }
    }
}

/// Returns whether an operation may fail with `error` on a full volume, or on a missing name.
fn is_expected(error: Error) -> bool {
    let expected = [Error::NoSpace, Error::NotFound, Error::Exists, Error::Invalid, Error::NotSupported];
    expected.contains(&error)
}

/// Fills one volume in one mode. Returns the number of operations that failed without space.
fn fill(options: &[&str], size: &str, mode: DataMode, threads: u64) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    call("mke2fs", [&["-q", "-F"][..], options, &[image.to_str().unwrap(), size]].concat()).unwrap();
    let mut refused = 0;
    for round in 0..3 {
        let fs = open(&image, mode);
        let dirs = ["a", "b", "c"].map(|text| directory(&*fs, text));
        let work = |thread: u64| {
            let mut random = Random(SEED + thread * 7919 + round * 104_729);
            let mut refused = 0;
            for step in 0..STEPS {
                match act(&*fs, &dirs, thread, &mut random) {
                    Ok(()) => {}
                    Err(Error::NoSpace) => refused += 1,
                    Err(error) => assert!(is_expected(error), "{options:?} {mode:?} {step}: {error:?}"),
                }
            }
            refused
        };
        refused += thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        let writable = fs.writable().unwrap();
        // In the middle, as after a late crash, which is not tested without a journal.
        if round == 1 && !options.contains(&"ext2") {
            writable.sync().unwrap()
        } else {
            writable.close().unwrap()
        }
        drop(fs);
        if round != 1 {
            call("e2fsck", ["-fn", image.to_str().unwrap()])
                .unwrap_or_else(|error| panic!("{options:?} {mode:?} seed {SEED} round {round}: {error}"));
        }
    }
    refused
}

#[test]
fn a_volume_that_threads_fill_refuses_further_files_and_stays_clean() {
    if !require(TOOLS) {
        return;
    }
    for (options, size) in VOLUMES {
        for mode in [DataMode::Ordered, DataMode::Journal, DataMode::Writeback] {
            for threads in [1, 3] {
                assert!(fill(options, size, mode, threads) > 0, "{options:?} is never full");
            }
        }
    }
}
