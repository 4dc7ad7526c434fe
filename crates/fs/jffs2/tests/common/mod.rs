//! Images made by `mkfs.jffs2` from a directory, and images made node by node.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::crc::crc32_le;
use obento_base::{FileKind, Ino, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Cookie, Driver as _, FileSystem, OpenOptions};
use obento_env::NO_CLOCK;
use obento_jffs2::{Jffs2Driver, Order};
use obento_testkit::oracle::{Oracle, program, python, run, shell};
use obento_testkit::{changes, require};

/// Returns whether the programs are present.
pub fn oracles() -> bool {
    require(&["mkfs.jffs2", "sumtool", "jffs2reader", "setfattr", "setfacl"].map(Oracle::Program))
        && require(&[Oracle::Root])
}

/// Bytes that compress well in some places and badly in others.
pub fn pattern(len: usize) -> Vec<u8> {
    let noise = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
    (0..len).map(|at| if at / 9000 % 3 == 1 { noise(at) } else { (at / 7 % 61) as u8 }).collect()
}

/// Fills a directory of the host.
pub fn fill(root: &Path) {
    let write = |path: &str, bytes: &[u8]| fs::write(root.join(path), bytes).expect(path);
    for dir in ["sizes", "many", "d", "d/e", "d/e/f", "links", "names", "xattrs"] {
        fs::create_dir_all(root.join(dir)).expect(dir);
    }
    for len in [0, 1, 500, 4095, 4096, 4097, 65_536, 100_001, 300_000] {
        write(&format!("sizes/{len}"), &pattern(len));
        write(&format!("sizes/{len} of one kind"), &vec![b'q'; len]);
    }
    (0..300).for_each(|n| write(&format!("many/entry number {n}"), &[]));
    write("d/e/f/file", &[1; 600]);
    let long = "x".repeat(254);
    [".hidden", "\u{fc}ml\u{e4}ut", "with space", &long]
        .iter()
        .for_each(|name| write(&format!("names/{name}"), name.as_bytes()));
    let holes = File::create(root.join("sizes/holes")).expect("room");
    [0, 50_000, 150_123].iter().for_each(|&at| holes.write_all_at(&[9; 5000], at).expect("room"));
    holes.set_len(250_000).expect("room");
    let lines = "ln sizes/500 links/one && ln sizes/500 d/two && ln -s ../names/x links/to && ln -s \"$(printf %0200d 1)\" links/long \
        && mkfifo links/fifo && mknod links/null c 1 3 && mknod links/sdb1 b 8 17 \
        && chown 1000:100 sizes/1 && chmod 4711 sizes/1 && touch -d @1500000000 sizes/1 d/e && chmod 1777 d \
        && touch xattrs/f && setfattr -n user.note -v hello xattrs/f && setfattr -n trusted.t -v x xattrs/f \
        && setfattr -n security.s -v \"$(head -c 3000 /dev/zero | tr '\\0' y)\" xattrs/f \
        && setfattr -n user.note -v hello xattrs && setfacl -m u:33:r,g:7:rwx xattrs/f && setfacl -d -m u:5:rx xattrs";
    shell(root, lines).expect("the file system of the host has all kinds of files");
}

/// What is compared of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub kind: FileKind,
    pub mode: u16,
    pub owner: (u32, u32),
    pub links: u32,
    pub size: u64,
    pub mtime: Timestamp,
    pub rdev: (u32, u32),
    pub target: Vec<u8>,
    pub bytes: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub type Tree = BTreeMap<Vec<u8>, Seen>;

