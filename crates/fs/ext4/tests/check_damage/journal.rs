//! The journal: its super block, its inode, its log, and external journals.

use std::collections::BTreeSet;
use std::sync::Arc;

use obento_base::Name;
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{Access, CheckOptions, Driver as _, OpenOptions, RepairMode, Severity};
use obento_env::NO_CLOCK;
use obento_ext4::{Ext4, Ext4Driver, Issue, check_volume, issues, open_volume};
use obento_testkit::oracle::call;
use obento_testkit::scratch::memory_folder;

use crate::case::{cases, run_unknown};
use crate::common;
use crate::lab::Disk;
use crate::lab::bases::{self, Base, oracles};
use crate::lab::judge::{e2fsck, e2fsck_is_clean, findings, lost_to_us_alone, repaired};

cases! {
    a_magic_number_of_the_journal(EXT4, ["journal-damaged"], |disk| {
        let at = label(disk);
        disk.put(at, &[0; 4]);
    });
    a_kind_of_block_of_the_journal(EXT4, ["journal-damaged"], |disk| {
        let at = label(disk);
        disk.put(at + 4, &[0, 0, 0, 9]);
    });
    a_block_size_of_the_journal(EXT3, ["journal-damaged"], |disk| {
        let at = label(disk);
        disk.put(at + 0xc, &[0, 0, 0x10, 0]);
    });
    an_error_that_the_journal_keeps(EXT4, ["journal-aborted"], |disk| {
        let at = label(disk);
        disk.put(at + 0x20, &(-5_i32).to_be_bytes());
    });
    an_inode_of_the_journal_that_is_no_file(EXT4, ["journal-inode ino=8", "group-directories group=0"], |disk| {
        disk.edit_inode("<8>", |inode| inode.i_mode = 0o040_600.into());
    });
    an_inode_of_the_journal_that_is_longer_than_its_extents(EXT4, ["journal-inode ino=8"], |disk| {
        disk.edit_inode("<8>", |inode| inode.i_size_lo = (inode.i_size_lo.get() + 32_768).into());
    });
    an_inode_of_the_journal_with_a_size_that_cannot_be(EXT4, ["journal-inode ino=8"], |disk| {
        disk.edit_extra("<8>", |extra| extra.i_extra_isize = 257.into());
        disk.edit_inode("<8>", |inode| inode.i_links_count = 0.into());
    });
    an_inode_of_the_journal_that_is_empty(EXT4, ["journal-inode ino=8", "size ino=8"], |disk| {
        disk.edit_inode("<8>", |inode| inode.i_size_lo = 0.into());
    });
    an_inode_of_the_journal_that_ends_within_a_block(EXT4, ["size ino=8"], |disk| {
        disk.edit_inode("<8>", |inode| inode.i_size_lo = (inode.i_size_lo.get() + 32).into());
    });
    a_journal_inode_that_is_not_there(EXT4, ["journal-inode ino=99", "reserved-inode ino=8"], |disk| {
        disk.edit_super_block(|sb| sb.s_journal_inum = 99.into());
    });
    a_count_of_volumes_that_share_the_journal(EXT4, ["journal-field found=9999"], |disk| {
        let at = label(disk);
        disk.put(at + 0x40, &9999_u32.to_be_bytes());
    });
    a_journal_that_the_features_do_not_have(EXT4, ["journal-named ino=8", "reserved-inode ino=8"], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_compat = (sb.s_feature_compat.get() & !4).into());
    });
    a_name_of_a_journal_where_there_is_none(EXT2, ["journal-named ino=2"], |disk| {
        disk.edit_super_block(|sb| sb.s_journal_inum = 2.into());
    });
    a_recovery_that_no_journal_can_do(EXT2, ["journal-not-there"], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() | 4).into());
    });
}

