//! Sparse images of a few MiB that declare nearly 2^28 clusters: a check, a search for deleted files and a change of the
//! size cost no more than the structures that exist.
//!
//! There is one test, since the peak memory of a process includes everything that it does at once.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use obento_base::{DeviceNumber, FileKind, Mode, Name};
use obento_block::BlockDevice;
use obento_driver::{
    CheckOptions, Contents, DeletedFile, Format, FormatOptions, LayoutLock, NewNode, RemovalKind, RepairMode,
    Resize, ResizeOptions, Usage,
};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_fat::check::{Event, Issue, check_volume, issues};
use obento_fat::{FatDriver, SuperBlock};
use obento_host::FileDevice;
use obento_testkit::cost::{Cost, bounded};
use obento_testkit::undelete::deleted_files;

/// The maximum cost of a change of a few files.
const LEAST: Cost = Cost { memory: 32 << 20, time: Duration::from_secs(2) };
/// The maximum cost of an operation.
const MOST: Cost = Cost { memory: 128 << 20, time: Duration::from_secs(20) };

const GIB: u64 = 1 << 30;
const DIRECTORY: u8 = 0x10;
const FILE: u8 = 0x20;
const LAST: u32 = 0x0fff_ffff;

/// A sparse volume.
struct Volume {
    path: PathBuf,
    file: File,
    sb: SuperBlock,
}

impl Volume {
    fn new(folder: &Path, name: &str, len: u64, per_cluster: &str) -> Self {
        let path = folder.join(name);
        File::create(&path).and_then(|file| file.set_len(len)).unwrap();
        let mut options = FormatOptions::new("vfat", Arc::new(NO_CLOCK), Arc::new(FixedRandom(7)));
        let settings = [("fat", "32"), ("sectors_per_cluster", per_cluster)];
        options.settings.extend(settings.map(|(name, value)| (name.into(), value.into())));
        let options = FormatOptions { contents: Contents::Zeros, ..options };
        Format::format(&FatDriver::default(), &FileDevice::open_writable(&path).unwrap(), &options).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut boot = [0; 512];
        file.read_exact_at(&mut boot, 0).unwrap();
        Self { path, file, sb: SuperBlock::of_bytes(&boot).unwrap() }
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(FileDevice::open_writable(&self.path).unwrap())
    }

    fn place(&self, cluster: u32) -> u64 {
        self.sb.data_start + u64::from(cluster - 2) * u64::from(self.sb.cluster_size)
    }

    /// Changes an entry of both FATs.
    fn link(&self, cluster: u32, value: u32) {
        for copy in 0..u64::from(self.sb.fats) {
            let at = self.sb.fat_start + copy * self.sb.fat_len + u64::from(cluster) * 4;
            self.file.write_all_at(&value.to_le_bytes(), at).unwrap();
        }
    }

    /// Writes entries to the root directory, whose first cluster is 2, and whose further ones follow `more`.
    fn add(&self, entries: &[u8], more: u32) {
        let size = self.sb.cluster_size as usize;
        let clusters: Vec<u32> = std::iter::once(2).chain(more..).take(entries.len() / size + 1).collect();
        for (at, part) in entries.chunks(size).enumerate() {
            self.file.write_all_at(part, self.place(clusters[at])).unwrap();
        }
        let nexts = clusters.iter().skip(1).copied().chain([LAST]);
        clusters.iter().zip(nexts).for_each(|(&cluster, next)| self.link(cluster, next));
    }

    /// Runs an operation, and tests its cost.
    fn bounded<T>(&self, what: &str, act: impl FnOnce(Arc<dyn BlockDevice>) -> T) -> T {
        let device = self.device();
        bounded(what, MOST, || act(device))
    }

    fn issues(&self, what: &str) -> Vec<Issue> {
        self.bounded(what, |device| issues(device).unwrap())
    }

