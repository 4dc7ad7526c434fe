//! The table of precedence. It decides which of several signatures on one device counts.
//!
//! The order and the classes are those of libblkid (util-linux, libblkid/src/superblocks/superblocks.c
//! `idinfos` and `superblocks_safeprobe`; the `usage` and the `flags` of each type). They decide which type
//! mount(8) opens.

/// The rule by which a type shares a device with other types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// The type wraps other data: RAID, encryption, logical volumes. The first type of this class counts, and
    /// the types after it do not (`BLKID_USAGE_RAID`, `BLKID_USAGE_CRYPTO`).
    Container,
    /// If any other type claims the device, the device is ambiguous.
    Alone,
    /// Types of this class may share a device, and the first type counts. A bridge disc is UDF and ISO 9660; an Apple
    /// hybrid is ISO 9660 and HFS (`BLKID_IDINFO_TOLERANT`).
    Shared,
    /// libblkid does not support the type, so mount(8) tries the type after all others. The type counts if no other
    /// type claims the device.
    Last,
}

use Class::{Alone, Container, Last, Shared};

/// The types in the order of libblkid. A type that is not listed belongs to a driver of the application.
#[rustfmt::skip]
const PRECEDENCE: &[(&str, Class)] = &[
    ("linux_raid_member", Container), ("ddf_raid_member", Container), ("isw_raid_member", Container),
    ("lsi_mega_raid_member", Container), ("nvidia_raid_member", Container), ("promise_fasttrack_raid_member", Container),
    ("bcache", Alone), ("bcachefs", Alone), ("ceph_bluestore", Alone),
    ("drbd", Container), ("drbdmanage_control_volume", Alone), ("drbdproxy_datalog", Alone),
    ("LVM2_member", Container), ("DM_snapshot_cow", Alone), ("DM_verity_hash", Container), ("DM_integrity", Container),
    ("crypto_LUKS", Container), ("VMFS_volume_member", Container), ("ubi", Container), ("vdo", Alone),
    ("stratis", Container), ("BitLocker", Container),
    ("vfat", Alone), ("swsuspend", Alone), ("swap", Alone), ("xfs", Alone), ("exfs", Alone),
    ("xv6", Alone), ("ext4", Alone), ("reiserfs", Alone), ("reiser4", Alone), ("jfs", Alone),
    ("udf", Shared), ("iso9660", Shared), ("high_sierra", Shared),
    ("zfs_member", Alone), ("hfsplus", Alone), ("hfs", Shared), ("ufs", Alone), ("ufs1", Alone), ("ufs-hp", Alone),
    ("hpfs", Alone), ("sysv", Alone), ("ntfs", Alone), ("ReFS", Alone), ("cramfs", Alone), ("romfs", Alone),
    ("minix", Alone), ("minix2", Alone), ("minix1", Alone), ("gfs2", Alone),
    ("ocfs", Alone), ("ocfs2", Alone), ("oracleasm", Alone), ("vxfs", Alone), ("squashfs", Alone), ("squashfs3", Alone),
    ("nss", Alone), ("btrfs", Alone), ("ubifs", Alone), ("bfs", Alone), ("VMFS", Alone), ("befs", Alone),
    ("nilfs2", Alone), ("exfat", Alone), ("f2fs", Alone), ("mpool", Alone), ("apfs", Alone), ("zonefs", Alone),
    ("erofs", Alone),
    ("omfs", Last), ("qnx6", Last), ("efs", Last), ("affs", Last), ("jffs2", Last), ("lfs", Last),
];

/// The size of a floppy disk. On a device up to this size, libblkid looks for no container and uses the first
/// signature (libblkid/src/probe.c, `BLKID_FL_TINY_DEV`).
pub const TINY: u64 = 1440 << 10;

/// Returns the position of a type in the table, and its class. A type that the application adds comes first and has
/// the class `Alone`.
pub fn rank(name: &str) -> (usize, Class) {
    let row = PRECEDENCE.iter().position(|(known, _)| *known == name);
    row.and_then(|at| Some((at.checked_add(1)?, PRECEDENCE.get(at)?.1))).unwrap_or((0, Alone))
}

/// Returns whether mount(8) opens the whole image if it has this type and a partition table: a type of
/// optical discs.
pub fn is_disc(name: &str) -> bool {
    ["udf", "iso9660", "high_sierra"].contains(&name)
}

#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    PRECEDENCE.iter().map(|(name, _)| *name)
}
