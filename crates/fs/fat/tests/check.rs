//! Checks: each single damage gives its issue; a repaired volume is clean to `fsck.fat`; and both checkers agree
//! which randomly damaged volumes are clean.

mod common;
#[path = "common/damage.rs"]
mod damage;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use damage::{D, E, F, LONG, Volume, clean_to_fsck, found, options, repair_copy};
use obento_block::MemDevice;
use obento_driver::RepairMode;
use obento_fat::check::{Event, Issue, check_volume, issues};
use obento_testkit::mutants::Random;
use obento_testkit::oracle::{program, run};

/// Tests that `damage` on volumes of these shapes gives the returned issues, that `fsck.fat` finds it, too, and that
/// all is repaired.
fn one(shapes: &[&str], damage: impl Fn(&mut Volume) -> Vec<Issue>) {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in shapes {
        let mut volume = Volume::new(name);
        assert_eq!(found(&volume.bytes), [], "{name}");
        let expected = damage(&mut volume);
        assert_eq!(found(&volume.bytes), expected, "{name}");
        let fsck = clean_to_fsck(&volume.bytes, folder.path());
        let is_stricter = matches!(expected[..], [Issue::HiddenEntries { .. }]);
        assert!(fsck.is_err() || is_stricter, "{name}: fsck.fat finds nothing");
        let (bytes, left) = repair_copy(&volume.bytes, RepairMode::All);
        assert_eq!((found(&bytes), left), (vec![], 0), "{name}");
        clean_to_fsck(&bytes, folder.path()).unwrap_or_else(|said| panic!("{name}: {said}"));
        let is_safe = expected.iter().all(|issue| issue.severity() <= obento_driver::Severity::Safe);
        let (bytes, left) = repair_copy(&volume.bytes, RepairMode::Safe);
        assert_eq!(left == 0, is_safe, "{name}");
        let unsafe_ones = |issue: &Issue| issue.severity() > obento_driver::Severity::Safe;
        let kept: Vec<Issue> = expected.into_iter().filter(unsafe_ones).collect();
        assert_eq!(found(&bytes), kept, "{name}: only safe problems are repaired");
    }
}

const ALL: [&str; 3] = ["fat12", "fat16", "fat32"];

#[test]
fn a_sound_volume_is_clean_and_not_written() {
    if !common::oracles() {
        return;
    }
    for name in ["fat12", "fat12-4k", "fat12-sector-2k", "fat16", "fat16-sector-4k", "fat32"] {
        let Some(bytes) = common::FORMAT.filled(name) else { return };
        assert_eq!(found(&bytes), [], "{name}");
        let (after, left) = repair_copy(&bytes, RepairMode::All);
        assert!(left == 0 && after == *bytes, "{name}");
    }
}

#[test]
fn a_file_in_a_free_bad_or_impossible_cluster_is_one_issue() {
    for (value, why) in [(0_u32, "is free"), (u32::MAX - 8, "is bad")] {
        one(&ALL, |volume| {
            let cluster = volume.first(F) + 2;
            volume.link(cluster, value);
            vec![Issue::Chain { ino: volume.ino(F), at: 2, cluster, why }]
        });
    }
    one(&ALL, |volume| {
        let cluster = volume.first(F) + 2;
        volume.link(cluster, 1);
        let why = "is followed by an invalid number";
        vec![Issue::Chain { ino: volume.ino(F), at: 2, cluster, why }]
    });
    // The clusters after the damage are then lost.
    one(&ALL, |volume| {
        let cluster = volume.first(F);
        volume.link(cluster + 1, 0);
        let lost = Issue::LostChain { cluster: cluster + 2, clusters: 1 };
        vec![Issue::Chain { ino: volume.ino(F), at: 1, cluster: cluster + 1, why: "is free" }, lost]
    });
}

#[test]
fn a_chain_in_a_circle_is_one_issue() {
    one(&ALL, |volume| {
        let cluster = volume.first(F);
        volume.set_size(F, 1 << 20);
        volume.link(cluster + 2, cluster + 1);
        let why = "occurs twice";
        vec![Issue::Chain { ino: volume.ino(F), at: 3, cluster: cluster + 1, why }]
    });
}

