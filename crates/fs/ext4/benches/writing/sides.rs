//! The two sides of a comparison: obento on an image file, and the kernel on a loop mount of an equal image.

use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use obento_base::{DeviceNumber, FileKind, Mode, Name};
use obento_block::{Backing, BlockDevice, ReadRequest};
use obento_driver::{Access, DataMode, Driver as _, Journalling, NewNode, OpenOptions, RenameFlags};
use obento_env::SystemClock;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::oracle::LoopMount;
use obento_vfs::{Caller, Node, Vfs};
use rustix::fs::{AtFlags, OFlags};

/// A writable file system of either side.
pub trait Side: Sync {
    /// Returns the name for output.
    fn name(&self) -> String;
    /// Returns the number of flushes of the image.
    fn flushes(&self) -> u64;
    /// Returns directory `name` of the root, which is created if necessary.
    fn folder(&self, name: &str) -> Result<Box<dyn Folder + '_>>;
    /// Returns file `name` of the root, which is created if necessary.
    fn file(&self, name: &str) -> Result<Box<dyn OpenFile + '_>>;
    /// Writes everything to the disk.
    fn sync(&self) -> Result<()>;
    /// Closes the volume.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A directory.
pub trait Folder: Sync {
    /// Creates an empty file.
    fn create(&self, name: &str) -> Result<()>;
    /// Looks up `name` and returns its size.
    fn stat(&self, name: &str) -> Result<u64>;
    /// Removes a file.
    fn unlink(&self, name: &str) -> Result<()>;
    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
}

/// A file, open for writing.
pub trait OpenFile: Sync {
    /// Writes at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Sets the size.
    fn truncate(&self, size: u64) -> Result<()>;
    /// fsync.
    fn sync(&self) -> Result<()>;
}

/// Counts the flushes of the device below.
struct Counted<D> {
    device: D,
    flushes: Arc<AtomicU64>,
}

impl<D: BlockDevice> BlockDevice for Counted<D> {
    fn len(&self) -> u64 {
        self.device.len()
    }
    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }
    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
        self.device.read_at(offset, buf)
    }
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> obento_base::Result<()> {
        self.device.read_many(requests)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> obento_base::Result<()> {
        self.device.write_at(offset, buf)
    }
    fn flush(&self) -> obento_base::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.device.flush()
    }
    fn discard(&self, range: Range<u64>) -> obento_base::Result<()> {
        self.device.discard(range)
    }
    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        self.device.backing(range)
    }
}

/// obento, in this process.
pub struct Ours {
    vfs: Vfs,
    mode: DataMode,
    flushes: Arc<AtomicU64>,
}

impl Ours {
    /// Opens `image` for changes.
    pub fn open(image: &Path, mode: DataMode) -> Result<Self> {
        let flushes = Arc::new(AtomicU64::new(0));
        let device = Counted { device: FileDevice::open_writable(image)?, flushes: Arc::clone(&flushes) };
        let options = OpenOptions {
            access: Access::ReadWrite,
            journalling: Journalling { mode, ..Journalling::default() },
            // The kernel may use more of this machine's memory.
            cache: 256 << 20,
            ..OpenOptions::new(Arc::new(SystemClock))
        };
        let vfs = Vfs::new(Ext4Driver.open(Arc::new(device), &options)?);
        Ok(Self { vfs, mode, flushes })
    }

    fn node(&self, name: &str, kind: FileKind) -> Result<Node> {
        let root = self.vfs.root();
        match root.lookup(name_of(name)?) {
            Err(obento_base::Error::NotFound) => {
                Ok(self.vfs.create(&Caller::Owner, &root, name_of(name)?, &new(kind))?)
            }
            found => Ok(found?),
        }
    }
}

fn name_of(name: &str) -> Result<&Name> {
    Ok(Name::new(name.as_bytes())?)
}

fn new(kind: FileKind) -> NewNode<'static> {
    NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev: DeviceNumber::default(), target: b"" }
}

impl Side for Ours {
    fn name(&self) -> String {
        format!("obento {}", mode_name(self.mode))
    }
    fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }
    fn folder(&self, name: &str) -> Result<Box<dyn Folder + '_>> {
        Ok(Box::new(self.node(name, FileKind::Directory)?))
    }
    fn file(&self, name: &str) -> Result<Box<dyn OpenFile + '_>> {
        Ok(Box::new(self.node(name, FileKind::Regular)?))
    }
    fn sync(&self) -> Result<()> {
        Ok(self.vfs.sync()?)
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.vfs.close()?)
    }
}

