//! The super block, by which all else is found: wiped together with what lies beside it, or with a field that cannot be.

use std::fs::{self, File};
use std::sync::Arc;

use obento_driver::{CheckOptions, Mending};
use obento_env::NO_CLOCK;
use obento_ext4::check_volume;
use obento_host::FileDevice;
use obento_testkit::oracle::call;

use crate::case::cases;
use crate::common;
use crate::lab::bases::{LARGE, memory, oracles};
use crate::lab::judge::{e2fsck_file, e2fsck_is_clean, mended, repaired};

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
    meta_groups_that_begin_behind_the_last_descriptor(LARGE, ["first-meta-group found=2 most=1"], |disk| {
        disk.edit_super_block(|sb| {
            sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x10).into();
            sb.s_first_meta_bg = 2.into();
        });
    });
}

#[test]
fn what_is_safe_does_not_touch_meta_groups_though_the_journal_is_to_be_replayed() {
    if oracles() {
        let mut disk = LARGE.disk();
        disk.edit_super_block(|sb| {
            sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x14).into();
            sb.s_first_meta_bg = 2.into();
        });
        let (report, after) = mended(&disk.bytes, Mending::Safe).unwrap();
        assert_eq!(report.mended, 0);
        assert!(after == disk.bytes, "something was written");
        assert!(e2fsck_is_clean(&repaired(&disk.bytes).unwrap()).is_silent());
    }
}

/// Files of the volumes that are wiped.
const FILES: usize = 10_000;

#[test]
fn after_the_start_is_wiped_every_file_is_found_by_the_copies() {
    if !oracles() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("obento-lab-").tempdir_in(memory()).unwrap();
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
        // Without blocks that are kept for growing the table of inodes follows.
        ("-b 4096 -O sparse_super2,^resize_inode", 8),
        // Copies of revision 0 do not say where they are.
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
        let options = CheckOptions { mending: Mending::All, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
        let report = check_volume(device, &options, &mut |_| {}).unwrap();
        assert_eq!(report.left(), 0, "{features}");
        let second = e2fsck_file(&image, &["-fn"]);
        assert!(second.is_silent(), "{features}: {}", second.text);
        assert!(tree(&image) == before, "{features}: something is not as it was");
    }
}

/// The path, size and contents' length of all that is there.
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
