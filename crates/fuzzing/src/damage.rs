//! Targets that damage small volumes, and then read, change or repair them.
//!
//! A target writes the fuzzer's bytes over one kind of structure, and reads the whole volume. Each decoder thus runs in
//! its usual place. The rest of the volume is sound, so that the damaged structure is reached.

use std::sync::{Arc, LazyLock};

use obento_base::crc::{crc32_le, crc32c};
use obento_bcachefs::BcachefsDriver;
use obento_block::{BlockDevice, MemDevice, Overlay};
use obento_driver::{Check, CheckOptions, Driver, OpenOptions, RepairMode};
use obento_env::NO_CLOCK;
use obento_exfat::ExFatDriver;
use obento_ext4::{Ext4, Ext4Driver, open_volume};
use obento_fat::FatDriver;
use obento_jffs2::Jffs2Driver;
use obento_lfs::LfsDriver;
use obento_ntfs::NtfsDriver;
use obento_testkit::plan::{Limits, Plan, random_over};
use obento_testkit::snapshot::Snapshot;
use obento_testkit::walk::{open_and_change, open_and_walk, repair_and_walk, walk};
use obento_xv6::Xv6Driver;

use crate::places::{self, FAST_COMMITS};
use crate::volumes::{BCACHEFS, EXFAT, EXT4, FAT, FAT16, FAT32, JFFS2, LFS, NTFS, OUTSIDE, XV6, tree};

/// A volume and the bytes written over it.
type Damaged = Overlay<Arc<MemDevice>>;

/// A function that damages a volume of a format.
type Scattered = fn(&[u8]) -> Damaged;

/// Writes `data` over one structure of a kind, which the first byte chooses.
fn damaged(kind: &str, data: &[u8]) -> Option<Damaged> {
    let (base, places) = places::of(kind);
    let (&choice, bytes) = data.split_first()?;
    let (offset, len) = places[usize::from(choice) % places.len()];
    let device = Overlay::new(Arc::clone(base));
    device.write_at(offset, &bytes[..bytes.len().min(len)]).expect("the place is on the volume");
    Some(device)
}

/// Damages one structure of a kind, and reads the whole volume.
pub fn one(kind: &str, data: &[u8]) {
    if let Some(device) = damaged(kind, data) {
        open_and_walk(&Ext4Driver, Arc::new(device));
    }
}

/// Damages one structure of a kind that only changes and repairs read, and then changes and repairs the volume.
pub fn change_one(kind: &str, data: &[u8]) {
    if let (Some(one), Some(other)) = (damaged(kind, data), damaged(kind, data)) {
        open_and_change(&Ext4Driver, Arc::new(one), small_plan());
        repair_and_walk(&Ext4Driver, Arc::new(other));
    }
}

/// Returns a short plan of operations for ext4.
pub fn small_plan() -> &'static Plan {
    static PLAN: LazyLock<Plan> = LazyLock::new(|| random_over(1, &Limits::SMALL, &TREES[0]));
    &PLAN
}

/// Damages a block of fast commits, corrects the checksums, and reads and repairs the volume.
pub fn fast_commit(data: &[u8]) {
    let Some(device) = damaged("fast_commit", data) else { return };
    let mut area = vec![0; FAST_COMMITS.1];
    device.read_at(FAST_COMMITS.0, &mut area).expect("the place is on the volume");
    seal_fast_commits(&mut area);
    device.write_at(FAST_COMMITS.0, &area).expect("the place is on the volume");
    let device = Arc::new(device);
    open_and_walk(&Ext4Driver, device.clone());
    repair_and_walk(&Ext4Driver, device);
}

