//! The issues of a volume: one variant per kind, each with its place.
//!
//! An `ino` is an inode number of the driver: the place of the first entry of a set, in units of 32 bytes. The root
//! directory is 1.

use alloc::vec::Vec;

use obento_base::{Error, Quantity};
use obento_driver::escaped_name;

obento_driver::issues! {
    // Boot regions.
    /// The boot region is unusable, and its backup is used.
    BootRegion { why: Error } Damage "boot-region", "{why}; the copy in sector 12 is used";
    /// The boot region leads to no structures, but its backup does.
    BootRegionFits {} Damage "boot-region-fits",
        "the boot region does not match the tables of the volume, but the copy in sector 12 does";
    /// Neither boot region has a correct checksum.
    BootChecksum { why: Error } Damage "boot-checksum", "{why}; the copy is damaged too";
    /// The backup of the boot region differs.
    BackupBootRegion { offset: u32 } Safe "backup-boot-region",
        "the copy of the boot region differs from byte {offset} on";
    /// The device is shorter than the volume.
    Truncated { found: u64, expected: u64 } Damage "truncated",
        "the volume has {expected} bytes, of which {found} are present";
    /// The volume was not unmounted.
    InUse {} Safe "in-use", "the volume was not unmounted, or is in use";
    /// An error of the medium occurred.
    MarkedWithErrors {} Note "marked-with-errors", "the volume is marked as having media errors";

    // Tables.
    /// The entry of the allocation bitmap is missing or does not lead to a bitmap.
    BitmapEntry { why: &'static str } Damage "bitmap-entry", "the allocation bitmap {why}";
    /// There is no bitmap; a new one is written.
    NoBitmap { cluster: u32 } Damage "no-bitmap",
        "the allocation bitmap is missing; a repair writes a new bitmap from cluster {cluster} on";
    /// The length of the bitmap does not match the number of clusters.
    BitmapLength { found: u64, expected: u64 } Safe "bitmap-length",
        "the allocation bitmap has {}, expected {expected}", Quantity::new(*found, "byte");
    /// The entry of the bitmap has flags of a volume with two FATs.
    BitmapFlags { found: u8 } Safe "bitmap-flags",
        "the entry of the allocation bitmap has the flags {found:#x}, expected 0";
    /// The FAT does not chain the clusters of a table, which are contiguous.
    TableChain { table: &'static str, cluster: u32 } Safe "table-chain",
        "the FAT lacks the chain of the {table}, which starts with cluster {cluster}";
    /// The root directory has a second entry of a kind that may occur once.
    SecondTable { index: u32, kind: u8 } Damage "second-table",
        "entry {index} of the root directory is a second entry of type {kind:#x}";
    /// The up-case table is unusable.
    UpCaseTable { why: &'static str } Damage "up-case-table", "the up-case table {why}";

    // Sets.
    /// The checksum of a set is wrong.
    SetChecksum { ino: u64, dir: u64, found: u32, expected: u32 } Damage "set-checksum",
        "directory {dir}: the checksum of the entry set of inode {ino} is {found:#x}, expected {expected:#x}";
    /// Entries do not form a set.
    EntrySet { ino: u64, dir: u64, field: &'static str } Damage "entry-set",
        "directory {dir}: the entry set of inode {ino} is damaged: {field} is wrong";
    /// An entry belongs to no set, or has a kind that must not be there.
    StrayEntry { dir: u64, index: u32, kind: u32 } Damage "stray-entry",
        "directory {dir}: entry {index} of type {kind:#x} belongs to no file";
    /// There are entries after the end of their directory.
    HiddenEntries { dir: u64, index: u32 } Damage "hidden-entries",
        "directory {dir}: entries follow the end of the directory, which is at entry {index}";
    /// A name contains invalid characters.
    EntryName { ino: u64, dir: u64, name: Vec<u8> } Damage "entry-name",
        "directory {dir}: invalid name '{}' (inode {ino})", escaped_name(name);
    /// Two sets of a directory have one name.
    DuplicateName { ino: u64, dir: u64, name: Vec<u8> } Damage "duplicate-name",
        "directory {dir}: duplicate name '{}' (inode {ino})", escaped_name(name);
    /// The length of a name differs from the name in its entries.
    NameLength { ino: u64, found: u8, expected: u8 } Damage "name-length",
        "inode {ino}: the length of its name is {found}, expected {expected}";
    /// The hash of a name is wrong.
    NameHash { ino: u64, found: u32, expected: u32 } Safe "name-hash",
        "inode {ino}: the hash of its name is {found:#x}, expected {expected:#x}";
    /// A file is longer than the volume.
    Length { ino: u64, found: u64, expected: u64 } Damage "length",
        "inode {ino}: the length of {} exceeds the volume; the valid length is {expected}",
        Quantity::new(*found, "byte");
    /// The valid length of a file exceeds its length.
    ValidLength { ino: u64, found: u64, expected: u64 } Damage "valid-length",
        "inode {ino}: the valid length of {} exceeds the length of {}",
        Quantity::new(*found, "byte"), Quantity::new(*expected, "byte");
    /// The flags of a stream are invalid.
    StreamFlags { ino: u64, found: u8, expected: u8 } Safe "stream-flags",
        "inode {ino}: its stream has the flags {found:#x}, expected {expected:#x}";
    /// Clusters are contiguous, but the file claims that the FAT chains them, or the other way round.
    Arrangement { ino: u64, why: &'static str } Damage "arrangement", "inode {ino}: {why}";
    /// An empty file claims that its clusters are contiguous.
    EmptyContiguous { ino: u64 } Safe "empty-contiguous", "inode {ino} is empty, but is marked as contiguous";
    /// The length of a directory differs from the length of its clusters.
    DirectoryLength { ino: u64, found: u64, expected: u64 } Damage "directory-length",
        "directory {ino}: its length is {}, expected {expected}", Quantity::new(*found, "byte");

    // Clusters.
    /// The first cluster of a file is missing or not on the volume.
    StartCluster { ino: u64, cluster: u32, length: u64 } Damage "start-cluster",
        "inode {ino}: its first cluster ({cluster}) is invalid for a length of {}",
        Quantity::new(*length, "byte");
    /// Clusters cannot be followed.
    Chain { ino: u64, at: u32, cluster: u32, why: &'static str } Damage "chain",
        "inode {ino}: cluster {cluster}, at position {at} of its chain, {why}";
    /// A cluster belongs to another file.
    CrossLink { ino: u64, at: u32, cluster: u32 } Damage "cross-link",
        "inode {ino}: cluster {cluster}, at position {at} of its chain, belongs to another file";
    /// There are more clusters than the length needs.
    LongChain { ino: u64, length: u64, clusters: u32 } Damage "long-chain",
        "inode {ino}: the chain is too long for {} (required clusters: {clusters})",
        Quantity::new(*length, "byte");
    /// There are fewer clusters than the length needs.
    ShortChain { ino: u64, length: u64, clusters: u32 } Damage "short-chain",
        "inode {ino}: the chain is too short for {} (clusters in the chain: {clusters})",
        Quantity::new(*length, "byte");
    /// Clusters of files are free in the bitmap.
    UnmarkedClusters { cluster: u32, clusters: u32 } Safe "unmarked-clusters",
        "clusters in use that are free in the bitmap: {clusters}, from cluster {cluster} on";
    /// Clusters are in use and have no owner.
    LostClusters { cluster: u32, clusters: u32 } Safe "lost-clusters",
        "clusters that belong to no file: {clusters}, from cluster {cluster} on";
}
