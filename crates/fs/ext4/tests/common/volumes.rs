//! Small volumes for changes, with several combinations of features and the same bytes in every run, and their
//! checkers.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{Access, DataMode, Driver, FileSystem, Journalling, OpenOptions};
use obento_env::Clock;
use obento_ext4::Ext4Driver;
use obento_testkit::oracle::{call, program};
use obento_testkit::plan::Limits;
use obento_testkit::scratch::memory_folder;

/// The arguments for creating a volume.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub name: &'static str,
    pub mke2fs: &'static [&'static str],
    /// Size in MiB.
    pub len: u64,
    /// Whether the format supports allocating and freeing ranges.
    pub space: bool,
    /// The unit in which ranges are moved.
    pub grain: u64,
}

const fn shape(name: &'static str, mke2fs: &'static [&'static str], len: u64) -> Shape {
    Shape { name, mke2fs, len, space: true, grain: 4096 }
}

/// The smallest volumes of each kind with a journal, for states after a crash.
pub const SMALL: &[Shape] = &[
    shape("ext4-1k", &["-t", "ext4", "-b", "1024", "-O", "^resize_inode", "-J", "size=1"], 3),
    Shape {
        space: false,
        ..shape("ext3-1k", &["-t", "ext3", "-b", "1024", "-O", "^resize_inode", "-J", "size=1"], 3)
    },
    shape("inline-data", &["-t", "ext4", "-b", "1024", "-O", "inline_data,^resize_inode", "-J", "size=1"], 3),
    shape(
        "orphan-file-2k",
        &["-t", "ext4", "-b", "2048", "-O", "orphan_file,^64bit,^resize_inode", "-J", "size=2", "-g", "1024"],
        6,
    ),
    shape("ext4-4k", &["-t", "ext4", "-b", "4096", "-O", "^resize_inode", "-J", "size=4"], 12),
    QUOTAS,
];

/// With quota files of users, groups and projects.
pub const QUOTAS: Shape =
    shape("quotas-1k", &["-t", "ext4", "-b", "1024", "-O", "quota,project,^resize_inode", "-J", "size=1"], 3);

/// With quota files, and with attributes whose values are in inodes.
pub const VALUES_WITH_QUOTAS: Shape = shape(
    "values-with-quotas-1k",
    &["-t", "ext4", "-b", "1024", "-O", "quota,project,ea_inode,^resize_inode", "-J", "size=1"],
    3,
);

/// The combinations that the kernel and obento change in turn.
pub const COMBINATIONS: &[Shape] = &[
    shape("ext4", &["-t", "ext4"], 64),
    shape("ext4-1k", &["-t", "ext4", "-b", "1024"], 32),
    shape("ext4-2k-small-groups", &["-t", "ext4", "-b", "2048", "-g", "2048"], 32),
    Shape { space: false, ..shape("ext3", &["-t", "ext3"], 64) },
    Shape { space: false, ..shape("ext3-1k-128", &["-t", "ext3", "-b", "1024", "-I", "128"], 32) },
    Shape { space: false, ..shape("ext2", &["-t", "ext2", "-b", "4096"], 32) },
    shape("no-csum", &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg,^flex_bg"], 64),
    shape("uninit-bg-32bit", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit", "-b", "1024"], 32),
    shape("csum-seed", &["-t", "ext4", "-O", "metadata_csum_seed"], 64),
    shape("inline-data", &["-t", "ext4", "-O", "inline_data"], 64),
    shape("inline-data-1k-512", &["-t", "ext4", "-O", "inline_data", "-b", "1024", "-I", "512"], 32),
    Shape {
        grain: 16_384,
        ..shape("bigalloc", &["-t", "ext4", "-O", "bigalloc,^resize_inode", "-b", "4096", "-C", "16384"], 128)
    },
    shape("orphan-file", &["-t", "ext4", "-O", "orphan_file"], 64),
    shape("ea-inode", &["-t", "ext4", "-O", "ea_inode"], 64),
    shape("large-dir-1k", &["-t", "ext4", "-O", "large_dir", "-b", "1024"], 32),
    shape("meta-bg", &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"], 32),
    shape("no-journal", &["-t", "ext4", "-O", "^has_journal"], 32),
    shape("no-dir-index", &["-t", "ext4", "-O", "^dir_index"], 64),
];

impl Shape {
    /// Creates an empty volume; UUIDs and times are always the same.
    pub fn make(&self, folder: &Path) -> PathBuf {
        const UUID: &str = "6f62656e-746f-4000-8000-000000000001";
        let image = folder.join(format!("{}.img", self.name));
        File::create(&image).unwrap().set_len(self.len << 20).unwrap();
        let mut mke2fs = program("mke2fs");
        mke2fs.env("E2FSPROGS_FAKE_TIME", "1000000000").args(["-q", "-F", "-U", UUID]);
        mke2fs.args(["-E", &format!("hash_seed={UUID},lazy_itable_init=0")]).args(self.mke2fs);
        obento_testkit::oracle::run(mke2fs.arg(&image)).unwrap();
        image
    }

    /// Returns the bytes of an empty volume.
    pub fn bytes(&self) -> Arc<[u8]> {
        let folder = tempfile::tempdir().unwrap();
        fs::read(self.make(folder.path())).unwrap().into()
    }

    /// Returns the limits for random plans.
    pub fn limits(&self) -> Limits {
        Limits { space: self.space, grain: self.grain, ..Limits::SMALL }
    }
}

/// Opens a volume for changes.
pub fn open(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    mode: DataMode,
) -> Result<Arc<dyn FileSystem>> {
    open_with(device, clock, Journalling { mode, ..Journalling::default() })
}

/// [`open`] with this data mode.
pub fn open_with(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    journalling: Journalling,
) -> Result<Arc<dyn FileSystem>> {
    let options =
        OpenOptions { access: Access::ReadWrite, cache: 2 << 20, journalling, ..OpenOptions::new(clock) };
    Ext4Driver.open(device, &options)
}

/// Fails with the output of `e2fsck -fn` for an unmounted volume, if it finds anything.
pub fn e2fsck(device: &dyn BlockDevice) -> Result<(), String> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).map_err(|e| e.to_string())?;
    let image = tempfile::Builder::new()
        .prefix("obento-fsck-")
        .tempfile_in(memory_folder())
        .map_err(|e| e.to_string())?;
    fs::write(image.path(), bytes).map_err(|e| e.to_string())?;
    e2fsck_file(image.path())
}

/// [`e2fsck`] for a file.
pub fn e2fsck_file(image: &Path) -> Result<(), String> {
    let path = image.as_os_str();
    call("e2fsck", ["-fn".as_ref(), path]).map(drop).map_err(|e| format!("{e:#}"))
}
