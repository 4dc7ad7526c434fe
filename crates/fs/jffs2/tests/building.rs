//! Images that the driver builds: read back by the driver and by `jffs2reader`, and the same bytes every time.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::sync::Arc;

use common::{Seen, Tree as Files, compare, open, pattern, tree_of};
use obento_base::{DeviceNumber, Error, FileKind, Mode, Name, Timestamp};
use obento_block::MemDevice;
use obento_driver::tree::{Body, DataId, NodeAttr};
use obento_driver::{
    BuildError, BuildOptions, CheckOptions, Driver as _, FileBytes, FormatError, FormatNotice, FormatOptions,
    FreeSpace, NodeId, Tree, TreeBuilder, Unfit,
};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_jffs2::Jffs2Driver;
use obento_testkit::fault::{Fault, FaultDevice, FaultKind, Lasting, Request};
use obento_testkit::opening::{assert_read_once, formatted};
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;

/// Files by their numbers.
#[derive(Default)]
struct Contents(Vec<Vec<u8>>);

impl FileBytes for Contents {
    fn read_at(&self, data: DataId, offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
        let bytes = self.0[data.0 as usize].get(offset as usize..).ok_or(Error::Invalid)?;
        buf.copy_from_slice(bytes.get(..buf.len()).ok_or(Error::Invalid)?);
        Ok(())
    }
}

/// A tree, its bytes, and what a volume of it must show.
struct Source {
    tree: TreeBuilder,
    contents: Contents,
    expected: Files,
}

fn attr(mode: u16) -> NodeAttr {
    NodeAttr {
        mode: Mode::new(mode),
        uid: 1000,
        gid: 100,
        mtime: Timestamp::new(1_234_567_890, 0),
        xattrs: None,
    }
}

impl Source {
    fn new() -> Self {
        let tree = TreeBuilder::new(attr(0o755));
        Self { tree, contents: Contents::default(), expected: Files::new() }
    }

    fn put(&mut self, dir: (NodeId, &str), name: &str, body: Body, mode: u16, target: &[u8]) -> NodeId {
        let placed = self.tree.put(dir.0, Name::new(name.as_bytes()).unwrap(), body, attr(mode), target);
        let kind = body.kind();
        let rdev = match body {
            Body::CharDevice(number) | Body::BlockDevice(number) => (number.major, number.minor),
            _ => (0, 0),
        };
        let seen = Seen {
            kind,
            mode,
            owner: (1000, 100),
            links: u32::from(kind != FileKind::Directory),
            size: 0,
            mtime: if kind == FileKind::Directory { Timestamp::EPOCH } else { attr(0).mtime },
            rdev,
            target: target.to_vec(),
            bytes: Vec::new(),
            xattrs: BTreeMap::new(),
        };
        let path = if dir.1.is_empty() { name.into() } else { format!("{}/{name}", dir.1) };
        self.expected.insert(path.into_bytes(), seen);
        placed.unwrap().node
    }

    fn file(
        &mut self,
        dir: (NodeId, &str),
        name: &str,
        bytes: Vec<u8>,
        ranges: Option<Vec<Range<u64>>>,
    ) -> NodeId {
        let data = DataId(self.contents.0.len() as u32);
        let size = bytes.len() as u64;
        let node = self.put(dir, name, Body::File { size, data: Some(data) }, 0o640, b"");
        if let Some(ranges) = ranges {
            self.tree.set_data_ranges(node, ranges);
        }
        let path = if dir.1.is_empty() { name.into() } else { format!("{}/{name}", dir.1) };
        let seen = self.expected.get_mut(path.as_bytes()).unwrap();
        (seen.size, seen.bytes) = (size, bytes.clone());
        self.contents.0.push(bytes);
        node
    }