/// Returns the tree that the host shows below `root`. Times have whole seconds.
pub fn host_tree(root: &Path) -> Tree {
    let (mut tree, mut todo) = (Tree::new(), vec![PathBuf::new()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(root.join(&dir)).expect("a directory") {
            let path = dir.join(entry.expect("an entry").file_name());
            let full = root.join(&path);
            let stat = fs::symlink_metadata(&full).expect("an entry");
            let kind = match stat.file_type() {
                kind if kind.is_dir() => FileKind::Directory,
                kind if kind.is_symlink() => FileKind::Symlink,
                kind if kind.is_fifo() => FileKind::Fifo,
                kind if kind.is_socket() => FileKind::Socket,
                kind if kind.is_char_device() => FileKind::CharDevice,
                kind if kind.is_block_device() => FileKind::BlockDevice,
                _ => FileKind::Regular,
            };
            let rdev = stat.rdev();
            let seen = Seen {
                kind,
                mode: (stat.mode() & 0o7777) as u16,
                owner: (stat.uid(), stat.gid()),
                links: if kind == FileKind::Directory { 0 } else { stat.nlink() as u32 },
                size: if kind == FileKind::Regular { stat.len() } else { 0 },
                mtime: time_of(kind, Timestamp::new(stat.mtime(), 0)),
                rdev: if kind.is_device() {
                    ((rdev >> 8 & 0xfff) as u32, (rdev & 0xff | rdev >> 12 & 0xf_ff00) as u32)
                } else {
                    (0, 0)
                },
                target: fs::read_link(&full).map(|it| it.as_os_str().as_bytes().to_vec()).unwrap_or_default(),
                bytes: if kind == FileKind::Regular { fs::read(&full).expect("a file") } else { Vec::new() },
                xattrs: host_xattrs(&full, kind),
            };
            if kind == FileKind::Directory {
                todo.push(path.clone());
            }
            tree.insert(path.as_os_str().as_bytes().to_vec(), seen);
        }
    }
    tree
}

/// Compares the files that jefferson extracts from an image with a tree: types, contents and targets. jefferson extracts
/// a file with several names under one of them.
pub fn compare_with_jefferson(image: &Path, expected: &Tree, shown: &str) {
    let out = image.with_extension("extracted");
    run(python().args(["-m", "jefferson.cli", "-f", "-d"]).args([&out, image])).expect("it extracts");
    let found = host_tree(&out);
    let is_compared =
        |seen: &Seen| matches!(seen.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
    for (path, seen) in expected.iter().filter(|(_, seen)| is_compared(seen)) {
        let name = String::from_utf8_lossy(path);
        match found.get(path) {
            None => assert!(seen.links > 1, "{shown}: {name} is missing"),
            Some(theirs) => {
                assert_eq!((theirs.kind, &theirs.target), (seen.kind, &seen.target), "{shown}: {name}");
                assert!(theirs.bytes == seen.bytes, "{shown}: {name}");
            }
        }
    }
    fs::remove_dir_all(out).expect("a directory");
}

/// Returns the time of a file. The time of a directory is that of its newest entry, which `mkfs.jffs2` takes from the file.
fn time_of(kind: FileKind, time: Timestamp) -> Timestamp {
    if kind == FileKind::Directory { Timestamp::EPOCH } else { time }
}

fn host_xattrs(path: &Path, kind: FileKind) -> BTreeMap<Vec<u8>, Vec<u8>> {
    if !matches!(kind, FileKind::Regular | FileKind::Directory) || !path.to_string_lossy().contains("xattrs")
    {
        return BTreeMap::new();
    }
    let output =
        run(program("getfattr").args(["-h", "-d", "-m", "-", "-e", "hex", "--absolute-names"]).arg(path))
            .expect("a file");
    let text = String::from_utf8(output.stdout).expect("names of ASCII");
    let value = |hex: &str| {
        (2..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    };
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, hex)| (name.as_bytes().to_vec(), value(hex))).collect()
}

/// Returns the tree that a volume has.
pub fn tree_of(volume: &dyn FileSystem) -> Tree {
    let (mut tree, mut todo) = (Tree::new(), vec![(Vec::new(), volume.root())]);
    while let Some((path, dir)) = todo.pop() {
        let mut children = Vec::new();
        let mut sink = |entry: obento_base::Result<obento_driver::DirEntry<'_>>| {
            let entry = entry.expect("a sound directory");
            children.push((entry.name.to_buf(), entry.ino));
            ControlFlow::Continue(())
        };
        volume.read_dir(dir, Cookie::START, &mut sink).expect("a directory");
        for (name, ino) in children {
            assert_eq!(volume.lookup(dir, &name), Ok(ino), "{name}");
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [&path[..], slash, name.as_bytes()].concat();
            let seen = seen(volume, ino);
            if seen.kind == FileKind::Directory {
                todo.push((path.clone(), ino));
            }
            tree.insert(path, seen);
        }
    }
    tree
}

