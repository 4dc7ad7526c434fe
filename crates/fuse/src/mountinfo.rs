//! What is mounted where, as the kernel tells it.
//!
//! Source: proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountPoint {
    /// `MAJOR:MINOR` of what is mounted, which no other mounted file system has.
    pub device: String,
    /// Where.
    pub path: PathBuf,
    /// The type: `fuse.obento`.
    pub fs_type: String,
    /// What is mounted: the image.
    pub source: PathBuf,
    /// The options of the file system itself.
    pub options: String,
}

impl MountPoint {
    /// Whether it speaks FUSE.
    pub fn is_fuse(&self) -> bool {
        matches!(self.fs_type.as_str(), "fuse" | "fuseblk") || self.fs_type.starts_with("fuse.")
    }

    /// The user who mounted it.
    pub fn owner(&self) -> Option<u32> {
        self.options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }
}

/// What is mounted at `path`, an absolute path without links: the uppermost.
pub fn find_mount(path: &Path) -> Option<MountPoint> {
    let text = fs::read("/proc/self/mountinfo").ok()?;
    text.split(|&byte| byte == b'\n').filter_map(parse).rfind(|mount| mount.path == path)
}

fn parse(line: &[u8]) -> Option<MountPoint> {
    let mut words = line.split(|&byte| byte == b' ');
    let device = text(words.nth(2)?);
    let path = PathBuf::from(unescaped(words.nth(1)?));
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let fs_type = text(rest.next()?);
    let source = PathBuf::from(unescaped(rest.next()?));
    let options = text(rest.next()?);
    Some(MountPoint { device, path, fs_type, source, options })
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// Undoes `\040` and its like.
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
    }
}
