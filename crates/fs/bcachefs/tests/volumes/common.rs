//! Images made by bcachefs-tools 1.25.1 (`format --source`), and what is in them.
//!
//! `tests/data/tree.txt` lists the tree that the images were made from. The contents of `big.bin`, which do not
//! compress, are zeros in the images of the repository, so that its checksums are wrong. `OBENTO_IMAGES` names a folder
//! with the whole images (`bcachefs/plain.img`, `bcachefs/zstd.img`).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::{FileKind, Ino, Name, Result};
use obento_bcachefs::BcachefsDriver;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Cookie, Driver as _, FileSystem, LayoutLock, OpenOptions, Span};
use obento_env::FixedClock;

/// Extents without compression.
pub const PLAIN: &[u8] = include_bytes!("../data/plain.img.zst");
/// Extents with Zstandard.
pub const ZSTD: &[u8] = include_bytes!("../data/zstd.img.zst");
/// The tree: path, type, mode, owner, group, size, time, CRC-32, target.
pub const TREE: &str = include_str!("../data/tree.txt");

/// Returns the bytes of a zstd file.
pub fn unpacked(seed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(seed).expect("a zstd file");
    decoder.read_to_end(&mut bytes).expect("a whole one");
    bytes
}

/// Returns options for reading.
pub fn reading() -> OpenOptions {
    OpenOptions::new(Arc::new(FixedClock::default()))
}

/// Opens a volume.
pub fn open(bytes: Vec<u8>) -> Result<Arc<dyn FileSystem>> {
    open_with(bytes, &reading())
}

/// Opens a volume with options.
pub fn open_with(bytes: Vec<u8>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
    BcachefsDriver.open(Arc::new(MemDevice::read_only(bytes)), options)
}

/// Returns the names of a directory with their inodes.
pub fn names(fs: &dyn FileSystem, dir: Ino) -> BTreeMap<Vec<u8>, Ino> {
    let mut found = BTreeMap::new();
    fs.read_dir(dir, Cookie::START, &mut |entry| {
        let entry = entry.expect("a sound directory");
        assert!(found.insert(entry.name.as_bytes().to_vec(), entry.ino).is_none(), "{:?} twice", entry.name);
        ControlFlow::Continue(())
    })
    .expect("a directory");
    found
}

/// Returns the inode at a path.
pub fn at(fs: &dyn FileSystem, path: &str) -> Result<Ino> {
    let steps = path.split('/').filter(|step| !step.is_empty());
    steps
        .into_iter()
        .try_fold(fs.root(), |dir, step| fs.lookup(dir, Name::new(step.as_bytes()).expect("a name")))
}

/// Reads a whole file as `vfs` does: mapped bytes from the device, the others from the driver.
pub fn contents(fs: &dyn FileSystem, ino: Ino) -> Result<Vec<u8>> {
    let (lock, size) = (LayoutLock::new(), fs.getattr(ino)?.size);
    let layout = lock.shared();
    let mut bytes = vec![0; usize::try_from(size).expect("a small file")];
    let mut at = 0;
    while at < size {
        let extent = fs.map(&layout, ino, at..size)?;
        assert!(extent.len > 0 && extent.len <= size - at, "{extent:?}");
        let mut len = extent.len;
        let range = usize::try_from(at).expect("fits")..usize::try_from(at + len).expect("fits");
        match extent.span {
            Span::Mapped(offset) => fs.device().expect("it has one").read_at(offset, &mut bytes[range])?,
            Span::Hole | Span::Unwritten => {}
            Span::Driver => len = fs.read(&layout, ino, at, &mut bytes[range])? as u64,
        }
        assert!(len > 0, "no progress at {at}");
        at += len;
    }
    Ok(bytes)
}

/// Returns all paths below the root, without those that the format makes itself.
pub fn paths(fs: &dyn FileSystem) -> BTreeMap<String, Ino> {
    let mut found = BTreeMap::from([(String::new(), fs.root())]);
    let mut todo = vec![(String::new(), fs.root())];
    while let Some((path, dir)) = todo.pop() {
        for (name, ino) in names(fs, dir) {
            let name = String::from_utf8(name).expect("UTF-8");
            assert_eq!(fs.lookup(dir, Name::new(name.as_bytes()).expect("a name")), Ok(ino), "{name}");
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            if path == "lost+found" {
                continue;
            }
            if fs.getattr(ino).expect("in use").kind == FileKind::Directory {
                assert_eq!(fs.parent(ino), Ok(dir));
                todo.push((path.clone(), ino));
            }
            found.insert(path, ino);
        }
    }
    found
}