fn seen(volume: &dyn FileSystem, ino: Ino) -> Seen {
    let attr = volume.getattr(ino).expect("in use");
    let is_regular = attr.kind == FileKind::Regular;
    let mut xattrs = BTreeMap::new();
    let store = volume.xattrs().expect("the format has attributes");
    let mut sink = |name: &[u8]| {
        xattrs.insert(name.to_vec(), store.get_xattr(ino, name).expect("it is listed"));
    };
    store.list_xattrs(ino, &mut sink).expect("in use");
    let is_link = attr.kind == FileKind::Symlink;
    Seen {
        kind: attr.kind,
        mode: attr.mode.bits(),
        owner: (attr.uid, attr.gid),
        links: if attr.is_dir() { 0 } else { attr.nlink },
        size: if is_regular { attr.size } else { 0 },
        mtime: time_of(attr.kind, attr.mtime),
        rdev: (attr.rdev.major, attr.rdev.minor),
        target: if is_link { volume.read_link(ino).expect("a link") } else { Vec::new() },
        bytes: if is_regular { changes::read(volume, ino, attr.size).expect("sound") } else { Vec::new() },
        xattrs,
    }
}

/// Panics at the first difference between two trees.
pub fn compare(found: &Tree, expected: &Tree) {
    for (path, seen) in expected {
        let shown = String::from_utf8_lossy(path);
        let ours = found.get(path).unwrap_or_else(|| panic!("{shown} is missing"));
        let short = |seen: &Seen| Seen { bytes: Vec::new(), ..seen.clone() };
        assert_eq!(short(ours), short(seen), "{shown}");
        let at = ours.bytes.iter().zip(&seen.bytes).position(|(ours, theirs)| ours != theirs);
        assert!(ours.bytes == seen.bytes, "{shown} differs at {at:?} of {}", seen.bytes.len());
    }
    let more: Vec<_> = found.keys().filter(|path| !expected.contains_key(*path)).collect();
    assert!(
        more.is_empty(),
        "{} more names: {:?}",
        more.len(),
        more.first().map(|it| String::from_utf8_lossy(it))
    );
}

/// Opens bytes.
pub fn open(bytes: Vec<u8>) -> Arc<dyn FileSystem> {
    open_device(Arc::new(MemDevice::read_only(bytes)))
}

/// Opens a device.
pub fn open_device(device: Arc<dyn BlockDevice>) -> Arc<dyn FileSystem> {
    let options = OpenOptions { cache: 256 << 10, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    Jffs2Driver.open(device, &options).expect("the volume opens")
}

/// Makes an image of a tree with these arguments of `mkfs.jffs2`.
pub fn make(folder: &Path, tree: &Path, arguments: &str) -> Vec<u8> {
    let image = folder.join("image");
    let words = arguments.split_whitespace();
    run(program("mkfs.jffs2").args(words).arg("-r").arg(tree).arg("-o").arg(&image))
        .expect("the options are compatible");
    fs::read(&image).expect("it was made")
}

/// Returns an image with a tree, made once for each process.
pub fn filled() -> Option<Vec<u8>> {
    static MADE: std::sync::OnceLock<Option<Vec<u8>>> = std::sync::OnceLock::new();
    let made = MADE.get_or_init(|| {
        oracles().then(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let tree = folder.path().join("tree");
            fs::create_dir(&tree).expect("room");
            fill(&tree);
            make(folder.path(), &tree, "-l -e 64KiB -p --with-xattr")
        })
    });
    made.clone()
}

/// An image that is made node by node.
pub struct Flash {
    pub bytes: Vec<u8>,
    order: Order,
}

/// A field of four, of two or of one byte, or bytes.
pub enum Part<'a> {
    Word(u32),
    Half(u16),
    Byte(u8),
    Bytes(&'a [u8]),
}
use Part::{Byte, Bytes, Half, Word};

/// The type of a file in its mode, and in an entry.
pub const DIR: u32 = 0o040_755;
pub const FILE: u32 = 0o100_644;

impl Flash {
    /// Starts an image with a clean marker.
    pub fn new(order: Order) -> Self {
        let mut flash = Self { bytes: Vec::new(), order };
        flash.node(0x2003, &[]);
        flash
    }

    fn put(&self, bytes: &mut Vec<u8>, part: &Part<'_>) {
        let is_little = self.order == Order::Little;
        match *part {
            Word(word) => bytes.extend(if is_little { word.to_le_bytes() } else { word.to_be_bytes() }),
            Half(half) => bytes.extend(if is_little { half.to_le_bytes() } else { half.to_be_bytes() }),
            Byte(byte) => bytes.push(byte),
            Bytes(more) => bytes.extend(more),
        }
    }

