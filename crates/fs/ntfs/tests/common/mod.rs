//! Volumes made by `mkntfs` and filled through the mount of `ntfs-3g`, which is the second opinion on their contents.
#![allow(dead_code, reason = "each test uses a part")]

pub mod victim;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use obento_base::{FileKind, Ino, Timestamp};
use obento_block::BlockDevice;
use obento_driver::{Cookie, FileSystem};
use obento_ntfs::NtfsDriver;
use obento_testkit::changes;
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use obento_testkit::trials::format::Format;

/// A volume to make.
pub struct Shape {
    /// A name for people and files.
    pub name: &'static str,
    /// Arguments of `mkntfs`.
    pub mkntfs: &'static [&'static str],
    /// Length in MiB.
    pub mib: u64,
    /// Whether files can be compressed: with clusters of at most 4 KiB.
    pub compresses: bool,
}

const fn shape(name: &'static str, mkntfs: &'static [&'static str], mib: u64, compresses: bool) -> Shape {
    Shape { name, mkntfs, mib, compresses }
}

/// Sectors of 512 to 4096 bytes, clusters of 512 bytes to 2 MiB.
pub const SHAPES: &[Shape] = &[
    shape("512", &["-s", "512", "-c", "512"], 12, true),
    shape("1k", &["-s", "512", "-c", "1024", "-L", "One K"], 16, true),
    shape("2k", &["-s", "1024", "-c", "2048"], 16, true),
    shape("4k", &["-s", "512", "-c", "4096", "-L", "Vier K \u{e4}\u{4e2d}"], 24, true),
    shape("4kn", &["-s", "4096", "-c", "4096"], 24, true),
    shape("8k", &["-s", "2048", "-c", "8192"], 32, false),
    shape("4kn-64k", &["-s", "4096", "-c", "65536"], 64, false),
    shape("64k", &["-s", "512", "-c", "65536", "-I"], 64, false),
    shape("256k", &["-s", "512", "-c", "262144"], 256, false),
    shape("2m", &["-s", "4096", "-c", "2097152"], 1024, false),
    shape("1k-1k", &["-s", "1024", "-c", "1024"], 16, true),
    shape("1k-4k", &["-s", "1024", "-c", "4096", "-z", "4"], 24, true),
    shape("2k-2k", &["-s", "2048", "-c", "2048", "-L", "Zwei"], 16, true),
    shape("2k-4k", &["-s", "2048", "-c", "4096"], 24, true),
    shape("4k-uuid", &["-s", "512", "-c", "4096", "-U", "-C"], 24, true),
    shape("16k", &["-s", "512", "-c", "16384"], 48, false),
    shape("32k", &["-s", "1024", "-c", "32768"], 64, false),
    shape("4kn-16k", &["-s", "4096", "-c", "16384"], 64, false),
    shape("128k", &["-s", "512", "-c", "131072"], 128, false),
    shape("1m", &["-s", "512", "-c", "1048576"], 512, false),
];

/// Returns the shape of this name.
pub fn shape_of(name: &str) -> &'static Shape {
    SHAPES.iter().find(|shape| shape.name == name).expect("a shape")
}

/// Returns whether the programs are here.
pub fn oracles() -> bool {
    let programs = ["mkntfs", "ntfs-3g", "ntfsfix", "ntfsresize", "7zz", "setfattr", "getfattr"];
    require(&programs.map(Oracle::Program)) && require(&[Oracle::Fuse, Oracle::Root])
}

/// A mount of `ntfs-3g`, which is removed on drop.
pub struct Mount(pub PathBuf, Child);

impl Mount {
    /// Mounts `image` below `folder`.
    pub fn new(image: &Path, folder: &Path, options: &str) -> Self {
        let place = folder.join("mount");
        fs::create_dir_all(&place).expect("room");
        let before = fs::metadata(&place).expect("a directory").dev();
        // In the foreground, so that its end is the end of its last write.
        let streams = if options.contains("streams_interface") { "" } else { ",streams_interface=xattr" };
        let options = format!("{options}no_detach{streams}");
        let mut server = program("ntfs-3g");
        server.args([OsStr::new("-o"), options.as_ref(), image.as_ref(), place.as_ref()]);
        let mut server = server.stdout(Stdio::null()).spawn().expect("it starts");
        while fs::metadata(&place).is_ok_and(|stat| stat.dev() == before) {
            assert!(server.try_wait().expect("a child").is_none(), "ntfs-3g refuses {}", image.display());
            std::thread::yield_now();
        }
        Self(place, server)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = || program("umount").arg(&self.0).status().is_ok_and(|status| status.success());
        // While another thread starts a program, that program has the open files of this process until it runs.
        let done = (0..1000).any(|_| unmounted());
        let ended = self.1.wait().is_ok();
        assert!((done && ended) || std::thread::panicking(), "it is unmounted");
    }
}

