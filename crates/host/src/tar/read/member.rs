//! A member of an archive, decoded from its header and records.

use std::ops::Range;
use std::sync::Arc;

use obento_base::{DeviceNumber, Mode, Timestamp};

use super::pax::MemberRecords;
use super::{Block, field};
use crate::Xattr;

/// The type of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names describe the fields")]
pub enum MemberKind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
    /// The rest of a file that begins on another volume of a multi-volume archive.
    Continued,
    /// A member of an unknown type, with its flag. POSIX treats it as a regular file.
    Other(u8),
}

impl MemberKind {
    /// Returns whether the member is unpacked as a regular file.
    pub fn is_file(self) -> bool {
        matches!(self, Self::File | Self::Other(_))
    }
}

/// One member of an archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The path as stored in the archive, including `..`.
    pub path: Vec<u8>,
    /// The type.
    pub kind: MemberKind,
    /// The target of a link.
    pub link: Vec<u8>,
    /// Permission bits.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last access, if the archive stores it.
    pub atime: Option<Timestamp>,
    /// The number of a device.
    pub rdev: DeviceNumber,
    /// The length of a file in bytes, including holes.
    pub size: u64,
    /// The data ranges of a sparse file, in order and separated by holes. `None` for a file without holes.
    pub map: Option<Vec<Range<u64>>>,
    /// Extended attributes, including ACLs, sorted by name.
    pub xattrs: Arc<[Xattr]>,
    /// The bytes of global headers, which count for each member.
    pub(super) repeated: u64,
}

/// The usual block of a file system. Each directory has one.
pub const FS_BLOCK: u64 = 4096;

impl Member {
    /// Returns how many bytes more than the archive contains the member needs: the blocks of a sparse file, in which a
    /// run of one byte needs a block, and the attributes and names in global headers.
    pub fn additional(&self) -> u64 {
        let mut end = 0;
        let paddings = self.map.iter().flatten().filter(|run| !run.is_empty()).map(|run| {
            let first = (run.start / FS_BLOCK).max(end);
            end = run.end.div_ceil(FS_BLOCK).max(end);
            (end - first).saturating_mul(FS_BLOCK).saturating_sub(run.end - run.start)
        });
        paddings.fold(self.repeated, u64::saturating_add)
    }
}

/// The path of a member, and the target if the member is a link.
pub(super) struct Names {
    pub path: Vec<u8>,
    link: Vec<u8>,
}

impl Names {
    /// Reads the names from `block` and `records`. `path` and `link` are GNU's long names.
    pub(super) fn new(
        block: &Block,
        records: &MemberRecords,
        path: Option<Vec<u8>>,
        link: Option<Vec<u8>>,
    ) -> Self {
        let get = |key: &str| records.get(key).map(<[u8]>::to_vec);
        let path = get("GNU.sparse.name").or_else(|| get("path")).or(path);
        let link = get("linkpath").or(link);
        Self {
            path: path.unwrap_or_else(|| short_path(block)),
            link: link.unwrap_or_else(|| field::text(&block[157..257]).to_vec()),
        }
    }

    /// Returns the lengths of the names in bytes.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        [self.path.len(), self.link.len()].into_iter()
    }

    /// Returns the type of the member.
    pub(super) fn kind(&self, block: &Block) -> MemberKind {
        match block[156] {
            // Before POSIX, a directory was a file whose name ends in a slash.
            0 | b'0' | b'7' if self.path.ends_with(b"/") => MemberKind::Directory,
            0 | b'0' | b'7' | b'S' => MemberKind::File,
            b'1' => MemberKind::HardLink,
            b'2' => MemberKind::Symlink,
            b'3' => MemberKind::CharDevice,
            b'4' => MemberKind::BlockDevice,
            b'5' | DUMP_DIR => MemberKind::Directory,
            b'6' => MemberKind::Fifo,
            b'M' => MemberKind::Continued,
            other => MemberKind::Other(other),
        }
    }
}

/// `GNUTYPE_DUMPDIR`: a directory of an incremental archive, whose data lists its names.
const DUMP_DIR: u8 = b'D';

/// Returns whether data of the size in the header follows. With pax, a hard link may contain data. Other
/// programs stored the size in a hard link without data.
pub(super) fn has_data(block: &Block, kind: MemberKind, records: &MemberRecords) -> bool {
    match kind {
        MemberKind::File | MemberKind::Other(_) | MemberKind::Continued => true,
        MemberKind::Directory => block[156] == DUMP_DIR,
        MemberKind::HardLink => records.get("size").is_some(),
        _ => false,
    }
}

impl Member {
    /// Decodes `block` and `records`. Fails with the reason if a field cannot be represented.
    pub(super) fn new(
        block: &Block,
        records: &MemberRecords,
        names: Names,
        kind: MemberKind,
    ) -> Result<Self, &'static str> {
        let number = |field: std::ops::Range<usize>| field::number(block.get(field).unwrap_or_default());
        let id = |key: &str, field| match records.number(key) {
            Some(number) => number.and_then(|id| u32::try_from(id).ok()),
            None => number(field).and_then(|id| u32::try_from(id).ok()),
        };
        let device = |field| number(field).and_then(|part| u32::try_from(part).ok()).ok_or(NO_DEVICE);
        let bits = number(100..108).ok_or("the mode is not a number")? & 0o7777;
        let seconds = number(136..148).and_then(|secs| i64::try_from(secs).ok());
        let is_device = matches!(kind, MemberKind::CharDevice | MemberKind::BlockDevice);
        Ok(Self {
            path: names.path,
            kind,
            link: names.link,
            mode: Mode::new(u16::try_from(bits).unwrap_or(0)),
            uid: id("uid", 108..116).ok_or("the owner is not a number of 32 bits")?,
            gid: id("gid", 116..124).ok_or("the group is not a number of 32 bits")?,
            mtime: match records.time("mtime") {
                Some(time) => time,
                None => Timestamp::new(seconds.ok_or("the modification time is not a number")?, 0),
            },
            atime: records.time("atime"),
            rdev: match is_device {
                true => DeviceNumber { major: device(329..337)?, minor: device(337..345)? },
                false => DeviceNumber::default(),
            },
            size: 0,
            map: None,
            xattrs: records.xattrs(),
            repeated: records.repeated(),
        })
    }
}

const NO_DEVICE: &str = "the device number is not a number of 32 bits";

/// Returns prefix and name of ustar. GNU's headers have other fields in place of the prefix.
fn short_path(block: &Block) -> Vec<u8> {
    let prefix = if &block[257..263] == b"ustar\0" { field::text(&block[345..500]) } else { b"" };
    let slash: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
    [prefix, slash, field::text(&block[..100])].concat()
}
