//! A tree as a sorted list of entries, read from a tar stream, for comparing two readers.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufReader, Read};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::tar_stream::{self, Member, Pax};

/// One file, with all attributes of a pax archive.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// `file`, `dir`, `symlink`, `hardlink`, `char 1:3`, `block 8:0`, `fifo`.
    pub kind: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u64, u64),
    /// Seconds and nanoseconds of the last change of data.
    pub mtime: (i64, u32),
    /// Length in bytes.
    pub size: u64,
    /// Hash of the blocks that are not zero and of their positions, which does not depend on the holes.
    pub content: String,
    /// Data ranges of a file stored as sparse: (offset, length).
    pub map: Option<Vec<(u64, u64)>>,
    /// Target of a link.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// Entries by path, without a leading `./` and a trailing `/`; the root is the empty path.
pub type Entries = BTreeMap<Vec<u8>, Entry>;

/// Reads a tar stream: ustar, GNU and pax, with GNU's sparse format 1.0, and extended attributes as GNU tar stores
/// them.
///
/// If a file has several names, the first one in byte order becomes the file and the others become links. The order in
/// the stream does not matter.
pub fn from_tar(stream: impl Read) -> Result<Entries> {
    let mut entries = Entries::new();
    tar_stream::members(BufReader::with_capacity(1 << 16, stream), |member, data| {
        let path = normal(&member.path);
        ensure!(!entries.contains_key(&path), "the archive has it twice");
        entries.insert(path, read_entry(member, data)?);
        Ok(())
    })?;
    sort_links(&mut entries)?;
    Ok(entries)
}

fn read_entry(member: &Member, data: &mut dyn Read) -> Result<Entry> {
    let mut entry = Entry {
        mode: member.mode()?,
        owner: member.owner()?,
        mtime: match member.pax.get("mtime") {
            Some(text) => parse_time(std::str::from_utf8(text)?)?,
            None => (i64::try_from(member.mtime()?)?, 0),
        },
        target: member.link.clone(),
        ..Entry::default()
    };
    for (key, value) in &member.pax {
        if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
            entry.xattrs.insert(name.to_owned(), value.clone());
        }
    }
    let device = |kind| member.device().map(|(major, minor)| format!("{kind} {major}:{minor}"));
    entry.kind = match member.flag() {
        b'0' | b'7' | 0 => {
            read_content(data, &member.pax, &mut entry)?;
            "file".into()
        }
        b'1' => "hardlink".into(),
        b'2' => "symlink".into(),
        b'3' => device("char")?,
        b'4' => device("block")?,
        b'5' => "dir".into(),
        b'6' => "fifo".into(),
        other => bail!("a member of type {other:#x}"),
    };
    Ok(entry)
}

fn number(pax: &Pax, key: &str) -> Result<Option<u64>> {
    pax.get(key).map(|value| Ok(std::str::from_utf8(value)?.parse()?)).transpose()
}

fn parse_time(text: &str) -> Result<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse()?;
    let nanos: u32 = format!("{fraction:0<9}")[..9].parse()?;
    // `-1.25` is a quarter of a second before -1: the sign of pax applies to the whole number.
    Ok(if text.starts_with('-') && nanos > 0 { (secs - 1, 1_000_000_000 - nanos) } else { (secs, nanos) })
}

fn read_content(mut file: &mut dyn Read, pax: &Pax, entry: &mut Entry) -> Result<()> {
    let mut hash = ContentHash::default();
    if pax.contains_key("GNU.sparse.major") {
        let map = sparse_map(&mut file)?;
        for &(offset, len) in &map {
            hash.update_from(offset, &mut (&mut file).take(len))?;
        }
        entry.size = number(pax, "GNU.sparse.realsize")?.context("a sparse file without its size")?;
        entry.map = Some(map.into_iter().filter(|&(_, len)| len > 0).collect());
    } else {
        entry.size = hash.update_from(0, &mut file)?;
    }
    entry.content = hash.finish();
    Ok(())
}

/// Reads the map of GNU sparse format 1.0, which precedes the data: a decimal number per line, padded to 512 bytes.
fn sparse_map(file: &mut impl Read) -> Result<Vec<(u64, u64)>> {
    let mut read = 0_usize;
    let mut next = || -> Result<u64> {
        let mut value = 0_u64;
        loop {
            let mut byte = [0];
            file.read_exact(&mut byte)?;
            read += 1;
            match byte[0] {
                b'\n' => return Ok(value),
                digit @ b'0'..=b'9' => value = value * 10 + u64::from(digit - b'0'),
                other => bail!("byte {other:#x} in a sparse map"),
            }
        }
    };
    let count = next()?;
    let map = (0..count).map(|_| Ok((next()?, next()?))).collect::<Result<Vec<_>>>()?;
    let mut padding = vec![0; read.next_multiple_of(512) - read];
    file.read_exact(&mut padding)?;
    Ok(map)
}

/// A hash of a file's content that does not depend on holes: over every 4 KiB block that is not all zeros, with its
/// position.
#[derive(Default)]
pub struct ContentHash(Sha256, bool);

impl ContentHash {
    const BLOCK: usize = 4096;