impl Shape {
    /// Makes an empty volume in `folder`.
    pub fn make(&self, folder: &Path) -> PathBuf {
        let image = folder.join(format!("{}.img", self.name));
        File::create(&image).and_then(|file| file.set_len(self.mib << 20)).expect("room");
        let options = ["-q", "-F", "-p", "0", "-H", "255", "-S", "63"];
        run(program("mkntfs").args(options).args(self.mkntfs).arg(&image))
            .expect("the options are compatible");
        image
    }

    /// Makes a volume with a tree in it.
    pub fn filled(&self, folder: &Path) -> PathBuf {
        let image = self.make(folder);
        let mount = Mount::new(&image, folder, "compression,");
        fill(&mount.0, self.compresses);
        drop(mount);
        image
    }
}

/// Bytes that compress well in some places and badly in others.
pub fn pattern(len: usize) -> Vec<u8> {
    let noise = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
    (0..len).map(|at| if at / 9000 % 3 == 1 { noise(at) } else { (at / 7 % 61) as u8 }).collect()
}

fn fill(root: &Path, compresses: bool) {
    let write = |path: &str, bytes: &[u8]| fs::write(root.join(path), bytes).expect(path);
    for dir in ["names", "sizes", "many", "gone", "d", "d/e", "d/e/f", "sparse", "links", "streams", "packed"]
    {
        fs::create_dir(root.join(dir)).expect(dir);
    }
    let names =
        ["UPPER.TXT", "Mixed Case.html", "\u{fc}ml\u{e4}ut", "\u{1f600}", ".hidden", "\u{4e2d}\u{6587}", "a"];
    names.iter().for_each(|name| write(&format!("names/{name}"), name.as_bytes()));
    write(&format!("names/{}", "x".repeat(255)), b"long");
    for len in [0, 1, 500, 511, 512, 700, 4095, 4096, 4097, 65_536, 100_001] {
        write(&format!("sizes/{len}"), &pattern(len));
    }
    (0..400).for_each(|n| write(&format!("many/entry number {n}"), &[]));
    (0..60).for_each(|n| write(&format!("gone/{n}"), &[7; 900]));
    (0..60).step_by(2).for_each(|n| fs::remove_file(root.join(format!("gone/{n}"))).expect("it was made"));
    write("d/e/f/file", &[1; 600]);
    let mut sparse = File::create(root.join("sparse/holes")).expect("room");
    for at in [0, 300_000, 900_123] {
        sparse.seek(SeekFrom::Start(at)).expect("a file");
        sparse.write_all(&[9; 5000]).expect("room");
    }
    sparse.set_len(1_500_000).expect("room");
    File::create(root.join("sparse/empty")).and_then(|file| file.set_len(700_000)).expect("room");
    write("links/one", b"two names");
    fs::hard_link(root.join("links/one"), root.join("d/two")).expect("links");
    std::os::unix::fs::symlink("../names/a", root.join("links/to a")).expect("links");
    std::os::unix::fs::symlink("nowhere/\u{e4}", root.join("links/dangling")).expect("links");
    let nodes = "mkfifo links/fifo && mknod links/null c 1 3 && mknod links/sda b 8 1 && touch -d @1500000000.123456700 sizes/1";
    run(program("sh").args(["-c", nodes]).current_dir(root)).expect("special files");
    let streams = "touch streams/f && setfattr -n user.note -v hello streams/f && setfattr -n user.other -v \"$(head -c 3000 /dev/zero | tr '\\0' x)\" streams/f && setfattr -n user.dir -v yes streams";
    run(program("sh").args(["-c", streams]).current_dir(root)).expect("streams");
    if compresses {
        let line = "setfattr -h -v 0x00000810 -n system.ntfs_attrib_be packed";
        run(program("sh").args(["-c", line]).current_dir(root)).expect("compression");
    }
    for len in [10, 5000, 65_535, 65_536, 65_537, 300_000] {
        write(&format!("packed/{len}"), &pattern(len));
        write(&format!("packed/{len} of one kind"), &vec![b'q'; len]);
    }
    let mut packed = File::create(root.join("packed/holes")).expect("room");
    packed.write_all(&pattern(70_000)).expect("room");
    packed.seek(SeekFrom::Start(400_000)).expect("a file");
    packed.write_all(&pattern(70_000)).expect("room");
    let extended = File::create(root.join("packed/appended")).expect("room");
    for at in (0..200_000_u64).step_by(10_000) {
        extended.write_at(&pattern(10_000), at).expect("room");
    }
}

