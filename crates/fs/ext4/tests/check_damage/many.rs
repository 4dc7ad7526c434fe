//! A directory with more subdirectories than a link count can represent.

use std::fs::{self, File};
use std::path::Path;

use obento_ext4::raw::RawInode;
use obento_testkit::oracle::call;
use obento_testkit::scratch::memory_folder;

use crate::lab::Disk;
use crate::lab::bases::oracles;
use crate::lab::judge::{e2fsck_is_clean, findings, repaired};

/// `EXT4_LINK_MAX`, and one more.
const COUNT: u32 = 65_001;
/// The first unused inode.
const FIRST: u32 = 20;
/// `EXT4_FEATURE_RO_COMPAT_DIR_NLINK`.
const DIR_NLINK: u32 = 0x20;

#[test]
fn more_subdirectories_than_can_be_counted_get_the_feature_for_them() {
    if !oracles() {
        return;
    }
    let mut disk = sound();
    let many = disk.ino("many");
    let template = disk.inode_at(disk.ino("sub"));
    let record = disk.bytes[template..template + disk.inode_size].to_vec();
    for n in 0..COUNT {
        let at = disk.inode_at(FIRST + n);
        disk.put(at, &record);
        disk.put(at + crate::lab::I_BLOCK, &many.to_le_bytes());
    }
    fill(&mut disk, many);
    disk.edit_inode("many", |inode: &mut RawInode| {
        inode.i_mode = 0o040_755.into();
        inode.i_links_count = 1.into();
    });
    let features = |found: &[obento_driver::Finding]| found.iter().filter(|it| it.code == "feature").count();
    assert_eq!(features(&findings(&disk.bytes).unwrap()), 1);
    let fixed = Disk::new(repaired(&disk.bytes).unwrap());
    assert_eq!(findings(&fixed.bytes).unwrap(), []);
    let second = e2fsck_is_clean(&fixed.bytes);
    assert!(second.is_silent(), "{}", second.text);
    assert_eq!(fixed.super_block().s_feature_ro_compat.get() & DIR_NLINK, DIR_NLINK);
    assert_eq!(fixed.inode_of(many).i_links_count.get(), 1);
}

/// Returns a volume with space for the directories, a file `many` whose blocks will contain their names, and one
/// directory of that kind, `sub`.
fn sound() -> Disk {
    let folder = tempfile::Builder::new().prefix("obento-lab-").tempdir_in(memory_folder()).unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("many"), vec![7; 1100 << 10]).unwrap();
    File::create(&image).unwrap().set_len(40 << 20).unwrap();
    let features = "inline_data,^metadata_csum,^uninit_bg,^dir_nlink,^has_journal,^resize_inode";
    let arguments =
        ["-q", "-F", "-t", "ext4", "-b", "1024", "-g", "4096", "-N", "66000", "-O", features, "-d"];
    call("mke2fs", arguments.iter().map(Path::new).chain([tree.as_path(), image.as_path()])).unwrap();
    Disk::new(fs::read(&image).unwrap())
}

/// Writes the names of all directories into the blocks of `many`.
fn fill(disk: &mut Disk, many: u32) {
    let dots = [(many, ".".to_owned()), (2, "..".to_owned())];
    let mut names = dots.into_iter().chain((0..COUNT).map(|n| (FIRST + n, format!("{n:08}")))).peekable();
    for block in disk.file_blocks(many) {
        let (mut at, end) = (disk.range(block).start, disk.range(block).end);
        disk.bytes[at..end].fill(0);
        while at < end {
            // The last record of a block is extended to its end.
            let len = if end - at < 32 || names.peek().is_none() { end - at } else { 16 };
            let (ino, name) = names.next().unwrap_or_default();
            disk.put(at, &ino.to_le_bytes());
            disk.put(at + 4, &(len as u16).to_le_bytes());
            disk.put(at + 6, &[name.len() as u8, if ino == 0 { 0 } else { 2 }]);
            disk.put(at + 8, name.as_bytes());
            at += len;
        }
    }
    assert!(names.next().is_none(), "not all names fit");
}