    /// A tree with every kind of file.
    fn full() -> Self {
        let mut source = Self::new();
        let root = (NodeId::ROOT, "");
        let sizes = (source.put(root, "sizes", Body::Directory, 0o1777, b""), "sizes");
        for len in [0, 1, 127, 4095, 4096, 4097, 12_288, 100_001, 300_000] {
            source.file(sizes, &format!("{len}"), pattern(len), None);
            source.file(sizes, &format!("{len} of one kind"), vec![b'q'; len], None);
        }
        let mut holes = vec![0; 250_000];
        for start in [0, 50_000, 150_123] {
            holes[start..start + 5000].fill(9);
        }
        source.file(sizes, "holes", holes, Some(vec![0..5000, 50_000..55_000, 150_123..155_123]));
        source.file(sizes, "one hole", vec![0; 70_000], Some(Vec::new()));
        let names = (source.put(root, "names", Body::Directory, 0o700, b""), "names");
        let linked = source.file(names, &"n".repeat(254), b"linked".to_vec(), None);
        source.tree.link(NodeId::ROOT, Name::new(b"second name").unwrap(), linked).unwrap();
        let path = format!("names/{}", "n".repeat(254)).into_bytes();
        let seen = source.expected.get_mut(&path).unwrap();
        seen.links = 2;
        let seen = seen.clone();
        source.expected.insert(b"second name".to_vec(), seen);
        let many = (source.put(root, "many", Body::Directory, 0o755, b""), "many");
        for n in 0..400 {
            source.put(many, &format!("entry {n}"), Body::Fifo, 0o600, b"");
        }
        source.put(root, "link", Body::Symlink, 0o777, b"names/x");
        source.put(root, "long link", Body::Symlink, 0o777, &[b'l'; 3000]);
        source.put(root, "socket", Body::Socket, 0o644, b"");
        source.put(root, "null", Body::CharDevice(DeviceNumber { major: 1, minor: 3 }), 0o666, b"");
        source.put(root, "big", Body::BlockDevice(DeviceNumber { major: 259, minor: 70_000 }), 0o660, b"");
        source.attributes(sizes.0, "sizes");
        source.attributes(linked, "second name");
        source.attributes(linked, std::str::from_utf8(&path).unwrap());
        source
    }

    fn attributes(&mut self, node: NodeId, path: &str) {
        // An access control list of version 2: owner, user 33, group, mask, others.
        let acl: Vec<u8> =
            [(1, 7, u32::MAX), (2, 4, 33), (4, 5, u32::MAX), (16, 5, u32::MAX), (32, 5, u32::MAX)]
                .into_iter()
                .fold(vec![2, 0, 0, 0], |mut list, (tag, rights, id): (u16, u16, u32)| {
                    list.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
                    list
                });
        let list = [
            (b"user.note".to_vec(), b"hello".to_vec()),
            (b"trusted.big".to_vec(), pattern(3000)),
            (b"security.empty".to_vec(), Vec::new()),
            (b"system.posix_acl_access".to_vec(), acl),
        ];
        let pairs = list.iter().map(|(name, value)| (name.clone().into(), value.clone().into()));
        let set = self.tree.xattrs(pairs).unwrap();
        self.tree.attr_mut(node).unwrap().xattrs = set;
        self.expected.get_mut(path.as_bytes()).unwrap().xattrs = list.into_iter().collect();
    }
}

fn options(settings: &str, len: Option<u64>) -> BuildOptions {
    let pairs = settings.split_whitespace().map(|setting| setting.split_once('=').unwrap_or((setting, "")));
    let settings = pairs.map(|(name, value)| (name.into(), value.into())).collect();
    let format = FormatOptions::new("jffs2", Arc::new(NO_CLOCK), Arc::new(FixedRandom(1)));
    BuildOptions { format: FormatOptions { settings, len, ..format }, room: FreeSpace::Free(10) }
}

fn build(tree: &Tree, contents: &Contents, options: &BuildOptions) -> Result<Vec<u8>, BuildError> {
    let mut plan = Jffs2Driver.build().unwrap().plan_with(tree, options, contents)?;
    let device = MemDevice::new(vec![0; plan.device_len() as usize]);
    plan.write(&device)?;
    Ok(device.snapshot())
}

const SHAPES: &[&str] = &[
    "",
    "big-endian pad",
    "little-endian no-cleanmarkers eraseblock=128KiB",
    "compressor=none eraseblock=16KiB",
    "compressor=rtime pad big-endian",
    "compressor=smallest pagesize=16384",
    "eraseblock=8192 pagesize=512 cleanmarker=20",
];

