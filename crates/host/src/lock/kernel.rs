//! Uses of a file or block device by the kernel itself: loop devices, mounts, and devices that are built from
//! it.
//!
//! Source: sysfs, `Documentation/ABI/testing/sysfs-block`, `sysfs-block-loop`; proc_pid_mountinfo(5);
//! loop(4).

use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use obento_base::FileKind;
use rustix::fs::{major, makedev, minor};

use super::{User, process};
use crate::FileId;
use crate::file_id::kind_of;

/// A use by the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Use {
    /// The user.
    pub(super) user: User,
    /// Whether the kernel may change the bytes. False if the device is mounted read-only, or attached without
    /// further use.
    pub(super) changes: bool,
}

/// The mount of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mount {
    point: PathBuf,
    is_writable: bool,
}

/// Returns the kernel's use of the file or block device `id`. A loop device may be attached to another one, in either
/// direction.
pub(super) fn user_of(id: FileId) -> Option<Use> {
    Search::default().user_of(id)
}

/// Returns the block device `id`, its partitions, and the disk that contains it. An exclusive user of one of
/// them excludes users of the others.
pub(super) fn family_of(id: FileId) -> Vec<FileId> {
    family(&sysfs_of(id.dev)).into_iter().map(|dev| FileId { dev, ..id }).collect()
}

/// A loop device and its range of bytes of a file.
struct Loop {
    /// The folder in sysfs.
    folder: PathBuf,
    node: PathBuf,
    backing: FileId,
    bytes: Range<u64>,
}

impl Loop {
    /// Returns all attached loop devices.
    fn all() -> impl Iterator<Item = Self> {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        devices.filter(|entry| entry.file_name().as_bytes().starts_with(b"loop")).filter_map(|entry| {
            let backing = fs::read(entry.path().join("loop/backing_file")).ok()?;
            let node = Path::new("/dev").join(entry.file_name());
            let path = PathBuf::from(std::ffi::OsString::from_vec(backing.trim_ascii_end().to_vec()));
            // The path in sysfs may be outdated, and relative to another root. The device itself returns the
            // exact file, if this process may ask it.
            let (backing, bytes) = match status_of(&node) {
                Some(status) => status?,
                None => (FileId::of_path(&path)?, 0..u64::MAX),
            };
            Some(Self { folder: entry.path(), node, backing, bytes })
        })
    }

    fn shares_bytes_with(&self, other: &Self) -> bool {
        let overlap = self.bytes.start.max(other.bytes.start)..self.bytes.end.min(other.bytes.end);
        self.backing == other.backing && !overlap.is_empty()
    }
}

/// A search through loop devices and what they are attached to.
#[derive(Default)]
struct Search {
    /// The loop devices that were examined, so that the search ends.
    seen: Vec<PathBuf>,
}

impl Search {
    fn user_of(&mut self, id: FileId) -> Option<Use> {
        let above = self.user_above(&if id.ino == 0 { family_of(id) } else { Vec::from([id]) });
        if above.as_ref().is_some_and(|above| above.changes) || id.ino != 0 {
            return above;
        }
        self.user_at(id).filter(|at| at.changes || above.is_none()).or(above)
    }

    /// Returns a use of a block device, or of what is behind it.
    fn user_at(&mut self, id: FileId) -> Option<Use> {
        let device = sysfs_of(id.dev);
        if let Some(mount) = mount_of(&device) {
            return Some(Use { user: User::Mount(mount.point), changes: mount.is_writable });
        }
        let holder = fs::read_dir(device.join("holders")).into_iter().flatten().flatten().next();
        let holder = holder.map(|holder| Path::new("/dev").join(holder.file_name()));
        let holder = holder.map(|holder| Use { user: User::Device(holder), changes: true });
        holder.or_else(|| self.user_behind(id.dev))
    }

    /// Returns a use of the loop devices that are attached to one of `files`. Prefers one that changes bytes.
    fn user_above(&mut self, files: &[FileId]) -> Option<Use> {
        let devices: Vec<_> = Loop::all().filter(|device| files.contains(&device.backing)).collect();
        self.best_of(devices)
    }

