//! Opening images and reading everything in them.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod formats;
pub mod volumes;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use obento_base::{Attr, Error, FileKind, Ino, Name, NameBuf, Result};
use obento_block::BlockDevice;
use obento_driver::{Cookie, FileSystem, LayoutLock, OpenOptions, Span};
use obento_env::NO_CLOCK;
use obento_ext4::{Ext4, open_volume};
use obento_host::FileDevice;
use obento_testkit::oracle::{LoopMount, call};

/// Maximum number of entries of a walk: more than any image of the tests has.
const MAX_ENTRIES: usize = 1 << 20;
/// Maximum number of bytes that are read of one file.
const MAX_BYTES: u64 = 16 << 20;

pub fn options() -> OpenOptions {
    OpenOptions::new(Arc::new(NO_CLOCK))
}

pub fn device(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(path).expect("the image opens"))
}

pub fn open(path: &Path) -> Result<Ext4> {
    open_volume(device(path), &options()).map(Ext4::new)
}

/// The results of reading a whole volume.
#[derive(Default, Debug)]
pub struct Everything {
    pub entries: Vec<(Vec<u8>, Attr)>,
    pub errors: Vec<(Vec<u8>, Error)>,
    pub bytes: u64,
}

/// Lists every directory, and reads every attribute, link target and byte.
pub fn read_everything(fs: &Ext4) -> Everything {
    let mut all = Everything::default();
    let mut seen = HashSet::new();
    let mut stack = vec![(fs.root(), Vec::new())];
    while let Some((dir, path)) = stack.pop() {
        if !seen.insert(dir) {
            continue;
        }
        if let Err(error) = fs.parent(dir) {
            all.errors.push((path.clone(), error));
        }
        for (name, ino) in list(fs, dir, &path, &mut all) {
            let mut path = path.clone();
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
            match visit(fs, ino, &mut all) {
                Ok(attr) => {
                    if attr.is_dir() {
                        stack.push((ino, path.clone()));
                    }
                    all.entries.push((path, attr));
                }
                Err(error) => all.errors.push((path, error)),
            }
            assert!(all.entries.len() < MAX_ENTRIES, "the walk does not end");
        }
    }
    all
}

fn list(fs: &Ext4, dir: Ino, path: &[u8], all: &mut Everything) -> Vec<(NameBuf, Ino)> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    let listed = fs.read_dir(dir, Cookie::START, &mut |entry| {
        match entry {
            Ok(entry) => found.push((entry.name.to_buf(), entry.ino)),
            Err(error) => errors.push(error),
        }
        assert!(found.len() + errors.len() < MAX_ENTRIES, "the listing does not end");
        ControlFlow::Continue(())
    });
    errors.extend(listed.err());
    all.errors.extend(errors.into_iter().map(|error| (path.to_vec(), error)));
    for (name, ino) in &found {
        match fs.lookup(dir, name) {
            Ok(again) if again == *ino => {}
            // Two entries may share a name in a damaged directory.
            Ok(_) => {}
            Err(error) => all.errors.push((path.to_vec(), error)),
        }
    }
    found
}

fn visit(fs: &Ext4, ino: Ino, all: &mut Everything) -> Result<Attr> {
    let attr = fs.getattr(ino)?;
    let xattrs = fs.xattrs().expect("ext4 has attributes");
    let mut names = Vec::new();
    let path = format!("<{ino}>").into_bytes();
    if let Err(error) = xattrs.list_xattrs(ino, &mut |name| names.push(name.to_vec())) {
        all.errors.push((path.clone(), error));
    }
    for name in names {
        if let Err(error) = xattrs.get_xattr(ino, &name) {
            all.errors.push((path.clone(), error));
        }
    }
    match attr.kind {
        FileKind::Symlink => {
            let target = fs.read_link(ino)?;
            assert!(!target.is_empty());
        }
        FileKind::Regular => read_file(fs, ino, attr.size, all),
        _ => {}
    }
    Ok(attr)
}

fn read_file(fs: &Ext4, ino: Ino, size: u64, all: &mut Everything) {
    let path = format!("<{ino}>").into_bytes();
    read_pieces(fs, ino, size, &mut |_, piece| match piece {
        Ok(bytes) => all.bytes += bytes.len() as u64,
        Err(error) => all.errors.push((path.clone(), error)),
    });
}

