//! Sparse images of a few MiB that declare nearly 2^32 clusters: a check, a search for deleted files and a change of the
//! size cost no more than the structures that exist.
//!
//! There is one test, since the peak memory of a process includes everything that it does at once.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use obento_base::wire::FromBytes as _;
use obento_base::{DeviceNumber, FileKind, Mode, Name};
use obento_block::BlockDevice;
use obento_driver::{
    Certainty, Contents, DeletedFile, Format, FormatOptions, LayoutLock, NewNode, RemovalKind, Resize,
    ResizeOptions, Usage,
};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_exfat::check::{Issue, issues};
use obento_exfat::raw::RawBoot;
use obento_exfat::{ExFatDriver, SuperBlock};
use obento_host::FileDevice;
use obento_testkit::cost::{Cost, bounded};
use obento_testkit::undelete::deleted_files;

/// The maximum cost of a change of a few files.
const LEAST: Cost = Cost { memory: 32 << 20, time: Duration::from_secs(2) };
/// The maximum cost of an operation.
const MOST: Cost = Cost { memory: 256 << 20, time: Duration::from_secs(20) };

const TIB: u64 = 1 << 40;
const CLUSTER: u64 = 512;
const DIRECTORY: u16 = 0x10;
const CHAINED: u8 = 1;
const CONTIGUOUS: u8 = 3;

/// A sparse volume with clusters of 512 bytes.
struct Volume {
    path: PathBuf,
    file: File,
    sb: SuperBlock,
}

impl Volume {
    fn new(folder: &Path, name: &str, len: u64) -> Self {
        let path = folder.join(name);
        File::create(&path).and_then(|file| file.set_len(len)).unwrap();
        let mut options = FormatOptions::new("exfat", Arc::new(NO_CLOCK), Arc::new(FixedRandom(7)));
        options.settings.push(("cluster_size".into(), "512".into()));
        let options = FormatOptions { contents: Contents::Zeros, ..options };
        Format::format(&ExFatDriver::default(), &FileDevice::open_writable(&path).unwrap(), &options)
            .unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut boot = [0; 512];
        file.read_exact_at(&mut boot, 0).unwrap();
        let sb = SuperBlock::decode(&RawBoot::read_from_bytes(&boot).unwrap()).unwrap();
        Self { path, file, sb }
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(FileDevice::open_writable(&self.path).unwrap())
    }

    /// Returns the first cluster after those that the format uses.
    fn free(&self) -> u32 {
        self.sb.root.0 + 1
    }

    fn link(&self, cluster: u32, value: u32) {
        self.file.write_all_at(&value.to_le_bytes(), self.sb.fat_start + u64::from(cluster) * 4).unwrap();
    }

    /// Adds sets to the root directory, which gets further clusters. Returns the number of these.
    fn add(&self, sets: &[u8]) -> u32 {
        let root = self.sb.offset_of(self.sb.root).unwrap();
        // After the label, the bitmap and the up-case table.
        self.file.write_all_at(sets, root + 96).unwrap();
        let more = u32::try_from((96 + sets.len() as u64 + 32).div_ceil(CLUSTER)).unwrap() - 1;
        for cluster in self.sb.root.0..self.sb.root.0 + more {
            self.link(cluster, cluster + 1);
        }
        self.link(self.sb.root.0 + more, u32::MAX);
        more
    }

    /// Runs an operation, and tests its cost.
    fn bounded<T>(&self, what: &str, act: impl FnOnce(Arc<dyn BlockDevice>) -> T) -> T {
        let device = self.device();
        bounded(what, MOST, || act(device))
    }

    fn issues(&self, what: &str) -> Vec<Issue> {
        self.bounded(what, |device| issues(device).unwrap())
    }

    fn resize(&self, what: &str, len: u64) {
        let options = ResizeOptions::new(len, Arc::new(NO_CLOCK));
        self.bounded(what, |device| ExFatDriver::default().resize(device, &options, &mut |_, _| {})).unwrap();
        assert_eq!(self.issues(what), [], "{what}");
    }

    fn deleted(&self, what: &str) -> Vec<DeletedFile> {
        self.bounded(what, |device| deleted_files(&ExFatDriver::default(), &device))
    }
}

/// Returns the sum that both checksums of the format use.
fn sum(bytes: impl Iterator<Item = u8>) -> u16 {
    bytes.fold(0_u16, |sum, byte| sum.rotate_right(1).wrapping_add(byte.into()))
}

/// Returns the set of a file. The name has at most 15 upper-case letters and digits.
fn set(name: &str, attributes: u16, flags: u8, first: u32, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    (bytes[0], bytes[1], bytes[32], bytes[33], bytes[64]) = (0x85, 2, 0xc0, flags, 0xc1);
    bytes[4..6].copy_from_slice(&attributes.to_le_bytes());
    bytes[35] = u8::try_from(name.len()).unwrap();
    bytes[36..38].copy_from_slice(&sum(units.iter().copied()).to_le_bytes());
    bytes[40..48].copy_from_slice(&len.to_le_bytes());
    bytes[52..56].copy_from_slice(&first.to_le_bytes());
    bytes[56..64].copy_from_slice(&len.to_le_bytes());
    bytes[66..66 + units.len()].copy_from_slice(&units);
    let summed = bytes.iter().enumerate().filter(|(at, _)| !(2..4).contains(at)).map(|(_, byte)| *byte);
    let sum = sum(summed).to_le_bytes();
    bytes[2..4].copy_from_slice(&sum);
    bytes
}

