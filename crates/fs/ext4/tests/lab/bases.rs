//! The intact images that tests damage: small, with an example of everything that their features support.
//!
//! Each contains `file` (three blocks), `pieces` (six extents, or block numbers through two tables), `empty`, `link`
//! (a short symbolic link), `slow` (a long one), `twice` (two names), `dir/inner`, `dir/sub/`, `full/` (an indexed
//! directory of 90 names), `wide/` (an index of two levels), `pipe`, `char`, `xattrs` (in the inode and in a block).

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use obento_testkit::oracle::{call, program, run};
use obento_testkit::scratch::memory_folder;
use obento_testkit::{Oracle, require};

use super::Disk;

const UUID: &str = "6f62656e-746f-4000-8000-000000000005";

/// How an image is created.
#[derive(Debug)]
pub struct Base {
    pub name: &'static str,
    /// Arguments of `mke2fs`, separated by spaces.
    pub mke2fs: &'static str,
    /// Commands of `debugfs`, one per line; `FILES` is a folder with `value-N`, files of N bytes.
    pub debugfs: &'static str,
}

const XATTRS: &str = "ea_set xattrs user.small in-the-inode\nea_set -f FILES/value-300 xattrs user.large\n";
const BOTH: &str = concat!(
    "ea_set xattrs user.small in-the-inode\nea_set -f FILES/value-300 xattrs user.large\n",
    "ea_set -f FILES/value-3000 long user.own-inode\n"
);

