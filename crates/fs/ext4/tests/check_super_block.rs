//! Every bit of every field of the super block, flipped alone, with a correct and with a wrong checksum. Our check
//! and e2fsck must agree whether something is wrong. A volume without findings opens. After one repair both find
//! nothing, the volume can be read, and no name is lost that `e2fsck -fy` keeps.
//!
//! `cargo xtask check-super-block` tests all bits; `OBENTO_ONLY=shape` selects a shape, `OBENTO_BIT=n` a bit. As
//! root, the kernel also mounts a sample of the repaired volumes.

mod common;
mod lab;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::panic::catch_unwind;
use std::path::Path;

use lab::Disk;
use lab::bases::oracles;
use lab::judge::{
    e2fsck, e2fsck_is_clean, findings, line, names, names_lost_to_us_alone, repair_copy, repaired,
};
use obento_driver::RepairMode;
use obento_testkit::oracle::{LoopMount, program, run};
use obento_testkit::scratch::memory_folder;

/// Arguments of `mke2fs`, and the size of the image in MiB: several groups with backups.
const SHAPES: &[(&str, &str, u64)] = &[
    ("ext2", "-t ext2 -b 1024 -g 512", 3),
    ("revision0", "-t ext2 -r 0 -b 1024 -g 512 -O none", 3),
    ("ext3", "-t ext3 -b 1024 -g 1024 -J size=1", 5),
    ("ext4", "-t ext4 -b 1024 -g 1024 -J size=1", 5),
    ("each-group", "-t ext4 -b 1024 -g 1024 -J size=1 -O ^flex_bg", 5),
    ("plain", "-t ext4 -b 1024 -g 1024 -J size=1 -O ^metadata_csum", 5),
    ("bigalloc", "-t ext4 -b 1024 -C 4096 -g 4096 -J size=1 -O bigalloc,^resize_inode", 9),
    ("meta-groups", "-t ext4 -b 1024 -g 256 -O 64bit,meta_bg,^resize_inode,^has_journal", 4),
    ("orphan-file", "-t ext4 -b 1024 -g 1024 -J size=1 -O orphan_file", 5),
    ("quota", "-t ext4 -b 1024 -g 1024 -J size=1 -O quota,project", 5),
    ("one-group", "-t ext4 -b 1024 -J size=1 -O ^resize_inode", 5),
];
/// Number of bits of the fields. The bytes after them are reserved, except the checksum.
const BITS: usize = 0x288 * 8;
/// The kernel mounts one of this many repaired volumes.
const MOUNTED: usize = 16;

fn sound(arguments: &str, mib: u64) -> Disk {
    let folder = tempfile::Builder::new().prefix("obento-bits-").tempdir_in(memory_folder()).unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir_all(tree.join("dir/sub")).unwrap();
    for n in 0..12 {
        fs::write(tree.join(format!("file-{n}")), vec![b'x'; n * 300]).unwrap();
        fs::write(tree.join(format!("dir/name-{n}")), "y").unwrap();
        std::os::unix::fs::symlink("target", tree.join(format!("dir/sub/link-{n}"))).unwrap();
    }
    File::create(&image).unwrap().set_len(mib << 20).unwrap();
    let mut mke2fs = program("mke2fs");
    mke2fs.env("E2FSPROGS_FAKE_TIME", "1000000000").args(["-q", "-F", "-N", "128"]);
    mke2fs.args(["-U", "6f62656e-746f-4000-8000-000000000005", "-E", "lazy_itable_init=0,root_owner=0:0"]);
    run(mke2fs.args(arguments.split(' ')).arg("-d").arg(&tree).arg(&image)).unwrap();
    Disk::new(e2fsck(&fs::read(&image).unwrap(), &["-fy"]).1)
}

/// Tests one image. The error describes a difference between our check and e2fsck.
fn judge(sound: &BTreeSet<Vec<u8>>, bytes: &[u8], is_mounted: bool) -> Result<(), String> {
    let second = e2fsck_is_clean(bytes);
    let Ok(found) = findings(bytes) else {
        // A volume that e2fsck does not open, either, or does not check in time, is not changed.
        let is_left = repaired(bytes).is_err() && !second.is_one();
        return if is_left {
            Ok(())
        } else {
            Err(format!("is not checked, and e2fsck reports {}", second.text))
        };
    };
    let reported: Vec<String> = found.iter().map(line).collect();
    if reported.is_empty() {
        if !second.is_clean() {
            return Err(format!("only e2fsck finds something: {}", second.text));
        }
        let (_, unreadable) =
            names(bytes).map_err(|error| format!("is clean, and does not open: {error}"))?;
        return if unreadable.is_empty() { Ok(()) } else { Err(format!("is clean, but {unreadable:?}")) };
    }
    if reported.iter().any(|reported| reported.starts_with("truncated ")) {
        // Neither repairs a volume whose end is missing.
        return Ok(());
    }
    let (report, fixed) =
        repair_copy(bytes, RepairMode::All).map_err(|error| format!("{error} after {reported:?}"))?;
    let left: Vec<String> = findings(&fixed).map_err(|error| error.to_string())?.iter().map(line).collect();
    if report.left() > 0 || !left.is_empty() {
        return Err(format!("after the repair of {reported:?} we find {left:?}"));
    }
    let second = e2fsck_is_clean(&fixed);
    if !second.is_clean() {
        return Err(format!("after the repair of {reported:?} e2fsck reports {}", second.text));
    }
    let (ours, unreadable) = names(&fixed).map_err(|error| format!("after {reported:?}: {error}"))?;
    if !unreadable.is_empty() {
        return Err(format!("after the repair of {reported:?} {unreadable:?}"));
    }
    let lost = names_lost_to_us_alone(sound, bytes, &ours);
    if !lost.is_empty() {
        return Err(format!("the repair of {reported:?} loses {lost:?}"));
    }
    if is_mounted { mounts(&fixed).map_err(|error| format!("after {reported:?} {error}")) } else { Ok(()) }
}

