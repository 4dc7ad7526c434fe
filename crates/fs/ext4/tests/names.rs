//! Creating, renaming and removing names, checked with e2fsck and with the kernel's mount.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::{Attr, DeviceNumber, Error, FileKind, Ino, Mode, Name, Result, Timestamp};
use obento_driver::{Access, Driver, FileSystem, NewNode, OpenOptions, RenameFlags, WritableFileSystem};
use obento_env::FixedClock;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::conformance::renames;
use obento_testkit::mutants::Random;
use obento_testkit::oracle::{LoopMount, Oracle, call, program, require, run};

const TOOLS: &[Oracle] = &[
    Oracle::Program("mke2fs"),
    Oracle::Program("debugfs"),
    Oracle::Program("e2fsck"),
    Oracle::Program("ls"),
    Oracle::LoopMount,
];
const NOW: Timestamp = Timestamp::new(1_700_000_000, 5);
const MOVE: RenameFlags = RenameFlags::empty();

/// An image that is open for changes.
struct Volume {
    folder: tempfile::TempDir,
    fs: Arc<dyn FileSystem>,
}

fn node(kind: FileKind) -> NewNode<'static> {
    let target: &[u8] = if kind == FileKind::Symlink { b"target" } else { b"" };
    let rdev = DeviceNumber { major: 8, minor: 70_000 };
    NewNode { kind, mode: Mode::new(0o750), uid: 1000, gid: 100_000, rdev, target }
}

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
}

impl Volume {
    fn new(len: &str, options: &[&str]) -> Self {
        Self::prepared(len, options, |_| {})
    }

    /// Creates a volume whose image `prepare` can change before it is opened.
    fn prepared(len: &str, options: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let fixed = ["-q", "-F", "-m", "0"];
        call("mke2fs", [&fixed[..], options, &[image.to_str().unwrap(), len]].concat()).unwrap();
        prepare(&image);
        let device = Arc::new(FileDevice::open_writable(&image).unwrap());
        let clock = Arc::new(FixedClock(NOW));
        let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
        let fs = Ext4Driver.open(device, &options).unwrap();
        Self { folder, fs }
    }

    fn root(&self) -> Ino {
        self.fs.root()
    }

    fn writable(&self) -> &dyn WritableFileSystem {
        self.fs.writable().unwrap()
    }

    fn make(&self, dir: Ino, text: &str, kind: FileKind) -> Result<Ino> {
        self.writable().create(dir, name(text), &node(kind)).map(|attr| attr.ino)
    }

    fn dir(&self, dir: Ino, text: &str) -> Ino {
        self.make(dir, text, FileKind::Directory).unwrap()
    }

    fn file(&self, dir: Ino, text: &str) -> Ino {
        self.make(dir, text, FileKind::Regular).unwrap()
    }

    fn link(&self, ino: Ino, dir: Ino, text: &str) -> Result<()> {
        self.writable().link(ino, dir, name(text)).map(drop)
    }

    /// Removes a name of any type, and forgets its inode.
    fn remove(&self, dir: Ino, text: &str) -> Result<()> {
        let ino = self.fs.lookup(dir, name(text))?;
        match self.attr(ino).kind {
            FileKind::Directory => self.writable().rmdir(dir, name(text))?,
            _ => self.writable().unlink(dir, name(text))?,
        }
        self.fs.forget(ino);
        Ok(())
    }

    fn rename(&self, from: (Ino, &str), to: (Ino, &str), flags: RenameFlags) -> Result<()> {
        self.writable().rename(from.0, name(from.1), to.0, name(to.1), flags)
    }

    fn attr(&self, ino: Ino) -> Attr {
        self.fs.getattr(ino).unwrap()
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Closes the volume: e2fsck must find nothing, and the kernel, if used, must show the same as this driver.
    fn check(self, what: &str, kernel: Kernel) {
        self.writable().close().unwrap();
        let (image, folder) = (self.image(), self.folder);
        drop(self.fs);
        let output = program("e2fsck").arg("-fn").arg(&image).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{what}: {text}");
        if kernel == Kernel::Compared {
            compare(&image, what);
        }
        drop(folder);
    }
}

/// Whether the kernel is used, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    Compared,
    /// The kernel cannot mount such a volume.
    Unable,
}

impl Kernel {
    /// Some kernels are built without Unicode.
    fn for_options(options: &[&str]) -> Self {
        if options.contains(&"casefold") { Self::Unable } else { Self::Compared }
    }
}

