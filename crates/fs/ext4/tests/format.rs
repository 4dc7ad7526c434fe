//! Volumes that obento creates, compared byte for byte with those of `mke2fs` with the same options.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use common::formats::{self, Made};
use obento_base::{DeviceError, DeviceNumber, FileKind, Ino, Mode, NameBuf, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{
    Access, Contents, Crash, Driver as _, FileSystem, FormatError, FormatOptions, Formatted, Journalling,
    LayoutLock, NewNode, OpenOptions, Span, TimeChange,
};
use obento_env::{FixedClock, FixedRandom};
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::oracle::{self, LoopMount, Oracle, require};
use rustix::fs::{SeekFrom, seek};

const PIECE: u64 = 4096;

fn make_ours(made: &Made, folder: &Path) -> Result<(PathBuf, Formatted)> {
    let image = folder.join("ours.img");
    File::create(&image)?.set_len(made.len)?;
    let device = FileDevice::open_writable(&image)?;
    let mut options = formats::options(made);
    options.contents = Contents::Zeros;
    let formatted = Ext4Driver.format().context("ext4 can be made")?.format(&device, &options)?;
    Ok((image, formatted))
}

fn make_theirs(made: &Made, folder: &Path) -> Result<PathBuf> {
    let image = folder.join("theirs.img");
    File::create(&image)?.set_len(made.len)?;
    let mut mke2fs = oracle::program("mke2fs");
    mke2fs.env("E2FSPROGS_FAKE_TIME", formats::NOW.to_string());
    oracle::run(mke2fs.args(formats::arguments(made)).arg(&image))?;
    Ok(image)
}

/// Returns the pieces of a file that are not in a hole.
fn pieces(file: &File) -> Vec<u64> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        let end = seek(file, SeekFrom::Hole(start)).unwrap();
        all.extend((start / PIECE..end.div_ceil(PIECE)).map(|piece| piece * PIECE));
        at = end;
    }
    all
}

fn read(file: &File, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; PIECE as usize];
    let mut done = 0;
    while let Ok(len) = file.read_at(&mut bytes[done..], at + done as u64) {
        if len == 0 {
            break;
        }
        done += len;
    }
    bytes
}

/// Erases deliberate differences: the number of written bytes, and therefore the checksum; the host name and the time
/// of the multiple mount protection.
fn mask(bytes: &mut [u8]) {
    for chunk in bytes.chunks_exact_mut(1024) {
        if chunk[0x38..0x3a] == [0x53, 0xef] {
            chunk[0x178..0x180].fill(0);
            chunk[0x3fc..].fill(0);
        }
        if chunk[..4] == *b"PMM\0" {
            chunk[8..0x70].fill(0);
            chunk[0x3fc..].fill(0);
        }
    }
}

fn compare(ours: &Path, theirs: &Path) -> Result<()> {
    let (ours, theirs) = (File::open(ours)?, File::open(theirs)?);
    let mut all = pieces(&ours);
    all.extend(pieces(&theirs));
    all.sort_unstable();
    all.dedup();
    let mut differences = Vec::new();
    for at in all {
        let (mut one, mut other) = (read(&ours, at), read(&theirs, at));
        mask(&mut one);
        mask(&mut other);
        if one != other {
            let byte = one.iter().zip(&other).position(|(a, b)| a != b).unwrap_or(0);
            differences.push(format!("{:#x}: {:02x} for {:02x}", at + byte as u64, one[byte], other[byte]));
        }
    }
    let shown = differences.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    ensure!(differences.is_empty(), "{} pieces differ: {shown}", differences.len());
    Ok(())
}

/// Returns whether all volumes are to be tested.
fn is_full() -> bool {
    std::env::var_os("OBENTO_MATRIX").is_some_and(|value| value == "full")
}