    fn repair(&self, what: &str) {
        let options = CheckOptions { repair_mode: RepairMode::All, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
        self.bounded(what, |device| check_volume(device, &options, &mut |_: Event| {})).unwrap();
        assert_eq!(self.issues(what), [], "{what}");
    }

    fn resize(&self, what: &str, len: u64) {
        let options = ResizeOptions::new(len, Arc::new(NO_CLOCK));
        self.bounded(what, |device| FatDriver::default().resize(device, &options, &mut |_, _| {})).unwrap();
        assert_eq!(self.issues(what), [], "{what}");
    }

    fn deleted(&self, what: &str) -> Vec<DeletedFile> {
        self.bounded(what, |device| deleted_files(&FatDriver::default(), &device))
    }
}

/// Returns the entry of a file.
fn entry(name: &str, attributes: u8, first: u32, size: u32) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    bytes[..11].copy_from_slice(format!("{name:11}").as_bytes());
    bytes[11] = attributes;
    let [a, b, c, d] = first.to_le_bytes();
    (bytes[20], bytes[21], bytes[26], bytes[27]) = (c, d, a, b);
    bytes[28..].copy_from_slice(&size.to_le_bytes());
    bytes
}

#[test]
fn the_cost_of_a_sparse_volume_follows_its_contents() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    an_empty_volume_is_resized(folder);
    files_are_checked_and_move(folder);
    directories_in_holes_are_not_read(folder);
    circles_are_followed_once(folder);
    deleted_files_are_placed(folder);
    files_are_changed(folder);
}

/// Opens the volume for changes, as a mount and `cp` do, and counts its free clusters, as `df` does.
fn files_are_changed(folder: &Path) {
    let volume = Volume::new(folder, "changes", 129 * GIB, "1");
    let statfs =
        |what: &str| bounded(what, LEAST, || common::open_image(&volume.path).statfs().unwrap().free);
    let before = statfs("free space of a volume");
    bounded("a change", LEAST, || {
        let fs = common::open_to_write(&volume.path);
        let changes = fs.writable().unwrap();
        let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
        let (kind, mode, rdev) = (FileKind::Regular, Mode::new(0o755), DeviceNumber::default());
        let node = NewNode { kind, mode, uid: 0, gid: 0, rdev, target: b"" };
        let (first, second) = (name("first"), name("second"));
        let layout = LayoutLock::new();
        for name in [first, second] {
            let ino = changes.create(fs.root(), name, &node).unwrap().ino;
            changes.truncate(&layout.exclusive(), ino, 3 << 20).unwrap();
        }
        changes.sync().unwrap();
        changes.remove(fs.root(), first, RemovalKind::File, &mut |_| Ok(Usage::Unused)).unwrap();
        changes.close().unwrap();
    });
    assert!(statfs("free space afterwards") < before);
    assert_eq!(volume.issues("a changed volume"), []);
}

fn an_empty_volume_is_resized(folder: &Path) {
    let volume = Volume::new(folder, "empty", 129 * GIB, "1");
    assert!(volume.sb.clusters > (1 << 28) - (1 << 22), "{}", volume.sb.clusters);
    assert_eq!(volume.issues("an empty volume"), []);
    assert_eq!(volume.deleted("an empty volume, deleted files"), []);
    volume.bounded("minimum", |device| FatDriver::default().minimum(&device)).unwrap();
    volume.resize("half the length", 64 * GIB);
    volume.resize("the whole length again", 129 * GIB);
    let volume = Volume::new(folder, "larger FATs", GIB, "1");
    volume.file.set_len(40 * GIB).unwrap();
    volume.resize("larger FATs", 40 * GIB);
}

