//! Volumes with a dirty journal: the contents and notices of a read-only open.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::volumes;
use obento_base::{Corrupt, Error, FileKind, Structure};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{DataMode, FileSystem as _, LayoutLock, Notice, Span};
use obento_env::SystemClock;
use obento_ext4::Ext4;
use obento_host::FileDevice;
use obento_testkit::crash::{Options, SeenStates, explore};
use obento_testkit::oracle::{LoopMount, Oracle, call, corpus, require};
use obento_testkit::record::RecordDevice;
use obento_testkit::snapshot::{Snapshot, Times};
use obento_vfs::Vfs;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// The compared properties of a file: type and permissions, size, contents, and links. Links of directories are not
/// compared, since Linux' replay of fast commits leaves their counts to e2fsck.
type Tree = BTreeMap<PathBuf, (u32, u64, u64, Vec<u8>)>;

fn kernel_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let relative = path.strip_prefix(root).unwrap().to_owned();
            let described = if meta.is_dir() {
                folders.push(path);
                (meta.mode(), 0, 0, Vec::new())
            } else {
                (meta.mode(), meta.size(), meta.nlink(), fs::read(&path).unwrap())
            };
            tree.insert(relative, described);
        }
    }
    tree
}

fn content(fs: &Ext4, ino: obento_base::Ino, size: u64) -> Vec<u8> {
    let (lock, mut bytes) = (LayoutLock::new(), vec![0; usize::try_from(size).unwrap()]);
    let layout = lock.shared();
    let mut at = 0;
    while at < size {
        let extent = fs.map(&layout, ino, at..size).unwrap();
        let range = usize::try_from(at).unwrap()..usize::try_from(at + extent.len).unwrap();
        match extent.span {
            Span::Hole | Span::Unwritten => {}
            Span::Mapped(offset) => fs.device().unwrap().read_at(offset, &mut bytes[range]).unwrap(),
            Span::Driver => {
                assert_eq!(fs.read(&layout, ino, at, &mut bytes[range.clone()]).unwrap(), range.len())
            }
        }
        at += extent.len;
    }
    bytes
}

fn our_tree(image: &Path) -> Tree {
    let fs = common::open(image).unwrap();
    let all = common::read_everything(&fs);
    assert_eq!(all.errors, []);
    let described = all.entries.into_iter().map(|(path, attr)| {
        let path = PathBuf::from(String::from_utf8(path[1..].to_vec()).unwrap());
        let mode = u32::from(attr.st_mode());
        match attr.kind {
            FileKind::Directory => (path, (mode, 0, 0, Vec::new())),
            _ => (path, (mode, attr.size, attr.nlink.into(), content(&fs, attr.ino, attr.size))),
        }
    });
    described.collect()
}

/// Returns an image of 64 MiB, copied just after `busy` had changed the mounted volume.
fn snapshot(folder: &TempDir, mke2fs: &[&str], before: fn(&Path), busy: fn(&Path)) -> PathBuf {
    let (image, copy) = (folder.path().join("image"), folder.path().join("copy"));
    File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    let args = ["-q", "-F", "-t", "ext4"].iter().chain(mke2fs).copied();
    call("mke2fs", args.chain([image.to_str().unwrap()])).unwrap();
    // No commit by age may happen during the copy, which would then mix two states.
    let mount = LoopMount::new(&image, "commit=300").unwrap();
    before(mount.path());
    commit(mount.path());
    // Only a transaction after a full commit can be a fast commit, and created directories must be older.
    File::create(mount.path().join("first")).unwrap().sync_all().unwrap();
    commit(mount.path());
    busy(mount.path());
    fs::copy(&image, &copy).unwrap();
    mount.unmount().unwrap();
    copy
}

fn commit(root: &Path) {
    call("sync", ["-f".as_ref(), root.as_os_str()]).unwrap();
}

/// Syncs after each step, so that there are several fast commits.
fn write(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

fn prepare(root: &Path) {
    fs::create_dir(root.join("old")).unwrap();
    fs::create_dir(root.join("removed")).unwrap();
    for n in 0..30 {
        fs::write(root.join(format!("old/{n}")), vec![n; 3000 * usize::from(n)]).unwrap();
    }
}

fn change(root: &Path) {
    let old = |n: u32| root.join(format!("old/{n}"));
    write(&root.join("old/new"), &[7; 10_000]);
    fs::create_dir(root.join("old/sub")).unwrap();
    write(&root.join("old/sub/inner"), b"inner");
    fs::create_dir(root.join("old/sub/deeper")).unwrap();
    write(&root.join("old/sub/deeper/most"), &[9; 70_000]);
    fs::remove_file(old(3)).unwrap();
    fs::remove_dir(root.join("removed")).unwrap();
    fs::hard_link(old(4), root.join("linked")).unwrap();
    fs::rename(old(5), root.join("renamed")).unwrap();
    fs::rename(old(6), old(7)).unwrap();
    write(&old(8), b"short now");
    let file = File::options().write(true).open(old(20)).unwrap();
    file.set_len(5_000).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[0xee; 9_000], 200_000).unwrap();
    file.sync_all().unwrap();
    // It is created and removed, and another file may get its inode.
    write(&root.join("brief"), &[1; 20_000]);
    fs::remove_file(root.join("brief")).unwrap();
    write(&root.join("second"), &[2; 3_000]);
    for n in 0..60 {
        File::create(root.join(format!("old/sub/many-{n}"))).unwrap();
    }
    write(&root.join("last"), &[3; 1]);
}