/// Corrects the checksums of fast commits. A record consists of a type, a length and a value. A record of type 8
/// contains, at offset 4 of its value, the checksum of the records before it. Source: Linux `fs/ext4/fast_commit.h`.
fn seal_fast_commits(area: &mut [u8]) {
    const TAIL: u16 = 8;
    let mut sum = 0;
    for block in area.chunks_exact_mut(1024) {
        let mut at = 0;
        while at + 4 <= block.len() {
            let kind = u16::from_le_bytes([block[at], block[at + 1]]);
            let end = at + 4 + usize::from(u16::from_le_bytes([block[at + 2], block[at + 3]]));
            if !(1..=9).contains(&kind) || end > block.len() {
                break;
            }
            if kind == TAIL && end >= at + 12 {
                sum = crc32c(sum, &block[at..at + 8]);
                block[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
                sum = 0;
            } else {
                sum = crc32c(sum, &block[at..end]);
            }
            at = end;
        }
    }
}

/// Damages an external journal, and reads and repairs the volume that uses it.
pub fn external_journal(data: &[u8]) {
    let Some(log) = damaged("external_journal", data) else { return };
    let (log, volume): (Arc<dyn BlockDevice>, Arc<dyn BlockDevice>) =
        (Arc::new(log), Arc::new(Overlay::new(OUTSIDE.clone())));
    let open = |journal| {
        let options = OpenOptions { journal, cache: 256 << 10, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
        if let Ok(volume) = open_volume(volume.clone(), &options) {
            walk(&Ext4::new(volume));
        }
    };
    open(Some(log.clone()));
    let options = CheckOptions {
        repair_mode: RepairMode::All,
        threads: 0,
        journal: Some(log),
        ..CheckOptions::new(Arc::new(NO_CLOCK))
    };
    let _ = Check::check(&Ext4Driver, volume.clone(), &options, &mut Vec::new());
    open(None);
}

/// Changes single bytes of an ext4 volume, and reads it. Each four bytes of `data` are an offset (24 bits) and a value.
pub fn mount_and_walk(data: &[u8]) {
    open_and_walk(&Ext4Driver, Arc::new(scattered(&EXT4, data)));
}

/// Changes single bytes of an ext4 volume, and repairs it.
pub fn repair_ext4(data: &[u8]) {
    repair_and_walk(&Ext4Driver, Arc::new(scattered(&EXT4, data)));
}

/// Changes single bytes of a FAT12 volume, and reads and repairs it.
pub fn scatter_fat(data: &[u8]) {
    scatter(&FatDriver::default(), || scattered(&FAT, data));
}

/// Changes single bytes of a FAT16 volume, and reads and repairs it.
pub fn scatter_fat16(data: &[u8]) {
    scatter(&FatDriver::default(), || scattered(&FAT16, data));
}

/// Changes single bytes of a FAT32 volume, and reads and repairs it.
pub fn scatter_fat32(data: &[u8]) {
    scatter(&FatDriver::default(), || scattered(&FAT32, data));
}

/// Changes single bytes of an exFAT volume, and reads and repairs it.
pub fn scatter_exfat(data: &[u8]) {
    scatter(&ExFatDriver::default(), || scattered_exfat(data));
}

/// Changes single bytes of a JFFS2 image, corrects the checksums of its nodes, and reads and checks it.
pub fn scatter_jffs2(data: &[u8]) {
    let device = scattered(&JFFS2, data);
    let mut bytes = bytes_of(&device);
    for at in (0..bytes.len().saturating_sub(12)).step_by(4) {
        if bytes[at..at + 2] == [0x85, 0x19] {
            seal_node(&mut bytes[at..]);
        }
    }
    open_and_walk(&Jffs2Driver, Arc::new(MemDevice::read_only(bytes)));
}

/// Corrects the checksums of a node, since a fuzzer cannot guess them.
fn seal_node(node: &mut [u8]) {
    let word = |node: &[u8], at: usize| u32::from_le_bytes(node[at..at + 4].try_into().expect("four bytes"));
    let sum = crc32_le(0, &node[..8]).to_le_bytes();
    node[8..12].copy_from_slice(&sum);
    if node.len() < 68 {
        return;
    }
    let (len, kind) = (word(node, 4) as usize, u16::from_le_bytes([node[2], node[3]]));
    let mut seal = |from: usize, to: usize, at: usize| {
        if to <= node.len() && from <= to {
            let sum = crc32_le(0, &node[from..to]).to_le_bytes();
            node[at..at + 4].copy_from_slice(&sum);
        }
    };
    match kind {
        0xe001 => {
            seal(0, 32, 32);
            seal(40, len, 36);
        }
        0xe002 => {
            seal(68, len, 60);
            seal(0, 60, 64);
        }
        0xe008 => {
            seal(32, len, 24);
            seal(0, 28, 28);
        }
        0xe009 => seal(0, 24, 24),
        _ => {}
    }
}

/// Changes single bytes of an NTFS volume, and reads and checks it.
pub fn scatter_ntfs(data: &[u8]) {
    open_and_walk(&NtfsDriver::default(), Arc::new(scattered(&NTFS, data)));
}

/// Changes single bytes of a bcachefs volume without checksums and with a dirty journal, and reads it.
pub fn scatter_bcachefs(data: &[u8]) {
    open_and_walk(&BcachefsDriver, Arc::new(scattered(&BCACHEFS, data)));
}

/// Changes single bytes of an LFS volume that was not unmounted, and checks and reads it.
pub fn scatter_lfs(data: &[u8]) {
    open_and_walk(&LfsDriver, Arc::new(scattered(&LFS, data)));
}

/// Changes single bytes of an xv6 volume, and reads and checks it.
pub fn scatter_xv6(data: &[u8]) {
    scatter(&Xv6Driver, || scattered_xv6(data));
}

fn scatter(driver: &dyn Driver, damaged: impl Fn() -> Damaged) {
    open_and_walk(driver, Arc::new(damaged()));
    repair_and_walk(driver, Arc::new(damaged()));
}

fn bytes_of(device: &Damaged) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory does not fail");
    bytes
}

/// Corrects the checksums of entry sets, which a fuzzer cannot guess.
fn scattered_exfat(data: &[u8]) -> Damaged {
    let device = scattered(&EXFAT, data);
    let bytes = bytes_of(&device);
    for at in (16 << 10..bytes.len() - 32 * 19).step_by(32).filter(|&at| bytes[at] == 0x85) {
        let set = &bytes[at..at + 32 * (usize::from(bytes[at + 1] % 19) + 1)];
        let summed = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = summed.fold(0, |sum: u16, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
        device.write_at(at as u64 + 2, &sum.to_le_bytes()).expect("the place is on the volume");
    }
    device
}

fn scattered(base: &Arc<MemDevice>, data: &[u8]) -> Damaged {
    let device = Overlay::new(base.clone());
    let len = device.len();
    for change in data.chunks_exact(4) {
        let at = u64::from(u32::from_le_bytes([change[0], change[1], change[2], 0])) % len;
        device.write_at(at, &change[3..]).expect("the place is on the volume");
    }
    device
}

/// Corrects the checksum of the super block, which is its last field. The super block is at the start of block 1.
fn scattered_xv6(data: &[u8]) -> Damaged {
    let device = scattered(&XV6, data);
    let mut summed = [0; 88];
    device.read_at(4096, &mut summed).expect("the place is on the volume");
    let sum = crc32c(u32::MAX, &summed).to_le_bytes();
    device.write_at(4096 + 88, &sum).expect("the place is on the volume");
    device
}

/// Runs operations on a damaged volume, and then reads it. The first byte chooses the format, the next three the
/// operations, and the rest is the damage.
pub fn operations(data: &[u8]) {
    let Some((&[format, ref seed @ ..], data)) = data.split_first_chunk::<4>() else { return };
    let seed = seed.iter().fold(0, |seed, &byte| seed << 8 | u64::from(byte));
    let formats: [(&dyn Driver, Scattered); 4] = [
        (&Ext4Driver, |data| scattered(&EXT4, data)),
        (&FatDriver::default(), |data| scattered(&FAT, data)),
        (&ExFatDriver::default(), scattered_exfat),
        (&Xv6Driver, scattered_xv6),
    ];
    let which = usize::from(format) % formats.len();
    let (driver, scattered) = formats[which];
    let plan = random_over(seed, &Limits::SMALL, &TREES[which]);
    open_and_change(driver, Arc::new(scattered(data)), &plan);
}

/// The contents of the volumes of [`operations`].
static TREES: LazyLock<[Snapshot; 4]> = LazyLock::new(|| {
    [
        tree(&Ext4Driver, &EXT4),
        tree(&FatDriver::default(), &FAT),
        tree(&ExFatDriver::default(), &EXFAT),
        tree(&Xv6Driver, &XV6),
    ]
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::{FAST, LOG};
    use obento_driver::{FileSystem as _, Notice};

    fn replayed(device: &Arc<MemDevice>, journal: Option<Arc<dyn BlockDevice>>) -> u64 {
        let options = OpenOptions { journal, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
        let notices = Ext4::new(open_volume(device.clone(), &options).unwrap()).info().notices;
        notices
            .iter()
            .map(|notice| if let Notice::Replayed { transactions } = notice { *transactions } else { 0 })
            .sum()
    }

    #[test]
    fn the_seeds_contain_fast_commits_and_an_external_journal_that_are_replayed() {
        assert!(replayed(&FAST, None) >= 6);
        assert_eq!(replayed(&OUTSIDE, None), 0);
        assert!(replayed(&OUTSIDE, Some(LOG.clone())) >= 12);
    }

    #[test]
    fn correct_checksums_of_fast_commits_are_unchanged() {
        let mut area = vec![0; FAST_COMMITS.1];
        FAST.read_at(FAST_COMMITS.0, &mut area).unwrap();
        let before = area.clone();
        seal_fast_commits(&mut area);
        assert!(area == before);
    }
}
