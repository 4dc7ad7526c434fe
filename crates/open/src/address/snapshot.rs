//! The NAME of `IMAGE%NAME`, which selects a snapshot of a qcow2 image.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::HostEntry;
use super::part::percent_decode;
use crate::os_text::OsStrExt as _;

/// Splits the image of an address, `disk.qcow2%NAME`, into the file and the name of the snapshot. Returns `None` if a
/// file has the whole text as its path, or if the text names no existing file before a `%`.
///
/// The name is percent-encoded like the name of a partition, so that it contains no `@`, `:` and `/`.
///
/// ```
/// use obento::address::{HostEntry, snapshot_of};
/// # use std::path::Path;
///
/// let host = |path: &Path| if path == Path::new("disk.qcow2") { HostEntry::File } else { HostEntry::Missing };
/// let (file, name) = snapshot_of("disk.qcow2%before%20upgrade".as_ref(), &host).unwrap();
/// assert_eq!((file.to_str(), &*name), (Some("disk.qcow2"), "before upgrade"));
/// assert_eq!(snapshot_of("disk.qcow2".as_ref(), &host), None);
/// ```
pub fn snapshot_of(image: &Path, entry: &dyn Fn(&Path) -> HostEntry) -> Option<(PathBuf, String)> {
    let text = image.as_os_str().as_bytes();
    if !text.contains(&b'%') || entry(image) != HostEntry::Missing {
        return None;
    }
    let signs = text.iter().enumerate().filter(|&(at, &byte)| byte == b'%' && at > 0);
    let mut splits = signs.map(|(at, _)| (Path::new(OsStr::from_bytes(&text[..at])), &text[at + 1..]));
    let (file, name) = splits.find(|(file, _)| entry(file) == HostEntry::File)?;
    let is_name = !name.is_empty() && !name.iter().any(|byte| b"@:/".contains(byte));
    let name = percent_decode(name).filter(|_| is_name)?;
    Some((file.to_owned(), String::from_utf8_lossy(&name).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(path: &Path) -> HostEntry {
        match path.to_str() {
            Some("d.qcow2" | "100%/d.qcow2" | "a%b") => HostEntry::File,
            Some("100") => HostEntry::Directory,
            _ => HostEntry::Missing,
        }
    }

    #[test]
    fn the_name_follows_the_first_sign_after_an_existing_file() {
        let split = |text: &str| snapshot_of(text.as_ref(), &host);
        let found = |file: &str, name: &str| Some((file.into(), name.into()));
        assert_eq!(split("d.qcow2%one"), found("d.qcow2", "one"));
        assert_eq!(split("100%/d.qcow2%2"), found("100%/d.qcow2", "2"));
        assert_eq!(split("d.qcow2%a%40b%25"), found("d.qcow2", "a@b%"));
        assert_eq!(split("a%b%c"), found("a%b", "c"));
        for text in ["a%b", "d.qcow2", "d.qcow2%", "x.qcow2%one", "d.qcow2%a@1", "d.qcow2%a/b", "d.qcow2%5%"]
        {
            assert_eq!(split(text), None, "{text}");
        }
    }
}
