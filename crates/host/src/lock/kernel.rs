//! What the kernel itself does with a file or block device: loop devices, mounts, devices made of it.
//!
//! Source: sysfs, `Documentation/ABI/testing/sysfs-block`, `sysfs-block-loop`; proc_pid_mountinfo(5); loop(4).

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use obento_base::FileKind;
use rustix::fs::{major, makedev, minor};

use super::User;
use crate::FileId;
use crate::file::kind_of;

/// What the kernel does with the file or block device `id`.
pub(super) fn user_of(id: FileId) -> Option<User> {
    if id.ino != 0 {
        return loop_of(id);
    }
    let device = sysfs_of(id.dev);
    let mounted = family(&device).into_iter().find_map(mount_of);
    mounted.map(User::Mount).or_else(|| {
        let mut holders = fs::read_dir(device.join("holders")).ok()?.flatten();
        holders.next().map(|holder| User::Device(Path::new("/dev").join(holder.file_name())))
    })
}

/// The loop device that the file `id` is attached to.
fn loop_of(id: FileId) -> Option<User> {
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    devices.filter(|entry| entry.file_name().as_bytes().starts_with(b"loop")).find_map(|entry| {
        let backing = fs::read(entry.path().join("loop/backing_file")).ok()?;
        let node = Path::new("/dev").join(entry.file_name());
        let path = PathBuf::from(std::ffi::OsString::from_vec(backing.trim_ascii_end().to_vec()));
        // The path is as it was, and seen from where it was attached; the device itself knows better, if we may ask.
        let is_it = backing_of(&node).unwrap_or_else(|| FileId::of_path(&path)) == Some(id);
        is_it
            .then(|| User::Loop { mount: family(&entry.path()).into_iter().find_map(mount_of), device: node })
    })
}

/// The file behind the loop device `node`; `None` if we may not ask.
fn backing_of(node: &Path) -> Option<Option<FileId>> {
    let device = File::open(node).ok()?;
    // SAFETY: `struct loop_info64` is integers and arrays of them, for which zeros are a value.
    let mut info: LoopInfo = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes a `struct loop_info64` to its argument, which has that layout and length.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
    Some((result == 0).then(|| FileId { dev: decode_device(info.device), ino: info.inode }))
}

/// `LOOP_GET_STATUS64` of include/uapi/linux/loop.h.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

/// `struct loop_info64` of include/uapi/linux/loop.h: what is not looked at only counts by its length.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rest: [u64; 27],
}
const _: () = assert!(size_of::<LoopInfo>() == 232);

/// `huge_encode_dev` of include/linux/kdev_t.h, undone.
fn decode_device(device: u64) -> u64 {
    let major = (device >> 8) & 0xfff;
    let minor = (device & 0xff) | ((device >> 12) & 0x00ff_ff00);
    makedev(major as u32, minor as u32)
}

/// A block device in sysfs.
fn sysfs_of(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)))
}

/// The numbers of a block device in sysfs, of its partitions, and of the disk that it is a partition of.
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

/// Where the block device of this number is mounted.
fn mount_of(device: u64) -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    mounts.split(|&byte| byte == b'\n').find_map(|line| is_mount_of(line, device))
}

/// The mount point of a line of `mountinfo`, if its device is the one of this number.
fn is_mount_of(line: &[u8], device: u64) -> Option<PathBuf> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let number = format!("{}:{}", major(device), minor(device));
    let separator = fields.iter().position(|field| *field == b"-")?;
    // Btrfs and others have a number of their own; what they were mounted from is named at the end.
    let is_source = || {
        let source = unescape(fields.get(separator + 2)?);
        let stat = source.is_absolute().then(|| rustix::fs::stat(&source).ok()).flatten()?;
        Some(kind_of(&stat) == Some(FileKind::BlockDevice) && stat.st_rdev == device)
    };
    let is_it = *fields.get(2)? == number.as_bytes() || is_source() == Some(true);
    is_it.then(|| fields.get(4).map(|point| unescape(point))).flatten()
}

/// A path of `mountinfo`, where space, tab, newline and backslash are octal.
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
        assert_eq!(is_mount_of(line, makedev(98, 0)), Some(PathBuf::from(r"/mnt/a b\c")));
        assert_eq!(is_mount_of(line, makedev(98, 1)), None);
        assert_eq!(is_mount_of(b"", makedev(0, 0)), None);
    }

    #[test]
    fn a_device_number_of_the_loop_driver_is_that_of_stat() {
        assert_eq!(decode_device(0xfe00), makedev(0xfe, 0));
        assert_eq!(decode_device((3 << 8) | 0x45 | (0x123 << 20)), makedev(3, 0x1_2345));
    }
}