#[test]
fn features_in_a_journal_of_version_1() {
    // e2fsck reports them, but not in its exit status.
    run_unknown(&bases::EXT3, &["journal-field found=1"], |disk| {
        let at = label(disk);
        disk.put(at + 4, &[0, 0, 0, 3]);
        disk.put(at + 0x28, &[0, 0, 0, 1]);
    });
}

/// Returns the byte offset of the journal's super block.
fn label(disk: &Disk) -> usize {
    disk.range(disk.file_block(8, 0)).start
}

/// The number of transactions in [`dirty`].
const TRANSACTIONS: u32 = 5;

/// Returns an intact image after a power failure, with transactions each of which gave `file` another name.
fn dirty(base: &'static Base) -> Disk {
    let device = Arc::new(MemDevice::new(base.disk().bytes));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let fs = Ext4Driver.open(device.clone(), &options).unwrap();
    let writable = fs.writable().unwrap();
    let file = fs.lookup(fs.root(), Name::new(b"file").unwrap()).unwrap();
    for n in 0..TRANSACTIONS {
        let name = format!("name-{n}");
        writable.link(file, fs.root(), Name::new(name.as_bytes()).unwrap()).unwrap();
        writable.sync().unwrap();
    }
    let mut bytes = vec![0; usize::try_from(device.len()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    Disk::new(bytes)
}

/// Returns the blocks of the log of one kind (1: descriptors, 2: commits) in the order of their transactions.
fn blocks_of_log(disk: &Disk, kind: u8) -> Vec<usize> {
    let all = disk.bytes.chunks(1024).enumerate();
    let found = all.filter(|(_, block)| block.starts_with(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, kind]));
    let mut found: Vec<_> = found.map(|(at, block)| (block[8..12].to_vec(), at * 1024)).collect();
    found.sort();
    found.into_iter().map(|(_, at)| at).collect()
}

/// Returns the names in the root directory.
fn names(bytes: &[u8]) -> BTreeSet<Vec<u8>> {
    let device = Arc::new(MemDevice::read_only(bytes.to_vec()));
    let fs = Ext4::new(open_volume(device, &common::options()).unwrap());
    common::read_everything(&fs).entries.into_iter().map(|(path, _)| path).collect()
}

/// Repairs an image whose log is damaged, and returns the number of its transactions that were replayed. e2fsck must
/// replay as many.
fn replayed(damaged: &Disk) -> u32 {
    let fixed = repaired(&damaged.bytes).unwrap();
    let second = e2fsck_is_clean(&fixed);
    assert!(second.is_clean(), "{}", second.text);
    assert_eq!(findings(&fixed).unwrap(), []);
    assert_eq!(lost_to_us_alone(&damaged.bytes, &fixed), []);
    let (ours, theirs) = (names(&fixed), names(&e2fsck(&damaged.bytes, &["-fy"]).1));
    assert_eq!(ours, theirs);
    (0..TRANSACTIONS).filter(|n| ours.contains(format!("/name-{n}").as_bytes())).count() as u32
}

/// Returns the kinds of issues of an image.
fn kinds(disk: &Disk) -> Vec<&'static str> {
    let device = Arc::new(MemDevice::read_only(disk.bytes.clone()));
    issues(device).unwrap().iter().map(Issue::code).collect()
}

#[test]
fn a_sound_journal_is_replayed_completely() {
    if oracles() {
        for base in [&bases::EXT4, &bases::EXT3] {
            let disk = dirty(base);
            assert_eq!(kinds(&disk), ["journal-dirty"]);
            assert_eq!(replayed(&disk), TRANSACTIONS);
        }
    }
}

#[test]
fn a_log_is_replayed_completely_although_its_super_block_has_other_counts() {
    if oracles() {
        let mut disk = dirty(&bases::EXT4);
        let at = label(&disk);
        disk.put(at + 0x40, &[0, 0, 0, 9]);
        let sum = obento_journal::checksum::super_block(&disk.bytes[at..at + 1024]);
        disk.put(at + 0xfc, &sum.to_be_bytes());
        assert_eq!(kinds(&disk), ["journal-field", "journal-dirty"]);
        let fixed = repaired(&disk.bytes).unwrap();
        let second = e2fsck_is_clean(&fixed);
        assert!(second.is_silent(), "{}", second.text);
        assert_eq!(findings(&fixed).unwrap(), []);
        // e2fsck clears the features that are needed to read the log.
        let found = names(&fixed);
        assert!((0..TRANSACTIONS).all(|n| found.contains(format!("/name-{n}").as_bytes())));
    }
}