#[test]
fn a_cluster_of_two_files_is_one_issue() {
    one(&ALL, |volume| {
        let (cluster, long) = (volume.first(F), volume.first(LONG));
        let size = volume.cluster as u32 * 2;
        volume.set_size(LONG, size);
        volume.link(long, cluster + 2);
        let (first, second) = (volume.entry(F), volume.entry(LONG));
        // The file whose entry comes first keeps the cluster.
        if first < second {
            return vec![Issue::CrossLink { ino: volume.ino(LONG), at: 1, cluster: cluster + 2 }];
        }
        vec![Issue::CrossLink { ino: volume.ino(F), at: 2, cluster: cluster + 2 }]
    });
}

#[test]
fn a_size_that_is_not_that_of_the_chain_is_one_issue() {
    one(&ALL, |volume| {
        let size = volume.cluster as u32;
        volume.set_size(F, size);
        vec![Issue::LongChain { ino: volume.ino(F), size, clusters: 1 }]
    });
    one(&ALL, |volume| {
        let size = volume.cluster as u32 * 3 + 1;
        volume.set_size(F, size);
        vec![Issue::ShortChain { ino: volume.ino(F), size, clusters: 3 }]
    });
}

#[test]
fn lost_clusters_are_one_issue_a_chain_and_become_files() {
    one(&ALL, |volume| {
        let cluster = volume.first(F);
        let at = volume.entry(F);
        volume.bytes[at] = 0xe5;
        vec![Issue::LostChain { cluster, clusters: 3 }]
    });
    let mut volume = Volume::new("fat16");
    let at = volume.entry(F);
    volume.bytes[at] = 0xe5;
    let (bytes, _) = repair_copy(&volume.bytes, RepairMode::Safe);
    let fs = common::open(Arc::new(MemDevice::read_only(bytes))).unwrap();
    let ino = common::resolve(&*fs, "/FSCK0000.REC").unwrap();
    let size = fs.getattr(ino).unwrap().size;
    let found = common::read(&*fs, ino, size).unwrap();
    assert_eq!((size as usize, &found[..600]), (3 * volume.cluster, &[7; 600][..]));
    // A circular chain without an owner has no first cluster.
    one(&ALL, |volume| {
        let free = volume.first(F) + 100;
        volume.link(free, free + 1);
        volume.link(free + 1, free);
        vec![Issue::LostChain { cluster: free, clusters: 2 }]
    });
}

/// Creates a FAT32 volume without a free cluster. Its root directory is full, and it has six lost chains.
fn full_with_lost_chains(folder: &Path) -> Vec<u8> {
    const LAST: u32 = 0x0fff_ffff;
    let image = folder.join("full.img");
    File::create(&image).and_then(|file| file.set_len(40 << 20)).unwrap();
    run(program("mkfs.vfat").args(["-F32", "-s1", "-S512"]).arg(&image)).unwrap();
    let mut volume = Volume::of(std::fs::read(&image).unwrap());
    let end = ((volume.bytes.len() - volume.data) / volume.cluster) as u32 + 2;
    let big = 3 + 6 * 10;
    for first in (3..big).step_by(10) {
        (first..first + 9).for_each(|cluster| volume.link(cluster, cluster + 1));
        volume.link(first + 9, LAST);
    }
    (big..end - 1).for_each(|cluster| volume.link(cluster, cluster + 1));
    volume.link(end - 1, LAST);
    let entry = |name: &[u8], first: u32, size: u32| {
        let mut entry = [0; 32];
        entry[..11].copy_from_slice(name);
        entry[11] = 0x20;
        entry[20..22].copy_from_slice(&first.to_le_bytes()[2..]);
        entry[26..28].copy_from_slice(&first.to_le_bytes()[..2]);
        entry[28..].copy_from_slice(&size.to_le_bytes());
        entry
    };
    let mut root = entry(b"BIG     BIN", big, (end - big) * 512).to_vec();
    (0..15).for_each(|n| root.extend(entry(format!("F{n:02}     TXT").as_bytes(), 0, 0)));
    let at = volume.offset(2);
    volume.bytes[at..at + 512].copy_from_slice(&root);
    // No free cluster is counted.
    volume.bytes[512 + 0x1e8..][..4].fill(0);
    volume.bytes
}

