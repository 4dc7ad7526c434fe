//! Dirty journals that the kernel and debugfs wrote: the replay equals that of `e2fsck`.

mod images;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use images::{Loop, MIB, Sample, compare, has_orphans, kernel_oracles, open};
use obento_block::MemDevice;
use obento_journal::{Checksums, Incompat, Journal, Replayed};
use obento_testkit::oracle::{LoopMount, Oracle, call, require};

fn magic_file(path: &Path, blocks: usize) {
    let mut block = vec![0x11; 1024];
    block[..4].copy_from_slice(&obento_journal::raw::MAGIC.to_be_bytes());
    let mut file = File::create(path).unwrap();
    file.write_all(&block.repeat(blocks)).unwrap();
    file.sync_all().unwrap();
}

/// Creates and removes files in `root`, one step per transaction, and leaves the journal dirty.
fn be_busy(root: &Path, rounds: usize) {
    for round in 0..rounds {
        let dir = root.join(format!("dir{round}"));
        fs::create_dir(&dir).unwrap();
        for n in 0..40 {
            fs::write(dir.join(format!("file{n}")), format!("{round} {n}").repeat(n * 40)).unwrap();
        }
        magic_file(&root.join(format!("magic{}", round % 3)), 20);
        if round > 1 {
            // Removed directories leave revokes of their blocks.
            fs::remove_dir_all(root.join(format!("dir{}", round - 2))).unwrap();
        }
        // Synced after the end of all removed files. If the commit is between the removal of a name and the removal of
        // its inode, e2fsck frees the inode in addition to the replay.
        File::create(root.join(format!("end{round}"))).unwrap().sync_all().unwrap();
    }
}

/// Mounts with `options`, changes the volume, and compares snapshots taken meanwhile.
fn judge_kernel(mke2fs: &[&str], options: &str) -> Vec<(Journal, Replayed)> {
    let sample = Sample::new(mke2fs);
    let mount = LoopMount::new(&sample.image, options).unwrap();
    let mut outcomes = Vec::new();
    for (step, rounds) in [3, 9, 25].into_iter().enumerate() {
        let root = mount.path().join(format!("step{step}"));
        fs::create_dir(&root).unwrap();
        be_busy(&root, rounds);
        let snapshot = sample.snapshot(&format!("snapshot{step}"));
        let journal = open(&snapshot);
        let replayed = compare(&snapshot, &journal, &[]);
        outcomes.push((journal, replayed));
    }
    mount.unmount().unwrap();
    outcomes
}

#[test]
fn journals_left_by_the_kernel_replay_to_what_e2fsck_leaves() {
    if !kernel_oracles() {
        return;
    }
    // The smallest journals, which are full soon.
    let plain: &[(&[&str], &str, Checksums)] = &[
        (&["-t", "ext4", "-b", "4096"], "", Checksums::V3),
        (&["-t", "ext4", "-b", "1024"], "data=journal", Checksums::V3),
        (&["-t", "ext4", "-O", "^metadata_csum"], "data=journal", Checksums::None),
        (&["-t", "ext4", "-O", "^metadata_csum,^64bit"], "journal_checksum", Checksums::V1),
        (&["-t", "ext4", "-O", "^metadata_csum"], "journal_async_commit,data=writeback", Checksums::V1),
        (&["-t", "ext4"], "journal_async_commit,data=journal", Checksums::V3),
        (&["-t", "ext3", "-b", "1024"], "", Checksums::None),
        (&["-t", "ext3", "-b", "2048"], "data=journal", Checksums::None),
    ];
    let (mut revoked, mut escaped, mut wrapped) = (0, 0, 0);
    for (mke2fs, options, checksums) in plain {
        let size = if mke2fs.contains(&"2048") { "size=2" } else { "size=1" };
        let small = [mke2fs, &["-J", size][..]].concat();
        let args = if mke2fs.contains(&"4096") { *mke2fs } else { &small };
        for (journal, replayed) in judge_kernel(args, options) {
            let sb = journal.super_block();
            assert_eq!(sb.checksums(), *checksums, "{mke2fs:?} {options}");
            assert!(replayed.summary.transactions > 0 && replayed.summary.blocks > 0, "{mke2fs:?}");
            assert_eq!(sb.incompat.contains(Incompat::ASYNC_COMMIT), options.contains("async"));
            revoked += replayed.summary.revoked;
            escaped += replayed.index.values().filter(|source| source.first.is_some()).count();
            wrapped += usize::from(replayed.summary.head < sb.start);
        }
    }
    assert!(
        revoked > 0 && escaped > 0 && wrapped > 0,
        "{revoked} revoked, {escaped} escaped, {wrapped} wrapped"
    );
}