    /// Appends a node, and returns its position.
    pub fn node(&mut self, kind: u16, parts: &[Part<'_>]) -> usize {
        let mut body = Vec::new();
        parts.iter().for_each(|part| self.put(&mut body, part));
        let mut node = Vec::new();
        [Half(0x1985), Half(kind), Word(12 + body.len() as u32)]
            .iter()
            .for_each(|part| self.put(&mut node, part));
        let sum = crc32_le(0, &node);
        self.put(&mut node, &Word(sum));
        node.extend(body);
        node.resize(node.len().next_multiple_of(4), 0xff);
        let at = self.bytes.len();
        self.bytes.extend(node);
        at
    }

    /// Returns the checksum of a header and of fields.
    fn sum(&self, kind: u16, len: usize, parts: &[Part<'_>]) -> u32 {
        let mut node = Vec::new();
        [Half(0x1985), Half(kind), Word(len as u32)].iter().for_each(|part| self.put(&mut node, part));
        let sum = crc32_le(0, &node);
        self.put(&mut node, &Word(sum));
        parts.iter().for_each(|part| self.put(&mut node, part));
        crc32_le(0, &node)
    }

    /// Appends an inode node: number, version, mode, size of the file, offset, codec and length of the data.
    pub fn inode(
        &mut self,
        ino: u32,
        version: u32,
        mode: u32,
        size: u32,
        at: u32,
        data: (u8, u32, &[u8]),
    ) -> usize {
        let (codec, len, bytes) = data;
        let head = || {
            [
                Word(ino),
                Word(version),
                Word(mode),
                Half(7),
                Half(8),
                Word(size),
                Word(100),
                Word(200 + version),
                Word(300),
                Word(at),
                Word(bytes.len() as u32),
                Word(len),
                Byte(codec),
                Byte(0),
                Half(0),
            ]
        };
        let sum = self.sum(0xe002, 68 + bytes.len(), &head());
        let mut parts = Vec::from(head());
        parts.extend([Word(crc32_le(0, bytes)), Word(sum), Bytes(bytes)]);
        self.node(0xe002, &parts)
    }

    /// Appends plain data.
    pub fn data(&mut self, ino: u32, version: u32, size: u32, at: u32, bytes: &[u8]) -> usize {
        self.inode(ino, version, FILE, size, at, (0, bytes.len() as u32, bytes))
    }

    /// Appends an entry: directory, version, inode, type, name.
    pub fn entry(&mut self, dir: u32, version: u32, ino: u32, kind: u8, name: &str) -> usize {
        let name = name.as_bytes();
        let head = || {
            [
                Word(dir),
                Word(version),
                Word(ino),
                Word(1000 + version),
                Byte(name.len() as u8),
                Byte(kind),
                Half(0),
            ]
        };
        let sum = self.sum(0xe001, 40 + name.len(), &head());
        let mut parts = Vec::from(head());
        parts.extend([Word(sum), Word(crc32_le(0, name)), Bytes(name)]);
        self.node(0xe001, &parts)
    }

    /// Appends an extended attribute of users.
    pub fn xattr(&mut self, id: u32, version: u32, name: &str, value: &[u8]) {
        let data = [name.as_bytes(), b"\0", value].concat();
        let head = || {
            [
                Word(id),
                Word(version),
                Byte(1),
                Byte(name.len() as u8),
                Half(value.len() as u16),
                Word(crc32_le(0, &data)),
            ]
        };
        // The length of this type of node includes the padding.
        let padding = vec![0xff; data.len().next_multiple_of(4) - data.len()];
        let sum = self.sum(0xe008, 32 + data.len() + padding.len(), &head());
        let mut parts = Vec::from(head());
        parts.extend([Word(sum), Bytes(&data), Bytes(&padding)]);
        self.node(0xe008, &parts);
    }

    /// Appends a use of an extended attribute.
    pub fn xref(&mut self, ino: u32, id: u32, sequence: u32) {
        let head = || [Word(ino), Word(id), Word(sequence)];
        let sum = self.sum(0xe009, 28, &head());
        let mut parts = Vec::from(head());
        parts.push(Word(sum));
        self.node(0xe009, &parts);
    }

    /// Opens the image.
    pub fn open(&self) -> Arc<dyn FileSystem> {
        open(self.bytes.clone())
    }
}

/// Returns the paths of a volume with the bytes of the files.
pub fn paths(volume: &dyn FileSystem) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    tree_of(volume).iter().map(|(path, seen)| (text(path), text(&seen.bytes))).collect()
}