#[test]
fn on_a_full_volume_one_lost_chain_makes_room_for_the_names_of_the_others() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (bytes, left) = repair_copy(&full_with_lost_chains(folder.path()), RepairMode::All);
    assert_eq!((found(&bytes), left), (vec![], 0));
    clean_to_fsck(&bytes, folder.path()).unwrap();
    let fs = common::open(Arc::new(MemDevice::read_only(bytes))).unwrap();
    let kept = (0..6).filter(|n| common::resolve(&*fs, &format!("/FSCK000{n}.REC")).is_ok());
    assert_eq!(kept.count(), 5);
}

#[test]
fn a_start_that_no_cluster_has_is_one_issue() {
    one(&ALL, |volume| {
        let old = volume.first(LONG);
        let cluster = if volume.width == 32 { 0x0fff_fff0 } else { 0xfff0 };
        volume.set_first(LONG, cluster);
        volume.free(old);
        vec![Issue::StartCluster { ino: volume.ino(LONG), cluster }]
    });
    one(&ALL, |volume| {
        let old = volume.first(E);
        volume.set_first(E, 0);
        volume.free(old);
        vec![Issue::DirectoryStart { ino: volume.ino(E), cluster: 0, why: "is that of the root directory" }]
    });
    one(&ALL, |volume| {
        let (old, d) = (volume.first(E), volume.first(D));
        volume.set_first(E, d);
        volume.free(old);
        vec![Issue::DirectoryStart { ino: volume.ino(E), cluster: d, why: "has no valid '.' entry" }]
    });
}

#[test]
fn dots_that_lead_elsewhere_are_one_issue_each() {
    one(&ALL, |volume| {
        let (e, d) = (volume.first(E), volume.first(D));
        let at = volume.offset(e) + 32 + 26;
        volume.bytes[at] = d as u8 + 1;
        vec![Issue::DotEntry { dir: volume.ino(E), name: "..", found: d + 1, expected: d }]
    });
    one(&ALL, |volume| {
        let d = volume.first(D);
        let at = volume.offset(d) + 32 + 12;
        volume.bytes[at] |= 0x20;
        vec![Issue::DotFlag { dir: volume.ino(D), name: ".." }]
    });
    one(&ALL, |volume| {
        let d = volume.first(D);
        let at = volume.offset(d);
        volume.bytes[at] = 0xe5;
        vec![Issue::DotEntry { dir: volume.ino(D), name: ".", found: d, expected: d }]
    });
    one(&ALL, |volume| {
        let d = volume.first(D);
        let at = volume.offset(d) + 32;
        volume.bytes[at..at + 12].copy_from_slice(b"XY         \x20");
        vec![Issue::DotPlace { dir: volume.ino(D), name: ".." }]
    });
}

#[test]
fn a_directory_with_a_size_is_one_issue() {
    one(&ALL, |volume| {
        volume.set_size(E, 512);
        vec![Issue::DirectorySize { ino: volume.ino(E), found: 512 }]
    });
}

#[test]
fn invalid_and_duplicate_names_are_one_issue_each() {
    one(&ALL, |volume| {
        let (at, ino) = (volume.entry(F), volume.ino(F));
        volume.bytes[at + 3] = b'*';
        vec![Issue::EntryName { ino, dir: volume.ino(D), name: b"F  *       ".to_vec() }]
    });
    one(&ALL, |volume| {
        let (e, f) = (volume.entry(E), volume.entry(F));
        let last = e.max(f);
        let name = volume.bytes[e.min(f)..][..11].to_vec();
        volume.bytes[last..last + 11].copy_from_slice(&name);
        vec![Issue::DuplicateName { ino: last as u64 / 32, dir: volume.ino(D), name }]
    });
}