impl Folder for Node {
    fn create(&self, name: &str) -> Result<()> {
        self.vfs().create(&Caller::Owner, self, name_of(name)?, &new(FileKind::Regular))?;
        Ok(())
    }
    fn stat(&self, name: &str) -> Result<u64> {
        Ok(self.lookup(name_of(name)?)?.attr()?.size)
    }
    fn unlink(&self, name: &str) -> Result<()> {
        Ok(self.vfs().unlink(&Caller::Owner, self, name_of(name)?)?)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = ((self, name_of(from)?), (self, name_of(to)?));
        Ok(self.vfs().rename(&Caller::Owner, from, to, RenameFlags::empty())?)
    }
}

impl OpenFile for Node {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        anyhow::ensure!(Node::write_at(self, offset, bytes)? == bytes.len(), "a short write");
        Ok(())
    }
    fn truncate(&self, size: u64) -> Result<()> {
        Ok(Node::truncate(self, size)?)
    }
    fn sync(&self) -> Result<()> {
        Ok(Node::sync(self)?)
    }
}

/// The kernel's ext4 through system calls.
pub struct Kernel {
    mount: LoopMount,
    mode: DataMode,
    /// `/sys/block/loopN/stat`.
    stat: PathBuf,
}

impl Kernel {
    /// Mounts `image`.
    pub fn open(image: &Path, mode: DataMode) -> Result<Self> {
        let mount = LoopMount::new(image, &format!("data={}", mode_name(mode)))?;
        let mounts = fs::read_to_string("/proc/mounts")?;
        let at = mount.path().to_str().context("the mount has a name")?;
        let source = mounts.lines().find(|line| line.split(' ').nth(1) == Some(at));
        let device =
            source.and_then(|line| line.split(' ').next()).and_then(|device| device.strip_prefix("/dev/"));
        let stat = Path::new("/sys/block").join(device.context("the mount is listed")?).join("stat");
        Ok(Self { mount, mode, stat })
    }
}

impl Side for Kernel {
    fn name(&self) -> String {
        format!("kernel {}", mode_name(self.mode))
    }
    fn flushes(&self) -> u64 {
        // Documentation/block/stat.rst: the 16th number.
        let stat = fs::read_to_string(&self.stat).unwrap_or_default();
        stat.split_whitespace().nth(15).and_then(|count| count.parse().ok()).unwrap_or(0)
    }
    fn folder(&self, name: &str) -> Result<Box<dyn Folder + '_>> {
        let path = self.mount.path().join(name);
        fs::create_dir_all(&path)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        Ok(Box::new(KernelFolder(rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?)))
    }
    fn file(&self, name: &str) -> Result<Box<dyn OpenFile + '_>> {
        let path = self.mount.path().join(name);
        Ok(Box::new(KernelFile(File::options().create(true).truncate(false).write(true).open(path)?)))
    }
    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(self.mount.path())?)?)
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.mount.unmount()
    }
}

struct KernelFolder(OwnedFd);

impl Folder for KernelFolder {
    fn create(&self, name: &str) -> Result<()> {
        let mode = rustix::fs::Mode::from_raw_mode(0o755);
        Ok(rustix::fs::mknodat(&self.0, name, rustix::fs::FileType::RegularFile, mode, 0)?)
    }
    fn stat(&self, name: &str) -> Result<u64> {
        Ok(rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?.st_size.cast_unsigned())
    }
    fn unlink(&self, name: &str) -> Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }
}

struct KernelFile(File);

impl OpenFile for KernelFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write_all_at(bytes, offset)?)
    }
    fn truncate(&self, size: u64) -> Result<()> {
        Ok(self.0.set_len(size)?)
    }
    fn sync(&self) -> Result<()> {
        Ok(self.0.sync_all()?)
    }
}

/// Returns the name of the mode for mount(8).
fn mode_name(mode: DataMode) -> &'static str {
    match mode {
        DataMode::Ordered => "ordered",
        DataMode::Journal => "journal",
        DataMode::Writeback => "writeback",
    }
}
