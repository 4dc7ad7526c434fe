//! The kernel's list of mounted file systems.
//!
//! Source: proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountPoint {
    /// The number of the mount, which no other mount has as long as it exists.
    pub id: u64,
    /// `MAJOR:MINOR` of the mounted file system, which is unique among mounted file systems.
    pub device: String,
    /// The mount point.
    pub path: PathBuf,
    /// The type: `fuse.obento`.
    pub fs_type: String,
    /// The source of the mount: the image.
    pub source: PathBuf,
    /// The flags of the mount point: `rw,nosuid`.
    pub flags: String,
    /// The options of the file system itself.
    pub options: String,
}

impl MountPoint {
    /// Returns whether the file system is a FUSE file system.
    pub fn is_fuse(&self) -> bool {
        matches!(self.fs_type.as_str(), "fuse" | "fuseblk") || self.fs_type.starts_with("fuse.")
    }

    /// Returns whether the kernel allows only reading, at this mount point or in the whole file system.
    pub fn is_read_only(&self) -> bool {
        [&self.flags, &self.options].iter().any(|words| words.split(',').any(|word| word == "ro"))
    }

    /// Returns the user who mounted the file system.
    pub fn owner(&self) -> Option<u32> {
        self.options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }
}

/// Returns the number of the mount that contains an open file, also if the file was opened with `O_PATH`. The server of
/// the mount is not asked. Source: proc_pid_fdinfo(5), `mnt_id`.
pub fn mount_id(file: impl AsFd) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd()))?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the mount that contains an open file, whatever its path is by now. Fails with `NotFound` if the mount has no
/// path in this process, for example because it was detached.
pub fn mount_of(file: impl AsFd) -> io::Result<MountPoint> {
    mount_with_id(mount_id(file)?).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the mount with this number, at its present path.
pub(crate) fn mount_with_id(id: u64) -> Option<MountPoint> {
    all().into_iter().find(|mount| mount.id == id)
}

/// Returns the topmost mount at `path`, which is an absolute path without symbolic links.
pub fn find_mount(path: &Path) -> Option<MountPoint> {
    let text = fs::read("/proc/self/mountinfo").ok()?;
    text.split(|&byte| byte == b'\n').filter_map(parse).rfind(|mount| mount.path == path)
}

/// Returns all mounts whose type is `fs_type`.
pub fn mounts_of_type(fs_type: &str) -> Vec<MountPoint> {
    all().into_iter().filter(|mount| mount.fs_type == fs_type).collect()
}

/// Returns all mount points of the file system that is mounted at `mount`.
pub fn mounts_of_same(mount: &MountPoint) -> Vec<MountPoint> {
    let is_same = |other: &MountPoint| other.device == mount.device && other.source == mount.source;
    all().into_iter().filter(is_same).collect()
}

fn all() -> Vec<MountPoint> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

fn parse(line: &[u8]) -> Option<MountPoint> {
    let mut words = line.split(|&byte| byte == b' ');
    let id = str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let device = text(words.nth(1)?);
    let path = PathBuf::from(unescaped(words.nth(1)?));
    let flags = text(words.next()?);
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let fs_type = text(rest.next()?);
    let source = PathBuf::from(unescaped(rest.next()?));
    let options = text(rest.next()?);
    Some(MountPoint { id, device, path, flags, fs_type, source, options })
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// Decodes octal escapes such as `\040`.
fn unescaped(word: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let octal = digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read_with_its_escapes() {
        let line = b"36 35 0:45 / /mnt/a\\040b rw,nosuid shared:1 - fuse.obento /d\\134isk.img rw,user_id=7,group_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.device.as_str()), (36, "0:45"));
        assert_eq!(mount.path, Path::new("/mnt/a b"));
        assert_eq!(mount.source, Path::new("/d\\isk.img"));
        assert!(mount.is_fuse());
        assert_eq!(mount.owner(), Some(7));
        assert_eq!(mount.flags, "rw,nosuid");
        assert!(!mount.is_read_only());
    }

    #[test]
    fn a_mount_is_read_only_by_its_own_flags_or_those_of_the_file_system() {
        for (flags, options, is_read_only) in [
            ("ro,nosuid", "rw,user_id=0", true),
            ("rw", "ro,user_id=0", true),
            ("rw,norelatime", "rw,root=7", false),
        ] {
            let line = format!("36 35 0:45 / /mnt {flags} shared:1 - fuse.obento /disk.img {options}");
            assert_eq!(parse(line.as_bytes()).unwrap().is_read_only(), is_read_only, "{line}");
        }
    }
}