#[test]
fn incomplete_and_orphaned_long_names_are_one_issue_each() {
    let part = |volume: &Volume| volume.entry(LONG) - 32;
    let index = |volume: &Volume, at: usize| {
        let d = volume.first(D);
        ((at - volume.offset(d)) / 32) as u32
    };
    one(&ALL, |volume| {
        let at = part(volume);
        volume.bytes[at + 13] ^= 0x55;
        let why = match volume.bytes[at] & 0x40 {
            0 => "has parts of two files",
            _ => "has the checksum of another name",
        };
        let dir = volume.ino(D);
        let first = if volume.bytes[at] & 0x40 == 0 { at - 32 } else { at };
        vec![Issue::LongName { dir, index: index(volume, first), why }]
    });
    one(&ALL, |volume| {
        let at = part(volume);
        volume.bytes[at + 12] = 9;
        vec![Issue::LongNameField {
            dir: volume.ino(D),
            index: index(volume, at),
            field: "LDIR_Type",
            found: 9,
            expected: 0,
        }]
    });
    one(&ALL, |volume| {
        let (at, cluster) = (volume.entry(LONG), volume.first(LONG));
        let mut first = at - 32;
        while volume.bytes[first] & 0x40 == 0 {
            first -= 32;
        }
        volume.bytes[at] = 0xe5;
        volume.free(cluster);
        vec![Issue::OrphanedLongName { dir: volume.ino(D), index: index(volume, first) }]
    });
}

#[test]
fn entries_behind_the_end_are_one_issue_and_come_back() {
    one(&ALL, |volume| {
        let (d, e) = (volume.first(D), volume.entry(E));
        let index = ((e - volume.offset(d)) / 32) as u32;
        let old = volume.first(E);
        volume.bytes[e] = 0;
        volume.free(old);
        vec![Issue::HiddenEntries { dir: volume.ino(D), index }]
    });
}

#[test]
fn fats_that_differ_are_one_issue() {
    one(&["fat12", "fat16", "fat32"], |volume| {
        let cluster = volume.first(F);
        volume.link_in(1, cluster, 0);
        vec![Issue::FatCopy { copy: 1, cluster }]
    });
    one(&["fat16", "fat32"], |volume| {
        volume.link_in(0, 0, 0xf8);
        vec![Issue::FatStart { copy: 0, found: 0xf8 }]
    });
    one(&["fat16", "fat32"], |volume| {
        volume.link_in(1, 0, 0xf8);
        vec![Issue::FatStart { copy: 1, found: 0xf8 }]
    });
}

#[test]
fn a_fat_that_is_not_in_use_and_the_bits_after_the_last_entry_are_compared_as_fsck_fat_does() {
    one(&["fat32"], |volume| {
        let cluster = volume.first(F);
        // `BPB_ExtFlags` of the boot sector and of its backup: only the first FAT is in use.
        for sector in [0, 6] {
            volume.bytes[sector * 512 + 40] = 0x80;
        }
        volume.link_in(1, cluster, 0);
        vec![Issue::UnusedFat { copy: 1, cluster }]
    });
    one(&["fat12"], |volume| {
        let entries = ((volume.bytes.len() - volume.data) / volume.cluster + 2) as u32;
        assert!(!entries.is_multiple_of(2), "half a byte follows the last entry");
        volume.link_in(1, entries, 1);
        vec![Issue::FatCopy { copy: 1, cluster: entries }]
    });
}

/// Returns the bytes after `damage` to an intact volume and a repair with `repair_mode`, and the number of findings left.
fn repaired(sound: &Volume, repair_mode: RepairMode, damage: impl Fn(&mut Volume)) -> (Vec<u8>, u64) {
    let mut volume = sound.clone();
    damage(&mut volume);
    repair_copy(&volume.bytes, repair_mode)
}