/// Passes every piece of a file that is not a hole to `each`, up to [`MAX_BYTES`] in total, or the error of reading
/// it.
pub fn read_pieces(fs: &Ext4, ino: Ino, size: u64, each: &mut dyn FnMut(u64, Result<&[u8]>)) {
    let (lock, mut buf) = (LayoutLock::new(), vec![0; 65536]);
    let layout = lock.shared();
    let (mut at, mut read, mut steps) = (0, 0, 0);
    while at < size && read < MAX_BYTES && steps < 100_000 {
        steps += 1;
        let extent = match fs.map(&layout, ino, at..size) {
            Ok(extent) => extent,
            Err(error) => {
                each(at, Err(error));
                at += 65536;
                continue;
            }
        };
        assert!(extent.len > 0 && extent.len <= size - at);
        let len = extent.len.min(65536) as usize;
        let done = match extent.span {
            Span::Hole | Span::Unwritten => {
                at += extent.len;
                continue;
            }
            Span::Mapped(offset) => fs.device().unwrap().read_at(offset, &mut buf[..len]).map(|()| len),
            Span::Driver => fs.read(&layout, ino, at, &mut buf[..len]),
        };
        match done {
            Ok(done) => {
                assert!(done > 0, "a mapped run has bytes");
                each(at, Ok(&buf[..done]));
                at += done as u64;
                read += done as u64;
            }
            Err(error) => {
                each(at, Err(error));
                at += len as u64;
            }
        }
    }
}

pub fn find(fs: &Ext4, dir: Ino, name: &str) -> Ino {
    fs.lookup(dir, Name::new(name.as_bytes()).unwrap()).unwrap()
}

/// Returns our listing, which is read a few hundred entries per call.
pub fn our_order(fs: &Ext4, dir: Ino) -> Vec<(NameBuf, Ino)> {
    let mut all = Vec::new();
    let mut from = Cookie::START;
    loop {
        let before = all.len();
        fs.read_dir(dir, from, &mut |entry| {
            let entry = entry.expect("nothing is damaged");
            from = entry.next;
            all.push((entry.name.to_buf(), entry.ino));
            if all.len() - before < 333 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
        if all.len() == before {
            return all;
        }
    }
}

/// Returns the result of the kernel's `getdents`, in its order, without `.` and `..`.
pub fn kernel_order(folder: &Path) -> Vec<Vec<u8>> {
    let names = call("ls", ["-f".as_ref(), "--zero".as_ref(), folder.as_os_str()]).unwrap().stdout;
    let names = names.split(|&byte| byte == 0).filter(|name| !matches!(*name, [] | b"." | b".."));
    names.map(Vec::from).collect()
}

/// Compares order and inode numbers of one directory with the kernel's, then looks up each name.
pub fn assert_lists_as_the_kernel(image: &Path, path: &str) -> usize {
    let fs = open(image).unwrap();
    let dir = find(&fs, fs.root(), path);
    let ours = our_order(&fs, dir);
    let mount = LoopMount::new(image, "ro").unwrap();
    let folder = mount.path().join(path);
    let theirs = kernel_order(&folder);
    assert_eq!(ours.len(), theirs.len());
    for (at, ((name, ino), theirs)) in ours.iter().zip(&theirs).enumerate() {
        let theirs = String::from_utf8_lossy(theirs);
        assert_eq!(String::from_utf8_lossy(name.as_bytes()), theirs, "the order differs at entry {at}");
        assert_eq!(fs.lookup(dir, name), Ok(*ino), "{name}");
    }
    for (name, ino) in ours.iter().step_by(97) {
        let file = folder.join(std::ffi::OsStr::from_bytes(name.as_bytes()));
        assert_eq!(std::fs::symlink_metadata(file).unwrap().ino(), ino.0);
    }
    assert_eq!(fs.parent(dir), Ok(fs.root()));
    assert_eq!(fs.lookup(dir, Name::new(b"absent").unwrap()), Err(Error::NotFound));
    mount.unmount().unwrap();
    ours.len()
}
