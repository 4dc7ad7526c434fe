//! The volumes of the page: formatted by obento's drivers, opened in this process or behind a mount point.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use obento::Registry;
use obento::block::{BlockDevice, MemDevice};
use obento::driver::{Access, Driver, FileSystem, FormatOptions, Limits, OpenOptions};
use obento::env::{FixedRandom, SystemClock};
use obento::tmpfs::{Options, Tmpfs};
use obento_host::FileDevice;
use obento_testkit::hosts::{Folder, Library};
use obento_testkit::trials;
use tempfile::TempDir;

use crate::support::{obento, wait_until};

/// A volume to create.
pub struct Shape {
    /// The name of the column.
    pub name: &'static str,
    /// The type; `None` for a volume that exists only in memory.
    fs_type: Option<&'static str>,
    settings: &'static [(&'static str, &'static str)],
    mib: u64,
}

const fn shape(
    name: &'static str,
    fs_type: &'static str,
    settings: &'static [(&'static str, &'static str)],
    mib: u64,
) -> Shape {
    Shape { name, fs_type: Some(fs_type), settings, mib }
}

/// Every type that can be created, with a shape for each width that is a format of its own. The last size is
/// large, for files of formats without holes.
pub const SHAPES: &[Shape] = &[
    Shape { name: "tmpfs", fs_type: None, settings: &[], mib: 48 },
    shape("ext2", "ext2", &[("inodes", "4096")], 48),
    shape("ext3", "ext3", &[("inodes", "4096")], 48),
    shape("ext4", "ext4", &[("inodes", "4096")], 48),
    shape("FAT12", "vfat", &[("fat", "12"), ("sectors_per_cluster", "32")], 48),
    shape("FAT16", "vfat", &[("fat", "16")], 48),
    shape("FAT32", "vfat", &[("fat", "32"), ("sectors_per_cluster", "1")], 48),
    shape("exFAT", "exfat", &[], 48),
    shape("xv6", "xv6", &[], 48),
    shape("exFAT of 8 GiB", "exfat", &[], 8 << 10),
];

/// Types whose volumes are created but not changed.
const MADE_ONLY: &[&str] = &["jffs2"];

impl Shape {
    /// Whether the volume has the size that a conformance case requires.
    pub fn is_small(&self) -> bool {
        self.mib <= 64
    }

    /// Whether an image of the volume can be mounted.
    pub fn is_mounted(&self) -> bool {
        self.fs_type.is_some()
    }

    /// Returns the types of the drivers that create volumes and change them, and have no shape.
    pub fn missing() -> Vec<&'static str> {
        let is_here =
            |types: &&&[&str]| SHAPES.iter().any(|shape| shape.fs_type.is_some_and(|it| types.contains(&it)));
        let registry = Registry::default();
        let types =
            registry.drivers().iter().filter_map(|driver| driver.format().map(|format| format.types()));
        let types: Vec<&[&str]> = types.collect();
        let is_changed = |types: &&&[&str]| !MADE_ONLY.contains(&types[0]);
        types.iter().filter(is_changed).filter(|types| !is_here(types)).map(|types| types[0]).collect()
    }

    fn driver(&self) -> Option<Arc<dyn Driver>> {
        let fs_type = self.fs_type?;
        let registry = Registry::default();
        let makes = |driver: &&Arc<dyn Driver>| {
            driver.format().is_some_and(|format| format.types().contains(&fs_type))
        };
        Some(registry.drivers().iter().find(makes).expect("a driver of the type").clone())
    }

    fn format(&self, driver: &dyn Driver, device: &dyn BlockDevice) {
        let fs_type = self.fs_type.expect("it has a driver");
        let mut options = FormatOptions::new(fs_type, Arc::new(SystemClock), Arc::new(FixedRandom(1)));
        options.settings = self.settings.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        driver.format().unwrap().format(device, &options).unwrap();
    }

    /// Creates a volume in this process.
    pub fn volume(&self) -> Volume {
        let Some(driver) = self.driver() else {
            let options =
                Options { size: self.mib << 20, inodes: 4096, ..Options::new(Arc::new(SystemClock)) };
            return Volume::Memory(Arc::new(Tmpfs::new(options)));
        };
        let device: Arc<dyn BlockDevice> = if self.is_small() {
            Arc::new(MemDevice::new(vec![0; (self.mib << 20) as usize]))
        } else {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(self.mib << 20).unwrap();
            // The device keeps the file open, which has no name any more.
            Arc::new(FileDevice::open_writable(file.path()).unwrap())
        };
        self.format(&*driver, &*device);
        Volume::Device(driver, device)
    }
}

/// A volume in this process.
pub enum Volume {
    /// The volume of a driver, on a device.
    Device(Arc<dyn Driver>, Arc<dyn BlockDevice>),
    /// A volume that exists only in memory.
    Memory(Arc<dyn FileSystem>),
}

impl Volume {
    /// Opens the volume.
    pub fn open(&self, access: Access) -> obento::Result<Arc<dyn FileSystem>> {
        match self {
            Self::Device(driver, device) => driver
                .open(device.clone(), &OpenOptions { access, ..OpenOptions::new(Arc::new(SystemClock)) }),
            Self::Memory(fs) => Ok(fs.clone()),
        }
    }

    /// Returns the volume as a host.
    pub fn library(self: &Arc<Self>) -> Library {
        let volume = self.clone();
        match &**self {
            Self::Device(..) => Library::new(move |access| volume.open(access)),
            Self::Memory(fs) => Library::in_memory(fs.clone()),
        }
    }

    /// Closes the volume. Fails with the problems that the driver's check finds.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Device(driver, device) => trials::check(&**driver, device),
            Self::Memory(_) => Ok(()),
        }
    }
}

/// A volume behind a mount point.
pub struct Mount {
    folder: TempDir,
    /// The option of the transport for requests.
    transport: &'static str,
}

impl Mount {
    pub fn new(shape: &Shape, transport: &'static str) -> Rc<Self> {
        let folder = tempfile::Builder::new().prefix("obento-matrix-").tempdir().unwrap();
        let mount = Self { folder, transport };
        // The user of `Host::act_as` must be allowed to enter the folders above the volume.
        fs::set_permissions(mount.folder.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(mount.at()).unwrap();
        let image = mount.folder.path().join("disk.img");
        File::create(&image).and_then(|file| file.set_len(shape.mib << 20)).unwrap();
        let driver = shape.driver().expect("what is mounted has a driver");
        shape.format(&*driver, &FileDevice::open_writable(&image).unwrap());
        mount.mount("rw");
        Rc::new(mount)
    }

    fn at(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    fn mount(&self, options: &str) {
        let options = format!("{options},allow_other,{}", self.transport);
        obento(self.folder.path(), &["mount", "-o", &options, "disk.img", "mnt"]);
    }

    pub fn umount(&self) {
        wait_until("the unmount", || succeeds(self.folder.path(), &["umount", "mnt"]));
    }

    /// Panics if the check finds problems with the unmounted volume.
    pub fn check(&self) {
        obento(self.folder.path(), &["check", "disk.img"]);
    }

    /// Returns the folder as a host.
    pub fn host(self: &Rc<Self>, limits: Limits) -> Folder {
        let mount = self.clone();
        Folder::new(self.at(), limits, move |access| {
            mount.umount();
            mount.mount(if access == Access::ReadOnly { "ro" } else { "rw" });
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = succeeds(self.folder.path(), &["umount", "--lazy", "mnt"]);
    }
}

fn succeeds(folder: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(arguments).output().unwrap().status.success()
}
