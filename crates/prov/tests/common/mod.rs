//! Recorded volumes, and what their logs contain.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod farm;
pub mod replay;
pub mod volumes;

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use obento_base::{Ino, Name, Timestamp};
use obento_driver::{Access, Cookie, DirEntry, Driver as _, FileSystem, OpenOptions};
use obento_env::FixedClock;
use obento_exfat::ExFatDriver;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_prov::{Actor, DIRECTORY, FixedWho, LogOptions, Recorded, segment_number};
use obento_testkit::oracle::{Oracle, call};
use obento_testkit::require;
use obento_tmpfs::{Options, Tmpfs};

pub fn clock() -> Arc<FixedClock> {
    Arc::new(FixedClock(Timestamp::new(1_700_000_000, 1)))
}

/// The process that tests use.
pub fn actor(pid: u32) -> Actor {
    Actor { pid, ..Actor::default() }.with_comm(b"test")
}

pub fn tmpfs(size: u64) -> Arc<dyn FileSystem> {
    Arc::new(Tmpfs::new(Options { size, inodes: 60_000, ..Options::new(clock()) }))
}

/// Records the changes of `inner`.
pub fn recorded(inner: Arc<dyn FileSystem>, options: LogOptions) -> Arc<Recorded> {
    Recorded::open(inner, Arc::new(FixedWho(actor(7))), clock(), options).unwrap()
}

/// Creates an ext4 image at `path`; returns whether the oracles exist.
pub fn make_ext4(path: &Path) -> bool {
    make_ext4_of(path, 32 << 20)
}

/// Creates an ext4 image of `len` bytes at `path`; returns whether the oracles exist.
pub fn make_ext4_of(path: &Path, len: u64) -> bool {
    make_ext4_with(path, len, 500)
}

/// Creates an ext4 image of `len` bytes with at least `inodes` inodes; returns whether the oracles exist.
pub fn make_ext4_with(path: &Path, len: u64, inodes: u32) -> bool {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return false;
    }
    File::create(path).and_then(|file| file.set_len(len)).unwrap();
    let arguments = ["-q", "-F", "-t", "ext4", "-N", &inodes.to_string()].map(Into::into);
    call("mke2fs", arguments.into_iter().chain([path.as_os_str().to_owned()])).unwrap();
    true
}

pub fn open_ext4(path: &Path) -> Arc<dyn FileSystem> {
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock()) };
    Ext4Driver.open(Arc::new(FileDevice::open_writable(path).unwrap()), &options).unwrap()
}

/// Returns the names and inodes of a directory, without `.` and `..`.
pub fn list(fs: &dyn FileSystem, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut found = Vec::new();
    fs.read_dir(dir, Cookie::START, &mut |entry: obento_base::Result<DirEntry<'_>>| {
        let entry = entry.unwrap();
        if !matches!(entry.name.as_bytes(), b"." | b"..") {
            found.push((entry.name.as_bytes().to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

/// Returns the segments of the volume that is recorded, in ascending order. The first one may contain compacted edges.
pub fn segments(inner: &Arc<dyn FileSystem>) -> Vec<Vec<u8>> {
    let dir = inner.lookup(inner.root(), Name::new(DIRECTORY.as_bytes()).unwrap()).unwrap();
    let mut numbered: Vec<(u32, Ino)> = list(&**inner, dir)
        .into_iter()
        .filter_map(|(name, ino)| segment_number(&name).map(|number| (number, ino)))
        .collect();
    numbered.sort_unstable();
    let vfs = obento_vfs::Vfs::new(Arc::clone(inner));
    let read = |(_, ino)| {
        let node = vfs.node(ino).unwrap();
        let mut bytes = vec![0; usize::try_from(node.attr().unwrap().size).unwrap()];
        let len = node.read_at(0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    };
    numbered.into_iter().map(read).collect()
}

/// Creates an exFAT image at `path`; returns whether the oracles exist.
pub fn make_exfat(path: &Path) -> bool {
    if !require(&[Oracle::Program("mkfs.exfat"), Oracle::Program("fsck.exfat")]) {
        return false;
    }
    File::create(path).and_then(|file| file.set_len(32 << 20)).unwrap();
    call("mkfs.exfat", [path.as_os_str()]).unwrap();
    true
}

pub fn open_exfat(path: &Path) -> Arc<dyn FileSystem> {
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock()) };
    ExFatDriver::default().open(Arc::new(FileDevice::open_writable(path).unwrap()), &options).unwrap()
}