/// Compares every path with inode, mode, link count and size between the kernel and this driver.
fn compare(image: &Path, what: &str) {
    let fs = common::open(image).unwrap();
    let all = common::read_everything(&fs);
    assert_eq!(all.errors, [], "{what}");
    let line = |ino, mode, links, size| format!("{ino} {mode:o} {links} {size}");
    let ours: BTreeMap<Vec<u8>, String> = all
        .entries
        .iter()
        .map(|(path, attr)| {
            let line = line(attr.ino.0, u32::from(attr.st_mode()), u64::from(attr.nlink), attr.size);
            (path[1..].to_vec(), line)
        })
        .collect();
    let mount = LoopMount::new(image, "ro").unwrap();
    let theirs: BTreeMap<Vec<u8>, String> = walkdir::WalkDir::new(mount.path())
        .min_depth(1)
        .into_iter()
        .map(|entry| {
            let entry = entry.unwrap();
            let meta = fs::symlink_metadata(entry.path()).unwrap();
            let path = entry.path().strip_prefix(mount.path()).unwrap().as_os_str().as_bytes().to_vec();
            (path, line(meta.ino(), meta.mode(), meta.nlink(), meta.size()))
        })
        .collect();
    assert!(ours == theirs, "{what}: the kernel lists other names than obento");
    mount.unmount().unwrap();
}

const COMBINATIONS: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
    &["-t", "ext4", "-b", "1024", "-O", "^dir_index"],
    &["-t", "ext4", "-b", "1024", "-O", "large_dir,orphan_file"],
    &["-t", "ext4", "-b", "1024", "-O", "inline_data"],
    &["-t", "ext4", "-O", "inline_data,^dir_index", "-I", "1024"],
    &["-t", "ext4", "-I", "128"],
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-O", "casefold", "-E", "encoding=utf8,hash_seed=00112233-4455-6677-8899-aabbccddeeff"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-b", "2048"],
    &["-t", "ext2", "-O", "^filetype,^dir_index"],
];

const KINDS: [FileKind; 6] = [
    FileKind::Regular,
    FileKind::Symlink,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
];

#[test]
fn names_of_every_kind_in_directories_of_every_form_are_what_e2fsck_and_the_kernel_expect() {
    if !require(TOOLS) {
        return;
    }
    for options in COMBINATIONS {
        let volume = Volume::new("24M", &[options, &["-N", "4096"][..]].concat());
        let root = volume.root();
        for (n, kind) in KINDS.into_iter().enumerate() {
            volume.make(root, &format!("kind{n}"), kind).unwrap();
            volume.make(root, &format!("gone{n}"), kind).unwrap();
            volume.remove(root, &format!("gone{n}")).unwrap();
        }
        for len in [59, 60, 700, 1023] {
            let long = NewNode { target: &vec![b'x'; len], ..node(FileKind::Symlink) };
            volume.writable().create(root, name(&format!("long{len}")), &long).unwrap();
        }
        // Inline, at the limit of inline data, in a block.
        let dirs: Vec<_> = (0..20).map(|n| volume.dir(root, &format!("d{n}"))).collect();
        for (n, dir) in dirs.iter().enumerate() {
            for file in 0..n {
                volume.file(*dir, &format!("file{file:0>20}"));
            }
        }
        volume.remove(dirs[5], "file00000000000000000003").unwrap();
        assert_eq!(volume.remove(root, "d5"), Err(Error::NotEmpty));
        volume.remove(root, "d0").unwrap();
        let wide = volume.dir(root, "wide");
        let first = volume.file(wide, "first");
        for n in 0..1500 {
            volume.link(first, wide, &format!("a name of middling length {n}")).unwrap();
        }
        assert_eq!(volume.make(wide, "first", FileKind::Fifo), Err(Error::Exists));
        for n in (0..1500).step_by(2) {
            volume.remove(wide, &format!("a name of middling length {n}")).unwrap();
        }
        for n in (1..1500).step_by(4) {
            let old = format!("a name of middling length {n}");
            volume.rename((wide, &old), (wide, &format!("renamed {n}")), MOVE).unwrap();
        }
        assert_eq!(volume.attr(first).nlink, 751);
        volume.rename((root, "d7"), (dirs[8], "moved"), MOVE).unwrap();
        volume.rename((root, "kind0"), (dirs[3], "moved"), RenameFlags::NO_REPLACE).unwrap();
        volume.rename((root, "d9"), (dirs[3], "moved"), RenameFlags::EXCHANGE).unwrap();
        volume.rename((root, "d10"), (root, "d11"), RenameFlags::EXCHANGE).unwrap();
        let (replaced, empty) = (volume.file(root, "replaced"), volume.dir(root, "empty"));
        volume.rename((root, "kind4"), (root, "replaced"), MOVE).unwrap();
        volume.rename((root, "d12"), (root, "empty"), MOVE).unwrap();
        volume.fs.forget(replaced);
        volume.fs.forget(empty);
        volume.check(&format!("{options:?}"), Kernel::for_options(options));
    }
}

