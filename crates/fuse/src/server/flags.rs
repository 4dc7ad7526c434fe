//! Requests by ioctl(2): flags of files (`lsattr`, `chattr`), the label, and discarding free space (`fstrim`).
//!
//! Source: Linux include/uapi/linux/fs.h, `FS_IOC_GETFLAGS`. Its number is defined with `long`, but its data is an
//! `int`.

use obento_base::{Attr, Errno, Error, FileFlags};
use obento_driver::SetAttr;
use obento_vfs::Node;

use super::{OWNER, Reply, Server, errno};

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`, which the kernel also sends before it sets flags, and `FS_IOC_FSSETXATTR`: `struct fsxattr`.
const GET_EXTENDED: u32 = 0x801c_581f;
const SET_EXTENDED: u32 = 0x401c_5820;
const GET_VERSION: u32 = 0x8008_7601;
/// `FS_IOC_GETFSLABEL`, with a buffer of `FSLABEL_MAX` bytes.
const GET_LABEL: u32 = 0x8100_9431;
const LABEL_MAX: usize = 256;
/// `FS_IOC_SETFSLABEL`, with a buffer of the same length.
const SET_LABEL: u32 = 0x4100_9432;
/// `FITRIM`: `struct fstrim_range`, of a start, a length, and the shortest range to discard, in bytes.
const TRIM: u32 = 0xc018_5879;

/// Returns whether an ioctl changes attributes of the file.
pub(crate) fn ioctl_changes(command: u32) -> bool {
    matches!(command, SET_FLAGS | SET_EXTENDED)
}

/// Returns whether an ioctl only reads attributes of the file.
pub(crate) fn ioctl_is_short(command: u32) -> bool {
    matches!(command, GET_FLAGS | GET_EXTENDED | GET_VERSION)
}

impl Server {
    /// Executes an ioctl for the user `uid`. Fails with ENOTTY if the ioctl is not supported.
    pub(crate) fn ioctl(&self, id: u64, uid: u32, command: u32, data: &[u8]) -> Reply<Vec<u8>> {
        let node = self.node(id)?;
        match command {
            GET_FLAGS => Ok(node.attr().map_err(errno)?.flags.bits().to_le_bytes().to_vec()),
            GET_VERSION => Ok(node.attr().map_err(errno)?.generation.0.to_le_bytes().to_vec()),
            GET_EXTENDED => Ok(extended(&node.attr().map_err(errno)?)),
            SET_FLAGS => {
                let flags = FileFlags::from_bits_retain(word(data, 0)?);
                let changed = flags ^ node.attr().map_err(errno)?.flags;
                if changed.contains(FileFlags::JOURNAL_DATA) {
                    // Linux requires CAP_SYS_RESOURCE.
                    expect_owner(uid)?;
                }
                if changed == FileFlags::EXTENTS {
                    // Linux converts the file, if it has few blocks. With other changes, this flag is ignored, because
                    // some programs do not read the flags before they set them.
                    return Err(Error::NotSupported.errno());
                }
                self.set_flags(id, &node, SetAttr { flags: Some(flags), ..SetAttr::default() })
            }
            SET_EXTENDED => {
                let old = node.attr().map_err(errno)?;
                let flags = Some(EXTENDED.iter().fold(old.flags, |flags, &(extended, flag)| {
                    let is_set = word(data, 0).is_ok_and(|bits| bits & extended != 0);
                    if is_set { flags | flag } else { flags - flag }
                }));
                let project = Some(word(data, 12)?).filter(|&project| project != old.project);
                self.set_flags(id, &node, SetAttr { flags, project, ..SetAttr::default() })
            }
            GET_LABEL => {
                let mut label = self.vfs.flushed_file_system().info().probe.label;
                label.resize(LABEL_MAX, 0);
                Ok(label)
            }
            SET_LABEL => self.set_label(uid, data),
            TRIM => self.trim(uid, data),
            _ => Err(Errno(libc::ENOTTY)),
        }
    }

    /// Changes the label of the volume. Fails with EPERM as [`expect_owner`] does, and with EINVAL if the format cannot
    /// store the label. A label ends at the first NUL, as in Linux (fs/ext4/ioctl.c, ext4_ioctl_setlabel).
    fn set_label(&self, uid: u32, data: &[u8]) -> Reply<Vec<u8>> {
        expect_owner(uid)?;
        let label = data.split(|byte| *byte == 0).next().unwrap_or_default();
        match self.vfs.set_label(label) {
            Err(Error::NotSupported) => Err(Errno(libc::ENOTTY)),
            done => done.map(|()| Vec::new()).map_err(errno),
        }
    }

    /// Discards the free space of the whole volume. Returns the range, with the number of discarded bytes as its
    /// length. Fails with EPERM as [`expect_owner`] does, with EINVAL for a range outside of the volume or shorter than a
    /// block, and with EOPNOTSUPP for a part of the volume.
    fn trim(&self, uid: u32, data: &[u8]) -> Reply<Vec<u8>> {
        expect_owner(uid)?;
        let (start, len, min_len) = (long(data, 0)?, long(data, 8)?, long(data, 16)?);
        let stat = self.vfs.flushed_file_system().statfs().map_err(errno)?;
        if start / u64::from(stat.block_size.max(1)) >= stat.blocks || len < stat.block_size.into() {
            return Err(Error::Invalid.errno());
        }
        if start != 0 || len < stat.blocks.saturating_mul(stat.block_size.into()) {
            return Err(Error::NotSupported.errno());
        }
        let discarded = self.vfs.trim(min_len).map_err(errno)?;
        Ok([start, discarded, min_len].into_iter().flat_map(u64::to_le_bytes).collect())
    }

    /// Changes flags. Fails with EOPNOTSUPP, and restores the old flags and project, if the format does not store one of them.
    fn set_flags(&self, id: u64, node: &Node, set: SetAttr) -> Reply<Vec<u8>> {
        let old = node.attr().map_err(errno)?;
        let new = self.vfs.set_attr(&OWNER, node, &set).map_err(errno)?;
        self.nodes.set_plain(id, false);
        let lost = set.flags.unwrap_or_default() - new.flags - COMPUTED;
        if !lost.is_empty() {
            let project = set.project.map(|_| old.project);
            let back = SetAttr { flags: Some(old.flags), project, ..SetAttr::default() };
            self.vfs.set_attr(&OWNER, node, &back).map_err(errno)?;
            return Err(Error::NotSupported.errno());
        }
        self.settled(node, Vec::new())
    }
}

/// Fails with EPERM for users other than root and the user of the server.
fn expect_owner(uid: u32) -> Reply<()> {
    let is_owner = uid == 0 || uid == rustix::process::geteuid().as_raw();
    if is_owner { Ok(()) } else { Err(Error::NotPermitted.errno()) }
}

/// Flags that describe how a file is stored. A program that changes other flags passes these as it read them.
const COMPUTED: FileFlags = FileFlags::EXTENTS
    .union(FileFlags::INDEX)
    .union(FileFlags::INLINE_DATA)
    .union(FileFlags::ENCRYPTED)
    .union(FileFlags::VERITY);

/// Bits of `fsx_xflags`, and the corresponding flags.
const EXTENDED: [(u32, FileFlags); 7] = [
    (0x8, FileFlags::IMMUTABLE),
    (0x10, FileFlags::APPEND),
    (0x20, FileFlags::SYNC),
    (0x40, FileFlags::NO_ATIME),
    (0x80, FileFlags::NO_DUMP),
    (0x200, FileFlags::PROJECT_INHERIT),
    (0x8000, FileFlags::DAX),
];

/// Encodes a `struct fsxattr`: flags, extent size, extents, project, and 12 further bytes.
fn extended(attr: &Attr) -> Vec<u8> {
    let set = EXTENDED.iter().filter(|(_, flag)| attr.flags.contains(*flag));
    let bits = set.fold(0, |bits, (extended, _)| bits | extended);
    let words = [bits, 0, 0, attr.project, 0, 0, 0];
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Returns the 64-bit number at `offset`. Fails with `Invalid` if the data is too short.
fn long(data: &[u8], offset: usize) -> Reply<u64> {
    let bytes = data.get(offset..).and_then(|data| data.first_chunk());
    bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or_else(|| Error::Invalid.errno())
}

/// Returns the 32-bit number at `offset`. Fails with `Invalid` if the data is too short.
fn word(data: &[u8], offset: usize) -> Reply<u32> {
    let bytes = data.get(offset..).and_then(|data| data.first_chunk());
    bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(|| Error::Invalid.errno())
}