#[test]
fn an_entry_that_is_broken_in_one_fat_comes_back_from_the_other() {
    if !common::oracles() {
        return;
    }
    // Free, bad, ended too early, outside of the volume, into the chain itself.
    let values = [0, u32::MAX - 8, u32::MAX, 1, 2];
    for name in ALL {
        let sound = Volume::new(name);
        for (value, copy, at) in
            values.into_iter().flat_map(|value| (0..6).map(move |at| (value, at / 3, at as u32 % 3)))
        {
            let (bytes, left) = repaired(&sound, RepairMode::Safe, |volume| {
                let cluster = volume.first(F) + at;
                let value = if value == 2 { volume.first(F) } else { value };
                volume.link_in(copy, cluster, value);
            });
            // An end marker at the end of the file is correct.
            let is_sound = bytes == sound.bytes || value == u32::MAX && at == 2;
            assert!(left == 0 && is_sound, "{name}, {value:#x}, {copy}, {at}");
        }
    }
}

#[test]
fn a_chain_is_assembled_if_each_fat_lost_another_entry() {
    if !common::oracles() {
        return;
    }
    for name in ALL {
        let sound = Volume::new(name);
        let (bytes, left) = repaired(&sound, RepairMode::Safe, |volume| {
            let cluster = volume.first(F);
            volume.link_in(0, cluster, 0);
            volume.link_in(1, cluster + 1, 0);
        });
        assert!(left == 0 && bytes == sound.bytes, "{name}");
    }
}

#[test]
fn two_complete_chains_of_one_file_are_left_to_the_user() {
    if !common::oracles() {
        return;
    }
    let damage = |volume: &mut Volume| {
        // In the second FAT the file continues in a cluster that is free in the first one.
        let (cluster, other) = (volume.first(F), volume.first(F) + 100);
        volume.link_in(1, cluster + 1, other);
        volume.link_in(1, other, u32::MAX);
    };
    one(&ALL, |volume| {
        damage(volume);
        let cluster = volume.first(F);
        vec![Issue::FatChoice { cluster: cluster + 1 }]
    });
    for name in ALL {
        let mut volume = Volume::new(name);
        let sound = volume.bytes.clone();
        damage(&mut volume);
        let (bytes, left) = repair_copy(&volume.bytes, RepairMode::Safe);
        let (cluster, second) = (volume.first(F) as usize, volume.fat + volume.fat_len);
        let at = second + (cluster + 1) * volume.width as usize / 8;
        assert!(left == 1 && bytes[at] == volume.bytes[at], "{name}: -p leaves both");
        let (bytes, left) = repair_copy(&volume.bytes, RepairMode::All);
        assert!(left == 0 && bytes == sound, "{name}: -y takes the first");
    }
}

#[test]
fn the_second_fat_wins_where_the_first_is_wiped() {
    if !common::oracles() {
        return;
    }
    for name in ALL {
        let sound = Volume::new(name);
        let (bytes, left) = repaired(&sound, RepairMode::All, |volume| {
            let start = volume.fat + 8;
            let end = volume.fat + volume.fat_len;
            volume.bytes[start..end].fill(0);
        });
        assert!(left == 0, "{name}");
        let sound = sound.bytes;
        let names = |bytes| common::walk(&*common::open(Arc::new(MemDevice::read_only(bytes))).unwrap());
        assert!(names(bytes) == names(sound), "{name}");
    }
}

#[test]
fn a_directory_that_ends_too_early_in_one_fat_keeps_its_names() {
    if !common::oracles() {
        return;
    }
    for copy in [0, 1] {
        let Some(sound) = common::FORMAT.filled("fat16") else { return };
        let mut volume = Volume::of(sound.to_vec());
        let many = volume.first(b"MANY       ");
        volume.link_in(copy, many, u32::MAX);
        let (bytes, left) = repair_copy(&volume.bytes, RepairMode::All);
        let names = |bytes| common::walk(&*common::open(Arc::new(MemDevice::read_only(bytes))).unwrap());
        assert!(left == 0 && names(bytes) == names(sound.to_vec()), "{copy}");
    }
}