#[test]
fn built_images_read_back_as_their_tree_and_have_the_same_bytes_again() {
    let source = Source::full();
    let tree = source.tree.finish();
    for settings in SHAPES {
        let bytes = build(&tree, &source.contents, &options(settings, None)).unwrap();
        assert!(bytes == build(&tree, &source.contents, &options(settings, None)).unwrap(), "{settings}");
        let volume = open(bytes.clone());
        compare(&tree_of(&*volume), &source.expected);
        let root = volume.getattr(volume.root()).unwrap();
        assert_eq!((root.mtime, root.mode.bits(), root.nlink), (attr(0).mtime, 0o755, 5));
        let mut found = Vec::new();
        let check = CheckOptions::new(Arc::new(NO_CLOCK));
        Jffs2Driver
            .check()
            .unwrap()
            .check(Arc::new(MemDevice::read_only(bytes)), &check, &mut found)
            .unwrap();
        assert_eq!(found, [], "{settings}");
    }
}

#[test]
fn mtd_utils_read_built_images_as_their_tree() {
    if !require(&["jffs2reader", "jffs2dump"].map(Oracle::Program)) {
        return;
    }
    let mut source = Source::full();
    // Its buffer for the target of a link is shorter.
    source.tree.remove(NodeId::ROOT, Name::new(b"long link").unwrap());
    source.expected.remove(&b"long link"[..]);
    let tree = source.tree.finish();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    // The program supports neither rtime nor the other byte order.
    for settings in ["pad", "compressor=none no-cleanmarkers eraseblock=16KiB"] {
        fs::write(&image, build(&tree, &source.contents, &options(settings, None)).unwrap()).unwrap();
        let dumped = run(program("jffs2dump").arg("-c").arg(&image)).unwrap();
        let dumped = String::from_utf8_lossy(&dumped.stdout).into_owned();
        assert!(!dumped.contains("Wrong") && dumped.lines().count() > 900, "{settings}");
        let listed = run(program("jffs2reader").arg(&image).args(["-r", "-d", "/"])).unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        for (path, seen) in &source.expected {
            let path = format!("/{}", String::from_utf8_lossy(path));
            assert!(listed.contains(&path), "{settings}: {path} is not listed");
            // The program reads files of one node alone, also from images of mkfs.jffs2.
            if seen.kind == FileKind::Regular && seen.size < 128 {
                let read = run(program("jffs2reader").arg(&image).arg("-f").arg(&path)).unwrap();
                assert!(read.stdout == seen.bytes, "{settings}: {path}");
            }
        }
    }
}

#[test]
fn an_image_is_padded_to_its_size() {
    let mut source = Source::new();
    source.file((NodeId::ROOT, ""), "file", b"data".to_vec(), None);
    let tree = source.tree.finish();
    let bytes = build(&tree, &source.contents, &options("", Some(1 << 20))).unwrap();
    assert_eq!((bytes.len(), bytes[1000..].iter().all(|&byte| byte == 0xff)), (1 << 20, true));
    assert_eq!(build(&tree, &source.contents, &options("pad", None)).unwrap().len(), 64 << 10);
    let short = build(&tree, &source.contents, &options("pad", Some(4096))).unwrap_err();
    assert_eq!(short, BuildError::TooSmall { len: 4096, needed: 64 << 10 });
}

#[test]
fn files_that_the_format_cannot_store_are_all_reported() {
    let mut source = Source::new();
    let root = (NodeId::ROOT, "");
    let (long, empty) = ("x".repeat(255), Vec::new());
    source.put(root, &long, Body::Fifo, 0o644, b"");
    source.put(root, "large", Body::File { size: 1 << 32, data: None }, 0o644, b"");
    source.put(root, "device", Body::CharDevice(DeviceNumber { major: 4096, minor: 0 }), 0o644, b"");
    source.put(root, "target", Body::Symlink, 0o777, &[b'x'; 4096]);
    let old = source.put(root, "time", Body::Fifo, 0o644, b"");
    source.tree.attr_mut(old).unwrap().mtime = Timestamp::new(-1, 0);
    let strange = source.put(root, "xattr", Body::Fifo, 0o644, b"");
    let set = source.tree.xattrs([(b"system.other".to_vec().into(), empty.into())]).unwrap();
    source.tree.attr_mut(strange).unwrap().xattrs = set;
    let tree = source.tree.finish();
    let Err(BuildError::Unfit(found)) = build(&tree, &source.contents, &options("", None)) else {
        panic!("it fits");
    };
    let mut found: Vec<_> = found.iter().map(|(id, why)| (tree.path(*id), *why)).collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("/device", Unfit::Device),
        ("/large", Unfit::Size(u32::MAX.into())),
        ("/target", Unfit::Target(4095)),
        ("/time", Unfit::Time),
        ("/xattr", Unfit::XattrName),
        (&format!("/{long}"), Unfit::Name(254)),
    ];
    assert_eq!(found, expected.map(|(path, why)| (path.as_bytes().to_vec(), why)));
}