    /// Adds the bytes of `source`, which are at `offset`. The offset is a multiple of 4 KiB, or the block contains no
    /// earlier data. Returns the number of bytes.
    pub fn update_from(&mut self, offset: u64, source: &mut impl Read) -> Result<u64> {
        let mut at = offset;
        let mut block = vec![0; Self::BLOCK];
        loop {
            let within = usize::try_from(at % 4096)?;
            let mut filled = 0;
            while filled < Self::BLOCK - within {
                match source.read(&mut block[filled..Self::BLOCK - within])? {
                    0 => break,
                    n => filled += n,
                }
            }
            if filled == 0 {
                return Ok(at - offset);
            }
            self.update(at, &block[..filled]);
            at += u64::try_from(filled)?;
        }
    }

    fn update(&mut self, at: u64, bytes: &[u8]) {
        // Leading and trailing zeros are skipped, so that the start and end of a run do not matter.
        let Some(first) = bytes.iter().position(|&b| b != 0) else { return };
        let last = bytes.iter().rposition(|&b| b != 0).unwrap_or(first);
        self.0.update((at + first as u64).to_le_bytes());
        self.0.update(&bytes[first..=last]);
        self.1 = true;
    }

    /// Returns the hash in hexadecimal; empty for a file of zeros and for an empty file.
    pub fn finish(self) -> String {
        if self.1 {
            self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
        } else {
            String::new()
        }
    }
}

fn normal(path: &[u8]) -> Vec<u8> {
    let path = path.strip_prefix(b".").unwrap_or(path);
    let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
    let end = path.iter().rposition(|&b| b != b'/').map_or(start, |last| last + 1);
    path[start..end].to_vec()
}

/// Makes the first name in byte order of each file with several names the file.
fn sort_links(entries: &mut Entries) -> Result<()> {
    let mut groups: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for (path, entry) in entries.iter().filter(|(_, entry)| entry.kind == "hardlink") {
        groups.entry(normal(&entry.target)).or_default().push(path.clone());
    }
    for (original, mut names) in groups {
        let file = entries
            .remove(&original)
            .with_context(|| format!("link to {original:?}, which does not exist"))?;
        names.push(original);
        names.sort();
        for name in &names[1..] {
            let link = Entry { kind: "hardlink".into(), target: names[0].clone(), ..Entry::default() };
            entries.insert(name.clone(), link);
        }
        entries.insert(names[0].clone(), file);
    }
    Ok(())
}

/// The first differences between two lists, as text; empty if they are equal.
pub struct Differences(Vec<String>);

impl Differences {
    /// Compares `found` with `expected`, entry by entry. Holes are compared only if tar looks for them: in files with
    /// fewer blocks than their size requires, and therefore not in preallocated files.
    pub fn between(expected: &Entries, found: &Entries) -> Self {
        let show = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let mut lines = Vec::new();
        for (path, entry) in expected {
            match found.get(path) {
                None => lines.push(format!("{}: missing", show(path))),
                Some(other) if !is_same(entry, other) => {
                    lines.push(format!("{}:\n  expected {entry:?}\n  found    {other:?}", show(path)));
                }
                Some(_) => {}
            }
        }
        lines.extend(
            found.keys().filter(|path| !expected.contains_key(*path)).map(|p| format!("{}: extra", show(p))),
        );
        Self(lines)
    }

    /// Returns whether the two are equal.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} differences", self.0.len())?;
        self.0.iter().take(10).try_for_each(|line| writeln!(f, "{:.2000}", line))
    }
}

fn is_same(expected: &Entry, found: &Entry) -> bool {
    let map = if expected.map.is_some() { found.map.clone() } else { None };
    *expected == Entry { map, ..found.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_1970_counts_its_fraction_forward() {
        assert_eq!(parse_time("12.5").unwrap(), (12, 500_000_000));
        assert_eq!(parse_time("-12344.321098766").unwrap(), (-12345, 678_901_234));
        assert_eq!(parse_time("-3").unwrap(), (-3, 0));
    }

    #[test]
    fn a_hash_does_not_depend_on_where_the_holes_are() {
        let mut dense = ContentHash::default();
        let mut bytes = vec![0; 20_000];
        bytes[9000..9010].fill(7);
        dense.update_from(0, &mut &bytes[..]).unwrap();
        let mut sparse = ContentHash::default();
        sparse.update_from(8192, &mut &bytes[8192..12288]).unwrap();
        assert_eq!(dense.finish(), sparse.finish());
        assert_eq!(ContentHash::default().finish(), "");
    }

    #[test]
    fn the_list_does_not_depend_on_the_order_of_a_files_names_in_the_stream() {
        let archive = |file: &str, link: &str| {
            let mut builder = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.set_size(2);
            header.set_cksum();
            builder.append_data(&mut header, file, &b"hi"[..]).unwrap();
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Link);
            header.set_size(0);
            builder.append_link(&mut header, link, file).unwrap();
            from_tar(&builder.into_inner().unwrap()[..]).unwrap()
        };
        assert_eq!(archive("./a", "b"), archive("b", "a"));
    }
}