/// What is compared of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub ino: u64,
    pub kind: FileKind,
    pub size: u64,
    pub times: [Timestamp; 3],
    pub rdev: (u32, u32),
    pub target: Vec<u8>,
    pub bytes: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub type Tree = BTreeMap<Vec<u8>, Seen>;

/// Returns the tree that the host shows below `root`.
pub fn host_tree(root: &Path) -> Tree {
    let (mut tree, mut todo) = (Tree::new(), vec![PathBuf::new()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(root.join(&dir)).expect("a directory") {
            let path = dir.join(entry.expect("an entry").file_name());
            let stat = fs::symlink_metadata(root.join(&path)).expect("an entry");
            let kind = match stat.file_type() {
                kind if kind.is_dir() => FileKind::Directory,
                kind if kind.is_symlink() => FileKind::Symlink,
                kind if kind.is_fifo() => FileKind::Fifo,
                kind if kind.is_socket() => FileKind::Socket,
                kind if kind.is_char_device() => FileKind::CharDevice,
                kind if kind.is_block_device() => FileKind::BlockDevice,
                _ => FileKind::Regular,
            };
            let full = root.join(&path);
            let time = |secs: i64, nanos: i64| Timestamp::new(secs, nanos as u32);
            let seen = Seen {
                ino: stat.ino(),
                kind,
                size: if kind == FileKind::Regular { stat.len() } else { 0 },
                times: [
                    time(stat.atime(), stat.atime_nsec()),
                    time(stat.mtime(), stat.mtime_nsec()),
                    time(stat.ctime(), stat.ctime_nsec()),
                ],
                rdev: if kind == FileKind::CharDevice || kind == FileKind::BlockDevice {
                    ((stat.rdev() >> 8) as u32, (stat.rdev() & 0xff) as u32)
                } else {
                    (0, 0)
                },
                target: fs::read_link(&full)
                    .map(|target| target.as_os_str().as_bytes().to_vec())
                    .unwrap_or_default(),
                bytes: if kind == FileKind::Regular { fs::read(&full).expect("a file") } else { Vec::new() },
                xattrs: if matches!(kind, FileKind::Regular | FileKind::Directory) {
                    host_xattrs(&full)
                } else {
                    BTreeMap::new()
                },
            };
            if kind == FileKind::Directory {
                todo.push(path.clone());
            }
            tree.insert(path.as_os_str().as_bytes().to_vec(), seen);
        }
    }
    tree
}

fn host_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let output = run(program("getfattr").args(["-h", "-d", "-e", "hex", "--absolute-names"]).arg(path))
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
            let path = if path.is_empty() {
                name.as_bytes().to_vec()
            } else {
                [&path[..], b"/", name.as_bytes()].concat()
            };
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
    let store = volume.xattrs().expect("streams");
    store
        .list_xattrs(ino, &mut |name| {
            xattrs.insert(name.to_vec(), store.get_xattr(ino, name).expect("it is listed"));
        })
        .expect("in use");
    Seen {
        ino: ino.0,
        kind: attr.kind,
        size: if is_regular { attr.size } else { 0 },
        times: [attr.atime, attr.mtime, attr.ctime],
        rdev: (attr.rdev.major, attr.rdev.minor),
        target: if attr.kind == FileKind::Symlink {
            volume.read_link(ino).expect("a link")
        } else {
            Vec::new()
        },
        bytes: if is_regular {
            changes::read(volume, ino, attr.size).expect("a sound file")
        } else {
            Vec::new()
        },
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
        "{} names more, the first of which is {}",
        more.len(),
        String::from_utf8_lossy(more[0])
    );
}

/// Opens an image, to be read.
pub fn open_image(image: &Path) -> Arc<dyn FileSystem> {
    let device: Arc<dyn BlockDevice> =
        Arc::new(obento_host::FileDevice::open(image).expect("the image opens"));
    FORMAT.open(device).expect("the volume opens")
}

/// NTFS, as mkntfs makes it.
pub static FORMAT: Format = Format {
    driver: || Box::new(NtfsDriver::default()),
    make: |name, folder| oracles().then(|| shape_of(name).make(folder)),
    fill: |name, folder| oracles().then(|| shape_of(name).filled(folder)),
    judge: "ntfsfix",
    repair: "-d",
    now: Timestamp::new(1_700_000_000, 0),
};