    /// Returns another user of the file behind the loop device `dev`, or behind the loop device that `dev` is a
    /// partition of.
    fn user_behind(&mut self, dev: u64) -> Option<Use> {
        let own = Loop::all().find(|device| family(&device.folder).contains(&dev))?;
        if self.seen.contains(&own.node) {
            return None;
        }
        self.seen.push(own.node.clone());
        let others = Loop::all().filter(|other| other.node != own.node && other.shares_bytes_with(&own));
        if let Some(found) = self.best_of(others.collect()) {
            return Some(found);
        }
        // This process may use its own open file by both names.
        let process = process::locking(own.backing).filter(|user| *user != User::Ourselves);
        let process = process.map(|user| Use { user, changes: true });
        process.or_else(|| if own.backing.ino == 0 { self.user_at(own.backing) } else { None })
    }

    /// Returns the most important use of loop devices that were not examined yet: a change, then a mount.
    fn best_of(&mut self, devices: Vec<Loop>) -> Option<Use> {
        let mut best: Option<Use> = None;
        for device in devices {
            if self.seen.contains(&device.node) {
                continue;
            }
            let found = self.use_of(device);
            let rank = |found: &Use| (found.changes, matches!(found.user, User::Loop { mount: Some(_), .. }));
            if best.as_ref().is_none_or(|best| rank(&found) > rank(best)) {
                best = Some(found);
            }
        }
        best
    }

    /// Returns the use of a loop device: its mount, or the use of a loop device that is attached to it.
    fn use_of(&mut self, device: Loop) -> Use {
        self.seen.push(device.node.clone());
        let mount = mount_of(&device.folder);
        let above = family(&device.folder).into_iter().map(|dev| FileId { dev, ino: 0 });
        let above = if mount.is_none() { self.user_above(&above.collect::<Vec<_>>()) } else { None };
        above.filter(|above| above.changes).unwrap_or_else(|| {
            let changes = mount.as_ref().is_some_and(|mount| mount.is_writable);
            Use { user: User::Loop { device: device.node, mount: mount.map(|mount| mount.point) }, changes }
        })
    }
}

/// Returns the file and the range of the loop device `node`, or `None` if this process may not ask it.
fn status_of(node: &Path) -> Option<Option<(FileId, Range<u64>)>> {
    let device = File::open(node).ok()?;
    // SAFETY: `struct loop_info64` consists of integers and arrays of integers, for which zeros are valid.
    let mut info: LoopInfo = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes a `struct loop_info64` to its argument, which has that layout and length.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
    let limit = if info.limit == 0 { u64::MAX } else { info.limit };
    let bytes = info.offset..info.offset.saturating_add(limit);
    let backing = match info.node {
        0 => FileId { dev: decode_device(info.device), ino: info.inode },
        // It is attached to a device.
        node => FileId { dev: decode_device(node), ino: 0 },
    };
    Some((result == 0).then_some((backing, bytes)))
}

/// `LOOP_GET_STATUS64` of include/uapi/linux/loop.h.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

/// `struct loop_info64` of include/uapi/linux/loop.h. Unused fields only reserve their space.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    /// The device number of a backing file that is a device, or 0.
    node: u64,
    offset: u64,
    /// 0: up to the end.
    limit: u64,
    rest: [u64; 24],
}
const _: () = assert!(size_of::<LoopInfo>() == 232);

/// The inverse of `huge_encode_dev` of include/linux/kdev_t.h.
fn decode_device(device: u64) -> u64 {
    let major = (device >> 8) & 0xfff;
    let minor = (device & 0xff) | ((device >> 12) & 0x00ff_ff00);
    makedev(major as u32, minor as u32)
}

/// Returns the folder of a block device in sysfs.
fn sysfs_of(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)))
}

