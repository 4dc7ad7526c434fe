//! Small volumes that are damaged, and looked at, changed or mended then.
//!
//! A target puts the fuzzer's bytes over one kind of structure and reads the volume to its end. Each decoder thus runs
//! where it runs in earnest, and the rest of the volume is sound, so that the damage is reached.

use std::sync::{Arc, LazyLock};

use obento_base::crc::crc32c;
use obento_block::{BlockDevice, MemDevice, Overlay};
use obento_driver::{Check, CheckOptions, Driver, Mending, OpenOptions};
use obento_env::NO_CLOCK;
use obento_exfat::ExFatDriver;
use obento_ext4::{Ext4, Ext4Driver, open_volume};
use obento_fat::FatDriver;
use obento_ntfs::NtfsDriver;
use obento_testkit::plan::{Limits, Plan, random_over};
use obento_testkit::snapshot::Snapshot;
use obento_testkit::walk::{mend_and_walk, open_and_change, open_and_walk, walk};
use obento_xv6::Xv6Driver;

use crate::places::{self, FAST_COMMITS};
use crate::volumes::{EXFAT, EXT4, FAT, FAT16, FAT32, NTFS, OUTSIDE, XV6, tree};

/// A volume and what was written over it.
type Damaged = Overlay<Arc<MemDevice>>;

/// How a volume of a format is damaged.
type Scattered = fn(&[u8]) -> Damaged;

/// Puts `data` over one place of a kind, which its first byte chooses.
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

/// Damages one structure of a kind that only who changes or mends a volume reads: both are done.
pub fn change_one(kind: &str, data: &[u8]) {
    if let (Some(one), Some(other)) = (damaged(kind, data), damaged(kind, data)) {
        open_and_change(&Ext4Driver, Arc::new(one), small_plan());
        mend_and_walk(&Ext4Driver, Arc::new(other));
    }
}

/// Some operations for an ext4.
pub fn small_plan() -> &'static Plan {
    static PLAN: LazyLock<Plan> = LazyLock::new(|| random_over(1, &Limits::SMALL, &TREES[0]));
    &PLAN
}

/// Damages a block of fast commits, whose checksums are made right again, and reads and mends the volume.
pub fn fast_commit(data: &[u8]) {
    let Some(device) = damaged("fast_commit", data) else { return };
    let mut area = vec![0; FAST_COMMITS.1];
    device.read_at(FAST_COMMITS.0, &mut area).expect("the place is on the volume");
    seal_fast_commits(&mut area);
    device.write_at(FAST_COMMITS.0, &area).expect("the place is on the volume");
    let device = Arc::new(device);
    open_and_walk(&Ext4Driver, device.clone());
    mend_and_walk(&Ext4Driver, device);
}

/// A record is a type, a length and so many bytes; type 8, in whose value the checksum stands at 4, ends what it sums up.
/// Source: Linux `fs/ext4/fast_commit.h`.
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

/// Damages a journal on a device of its own, and reads and mends the volume that it belongs to.
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
        mending: Mending::All,
        threads: 0,
        journal: Some(log),
        ..CheckOptions::new(Arc::new(NO_CLOCK))
    };
    let _ = Check::check(&Ext4Driver, volume.clone(), &options, &mut Vec::new());
    open(None);
}

/// Changes single bytes of an ext4: each four bytes of `data` are a place (24 bits) and a value.
pub fn mount_and_walk(data: &[u8]) {
    open_and_walk(&Ext4Driver, Arc::new(scattered(&EXT4, data)));
}

/// The same, and mends it.
pub fn mend_ext4(data: &[u8]) {
    mend_and_walk(&Ext4Driver, Arc::new(scattered(&EXT4, data)));
}

/// Changes single bytes of a FAT12, and reads and mends it.
pub fn scatter_fat(data: &[u8]) {
    scatter(&FatDriver::default(), || scattered(&FAT, data));
}

/// The same of a FAT16.
pub fn scatter_fat16(data: &[u8]) {
    scatter(&FatDriver::default(), || scattered(&FAT16, data));
}

/// The same of a FAT32.
pub fn scatter_fat32(data: &[u8]) {
    scatter(&FatDriver::default(), || scattered(&FAT32, data));
}

/// The same of an exFAT.
pub fn scatter_exfat(data: &[u8]) {
    scatter(&ExFatDriver::default(), || scattered_exfat(data));
}

/// Changes single bytes of an NTFS, and reads and checks it.
pub fn scatter_ntfs(data: &[u8]) {
    open_and_walk(&NtfsDriver::default(), Arc::new(scattered(&NTFS, data)));
}

/// The same of an xv6 volume.
pub fn scatter_xv6(data: &[u8]) {
    scatter(&Xv6Driver, || scattered_xv6(data));
}

fn scatter(driver: &dyn Driver, damaged: impl Fn() -> Damaged) {
    open_and_walk(driver, Arc::new(damaged()));
    mend_and_walk(driver, Arc::new(damaged()));
}

fn bytes_of(device: &Damaged) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory does not fail");
    bytes
}

/// The checksums of sets are made right again: a fuzzer cannot guess them.
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

/// The checksum of the super block, the last field of what stands at the start of block 1, is made right again.
fn scattered_xv6(data: &[u8]) -> Damaged {
    let device = scattered(&XV6, data);
    let mut summed = [0; 88];
    device.read_at(4096, &mut summed).expect("the place is on the volume");
    let sum = crc32c(u32::MAX, &summed).to_le_bytes();
    device.write_at(4096 + 88, &sum).expect("the place is on the volume");
    device
}

/// Changes a volume that was damaged: the first byte chooses its format, the next three the operations, and the rest is
/// scattered over it. What is left is looked at.
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

/// What is in the volumes of [`operations`].
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
    fn the_seeds_hold_fast_commits_and_a_journal_elsewhere_that_are_replayed() {
        assert!(replayed(&FAST, None) >= 6);
        assert_eq!(replayed(&OUTSIDE, None), 0);
        assert!(replayed(&OUTSIDE, Some(LOG.clone())) >= 12);
    }

    #[test]
    fn checksums_of_fast_commits_that_are_right_stay_as_they_are() {
        let mut area = vec![0; FAST_COMMITS.1];
        FAST.read_at(FAST_COMMITS.0, &mut area).unwrap();
        let before = area.clone();
        seal_fast_commits(&mut area);
        assert!(area == before);
    }
}