#[test]
fn a_directory_grows_by_levels_and_shrinks_in_hash_order_as_the_kernel_lists_it() {
    if !require(TOOLS) {
        return;
    }
    for (options, count, levels) in [
        (&["-b", "1024"][..], 12_000, "Indirect levels: 1"),
        (&["-b", "1024", "-O", "^metadata_csum"], 12_000, "Indirect levels: 1"),
        (&["-b", "1024", "-O", "large_dir"], 45_000, "Indirect levels: 2"),
        (&["-b", "4096"], 20_000, "Indirect levels: 1"),
    ] {
        let volume = Volume::new("96M", &[&["-t", "ext4", "-N", "64"], options].concat());
        let dir = volume.dir(volume.root(), "deep");
        let file = volume.file(volume.root(), "file");
        // The link count limits the number of names of one file.
        for n in 0..count {
            volume.link(file, dir, &format!("{n:0>250}")).unwrap();
        }
        for n in (0..count).step_by(3) {
            volume.remove(dir, &format!("{n:0>250}")).unwrap();
        }
        for n in (0..count).step_by(3) {
            volume.link(file, dir, &format!("{n:x>200}")).unwrap();
        }
        assert_eq!(volume.attr(file).nlink, count + 1);
        let what = format!("{options:?}");
        volume.writable().close().unwrap();
        let image = volume.image();
        let dump = run(program("debugfs").args(["-R", "htree_dump /deep"]).arg(&image)).unwrap();
        assert!(String::from_utf8_lossy(&dump.stdout).contains(levels), "{what}");
        call("e2fsck", ["-fn", image.to_str().unwrap()]).unwrap();
        assert_eq!(common::assert_lists_as_the_kernel(&image, "deep"), count as usize);
    }
}

#[test]
fn names_without_case_are_made_and_removed_through_an_index() {
    if !require(TOOLS) {
        return;
    }
    let fold = |image: &Path| {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, "mkdir any\nsif any flags 0x40080000\n").unwrap();
        run(program("debugfs").args(["-w", "-f", script.to_str().unwrap()]).arg(image)).unwrap();
    };
    let options = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "casefold",
        "-E",
        "encoding=utf8,hash_seed=00112233-4455-6677-8899-aabbccddeeff",
    ];
    let volume = Volume::prepared("16M", &options, fold);
    let dir = volume.fs.lookup(volume.root(), name("any")).unwrap();
    let text = |n: usize| ["Straße-", "ΣΊΣΥΦΟΣ-", "Ångström-", "plain-"][n % 4].to_owned() + &n.to_string();
    for n in 0..400 {
        volume.file(dir, &text(n));
        assert_eq!(volume.make(dir, &text(n).to_uppercase(), FileKind::Fifo), Err(Error::Exists));
    }
    for n in (0..400).step_by(3) {
        volume.remove(dir, &text(n).to_lowercase()).unwrap();
    }
    let inner = volume.dir(dir, "Inner");
    volume.file(inner, "Übung");
    assert!(volume.fs.lookup(inner, name("übung")).is_ok(), "a new directory ignores case too");
    volume.rename((inner, "übung"), (inner, "ÜBUNG"), MOVE).unwrap();
    volume.check("casefold", Kernel::Unable);
}

#[test]
fn a_directory_with_more_than_65000_subdirectories_stops_counting_them() {
    if !require(TOOLS) {
        return;
    }
    // An inline directory takes no block.
    let volume = Volume::new("64M", &["-t", "ext4", "-O", "inline_data,dir_nlink", "-N", "66000"]);
    let dir = volume.dir(volume.root(), "wide");
    for n in 0..64_998 {
        volume.dir(dir, &n.to_string());
    }
    assert_eq!(volume.attr(dir).nlink, 65_000);
    volume.dir(dir, "one more");
    volume.dir(dir, "and another");
    assert_eq!(volume.attr(dir).nlink, 1);
    volume.remove(dir, "one more").unwrap();
    assert_eq!(volume.attr(dir).nlink, 1);
    volume.check("dir_nlink", Kernel::Compared);
}

#[test]
fn a_directory_that_counts_its_subdirectories_takes_no_more_than_65000_links() {
    if !require(TOOLS) {
        return;
    }
    let volume = Volume::new("96M", &["-t", "ext4", "-O", "inline_data,^dir_nlink", "-N", "66000"]);
    renames::a_directory_has_no_more_subdirectories_than_its_link_count_allows(&*volume.fs).unwrap();
    volume.check("^dir_nlink", Kernel::Compared);
}

