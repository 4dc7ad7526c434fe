//! What a header and its records say of a member.

use std::ops::Range;

use obento_base::{DeviceNumber, Mode, Timestamp};

use super::pax::Records;
use super::{Block, field};
use crate::Xattr;

/// The type of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum MemberKind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
    /// Of a type that nobody knows; this is its flag.
    Other(u8),
}

/// One member of an archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its path, as the archive has it: `..` and all.
    pub path: Vec<u8>,
    /// Its type.
    pub kind: MemberKind,
    /// Where a link leads.
    pub link: Vec<u8>,
    /// Permission bits.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last access, if it says.
    pub atime: Option<Timestamp>,
    /// The number of a device.
    pub rdev: DeviceNumber,
    /// Length in bytes of a file, holes counted.
    pub size: u64,
    /// Where a sparse file has data, in order and apart; none for a file that is all data.
    pub map: Option<Vec<Range<u64>>>,
    /// Extended attributes, ACLs among them, sorted by name.
    pub xattrs: Vec<Xattr>,
}

impl Member {
    /// What `block` and `records` say. `path` and `link` are GNU's long names.
    pub(super) fn new(
        block: &Block,
        records: &Records,
        path: Option<Vec<u8>>,
        link: Option<Vec<u8>>,
    ) -> Result<Self, &'static str> {
        let get = |key: &str| records.get(key).map(<[u8]>::to_vec);
        let path =
            get("GNU.sparse.name").or_else(|| get("path")).or(path).unwrap_or_else(|| short_path(block));
        let link = get("linkpath").or(link).unwrap_or_else(|| field::text(&block[157..257]).to_vec());
        let kind = match block[156] {
            // Before POSIX a directory was a file whose name ends in a slash.
            0 | b'0' | b'7' if path.ends_with(b"/") => MemberKind::Directory,
            0 | b'0' | b'7' | b'S' => MemberKind::File,
            b'1' => MemberKind::HardLink,
            b'2' => MemberKind::Symlink,
            b'3' => MemberKind::CharDevice,
            b'4' => MemberKind::BlockDevice,
            b'5' | b'D' => MemberKind::Directory,
            b'6' => MemberKind::Fifo,
            other => MemberKind::Other(other),
        };
        let number = |field: std::ops::Range<usize>| field::number(block.get(field).unwrap_or_default());
        let id = |key: &str, field| match records.number(key) {
            Some(number) => number.and_then(|id| u32::try_from(id).ok()),
            None => number(field).and_then(|id| u32::try_from(id).ok()),
        };
        let device = |field| number(field).and_then(|part| u32::try_from(part).ok()).unwrap_or(0);
        let bits = number(100..108).ok_or("a mode that is none")? & 0o7777;
        let seconds = number(136..148).and_then(|secs| i64::try_from(secs).ok());
        let is_device = matches!(kind, MemberKind::CharDevice | MemberKind::BlockDevice);
        Ok(Self {
            path,
            kind,
            link,
            mode: Mode::new(u16::try_from(bits).unwrap_or(0)),
            uid: id("uid", 108..116).ok_or("an owner that is none")?,
            gid: id("gid", 116..124).ok_or("a group that is none")?,
            mtime: match records.time("mtime") {
                Some(time) => time,
                None => Timestamp::new(seconds.ok_or("a time that is none")?, 0),
            },
            atime: records.time("atime"),
            rdev: match is_device {
                true => DeviceNumber { major: device(329..337), minor: device(337..345) },
                false => DeviceNumber::default(),
            },
            size: 0,
            map: None,
            xattrs: records.xattrs(),
        })
    }

    /// Whether the size in the header is that of data which follows. With pax a hard link may bring its data; others
    /// wrote the size there and no data.
    pub(super) fn has_data(&self, records: &Records) -> bool {
        match self.kind {
            MemberKind::File | MemberKind::Other(_) => true,
            MemberKind::HardLink => records.get("size").is_some(),
            _ => false,
        }
    }
}

/// Prefix and name of ustar; GNU's headers have other things in place of the prefix.
fn short_path(block: &Block) -> Vec<u8> {
    let prefix = if &block[257..263] == b"ustar\0" { field::text(&block[345..500]) } else { b"" };
    let slash: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
    [prefix, slash, field::text(&block[..100])].concat()
}