/// Writes `long` into the part of a long name before the entry at `at`, with the checksum of that entry.
fn set_long(volume: &mut Volume, at: usize, long: &str) {
    let short = volume.bytes[at..at + 11].to_vec();
    let sum = short.iter().fold(0_u8, |sum, &byte| sum.rotate_right(1).wrapping_add(byte));
    let part = &mut volume.bytes[at - 32..at];
    part.fill(0xff);
    (part[0], part[11], part[12], part[13]) = (0x41, 0x0f, 0, sum);
    part[26..28].fill(0);
    let places = (1..11).chain(14..26).chain(28..32).step_by(2);
    for (at, unit) in places.zip(long.encode_utf16().chain([0])) {
        part[at..at + 2].copy_from_slice(&unit.to_le_bytes());
    }
}

/// Returns a volume with the files `ONE`, `TWO` and `THREE` in its root directory, each after a free entry.
fn three_files(sound: &Volume) -> (Volume, [usize; 3]) {
    let mut volume = sound.clone();
    let d = volume.entry(D);
    let free = (d..).step_by(32).find(|&at| volume.bytes[at] == 0).unwrap();
    let places = [free + 32, free + 96, free + 160];
    for (at, short) in places.into_iter().zip([b"ONE        ", b"TWO        ", b"THREE      "]) {
        volume.bytes[at - 32] = 0xe5;
        volume.bytes[at..at + 11].copy_from_slice(short);
        volume.bytes[at + 11] = 0x20;
    }
    assert_eq!(found(&volume.bytes), []);
    (volume, places)
}

/// Returns the names in the root directory, without those that every volume has.
fn names_of(bytes: &[u8]) -> Vec<String> {
    let fs = common::open(Arc::new(MemDevice::read_only(bytes.to_vec()))).unwrap();
    let names = common::walk(&*fs).into_keys();
    names.filter(|name| name.matches('/').count() < 2 && name != "/D").collect()
}

#[test]
fn two_files_with_one_long_name_are_found_and_both_stay() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ALL {
        let sound = Volume::new(name);
        for second in ["a long name", "A LONG name"] {
            let (mut volume, [one, two, three]) = three_files(&sound);
            set_long(&mut volume, one, "a long name");
            set_long(&mut volume, two, second);
            set_long(&mut volume, three, "a long name");
            let issues = found(&volume.bytes);
            let [Issue::DuplicateName { name: first, .. }, Issue::DuplicateName { .. }] = &issues[..] else {
                panic!("{name}: {issues:?}");
            };
            assert_eq!(first, second.as_bytes());
            let (_, left) = repair_copy(&volume.bytes, RepairMode::Safe);
            assert_eq!(left, 2, "{name}: only -y removes a name");
            let (bytes, left) = repair_copy(&volume.bytes, RepairMode::All);
            assert_eq!((left, found(&bytes)), (0, vec![]));
            clean_to_fsck(&bytes, folder.path()).unwrap();
            assert_eq!(names_of(&bytes), ["/THREE", "/TWO", "/a long name"], "{name}");
        }
    }
}

#[test]
fn a_long_name_that_is_the_short_name_of_another_file_is_found() {
    if !common::oracles() {
        return;
    }
    for name in ALL {
        let sound = Volume::new(name);
        // The long name is after the short one, and before it.
        let (mut volume, [_, two, _]) = three_files(&sound);
        set_long(&mut volume, two, "one");
        let (bytes, left) = repair_copy(&volume.bytes, RepairMode::All);
        assert_eq!((left, found(&volume.bytes).len(), found(&bytes)), (0, 1, vec![]));
        assert_eq!(names_of(&bytes), ["/ONE", "/THREE", "/TWO"], "{name}");
        let (mut volume, [one, ..]) = three_files(&sound);
        set_long(&mut volume, one, "two");
        let (bytes, left) = repair_copy(&volume.bytes, RepairMode::All);
        assert_eq!((left, found(&volume.bytes).len(), found(&bytes)), (0, 1, vec![]));
        assert_eq!(names_of(&bytes), ["/FSCK0000.000", "/THREE", "/two"], "{name}");
    }
}

