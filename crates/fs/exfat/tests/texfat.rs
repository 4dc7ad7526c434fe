//! TexFAT: volumes with two FATs and two bitmaps, whose boot sector selects the active pair. The active pair is read,
//! and the volume is neither changed nor checked.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{bytes_of, open_bytes, shape};
use obento_base::{Error, Feature};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{CheckOptions, Driver as _, RepairMode, Resize as _, ResizeRefusal};
use obento_env::NO_CLOCK;
use obento_exfat::ExFatDriver;
use obento_exfat::check::check_volume;
use obento_testkit::changes::{tree_of, walk};

/// Returns a filled volume as a TexFAT volume whose pair `active` is intact; the other pair is invalid.
fn texfat(folder: &Path, active: u8) -> (Vec<u8>, Vec<u8>) {
    let plain = bytes_of(&shape("page").filled(folder));
    let mut bytes = plain.clone();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let sector = 1 << bytes[108];
    let [fat, fat_len, heap] = [80, 84, 88].map(|at| word(&bytes, at) * sector);
    let (clusters, root, cluster) = (word(&bytes, 92), word(&bytes, 96), sector << bytes[109]);
    assert!(fat + 2 * fat_len <= heap, "there is room for the second FAT");
    let place = |number: usize| heap + (number - 2) * cluster;
    // The second bitmap takes the last cluster, which both mark as used.
    let second = clusters + 1;
    let entry = (place(root)..).step_by(32).find(|&at| bytes[at] == 0x81).unwrap();
    assert_eq!(word(&bytes, entry + 20), 2, "the first bitmap lies in cluster 2");
    bytes[place(2) + (second - 2) / 8] |= 1 << ((second - 2) % 8);
    bytes[fat + second * 4..fat + second * 4 + 4].fill(0xff);
    bytes.copy_within(fat..fat + fat_len, fat + fat_len);
    bytes.copy_within(place(2)..place(2) + cluster, place(second));
    let end = (place(root)..).step_by(32).find(|&at| bytes[at] == 0).unwrap();
    bytes.copy_within(entry..entry + 32, end);
    bytes[end + 1] = 1;
    bytes[end + 20..end + 24].copy_from_slice(&(second as u32).to_le_bytes());
    let (other_fat, other_bitmap) =
        if active == 0 { (fat + fat_len, place(second)) } else { (fat, place(2)) };
    bytes[other_fat + 8..other_fat + fat_len].fill(0x55);
    bytes[other_bitmap..other_bitmap + cluster].fill(0x55);
    bytes[106] |= active;
    bytes[110] = 2;
    let summed = bytes[..11 * sector].iter().enumerate().filter(|(at, _)| ![106, 107, 112].contains(at));
    let sum = summed.fold(0, |sum: u32, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
    bytes[11 * sector..12 * sector].chunks_mut(4).for_each(|word| word.copy_from_slice(&sum.to_le_bytes()));
    bytes.copy_within(..12 * sector, 12 * sector);
    (plain, bytes)
}

#[test]
fn a_volume_with_two_fats_is_read_by_the_active_pair() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for active in [0, 1] {
        let (plain, bytes) = texfat(folder.path(), active);
        let (plain, fs) = (open_bytes(&plain).unwrap(), open_bytes(&bytes).unwrap());
        assert!(fs.info().notices.is_empty(), "{:?}", fs.info().notices);
        assert!(tree_of(&*fs) == tree_of(&*plain), "pair {active}");
        assert_eq!(walk(&*fs).len(), walk(&*plain).len());
        // The second bitmap takes a cluster.
        assert_eq!(fs.statfs().unwrap().free + 1, plain.statfs().unwrap().free, "pair {active}");
    }
}

#[test]
fn a_volume_with_two_fats_is_neither_changed_nor_checked() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for active in [0, 1] {
        let (_, bytes) = texfat(folder.path(), active);
        let device = Arc::new(MemDevice::new(bytes.clone()));
        let opened = ExFatDriver::default().open(device.clone(), &common::FORMAT.writing()).map(drop);
        assert!(matches!(opened, Err(Error::Unsupported(Feature::Named(name))) if name.contains("TexFAT")));
        let unchangeable = Arc::new(MemDevice::read_only(bytes.clone()));
        let opened = ExFatDriver::default().open(unchangeable, &common::FORMAT.writing()).map(drop);
        assert_eq!(opened, Err(Error::ReadOnly));
        for repair_mode in [RepairMode::Nothing, RepairMode::All] {
            let options = CheckOptions { repair_mode, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
            let device: Arc<dyn obento_block::BlockDevice> = device.clone();
            let checked = check_volume(&device, &options, &mut |_| ()).map(drop);
            assert!(
                matches!(checked, Err(Error::Unsupported(Feature::Named(name))) if name.contains("TexFAT"))
            );
        }
        let mut after = vec![0; bytes.len()];
        obento_block::BlockDevice::read_at(&*device, 0, &mut after).unwrap();
        assert!(after == bytes, "not a byte was written");
    }
}

#[test]
fn a_texfat_volume_is_not_resized() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_, bytes) = texfat(folder.path(), 1);
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(bytes));
    let refused = ExFatDriver::default().plan(&device, 4 << 20);
    assert_eq!(refused, Err(ResizeRefusal::Feature("TexFAT").into()));
}
