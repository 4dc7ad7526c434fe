//! Checks: each single damage gives its issue; a repaired volume is clean to `fsck.exfat`; and both checkers agree
//! which randomly damaged volumes are clean.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{is_sound, shape};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{CheckOptions, RepairMode, Severity};
use obento_env::NO_CLOCK;
use obento_exfat::check::{Issue, check_volume, issues};
use obento_testkit::changes::{resolve, walk};
use obento_testkit::mutants::Random;

/// A volume with a tree, and the places of its parts.
#[derive(Clone)]
struct Volume {
    bytes: Vec<u8>,
    sector: usize,
    fat: usize,
    heap: usize,
    cluster: usize,
    root: u32,
}

impl Volume {
    fn new() -> Option<Self> {
        if !common::oracles() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        Some(Self::of(common::bytes_of(&shape("page").filled(folder.path()))))
    }

    fn of(bytes: Vec<u8>) -> Self {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let sector = 1 << bytes[108];
        let (fat, heap, root) = (word(80) as usize * sector, word(88) as usize * sector, word(96));
        let cluster = sector << bytes[109];
        Self { bytes, sector, fat, heap, cluster, root }
    }

    fn at(&self, cluster: u32) -> usize {
        self.heap + (cluster as usize - 2) * self.cluster
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the offset of the set of `name`.
    fn set(&self, name: &str) -> usize {
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let is_it = |at: &usize| {
            let part = &self.bytes[at + 66..at + 66 + units.len().min(30)];
            let len = usize::from(self.bytes[at + 35]) * 2;
            self.bytes[*at] == 0x85 && len == units.len() && part == &units[..units.len().min(30)]
        };
        let end = self.bytes.len() - 128;
        (self.heap..end).step_by(32).find(is_it).unwrap_or_else(|| panic!("{name}"))
    }

    fn ino(&self, name: &str) -> u64 {
        self.set(name) as u64 / 32
    }

    /// Changes bytes of a set and corrects its checksum.
    fn change(&mut self, name: &str, offset: usize, bytes: &[u8]) {
        let at = self.set(name);
        self.put(at + offset, bytes);
        self.sum(at);
    }

    fn sum(&mut self, at: usize) {
        let count = usize::from(self.bytes[at + 1]) + 1;
        let summed =
            self.bytes[at..at + 32 * count].iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = summed.fold(0, |sum: u16, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
        self.put(at + 2, &sum.to_le_bytes());
    }

    fn first(&self, name: &str) -> u32 {
        self.word(self.set(name) + 52)
    }

    fn link(&mut self, cluster: u32, value: u32) {
        let at = self.fat + cluster as usize * 4;
        self.put(at, &value.to_le_bytes());
    }

    /// Turns the file into a chain.
    fn unchain(&mut self, name: &str, clusters: u32) -> u32 {
        let first = self.first(name);
        for cluster in first..first + clusters {
            let next = if cluster + 1 == first + clusters { u32::MAX } else { cluster + 1 };
            self.link(cluster, next);
        }
        self.change(name, 33, &[1]);
        first
    }

    fn bitmap(&self) -> usize {
        self.at(2)
    }

    fn mark(&mut self, cluster: u32, in_use: bool) {
        let (at, mask) = (self.bitmap() + (cluster as usize - 2) / 8, 1 << ((cluster - 2) % 8));
        if in_use { self.bytes[at] |= mask } else { self.bytes[at] &= !mask }
    }

    fn root_entry(&self, kind: u8) -> usize {
        let start = self.at(self.root);
        (start..).step_by(32).find(|&at| self.bytes[at] == kind).unwrap()
    }
}

fn found(bytes: &[u8]) -> Vec<Issue> {
    issues(Arc::new(MemDevice::read_only(bytes.to_vec()))).unwrap()
}

/// Returns the bytes after a repair, and the number of issues left.
fn repair_copy(bytes: &[u8], repair_mode: RepairMode) -> (Vec<u8>, u64) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(bytes.to_vec()));
    let options = CheckOptions { repair_mode, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    let report = check_volume(&device, &options, &mut |_| ()).unwrap();
    let mut after = vec![0; bytes.len()];
    device.read_at(0, &mut after).unwrap();
    (after, report.left())
}

fn clean_to_fsck(bytes: &[u8], folder: &Path) -> bool {
    let image = folder.join("judged.img");
    std::fs::write(&image, bytes).unwrap();
    is_sound(&image)
}

/// Tests that `damage` gives exactly the expected issue, and that neither checker finds anything after the repair.
/// `fsck.exfat` must find the damage, too, unless only obento checks for it.
fn one(theirs: Theirs, damage: impl FnOnce(&mut Volume) -> Issue) {
    let Some(mut volume) = Volume::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(found(&volume.bytes), [], "before");
    let before = walk(&*common::open_bytes(&volume.bytes).unwrap()).len();
    let expected = damage(&mut volume);
    assert_eq!(found(&volume.bytes), std::slice::from_ref(&expected));
    assert_eq!(clean_to_fsck(&volume.bytes, folder.path()), theirs == Theirs::Silent, "{expected}");
    let safe = repair_copy(&volume.bytes, RepairMode::Safe);
    assert_eq!(safe.1 == 0, expected.severity() == Severity::Safe, "{expected}");
    let (after, left) = repair_copy(&volume.bytes, RepairMode::All);
    assert_eq!((left, found(&after)), (0, vec![]), "{expected}");
    assert!(clean_to_fsck(&after, folder.path()), "{expected}");
    // Nothing else was lost.
    let left = walk(&*common::open_bytes(&after).unwrap()).len();
    assert!(left >= before - 1, "{expected}: of {before} files {left} are left");
}

#[derive(PartialEq)]
enum Theirs {
    Found,
    Silent,
}
use Theirs::{Found, Silent};

#[test]
fn a_boot_region_comes_back_from_its_copy() {
    for at in [3, 80, 300, 11 * 512] {
        let Some(mut volume) = Volume::new() else { return };
        let folder = tempfile::tempdir().unwrap();
        let sound = volume.bytes.clone();
        volume.bytes[at] ^= 0x55;
        let all = found(&volume.bytes);
        assert!(matches!(all[..], [Issue::BootRegion { .. }]), "{at}: {all:?}");
        assert!(!clean_to_fsck(&volume.bytes, folder.path()));
        let (after, left) = repair_copy(&volume.bytes, RepairMode::All);
        assert!(left == 0 && clean_to_fsck(&after, folder.path()), "{at}");
        let differs: Vec<_> = (0..sound.len()).filter(|&at| sound[at] != after[at]).collect();
        assert!(differs.is_empty() || differs == [112], "{at}: {differs:?}");
    }
}

#[test]
fn the_copy_of_the_boot_region_comes_back() {
    one(Silent, |volume| {
        let sector = volume.sector;
        volume.bytes[12 * sector + 80] ^= 1;
        Issue::BackupBootRegion { offset: 80 }
    });
}

#[test]
fn the_mark_of_a_volume_in_use_goes() {
    one(Silent, |volume| {
        volume.bytes[106] |= 2;
        Issue::InUse {}
    });
}

#[test]
fn a_bitmap_of_another_length_gets_its_own() {
    one(Found, |volume| {
        let at = volume.root_entry(0x81) + 24;
        let expected = volume.word(at).into();
        volume.put(at, &[1, 0]);
        Issue::BitmapLength { found: 1, expected }
    });
}

#[test]
fn an_up_case_table_with_a_wrong_checksum_is_rewritten() {
    one(Found, |volume| {
        let first = volume.word(volume.root_entry(0x82) + 20);
        let at = volume.at(first) + 2000;
        volume.bytes[at] ^= 1;
        Issue::UpCaseTable { why: "has a wrong checksum" }
    });
}

#[test]
fn a_checksum_of_a_set_is_made_right() {
    one(Found, |volume| {
        let at = volume.set("32769");
        let dir = volume.ino("sizes");
        let expected = u16::from_le_bytes([volume.bytes[at + 2], volume.bytes[at + 3]]).into();
        volume.put(at + 2, &[1, 2]);
        Issue::SetChecksum { ino: at as u64 / 32, dir, found: 0x201, expected }
    });
}

#[test]
fn entries_that_are_no_set_go() {
    one(Found, |volume| {
        let (ino, dir) = (volume.ino("32769"), volume.ino("sizes"));
        // Without a stream entry its contents are unknown. The file has no clusters, so none are lost.
        volume.change("32769", 33, &[1]);
        let (first, at) = (volume.first("32769"), volume.set("32769"));
        for cluster in first..first + 9 {
            volume.mark(cluster, false);
        }
        volume.change("32769", 52, &[0; 12]);
        volume.bytes[at + 32..at + 64].fill(0xc1);
        volume.sum(at);
        Issue::EntrySet { ino, dir, field: "EntryType" }
    });
}

#[test]
fn a_set_that_is_counted_wrongly_or_has_entries_of_others_stays() {
    let Some(sound) = Volume::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let before = walk(&*common::open_bytes(&sound.bytes).unwrap());
    let name = "entry number 101";
    let damages: [fn(&mut Volume, usize); 6] = [
        |volume, at| volume.bytes[at + 1] = 1,
        |volume, at| volume.bytes[at + 1] = 2,
        |volume, at| volume.bytes[at + 1] = 7,
        |volume, at| volume.bytes[at + 35] = 0,
        |volume, at| volume.bytes[at + 35] = 31,
        |volume, at| volume.bytes[at + 35] = 255,
    ];
    for (n, damage) in damages.into_iter().enumerate() {
        let mut volume = sound.clone();
        let at = volume.set(name);
        damage(&mut volume, at);
        volume.sum(at);
        assert!(!found(&volume.bytes).is_empty(), "{n}");
        let (after, left) = repair_copy(&volume.bytes, RepairMode::All);
        assert_eq!((left, found(&after)), (0, vec![]), "{n}");
        assert!(clean_to_fsck(&after, folder.path()), "{n}");
        let names = walk(&*common::open_bytes(&after).unwrap());
        assert!(names.keys().eq(before.keys()), "{n}");
    }
}

#[test]
fn a_name_and_its_length_agree() {
    // The hash matches the shorter name, or the longer one.
    for (found, hash) in [(3, "409"), (4, "4095"), (3, "4095")] {
        one(Found, |volume| {
            let at = volume.set("4095");
            rename(volume, "4095", "409");
            volume.bytes[at + 35] = 3;
            if hash == "4095" {
                rename(volume, "409", "4095");
            }
            volume.put(at + 66, &"4095".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>());
            volume.bytes[at + 35] = if found == 4 { 5 } else { 3 };
            volume.sum(at);
            let found = volume.bytes[at + 35];
            Issue::NameLength { ino: at as u64 / 32, found, expected: 4 }
        });
    }
}

#[test]
fn an_entry_that_belongs_to_nothing_goes() {
    one(Silent, |volume| {
        let dir = volume.ino("d");
        let at = volume.at(volume.first("d"));
        volume.put(at + 96, &[0xc1]);
        Issue::StrayEntry { dir, index: 3, kind: 0xc1 }
    });
}

#[test]
fn an_invalid_name_gets_other_characters() {
    one(Silent, |volume| {
        let (ino, dir) = (volume.ino("511"), volume.ino("sizes"));
        let at = volume.set("511");
        // With the correct hash.
        volume.put(at + 66, b":");
        let hash = [b':', 0, b'1', 0, b'1', 0]
            .iter()
            .fold(0_u16, |hash, &byte| hash.rotate_right(1).wrapping_add(byte.into()));
        volume.put(at + 36, &hash.to_le_bytes());
        volume.sum(at);
        Issue::EntryName { ino, dir, name: b":11".to_vec() }
    });
}

#[test]
fn the_second_of_two_sets_with_one_name_gets_another() {
    one(Silent, |volume| {
        let (ino, dir) = (volume.ino("513"), volume.ino("sizes"));
        let (from, to) = (volume.set("512"), volume.set("513"));
        let (name, hash) =
            (volume.bytes[from + 66..from + 72].to_vec(), volume.bytes[from + 36..from + 38].to_vec());
        volume.put(to + 66, &name);
        volume.put(to + 36, &hash);
        volume.sum(to);
        Issue::DuplicateName { ino, dir, name: b"512".to_vec() }
    });
}

/// Gives the set of `name` a shorter name, with its hash.
fn rename(volume: &mut Volume, name: &str, new: &str) {
    let at = volume.set(name);
    let units: Vec<u8> = new.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let hash = units.iter().map(|byte| byte.to_ascii_uppercase());
    let hash = hash.fold(0_u16, |hash, byte| hash.rotate_right(1).wrapping_add(byte.into()));
    volume.put(at + 66, &[0; 30]);
    volume.put(at + 66, &units);
    volume.put(at + 36, &hash.to_le_bytes());
    volume.bytes[at + 35] = (units.len() / 2) as u8;
    let (old, new) = (usize::from(volume.bytes[at + 1]), 1 + units.len().div_ceil(30));
    (new..old).for_each(|entry| volume.bytes[at + 32 * (entry + 1)] &= 0x7f);
    volume.bytes[at + 1] = new as u8;
    volume.sum(at);
}

#[test]
fn many_files_of_one_bad_name_all_get_their_own_in_one_run() {
    let Some(sound) = Volume::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let before = walk(&*common::open_bytes(&sound.bytes).unwrap()).len();
    for (bad, count) in [("?", 40), ("a?", 40), ("_", 40), ("~0", 40), (&"x".repeat(15), 40)] {
        let mut volume = sound.clone();
        for n in 0..count {
            rename(&mut volume, &format!("entry number {}", 100 + n), bad);
        }
        // Names that a repair could choose exist already, after the others.
        rename(&mut volume, "entry number 200", "_~3");
        rename(&mut volume, "entry number 201", "_");
        let (after, left) = repair_copy(&volume.bytes, RepairMode::All);
        assert_eq!((left, found(&after)), (0, vec![]), "{bad}");
        assert!(clean_to_fsck(&after, folder.path()), "{bad}");
        let fs = common::open_bytes(&after).unwrap();
        assert_eq!(walk(&*fs).len(), before, "{bad}");
        let names = walk(&*fs);
        let kept = ["_", "_~3"].iter().all(|name| names.contains_key(&format!("/many/{name}")));
        assert!(kept, "{bad}: a name that was sound stays");
    }
}

/// The volume cannot be opened, or Linux does not open it, and the check reports that.
#[test]
fn the_fat_chains_the_clusters_of_the_tables() {
    for (kind, table) in [(0x81, "allocation bitmap"), (0x82, "up-case table")] {
        for value in [0, 1, 0xffff_fff7, 2, 9] {
            one(Silent, |volume| {
                let cluster = volume.word(volume.root_entry(kind) + 20);
                volume.link(cluster, value);
                Issue::TableChain { table, cluster }
            });
        }
    }
}

#[test]
fn the_entry_of_the_bitmap_has_no_flags() {
    one(Silent, |volume| {
        let at = volume.root_entry(0x81);
        volume.bytes[at + 1] = 1;
        Issue::BitmapFlags { found: 1 }
    });
}

#[test]
fn a_second_entry_of_a_table_goes() {
    for kind in [0x81, 0x82] {
        one(Silent, |volume| {
            let (from, to) = (volume.root_entry(kind), volume.root_entry(0));
            volume.bytes.copy_within(from..from + 32, to);
            let index = ((to - volume.at(volume.root)) / 32) as u32;
            Issue::SecondTable { index, kind }
        });
    }
}

#[test]
fn the_flags_of_a_stream_are_made_right() {
    for (name, found, expected) in [("100000", 2, 3), ("0", 0, 1), ("4095", 7, 3), ("4095", 0x83, 3)] {
        one(Silent, |volume| {
            volume.change(name, 33, &[found]);
            Issue::StreamFlags { ino: volume.ino(name), found, expected }
        });
    }
}

#[test]
fn a_flag_is_not_believed_where_only_the_opposite_fits() {
    let Some(sound) = Volume::new() else { return };
    let read = |bytes: &[u8], name: &str| {
        let fs = common::open_bytes(bytes).unwrap();
        let ino = resolve(&*fs, name).unwrap();
        obento_testkit::changes::read(&*fs, ino, fs.getattr(ino).unwrap().size).unwrap()
    };
    let path = "/sizes/100000";
    let before = read(&sound.bytes, path);
    // It claims that the FAT chains its clusters, but the FAT does not.
    let mut volume = sound.clone();
    volume.change("100000", 33, &[1]);
    let ino = volume.ino("100000");
    let why = "it is not marked as contiguous, but the FAT has no chain for it";
    assert_eq!(found(&volume.bytes), [Issue::Arrangement { ino, why }]);
    let (after, left) = repair_copy(&volume.bytes, RepairMode::All);
    assert!(left == 0 && read(&after, path) == before);
    // It claims that its clusters are contiguous, but they are not.
    let mut volume = sound.clone();
    let first = volume.unchain("100000", 25);
    let last = volume.word(92) - 3;
    volume.link(first + 1, last);
    volume.link(last, first + 3);
    let (from, to) = (volume.at(first + 2), volume.at(last));
    volume.bytes.copy_within(from..from + volume.cluster, to);
    volume.mark(last, true);
    volume.mark(first + 2, false);
    assert!(found(&volume.bytes).is_empty() && read(&volume.bytes, path) == before);
    volume.link(first, first + 1);
    volume.link(first, last);
    volume.link(last, first + 1);
    volume.link(first + 1, first + 3);
    let (from, to) = (volume.at(first + 1), volume.at(last));
    let (moved, middle) = (volume.bytes[to..to + volume.cluster].to_vec(), from);
    volume.bytes.copy_within(middle..middle + volume.cluster, to);
    volume.put(middle, &moved);
    assert!(found(&volume.bytes).is_empty() && read(&volume.bytes, path) == before);
    volume.change("100000", 33, &[3]);
    let ino = volume.ino("100000");
    let why = "it is marked as contiguous, but its chain in the FAT is not";
    assert_eq!(found(&volume.bytes), [Issue::Arrangement { ino, why }]);
    let (after, left) = repair_copy(&volume.bytes, RepairMode::All);
    assert!(left == 0 && read(&after, path) == before);
}

#[test]
fn the_hash_of_a_name_is_made_right() {
    one(Found, |volume| {
        let at = volume.set("4095");
        let expected = u16::from_le_bytes([volume.bytes[at + 36], volume.bytes[at + 37]]).into();
        volume.change("4095", 36, &[7, 7]);
        Issue::NameHash { ino: at as u64 / 32, found: 0x707, expected }
    });
}

#[test]
fn no_more_is_valid_than_there_is() {
    one(Found, |volume| {
        volume.change("4095", 40, &[0, 0x10]);
        Issue::ValidLength { ino: volume.ino("4095"), found: 4096, expected: 4095 }
    });
}

#[test]
fn an_empty_file_has_no_valid_part() {
    one(Found, |volume| {
        volume.change("0", 40, &[7]);
        Issue::ValidLength { ino: volume.ino("0"), found: 7, expected: 0 }
    });
}

#[test]
fn an_entry_that_goes_does_not_end_its_directory() {
    let Some(mut volume) = Volume::new() else { return };
    let at = volume.root_entry(0x82);
    volume.bytes[at] = 0x80;
    let before = walk(&*common::open_bytes(&Volume::new().unwrap().bytes).unwrap());
    let (after, left) = repair_copy(&volume.bytes, RepairMode::All);
    assert_eq!((left, found(&after)), (0, vec![]));
    assert!(walk(&*common::open_bytes(&after).unwrap()) == before);
}

#[test]
fn an_empty_file_is_not_contiguous() {
    one(Found, |volume| {
        volume.change("0", 33, &[3]);
        Issue::EmptyContiguous { ino: volume.ino("0") }
    });
}

#[test]
fn a_directory_is_as_long_as_its_clusters() {
    one(Found, |volume| {
        let (found, expected) = (volume.cluster as u64 - 5, volume.cluster as u64);
        volume.change("p", 40, &found.to_le_bytes());
        volume.change("p", 56, &found.to_le_bytes());
        Issue::DirectoryLength { ino: volume.ino("p"), found, expected }
    });
}

#[test]
fn a_file_that_starts_nowhere_is_empty() {
    one(Found, |volume| {
        let cluster = volume.first("4095");
        volume.mark(cluster, false);
        volume.change("4095", 52, &[1, 0, 0, 0]);
        Issue::StartCluster { ino: volume.ino("4095"), cluster: 1, length: 4095 }
    });
}

#[test]
fn a_chain_that_cannot_be_followed_ends_there() {
    one(Found, |volume| {
        let first = volume.unchain("32769", 9);
        volume.link(first + 3, 0xffff_fff7);
        for cluster in first + 4..first + 9 {
            volume.mark(cluster, false);
        }
        Issue::Chain { ino: volume.ino("32769"), at: 3, cluster: first + 3, why: "is marked as bad" }
    });
}

#[test]
fn a_chain_that_comes_back_to_itself_ends_before() {
    one(Found, |volume| {
        let first = volume.unchain("32769", 9);
        volume.link(first + 3, first + 1);
        for cluster in first + 4..first + 9 {
            volume.mark(cluster, false);
        }
        Issue::CrossLink { ino: volume.ino("32769"), at: 4, cluster: first + 1 }
    });
}

#[test]
fn the_second_of_two_files_with_one_cluster_ends_before_it() {
    one(Found, |volume| {
        let other = volume.first("32768");
        for cluster in volume.first("32769")..volume.first("32769") + 9 {
            volume.mark(cluster, false);
        }
        volume.change("32769", 52, &other.to_le_bytes());
        Issue::CrossLink { ino: volume.ino("32769"), at: 0, cluster: other }
    });
}

#[test]
fn a_chain_longer_than_its_file_ends_with_it() {
    one(Found, |volume| {
        let first = volume.unchain("32769", 9);
        for cluster in first + 5..first + 9 {
            volume.mark(cluster, false);
        }
        volume.change("32769", 40, &20_000_u64.to_le_bytes());
        volume.change("32769", 56, &20_000_u64.to_le_bytes());
        Issue::LongChain { ino: volume.ino("32769"), length: 20_000, clusters: 5 }
    });
}

#[test]
fn a_file_longer_than_its_chain_ends_with_it() {
    one(Found, |volume| {
        let first = volume.unchain("32769", 9);
        volume.link(first + 3, u32::MAX);
        for cluster in first + 4..first + 9 {
            volume.mark(cluster, false);
        }
        Issue::ShortChain { ino: volume.ino("32769"), length: 32_769, clusters: 4 }
    });
}

#[test]
fn clusters_of_files_are_marked() {
    one(Found, |volume| {
        let cluster = volume.first("100000") + 2;
        volume.mark(cluster, false);
        volume.mark(cluster + 1, false);
        Issue::UnmarkedClusters { cluster, clusters: 2 }
    });
}

#[test]
fn bad_clusters_that_the_bitmap_marks_are_not_lost() {
    if !common::oracles() {
        return;
    }
    let Some(mut volume) = Volume::new() else { return };
    let clusters = volume.word(92);
    for cluster in clusters - 9..clusters - 5 {
        volume.mark(cluster, true);
        volume.link(cluster, 0xffff_fff7);
    }
    assert_eq!(found(&volume.bytes), []);
    let (after, left) = repair_copy(&volume.bytes, RepairMode::All);
    assert!(left == 0 && after == volume.bytes);
}

#[test]
fn unreferenced_clusters_are_free() {
    one(Silent, |volume| {
        let clusters = volume.word(92);
        volume.mark(clusters - 9, true);
        volume.mark(clusters - 8, true);
        Issue::LostClusters { cluster: clusters - 9, clusters: 2 }
    });
}

#[test]
fn unreferenced_clusters_become_files_on_request() {
    let Some(mut volume) = Volume::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let last = (volume.bytes.len() - volume.heap) / volume.cluster + 1;
    for cluster in [last, last - 1, last - 5] {
        volume.mark(cluster as u32, true);
        let at = volume.at(cluster as u32);
        volume.put(at, format!("lost {cluster}").as_bytes());
    }
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(volume.bytes.clone()));
    let options =
        CheckOptions { repair_mode: RepairMode::Safe, rescue: true, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    let report = check_volume(&device, &options, &mut |_| ()).unwrap();
    assert_eq!((report.found, report.repaired), (2, 2));
    let mut after = vec![0; volume.bytes.len()];
    device.read_at(0, &mut after).unwrap();
    assert!(clean_to_fsck(&after, folder.path()) && found(&after).is_empty());
    let fs = common::open_bytes(&after).unwrap();
    let read = |name: &str| {
        let ino = resolve(&*fs, name).unwrap();
        let len = fs.getattr(ino).unwrap().size;
        (len as usize / volume.cluster, obento_testkit::changes::read(&*fs, ino, len).unwrap())
    };
    let (clusters, bytes) = read("/FILE0000000.CHK");
    assert!(clusters == 1 && bytes.starts_with(format!("lost {}", last - 5).as_bytes()));
    let (clusters, bytes) = read("/FILE0000001.CHK");
    assert!(clusters == 2 && bytes[volume.cluster..].starts_with(format!("lost {last}").as_bytes()));
}

#[test]
fn the_entry_of_the_bitmap_is_restored_if_its_place_is_known() {
    // A removed entry with all its other bytes, and an erased one.
    for is_removed in [true, false] {
        one(Found, |volume| {
            let at = volume.root_entry(0x81);
            if is_removed {
                volume.bytes[at] = 1;
            } else {
                volume.put(at, &[[5].as_slice(), &[0; 31]].concat());
            }
            Issue::BitmapEntry { why: "is missing" }
        });
    }
}

/// No file is truncated because of a wrong entry.
#[test]
fn an_entry_of_the_bitmap_that_names_a_files_clusters_is_made_right() {
    one(Found, |volume| {
        let (at, first) = (volume.root_entry(0x81), volume.first("100000"));
        volume.put(at + 20, &first.to_le_bytes());
        Issue::BitmapEntry { why: "has a cluster that another structure uses" }
    });
}

#[test]
fn a_missing_bitmap_is_written_again() {
    let Some(mut volume) = Volume::new() else { return };
    let at = volume.root_entry(0x81);
    volume.put(at, &[[5].as_slice(), &[0; 31]].concat());
    // A cluster of a file that the bitmap marks as free.
    let first = volume.first("100000");
    volume.mark(first, false);
    let first = volume.word(92) - 8;
    volume.mark(first, true);
    let issues = found(&volume.bytes);
    assert!(matches!(issues[..], [Issue::NoBitmap { .. }]), "{issues:?}");
    let before = walk(&*common::open_bytes(&Volume::new().unwrap().bytes).unwrap());
    let (after, left) = repair_copy(&volume.bytes, RepairMode::All);
    let folder = tempfile::tempdir().unwrap();
    assert!(left == 0 && found(&after).is_empty() && clean_to_fsck(&after, folder.path()));
    assert!(walk(&*common::open_bytes(&after).unwrap()) == before);
}

#[test]
fn a_chain_of_the_root_directory_without_a_next_cluster_ends() {
    one(Found, |volume| {
        let root = volume.root;
        volume.link(root, 0xffff_0000);
        Issue::Chain { ino: 1, at: 0, cluster: root, why: "is followed by an invalid number" }
    });
}

#[test]
fn without_a_boot_region_there_is_no_volume() {
    let Some(mut volume) = Volume::new() else { return };
    volume.bytes[..24 * 512].fill(0);
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(volume.bytes));
    assert!(issues(device).is_err());
}

