//! The allocator on real volumes, which `e2fsck` checks afterwards.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec::Vec;

use obento_base::{Error, Ino, Timestamp};
use obento_driver::{Access, OpenOptions};
use obento_env::FixedClock;
use obento_host::FileDevice;
use obento_journal::Credits;
use obento_testkit::oracle::{Oracle, call, require};

use super::{BlockRun, Freed, InodeClass};
use crate::super_block::ROOT_INO;
use crate::unit::VolBlock;
use crate::writer::{Writer, open_writer};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")];

/// Volumes with uninitialised bitmaps and inode tables: with plain groups, with flex groups, with clusters, without
/// any checksums.
const VOLUMES: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^flex_bg", "-g", "2048", "-N", "1024"],
    &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "8192", "-N", "256"],
    &["-t", "ext2", "-b", "1024", "-g", "1024", "-N", "512"],
    &["-t", "ext4", "-O", "meta_bg,^resize_inode,sparse_super2", "-b", "1024", "-g", "1024", "-N", "512"],
];

fn make(folder: &Path, options: &[&str]) -> PathBuf {
    let image = folder.join("image");
    // Parts that were never written contain arbitrary bytes.
    std::fs::write(&image, std::vec![0xa5; 12 << 20]).unwrap();
    let lazy = &["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"][..];
    call("mke2fs", [lazy, options, &[image.to_str().unwrap(), "12M"]].concat()).unwrap();
    image
}

fn open(image: &Path) -> Writer {
    let clock = FixedClock(Timestamp::new(1_800_000_000, 0));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(clock)) };
    open_writer(Arc::new(FileDevice::open_writable(image).unwrap()), &options).unwrap()
}

fn close(writer: &Writer, image: &Path) {
    writer.close().unwrap();
    call("e2fsck", ["-fn", image.to_str().unwrap()]).unwrap();
}

fn allocate(writer: &Writer, goal: u64, len: u32) -> Result<BlockRun, Error> {
    let mut txn = writer.begin(Credits(4)).unwrap();
    let run = writer.allocator().allocate_blocks(&mut txn, VolBlock(goal), len);
    txn.commit();
    run
}

fn free(writer: &Writer, run: BlockRun, freed: Freed) -> Result<(), Error> {
    let mut txn = writer.begin(Credits(4)).unwrap();
    let done = writer.allocator().free_blocks(&mut txn, run.start, run.len, freed);
    txn.commit();
    done
}

fn on_each(test: impl Fn(&Writer)) {
    if !require(TOOLS) {
        return;
    }
    for options in VOLUMES {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let writer = open(&image);
        test(&writer);
        close(&writer, &image);
    }
}

#[test]
fn a_run_starts_at_its_goal_if_that_is_free_and_continues_after_it() {
    on_each(|writer| {
        let first = allocate(writer, 5000, 16).unwrap();
        assert!(first.len >= 16);
        let next = allocate(writer, first.start.0 + u64::from(first.len), 16).unwrap();
        assert_eq!(next.start.0, first.start.0 + u64::from(first.len));
        // The goal is now in use.
        let other = allocate(writer, first.start.0, 16).unwrap();
        assert!(other.start.0 >= next.start.0 + u64::from(next.len) || other.start.0 < first.start.0);
        for run in [first, next, other] {
            free(writer, run, Freed::Data).unwrap();
        }
        writer.txns().sync().unwrap();
        // Although the blocks before it are free, too.
        let again = allocate(writer, next.start.0, 8).unwrap();
        assert_eq!(again.start, next.start);
        free(writer, again, Freed::Data).unwrap();
    });
}