#[test]
fn a_long_name_that_no_file_can_have_goes() {
    if !common::oracles() {
        return;
    }
    let sound = ALL.map(|name| (name, Volume::new(name)));
    for ((name, sound), long) in
        sound.iter().flat_map(|sound| ["a/b", "..", "", "."].map(|long| (sound, long)))
    {
        let (mut volume, [one, ..]) = three_files(sound);
        set_long(&mut volume, one, long);
        let issues = found(&volume.bytes);
        let [Issue::LongName { why: "is not a valid file name", .. }] = &issues[..] else {
            panic!("{name}, {long:?}: {issues:?}");
        };
        let (bytes, left) = repair_copy(&volume.bytes, RepairMode::All);
        assert_eq!((left, found(&bytes)), (0, vec![]), "{name}, {long:?}");
        assert_eq!(names_of(&bytes), ["/ONE", "/THREE", "/TWO"], "{name}, {long:?}");
    }
}

#[test]
fn marks_and_labels_and_fs_info_are_one_issue_each() {
    one(&["fat16"], |volume| {
        volume.bytes[0x25] |= 1;
        vec![Issue::InUse {}]
    });
    one(&["fat32"], |volume| {
        volume.link(1, 0x07ff_ffff);
        vec![Issue::InUse {}]
    });
    one(&["fat12"], |volume| {
        volume.bytes[0x2b] = b'X';
        vec![Issue::BootLabel { found: b"XWELVE     ".to_vec(), expected: b"TWELVE     ".to_vec() }]
    });
    one(&["fat16"], |volume| {
        let at = volume.entry(b"SIX TEEN");
        volume.bytes[at] = b'?';
        vec![Issue::Label { found: b"?IX TEEN   ".to_vec() }]
    });
    one(&["fat32"], |volume| {
        volume.bytes[512 + 0x1e8] ^= 1;
        let stored = u32::from_le_bytes(volume.bytes[512 + 0x1e8..][..4].try_into().unwrap());
        vec![Issue::FreeCount { found: stored, expected: stored ^ 1 }]
    });
    one(&["fat32"], |volume| {
        volume.bytes[512] = b'X';
        vec![Issue::FsInfo { sector: 1 }]
    });
    one(&["fat32"], |volume| {
        volume.bytes[6 * 512 + 3] = b'X';
        vec![Issue::BackupBootSector { sector: 6, offset: 3 }]
    });
    one(&["fat32"], |volume| {
        volume.bytes[0x32] = 0;
        vec![Issue::NoBackup { sector: 6 }]
    });
}

#[test]
fn a_wiped_boot_sector_comes_back_from_its_copy() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut volume = Volume::new("fat32");
    let sound = volume.bytes.clone();
    volume.bytes[..512].fill(0);
    let issues = found(&volume.bytes);
    assert!(matches!(issues[..], [Issue::BootSector { sector: 6, .. }]), "{issues:?}");
    let (bytes, left) = repair_copy(&volume.bytes, RepairMode::All);
    assert_eq!(left, 0);
    assert!(bytes == sound);
    clean_to_fsck(&bytes, folder.path()).unwrap();
}

#[test]
fn a_truncated_volume_is_reported_and_not_written() {
    if !common::oracles() {
        return;
    }
    let volume = Volume::new("fat16");
    let cut = &volume.bytes[..volume.bytes.len() / 2];
    let expected = vec![Issue::Truncated { found: cut.len() as u64, expected: volume.bytes.len() as u64 }];
    assert_eq!(found(cut), expected);
    let (bytes, left) = repair_copy(cut, RepairMode::All);
    assert!(bytes == cut && left == 1);
}