macro_rules! bases {
    ($($(#[$about:meta])* $name:ident: $mke2fs:literal, $debugfs:expr;)*) => {
        $($(#[$about])* pub static $name: Base = Base { name: stringify!($name), mke2fs: $mke2fs, debugfs: $debugfs };)*
        /// All images.
        pub static ALL: &[&Base] = &[$(&$name),*];
    };
}

bases! {
    /// With checksums, extents and two groups.
    EXT4: "-t ext4 -b 1024 -g 4096 -J size=1", XATTRS;
    /// Without checksums.
    PLAIN: "-t ext4 -b 1024 -g 4096 -J size=1 -O ^metadata_csum,^uninit_bg", XATTRS;
    /// Checksums of descriptors only.
    UNINIT: "-t ext4 -b 1024 -g 4096 -J size=1 -O ^metadata_csum,uninit_bg,^64bit", XATTRS;
    /// Block maps, no journal.
    EXT2: "-t ext2 -b 1024", XATTRS;
    /// Block maps, a journal, small inodes.
    EXT3: "-t ext3 -b 1024 -I 128 -J size=1", "ea_set -f FILES/value-300 xattrs user.large\n";
    /// Attribute values in inodes of their own.
    EA_INODE: "-t ext4 -b 1024 -g 4096 -J size=1 -O ea_inode", BOTH;
    /// Inline data.
    INLINE: "-t ext4 -b 1024 -g 4096 -J size=1 -O inline_data", XATTRS;
    /// With an orphan file.
    ORPHAN_FILE: "-t ext4 -b 1024 -g 4096 -J size=1 -O orphan_file", XATTRS;
    /// With quota files.
    QUOTA: "-t ext4 -b 1024 -g 4096 -J size=1 -O quota", XATTRS;
    /// With a block of the multiple mount protection.
    MMP: "-t ext4 -b 1024 -g 4096 -J size=1", XATTRS;
    /// Clusters of four blocks.
    BIGALLOC: "-t ext4 -b 1024 -C 4096 -J size=1 -O bigalloc,^resize_inode", XATTRS;
    /// Blocks of the size of a page.
    LARGE: "-t ext4 -b 4096 -J size=4", XATTRS;
}

/// Returns whether the programs that create and check the images are installed.
pub fn oracles() -> bool {
    require(&[
        Oracle::Program("mke2fs"),
        Oracle::Program("debugfs"),
        Oracle::Program("tune2fs"),
        Oracle::Program("e2fsck"),
    ])
}

impl Base {
    /// Returns the intact image, which is created once per process.
    pub fn disk(&'static self) -> Disk {
        static MADE: OnceLock<Mutex<Vec<(&str, Disk)>>> = OnceLock::new();
        let mut made =
            MADE.get_or_init(Mutex::default).lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, disk)) = made.iter().find(|(name, _)| *name == self.name) {
            return disk.clone();
        }
        let disk = Disk::new(self.make());
        made.push((self.name, disk.clone()));
        disk
    }

    fn make(&self) -> Vec<u8> {
        let folder = tempfile::Builder::new().prefix("obento-lab-").tempdir_in(memory_folder()).unwrap();
        let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
        plant(&tree);
        let large = self.mke2fs.contains("-b 4096");
        File::create(&image).unwrap().set_len(if large { 24 << 20 } else { 8 << 20 }).unwrap();
        let mut mke2fs = timeless("mke2fs");
        mke2fs.args(["-q", "-F", "-U", UUID, "-N", "256", "-E"]);
        mke2fs.arg(format!("hash_seed={UUID},lazy_itable_init=0,root_owner=0:0"));
        run(mke2fs.args(self.mke2fs.split_whitespace()).arg("-d").arg(&tree).arg(&image)).unwrap();
        // e2fsck builds the indexes; mke2fs creates only linear directories.
        let indexed = timeless("e2fsck").args(["-fyD"]).arg(&image).output().unwrap();
        assert!(indexed.status.code() <= Some(1), "{}", String::from_utf8_lossy(&indexed.stdout));
        for len in [300, 3000] {
            fs::write(folder.path().join(format!("value-{len}")), vec![b'v'; len]).unwrap();
        }
        let commands = folder.path().join("commands");
        let text = format!("mknod pipe p\nmknod char c 1 3\n{}", self.debugfs);
        fs::write(&commands, text.replace("FILES", folder.path().to_str().unwrap())).unwrap();
        run(timeless("debugfs").arg("-w").arg("-f").arg(&commands).arg(&image)).unwrap();
        // debugfs does not count the blocks of attributes.
        timeless("e2fsck").args(["-fy"]).arg(&image).output().unwrap();
        if self.name == "MMP" {
            // At the end, since opening it for writing takes eleven seconds.
            run(timeless("tune2fs").args(["-O", "mmp"]).arg(&image)).unwrap();
        }
        call("e2fsck", ["-fn".as_ref(), image.as_os_str()]).unwrap();
        fs::read(&image).unwrap()
    }
}

/// A program of e2fsprogs that runs with a fixed time.
fn timeless(name: &str) -> std::process::Command {
    let mut command = program(name);
    command.env("E2FSPROGS_FAKE_TIME", "1000000000");
    command
}

fn plant(tree: &Path) {
    fs::create_dir_all(tree.join("dir/sub")).unwrap();
    fs::write(tree.join("dir/inner"), "inner").unwrap();
    fs::write(tree.join("file"), [7; 3000]).unwrap();
    for name in ["empty", "xattrs", "long"] {
        fs::write(tree.join(name), "").unwrap();
    }
    symlink("target", tree.join("link")).unwrap();
    symlink("long/".repeat(40), tree.join("slow")).unwrap();
    fs::write(tree.join("twice"), [2; 2000]).unwrap();
    fs::hard_link(tree.join("twice"), tree.join("again")).unwrap();
    let pieces = File::create(tree.join("pieces")).unwrap();
    for n in 0..6 {
        pieces.write_all_at(&[1; 4096], n * 65536).unwrap();
    }
    fill(&tree.join("full"), &tree.join("twice"), 90, 20);
    fill(&tree.join("wide"), &tree.join("twice"), 560, 200);
}

/// Creates `count` names of `len` bytes for one file.
fn fill(dir: &Path, file: &Path, count: u32, len: usize) {
    fs::create_dir(dir).unwrap();
    for n in 0..count {
        fs::hard_link(file, dir.join(format!("{n:0len$}"))).unwrap();
    }
}
