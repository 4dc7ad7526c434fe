//! Formats with only files and directories: volumes that their own programs create and check are changed at random, cut
//! off and damaged.
//!
//! Tests without links and owners use [`changes`](crate::changes); [`cuts`](super::cuts) and [`faults`](super::faults)
//! run plans of operations.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use obento_base::{Error, FileKind, Ino, Mode, Name, Result, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{
    Access, CheckOptions, Cookie, Driver, FileSystem, Finding, LayoutLock, NewNode, OpenOptions, RenameFlags,
    SetAttr, Span, TimeChange,
};
use obento_env::{FixedClock, NO_CLOCK};
use tempfile::TempDir;

use super::Judged;
use crate::changes::{Model, close, create, name, node, nothing_worse_than_lost_clusters, read, tree_of};
use crate::mutants::{Random, mutate};
use crate::oracle::{call, program};
use crate::record::{Event, RecordDevice};

/// A format, and the programs that create and check its volumes.
pub struct Format {
    /// Returns the driver.
    pub driver: fn() -> Box<dyn Driver>,
    /// Creates an empty volume of this shape in a folder. Returns `None` if a program is missing.
    pub make: fn(&str, &Path) -> Option<PathBuf>,
    /// Creates a volume with a tree.
    pub fill: fn(&str, &Path) -> Option<PathBuf>,
    /// The checker, which reports damage with `-n`.
    pub judge: &'static str,
    /// The option that enables repair in the checker.
    pub repair: &'static str,
    /// The time while a volume is changed, in the granularity of the format.
    pub now: Timestamp,
}

impl Format {
    /// Returns the options for reading.
    pub fn reading(&self) -> OpenOptions {
        OpenOptions { access: Access::ReadOnly, cache: 256 << 10, ..OpenOptions::new(Arc::new(NO_CLOCK)) }
    }

    /// Returns the options for changes.
    pub fn writing(&self) -> OpenOptions {
        let clock = Arc::new(FixedClock(self.now));
        OpenOptions { access: Access::ReadWrite, cache: 256 << 10, ..OpenOptions::new(clock) }
    }

    /// Opens the volume on `device` for reading.
    pub fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystem>> {
        (self.driver)().open(device, &self.reading())
    }

    /// Opens bytes for reading.
    pub fn open_bytes(&self, bytes: &[u8]) -> Result<Arc<dyn FileSystem>> {
        self.open(Arc::new(MemDevice::read_only(bytes.to_vec())))
    }