#[test]
fn a_log_is_replayed_though_the_feature_of_journals_is_missing() {
    if oracles() {
        for base in [&bases::EXT4, &bases::EXT3] {
            let mut disk = dirty(base);
            disk.edit_super_block(|sb| sb.s_feature_compat = (sb.s_feature_compat.get() & !4).into());
            assert_eq!(kinds(&disk), ["feature", "journal-dirty"]);
            let fixed = repaired(&disk.bytes).unwrap();
            let second = e2fsck_is_clean(&fixed);
            assert!(second.is_silent(), "{}", second.text);
            assert_eq!(findings(&fixed).unwrap(), []);
            // e2fsck discards the log.
            let found = names(&fixed);
            assert!((0..TRANSACTIONS).all(|n| found.contains(format!("/name-{n}").as_bytes())));
        }
    }
}

#[test]
fn a_commit_with_a_wrong_checksum_ends_the_replay_before_it() {
    if oracles() {
        let mut disk = dirty(&bases::EXT4);
        let commits = blocks_of_log(&disk, 2);
        disk.put(commits[commits.len() - 2] + 16, &[1, 2, 3, 4]);
        assert_eq!(kinds(&disk), ["journal-replay", "journal-dirty"]);
        assert_eq!(replayed(&disk), TRANSACTIONS - 2);
    }
}

#[test]
fn a_copy_with_a_wrong_checksum_costs_its_block_alone() {
    if oracles() {
        let mut disk = dirty(&bases::EXT4);
        let descriptors = blocks_of_log(&disk, 1);
        // The first copy after the last descriptor.
        let copy = descriptors[descriptors.len() - 1] + 1024;
        disk.bytes[copy + 700] ^= 0x55;
        assert!(kinds(&disk).starts_with(&["journal-replay", "journal-dirty"]), "{:?}", kinds(&disk));
        replayed(&disk);
    }
}

#[test]
fn a_descriptor_with_a_wrong_checksum_invalidates_the_log() {
    if oracles() {
        let mut disk = dirty(&bases::EXT4);
        let at = blocks_of_log(&disk, 1)[1];
        disk.bytes[at + 900] ^= 0x55;
        assert_eq!(kinds(&disk)[0], "journal-replay");
        replayed(&disk);
    }
}

#[test]
fn one_repair_suffices_for_any_damage_of_the_log() {
    if !oracles() {
        return;
    }
    let sound = dirty(&bases::EXT4);
    let log = [1, 2].map(|kind| blocks_of_log(&sound, kind));
    let label = label(&sound);
    let places = log.iter().flatten().flat_map(|&at| [at, at + 4, at + 8, at + 16, at + 700, at + 1020]);
    let copies = log[0].iter().map(|&at| at + 1024 + 300);
    for at in places.chain(copies).chain([label, label + 4, label + 0x18, label + 0x1c, label + 0xfc]) {
        let mut disk = sound.clone();
        disk.bytes[at] ^= 0x41;
        let fixed = repaired(&disk.bytes).unwrap();
        assert_eq!(findings(&fixed).unwrap(), [], "byte {at}");
        let second = e2fsck_is_clean(&fixed);
        assert!(second.is_clean(), "byte {at}: {}", second.text);
        let (report, after) = crate::lab::judge::repair_copy(&fixed, RepairMode::All).unwrap();
        assert_eq!((report.found, after == fixed), (0, true), "byte {at}");
    }
}

