//! The two moments in the life of an inode at which another thread could take its number away. These are after the
//! driver looked it up, and while the driver forgets it.

mod common;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use common::{Short, clock, name, new_node};
use obento_base::{Attr, Error, FileKind, Ino, Name, Result};
use obento_driver::{
    Cookie, EntrySink, Extent, FileSystem, Layout, Limits, StatFs, VolumeInfo, WritableFileSystem,
};
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::{Caller, Config, Vfs};

/// Turns that the other thread gets: far more than it needs, if nothing holds it back.
const TURNS: u32 = 20_000;

/// A tmpfs that signals another thread, once each, when it has looked up an inode or is about to forget one, and lets
/// it run.
struct Paused {
    fs: Tmpfs,
    in_lookup: Mutex<Option<Sender<()>>>,
    in_forget: Mutex<Option<Sender<()>>>,
    done: AtomicBool,
}

impl Paused {
    fn pause(&self, at: &Mutex<Option<Sender<()>>>) {
        let Some(go) = at.lock().unwrap().take() else { return };
        go.send(()).unwrap();
        (0..TURNS).take_while(|_| !self.done.load(Ordering::SeqCst)).for_each(|_| std::thread::yield_now());
    }
}

fn paused() -> (Arc<Paused>, Vfs) {
    let fs = Arc::new(Paused {
        fs: Tmpfs::new(Options::new(clock())),
        in_lookup: Mutex::new(None),
        in_forget: Mutex::new(None),
        done: AtomicBool::new(false),
    });
    // Without a cache, so that each lookup reaches the driver.
    let config = Config { names: 0, ..Config::default() };
    (Arc::clone(&fs), Vfs::with(fs, config))
}

#[test]
fn a_number_is_not_given_away_between_the_drivers_answer_and_its_first_use() {
    let (fs, vfs) = paused();
    let root = vfs.root();
    let generation = root.file("f").attr().unwrap().generation;
    let (go, started) = channel();
    let (fs, vfs) = (&*fs, &vfs);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            started.recv().unwrap();
            vfs.unlink(&Caller::Owner, &vfs.root(), name("f")).unwrap();
            vfs.root().dir("another");
            fs.done.store(true, Ordering::SeqCst);
        });
        *fs.in_lookup.lock().unwrap() = Some(go);
        let node = root.get("f").unwrap();
        let attr = node.attr().unwrap();
        assert_eq!((attr.kind, attr.generation), (FileKind::Regular, generation));
    });
}

#[test]
fn a_number_is_not_taken_up_while_its_inode_is_being_forgotten() {
    let (fs, vfs) = paused();
    let root = vfs.root();
    let file = root.file("f");
    let ino = file.ino();
    vfs.unlink(&Caller::Owner, &root, name("f")).unwrap();
    let (go, started) = channel();
    let (fs, vfs) = (&*fs, &vfs);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            started.recv().unwrap();
            let found = vfs.node(ino);
            fs.done.store(true, Ordering::SeqCst);
            found.map(|node| node.attr().map(drop))
        });
        *fs.in_forget.lock().unwrap() = Some(go);
        drop(file);
        assert_eq!(other.join().unwrap(), Err(Error::Stale));
    });
}

#[test]
fn inodes_known_only_to_the_cache_are_freed_with_their_name_and_others_are_found_again() {
    let (fs, vfs) = common::volume();
    let root = vfs.root();
    drop((root.file("f"), root.dir("d").file("x")));
    let kept = root.file("g");
    assert_eq!((fs.inodes_in_use(), vfs.nodes_in_use()), (5, 5), "the cache holds them");
    assert_eq!(vfs.rmdir(&Caller::Owner, &root, name("d")), Err(Error::NotEmpty));
    vfs.unlink(&Caller::Owner, &root, name("f")).unwrap();
    vfs.unlink(&Caller::Owner, &root, name("g")).unwrap();
    assert_eq!((fs.inodes_in_use(), kept.attr().unwrap().nlink), (4, 0));
    assert_eq!(root.get("f").unwrap_err(), Error::NotFound);
    drop(kept);
    assert_eq!(fs.inodes_in_use(), 3);
    let sub = root.get("d").unwrap();
    vfs.unlink(&Caller::Owner, &sub, name("x")).unwrap();
    drop(sub);
    vfs.rmdir(&Caller::Owner, &root, name("d")).unwrap();
    assert_eq!((fs.inodes_in_use(), vfs.nodes_in_use()), (1, 1));
}

#[test]
fn what_fails_to_be_made_leaves_nothing_in_use() {
    let (_, vfs) = paused();
    let root = vfs.root();
    let kept = root.file("f");
    let before = vfs.nodes_in_use();
    let made = vfs.create(&Caller::Owner, &root, name("f"), &new_node(FileKind::Regular, 0o644));
    assert_eq!((made, vfs.nodes_in_use()), (Err(Error::Exists), before));
    drop(kept);
    assert_eq!(vfs.nodes_in_use(), before - 1);
}

impl FileSystem for Paused {
    fn root(&self) -> Ino {
        self.fs.root()
    }
    fn limits(&self) -> Limits {
        self.fs.limits()
    }
    fn info(&self) -> VolumeInfo {
        self.fs.info()
    }
    fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }
    fn device(&self) -> Option<&Arc<dyn obento_block::BlockDevice>> {
        self.fs.device()
    }
    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let found = self.fs.lookup(dir, name);
        self.pause(&self.in_lookup);
        found
    }
    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.fs.parent(dir)
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.fs.getattr(ino)
    }
    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.fs.read_dir(dir, from, sink)
    }
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.fs.read_link(ino)
    }
    fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.fs.map(layout, ino, range)
    }
    fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(layout, ino, offset, buf)
    }
    fn forget(&self, ino: Ino) {
        self.pause(&self.in_forget);
        self.fs.forget(ino);
    }
    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.fs.writable()
    }
}