/// Returns the numbers of a block device in sysfs, of its partitions, and of the disk that contains it.
fn family(device: &Path) -> Vec<u64> {
    let number = |folder: &Path| {
        let text = fs::read_to_string(folder.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    let parts = fs::read_dir(device).into_iter().flatten().flatten();
    let parts = parts.map(|entry| entry.path()).filter(|path| path.join("partition").exists());
    let disk = device.join("partition").exists().then(|| fs::canonicalize(device).ok()).flatten();
    let disk = disk.and_then(|path| path.parent().map(Path::to_owned));
    std::iter::once(device.to_owned()).chain(parts).chain(disk).filter_map(|path| number(&path)).collect()
}

/// Returns the mount of a block device in sysfs or of a related device. Prefers a writable mount.
fn mount_of(device: &Path) -> Option<Mount> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let family = family(device);
    let lines = || mounts.split(|&byte| byte == b'\n');
    let mut found =
        family.iter().flat_map(|&device| lines().filter_map(move |line| is_mount_of(line, device)));
    let first = found.next()?;
    if first.is_writable { Some(first) } else { found.find(|mount| mount.is_writable).or(Some(first)) }
}

/// Returns the mount in a line of `mountinfo`, if its device has this number.
fn is_mount_of(line: &[u8], device: u64) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let number = format!("{}:{}", major(device), minor(device));
    let separator = fields.iter().position(|field| *field == b"-")?;
    // Btrfs and other file systems have a number of their own. The last field names the mounted device.
    let is_source = || {
        let source = unescape(fields.get(separator + 2)?);
        let stat = source.is_absolute().then(|| rustix::fs::stat(&source).ok()).flatten()?;
        Some(kind_of(&stat) == Some(FileKind::BlockDevice) && stat.st_rdev == device)
    };
    // The user of a FUSE mount chooses its source. A server uses the device itself, and is found as a process; a mount of
    // type `fuseblk` has the number of its device.
    let is_server = fields.get(separator + 1)?.starts_with(b"fuse");
    if *fields.get(2)? != number.as_bytes() && (is_server || is_source() != Some(true)) {
        return None;
    }
    // The options of the file system: those of one mount point may be stricter than those of another.
    let options = fields.get(separator + 3)?;
    let is_writable = !options.split(|&byte| byte == b',').any(|option| option == b"ro");
    Some(Mount { point: unescape(fields.get(4)?), is_writable })
}

/// Decodes a path of `mountinfo`, in which space, tab, newline and backslash are octal.
fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_device_and_its_path_has_spaces_again() {
        let line = br"36 35 98:0 / /mnt/a\040b\134c rw,noatime master:1 - ext4 none rw,errors=continue";
        let mount = |text: &str, is_writable| Some(Mount { point: PathBuf::from(text), is_writable });
        assert_eq!(is_mount_of(line, makedev(98, 0)), mount(r"/mnt/a b\c", true));
        let line = br"36 35 98:0 / /mnt rw - ext4 none ro,errors=continue";
        assert_eq!(is_mount_of(line, makedev(98, 0)), mount("/mnt", false));
        assert_eq!(is_mount_of(line, makedev(98, 1)), None);
        assert_eq!(is_mount_of(b"", makedev(0, 0)), None);
    }

    #[test]
    fn the_source_of_a_fuse_mount_is_not_believed() {
        let devices = fs::read_dir("/dev").unwrap().flatten().filter_map(|entry| {
            let stat = rustix::fs::stat(entry.path()).ok()?;
            (kind_of(&stat) == Some(FileKind::BlockDevice)).then_some((entry.path(), stat.st_rdev))
        });
        // Without a block device, only the numbers are tested.
        for (path, device) in devices.take(1).chain([(PathBuf::from("/dev/null"), makedev(1, 3))]) {
            let line = |kind: &str, number: &str| {
                format!("36 35 {number} / /mnt rw - {kind} {} rw,user_id=1000", path.display())
            };
            for kind in ["fuse", "fuse.sshfs", "fuseblk"] {
                assert_eq!(is_mount_of(line(kind, "0:50").as_bytes(), device), None, "{kind}");
            }
            let number = format!("{}:{}", major(device), minor(device));
            assert!(is_mount_of(line("fuseblk", &number).as_bytes(), device).is_some());
        }
    }

    #[test]
    fn a_device_number_of_the_loop_driver_is_that_of_stat() {
        assert_eq!(decode_device(0xfe00), makedev(0xfe, 0));
        assert_eq!(decode_device((3 << 8) | 0x45 | (0x123 << 20)), makedev(3, 0x1_2345));
    }
}