#[test]
fn after_random_damage_fsck_exfat_agrees_about_clean_volumes_and_accepts_repairs() {
    let Some(volume) = Volume::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut clean, mut judged) = (0, 0);
    // Boot region, FAT, tables and directories.
    let end = volume.at(volume.root + 30).min(volume.bytes.len());
    for seed in 0..150_u64 {
        let mut random = Random::new(seed);
        let mut bytes = volume.bytes.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(end as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        let Ok(ours) = issues(Arc::new(MemDevice::read_only(bytes.clone()))) else { continue };
        let theirs = clean_to_fsck(&bytes, folder.path());
        // Issues that only obento checks for.
        let is_stricter = ours.iter().all(|issue| {
            matches!(
                issue,
                Issue::BackupBootRegion { .. }
                    | Issue::LostClusters { .. }
                    | Issue::InUse {}
                    | Issue::HiddenEntries { .. }
                    | Issue::EntryName { .. }
                    | Issue::DuplicateName { .. }
                    | Issue::StrayEntry { .. }
            )
        });
        if !ours.is_empty() && !is_stricter {
            assert!(!theirs, "seed {seed}: fsck.exfat finds nothing: {ours:?}");
        }
        assert!(theirs || !ours.is_empty(), "seed {seed}: only fsck.exfat reports damage");
        let (after, left) = repair_copy(&bytes, RepairMode::All);
        assert_eq!((left, found(&after)), (0, vec![]), "seed {seed}: {ours:?}");
        assert!(
            clean_to_fsck(&after, folder.path()),
            "seed {seed}: repaired {ours:?}, but fsck.exfat reports damage"
        );
        judged += 1;
        clean += usize::from(ours.is_empty());
    }
    assert!(judged > 100 && clean > 0 && clean < judged, "{judged} judged, {clean} clean");
}

#[test]
fn the_leftovers_of_a_cut_are_repaired_without_a_loss() {
    let Some(mut volume) = Volume::new() else { return };
    let before = walk(&*common::open_bytes(&volume.bytes).unwrap());
    let clusters = volume.word(92);
    volume.mark(clusters - 4, true);
    volume.bytes[106] |= 2;
    let (after, left) = repair_copy(&volume.bytes, RepairMode::Safe);
    assert_eq!((left, found(&after)), (0, vec![]));
    let fs = common::open_bytes(&after).unwrap();
    assert!(walk(&*fs) == before && resolve(&*fs, "/sizes/32769").is_ok());
}
