//! Manifests of composefs: composefs-dump(5).
//!
//! Layout: one line for each file, with fields that are separated by spaces. The fields are path, size, octal mode with
//! the type, link count, owner, group, device, time, payload, content, digest, and `NAME=VALUE` for each extended
//! attribute. `-` is an empty field, `\xNN` a byte. A mode that begins with `@` marks a hard link, whose payload is the
//! path of the original.
//! Source: composefs, man/composefs-dump.md.

use std::path::Path;

use obento_base::{FileKind, Mode};
use obento_host::{HostError, Xattr};
use obento_open::text::escaped;

use super::folders::ContentFolders;
use super::manifest::{self, Lines, ManifestAttributes, ManifestContent, Wrong};
use super::mtree::{time, unpacked};
use super::{EntryError, SourceReader};
use crate::build::model::names;

/// Fields before the attributes.
const FIELDS: usize = 11;

/// Reads a manifest. Payloads of files are paths relative to its directory. Fails with `Host` if it cannot be read.
pub(super) fn read(reader: &mut SourceReader<'_>, path: &Path) -> Result<(), HostError> {
    let folders = ContentFolders::open(path, &reader.settings.contents)?;
    let mut lines = Lines::open(&folders, path, reader.settings.unpack)?;
    let mut line = Vec::new();
    while lines.next(&mut line)? {
        let line = std::mem::take(&mut line);
        if line.is_empty() {
            continue;
        }
        reader.progress(|| line.split(|&byte| byte == b' ').next().unwrap_or_default())?;
        let taken = parse(&line).map_err(EntryError::Entry);
        let taken = taken.and_then(|entry| put(reader, &folders, entry));
        reader.settle(taken, || lines.place(lines.number()))?;
    }
    Ok(())
}

/// A line.
struct Entry {
    path: Vec<u8>,
    is_link: bool,
    payload: Vec<u8>,
    said: ManifestAttributes,
}

fn put(reader: &mut SourceReader<'_>, folders: &ContentFolders, entry: Entry) -> Result<(), EntryError> {
    let path = names(&entry.path)?;
    if reader.is_excluded(&entry.path) {
        return Ok(());
    }
    if entry.is_link {
        return Ok(manifest::link(reader, &path, &names(&entry.payload)?)?);
    }
    manifest::put(reader, folders, &path, entry.said)
}

fn parse(line: &[u8]) -> Result<Entry, Wrong> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [path, size, mode, _, uid, gid, rdev, mtime, payload, content, _, ..] = fields.as_slice() else {
        return Err(format!("{FIELDS} fields are required, but the line has {}", fields.len()).into());
    };
    let number = |field: &[u8], radix: u32| {
        let text = std::str::from_utf8(field).ok();
        let number = text.and_then(|text| u64::from_str_radix(text, radix).ok());
        number.ok_or_else(|| format!("'{}' is not a number", escaped(field)))
    };
    let id = |field: &[u8]| {
        number(field, 10)
            .and_then(|id| u32::try_from(id).map_err(|_| "the user or group ID is too large".to_owned()))
    };
    let path = unescape(path)?;
    let payload = unescape(payload)?;
    let (mode, is_link) = match mode.strip_prefix(b"@") {
        Some(mode) => (mode, true),
        None => (*mode, false),
    };
    if is_link {
        return Ok(Entry { path, is_link, payload, said: ManifestAttributes::default() });
    }
    let bits = u16::try_from(number(mode, 8)?).map_err(|_| "the mode is too large".to_owned())?;
    let kind = FileKind::from_mode(bits).ok_or("the mode contains no file type")?;
    let mut said = ManifestAttributes {
        kind: Some(kind),
        mode: Some(Mode::new(bits)),
        uid: Some(id(uid)?),
        gid: Some(id(gid)?),
        mtime: Some(time(&String::from_utf8_lossy(mtime)).ok_or("the time is invalid")?),
        ..ManifestAttributes::default()
    };
    match kind {
        FileKind::Symlink => said.target = Some(payload.clone()),
        FileKind::CharDevice | FileKind::BlockDevice => said.device = Some(unpacked(number(rdev, 10)?)),
        FileKind::Regular => {
            said.size = Some(number(size, 10)?);
            let here = unescape(content)?;
            said.content = match (here.is_empty(), payload.is_empty()) {
                (false, _) => Some(ManifestContent::Here(here)),
                (true, false) => Some(ManifestContent::File(payload.clone())),
                (true, true) if said.size == Some(0) => Some(ManifestContent::Here(Vec::new())),
                (true, true) => return Err("the line has a size, but names no contents".into()),
            };
        }
        _ => {}
    }
    for attribute in fields.iter().skip(FIELDS).filter(|field| !field.is_empty()) {
        let at =
            attribute.iter().position(|&byte| byte == b'=').ok_or("an extended attribute has no value")?;
        let (name, value) = attribute.split_at(at);
        said.xattrs.push(Xattr { name: unescape(name)?, value: unescape(&value[1..])? });
    }
    Ok(Entry { path, is_link, payload, said })
}

/// Decodes the bytes of a field.
fn unescape(field: &[u8]) -> Result<Vec<u8>, Wrong> {
    if field == b"-" {
        return Ok(Vec::new());
    }
    let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    manifest::unescape(field, |rest| match rest {
        [b'\\', ..] => Some((b'\\', 1)),
        [b'n', ..] => Some((b'\n', 1)),
        [b'r', ..] => Some((b'\r', 1)),
        [b't', ..] => Some((b'\t', 1)),
        [b'x', a, b, ..] => Some((hex(&[*a, *b])?, 3)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = br"/a\x20b 3 100644 1 0 7 0 12.5 - x\ty - user.a=1\\2";
        let entry = parse(line).unwrap();
        assert_eq!(entry.path, b"/a b");
        assert_eq!((entry.said.gid, entry.said.size), (Some(7), Some(3)));
        assert_eq!(entry.said.content, Some(ManifestContent::Here(b"x\ty".to_vec())));
        assert_eq!(entry.said.xattrs, [Xattr { name: b"user.a".to_vec(), value: b"1\\2".to_vec() }]);
        assert!(parse(b"/b 1 100644 1 0 0 0 0.0 - - -").is_err());
        assert!(parse(br"/c 0 @100644 - - - - - /a\x20b - -").is_ok_and(|entry| entry.is_link));
    }
}