#[test]
fn a_full_volume_and_a_full_inode_table_refuse_names_and_stay_clean() {
    if !require(TOOLS) {
        return;
    }
    for (len, options, kind) in [
        ("4M", &["-b", "1024", "-N", "4096"][..], FileKind::Directory),
        ("4M", &["-b", "1024", "-N", "4096", "-O", "^dir_index"], FileKind::Symlink),
        ("8M", &["-b", "1024", "-N", "64"], FileKind::Regular),
        ("8M", &["-b", "4096", "-N", "64", "-O", "inline_data"], FileKind::Directory),
    ] {
        let volume =
            Volume::new(len, &[&["-t", "ext4", "-O", "^has_journal,^resize_inode"], options].concat());
        let long = NewNode { target: &[b't'; 300], ..node(kind) };
        let new = if kind == FileKind::Symlink { long } else { node(kind) };
        let dir = volume.dir(volume.root(), "dir");
        let create = |n: u32| volume.writable().create(dir, name(&format!("{n:0>200}")), &new);
        let made = (0..).find(|&n| create(n).is_err()).unwrap();
        assert!(made > 10, "{options:?}");
        assert_eq!(create(made).map(drop), Err(Error::NoSpace), "{options:?}");
        // Freed space can be used again.
        volume.remove(dir, &format!("{:0>200}", 3)).unwrap();
        create(3).unwrap();
        volume.check(&format!("{len} {options:?}"), Kernel::Compared);
    }
}

#[test]
fn threads_that_change_names_in_the_same_directories_leave_each_name_once_and_a_clean_volume() {
    if !require(TOOLS) {
        return;
    }
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext4", "-O", "inline_data,^dir_index"]] {
        let volume = Volume::new("48M", &[options, &["-N", "16384"]].concat());
        let dirs: Vec<_> = (0..3).map(|n| volume.dir(volume.root(), &format!("dir{n}"))).collect();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (volume, dirs) = (&volume, &dirs);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..1200 {
                        let mut pick = || {
                            let dir = dirs[random.below(3) as usize];
                            (dir, format!("{:0>60}", random.below(150)))
                        };
                        let (at, to) = (pick(), pick());
                        // Another thread may have been first: any refusal is correct.
                        match random.below(6) {
                            0 | 1 => drop(volume.make(at.0, &at.1, FileKind::Regular)),
                            2 => drop(volume.make(at.0, &at.1, FileKind::Symlink)),
                            3 => drop(volume.writable().unlink(at.0, name(&at.1))),
                            4 => drop(volume.rename((at.0, &at.1), (to.0, &to.1), MOVE)),
                            _ => drop(volume.rename((at.0, &at.1), (to.0, &to.1), RenameFlags::EXCHANGE)),
                        }
                    }
                });
            }
        });
        for ino in 12..16384 {
            volume.fs.forget(Ino(ino));
        }
        volume.check(&format!("{options:?}"), Kernel::Compared);
    }
}

/// The model of random operations on names: the names of each directory, and for each name the inode and whether it
/// is a directory.
struct Model {
    dirs: Vec<Ino>,
    names: BTreeMap<(Ino, String), (Ino, bool)>,
}

impl Model {
    /// Returns whether `dir` is `ancestor` or below it.
    fn is_below(&self, dir: Ino, ancestor: Ino) -> bool {
        let mut at = dir;
        loop {
            if at == ancestor {
                return true;
            }
            let parent = self.names.iter().find(|(_, (ino, is_dir))| *is_dir && *ino == at);
            match parent {
                Some(((parent, _), _)) => at = *parent,
                None => return false,
            }
        }
    }

    fn has_names(&self, dir: Ino) -> bool {
        self.names.keys().any(|(parent, _)| *parent == dir)
    }

    fn forget_dir(&mut self, ino: Ino) {
        self.dirs.retain(|dir| *dir != ino);
    }
}

