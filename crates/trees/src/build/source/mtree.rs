//! Manifests of BSD: mtree(5), with names relative to the previous directory, or with whole paths (mtree
//! 2.0).
//!
//! Layout: one line for each entry, with a name and keywords. `/set` and `/unset` change the defaults of
//! later entries. `..` leads to the parent. `#` begins a comment. A backslash at the end continues the line.
//! Names are encoded as by vis(3), for example `\040`.
//! Source: NetBSD and libarchive mtree(5). Keywords for properties that an image does not store (digests,
//! `nlink`, `flags`) are ignored.

use std::path::Path;

use obento_base::{DeviceNumber, FileKind, Mode, NameBuf, Timestamp};
use obento_host::{HostError, Xattr, base64};
use obento_open::text::escaped;

use super::folders::ContentFolders;
use super::manifest::{self, Lines, ManifestAttributes, ManifestContent, Wrong};
use super::{EntryError, SourceReader};
use crate::build::model::names;

/// Reads a manifest. Settings do not change the attributes of its lines. Fails with `Host` if it cannot be read.
pub(super) fn read(reader: &mut SourceReader<'_>, path: &Path) -> Result<(), HostError> {
    let folders = ContentFolders::open(path, &reader.settings.contents)?;
    let mut lines = Lines::open(&folders, path, reader.settings.unpack)?;
    let mut line = Vec::new();
    let mut at: Vec<NameBuf> = Vec::new();
    let mut defaults = Defaults::default();
    let (mut has_names, mut has_numbers) = (false, false);
    while let Some(number) = joined(&mut lines, &mut line)? {
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let Some(first) = words.next().filter(|word| !word.starts_with(b"#")) else { continue };
        let words: Vec<&[u8]> = words.collect();
        reader.progress(|| first)?;
        has_names |= words.iter().any(|word| matches!(key(word), b"uname" | b"gname"));
        has_numbers |= words.iter().any(|word| matches!(key(word), b"uid" | b"gid"));
        let taken = match first {
            b"/set" => defaults.set(&words).map_err(EntryError::Entry),
            b"/unset" => {
                defaults.unset(&words);
                Ok(())
            }
            b".." => {
                at.pop();
                Ok(())
            }
            name => entry(reader, &folders, (&mut at, &defaults), name, &words),
        };
        reader.settle(taken, || lines.place(number))?;
        if at.len() > MAX_DEPTH || defaults.is_full() {
            let reason =
                format!("line {number} exceeds the maximum of nested directories or of keywords in /set");
            return Err(HostError::Damaged { path: path.into(), format: "manifest", reason });
        }
    }
    if has_names && !has_numbers {
        let words = "owner names (uname, gname) without numbers are ignored; name uid and gid";
        reader.notes.push(format!("{}: {words}", path.display()));
    }
    Ok(())
}

/// Maximum depth of directories: the depth of the longest path of Linux.
const MAX_DEPTH: usize = 2048;
/// Maximum number of keywords that `/set` holds for later entries. About thirty keywords exist.
const MAX_DEFAULTS: usize = 256;
/// Maximum number of bytes of the keywords of `/set`. These bytes are decoded for each `/set` and copied for each
/// entry.
const MAX_DEFAULT_BYTES: usize = 16 << 10;

/// The values of the keywords of a line.
#[derive(Clone, Debug, Default)]
struct Keywords {
    attributes: ManifestAttributes,
    /// The target, if the entry is a link.
    link: Option<Vec<u8>>,
}

impl Keywords {
    fn add(&mut self, word: &[u8]) -> Result<(), Wrong> {
        match key(word) {
            b"link" => self.link = Some(unvis(value(word))?),
            _ => keyword(&mut self.attributes, word)?,
        }
        Ok(())
    }

    fn attributes(self) -> ManifestAttributes {
        // Other kinds of files have no target, even if `/set` sets one.
        let target = self.link.filter(|_| self.attributes.kind == Some(FileKind::Symlink));
        ManifestAttributes { target, ..self.attributes }
    }
}

/// The keywords of `/set`, which apply to later entries.
#[derive(Debug, Default)]
struct Defaults {
    words: Vec<Vec<u8>>,
    bytes: usize,
    /// The decoded words.
    keywords: Keywords,
}