#[test]
fn the_free_part_of_a_run_is_reserved_in_place() {
    on_each(|writer| {
        let allocator = writer.allocator();
        let run = allocate(writer, 5000, 32).unwrap();
        free(writer, run, Freed::Data).unwrap();
        writer.txns().sync().unwrap();
        let (start, end) = (run.start.0, run.start.0 + u64::from(run.len));
        let taken = allocate(writer, start + 8, 8).unwrap();
        assert_eq!((taken.start.0, taken.len), (start + 8, 8));
        let before = allocator.totals();
        let kept = allocator.reserve_there(run).unwrap();
        let rest = BlockRun { start: VolBlock(start + 16), len: u32::try_from(end - start - 16).unwrap() };
        assert_eq!(kept, [BlockRun { len: 8, ..run }, rest]);
        assert_eq!(allocator.reserve_there(run), Ok(Vec::new()));
        kept.into_iter().for_each(|part| allocator.release(part));
        assert_eq!(allocator.totals(), before);
        let table = writer.volume().group(0).unwrap().inode_table;
        let refused = allocator.reserve_there(BlockRun { start: table, len: 1 });
        assert!(matches!(refused, Err(Error::Corrupt(_))));
        free(writer, taken, Freed::Data).unwrap();
    });
}

#[test]
fn durable_free_counts_are_in_the_super_block() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Without a journal, durable blocks are in their places.
    let image = make(folder.path(), VOLUMES[3]);
    let writer = open(&image);
    let run = allocate(&writer, 5000, 8).unwrap();
    writer.txns().sync().unwrap();
    let bytes = std::fs::read(&image).unwrap();
    // s_free_blocks_count.
    let stored = u32::from_le_bytes(bytes[1024 + 12..][..4].try_into().unwrap());
    assert_eq!(u64::from(stored), writer.allocator().totals().free_blocks);
    free(&writer, run, Freed::Data).unwrap();
    close(&writer, &image);
}

/// Flips bits of the block bitmap of a group.
fn swap_bits(image: &Path, bitmap: u64, bits: &[u64]) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::options().read(true).write(true).open(image).unwrap();
    for bit in bits {
        let (at, mut byte) = (bitmap * 1024 + bit / 8, [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        byte[0] ^= 1 << (bit % 8);
        file.write_all_at(&byte, at).unwrap();
    }
}

#[test]
fn a_group_whose_bitmap_contradicts_itself_gives_nothing_away() {
    if !require(TOOLS) {
        return;
    }
    // A count detects one wrong bit. Two that preserve the count are detected by a checksum, or if one is of the
    // group's own metadata.
    for (options, changed) in [(0, 2), (3, 1), (3, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), VOLUMES[options]);
        let writer = open(&image);
        let run = allocate(&writer, 5000, 8).unwrap();
        let group = writer.volume().super_block().group_of(run.start).unwrap();
        let bitmap = writer.volume().group(group).unwrap().block_bitmap;
        let first = writer.volume().super_block().group_start(group);
        writer.close().unwrap();
        drop(writer);
        let used = if options == 0 { run.start } else { bitmap };
        let bits = [run.start.0 - first.0 + 8, used.0 - first.0];
        swap_bits(&image, bitmap.0, &bits[..changed]);
        let writer = open(&image);
        let other = allocate(&writer, 5000, 8).unwrap();
        assert_ne!(writer.volume().super_block().group_of(other.start), Some(group), "{options} {changed}");
    }
}

#[test]
fn freed_blocks_are_not_reused_before_their_transaction_is_durable() {
    on_each(|writer| {
        let run = allocate(writer, 5000, 8).unwrap();
        writer.txns().sync().unwrap();
        let before = writer.allocator().totals();
        free(writer, run, Freed::Metadata).unwrap();
        assert!(writer.allocator().has_waiting());
        assert!(writer.allocator().totals().free_blocks > before.free_blocks);
        let other = allocate(writer, run.start.0, 8).unwrap();
        assert_ne!(other.start, run.start);
        writer.txns().sync().unwrap();
        assert!(!writer.allocator().has_waiting());
        let again = allocate(writer, run.start.0, 8).unwrap();
        assert_eq!(again, run);
        free(writer, again, Freed::Data).unwrap();
        free(writer, other, Freed::Data).unwrap();
    });
}

