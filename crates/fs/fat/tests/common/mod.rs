//! Volumes that `mkfs.fat` creates and mtools fill, without any code of obento.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::{Result, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::FileSystem;
use obento_fat::FatDriver;
pub use obento_testkit::changes::{Found, read, resolve, walk};
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use obento_testkit::trials::format::Format;

/// A volume to create.
pub struct Shape {
    /// A name for messages and files.
    pub name: &'static str,
    /// Arguments of `mkfs.fat`.
    pub mkfs: &'static [&'static str],
    /// Length in KiB.
    pub kib: u64,
}

/// Each FAT type with small and large sectors and clusters, one FAT, and few entries in the root directory.
pub const SHAPES: &[Shape] = &[
    Shape { name: "fat12", mkfs: &["-F", "12", "-s", "1", "-n", "TWELVE"], kib: 2000 },
    Shape { name: "fat12-4k", mkfs: &["-F", "12", "-s", "8", "-r", "64"], kib: 8000 },
    Shape { name: "fat12-sector-2k", mkfs: &["-F", "12", "-S", "2048", "-s", "1", "-f", "1"], kib: 6000 },
    Shape { name: "fat16", mkfs: &["-F", "16", "-s", "1", "-n", "SIX TEEN"], kib: 16_000 },
    Shape { name: "fat16-32k", mkfs: &["-F", "16", "-s", "64"], kib: 300_000 },
    Shape { name: "fat16-sector-4k", mkfs: &["-F", "16", "-S", "4096", "-s", "1"], kib: 40_000 },
    Shape { name: "fat32", mkfs: &["-F", "32", "-s", "1", "-n", "THIRTY-TWO"], kib: 40_000 },
    Shape { name: "fat32-4k", mkfs: &["-F", "32", "-s", "8", "-R", "8", "-b", "6"], kib: 300_000 },
    Shape { name: "fat32-sector-4k", mkfs: &["-F", "32", "-S", "4096", "-s", "2"], kib: 600_000 },
];

/// Returns the shape of this name.
pub fn shape(name: &str) -> &'static Shape {
    SHAPES.iter().find(|shape| shape.name == name).expect("a shape")
}

/// Returns whether the programs are installed.
pub fn oracles() -> bool {
    require(&[
        Oracle::Program("mkfs.fat"),
        Oracle::Program("fsck.fat"),
        Oracle::Program("mcopy"),
        Oracle::Program("mdel"),
    ])
}

impl Shape {
    /// Creates an empty volume in `folder`.
    pub fn make(&self, folder: &Path) -> PathBuf {
        let image = folder.join(format!("{}.img", self.name));
        File::create(&image).and_then(|file| file.set_len(self.kib << 10)).expect("room");
        run(program("mkfs.fat").args(["-i", "1234abcd", "--invariant"]).args(self.mkfs).arg(&image))
            .expect("the options are compatible");
        image
    }

    /// Creates a volume with [`tree`], some files of which are fragmented.
    pub fn filled(&self, folder: &Path) -> PathBuf {
        let image = self.make(folder);
        let source = folder.join("source");
        if !source.exists() {
            tree(&source);
        }
        // Every other one of some files is removed, so that the next files are placed between the remaining ones.
        let scratch = folder.join("scratch");
        let _ = fs::create_dir(&scratch);
        for n in 0..40 {
            fs::write(scratch.join(format!("gap{n}")), vec![b'x'; 1500]).expect("room");
        }
        mcopy(&image, &scratch, "::/");
        for n in (0..40).step_by(2) {
            mtool(&image, "mdel", [format!("::/scratch/gap{n}")]);
        }
        let children = sorted(&source);
        for child in children {
            mcopy(&image, &child, "::/");
        }
        mtool(&image, "mdeltree", ["::/scratch"]);
        image
    }
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut children: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    children.sort();
    children
}

/// Runs a program of mtools on `image`.
pub fn mtool<A: AsRef<OsStr>>(image: &Path, name: &str, args: impl IntoIterator<Item = A>) -> String {
    let mut command = program(name);
    command.env("MTOOLS_SKIP_CHECK", "1").env("MTOOLS_NO_VFAT", "0").arg("-i").arg(image).args(args);
    let output = run(&mut command).expect("mtools does it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Copies `source` recursively into the volume.
pub fn mcopy(image: &Path, source: &Path, target: &str) {
    mtool(
        image,
        "mcopy",
        [OsStr::new("-s"), "-m".as_ref(), "-Q".as_ref(), source.as_os_str(), target.as_ref()],
    );
}

/// Panics if `fsck.fat -n` finds anything.
pub fn judge(image: &Path) {
    FORMAT.judge(image);
}

/// Creates names of each kind, sizes around multiples of a cluster, a directory with many entries, a deep directory.
pub fn tree(root: &Path) {
    let file = |path: &str, len: usize| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("room");
        let bytes: Vec<u8> = (0..len).map(|at| (at / 7 + len) as u8).collect();
        fs::write(&path, bytes).expect("room");
        // 2021-03-04 05:06:08 UTC.
        let moment = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_614_834_368 + len as u64 * 2);
        File::options().append(true).open(&path).and_then(|file| file.set_modified(moment)).expect("a time");
    };
    for (at, name) in [
        "UPPER.TXT",
        "lower.txt",
        "Mixed.Txt",
        "lower.TXT",
        "UPPER.txt",
        "NOEXT",
        "noext",
        "a name with spaces.text",
        "exactly13char",
        "exactly26characters.in all",
        "two.dots.here",
        ".hidden",
        "\u{fc}ml\u{e4}ut \u{df}.txt",
        "\u{3b1}\u{3b2}\u{3b3}",
        "plus+comma,semi;[brackets]=",
    ]
    .iter()
    .enumerate()
    {
        // Names that differ only in case cannot be in the same directory.
        file(&format!("names{at}/{name}"), 10 + at);
    }
    file(&format!("long/{}", "x".repeat(255)), 1);
    for len in [0, 1, 511, 512, 513, 2047, 2048, 4095, 4096, 4097, 32_768, 32_769, 100_000] {
        file(&format!("sizes/{len} bytes"), len);
    }
    for n in 0..300 {
        file(&format!("many/entry number {n}"), 0);
    }
    file("d/e/e/p/e/r/file", 600);
}

/// FAT, created and checked by dosfstools, filled by mtools. The clock of changes: 2023-11-14 22:13:20 UTC.
pub static FORMAT: Format = Format {
    driver: || Box::new(FatDriver::default()),
    make: |name, folder| oracles().then(|| shape(name).make(folder)),
    fill: |name, folder| oracles().then(|| shape(name).filled(folder)),
    judge: "fsck.fat",
    repair: "-a",
    now: Timestamp::new(1_700_000_000, 0),
};

/// Opens the volume on `device` for reading.
pub fn open(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystem>> {
    FORMAT.open(device)
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

/// Returns a whole image in memory.
pub fn in_memory(image: &Path) -> Arc<MemDevice> {
    Arc::new(MemDevice::read_only(fs::read(image).expect("an image")))
}
