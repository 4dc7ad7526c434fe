//! A volume to try things on, and short words for what tests do all the time.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;

use obento_base::{DeviceNumber, FileKind, Mode, Name, Result, Timestamp};
use obento_block::MemDevice;
use obento_driver::{FileSystem, NewNode};
use obento_env::{Clock, FixedClock};
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::{Caller, Node, Symlinks, Vfs};

pub fn clock() -> Arc<dyn Clock> {
    Arc::new(FixedClock(Timestamp::new(1_000_000, 5)))
}

/// A volume whose files are in memory.
pub fn volume() -> (Arc<Tmpfs>, Vfs) {
    with(Options::new(clock()))
}

/// A volume whose files are on a device full of bytes that were never written.
pub fn volume_on_device() -> (Arc<Tmpfs>, Vfs) {
    let device = Arc::new(MemDevice::new(vec![0xdd; 4 << 20]));
    with(Options { device: Some(device), ..Options::new(clock()) })
}

pub fn with(options: Options) -> (Arc<Tmpfs>, Vfs) {
    let fs = Arc::new(Tmpfs::new(options));
    (Arc::clone(&fs), Vfs::new(fs as Arc<dyn FileSystem>))
}

pub fn name(bytes: &str) -> &Name {
    Name::new(bytes.as_bytes()).unwrap()
}

pub fn new_node(kind: FileKind, mode: u16) -> NewNode<'static> {
    let target = if kind == FileKind::Symlink { &b"target"[..] } else { b"" };
    NewNode { kind, mode: Mode::new(mode), uid: 0, gid: 0, rdev: DeviceNumber::default(), target }
}

pub fn user(uid: u32, gid: u32) -> Caller {
    Caller::User { uid, gid, groups: vec![] }
}

/// What the image's owner does.
pub trait Short {
    fn file(&self, name: &str) -> Node;
    fn dir(&self, name: &str) -> Node;
    fn symlink(&self, name: &str, target: &str) -> Node;
    fn get(&self, name: &str) -> Result<Node>;
    fn walk(&self, path: &str) -> Result<Node>;
    fn names(&self) -> Vec<String>;
    fn bytes(&self) -> Vec<u8>;
}

impl Short for Node {
    fn file(&self, file: &str) -> Node {
        let new = new_node(FileKind::Regular, 0o644);
        self.vfs().create(&Caller::Owner, self, name(file), &new).unwrap()
    }

    fn dir(&self, dir: &str) -> Node {
        let new = new_node(FileKind::Directory, 0o755);
        self.vfs().create(&Caller::Owner, self, name(dir), &new).unwrap()
    }

    fn symlink(&self, link: &str, target: &str) -> Node {
        let new = NewNode { target: target.as_bytes(), ..new_node(FileKind::Symlink, 0o777) };
        self.vfs().create(&Caller::Owner, self, name(link), &new).unwrap()
    }

    fn get(&self, file: &str) -> Result<Node> {
        self.lookup(name(file))
    }

    fn walk(&self, path: &str) -> Result<Node> {
        self.vfs().resolve(self, path.as_bytes(), Symlinks::Follow, &Caller::Owner)
    }

    fn names(&self) -> Vec<String> {
        let mut names = vec![];
        let mut sink = |entry: Result<obento_driver::DirEntry<'_>>| {
            names.push(entry.unwrap().name.to_string());
            std::ops::ControlFlow::Continue(())
        };
        self.read_dir(Default::default(), &mut sink).unwrap();
        names
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0xaa; self.attr().unwrap().size as usize + 9];
        let len = self.read_at(0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }
}