/// Mounts the volume writable with the kernel. Fails with the error of the mount.
fn mounts(bytes: &[u8]) -> Result<(), String> {
    let image = tempfile::Builder::new().prefix("obento-bits-").tempfile_in(memory_folder()).unwrap();
    fs::write(image.path(), bytes).unwrap();
    let mounted = LoopMount::new(Path::new(image.path()), "rw").map_err(|error| error.to_string())?;
    mounted.unmount().map_err(|error| error.to_string())
}

/// Flips the bits for which `is_meant` returns true. Returns the number of tested images, and the failures.
fn flip(shape: &(&str, &str, u64), is_meant: impl Fn(usize) -> bool) -> (usize, Vec<String>) {
    let (name, arguments, mib) = *shape;
    let disk = sound(arguments, mib);
    let all = names(&disk.bytes).unwrap().0;
    // A kernel without quotas refuses volumes that have them.
    let has_judge = rustix::process::geteuid().is_root() && mounts(&disk.bytes).is_ok();
    let (mut judged, mut failures) = (0, Vec::new());
    for bit in (0..BITS).filter(|&bit| is_meant(bit)) {
        for is_sealed in [false, true].into_iter().filter(|&is_sealed| disk.checked || !is_sealed) {
            let mut flipped = disk.clone();
            flipped.bytes[1024 + bit / 8] ^= 1 << (bit % 8);
            if is_sealed {
                flipped.seal_super_block();
            }
            judged += 1;
            let is_mounted = has_judge && judged % MOUNTED == 0;
            let outcome = catch_unwind(|| judge(&all, &flipped.bytes, is_mounted));
            if let Err(reason) = outcome.unwrap_or_else(|_| Err("panics".into())) {
                let sum = if is_sealed { "right" } else { "as it was" };
                let failure = format!("{name} {:#x} bit {} (checksum {sum}): {reason}", bit / 8, bit % 8);
                println!("{failure}");
                failures.push(failure);
            }
        }
    }
    println!("{name}: {judged} judged, {} differences", failures.len());
    (judged, failures)
}

#[test]
fn a_flipped_bit_of_the_super_block_costs_no_name_that_e2fsck_keeps() {
    // A few bits of each shape, different ones in each.
    const STEP: usize = 487;
    if oracles() {
        for (n, shape) in SHAPES.iter().enumerate() {
            let failures = flip(shape, |bit| bit % STEP == n * 31).1;
            assert!(failures.is_empty(), "{}", failures.join("\n"));
        }
    }
}

#[test]
fn a_block_bitmap_in_another_group_is_found_and_moved_where_groups_do_not_share() {
    if !oracles() {
        return;
    }
    let (_, arguments, mib) = SHAPES.iter().find(|shape| shape.0 == "each-group").unwrap();
    let sound = sound(arguments, *mib);
    let mut disk = sound.clone();
    // The last free block of the volume is in the last group, and the bitmap is that of group 1.
    let block = disk.free_block();
    let bitmap = disk.bytes[disk.range(disk.group_of(1).bg_block_bitmap_lo.get())].to_vec();
    disk.put(disk.range(block).start, &bitmap);
    disk.edit_group(1, |group| group.bg_block_bitmap_lo = block.into());
    let reported: Vec<String> = findings(&disk.bytes).unwrap().iter().map(line).collect();
    assert!(reported.contains(&format!("block-bitmap-place group=1 block={block}")), "{reported:?}");
    let all = names(&sound.bytes).unwrap().0;
    assert_eq!(judge(&all, &disk.bytes, rustix::process::geteuid().is_root()), Ok(()));
}

#[test]
#[ignore = "takes an hour: cargo xtask check-super-block"]
fn campaign_over_every_bit_of_the_super_block() {
    if !oracles() {
        return;
    }
    let only = std::env::var("OBENTO_ONLY").ok();
    let one = std::env::var("OBENTO_BIT").ok().map(|bit| bit.parse::<usize>().unwrap());
    let shapes = SHAPES.iter().filter(|shape| only.as_ref().is_none_or(|only| shape.0 == only));
    let (mut judged, mut failures) = (0, Vec::new());
    for shape in shapes {
        let (count, failed) = flip(shape, |bit| one.is_none_or(|one| bit == one));
        judged += count;
        failures.extend(failed);
    }
    println!("{judged} images, {} differences", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
