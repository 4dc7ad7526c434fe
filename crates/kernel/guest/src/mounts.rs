//! Access times, read-only devices, labels and the discard of free space, on two volumes: one of the type under test,
//! and one of the kernel's own ext4 in the same boot. The results must be equal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::mount::{MountFlags, mount_remount};

use crate::calls::{Log, compare};
use crate::machine::{Machine, disk, drop_caches, mount_as, umount};

/// The requests of ioctl(2).
const BLKROSET: u64 = 0x125d;
const FITRIM: u64 = 0xc018_5879;
const GET_LABEL: u64 = 0x8100_9431;
const SET_LABEL: u64 = 0x4100_9432;

/// A volume under test.
#[derive(Clone, Copy)]
struct Volume<'a> {
    kind: &'a str,
    number: u8,
}

impl Volume<'_> {
    fn mount(self, flags: MountFlags) -> Result<()> {
        mount_as(self.kind, self.number, "/m", flags, "")
    }
}

/// Runs the same calls on disk 0 and on disk 1. Fails if the results differ.
pub fn equal_the_kernels_own(machine: &Machine) -> Result<()> {
    let logs = [machine.kind(), "ext4"].into_iter().zip(0..).map(|(kind, number)| {
        let mut log = Log { root: "/m".into(), lines: Vec::new() };
        let volume = Volume { kind, number };
        trim(volume, &mut log)?;
        label(volume, &mut log)?;
        times(volume, &mut log)?;
        read_only(volume, &mut log)?;
        Ok(log.lines)
    });
    let logs = logs.collect::<Result<Vec<_>>>()?;
    compare(&logs[0], &logs[1])
}

/// `FITRIM` for ranges and for the whole volume, which is new. Files keep their data.
fn trim(volume: Volume<'_>, log: &mut Log) -> Result<()> {
    const MIB: u64 = 1 << 20;
    volume.mount(MountFlags::empty())?;
    let root = File::open("/m")?;
    // The kernel's own ext4 discards a free run to its end, even behind the range, so each range ends with a group of
    // 8 MiB. It discards a group once, so the ranges do not overlap.
    let group = 1024;
    let ranges = [
        (12 * MIB, 4 * MIB + group, 0),
        (20 * MIB, 4 * MIB + group, MIB),
        (28 * MIB, 12 * MIB + group, 5 * MIB),
        (44 * MIB, 4 * MIB + group, 7 * MIB),
        (95 * MIB, u64::MAX, 0),
        (0, 100, 0),
        (96 * MIB, MIB, 0),
        (u64::MAX, u64::MAX, 0),
    ];
    for (start, len, min_len) in ranges {
        log.add(&format!("FITRIM {start} {len} {min_len}"), discard(volume, &root, start, len, min_len)?);
    }
    drop(root);
    umount("/m")?;
    volume.mount(MountFlags::empty())?;
    let root = File::open("/m")?;
    log.add("FITRIM", discard(volume, &root, 0, u64::MAX, 0)?);
    let kept: Vec<u8> = (0..2_000_000_u32).map(|at| (at / 7) as u8).collect();
    fs::write("/m/kept", &kept)?;
    fs::write("/m/gone", &kept)?;
    rustix::fs::sync();
    fs::remove_file("/m/gone")?;
    // Linux discards what a committed transaction has freed.
    rustix::fs::sync();
    let len = discarded(&root, 0, u64::MAX, 0)?;
    ensure!(len >= kept.len() as u64, "{len} bytes were discarded after {} became free", kept.len());
    drop_caches()?;
    ensure!(fs::read("/m/kept")? == kept, "data was discarded");
    drop(root);
    umount("/m")
}

/// The result of `FITRIM`, with the number of bytes that reached the device.
fn discard(volume: Volume<'_>, root: &File, start: u64, len: u64, min_len: u64) -> Result<String> {
    let before = sectors_discarded(volume.number)?;
    let result = discarded(root, start, len, min_len);
    let sent = (sectors_discarded(volume.number)? - before) * 512;
    Ok(match result {
        Ok(len) => {
            ensure!(len == sent, "{len} bytes were reported as discarded, and {sent} were");
            format!("{len} bytes")
        }
        Err(error) => format!("error {}", error.raw_os_error().unwrap_or(0)),
    })
}

fn discarded(root: &File, start: u64, len: u64, min_len: u64) -> io::Result<u64> {
    let mut range = [start, len, min_len];
    ioctl(root, FITRIM, range.as_mut_ptr().cast()).map(|()| range[1])
}

fn sectors_discarded(number: u8) -> Result<u64> {
    let name = disk(number);
    let text = fs::read_to_string(format!("/sys/block/{}/stat", name.trim_start_matches("/dev/")))?;
    let sectors = text.split_whitespace().nth(13).context("no count of discarded sectors")?;
    Ok(sectors.parse()?)
}

