//! Volumes that `mkfs.exfat` creates and `fsck.exfat` checks.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::{FileKind, Result, Timestamp};
use obento_block::BlockDevice;
use obento_driver::FileSystem;
use obento_exfat::ExFatDriver;
use obento_testkit::changes::{close, create, resolve};
use obento_testkit::oracle::{Oracle, call, program, run};
use obento_testkit::require;
use obento_testkit::trials::format::Format;
use obento_vfs::Vfs;

/// A volume to create.
pub struct Shape {
    /// A name for messages and files.
    pub name: &'static str,
    /// Arguments of `mkfs.exfat`.
    pub mkfs: &'static [&'static str],
    /// Length in KiB.
    pub kib: u64,
}

/// Clusters of one sector, of a page, and of many pages.
pub const SHAPES: &[Shape] = &[
    Shape { name: "tiny", mkfs: &["-c", "512", "-b", "4096"], kib: 700 },
    Shape { name: "sector", mkfs: &["-c", "512", "-b", "4096", "-L", "SECTOR"], kib: 3000 },
    Shape { name: "page", mkfs: &["-c", "4K", "-b", "16K", "-L", "A page \u{e4}"], kib: 6000 },
    Shape { name: "pages", mkfs: &["-c", "32K", "-b", "64K"], kib: 20_000 },
    Shape { name: "packed", mkfs: &["-c", "1K", "-b", "64K", "--pack-bitmap"], kib: 6000 },
];

/// Returns the shape of this name.
pub fn shape(name: &str) -> &'static Shape {
    SHAPES.iter().find(|shape| shape.name == name).expect("a shape")
}

/// Returns whether the programs are installed.
pub fn oracles() -> bool {
    require(&[Oracle::Program("mkfs.exfat"), Oracle::Program("fsck.exfat")])
}

impl Shape {
    /// Creates an empty volume in `folder`.
    pub fn make(&self, folder: &Path) -> PathBuf {
        let image = folder.join(format!("{}.img", self.name));
        File::create(&image).and_then(|file| file.set_len(self.kib << 10)).expect("room");
        run(program("mkfs.exfat").args(self.mkfs).arg(&image)).expect("the options are compatible");
        image
    }

    /// Creates a volume with a tree. It has names of each kind, sizes around multiples of a cluster, a directory with
    /// many entries and a deep directory. It also has fragmented files, and files with a shorter valid length.
    pub fn filled(&self, folder: &Path) -> PathBuf {
        let image = self.make(folder);
        let fs = open_to_write(&image);
        let vfs = Vfs::new(fs.clone());
        for dir in ["names", "sizes", "many", "d", "d/e", "d/e/e", "d/e/e/p", "gone"] {
            put(&*fs, &vfs, dir, FileKind::Directory, &[]);
        }
        for n in 0..40 {
            put(&*fs, &vfs, &format!("gone/{n}"), FileKind::Regular, &[7; 1500]);
        }
        for n in (0..40).step_by(2) {
            let dir = resolve(&*fs, "/gone").expect("it was made");
            let ino = resolve(&*fs, &format!("/gone/{n}")).expect("it was made");
            let writable = fs.writable().expect("open for changes");
            writable.unlink(dir, obento_testkit::changes::name(&n.to_string())).expect("a file");
            fs.forget(ino);
        }
        for name in
            ["UPPER.TXT", "Mixed Case.html", "\u{fc}ml\u{e4}ut", "\u{1f600}", ".hidden", "fifteen units x"]
        {
            put(&*fs, &vfs, &format!("names/{name}"), FileKind::Regular, name.as_bytes());
        }
        put(&*fs, &vfs, &format!("names/{}", "x".repeat(255)), FileKind::Regular, b"long");
        for len in [0, 1, 511, 512, 513, 4095, 4096, 4097, 32_768, 32_769, 100_000] {
            let bytes: Vec<u8> = (0..len).map(|at| (at / 7 + len) as u8).collect();
            put(&*fs, &vfs, &format!("sizes/{len}"), FileKind::Regular, &bytes);
        }
        for n in 0..300 {
            put(&*fs, &vfs, &format!("many/entry number {n}"), FileKind::Regular, &[]);
        }
        put(&*fs, &vfs, "d/e/e/p/file", FileKind::Regular, &[1; 600]);
        put(&*fs, &vfs, "sizes/unwritten", FileKind::Regular, &[2; 700]);
        let ino = resolve(&*fs, "/sizes/unwritten").expect("it was made");
        vfs.node(ino).expect("in use").truncate(90_000).expect("room");
        close(&*fs);
        judge(&image);
        image
    }
}

/// Creates a file or directory in a volume.
pub fn put(fs: &dyn FileSystem, vfs: &Vfs, path: &str, kind: FileKind, bytes: &[u8]) {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let dir = resolve(fs, dir).expect("it was made before");
    let ino = create(fs, dir, name, kind).expect("the name is free");
    if !bytes.is_empty() {
        assert_eq!(vfs.node(ino).expect("in use").write_at(0, bytes), Ok(bytes.len()));
    }
}

/// exFAT, created and checked by exfatprogs. The clock of changes: 2023-11-14 22:13:20.25 UTC.
pub static FORMAT: Format = Format {
    driver: || Box::new(ExFatDriver::default()),
    make: |name, folder| oracles().then(|| shape(name).make(folder)),
    fill: |name, folder| oracles().then(|| shape(name).filled(folder)),
    judge: "fsck.exfat",
    repair: "-y",
    now: Timestamp::new(1_700_000_000, 250_000_000),
};

/// Panics if `fsck.exfat -n` finds anything.
pub fn judge(image: &Path) {
    FORMAT.judge(image);
}

/// Returns whether `fsck.exfat -n` finds nothing.
pub fn is_sound(image: &Path) -> bool {
    call("fsck.exfat", ["-n".as_ref(), image.as_os_str()]).is_ok()
}

/// Opens the volume on `device` for reading.
pub fn open(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystem>> {
    FORMAT.open(device)
}

/// Opens bytes for reading.
pub fn open_bytes(bytes: &[u8]) -> Result<Arc<dyn FileSystem>> {
    FORMAT.open_bytes(bytes)
}

/// Opens an image for reading.
pub fn open_image(image: &Path) -> Arc<dyn FileSystem> {
    let device = obento_host::FileDevice::open(image).expect("the image opens");
    open(Arc::new(device)).expect("the volume opens")
}

/// Opens an image for changes.
pub fn open_to_write(image: &Path) -> Arc<dyn FileSystem> {
    let device = obento_host::FileDevice::open_writable(image).expect("the image opens");
    FORMAT.open_to_write(Arc::new(device))
}

/// Returns the bytes of a file of the host.
pub fn bytes_of(path: &Path) -> Vec<u8> {
    fs::read(path).expect("a file")
}