/// Runs `check` on each volume and lists all failures.
fn for_each(check: impl Fn(&Made, &Path) -> Result<()>) {
    let only = std::env::var("OBENTO_MATRIX_ONLY").ok();
    let chosen = formats::ALL.iter().filter(|made| only.as_deref().is_none_or(|name| name == made.name));
    let failures: Vec<String> = chosen
        .filter(|made| only.is_some() || is_full() || made.len <= 1 << 30)
        .filter_map(|made| {
            // Only a tmpfs supports files of more than 16 TiB.
            let parent = if made.len < 16 << 40 { std::env::temp_dir() } else { "/dev/shm".into() };
            let folder = tempfile::tempdir_in(parent).ok()?;
            let result = check(made, folder.path());
            result.err().map(|error| format!("{} ({}): {error:#}", made.name, made.args))
        })
        .collect();
    assert!(failures.is_empty(), "{} volumes:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_volume_has_the_bytes_that_mke2fs_writes() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    for_each(|made, folder| {
        let (ours, _) = make_ours(made, folder)?;
        let checked = check(&ours);
        if formats::OTHERS.contains(&made.name) {
            return checked;
        }
        let theirs = make_theirs(made, folder)?;
        compare(&ours, &theirs).and(checked)
    });
}

#[test]
fn a_journal_device_has_the_bytes_that_mke2fs_writes() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for made in formats::JOURNALS {
        let (ours, _) = make_ours(made, folder.path()).unwrap();
        let theirs = make_theirs(made, folder.path()).unwrap();
        let result = compare(&ours, &theirs);
        assert!(result.is_ok(), "{}: {result:?}", made.name);
    }
}

fn check(image: &Path) -> Result<()> {
    oracle::call("e2fsck", ["-fn".as_ref(), image.as_os_str()]).map(drop)
}

/// Writes `len` bytes from the start of a file.
fn write_file(fs: &dyn FileSystem, file: Ino, lock: &LayoutLock, len: u64) -> Result<()> {
    let writable = fs.writable().context("it is writable")?;
    let layout = lock.shared();
    let mut at = 0;
    while at < len {
        let ticket = writable.begin_write(&layout, file, at..len)?;
        let extent = ticket.extent();
        let bytes = vec![7; extent.len as usize];
        let done = match extent.span {
            Span::Mapped(offset) => {
                fs.device().context("it has a device")?.write_at(offset, &bytes)?;
                writable.end_write(ticket, TimeChange::Now)?;
                extent.len
            }
            _ => writable.write(&layout, file, at, &bytes)? as u64,
        };
        ensure!(done > 0, "nothing was written at {at}");
        at += done;
    }
    Ok(())
}

/// Creates directories, files with blocks and links, as a user of the volume would.
fn fill(image: &Path) -> Result<()> {
    let clock = Arc::new(FixedClock(Timestamp::new(formats::NOW, 0)));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    let fs = Ext4Driver.open(Arc::new(FileDevice::open_writable(image)?), &options)?;
    let writable = fs.writable().context("it is writable")?;
    let node = |kind, target: &'static [u8]| NewNode {
        kind,
        mode: Mode::new(0o755),
        uid: 1000,
        gid: 1000,
        rdev: DeviceNumber::default(),
        target,
    };
    let name = |text: String| NameBuf::new(text.into_bytes()).expect("a name");
    let dir = writable.create(fs.root(), &name("folder".into()), &node(FileKind::Directory, b""))?.ino;
    let lock = LayoutLock::new();
    for at in 0..3_u64 {
        let file = writable.create(dir, &name(format!("file{at}")), &node(FileKind::Regular, b""))?.ino;
        write_file(&*fs, file, &lock, (at + 1) * 65_536)?;
    }
    writable.create(dir, &name("link".into()), &node(FileKind::Symlink, b"file0"))?;
    writable.close()?;
    Ok(())
}

