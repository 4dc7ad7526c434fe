//! The inconsistencies of a volume: one variant for each kind, with its location.
//!
//! An `ino` is a record number.

use alloc::vec::Vec;

use obento_base::{Error, Quantity};
use obento_driver::escaped_name;

obento_driver::issues! {
    // The volume.
    /// The boot sector cannot be used, and its copy can.
    BootSector { why: Error } Damage "boot-sector", "{why}; the copy after the end of the volume is used";
    /// The copy of the boot sector is missing or differs.
    BackupBootSector { sector: u64 } Safe "backup-boot-sector",
        "the copy of the boot sector in sector {sector} differs from the boot sector";
    /// The device ends with the volume.
    BackupMissing { sector: u64 } Safe "backup-boot-sector",
        "the copy of the boot sector is missing: the device ends before sector {sector}";
    /// The copy of the boot sector is a few sectors before the end of the device, where Windows and ntfs-3g expect it. No
    /// issue is reported if a disk may continue after the volume.
    BackupPlace { sector: u64, last: u64 } Safe "backup-boot-sector",
        "the copy of the boot sector is in sector {sector}, and not in the last sector ({last}) of the device";
    /// The device is shorter than the volume.
    Truncated { found: u64, expected: u64 } Damage "truncated",
        "the volume has {}, but the image has only {found}", Quantity::new(*expected, "byte");
    /// The volume was not unmounted, or is in use.
    InUse {} Safe "in-use", "the volume is marked dirty: it was not unmounted, or is in use";
    /// No format of this version is known.
    Version { major: u8, minor: u8 } Damage "version",
        "the volume has the unknown version {major}.{minor}";
    /// Windows keeps a part of the volume in its own memory.
    Hibernated {} Note "hibernated", "Windows is hibernated: it has changes that are not on the volume";
    /// The log contains changes that are not on the volume.
    LogFile { state: &'static str } Note "log-file", "the log file {state}";
    /// A structure that the volume needs is damaged, and a substitute is used.
    Tables { why: Error } Damage "tables", "{why}";

    /// The upper-case table is wrong for a letter of ASCII.
    UpCase { unit: u16, found: u16 } Damage "up-case",
        "the upper-case table maps character {unit:#06x} to {found:#06x}";

    // Records.
    /// A record of the table differs from its copy.
    Mirror { ino: u64 } Safe "mft-mirror", "record {ino} differs from its copy in $MFTMirr";
    /// A record is damaged.
    Record { ino: u64, why: Error } Damage "record", "{why}";
    /// The bitmap of the table does not show whether a record is in use.
    RecordBitmap { ino: u64, found: u8, expected: u8 } Safe "record-bitmap",
        "record {ino}: its bit in the bitmap of the table is {found}, expected {expected}";
    /// A record belongs to a file that does not list it.
    OrphanRecord { ino: u64, base: u64 } Damage "orphan-record",
        "record {ino} belongs to file {base}, which does not list it";
    /// A file has a different number of names than its link count.
    LinkCount { ino: u64, found: u16, expected: u16 } Safe "link-count",
        "inode {ino}: the link count is {found}, expected {expected}";
    /// A name of a file is in no directory.
    MissingEntry { ino: u64, names: u16, entries: u16 } Damage "missing-entry",
        "inode {ino} records {}, but directories contain {entries}", Quantity::new((*names).into(), "name");

    // Clusters.
    /// A size contradicts the others or the runs.
    Size { ino: u64, attribute: &'static str, field: &'static str, found: u64, clusters: u64 } Damage "size",
        "inode {ino}: {field} of {attribute} is {found} (clusters: {clusters})";
    /// Two files have the same cluster.
    CrossLink { ino: u64, attribute: &'static str, cluster: u64, clusters: u64 } Damage "cross-link",
        "inode {ino}: cluster {cluster} of {attribute} belongs to another attribute as well (run of {clusters})";
    /// Clusters of files that are free by `$Bitmap`.
    UnmarkedClusters { cluster: u64, clusters: u64 } Safe "unmarked-clusters",
        "clusters of files that are marked free: {clusters}, from cluster {cluster} on";
    /// Clusters in use that belong to no file.
    LostClusters { cluster: u64, clusters: u64 } Safe "lost-clusters",
        "clusters in use that belong to no file: {clusters}, from cluster {cluster} on";

    // Directories.
    /// A directory cannot be read.
    Directory { ino: u64, why: Error } Damage "directory", "{why}";
    /// An entry is before its predecessor, or has the same name.
    IndexOrder { ino: u64, name: Vec<u8> } Damage "index-order",
        "directory {ino}: entry '{}' is out of order", escaped_name(name);
    /// An entry refers to no file of this name.
    IndexEntry { ino: u64, name: Vec<u8>, file: u64, why: &'static str } Damage "index-entry",
        "directory {ino}: entry '{}' refers to record {file}, which {why}", escaped_name(name);
    /// A node refers to a block that it cannot have.
    IndexChild { ino: u64, vcn: u64, why: &'static str } Damage "index-child",
        "directory {ino}: block {vcn} of its index {why}";
    /// Blocks are in use that the tree does not reach.
    IndexBitmap { ino: u64, blocks: u64 } Safe "index-bitmap",
        "directory {ino}: blocks of its index that are marked in use but not reached: {blocks}";
}