#[test]
fn every_block_is_given_away_once_and_then_there_is_no_space() {
    on_each(|writer| {
        let sb = writer.volume().super_block();
        let free_before = writer.allocator().totals().free_blocks * u64::from(sb.cluster_blocks());
        let mut seen = HashSet::new();
        let mut runs = Vec::new();
        let mut want = 1;
        let error = loop {
            want = want * 7 % 101 + 1;
            match allocate(writer, u64::from(want) * 97, want) {
                Ok(run) => {
                    let blocks = run.start.0..run.start.0 + u64::from(run.len);
                    assert!(writer.volume().is_data(run.start, run.len.into()), "{run:?}");
                    assert!(blocks.into_iter().all(|block| seen.insert(block)), "{run:?} twice");
                    runs.push(run);
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::NoSpace);
        assert_eq!(seen.len() as u64, free_before);
        assert_eq!(writer.allocator().totals().free_blocks, 0);
        for run in runs {
            free(writer, run, Freed::Data).unwrap();
        }
        assert_eq!(allocate(writer, 0, 1), Err(Error::NoSpace));
        writer.txns().sync().unwrap();
        let run = allocate(writer, 0, 1).unwrap();
        free(writer, run, Freed::Data).unwrap();
    });
}

#[test]
fn reserved_blocks_are_exclusive_and_leave_no_trace_when_released() {
    on_each(|writer| {
        let allocator = writer.allocator();
        let before = allocator.totals();
        let kept = allocator.reserve(VolBlock(5000), 32).unwrap();
        let other = allocator.reserve(kept.start, 32).unwrap();
        assert!(other.start.0 >= kept.start.0 + u64::from(kept.len) || other.start.0 < kept.start.0);
        let part = BlockRun { len: writer.volume().super_block().cluster_blocks(), ..kept };
        let mut txn = writer.begin(Credits(4)).unwrap();
        allocator.publish(&mut txn, part).unwrap();
        txn.commit();
        let rest = u32::from(kept.len > part.len);
        if rest == 1 {
            let start = VolBlock(kept.start.0 + u64::from(part.len));
            allocator.release(BlockRun { start, len: kept.len - part.len });
        }
        allocator.release(other);
        assert_eq!(allocator.totals().free_blocks, before.free_blocks - 1);
        free(writer, part, Freed::Data).unwrap();
        assert_eq!(allocator.totals(), before);
    });
}

#[test]
fn freeing_free_blocks_or_metadata_is_refused_as_damage() {
    on_each(|writer| {
        let run = allocate(writer, 5000, 8).unwrap();
        free(writer, run, Freed::Data).unwrap();
        assert!(matches!(free(writer, run, Freed::Data), Err(Error::Corrupt(_))));
        let table = writer.volume().group(0).unwrap().inode_table;
        assert!(matches!(
            free(writer, BlockRun { start: table, len: 1 }, Freed::Data),
            Err(Error::Corrupt(_))
        ));
        let ino = take_inode(writer, ROOT_INO, InodeClass::Other).unwrap();
        give_inode(writer, ino, false);
        let before = writer.allocator().totals();
        let mut txn = writer.begin(Credits(8)).unwrap();
        let again = writer.allocator().free_inode(&mut txn, ino, false);
        txn.commit();
        assert!(matches!(again, Err(Error::Corrupt(_))));
        assert_eq!(writer.allocator().totals(), before);
    });
}

fn take_inode(writer: &Writer, parent: Ino, wanted: InodeClass) -> Result<Ino, Error> {
    let mut txn = writer.begin(Credits(8)).unwrap();
    let new = writer.allocator().allocate_inode(&mut txn, parent, wanted);
    txn.commit();
    new.map(|new| new.ino)
}

fn give_inode(writer: &Writer, ino: Ino, was_directory: bool) {
    let mut txn = writer.begin(Credits(8)).unwrap();
    writer.allocator().free_inode(&mut txn, ino, was_directory).unwrap();
    txn.commit();
}

#[test]
fn directories_leave_a_group_that_has_more_of_them_than_others() {
    on_each(|writer| {
        let sb = writer.volume().super_block();
        let group = |ino: Ino| (ino.0 - 1) / u64::from(sb.inodes_per_group);
        let parent = take_inode(writer, ROOT_INO, InodeClass::TopDirectory).unwrap();
        let many = sb.inodes_per_group / 2;
        let dirs: Vec<_> =
            (0..many).map(|_| take_inode(writer, parent, InodeClass::Directory).unwrap()).collect();
        let beside = dirs.iter().filter(|&&dir| group(dir) == group(parent)).count();
        // The parent's group has more free inodes than others, by a sixteenth of a group, and others get some as
        // well.
        assert!(sb.groups == 1 || (1..many as usize / 2).contains(&beside), "{beside} of {many}");
        dirs.into_iter().chain([parent]).for_each(|dir| give_inode(writer, dir, true));
    });
}

#[test]
fn every_inode_is_given_away_once_files_near_their_directory_and_directories_apart() {
    on_each(|writer| {
        let sb = writer.volume().super_block();
        let free_before = writer.allocator().totals().free_inodes;
        let take = |parent, wanted| take_inode(writer, parent, wanted);
        let group = |ino: Ino| (ino.0 - 1) / u64::from(sb.inodes_per_group);
        let dirs: Vec<_> = (0..4).map(|_| take(ROOT_INO, InodeClass::TopDirectory).unwrap()).collect();
        let groups: HashSet<_> = dirs.iter().map(|&ino| group(ino)).collect();
        assert!(groups.len() > 1 || sb.groups == 1, "{groups:?}");
        let file = take(dirs[1], InodeClass::Other).unwrap();
        assert_eq!(group(file), group(dirs[1]));
        let mut taken: HashSet<_> = dirs.iter().copied().chain([file]).collect();
        // Files without space there stay together, too, at the first distance that depends on the directory.
        let home = group(dirs[1]);
        let far = (home + dirs[1].0 + 1) % u64::from(sb.groups);
        if far != home {
            let mut others = std::iter::repeat_with(|| take(dirs[1], InodeClass::Other).unwrap());
            let first = others.find(|&ino| taken.insert(ino) && group(ino) != home);
            assert_eq!(first.map(group), Some(far));
        }
        while let Ok(ino) = take(file, InodeClass::Other) {
            assert!(ino.0 >= sb.first_ino.into() && ino.0 <= sb.inodes_count.into());
            assert!(taken.insert(ino), "{ino} twice");
        }
        assert_eq!((taken.len() as u64, writer.allocator().totals().free_inodes), (free_before, 0));
        for ino in taken {
            give_inode(writer, ino, dirs.contains(&ino));
        }
        assert_eq!(writer.allocator().totals().free_inodes, free_before);
    });
}

#[test]
fn threads_never_get_the_same_block() {
    on_each(|writer| {
        let work = |seed: u64| {
            let mut mine = Vec::new();
            for n in 0..40_u64 {
                let run = allocate(writer, seed * 1000 + n * 31, (n % 9) as u32 + 1).unwrap();
                mine.push(run);
                if n % 3 == 0 {
                    free(writer, mine.swap_remove(mine.len() / 2), Freed::Data).unwrap();
                }
            }
            mine
        };
        let runs: Vec<BlockRun> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..4).map(|seed| scope.spawn(move || work(seed))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let blocks: Vec<_> =
            runs.iter().flat_map(|run| run.start.0..run.start.0 + u64::from(run.len)).collect();
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), blocks.len());
        runs.into_iter().for_each(|run| free(writer, run, Freed::Data).unwrap());
    });
}