/// Returns offsets of metadata: the used part of the FATs, and directories.
fn metadata(volume: &Volume) -> Vec<usize> {
    let used = 700 * volume.width as usize / 8;
    let mut places: Vec<usize> = (volume.fat..volume.fat + used).collect();
    places.extend(volume.fat + volume.fat_len..volume.fat + volume.fat_len + used);
    // Except for the label, in which fsck.fat rejects all characters that are not ASCII.
    places.extend((0..20).flat_map(|_| volume.root + 32..volume.root + 1024));
    let starts = (volume.data..volume.bytes.len() - volume.cluster).step_by(volume.cluster);
    let is_directory = |&at: &usize| volume.bytes[at..].starts_with(b".          \x10");
    places.extend(starts.filter(is_directory).flat_map(|at| at..at + volume.cluster));
    places
}

fn shown(issues: &[Issue]) -> String {
    format!("{} issues: {:?}", issues.len(), &issues[..issues.len().min(8)])
}

/// Changes some bytes. Both checkers must agree whether the volume is clean, and a repaired volume must be clean to
/// both.
fn random_damage(name: &'static str, seeds: std::ops::Range<u64>) {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(sound) = common::FORMAT.filled(name) else { return };
    let sound = Volume::of(sound.to_vec());
    let places = metadata(&sound);
    let (mut clean, mut judged) = (0, 0);
    for seed in seeds {
        let mut random = Random::new(seed);
        let mut bytes = sound.bytes.clone();
        for _ in 0..=random.below(3) {
            let at = places[random.below(places.len() as u64) as usize];
            bytes[at] = random.number() as u8;
        }
        let (ours, theirs) = (found(&bytes), clean_to_fsck(&bytes, folder.path()));
        // No other system shows these entries, but fsck.fat does.
        let is_stricter = ours.iter().all(|issue| matches!(issue, Issue::HiddenEntries { .. }));
        match (&ours[..], &theirs) {
            ([], Err(said)) => panic!("{name}, seed {seed}: only fsck.fat reports damage:\n{said}"),
            ([_, ..], Ok(())) if !is_stricter => {
                panic!("{name}, seed {seed}: fsck.fat finds nothing: {}", shown(&ours))
            }
            _ => {}
        }
        let (after, left) = repair_copy(&bytes, RepairMode::All);
        assert!(left == 0 && found(&after).is_empty(), "{name}, seed {seed}: {}", shown(&ours));
        clean_to_fsck(&after, folder.path()).unwrap_or_else(|said| {
            panic!("{name}, seed {seed}: repaired {}, but fsck.fat reports:\n{said:.500}", shown(&ours))
        });
        judged += 1;
        clean += usize::from(ours.is_empty());
    }
    eprintln!("{name}: {judged} volumes, {clean} of them clean");
    // Otherwise the test compared nothing.
    assert!(clean > 0 && clean < judged);
}

#[test]
fn after_random_damage_to_fat12_fsck_fat_finds_the_same_volumes_clean() {
    random_damage("fat12", 0..200);
}

#[test]
fn after_random_damage_to_fat16_fsck_fat_finds_the_same_volumes_clean() {
    random_damage("fat16", 1000..1100);
}

#[test]
fn after_random_damage_to_fat32_fsck_fat_finds_the_same_volumes_clean() {
    random_damage("fat32", 2000..2040);
}

#[test]
fn a_check_of_any_bytes_ends_and_a_repair_need_not_be_repeated() {
    if !common::oracles() {
        return;
    }
    let Some(sound) = common::FORMAT.filled("fat12") else { return };
    for seed in 0..150 {
        let mut bytes = sound.to_vec();
        obento_testkit::mutants::mutate(&mut bytes, &mut Random::new(seed));
        println!("seed {seed}");
        let device = Arc::new(MemDevice::new(bytes));
        let mut last = None;
        let fixed = check_volume(device.clone(), &options(RepairMode::All), &mut |event| {
            if let Event::Found(issue, false) = event {
                last = Some(issue);
            }
        });
        let Ok(report) = fixed else { continue };
        let left = issues(device).map(|left| left.len() as u64);
        assert_eq!(left, Ok(report.left()), "seed {seed}: {last:?}");
    }
}
