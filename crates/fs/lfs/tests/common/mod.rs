//! Volumes of a writer of our own, and helpers to read them.

#![allow(dead_code, reason = "not every test program uses every helper")]

pub mod recipe;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::{FileKind, Ino, Name, Result};
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{Cookie, Driver as _, FileSystem, LayoutLock, OpenOptions, Span};
use obento_env::NO_CLOCK;
use obento_lfs::LfsDriver;
use recipe::{End, Recipe, Width};

/// Every kind of volume.
pub fn recipes() -> Vec<Recipe> {
    let mut all = Vec::new();
    for width in [Width::One, Width::Two, Width::Wide] {
        for is_big_endian in [false, true] {
            for end in [End::Clean, End::CleanInSecond, End::Crash, End::CrashInOperation] {
                all.push(Recipe { width, is_big_endian, end });
            }
        }
    }
    all
}

/// Opens a volume for reading.
pub fn open(bytes: Vec<u8>) -> Result<Arc<dyn FileSystem>> {
    LfsDriver.open(Arc::new(MemDevice::read_only(bytes)), &OpenOptions::new(Arc::new(NO_CLOCK)))
}

/// Returns the inode at a path.
pub fn at(fs: &dyn FileSystem, path: &str) -> Result<Ino> {
    let mut steps = path.split('/').filter(|step| !step.is_empty());
    steps.try_fold(fs.root(), |dir, step| fs.lookup(dir, Name::new(step.as_bytes()).expect("a name")))
}

/// Returns the names of a directory.
pub fn names(fs: &dyn FileSystem, dir: Ino) -> BTreeMap<String, (Ino, Option<FileKind>)> {
    let mut found = BTreeMap::new();
    fs.read_dir(dir, Cookie::START, &mut |entry| {
        let entry = entry.expect("no damage");
        let name = String::from_utf8(entry.name.as_bytes().to_vec()).expect("UTF-8");
        assert!(found.insert(name, (entry.ino, entry.kind)).is_none());
        ControlFlow::Continue(())
    })
    .expect("a directory");
    found
}

/// Reads bytes of a file as `vfs` does.
pub fn read(fs: &dyn FileSystem, ino: Ino, from: u64, len: u64) -> Result<Vec<u8>> {
    let (lock, mut at) = (LayoutLock::new(), from);
    let mut bytes = vec![0; len as usize];
    while at < from + len {
        let extent = fs.map(&lock.shared(), ino, at..from + len)?;
        assert!(extent.len > 0 && extent.len <= from + len - at, "{extent:?}");
        let range = (at - from) as usize..(at - from + extent.len) as usize;
        if let Span::Mapped(offset) = extent.span {
            fs.device().expect("it has one").read_at(offset, &mut bytes[range.clone()])?;
            let mut again = vec![0; range.len()];
            let read = fs.read(&lock.shared(), ino, at, &mut again)?;
            assert_eq!(again[..read], bytes[range][..read]);
        }
        at += extent.len;
    }
    Ok(bytes)
}

/// Reads a whole file.
pub fn contents(fs: &dyn FileSystem, path: &str) -> Result<Vec<u8>> {
    let ino = at(fs, path)?;
    read(fs, ino, 0, fs.getattr(ino)?.size)
}
