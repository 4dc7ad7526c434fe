//! Nothing is found on intact images.

use crate::lab::Disk;
use crate::lab::bases::{ALL, oracles};
use crate::lab::judge::{contents, e2fsck_is_clean, findings, line};

#[test]
fn sound_images_have_no_finding() {
    if !oracles() {
        return;
    }
    for base in ALL {
        let found: Vec<String> = findings(&base.disk().bytes).unwrap().iter().map(line).collect();
        assert!(found.is_empty(), "{}: {found:#?}", base.name);
    }
}

/// Tests the test support itself: checksums that it corrects are correct, and structures that it finds exist.
#[test]
fn a_change_that_is_taken_back_leaves_a_sound_image() {
    if !oracles() {
        return;
    }
    for base in ALL {
        let (sound, mut disk) = (base.disk(), base.disk());
        for path in ["file", "pieces", "dir", "dir/inner", "full", "wide", "slow", "twice"] {
            disk.edit_inode(path, |inode| inode.i_uid = 7.into());
            disk.edit_inode(path, |inode| inode.i_uid = 0.into());
        }
        twice(&mut disk, |disk| {
            disk.edit_super_block(|sb| sb.s_def_resuid = (sb.s_def_resuid.get() ^ 1).into())
        });
        twice(&mut disk, |disk| {
            disk.edit_group(0, |group| group.bg_flags = (group.bg_flags.get() ^ 8).into())
        });
        twice(&mut disk, |disk| disk.edit_entry("dir", "sub", |entry| entry.file_type ^= 1));
        twice(&mut disk, |disk| {
            disk.edit_index_entry("wide", 0, 1, |entry| entry.hash = (entry.hash.get() ^ 2).into())
        });
        twice(&mut disk, |disk| {
            disk.edit_xattr_header("xattrs", |header| header.h_hash = (header.h_hash.get() ^ 1).into())
        });
        assert!(disk.bytes == sound.bytes, "{}", base.name);
        assert!(contents(&disk.bytes).values().all(Result::is_ok), "{}", base.name);
        assert_eq!(e2fsck_is_clean(&disk.bytes).code, 0, "{}", base.name);
    }
}

fn twice(disk: &mut Disk, change: fn(&mut Disk)) {
    change(disk);
    change(disk);
}
