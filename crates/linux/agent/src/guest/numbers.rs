//! One number for each inode of the volume.
//!
//! Btrfs has an inode 256 in every subvolume; `stat(2)` distinguishes them by a device number that the kernel chooses at each
//! mount. The number of the subvolume is on disk, so it is stored above the bits of the inode number.
//! Source: include/uapi/linux/btrfs.h `BTRFS_IOC_INO_LOOKUP`.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Mode, OFlags, Statx, openat};

/// The bits of inode numbers of a subvolume, below the number of the subvolume.
const INODE_BITS: u32 = 40;
/// `_IOWR(BTRFS_IOCTL_MAGIC, 18, struct btrfs_ioctl_ino_lookup_args)`, whose argument has 4096 bytes.
const INO_LOOKUP: libc::c_ulong = 0xd000_9412;
/// `BTRFS_FIRST_FREE_OBJECTID`: the root directory of every subvolume.
const SUBVOLUME_ROOT: u64 = 256;

#[repr(C)]
struct InoLookup {
    tree: u64,
    object: u64,
    name: [u8; 4080],
}

type Device = (u32, u32);

/// The devices that `stat(2)` reports for inodes of the volume.
#[derive(Default)]
pub struct Numbers {
    root: Option<Device>,
    trees: HashMap<Device, u64>,
}

impl Numbers {
    /// Records the device of the root.
    pub fn start(&mut self, root: &Statx) {
        self.root = Some(device(root));
    }

    /// Returns the number of the inode of `found`, which has the name `name` in `dir`.
    pub fn of(&mut self, dir: impl AsFd, name: &std::ffi::CStr, found: &Statx) -> u64 {
        let device = device(found);
        if self.root == Some(device) {
            return found.stx_ino;
        }
        let tree = *self.trees.entry(device).or_insert_with(|| tree_of(dir, name).unwrap_or(0));
        tree.checked_shl(INODE_BITS).map_or(found.stx_ino, |high| high | found.stx_ino)
    }
}

fn device(stat: &Statx) -> Device {
    (stat.stx_dev_major, stat.stx_dev_minor)
}

/// Returns the number of the subvolume whose root is `name` in `dir`.
fn tree_of(dir: impl AsFd, name: &std::ffi::CStr) -> Option<u64> {
    let root =
        openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let mut asked = InoLookup { tree: 0, object: SUBVOLUME_ROOT, name: [0; 4080] };
    // SAFETY: the request uses a structure with this layout and length, and writes nothing else.
    let done = unsafe { libc::ioctl(root.as_raw_fd(), INO_LOOKUP, &raw mut asked) };
    (done == 0).then_some(asked.tree)
}
