//! The format's own inodes: fields that e2fsck ignores there, but on which Linux or a change of the size relies.

use std::sync::Arc;

use obento_block::MemDevice;
use obento_driver::{Access, Driver as _, OpenOptions};
use obento_env::NO_CLOCK;
use obento_ext4::Ext4Driver;
use obento_ext4::raw::RawInode;
use obento_testkit::mutants::Random;

use crate::case::run_unknown;
use crate::lab::Disk;
use crate::lab::bases::{ALL, BIGALLOC, EXT2, EXT4, ORPHAN_FILE, QUOTA, oracles};
use crate::lab::judge::{e2fsck_is_clean, findings, repaired};

/// A number after the end of every image.
const OUTSIDE: u32 = 0x7fff_0000;
/// `EXT4_EA_INODE_FL`.
const EA_INODE: u32 = 0x20_0000;
/// `EXT4_EXTENTS_FL`.
const EXTENTS: u32 = 0x8_0000;

#[test]
fn an_attribute_block_outside_the_volume_is_reported_for_the_journal() {
    run_unknown(&EXT4, &["inode-field ino=8"], |disk| {
        disk.edit_inode("<8>", |inode| inode.i_file_acl_lo = OUTSIDE.into());
    });
}

#[test]
fn an_attribute_block_outside_the_volume_is_reported_for_the_resize_inode() {
    run_unknown(&EXT4, &["inode-field ino=7"], |disk| {
        disk.edit_inode("<7>", |inode| inode.l_i_file_acl_high = 1.into());
    });
}

#[test]
fn an_attribute_block_outside_the_volume_is_reported_for_a_quota_file() {
    run_unknown(&QUOTA, &["inode-field ino=3"], |disk| {
        disk.edit_inode("<3>", |inode| inode.i_file_acl_lo = OUTSIDE.into());
    });
}

#[test]
fn an_attribute_block_outside_the_volume_is_reported_for_an_unused_inode() {
    for base in [&EXT2, &BIGALLOC] {
        run_unknown(base, &["inode-field ino=6"], |disk| {
            disk.edit_inode("<6>", |inode| inode.i_file_acl_lo = OUTSIDE.into());
        });
    }
}

#[test]
fn the_flag_of_attribute_values_is_reported_for_the_journal() {
    run_unknown(&EXT4, &["inode-flag ino=8 flag=Text(\"ea_inode\")"], |disk| {
        disk.edit_inode("<8>", |inode| inode.i_flags = (inode.i_flags.get() | EA_INODE).into());
    });
}

#[test]
fn an_impossible_extra_size_is_reported_for_the_resize_inode() {
    run_unknown(&EXT4, &["extra-size ino=7"], |disk| {
        disk.edit_extra("<7>", |extra| extra.i_extra_isize = 257.into());
    });
}

/// Runs a computation of the minimum size on the image, and opens the image for changes.
fn expect_usable(bytes: &[u8]) -> Result<(), String> {
    let device: Arc<dyn obento_block::BlockDevice> = Arc::new(MemDevice::new(bytes.to_vec()));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let opened = Ext4Driver.open(device.clone(), &options).map_err(|error| error.to_string())?;
    opened.writable().ok_or("it is read-only")?;
    drop(opened);
    let minimum = Ext4Driver.resize().unwrap().minimum(&device).map_err(|error| error.to_string())?;
    if minimum > bytes.len() as u64 { Err(format!("the minimum is {minimum}")) } else { Ok(()) }
}

/// Overwrites the record of inode `ino` with noise, but with its mode and map if `keeps` is set.
fn noise(disk: &mut Disk, ino: u32, keeps: bool, random: &mut Random) {
    let (at, old) = (disk.inode_at(ino), disk.inode_of(ino));
    let size = usize::from(disk.super_block().s_inode_size.get());
    let bytes: Vec<u8> = (0..size).map(|_| random.number() as u8).collect();
    disk.put(at, &bytes);
    disk.edit_raw(at, |raw: &mut RawInode| {
        if keeps {
            raw.i_mode = old.i_mode;
            raw.i_links_count = old.i_links_count;
            raw.i_size_lo = old.i_size_lo;
            raw.i_size_high = old.i_size_high;
            raw.i_flags = (random.number() as u32 & !EXTENTS | old.i_flags.get() & EXTENTS).into();
            raw.i_block = old.i_block;
        }
    });
    disk.seal_inode(ino);
}

#[test]
fn a_repair_of_noise_in_own_inodes_leaves_a_volume_that_can_be_used_and_resized() {
    if !oracles() {
        return;
    }
    let mut failures = Vec::new();
    for base in ALL {
        let sound = base.disk();
        if let Err(error) = expect_usable(&sound.bytes) {
            // Clusters and inline data are not resized.
            eprintln!("{}: {error}", base.name);
            continue;
        }
        let orphan_file = sound.super_block().s_orphan_file_inum.get();
        let own = (1..=8).chain(Some(orphan_file).filter(|&ino| ino != 0 && base.name == ORPHAN_FILE.name));
        for (ino, seed) in own.flat_map(|ino| (0..8).map(move |seed| (ino, seed))) {
            let mut disk = sound.clone();
            noise(&mut disk, ino, seed % 2 == 0, &mut Random::new(seed));
            let name = format!("{} inode {ino} seed {seed}", base.name);
            let fixed = match repaired(&disk.bytes) {
                Ok(fixed) => fixed,
                Err(error) => {
                    failures.push(format!("{name}: no repair: {error}"));
                    continue;
                }
            };
            let left = findings(&fixed).unwrap();
            let second = e2fsck_is_clean(&fixed);
            if !left.is_empty() || !second.is_clean() {
                failures.push(format!("{name}: left {left:?}, e2fsck: {}", second.text));
            }
            if let Err(error) = expect_usable(&fixed) {
                failures.push(format!("{name}: {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
