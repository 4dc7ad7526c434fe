//! The ustar header, and the records for values that do not fit it.
//!
//! Layout (POSIX.1-2017, `pax`, "ustar Interchange Format"): name 0..100, mode 100..108, uid 108..116, gid
//! 116..124, size 124..136, mtime 136..148, chksum 148..156, typeflag 156, linkname 157..257, magic 257..263,
//! version 263..265, devmajor 329..337, devminor 337..345. Numbers are octal and end with a NUL.

use std::ops::Range;

use obento_base::{DeviceNumber, Timestamp};

use super::acl;
use super::records::RecordsBuilder;
use crate::{Metadata, Xattr};

/// The unit of an archive in bytes.
pub(super) const BLOCK: usize = 512;
const NAME: Range<usize> = 0..100;
const LINK_NAME: Range<usize> = 157..257;
/// The largest numbers of seven and eleven octal digits.
const MAX_SHORT: u64 = 0o7_777_777;
const MAX_LONG: u64 = 0o77_777_777_777;

/// The type flag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
    Extended,
}

impl Kind {
    fn flag(self) -> u8 {
        match self {
            Self::File => b'0',
            Self::HardLink => b'1',
            Self::Symlink => b'2',
            Self::CharDevice => b'3',
            Self::BlockDevice => b'4',
            Self::Directory => b'5',
            Self::Fifo => b'6',
            Self::Extended => b'x',
        }
    }
}

/// The header of one entry.
pub(super) struct TarHeader<'a> {
    kind: Kind,
    pub path: Vec<u8>,
    pub target: Vec<u8>,
    pub size: u64,
    pub rdev: DeviceNumber,
    pub xattrs: &'a [Xattr],
    mode: u16,
    uid: u32,
    gid: u32,
    times: [Timestamp; 3],
}

impl<'a> TarHeader<'a> {
    pub fn new(kind: Kind, path: &[u8], meta: &Metadata<'a>) -> Self {
        Self {
            kind,
            path: path.into(),
            target: Vec::new(),
            size: 0,
            rdev: DeviceNumber::default(),
            xattrs: meta.xattrs,
            mode: meta.mode.bits(),
            uid: meta.uid,
            gid: meta.gid,
            times: [meta.mtime, meta.atime, meta.ctime],
        }
    }

    /// Adds the values that [`TarHeader::block`] cannot store to `records`.
    pub fn add_records(&self, records: &mut RecordsBuilder) {
        let names = [(&self.path, NAME, "path"), (&self.target, LINK_NAME, "linkpath")];
        if names.iter().any(|(name, ..)| std::str::from_utf8(name).is_err()) {
            // Without this record, values are UTF-8.
            records.add("hdrcharset", b"BINARY");
        }
        for (name, room, keyword) in names {
            if name.len() > room.len() || !name.is_ascii() {
                records.add(keyword, name);
            }
        }
        for (number, max, keyword) in [
            (self.size, MAX_LONG, "size"),
            (self.uid.into(), MAX_SHORT, "uid"),
            (self.gid.into(), MAX_SHORT, "gid"),
        ] {
            if number > max {
                records.add_number(keyword, number);
            }
        }
        let [mtime, atime, ctime] = self.times;
        if mtime.nanos() != 0 || whole_seconds(mtime).is_none() {
            records.add_time("mtime", mtime);
        }
        records.add_time("atime", atime);
        records.add_time("ctime", ctime);
        for xattr in self.xattrs {
            records.add_xattr(&xattr.name, &xattr.value);
            // GNU tar sets ACLs from these records with `--acls`, and from the attributes with `--xattrs`
            // alone.
            let keyword = match xattr.name.as_slice() {
                b"system.posix_acl_access" => "SCHILY.acl.access",
                b"system.posix_acl_default" => "SCHILY.acl.default",
                _ => continue,
            };
            if let Some(text) = acl::to_text(&xattr.value) {
                records.add(keyword, text.as_bytes());
            }
        }
    }

    /// Returns the ustar header. A value that does not fit its field is truncated or 0 there, and complete in
    /// the extended header.
    pub fn block(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        text(&mut block, NAME, &self.path);
        octal(&mut block, 100..108, self.mode.into());
        octal(&mut block, 108..116, fitting(self.uid.into(), MAX_SHORT));
        octal(&mut block, 116..124, fitting(self.gid.into(), MAX_SHORT));
        octal(&mut block, 124..136, fitting(self.size, MAX_LONG));
        octal(&mut block, 136..148, whole_seconds(self.times[0]).unwrap_or(0));
        text(&mut block, 156..157, &[self.kind.flag()]);
        text(&mut block, LINK_NAME, &self.target);
        text(&mut block, 257..265, b"ustar\x0000");
        octal(&mut block, 329..337, self.rdev.major.into());
        octal(&mut block, 337..345, self.rdev.minor.into());
        seal(&mut block);
        block
    }
}

/// Returns the header before the records of the entry `path`, of `len` bytes.
pub(super) fn extended(path: &[u8], len: u64) -> [u8; BLOCK] {
    let header = TarHeader {
        kind: Kind::Extended,
        path: beside(path, "PaxHeaders"),
        target: Vec::new(),
        size: len,
        rdev: DeviceNumber::default(),
        xattrs: &[],
        mode: 0o644,
        uid: 0,
        gid: 0,
        times: [Timestamp::EPOCH; 3],
    };
    header.block()
}

/// Returns a name for data that belongs to the entry `path`: its last component in `folder` beside it. The
/// name is short enough for a header, and ASCII, so that it needs no records of its own.
pub(super) fn beside(path: &[u8], folder: &str) -> Vec<u8> {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    let last = trimmed.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut name = folder.as_bytes().to_vec();
    name.push(b'/');
    let room = NAME.len() - name.len();
    name.extend(last.iter().take(room).map(|&byte| if byte.is_ascii() { byte } else { b'_' }));
    name
}

fn fitting(number: u64, max: u64) -> u64 {
    if number <= max { number } else { 0 }
}

/// Returns the seconds of `time` if a header can store them.
fn whole_seconds(time: Timestamp) -> Option<u64> {
    u64::try_from(time.secs()).ok().filter(|&secs| secs <= MAX_LONG)
}

fn text(block: &mut [u8; BLOCK], field: Range<usize>, bytes: &[u8]) {
    let room = block.get_mut(field).unwrap_or_default();
    room.iter_mut().zip(bytes).for_each(|(place, &byte)| *place = byte);
}

fn octal(block: &mut [u8; BLOCK], field: Range<usize>, number: u64) {
    let digits = field.len() - 1;
    text(block, field, format!("{number:0digits$o}").as_bytes());
}

/// Stores the sum of all bytes, with spaces in its own field: six digits, a NUL and a space.
fn seal(block: &mut [u8; BLOCK]) {
    text(block, 148..156, b"        ");
    let sum: u64 = block.iter().copied().map(u64::from).sum();
    text(block, 148..156, format!("{sum:06o}\0 ").as_bytes());
}
