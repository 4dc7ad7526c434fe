//! The issues of a volume: one variant per kind, each with its place.
//!
//! An `ino` is an inode number of the driver: the place of a directory entry, in units of 32 bytes; the root
//! directory is 1.

use alloc::vec::Vec;

use obento_base::{Error, Quantity};
use obento_driver::escaped_name;

obento_driver::issues! {
    // Boot sector and FATs.
    /// The boot sector is unusable, and its backup is used.
    BootSector { sector: u16, why: Error } Damage "boot-sector", "{why}; the copy in sector {sector} is used";
    /// The boot sector leads to no structures, but its backup does.
    BootSectorFits { sector: u16 } Damage "boot-sector-fits",
        "the boot sector does not match the FATs and directories, but the copy in sector {sector} does";
    /// A field of the boot sector does not fit.
    BootField { field: &'static str, found: u32, expected: u32 } Damage "boot-field",
        "{field} of the boot sector is {found}, but the FATs and directories require {expected}";
    /// The device is shorter than the volume.
    Truncated { found: u64, expected: u64 } Damage "truncated",
        "the volume has {expected} bytes, of which {found} are present";
    /// A FAT has fewer entries than there are clusters.
    ShortFat { found: u32, expected: u32 } Damage "short-fat",
        "the FAT has entries for {found} of the {} of the volume",
        Quantity::new((*expected).into(), "cluster");
    /// The backup boot sector differs.
    BackupBootSector { sector: u16, offset: u32 } Safe "backup-boot-sector",
        "the copy of the boot sector in sector {sector} differs from byte {offset} on";
    /// There is no backup boot sector, although there is space for one.
    NoBackup { sector: u16 } Safe "no-backup-boot-sector", "the copy of the boot sector is missing";
    /// FSInfo does not have its signatures.
    FsInfo { sector: u16 } Safe "fs-info", "sector {sector} is not a valid FSInfo sector";
    /// FSInfo counts the free clusters wrongly.
    FreeCount { found: u32, expected: u32 } Safe "free-count",
        "the free cluster count of FSInfo is {found}, expected {expected}";
    /// A FAT has a wrong start.
    FatStart { copy: u8, found: u32 } Safe "fat-start", "FAT {copy} starts with {found:#x}, which is invalid";
    /// A copy of the FAT differs from the copy that contains the complete chains of files.
    FatCopy { copy: u8, cluster: u32 } Safe "fat-copy",
        "FAT {copy} differs from another FAT, whose chains are complete; the first difference is at cluster {cluster}";
    /// A copy of the FAT that is not in use differs from the one that is. `fsck.fat` and Linux do not read
    /// `BPB_ExtFlags`, and use the first copy.
    UnusedFat { copy: u8, cluster: u32 } Safe "unused-fat",
        "FAT {copy}, which is inactive, differs from the active FAT; the first difference is at cluster {cluster}";
    /// The copies of the FAT contain different chains of a file, and not exactly one of them fits.
    FatChoice { cluster: u32 } Damage "fat-choice",
        "the FATs differ at cluster {cluster}, and it is unknown which one is right";
    /// The volume was not unmounted.
    InUse {} Safe "in-use", "the volume was not unmounted, or is in use";
    /// An error of the medium occurred.
    MarkedWithErrors {} Note "marked-with-errors", "the volume is marked as having media errors";
    /// The root directory has another label than the boot sector.
    BootLabel { found: Vec<u8>, expected: Vec<u8> } Safe "boot-label",
        "the label in the boot sector is '{}', but in the root directory '{}'",
        escaped_name(found), escaped_name(expected);
    /// The label contains invalid characters.
    Label { found: Vec<u8> } Damage "label", "invalid label '{}'", escaped_name(found);

    // Directories.
    /// `.` or `..` is missing or refers to another directory.
    DotEntry { dir: u64, name: &'static str, found: u32, expected: u32 } Safe "dot-entry",
        "directory {dir}: '{name}' refers to cluster {found}, expected {expected}";
    /// `.` or `..` has the flag of a name that is only long.
    DotFlag { dir: u64, name: &'static str } Safe "dot-flag",
        "directory {dir}: '{name}' is marked as an entry without a short name";
    /// Another entry is in the place of `.` or `..`.
    DotPlace { dir: u64, name: &'static str } Damage "dot-place",
        "directory {dir}: another entry is in the place of '{name}'";
    /// There are entries after the end of their directory.
    HiddenEntries { dir: u64, index: u32 } Damage "hidden-entries",
        "directory {dir}: entries follow the end of the directory, which is at entry {index}";
    /// A directory has more entries than the maximum.
    LongDirectory { dir: u64 } Damage "long-directory", "directory {dir} has more than 65536 entries";
    /// A short name contains invalid characters.
    EntryName { ino: u64, dir: u64, name: Vec<u8> } Damage "entry-name",
        "directory {dir}: invalid name '{}' (inode {ino})", escaped_name(name);
    /// Two entries of a directory have one short name.
    DuplicateName { ino: u64, dir: u64, name: Vec<u8> } Damage "duplicate-name",
        "directory {dir}: duplicate name '{}' (inode {ino})", escaped_name(name);
    /// Parts of a long name belong to no file.
    OrphanedLongName { dir: u64, index: u32 } Safe "orphaned-long-name",
        "directory {dir}: the parts of a long name at entry {index} belong to no file";
    /// A long name is incomplete, or belongs to another file.
    LongName { dir: u64, index: u32, why: &'static str } Damage "long-name",
        "directory {dir}: the long name at entry {index} {why}";
    /// A field of a part of a long name does not have its fixed value.
    LongNameField { dir: u64, index: u32, field: &'static str, found: u32, expected: u32 } Safe "long-name-field",
        "directory {dir}: {field} of entry {index} is {found:#x}, expected {expected:#x}";
    /// The entry of a directory has a size.
    DirectorySize { ino: u64, found: u32 } Safe "directory-size",
        "directory {ino}: its entry has the size {found}, expected 0";
    /// A directory does not refer to clusters of its own.
    DirectoryStart { ino: u64, cluster: u32, why: &'static str } Damage "directory-start",
        "directory {ino}: its first cluster ({cluster}) {why}";

    // Chains.
    /// The first cluster of a file is not on the volume.
    StartCluster { ino: u64, cluster: u32 } Damage "start-cluster",
        "inode {ino}: its first cluster ({cluster}) does not exist";
    /// A chain cannot be followed.
    Chain { ino: u64, at: u32, cluster: u32, why: &'static str } Damage "chain",
        "inode {ino}: cluster {cluster}, at position {at} of its chain, {why}";
    /// A cluster of the chain belongs to another file.
    CrossLink { ino: u64, at: u32, cluster: u32 } Damage "cross-link",
        "inode {ino}: cluster {cluster}, at position {at} of its chain, belongs to another file";
    /// There are more clusters than the size needs.
    LongChain { ino: u64, size: u32, clusters: u32 } Damage "long-chain",
        "inode {ino}: the chain is too long for {} (required clusters: {clusters})",
        Quantity::new((*size).into(), "byte");
    /// There are fewer clusters than the size needs.
    ShortChain { ino: u64, size: u32, clusters: u32 } Damage "short-chain",
        "inode {ino}: the chain is too short for {} (clusters in the chain: {clusters})",
        Quantity::new((*size).into(), "byte");
    /// Clusters are in use and have no owner.
    LostChain { cluster: u32, clusters: u32 } Safe "lost-chain",
        "the chain that starts at cluster {cluster} belongs to no file (clusters: {clusters})";
}
