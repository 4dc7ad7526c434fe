//! Volumes in files of the host.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use obento_base::{DeviceError, DeviceNumber, FileKind, Mode, Result};
use obento_block::BlockDevice;
use obento_driver::{Access, Driver, FileSystem, NewNode, OpenOptions};
use obento_env::SystemClock;
use obento_linux::LinuxDriver;
use obento_testkit::recipes::{EMPTY, Recipe};
use obento_testkit::trials::Judged;
use tempfile::TempDir;

/// A file of the host, sparse: the smallest volume of some types is large.
struct Disk(File);

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.0.metadata().unwrap().len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_exact_at(buf, offset).map_err(|_| DeviceError::Read { offset, len: 0, errno: 5 }.into())
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.0.write_all_at(buf, offset).map_err(|_| DeviceError::Write { offset, len: 0, errno: 5 }.into())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, _: Range<u64>) -> Result<()> {
        Ok(())
    }
}

/// An empty volume.
pub struct Image {
    folder: TempDir,
    recipe: &'static Recipe,
}

impl Image {
    /// Creates an empty volume of a type; `None` without its program or the kernel.
    pub fn new(name: &str) -> Option<Self> {
        let recipe = Recipe::of(EMPTY, name);
        let folder = recipe.is_possible().then(|| tempfile::tempdir().unwrap())?;
        recipe.make(folder.path());
        Some(Self { folder, recipe })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    pub fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    pub fn open(&self, access: Access) -> Arc<dyn FileSystem> {
        let file = File::options().read(true).write(true).open(self.path()).unwrap();
        open(self.recipe.name, Arc::new(Disk(file)), access)
    }

    /// Opens the volume for changes. The type's own check verifies it at the end.
    pub fn judged(self) -> Judged {
        let fs = self.open(Access::ReadWrite);
        Judged::new(fs, move || self.recipe.check(self.folder.path()))
    }
}

/// Returns the driver of a type.
pub fn driver(name: &str) -> LinuxDriver {
    LinuxDriver::all().find(|driver| driver.names().contains(&name)).unwrap()
}

pub fn open(name: &str, device: Arc<dyn BlockDevice>, access: Access) -> Arc<dyn FileSystem> {
    let options = OpenOptions { access, ..OpenOptions::new(Arc::new(SystemClock)) };
    driver(name).open(device, &options).unwrap()
}

pub fn node(kind: FileKind) -> NewNode<'static> {
    let rdev = DeviceNumber::default();
    NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev, target: b"" }
}