/// Executes one random operation. The model determines the expected result.
fn step(volume: &Volume, model: &mut Model, random: &mut Random) {
    let pick = |random: &mut Random, model: &Model| {
        let dir = model.dirs[random.below(model.dirs.len() as u64) as usize];
        let n = random.below(30);
        (dir, format!("{n:0>len$}", len = 2 + (n as usize * 7) % 240))
    };
    let (at, to) = (pick(random, model), pick(random, model));
    let (known, other) = (model.names.get(&at).copied(), model.names.get(&to).copied());
    match random.below(9) {
        0..=2 => {
            let kind = [FileKind::Directory, FileKind::Regular, FileKind::Symlink][random.below(3) as usize];
            let made = volume.make(at.0, &at.1, kind);
            match known {
                Some(_) => assert_eq!(made, Err(Error::Exists)),
                None => {
                    let ino = made.unwrap();
                    if kind == FileKind::Directory {
                        model.dirs.push(ino);
                    }
                    model.names.insert(at, (ino, kind == FileKind::Directory));
                }
            }
        }
        3 => {
            let Some((ino, is_dir)) = known else { return };
            let linked = volume.link(ino, to.0, &to.1);
            let expected = match (is_dir, other) {
                (true, _) => Err(Error::NotPermitted),
                (false, Some(_)) => Err(Error::Exists),
                (false, None) => Ok(()),
            };
            assert_eq!(linked, expected);
            if linked.is_ok() {
                model.names.insert(to, (ino, false));
            }
        }
        4 | 5 => {
            let removed = volume.remove(at.0, &at.1);
            match known {
                None => assert_eq!(removed, Err(Error::NotFound)),
                Some((ino, true)) if model.has_names(ino) => assert_eq!(removed, Err(Error::NotEmpty)),
                Some((ino, is_dir)) => {
                    removed.unwrap();
                    model.names.remove(&at);
                    if is_dir {
                        model.forget_dir(ino);
                    }
                }
            }
        }
        6 | 7 => rename_step(volume, model, (at, known), (to, other)),
        _ => exchange_step(volume, model, (at, known), (to, other)),
    }
}

type Known = ((Ino, String), Option<(Ino, bool)>);

fn rename_step(volume: &Volume, model: &mut Model, (at, known): Known, (to, other): Known) {
    // `vfs` prevents a directory from becoming its own ancestor.
    if known.is_some_and(|(ino, is_dir)| is_dir && model.is_below(to.0, ino)) {
        return;
    }
    let expected = match (known, other) {
        (None, _) => Err(Error::NotFound),
        (Some((a, _)), Some((b, _))) if a == b => Ok(()),
        (Some((_, false)), Some((_, true))) => Err(Error::IsDirectory),
        (Some((_, true)), Some((_, false))) => Err(Error::NotDirectory),
        (Some((_, true)), Some((b, true))) if model.has_names(b) => Err(Error::NotEmpty),
        _ => Ok(()),
    };
    assert_eq!(volume.rename((at.0, &at.1), (to.0, &to.1), MOVE), expected, "{at:?} {to:?}");
    let same = known.map(|(ino, _)| ino) == other.map(|(ino, _)| ino);
    if let (Ok(()), Some(moved), false) = (expected, known, same) {
        if let Some((ino, is_dir)) = other {
            volume.fs.forget(ino);
            if is_dir {
                model.forget_dir(ino);
            }
        }
        model.names.remove(&at);
        model.names.insert(to, moved);
    }
}

fn exchange_step(volume: &Volume, model: &mut Model, (at, known): Known, (to, other): Known) {
    let tears =
        |ino: Option<(Ino, bool)>, dir| ino.is_some_and(|(ino, is_dir)| is_dir && model.is_below(dir, ino));
    if tears(known, to.0) || tears(other, at.0) {
        return;
    }
    let done = volume.rename((at.0, &at.1), (to.0, &to.1), RenameFlags::EXCHANGE);
    match (known, other) {
        (Some(a), Some(b)) => {
            assert_eq!(done, Ok(()));
            model.names.insert(at, b);
            model.names.insert(to, a);
        }
        _ => assert_eq!(done, Err(Error::NotFound)),
    }
}

#[test]
fn random_changes_of_names_leave_what_a_map_holds_in_every_form_of_directory() {
    if !require(TOOLS) {
        return;
    }
    for (seed, options) in (1..).zip(COMBINATIONS) {
        let volume = Volume::new("24M", &[options, &["-N", "4096"][..]].concat());
        let mut random = Random::new(seed);
        let mut model = Model { dirs: vec![volume.root()], names: BTreeMap::new() };
        for _ in 0..1500 {
            step(&volume, &mut model, &mut random);
        }
        for ((dir, text), (ino, is_dir)) in &model.names {
            assert_eq!(volume.fs.lookup(*dir, name(text)), Ok(*ino), "seed {seed}");
            if *is_dir {
                assert_eq!(volume.fs.parent(*ino), Ok(*dir), "seed {seed}");
            }
        }
        volume.check(&format!("seed {seed}, {options:?}"), Kernel::for_options(options));
    }
}