    /// Opens the volume on `device` for changes. Panics if that fails.
    pub fn open_to_write(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn FileSystem> {
        (self.driver)().open(device, &self.writing()).expect("the volume opens")
    }

    /// Panics if the checker reports damage in an image.
    pub fn judge(&self, image: &Path) {
        if let Err(error) = call(self.judge, ["-n".as_ref(), image.as_os_str()]) {
            panic!("{error}");
        }
    }

    /// Returns the bytes of a volume with a tree, which is created once per process.
    pub fn filled(&self, shape: &str) -> Option<Arc<[u8]>> {
        static MADE: Mutex<BTreeMap<String, Arc<[u8]>>> = Mutex::new(BTreeMap::new());
        let mut made = MADE.lock().expect("no other test panicked while it held the lock");
        if let Some(bytes) = made.get(shape) {
            return Some(bytes.clone());
        }
        let folder = tempfile::tempdir().expect("a folder");
        let bytes: Arc<[u8]> = fs::read((self.fill)(shape, folder.path())?).expect("it was made").into();
        made.insert(shape.to_owned(), bytes.clone());
        Some(bytes)
    }

    /// Opens a volume with a tree for reading.
    pub fn to_read(&self, shape: &str) -> Option<Arc<dyn FileSystem>> {
        Some(self.open_bytes(&self.filled(shape)?).expect("the volume opens"))
    }

    /// Opens an empty volume for changes, which is checked on drop.
    pub fn to_change(&'static self, shape: &str) -> Option<Judged> {
        let (folder, image, bytes) = self.empty(shape)?;
        let device = Arc::new(MemDevice::new(bytes));
        let fs = self.open_to_write(device.clone());
        Some(Judged::new(fs, move || {
            fs::write(&image, bytes_of(&device)).expect("room");
            self.judge(&image);
            drop(folder);
        }))
    }

    /// Creates an empty volume: its bytes, and a path for it.
    fn empty(&self, shape: &str) -> Option<(TempDir, PathBuf, Vec<u8>)> {
        let folder = tempfile::tempdir().expect("a folder");
        let image = (self.make)(shape, folder.path())?;
        let bytes = fs::read(&image).expect("it was made");
        Some((folder, image, bytes))
    }

    /// Changes a volume and closes it. Returns its bytes, which are also written to `image` and checked.
    fn changed(&self, image: &Path, bytes: Vec<u8>, change: impl FnOnce(&dyn FileSystem)) -> Vec<u8> {
        let device = Arc::new(MemDevice::new(bytes));
        let fs = self.open_to_write(device.clone());
        change(&*fs);
        close(&*fs);
        drop(fs);
        let bytes = bytes_of(&device);
        fs::write(image, &bytes).expect("room");
        self.judge(image);
        bytes
    }

    /// Makes random changes, whose result is that of a model, also after the volume is opened again. `look` gets the
    /// final image.
    pub fn random_changes(&self, shape: &str, seed: u64, look: impl FnOnce(&Path)) {
        let Some((_folder, image, mut bytes)) = self.empty(shape) else { return };
        for round in 0..3 {
            let device = Arc::new(MemDevice::new(bytes));
            let mut model = Model::new(self.open_to_write(device.clone()), seed + round);
            for step in 0..250 {
                model.step();
                if step % 50 == 49 {
                    model.compare(&format!("seed {seed}, round {round}, step {step}"));
                    model.fs.writable().expect("open for changes").sync().expect("a sound device");
                }
            }
            model.compare(&format!("seed {seed}, round {round}"));
            close(&*model.fs);
            bytes = bytes_of(&device);
            fs::write(&image, &bytes).expect("room");
            self.judge(&image);
            let again = self.open_bytes(&bytes).expect("the volume opens");
            assert!(tree_of(&*again) == model.tree, "opened again: seed {seed}, round {round}");
        }
        look(&image);
    }

    /// Cuts the power after each write. The checker examines some of the results, and must be able to repair them.
    pub fn random_cuts(&self, shape: &str, seed: u64) {
        let Some((folder, _, mut bytes)) = self.empty(shape) else { return };
        let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
        let mut model = Model::new(self.open_to_write(device.clone()), seed);
        for step in 0..120 {
            model.step();
            if step % 7 == 6 {
                model.fs.writable().expect("open for changes").sync().expect("a sound device");
            }
        }
        close(&*model.fs);
        let cut = folder.path().join("cut.img");
        for (number, event) in device.take_events().into_iter().enumerate() {
            let Event::Write { offset, bytes: written } = event else { continue };
            bytes[offset as usize..offset as usize + written.len()].copy_from_slice(&written);
            let what = format!("{shape}, seed {seed}, cut after event {number}");
            let fs = self.open_bytes(&bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
            nothing_worse_than_lost_clusters(&*fs, &what);
            if number % 23 == 0 {
                fs::write(&cut, &bytes).expect("room");
                // The exit code 1 reports a repair; afterwards no damage is left.
                let _ = program(self.judge).arg(self.repair).arg(&cut).output().expect("it starts");
                self.judge(&cut);
            }
        }
        assert!(tree_of(&*self.open_bytes(&bytes).expect("the volume opens")) == model.tree);
    }

    /// Tests that a volume is marked as in use from its first change to its close, and that nothing is written before.
    pub fn marks(&self, shape: &str) {
        let Some((_folder, image, before)) = self.empty(shape) else { return };
        let device = Arc::new(MemDevice::new(before.clone()));
        let fs = self.open_to_write(device.clone());
        let state = || self.open_bytes(&bytes_of(&device)).expect("the volume opens").info().state;
        let writable = fs.writable().expect("open for changes");
        writable.sync().expect("a sound device");
        assert!(bytes_of(&device) == before, "nothing was changed");
        create(&*fs, fs.root(), "f", FileKind::Regular).expect("there is room");
        writable.sync().expect("a sound device");
        assert_eq!(state(), "not unmounted cleanly");
        close(&*fs);
        assert_eq!(state(), "clean");
        fs::write(&image, bytes_of(&device)).expect("room");
        self.judge(&image);
    }

    /// Tests that a file keeps its data if it gets the clusters of a directory that was created and removed since the
    /// last commit.
    pub fn reuses_directories(&self, shape: &str) {
        let Some((_folder, image, bytes)) = self.empty(shape) else { return };
        let expected = [vec![5; 100], vec![6; 200_000]].concat();
        let bytes = self.changed(&image, bytes, |fs| {
            let (root, writable) = (fs.root(), fs.writable().expect("open for changes"));
            let file = create(fs, root, "file", FileKind::Regular).expect("there is room");
            let write = |offset: usize, bytes: &[u8]| {
                let lock = LayoutLock::new();
                assert_eq!(writable.write(&lock.shared(), file, offset as u64, bytes), Ok(bytes.len()));
            };
            write(0, &expected[..100]);
            // The cluster of the directory follows that of the file.
            let dir = create(fs, root, "dir", FileKind::Directory).expect("there is room");
            for number in 0..40 {
                let text = format!("entry {number}");
                let ino = create(fs, root, &text, FileKind::Regular).expect("there is room");
                // An entry that is written late.
                writable
                    .rename(root, name(&text), dir, name(&text), RenameFlags::empty())
                    .expect("a free name");
                writable.unlink(dir, name(&text)).expect("a name");
                fs.forget(ino);
            }
            writable.rmdir(root, name("dir")).expect("it is empty");
            fs.forget(dir);
            write(100, &expected[100..]);
            writable.sync().expect("a sound device");
            assert!(read(fs, file, expected.len() as u64).expect("a sound file") == expected);
        });
        let fs = self.open_bytes(&bytes).expect("the volume opens");
        let file = fs.lookup(fs.root(), name("file")).expect("it was made");
        assert!(read(&*fs, file, expected.len() as u64).expect("a sound file") == expected);
    }

    /// Tests that operations which the format does not support fail with the errors of the contract.
    pub fn refuses(&self, shape: &str) {
        let Some((_folder, image, bytes)) = self.empty(shape) else { return };
        self.changed(&image, bytes, |fs| {
            let root = fs.root();
            for kind in [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice] {
                assert_eq!(create(fs, root, "x", kind), Err(Error::NotPermitted));
            }
            let writable = fs.writable().expect("open for changes");
            let link = NewNode { target: b"target", ..node(FileKind::Symlink) };
            assert_eq!(writable.create(root, name("x"), &link).map(drop), Err(Error::NotPermitted));
            for text in ["a:b", "what?", "tail.", "tail ", "a\\b"] {
                assert_eq!(create(fs, root, text, FileKind::Regular), Err(Error::Invalid), "{text}");
            }
            let bytes = Name::new(b"\xff").expect("a name");
            let refused = writable.create(root, bytes, &node(FileKind::Regular));
            assert_eq!(refused.map(drop), Err(Error::Invalid));
            assert_eq!(create(fs, root, &"x".repeat(256), FileKind::Regular), Err(Error::NameTooLong));
            let ino = create(fs, root, &"\u{4e00}".repeat(255), FileKind::Regular).expect("there is room");
            assert_eq!(writable.link(ino, root, name("second")).map(drop), Err(Error::TooManyLinks));
            let owner = SetAttr { uid: Some(1), ..SetAttr::default() };
            assert_eq!(writable.set_attr(ino, &owner).map(drop), Err(Error::NotPermitted));
            let (mode, mtime) = (Some(Mode::new(0o444)), Some(TimeChange::Now));
            let attr = writable.set_attr(ino, &SetAttr { mode, mtime, ..SetAttr::default() });
            let attr = attr.expect("the read-only flag is preserved");
            assert_eq!((attr.mode, attr.mtime), (Mode::new(0o555), self.now));
        });
    }

    /// Tests that with any changed bytes of `sound`, everything ends with a result or an error, in bounded time.
    pub fn mutants(&self, what: &str, sound: &[u8], seeds: Range<u64>) {
        for seed in seeds {
            let mut bytes = sound.to_vec();
            mutate(&mut bytes, &mut Random::new(seed));
            // The output of a failing test.
            println!("{what}, seed {seed}");
            self.look_at_everything(bytes);
        }
    }

    /// Reads everything, within bounds that a sound volume of a test never reaches.
    pub fn look_at_everything(&self, bytes: Vec<u8>) {
        let (driver, device) = ((self.driver)(), Arc::new(MemDevice::read_only(bytes)));
        let len = device.len();
        let _ = driver.probe(&*device);
        let check = driver.check().expect("it checks");
        let options = CheckOptions::new(Arc::new(NO_CLOCK));
        let _ = check.check(device.clone(), &options, &mut Vec::<Finding>::new());
        let Ok(fs) = self.open(device) else { return };
        let _ = (fs.info(), fs.statfs());
        let (mut seen, mut todo, mut entries) = (HashSet::from([fs.root()]), vec![fs.root()], 0);
        while let Some(dir) = todo.pop() {
            let mut children = Vec::new();
            let _ = fs.read_dir(dir, Cookie::START, &mut |entry| {
                entries += 1;
                if let Ok(entry) = entry {
                    children.push((entry.name.to_buf(), entry.ino));
                }
                ControlFlow::Continue(())
            });
            assert!(entries < 1 << 20, "a listing without end");
            let _ = (fs.parent(dir), fs.lookup(dir, name("no such name")));
            for (name, ino) in children {
                let _ = fs.lookup(dir, &name);
                let Ok(attr) = fs.getattr(ino) else { continue };
                if attr.kind == FileKind::Regular {
                    look_at_data(&*fs, ino, attr.size, len);
                } else if seen.insert(ino) {
                    todo.push(ino);
                }
            }
        }
    }
}

fn look_at_data(fs: &dyn FileSystem, ino: Ino, size: u64, device_len: u64) {
    let lock = LayoutLock::new();
    let mut at = 0;
    for _ in 0..2000 {
        let Ok(extent) = fs.map(&lock.shared(), ino, at..size.max(at + 1)) else { return };
        if let Span::Mapped(offset) = extent.span {
            assert!(offset + extent.len <= device_len.max(1 << 40));
        }
        at += extent.len;
        if at >= size {
            return;
        }
    }
}

fn bytes_of(device: &MemDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory can be read");
    bytes
}
