//! Per-file flags: `lsattr` and `chattr`, which ask by ioctl(2).
//!
//! Source: Linux include/uapi/linux/fs.h, `FS_IOC_GETFLAGS`; with `long` in its number and `int` in its data.

use obento::{Attr, Error, FileFlags, Node, SetAttr};

use super::{OWNER, Reply, Server, errno};

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`, with which the kernel asks before it sets anything: `struct fsxattr`.
const GET_EXTENDED: u32 = 0x801c_581f;
const SET_EXTENDED: u32 = 0x401c_5820;
const GET_VERSION: u32 = 0x8008_7601;

impl Server {
    /// Answers an ioctl; ENOTTY for what is none of a file system.
    pub(crate) fn ioctl(&self, id: u64, command: u32, data: &[u8]) -> Reply<Vec<u8>> {
        let node = self.node(id)?;
        match command {
            GET_FLAGS => Ok(node.attr().map_err(errno)?.flags.bits().to_le_bytes().to_vec()),
            GET_VERSION => Ok(node.attr().map_err(errno)?.generation.0.to_le_bytes().to_vec()),
            GET_EXTENDED => Ok(extended(&node.attr().map_err(errno)?)),
            SET_FLAGS => {
                let flags = FileFlags::from_bits_retain(word(data, 0)?);
                self.set_flags(id, &node, SetAttr { flags: Some(flags), ..SetAttr::default() })
            }
            SET_EXTENDED => {
                let old = node.attr().map_err(errno)?.flags;
                let flags = Some(EXTENDED.iter().fold(old, |flags, &(extended, flag)| {
                    let is_set = word(data, 0).is_ok_and(|bits| bits & extended != 0);
                    if is_set { flags | flag } else { flags - flag }
                }));
                let project = Some(word(data, 12)?);
                self.set_flags(id, &node, SetAttr { flags, project, ..SetAttr::default() })
            }
            _ => Err(obento::Errno(libc::ENOTTY)),
        }
    }

    fn set_flags(&self, id: u64, node: &Node, set: SetAttr) -> Reply<Vec<u8>> {
        self.vfs.set_attr(&OWNER, node, &set).map_err(errno)?;
        self.nodes.set_plain(id, false);
        self.settled(node, Vec::new())
    }
}

/// Bits of `fsx_xflags`, and the flags that they stand for.
const EXTENDED: [(u32, FileFlags); 6] = [
    (0x8, FileFlags::IMMUTABLE),
    (0x10, FileFlags::APPEND),
    (0x20, FileFlags::SYNC),
    (0x40, FileFlags::NO_ATIME),
    (0x80, FileFlags::NO_DUMP),
    (0x200, FileFlags::PROJECT_INHERIT),
];

/// A `struct fsxattr`: flags, extent size, extents, project, and 12 bytes more.
fn extended(attr: &Attr) -> Vec<u8> {
    let set = EXTENDED.iter().filter(|(_, flag)| attr.flags.contains(*flag));
    let bits = set.fold(0, |bits, (extended, _)| bits | extended);
    let words = [bits, 0, 0, attr.project, 0, 0, 0];
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// The number at `offset`. Errors: Invalid if it is not there.
fn word(data: &[u8], offset: usize) -> Reply<u32> {
    let bytes = data.get(offset..).and_then(|data| data.first_chunk());
    bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(|| Error::Invalid.errno())
}