#[test]
fn a_safe_repair_leaves_a_damaged_log_alone() {
    if oracles() {
        let mut disk = dirty(&bases::EXT4);
        let at = blocks_of_log(&disk, 1)[1];
        disk.bytes[at + 900] ^= 0x55;
        let device = Arc::new(MemDevice::new(disk.bytes.clone()));
        let options = CheckOptions { repair_mode: RepairMode::Safe, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
        let report = check_volume(device.clone(), &options, &mut |_| {}).unwrap();
        assert_eq!(report.repaired, 0);
        let mut after = vec![0; disk.bytes.len()];
        device.read_at(0, &mut after).unwrap();
        assert!(after == disk.bytes);
    }
}

#[test]
fn a_recreated_journal_has_the_same_place_and_size() {
    if oracles() {
        for base in [&bases::EXT4, &bases::EXT3, &bases::BIGALLOC, &bases::LARGE] {
            let sound = base.disk();
            let mut disk = sound.clone();
            let at = label(&disk);
            disk.put(at, &[0; 1024]);
            let fixed = Disk::new(repaired(&disk.bytes).unwrap());
            assert_eq!(fixed.file_blocks(8), sound.file_blocks(8), "{}", base.name);
            assert_eq!(fixed.inode_of(8).i_size_lo, sound.inode_of(8).i_size_lo, "{}", base.name);
            let second = e2fsck_is_clean(&fixed.bytes);
            assert!(second.is_silent(), "{}: {}", base.name, second.text);
        }
    }
}

#[test]
fn a_journal_whose_inode_and_copy_are_lost_is_recreated_elsewhere() {
    if oracles() {
        for base in [&bases::EXT4, &bases::EXT3, &bases::BIGALLOC] {
            let mut disk = base.disk();
            disk.edit_super_block(|sb| sb.s_jnl_backup_type = 0);
            disk.edit_inode("<8>", |inode| {
                inode.i_block = [0; 60];
                inode.i_size_lo = 0.into();
                inode.i_blocks_lo = 0.into();
                inode.i_flags = 0.into();
            });
            let fixed = Disk::new(repaired(&disk.bytes).unwrap());
            let (second, left) = (e2fsck_is_clean(&fixed.bytes), findings(&fixed.bytes).unwrap());
            assert!(second.is_silent() && left.is_empty(), "{}: {} {left:?}", base.name, second.text);
            assert_eq!(fixed.super_block().s_feature_compat.get() & 4, 4, "{}: no journal", base.name);
            assert!(fixed.file_blocks(8).len() >= 1024, "{}", base.name);
            assert_eq!(lost_to_us_alone(&disk.bytes, &fixed.bytes), []);
            // The journal is usable.
            assert_eq!(names(&dirty_of(&fixed)), names(&fixed.bytes));
        }
    }
}

/// Returns an image that was opened for changes and not closed.
fn dirty_of(disk: &Disk) -> Vec<u8> {
    let device = Arc::new(MemDevice::new(disk.bytes.clone()));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let fs = Ext4Driver.open(device.clone(), &options).unwrap();
    fs.writable().unwrap().sync().unwrap();
    let mut bytes = vec![0; disk.bytes.len()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_journal_with_an_unknown_feature_is_left_alone() {
    if oracles() {
        let mut disk = bases::EXT4.disk();
        let at = label(&disk);
        disk.put(at + 0x28, &[0x40, 0, 0, 0]);
        assert_eq!(kinds(&disk), ["journal-damaged"]);
        let fixed = Disk::new(repaired(&disk.bytes).unwrap());
        assert_eq!(kinds(&fixed), ["journal-damaged"]);
        assert_eq!(fixed.bytes[at..at + 1024], disk.bytes[at..at + 1024]);
    }
}

#[test]
fn a_file_that_the_super_block_takes_for_the_journal_keeps_its_contents() {
    if oracles() {
        let mut disk = bases::PLAIN.disk();
        let file = disk.ino("pieces");
        disk.edit_super_block(|sb| sb.s_journal_inum = file.into());
        let fixed = repaired(&disk.bytes).unwrap();
        let second = e2fsck_is_clean(&fixed);
        assert!(second.is_clean(), "{}", second.text);
        let before = crate::lab::judge::contents(&disk.bytes);
        assert_eq!(crate::lab::judge::lost(&before, &crate::lab::judge::contents(&fixed)), []);
    }
}

/// The UUID of an external journal.
const OUTER: [u8; 16] = *b"obento's journal";

/// Returns a device of 4 MiB that is the journal of `users` volumes, one of which is `disk`.
fn outer_journal(disk: &mut Disk, users: u32) -> Vec<u8> {
    let folder = tempfile::Builder::new().prefix("obento-lab-").tempdir_in(memory_folder()).unwrap();
    let log = folder.path().join("log");
    std::fs::File::create(&log).unwrap().set_len(4 << 20).unwrap();
    call("mke2fs", ["-q", "-F", "-b", "1024", "-O", "journal_dev,^metadata_csum", log.to_str().unwrap()])
        .unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[1024 + 0x68..][..16].copy_from_slice(&OUTER);
    bytes[2048 + 0x30..][..16].copy_from_slice(&OUTER);
    bytes[2048 + 0x40..][..4].copy_from_slice(&users.to_be_bytes());
    bytes[2048 + 0x100..][..16].copy_from_slice(&disk.super_block().s_uuid);
    disk.edit_super_block(|sb| {
        sb.s_feature_compat = (sb.s_feature_compat.get() | 4).into();
        sb.s_journal_uuid = OUTER;
    });
    bytes
}

/// Returns the codes that are found on `disk` with a journal on `log`, which is repaired with it, and the number of
/// issues left.
fn repair_with(disk: &Disk, log: &Arc<MemDevice>) -> (Vec<&'static str>, u64) {
    let device = Arc::new(MemDevice::new(disk.bytes.clone()));
    let options = CheckOptions {
        repair_mode: RepairMode::All,
        journal: Some(log.clone()),
        ..CheckOptions::new(Arc::new(NO_CLOCK))
    };
    let mut codes = Vec::new();
    let report = check_volume(device, &options, &mut |event| match event {
        obento_ext4::CheckEvent::Found(issue, _) if issue.severity() > Severity::Note => {
            codes.push(issue.code())
        }
        _ => {}
    });
    (codes, report.unwrap().left())
}

#[test]
fn a_journal_on_another_device_is_recreated_with_its_uuid() {
    if oracles() {
        let mut disk = bases::EXT2.disk();
        let sound = outer_journal(&mut disk, 1);
        let log = Arc::new(MemDevice::new(sound.clone()));
        assert_eq!(repair_with(&disk, &log), (vec![], 0));
        let mut damaged = sound.clone();
        damaged[2048..3072].fill(0xff);
        let log = Arc::new(MemDevice::new(damaged));
        assert_eq!(repair_with(&disk, &log), (vec!["journal-damaged"], 0));
        let mut label = vec![0; 1024];
        log.read_at(2048, &mut label).unwrap();
        assert_eq!(label[0x30..0x40], OUTER);
        assert_eq!(label[0x100..0x110], disk.super_block().s_uuid);
        assert_eq!(label[..0x18], sound[2048..2048 + 0x18]);
        assert_eq!(repair_with(&disk, &log), (vec![], 0));
    }
}

#[test]
fn a_journal_of_another_name_is_left() {
    if oracles() {
        let mut disk = bases::EXT2.disk();
        let mut bytes = outer_journal(&mut disk, 1);
        bytes[1024 + 0x68] ^= 1;
        let log = Arc::new(MemDevice::new(bytes.clone()));
        assert_eq!(repair_with(&disk, &log), (vec!["journal-damaged"], 1));
        let mut after = vec![0; bytes.len()];
        log.read_at(0, &mut after).unwrap();
        assert!(after == bytes);
    }
}