fn files_are_checked_and_move(folder: &Path) {
    let volume = Volume::new(folder, "files", 129 * GIB, "1");
    let end = volume.sb.clusters + 2;
    let (file, lost) = (end - 3, 1 << 27);
    (file..end - 1).for_each(|cluster| volume.link(cluster, cluster + 1));
    volume.link(end - 1, LAST);
    volume.file.write_all_at(&[7; 1200], volume.place(file)).unwrap();
    volume.link(lost, lost + 1);
    volume.link(lost + 1, LAST);
    volume.add(&entry("FILE", FILE, file, 1200), 3);
    assert_eq!(volume.issues("a lost chain"), [Issue::LostChain { cluster: lost, clusters: 2 }]);
    volume.repair("a lost chain, repaired");
    // Another difference between the FATs, in the middle of holes.
    let other = volume.sb.fat_start + volume.sb.fat_len + (3 << 26);
    volume.file.write_all_at(&1_u32.to_le_bytes(), other).unwrap();
    assert_eq!(volume.issues("FATs"), [Issue::FatCopy { copy: 1, cluster: 3 << 24 }]);
    volume.repair("FATs, repaired");
    volume.resize("half the length with files", 64 * GIB);
    let fs = common::open(volume.device()).unwrap();
    assert_eq!(common::read(&*fs, common::resolve(&*fs, "/file").unwrap(), 1200), Ok(vec![7; 1200]));
    assert!(common::resolve(&*fs, "/FSCK0000.REC").is_ok());
}

fn directories_in_holes_are_not_read(folder: &Path) {
    const COUNT: u32 = 2000;
    let volume = Volume::new(folder, "directories", 1 << 40, "128");
    let first = |n: u32| 1000 + n * 32;
    let entries = |n: u32| {
        let mut dir = entry(".", DIRECTORY, first(n), 0);
        dir.extend(entry("..", DIRECTORY, 0, 0));
        dir
    };
    let mut root = Vec::new();
    for n in 0..COUNT {
        // 2 MiB, the longest directory.
        (first(n)..first(n) + 31).for_each(|cluster| volume.link(cluster, cluster + 1));
        volume.link(first(n) + 31, LAST);
        volume.file.write_all_at(&entries(n), volume.place(first(n))).unwrap();
        root.extend(entry(&format!("D{n}"), DIRECTORY, first(n), 0));
    }
    volume.add(&root, 3);
    let free = volume.sb.clusters - COUNT * 32 - 1;
    let expected = [Issue::FreeCount { found: volume.sb.clusters - 1, expected: free }];
    assert_eq!(volume.issues("directories in holes"), expected);
    assert_eq!(volume.deleted("directories in holes, deleted files"), []);
}

fn circles_are_followed_once(folder: &Path) {
    const COUNT: u32 = 500;
    let volume = Volume::new(folder, "circles", 129 * GIB, "1");
    let mut entries = Vec::new();
    for n in 0..COUNT {
        let first = 10_000 + 2 * n;
        volume.link(first, first + 1);
        volume.link(first + 1, first);
        entries.extend(entry(&format!("F{n}"), FILE, first, u32::MAX));
    }
    volume.add(&entries, 3);
    // If the FATs differ, each chain is followed in both of them.
    let other = volume.sb.fat_start + volume.sb.fat_len + (3 << 26);
    volume.file.write_all_at(&1_u32.to_le_bytes(), other).unwrap();
    let found = volume.issues("circles");
    let is_circle = |issue: &&Issue| matches!(issue, Issue::Chain { at: 2, why: "occurs twice", .. });
    assert_eq!(found.iter().filter(is_circle).count(), COUNT as usize);
    assert_eq!(found.len(), COUNT as usize + 1);
    assert!(found.contains(&Issue::FatCopy { copy: 1, cluster: 3 << 24 }), "{found:?}");
}

fn deleted_files_are_placed(folder: &Path) {
    const COUNT: u32 = 2000;
    // A number with an upper half, which no system has cleared.
    const FIRST: u32 = 70_000;
    let volume = Volume::new(folder, "deleted", 129 * GIB, "1");
    let mut entries = Vec::new();
    for n in 0..COUNT {
        let mut deleted = entry(&format!("F{n}"), FILE, FIRST + n, u32::MAX);
        deleted[0] = 0xe5;
        entries.extend(deleted);
    }
    // One cluster in use, around which the files went.
    volume.link(1 << 20, LAST);
    volume.add(&entries, 3);
    let found = volume.deleted("deleted files");
    assert_eq!(found.len(), COUNT as usize);
    let size = 1 << 32;
    for (n, file) in (0..).zip(&found) {
        let (start, used) = (volume.place(FIRST + n), volume.place(1 << 20));
        assert_eq!(file.extents, [start..used, used + 512..start + size + 512], "{n}");
    }
}
