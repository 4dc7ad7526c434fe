//! The super block: erased together with adjacent structures, or with an impossible field.

use std::fs::{self, File};
use std::sync::Arc;

use obento_driver::{CheckOptions, RepairMode};
use obento_env::NO_CLOCK;
use obento_ext4::check_volume;
use obento_host::FileDevice;
use obento_testkit::oracle::call;
use obento_testkit::scratch::memory_folder;

use crate::case::{cases, run_unknown};
use crate::common;
use crate::lab::bases::{LARGE, oracles};
use crate::lab::judge::{e2fsck_file, e2fsck_is_clean, repair_copy, repaired};

cases! {
    extra_sizes_that_no_inode_can_have(EXT4, [
        "wanted-extra-size field=Text(\"s_min_extra_isize\") found=1 expected=32",
        "wanted-extra-size field=Text(\"s_want_extra_isize\") found=1024"
    ], |disk| {
        disk.edit_super_block(|sb| {
            sb.s_min_extra_isize = 1.into();
            sb.s_want_extra_isize = 1024.into();
        });
    });
    more_blocks_reserved_for_growing_than_there_are(LARGE, [
        "super-block-value field=Text(\"s_reserved_gdt_blocks\") found=162 expected=2"
    ], |disk| {
        disk.edit_super_block(|sb| sb.s_reserved_gdt_blocks = (sb.s_reserved_gdt_blocks.get() + 160).into());
    });
    clusters_on_a_volume_without_them(EXT2, ["super-block-value field=Text(\"s_clusters_per_group\") found=77"], |disk| {
        disk.edit_super_block(|sb| sb.s_clusters_per_group = 77.into());
    });
    a_first_inode_behind_the_last(EXT2, [
        "super-block-value field=Text(\"s_first_ino\") found=33554443 expected=11"
    ], |disk| {
        disk.edit_super_block(|sb| sb.s_first_ino = (11 | 1 << 25).into());
    });
    a_journal_that_nothing_names(LARGE, [
        "super-block-value field=Text(\"s_journal_inum\") found=0 expected=8"
    ], |disk| {
        disk.edit_super_block(|sb| sb.s_journal_inum = 0.into());
    });
    an_orphan_file_without_the_feature(LARGE, [
        "super-block-value field=Text(\"s_orphan_file_inum\") found=12 expected=0"
    ], |disk| {
        disk.edit_super_block(|sb| sb.s_orphan_file_inum = 12.into());
    });
    meta_groups_that_begin_behind_the_last_descriptor(LARGE, ["first-meta-group found=2 most=1"], |disk| {
        disk.edit_super_block(|sb| {
            sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x10).into();
            sb.s_first_meta_bg = 2.into();
        });
    });
}

#[test]
fn a_journal_in_the_volume_and_on_another_device() {
    // Linux mounts no volume with both, and e2fsck does not check it.
    let expected = ["super-block-value field=Text(\"s_journal_dev\") found=2049 expected=0"];
    run_unknown(&LARGE, &expected, |disk| disk.edit_super_block(|sb| sb.s_journal_dev = 0x801.into()));
}

#[test]
fn a_quota_file_without_the_feature() {
    // Linux refuses that inode in directories, and e2fsck checks only whether the inode is in use.
    let expected = ["super-block-value field=Text(\"s_grp_quota_inum\") found=4 expected=0"];
    run_unknown(&LARGE, &expected, |disk| disk.edit_super_block(|sb| sb.s_grp_quota_inum = 4.into()));
}

#[test]
fn a_safe_repair_with_a_dirty_journal_does_not_change_meta_groups() {
    if oracles() {
        let mut disk = LARGE.disk();
        disk.edit_super_block(|sb| {
            sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x14).into();
            sb.s_first_meta_bg = 2.into();
        });
        let (report, after) = repair_copy(&disk.bytes, RepairMode::Safe).unwrap();
        assert_eq!(report.repaired, 0);
        assert!(after == disk.bytes, "something was written");
        assert!(e2fsck_is_clean(&repaired(&disk.bytes).unwrap()).is_silent());
    }
}

/// Number of files of the erased volumes.
const FILES: usize = 10_000;

#[test]
fn after_the_start_is_wiped_every_file_is_found_by_the_copies() {
    if !oracles() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("obento-lab-").tempdir_in(memory_folder()).unwrap();
    let (source, image) = (folder.path().join("source"), folder.path().join("image"));
    for n in 0..FILES {
        let dir = source.join(format!("{}", n / 200));
        if n % 200 == 0 {
            fs::create_dir_all(&dir).unwrap();
        }
        fs::write(dir.join(n.to_string()), format!("file {n}\n").repeat(n % 9)).unwrap();
    }
    let volumes = [
        ("-b 1024", 64),
        ("-b 2048 -O ^metadata_csum", 64),
        ("-b 4096", 64),
        // Without reserved descriptor blocks, the inode table follows.
        ("-b 4096 -O sparse_super2,^resize_inode", 8),
        // Backups of revision 0 do not contain their place.
        ("-b 1024 -O none -r 0 -I 128", 3),
        ("-b 4096 -O none -r 0 -I 128", 8),
    ];
    for (features, kib) in volumes {
        let _ = fs::remove_file(&image);
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let mut arguments = vec!["-q", "-F", "-t", "ext4"];
        arguments.extend(features.split(' '));
        arguments.extend(["-d", source.to_str().unwrap(), image.to_str().unwrap()]);
        call("mke2fs", arguments).unwrap();
        let before = tree(&image);
        assert!(before.len() > FILES);
        let file = File::options().write(true).open(&image).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; kib << 10], 0).unwrap();
        let device = Arc::new(FileDevice::open_writable(&image).unwrap());
        let options = CheckOptions { repair_mode: RepairMode::All, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
        let report = check_volume(device, &options, &mut |_| {}).unwrap();
        assert_eq!(report.left(), 0, "{features}");
        let second = e2fsck_file(&image, &["-fn"]);
        assert!(second.is_silent(), "{features}: {}", second.text);
        assert!(tree(&image) == before, "{features}: something is not as it was");
    }
}

/// Returns path, size and length of the contents of every file.
fn tree(image: &std::path::Path) -> Vec<(Vec<u8>, u64, u64)> {
    let fs = common::open(image).unwrap();
    let all = common::read_everything(&fs);
    assert_eq!(all.errors, []);
    let mut tree: Vec<_> =
        all.entries.into_iter().map(|(path, attr)| (path, attr.ino.0, attr.size)).collect();
    tree.push((b"bytes".to_vec(), 0, all.bytes));
    tree.sort();
    tree
}