fn ioctl(file: &File, request: u64, argument: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: the caller passes the argument of the request.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `FS_IOC_SETFSLABEL`: the label is that of the next mount, too.
fn label(volume: Volume<'_>, log: &mut Log) -> Result<()> {
    volume.mount(MountFlags::empty())?;
    for label in ["first", "sixteen bytes!!!", "seventeen bytes!!", "", "last"] {
        let root = File::open("/m")?;
        let mut bytes = [0_u8; 256];
        bytes[..label.len()].copy_from_slice(label.as_bytes());
        log.result(&format!("label '{label}'"), ioctl(&root, SET_LABEL, bytes.as_mut_ptr().cast()));
        log.add("now", read_label(&root)?);
    }
    umount("/m")?;
    volume.mount(MountFlags::RDONLY)?;
    let root = File::open("/m")?;
    log.add("after the next mount", read_label(&root)?);
    log.result("on a read-only mount", ioctl(&root, SET_LABEL, [0_u8; 256].as_mut_ptr().cast()));
    drop(root);
    umount("/m")
}

fn read_label(root: &File) -> Result<String> {
    let mut bytes = [0_u8; 256];
    ioctl(root, GET_LABEL, bytes.as_mut_ptr().cast())?;
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
}

/// Tests which reads change the access time with each option of mount(8), and which times the next mount
/// reports.
fn times(volume: Volume<'_>, log: &mut Log) -> Result<()> {
    let options = [
        ("strictatime", MountFlags::STRICTATIME),
        ("relatime", MountFlags::RELATIME),
        ("noatime", MountFlags::NOATIME),
        ("nodiratime", MountFlags::STRICTATIME | MountFlags::NODIRATIME),
        ("lazytime", MountFlags::STRICTATIME | MountFlags::LAZYTIME),
    ];
    for (name, flags) in options {
        volume.mount(MountFlags::NOATIME)?;
        for folder in ["old", "new"] {
            fs::create_dir_all(format!("/m/{folder}/dir"))?;
            fs::write(format!("/m/{folder}/dir/file"), "data")?;
            let _ = fs::remove_file(format!("/m/{folder}/symlink"));
            symlink("dir", format!("/m/{folder}/symlink"))?;
        }
        umount("/m")?;
        volume.mount(flags)?;
        for (folder, atime) in [("old", 1000), ("new", 4_000_000_000)] {
            for entry in ["dir", "dir/file", "symlink"] {
                let path = format!("/m/{folder}/{entry}");
                set_atime(&path, atime)?;
                read(&path)?;
                let found = fs::symlink_metadata(&path)?.atime();
                log.add(&format!("{name}: reading {folder}/{entry} changes the access time"), found != atime);
            }
        }
        // Changed data makes the access time older than the data.
        thread::sleep(Duration::from_millis(30));
        fs::write("/m/new/dir/file", "more")?;
        read("/m/new/dir/file")?;
        let paths = ["/m/old/dir", "/m/old/dir/file", "/m/old/symlink", "/m/new/dir/file"];
        let stored =
            |path: &&str| Ok(fs::symlink_metadata(path).map(|stat| (stat.atime(), stat.atime_nsec()))?);
        let before = paths.iter().map(stored).collect::<Result<Vec<_>>>()?;
        umount("/m")?;
        volume.mount(MountFlags::NOATIME)?;
        let after = paths.iter().map(stored).collect::<Result<Vec<_>>>()?;
        log.add(&format!("{name}: the access times after the next mount are the same"), before == after);
        umount("/m")?;
    }
    Ok(())
}

/// Reads a file, a directory or a symbolic link.
fn read(path: &str) -> Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_dir() {
        fs::read_dir(path)?.for_each(drop);
    } else if kind.is_symlink() {
        fs::read_link(path)?;
    } else {
        File::open(path)?.read_to_string(&mut String::new())?;
    }
    Ok(())
}

fn set_atime(path: &str, seconds: i64) -> Result<()> {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT};
    let last_access = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access, last_modification };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Mounts of a device that cannot be written.
fn read_only(volume: Volume<'_>, log: &mut Log) -> Result<()> {
    let device = File::open(disk(volume.number))?;
    set_read_only(&device, true)?;
    let shown = |outcome: Result<()>| match outcome {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("{:?}", error.downcast_ref::<rustix::io::Errno>()),
    };
    log.add("mount", shown(volume.mount(MountFlags::empty())));
    log.add("mount read-only", shown(volume.mount(MountFlags::RDONLY)));
    log.result("read", fs::read("/m/kept"));
    log.result("write", OpenOptions::new().write(true).open("/m/kept"));
    log.result("create", fs::write("/m/refused", ""));
    log.result("remove", fs::remove_file("/m/kept"));
    let remounted = mount_remount("/m", MountFlags::empty(), c"");
    log.add("remount", format!("{remounted:?}"));
    umount("/m")?;
    set_read_only(&device, false)
}

/// Makes a device read-only, or writable again.
pub fn set_read_only(device: &File, is_read_only: bool) -> Result<()> {
    let mut value = libc::c_int::from(is_read_only);
    ioctl(device, BLKROSET, (&raw mut value).cast()).context("BLKROSET")
}
