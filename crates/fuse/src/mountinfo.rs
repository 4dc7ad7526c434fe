//! The kernel's list of mounted file systems.
//!
//! Source: proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountPoint {
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

    /// Returns the user who mounted the file system.
    pub fn owner(&self) -> Option<u32> {
        self.options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }
}

/// Returns the topmost mount at `path`, which is an absolute path without symbolic links.
pub fn find_mount(path: &Path) -> Option<MountPoint> {
    let text = fs::read("/proc/self/mountinfo").ok()?;
    text.split(|&byte| byte == b'\n').filter_map(parse).rfind(|mount| mount.path == path)
}

/// Returns all mounts whose type is `fs_type`.
pub fn mounts_of_type(fs_type: &str) -> Vec<MountPoint> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = text.split(|&byte| byte == b'\n').filter_map(parse);
    mounts.filter(|mount| mount.fs_type == fs_type).collect()
}

fn parse(line: &[u8]) -> Option<MountPoint> {
    let mut words = line.split(|&byte| byte == b' ');
    let device = text(words.nth(2)?);
    let path = PathBuf::from(unescaped(words.nth(1)?));
    let flags = text(words.next()?);
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let fs_type = text(rest.next()?);
    let source = PathBuf::from(unescaped(rest.next()?));
    let options = text(rest.next()?);
    Some(MountPoint { device, path, flags, fs_type, source, options })
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
        assert_eq!(mount.device, "0:45");
        assert_eq!(mount.path, Path::new("/mnt/a b"));
        assert_eq!(mount.source, Path::new("/d\\isk.img"));
        assert!(mount.is_fuse());
        assert_eq!(mount.owner(), Some(7));
        assert_eq!(mount.flags, "rw,nosuid");
    }
}