#[test]
fn journals_written_by_debugfs_replay_to_what_e2fsck_leaves() {
    if !kernel_oracles() {
        return;
    }
    for features in ["^metadata_csum,^64bit", "^metadata_csum,64bit", "metadata_csum,64bit"] {
        for (version, checksums) in
            [("", Checksums::None), ("-c -v 2", Checksums::V2), ("-c -v 3", Checksums::V3)]
        {
            let sample = Sample::new(&["-t", "ext4", "-b", "1024", "-O", features]);
            let data = sample.folder.path().join("data");
            let mut bytes = obento_journal::raw::MAGIC.to_be_bytes().repeat(256);
            bytes.extend([0x77; 3 * 1024]);
            fs::write(&data, &bytes).unwrap();
            let write = |blocks: &str| format!("jw -b {blocks} {}", data.display());
            let opened = format!("jo {version}");
            // debugfs counts revoke blocks into checksums of v1, which the kernel and e2fsck do not.
            let old = features.starts_with('^') && checksums != Checksums::None;
            let (first, second, third) = (write("9001-9004"), write("9101-9104"), write("9004-9007"));
            let revoke = if old { "" } else { "jw -r 9002,9103" };
            sample.debugfs(&[&opened, &first, &second, revoke, &third, "jc"]);
            let journal = open(&sample.image);
            let found = journal.super_block().checksums();
            // Without metadata_csum, debugfs supports only the checksums of v1.
            assert_eq!(found, if old { Checksums::V1 } else { checksums }, "{features} {version}");
            let replayed = compare(&sample.image, &journal, &[]);
            let summary = replayed.summary;
            let expected = if old { (3, 12, 0) } else { (4, 10, 2) };
            let found = (summary.transactions, summary.blocks, summary.revoked);
            assert_eq!(found, expected, "{features} {version}");
            assert_eq!(replayed.index[&9001].first, Some(obento_journal::raw::MAGIC.to_be_bytes()));
        }
    }
}

#[test]
fn an_external_journal_replays_onto_the_volume_that_names_it() {
    if !kernel_oracles() || !require(&[Oracle::Program("losetup")]) {
        return;
    }
    for size in ["1024", "4096"] {
        let folder = tempfile::tempdir().unwrap();
        let side = folder.path().join("journal");
        File::create(&side).unwrap().set_len(8 * MIB).unwrap();
        call("mke2fs", ["-q", "-F", "-O", "journal_dev", "-b", size, side.to_str().unwrap()]).unwrap();
        let device = Loop::new(&side);
        let sample = Sample::new(&["-t", "ext4", "-b", size, "-J", &format!("device={}", device.0)]);
        let mount = LoopMount::new(&sample.image, &format!("journal_path={}", device.0)).unwrap();
        let mut uuid = [0; 16];
        File::open(&sample.image).unwrap().read_exact_at(&mut uuid, 1024 + 0xd0).unwrap();
        let len: u32 = size.parse().unwrap();
        let side_copy = folder.path().join("side");
        let take = |attempt: u32| {
            let root = mount.path().join(format!("step{attempt}"));
            fs::create_dir(&root).unwrap();
            be_busy(&root, 5);
            let image = sample.snapshot("snapshot");
            fs::copy(&side, &side_copy).unwrap();
            let bytes = Arc::new(MemDevice::read_only(fs::read(&side_copy).unwrap()));
            let journal = Journal::open_external(bytes.clone(), len, uuid).unwrap();
            (!has_orphans(&image, &journal)).then_some((image, bytes, journal))
        };
        let (image, bytes, journal) = (0..9).find_map(take).expect("a snapshot without orphans");
        mount.unmount().unwrap();

        let replayed = compare(&image, &journal, &["-j", side_copy.to_str().unwrap()]);
        assert!(replayed.summary.transactions > 0);
        assert!(Journal::open_external(bytes, len, [9; 16]).is_err());
    }
}
