//! The consistency check of the crash explorer: correct volumes pass, and each kind of inconsistency is named.

mod common;

#[path = "common/consistency.rs"]
mod consistency;

use std::fs;
use std::path::{Path, PathBuf};

use obento_block::MemDevice;
use obento_testkit::oracle::{program, run};
use obento_testkit::tree::{self, TreeSpec};
use obento_testkit::{Oracle, require};

fn image(folder: &Path, args: &[&str]) -> PathBuf {
    let (source, image) = (folder.join("tree"), folder.join("image"));
    fs::create_dir(&source).unwrap();
    let root = rustix::process::geteuid().is_root();
    let spec = TreeSpec { files: 20, wide: 200, sparse_len: 1 << 22, xattr_len: 600, root, raw_names: true };
    tree::write(&source, &spec).unwrap();
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    run(program("mke2fs").args(["-q", "-F", "-N", "800"]).args(args).arg("-d").arg(&source).arg(&image))
        .unwrap();
    image
}

fn judge(image: &Path) -> Result<(), String> {
    consistency::check(&MemDevice::read_only(fs::read(image).unwrap()))
}

#[test]
fn volumes_that_e2fsck_finds_clean_are_consistent() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let shapes: &[&[&str]] = &[
        &["-t", "ext4"],
        &["-t", "ext4", "-b", "1024", "-g", "2048"],
        &["-t", "ext4", "-O", "^64bit,^metadata_csum,uninit_bg", "-b", "1024"],
        &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg,^flex_bg", "-b", "2048"],
        &["-t", "ext4", "-O", "inline_data,metadata_csum_seed"],
        &["-t", "ext4", "-O", "ea_inode,orphan_file"],
        &["-t", "ext4", "-O", "bigalloc,^resize_inode", "-C", "16384"],
        &["-t", "ext4", "-O", "sparse_super2,^resize_inode"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2", "-I", "128", "-b", "4096"],
    ];
    for shape in shapes {
        let folder = tempfile::tempdir().unwrap();
        let image = image(folder.path(), shape);
        run(program("e2fsck").arg("-fn").arg(&image)).unwrap();
        assert_eq!(judge(&image), Ok(()), "{shape:?}");
    }
}

#[test]
fn each_contradiction_is_found() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path(), &["-t", "ext4", "-b", "1024", "-g", "4096"]);
    let clean = fs::read(&image).unwrap();
    let cases = [
        ("freeb 5000", "use of block 5000"),
        ("setb 30000", "use of block 30000"),
        ("freei /sizes/60", "use of inode"),
        ("clri /sizes/60", "free blocks of group"),
        ("set_inode_field /sizes/1200000 blocks 8", "i_blocks of inode"),
        ("set_block_group 0 free_blocks_count 1", "checksum of group 0"),
        ("set_super_value free_inodes_count 7", "free inodes"),
        ("set_super_value last_orphan 12", "s_last_orphan"),
        ("feature needs_recovery", "needs_recovery"),
    ];
    for (command, expected) in cases {
        fs::write(&image, &clean).unwrap();
        run(program("debugfs").args(["-w", "-R", command]).arg(&image)).unwrap();
        let reason = judge(&image).expect_err(command);
        assert!(reason.contains(expected), "{command}: {reason}");
    }
}