/// Returns the set of a deleted file.
fn removed(name: &str, attributes: u16, flags: u8, first: u32, len: u64) -> Vec<u8> {
    let mut bytes = set(name, attributes, flags, first, len);
    [0, 32, 64].into_iter().for_each(|at| bytes[at] &= 0x7f);
    bytes
}

#[test]
fn the_cost_of_a_sparse_volume_follows_its_contents() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    an_empty_volume_is_checked_and_resized(folder);
    files_that_claim_the_volume_are_runs(folder);
    directories_in_holes_are_not_read(folder);
    deleted_files_are_placed(folder);
    files_are_changed(folder);
}

/// Opens the volume for changes, as a mount and `cp` do, and counts its free clusters, as `df` does.
fn files_are_changed(folder: &Path) {
    let volume = Volume::new(folder, "changes", 2 * TIB);
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

fn an_empty_volume_is_checked_and_resized(folder: &Path) {
    let volume = Volume::new(folder, "empty", 2 * TIB);
    assert!(volume.sb.clusters > u32::MAX - (1 << 26), "{}", volume.sb.clusters);
    assert_eq!(volume.issues("an empty volume"), []);
    assert_eq!(volume.deleted("an empty volume, deleted files"), []);
    let minimum = volume.bounded("minimum", |device| ExFatDriver::default().minimum(&device)).unwrap();
    assert!(minimum > 16 << 30, "the FAT stays as it is: {minimum}");
    volume.resize("half the length", TIB);
    volume.resize("the whole length again", 2 * TIB);
    let volume = Volume::new(folder, "larger FAT", TIB / 4);
    volume.file.set_len(TIB).unwrap();
    volume.resize("a larger FAT", TIB);
}

fn files_that_claim_the_volume_are_runs(folder: &Path) {
    let volume = Volume::new(folder, "files", 2 * TIB);
    let first = volume.free();
    let count = volume.sb.clusters + 2 - first;
    // The FAT describes a circle, in which a search for a chain of this length would not end.
    volume.link(first, first + 5);
    volume.link(first + 5, first);
    volume.add(&set("ALL", 0, CONTIGUOUS, first, u64::from(count) * CLUSTER));
    let expected = [Issue::UnmarkedClusters { cluster: first, clusters: count }];
    assert_eq!(volume.issues("a file of all clusters"), expected);
}

fn directories_in_holes_are_not_read(folder: &Path) {
    const COUNT: u32 = 500;
    let volume = Volume::new(folder, "directories", 2 * TIB);
    // 256 MiB, the longest directory.
    let each = 1 << 19;
    let sets = |first: u32| {
        let all = (0..COUNT).map(|n| {
            set(&format!("D{n}"), DIRECTORY, CONTIGUOUS, first + n * each, u64::from(each) * CLUSTER)
        });
        all.collect::<Vec<_>>().concat()
    };
    let more = volume.add(&sets(0));
    let first = volume.free() + more;
    volume.add(&sets(first));
    let expected = [Issue::UnmarkedClusters { cluster: volume.free(), clusters: more + COUNT * each }];
    assert_eq!(volume.issues("directories in holes"), expected);
    assert_eq!(volume.deleted("directories in holes, deleted files"), []);
}

fn deleted_files_are_placed(folder: &Path) {
    const COUNT: u32 = 500;
    let volume = Volume::new(folder, "deleted", 2 * TIB);
    let (first, each) = (volume.free() + 1000, 1 << 19);
    let count = volume.sb.clusters + 2 - first;
    let len = u64::from(count) * CLUSTER;
    let mut sets: Vec<_> = (0..COUNT)
        .map(|n| {
            removed(&format!("D{n}"), DIRECTORY, CONTIGUOUS, first + n * each, u64::from(each) * CLUSTER)
        })
        .collect();
    sets.push(removed("CONTIGUOUS", 0, CONTIGUOUS, first, len));
    // A chain that returns to itself.
    volume.link(first, first + 5);
    volume.link(first + 5, first);
    sets.push(removed("CIRCLE", 0, CHAINED, first, len));
    volume.add(&sets.concat());
    let found = volume.deleted("deleted files");
    let paths: Vec<_> = found.iter().map(|file| String::from_utf8_lossy(&file.path).into_owned()).collect();
    assert_eq!(paths, ["CONTIGUOUS", "CIRCLE"]);
    let start = volume.sb.offset_of(obento_exfat::Cluster(first)).unwrap();
    assert_eq!(found[0].extents.first(), Some(&(start..start + len)));
    assert_eq!((found[0].extents.len(), found[0].certainty), (1, Certainty::Certain));
    assert_eq!(found[1].certainty, Certainty::Doubtful);
}