impl Defaults {
    /// Sets words until one is not valid, or until [`Defaults::is_full`].
    fn set(&mut self, words: &[&[u8]]) -> Result<(), Wrong> {
        let mut wrong = Ok(());
        for word in words {
            wrong = Keywords::default().add(word);
            if wrong.is_err() || self.is_full() {
                break;
            }
            self.words.retain(|held| key(held) != key(word));
            self.words.push(word.to_vec());
            self.bytes += word.len();
        }
        self.decode();
        wrong
    }

    fn unset(&mut self, names: &[&[u8]]) {
        self.words.retain(|held| !names.iter().any(|&name| name == b"all" || key(held) == name));
        self.decode();
    }

    fn decode(&mut self) {
        self.bytes = self.words.iter().map(Vec::len).sum();
        self.keywords = Keywords::default();
        for word in &self.words {
            // Each word was valid when it was set.
            let _ = self.keywords.add(word);
        }
    }

    fn is_full(&self) -> bool {
        self.words.len() > MAX_DEFAULTS || self.bytes > MAX_DEFAULT_BYTES
    }
}

/// Reads a line with its continuation lines. Returns its number, or `None` at the end.
fn joined(lines: &mut Lines<'_>, line: &mut Vec<u8>) -> Result<Option<usize>, HostError> {
    line.clear();
    if !lines.next(line)? {
        return Ok(None);
    }
    let number = lines.number();
    while line.last() == Some(&b'\\') {
        line.pop();
        if !lines.next(line)? {
            break;
        }
    }
    Ok(Some(number))
}

fn key(word: &[u8]) -> &[u8] {
    word.split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// Reads one entry.
fn entry(
    reader: &mut SourceReader<'_>,
    folders: &ContentFolders,
    (at, defaults): (&mut Vec<NameBuf>, &Defaults),
    name: &[u8],
    words: &[&[u8]],
) -> Result<(), EntryError> {
    let name = unvis(name)?;
    if words.is_empty() && defaults.words.is_empty() {
        return Err("the line has no keywords".into());
    }
    let mut keywords = defaults.keywords.clone();
    words.iter().try_for_each(|word| keywords.add(word))?;
    let said = keywords.attributes();
    let is_whole = name.contains(&b'/');
    let below = names(&name)?;
    let path = if is_whole { below } else { [at.as_slice(), &below].concat() };
    if reader.is_excluded(&name) {
        return Ok(());
    }
    if !is_whole && said.kind == Some(FileKind::Directory) {
        *at = path.clone();
    }
    manifest::put(reader, folders, &path, said)
}

/// Returns the text after the `=`.
fn value(word: &[u8]) -> &[u8] {
    word.get(key(word).len() + 1..).unwrap_or_default()
}

/// The keywords without a value.
const FLAGS: [&[u8]; 3] = [b"ignore", b"nochange", b"optional"];

fn keyword(said: &mut ManifestAttributes, word: &[u8]) -> Result<(), Wrong> {
    let (name, value) = (key(word), value(word));
    let text = String::from_utf8_lossy(value);
    let bad = || format!("invalid keyword '{}'", escaped(word));
    match name {
        b"type" => said.kind = Some(kind(value).ok_or_else(bad)?),
        b"mode" => {
            let bits = u16::from_str_radix(&text, 8).map_err(|_| bad())?;
            said.mode = Some(Mode::new(bits));
        }
        b"uid" => said.uid = Some(text.parse().map_err(|_| bad())?),
        b"gid" => said.gid = Some(text.parse().map_err(|_| bad())?),
        b"size" => said.size = Some(text.parse().map_err(|_| bad())?),
        b"time" => said.mtime = Some(time(&text).ok_or_else(bad)?),
        b"device" | b"rdev" => said.device = Some(device(&text).ok_or_else(bad)?),
        b"contents" | b"content" => said.content = Some(ManifestContent::File(unvis(value)?)),
        _ => {
            if let Some(attribute) = name.strip_prefix(b"xattr.") {
                let value = base64::decode(value).ok_or_else(bad)?;
                said.xattrs.push(Xattr { name: unvis(attribute)?, value });
            } else if !word.contains(&b'=') && !FLAGS.contains(&name) {
                // Text of another format is not taken for properties that an image does not store.
                return Err(bad().into());
            }
        }
    }
    Ok(())
}

fn kind(value: &[u8]) -> Option<FileKind> {
    Some(match value {
        b"file" => FileKind::Regular,
        b"dir" => FileKind::Directory,
        b"link" => FileKind::Symlink,
        b"char" => FileKind::CharDevice,
        b"block" => FileKind::BlockDevice,
        b"fifo" => FileKind::Fifo,
        b"socket" => FileKind::Socket,
        _ => return None,
    })
}

/// Parses `SECONDS.NANOSECONDS`. The part after the point is a number of nanoseconds, and not a decimal
/// fraction.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    let (secs, nanos) = text.split_once('.').unwrap_or((text, "0"));
    Some(Timestamp::new(secs.parse().ok()?, nanos.parse().ok()?))
}

