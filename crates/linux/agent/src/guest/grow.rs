//! Growing the mounted volume into its disk.
//!
//! Source: Linux 6.1, fs/xfs/libxfs/xfs_fs.h; include/uapi/linux/btrfs.h.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use obento_linux_wire::Answer;

use super::errno::{Errno, last_error};

/// `XFS_IOC_FSGEOMETRY_V1`: `_IOR('X', 100, struct xfs_fsop_geom_v1)`, whose argument has 112 bytes.
const XFS_GEOMETRY: libc::c_ulong = 0x8070_5864;
/// `XFS_IOC_FSGROWFSDATA`: `_IOW('X', 110, struct xfs_growfs_data)`.
const XFS_GROW: libc::c_ulong = 0x4010_586e;
/// `BTRFS_IOC_FS_INFO`: `_IOR(BTRFS_IOCTL_MAGIC, 31, struct btrfs_ioctl_fs_info_args)`, whose argument has 1024 bytes.
const BTRFS_INFO: libc::c_ulong = 0x8400_941f;
/// `BTRFS_IOC_RESIZE`: `_IOW(BTRFS_IOCTL_MAGIC, 3, struct btrfs_ioctl_vol_args)`, whose argument has 4096 bytes.
const BTRFS_RESIZE: libc::c_ulong = 0x5000_9403;

/// The start of `struct xfs_fsop_geom_v1`, and the length of the rest.
#[repr(C)]
#[derive(Default)]
struct XfsGeometry {
    block_size: u32,
    others: [u32; 6],
    /// The percentage of the volume that inodes may use.
    inode_percent: u32,
    rest: [u64; 10],
}

#[repr(C)]
struct XfsGrow {
    blocks: u64,
    inode_percent: u32,
}

#[repr(C)]
struct BtrfsInfo {
    /// The largest ID of a device, which is the only one.
    max_id: u64,
    rest: [u64; 127],
}

#[repr(C)]
struct BtrfsResize {
    descriptor: i64,
    /// The device and its new length in bytes, with a final NUL.
    words: [u8; 4088],
}

/// Grows the volume of the type `kind` to `len` bytes. `root` is its root directory.
pub fn grow(kind: &CStr, root: BorrowedFd<'_>, len: u64) -> Result<Answer, Errno> {
    match kind.to_bytes() {
        b"xfs" => grow_xfs(root, len)?,
        b"btrfs" => grow_btrfs(root, len)?,
        _ => return Err(libc::EOPNOTSUPP.unsigned_abs()),
    }
    Ok(Answer::Done {})
}

fn grow_xfs(root: BorrowedFd<'_>, len: u64) -> Result<(), Errno> {
    let mut found = XfsGeometry::default();
    // SAFETY: the request writes a structure of this length.
    expect_zero(unsafe { libc::ioctl(root.as_raw_fd(), XFS_GEOMETRY, &raw mut found) })?;
    let blocks = len.checked_div(found.block_size.into()).ok_or(libc::EINVAL.unsigned_abs())?;
    let wanted = XfsGrow { blocks, inode_percent: found.inode_percent };
    // SAFETY: the request reads a structure with this layout.
    expect_zero(unsafe { libc::ioctl(root.as_raw_fd(), XFS_GROW, &raw const wanted) })
}

fn grow_btrfs(root: BorrowedFd<'_>, len: u64) -> Result<(), Errno> {
    let mut found = BtrfsInfo { max_id: 0, rest: [0; 127] };
    // SAFETY: the request writes a structure of this length.
    expect_zero(unsafe { libc::ioctl(root.as_raw_fd(), BTRFS_INFO, &raw mut found) })?;
    let mut wanted = BtrfsResize { descriptor: 0, words: [0; 4088] };
    for (byte, word) in wanted.words.iter_mut().zip(format!("{}:{len}", found.max_id).bytes()) {
        *byte = word;
    }
    // SAFETY: the request reads a structure with this layout.
    expect_zero(unsafe { libc::ioctl(root.as_raw_fd(), BTRFS_RESIZE, &raw const wanted) })
}

fn expect_zero(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

const _: () = assert!(size_of::<XfsGeometry>() == 112 && size_of::<XfsGrow>() == 16);
const _: () = assert!(size_of::<BtrfsInfo>() == 1024 && size_of::<BtrfsResize>() == 4096);