#[test]
fn owners_that_do_not_fit_are_reported() {
    let mut source = Source::new();
    let node = source.put((NodeId::ROOT, ""), "file", Body::Fifo, 0o644, b"");
    source.tree.attr_mut(node).unwrap().uid = 100_000;
    let tree = source.tree.finish();
    let options = options("", None);
    let plan = Jffs2Driver.build().unwrap().plan_with(&tree, &options, &source.contents).unwrap();
    assert_eq!(plan.formatted().notices, [FormatNotice::Lost { what: "owners", files: 1 }]);
}

#[test]
fn settings_are_verified() {
    let tree = TreeBuilder::new(attr(0o755)).finish();
    let error = |settings| match build(&tree, &Contents::default(), &options(settings, None)) {
        Err(BuildError::Format(error)) => error.to_string(),
        other => panic!("{settings}: {other:?}"),
    };
    assert!(error("eraseblock=5000").contains("invalid value '5000' for eraseblock"));
    assert!(error("compressor=brotli").contains("zlib, rtime, none or smallest"));
    assert!(error("pad=1").contains("no value"));
    assert!(error("other").contains("unknown setting 'other'"));
    assert!(error("eraseblock=4096 pagesize=4096").contains("requires larger erase blocks"));
}

#[test]
fn an_empty_volume_is_created_and_recognised() {
    let format = Jffs2Driver.format().unwrap();
    let device = MemDevice::new(vec![7; 300_000]);
    let made = format.format(&device, &options("big-endian", None).format).unwrap();
    assert_eq!((made.blocks, made.block_size), (4, 65_536));
    let volume = open(device.snapshot());
    assert_eq!(tree_of(&*volume).len(), 0);
    let info = volume.info();
    assert!(info.facts.iter().any(|fact| fact.value == "big-endian"));
    assert!(info.facts.iter().any(|fact| fact.name == "erase block size" && fact.value == "65536"));
    let refused = format.plan(1 << 20, &options("no-cleanmarkers", None).format).unwrap_err();
    assert!(matches!(refused, FormatError::Needs { .. }));
    assert!(matches!(format.plan(100, &options("", None).format), Err(FormatError::TooSmall { .. })));
}

#[test]
fn an_interruption_while_an_empty_volume_is_created_leaves_no_volume() {
    let format = Jffs2Driver.format().unwrap();
    let old = MemDevice::new(vec![7; 300_000]);
    format.format(&old, &options("big-endian", None).format).unwrap();
    // As an old volume whose first erase block is erased.
    let mut erased = old.snapshot();
    erased[..65_536].fill(0xff);
    for old in [old.snapshot(), erased] {
        assert!(Jffs2Driver.probe(&MemDevice::new(old.clone())).unwrap().is_some());
        let whole = FaultDevice::new(MemDevice::new(old.clone()), None);
        format.format(&whole, &options("", None).format).unwrap();
        // The first write erases the start.
        for nth in 1..whole.count(Request::Write) {
            let (request, lasting, failure) = (Request::Write, Lasting::ForGood, FaultKind::Io);
            let fault = Fault { request, nth, lasting, failure };
            let device = FaultDevice::new(MemDevice::new(old.clone()), Some(fault));
            format.format(&device, &options("", None).format).unwrap_err();
            assert!(Jffs2Driver.probe(&device).unwrap().is_none(), "write {nth}");
        }
    }
}

#[test]
fn jefferson_extracts_built_images_as_their_tree() {
    if !require(&[Oracle::PythonModule("jefferson")]) {
        return;
    }
    let source = Source::full();
    let tree = source.tree.finish();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for settings in SHAPES {
        fs::write(&image, build(&tree, &source.contents, &options(settings, None)).unwrap()).unwrap();
        common::compare_with_jefferson(&image, &source.expected, settings);
    }
}

#[test]
fn a_probe_a_check_and_an_open_decode_the_first_node_once() {
    assert_read_once(&Jffs2Driver, formatted(&Jffs2Driver, "jffs2", 1 << 20), 0, 12);
}