/// Combinations of features for which fast commits are written.
const FAST_COMMITS: [&[&str]; 4] = [
    &["-O", "fast_commit"],
    &["-O", "fast_commit,^metadata_csum,^dir_index", "-b", "4096"],
    &["-O", "fast_commit,inline_data", "-I", "256"],
    &["-O", "fast_commit,bigalloc", "-b", "4096", "-C", "16384"],
];

/// The least number of fast commits of [`change`] that are not part of a transaction of the log.
const LEAST: u64 = 10;

/// Returns an image in which each fsync of [`change`] is a fast commit. A sync(2) of another process makes transactions
/// of them, so that the image is made again.
fn fast_commits(folder: &TempDir, mke2fs: &[&str]) -> PathBuf {
    for _ in 0..5 {
        let image = snapshot(folder, mke2fs, prepare, change);
        let notices = common::open(&image).unwrap().info().notices;
        if matches!(notices[..], [Notice::Replayed { transactions }] if transactions >= LEAST) {
            return image;
        }
        eprintln!("{mke2fs:?}: {notices:?}");
    }
    panic!("{mke2fs:?}: too few fast commits");
}

const ORACLES: &[Oracle] = &[Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("sync")];

#[test]
fn fast_commits_show_what_the_kernel_replays() {
    if !require(ORACLES) {
        return;
    }
    for features in FAST_COMMITS {
        let folder = tempfile::tempdir().unwrap();
        let image = fast_commits(&folder, features);
        let before = fs::read(&image).unwrap();
        let volume = common::open(&image).unwrap();
        let transactions = match volume.info().notices[..] {
            [Notice::Replayed { transactions }] => transactions,
            ref other => panic!("{features:?}: {other:?}"),
        };
        assert!(transactions >= LEAST, "{features:?}: {transactions}");
        let found = our_tree(&image);
        assert!(fs::read(&image).unwrap() == before, "the image was changed by reading it");
        assert!(
            found.contains_key(Path::new("last")) && found.contains_key(Path::new("old/sub/deeper/most"))
        );
        LoopMount::new(&image, "").unwrap().unmount().unwrap();
        let mount = LoopMount::new(&image, "ro").unwrap();
        let expected = kernel_tree(mount.path());
        let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&found), names(&expected), "{features:?}");
        for (path, described) in expected {
            assert!(found[&path] == described, "{features:?}: {}", path.display());
        }
    }
}

/// Opens `device` for changes, returns the notices, and closes it.
fn open_and_close(device: Arc<dyn BlockDevice>) -> Result<Vec<Notice>, Error> {
    let fs = volumes::open(device, Arc::new(SystemClock), DataMode::Ordered)?;
    let notices = fs.info().notices;
    fs.writable().unwrap().close().map(|()| notices)
}

#[test]
fn fast_commits_become_part_of_a_volume_that_is_opened_for_changes() {
    if !require(ORACLES) || !require(&[Oracle::Program("e2fsck")]) {
        return;
    }
    for features in FAST_COMMITS {
        let folder = tempfile::tempdir().unwrap();
        let image = fast_commits(&folder, features);
        let expected = our_tree(&image);
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open_writable(&image).unwrap());
        let notices = open_and_close(Arc::clone(&device)).unwrap();
        assert!(
            matches!(notices[..], [Notice::Replayed { transactions }] if transactions >= LEAST),
            "{features:?}: {notices:?}"
        );
        volumes::e2fsck_file(&image).unwrap_or_else(|reason| panic!("{features:?}: {reason}"));
        assert_eq!(common::open(&image).unwrap().info().notices, [], "{features:?}");
        assert!(our_tree(&image) == expected, "{features:?}");
        let mount = LoopMount::new(&image, "ro").unwrap();
        let mut kernel = kernel_tree(mount.path());
        let mut ours = expected.clone();
        // The root has no entry of its own there.
        kernel.remove(Path::new(""));
        ours.remove(Path::new(""));
        assert!(kernel == ours, "{features:?}");
        assert_eq!(open_and_close(device), Ok(Vec::new()), "{features:?}");
    }
}