#[test]
fn our_driver_changes_the_new_volume() {
    if !require(&[Oracle::Program("e2fsck")]) {
        return;
    }
    // Too small for any file, or refused by this driver for writing: `mmp`, quota files, and too many groups.
    let refused =
        |made: &Made| made.args.contains("mmp") || made.args.contains("quota") || made.len > 16 << 40;
    let left_out = |made: &Made| made.len < 4 << 20 || refused(made) || made.name == "inodes-few";
    for_each(|made, folder| {
        if left_out(made) {
            return Ok(());
        }
        let (image, _) = make_ours(made, folder)?;
        fill(&image)?;
        check(&image)
    });
}

#[test]
fn the_kernel_mounts_a_new_volume_and_writes_to_it() {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    for_each(|made, folder| {
        let (ours, _) = make_ours(made, folder)?;
        let mount = match LoopMount::new(&ours, "") {
            Ok(mount) => mount,
            // A feature or block size that this kernel lacks is not an error.
            Err(error) => {
                let theirs = make_theirs(made, folder)?;
                ensure!(
                    LoopMount::new(&theirs, "").is_err(),
                    "only the volume of mke2fs is mounted: {error:#}"
                );
                return Ok(());
            }
        };
        std::fs::create_dir(mount.path().join("folder"))?;
        std::fs::write(mount.path().join("folder/file"), vec![7; 50_000])?;
        mount.unmount()?;
        check(&ours)
    });
}

/// The device of a volume fails at its Nth write or flush, for each N.
#[test]
fn after_an_error_of_the_device_nothing_is_recognised() {
    let made = Made { name: "faults", len: 8 << 20, args: "-t ext4 -b 1024 -g 1024" };
    let mut options = formats::options(&made);
    let mut done = false;
    for contents in [Contents::Unknown, Contents::Preserved] {
        options.contents = contents;
        for nth in 1..1000 {
            let device = Arc::new(Failing {
                inner: MemDevice::new(vec![0x5a; made.len as usize]),
                left: AtomicU64::new(nth),
            });
            match obento_driver::Format::format(&Ext4Driver, &*device, &options) {
                Ok(_) => {
                    done = true;
                    break;
                }
                Err(error) => {
                    assert!(matches!(error, FormatError::Device(_)), "{error}");
                    device.left.store(u64::MAX, Ordering::Relaxed);
                    assert_eq!(Ext4Driver.probe(&*device), Ok(None), "write {nth}");
                }
            }
        }
        assert!(std::mem::take(&mut done));
    }
}

/// Fails once, at the write or flush at which `left` becomes 0.
struct Failing {
    inner: MemDevice,
    left: AtomicU64,
}

impl Failing {
    fn step(&self, error: DeviceError) -> obento_base::Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 { Err(error.into()) } else { Ok(()) }
    }
}

impl BlockDevice for Failing {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> obento_base::Result<()> {
        self.step(DeviceError::Write { offset, len: buf.len() as u64, errno: 5 })?;
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> obento_base::Result<()> {
        self.step(DeviceError::Flush { errno: 5 })
    }
}

#[test]
fn only_a_journal_with_barriers_orders_changes() {
    let open = |name: &str, access: Access, barrier: bool| {
        let device = Arc::new(MemDevice::new(vec![0; 16 << 20]));
        let clock = Arc::new(FixedClock(Timestamp::new(1, 0)));
        let made = FormatOptions::new(name, clock.clone(), Arc::new(FixedRandom(1)));
        Ext4Driver.format().unwrap().format(&*device, &made).unwrap();
        let journalling = Journalling { barrier, ..Journalling::default() };
        let options = OpenOptions { access, journalling, ..OpenOptions::new(clock) };
        Ext4Driver.open(device, &options).unwrap().limits().crash
    };
    for (name, ordered) in [("ext4", Crash::Whole), ("ext3", Crash::Whole), ("ext2", Crash::Unordered)] {
        assert_eq!(open(name, Access::ReadWrite, true), ordered, "{name}");
        assert_eq!(open(name, Access::ReadOnly, true), ordered, "{name}");
        assert_eq!(open(name, Access::ReadWrite, false), Crash::Unordered, "{name}");
    }
}