/// Parses `native,8,1`, `linux,8,1` or one number as packed by Linux.
fn device(text: &str) -> Option<DeviceNumber> {
    let parts: Vec<&str> = text.split(',').collect();
    match parts.as_slice() {
        [one] => {
            let packed: u64 =
                one.strip_prefix("0x").map_or(one.parse(), |hex| u64::from_str_radix(hex, 16)).ok()?;
            Some(unpacked(packed))
        }
        [_, major, minor] => Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? }),
        _ => None,
    }
}

/// Unpacks a device number: `gnu_dev_major` and `gnu_dev_minor` of glibc's sys/sysmacros.h.
pub(super) fn unpacked(packed: u64) -> DeviceNumber {
    let major = packed >> 8 & 0xfff | packed >> 32 & 0xffff_f000;
    let minor = packed & 0xff | packed >> 12 & 0xffff_ff00;
    let narrow = |part: u64| u32::try_from(part & 0xffff_ffff).unwrap_or(0);
    DeviceNumber { major: narrow(major), minor: narrow(minor) }
}

/// Decodes the backslash sequences of vis(3).
fn unvis(text: &[u8]) -> Result<Vec<u8>, Wrong> {
    manifest::unescape(text, |rest| match rest {
        [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
            Some(((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), 3))
        }
        [b's', ..] => Some((b' ', 1)),
        [b't', ..] => Some((b'\t', 1)),
        [b'n', ..] => Some((b'\n', 1)),
        [b'#', ..] => Some((b'#', 1)),
        [b'\\', ..] => Some((b'\\', 1)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use obento_host::compressed::UnpackLimits;

    use super::*;

    #[test]
    fn names_times_and_devices_are_decoded() {
        assert_eq!(unvis(br"a\040b\\c\sd"), Ok(b"a b\\c d".to_vec()));
        assert!(unvis(br"a\9").is_err());
        assert_eq!(time("5.000000007"), Some(Timestamp::new(5, 7)));
        assert_eq!(device("native,8,1"), Some(DeviceNumber { major: 8, minor: 1 }));
        assert_eq!(device("2049"), Some(DeviceNumber { major: 8, minor: 1 }));
    }

    #[test]
    fn a_backslash_at_the_end_joins_lines_as_long_as_a_line_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manifest");
        let read = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let folders = ContentFolders::open(&path, &[]).unwrap();
            let mut lines = Lines::open(&folders, &path, UnpackLimits::default()).unwrap();
            let (mut line, mut all) = (Vec::new(), Vec::new());
            while let Some(number) = joined(&mut lines, &mut line)? {
                all.push((number, line.clone()));
            }
            Ok::<_, HostError>(all)
        };
        let lines = read(b"a \\\n b\nc\n\nd\\").unwrap();
        let expected: [(usize, &[u8]); 4] = [(1, b"a  b"), (3, b"c"), (4, b""), (5, b"d")];
        assert_eq!(lines, expected.map(|(number, line)| (number, line.to_vec())));
        let most = vec![b'x'; usize::try_from(manifest::MAX_LINE).unwrap()];
        assert_eq!(read(&most).unwrap().len(), 1);
        for long in [[&most[..], b"x"].concat(), [&most[..9], b"\\\n", &most].concat()] {
            assert!(read(&long).unwrap_err().to_string().contains("more than 1048576 bytes"));
        }
    }
}