#[test]
fn a_power_cut_while_fast_commits_are_brought_home_loses_none_of_them() {
    if !require(ORACLES) || !require(&[Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = fast_commits(&folder, FAST_COMMITS[0]);
    let base = fs::read(&image).unwrap();
    let read = |device: Arc<dyn BlockDevice>| {
        let fs =
            volumes::open(device, Arc::new(SystemClock), DataMode::Ordered).map_err(|e| e.to_string())?;
        let vfs = Vfs::new(fs);
        let tree = Snapshot::read(&vfs, None).map_err(|e| e.to_string())?;
        vfs.close().map(|()| tree).map_err(|e| e.to_string())
    };
    let device = Arc::new(RecordDevice::new(MemDevice::new(base.clone())));
    let expected = read(device.clone()).unwrap();
    assert!(expected.get(b"old/sub/deeper/most").is_some());
    let options = Options { samples: 40, torn: 40, whole: 1024..2048, ..Options::new(1) };
    let mut judged = 0;
    let summary = explore(&base, &device.take_events(), &options, &SeenStates::default(), &mut |state| {
        let tree = read(Arc::clone(&state.device))?;
        let difference = expected.difference(&tree, Times::Ignored, None);
        difference.or_else(|| expected.content_difference(&tree)).map_or(Ok(()), Err)?;
        judged += 1;
        if judged % 20 == 1 { volumes::e2fsck(&*state.device) } else { Ok(()) }
    });
    eprintln!("{} windows, {} states", summary.windows, summary.judged);
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    assert!(summary.windows > 6 && summary.judged > 60, "{summary:?}");
}

#[test]
fn link_counts_of_directories_follow_fast_commits() {
    if !require(ORACLES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = fast_commits(&folder, FAST_COMMITS[0]);
    let fs = common::open(&image).unwrap();
    let links = |ino| fs.getattr(ino).unwrap().nlink;
    let lookup = |dir, name: &str| fs.lookup(dir, obento_base::Name::new(name.as_bytes()).unwrap()).unwrap();
    let old = lookup(fs.root(), "old");
    let sub = lookup(old, "sub");
    // `.`, the `..` of old and lost+found, and its own name; `removed` no longer exists.
    assert_eq!((links(fs.root()), links(old), links(sub)), (4, 3, 3));
    assert_eq!((fs.parent(sub).unwrap(), fs.parent(lookup(sub, "deeper")).unwrap()), (old, sub));
}

/// Returns the notices of an image of the corpus, and whether it could be opened.
fn notices(folder: &TempDir, name: &str) -> Result<Vec<Notice>, Error> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let packed = File::open(corpus().unwrap().join(format!("{name}.gz"))).unwrap();
    flate2::read::MultiGzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    let image = folder.path().join("image");
    fs::write(&image, bytes).unwrap();
    common::open(&image).map(|fs| fs.info().notices)
}

#[test]
fn damaged_journals_of_the_corpus_are_reported_exactly() {
    if !require(&[Oracle::Corpus]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let checksum = |error: &Error| {
        matches!(error, Error::Corrupt(Corrupt::Checksum { structure: Structure::Journal, .. }))
    };
    for name in ["j_corrupt_descr_csum", "j_corrupt_sb_csum"] {
        let notices = notices(&folder, name).unwrap();
        assert!(
            matches!(&notices[..], [Notice::ReplayFailed(error)] if checksum(error)),
            "{name}: {notices:?}"
        );
    }
    for (name, transactions) in [("j_corrupt_commit_csum", 0), ("j_corrupt_journal_block", 3)] {
        let notices = notices(&folder, name).unwrap();
        let [Notice::Damaged(error), rest @ ..] = &notices[..] else { panic!("{name}: {notices:?}") };
        assert!(checksum(error), "{name}: {notices:?}");
        let replayed = Notice::Replayed { transactions };
        assert_eq!(rest, if transactions == 0 { vec![] } else { vec![replayed] }, "{name}");
    }
    // Its inode is free, and the copy in the super block replaces it.
    let inode = Corrupt::InodeNumber { structure: Structure::SuperBlock, block: 0, offset: 0xe0, found: 12 };
    let expected = vec![Notice::Damaged(inode.into()), Notice::Replayed { transactions: 6 }];
    assert_eq!(notices(&folder, "f_journal"), Ok(expected));
    // Its damaged revoke block is in a transaction without a commit block, which e2fsck also drops silently.
    assert_eq!(notices(&folder, "j_corrupt_revoke_csum"), Ok(vec![Notice::Replayed { transactions: 1 }]));
}
