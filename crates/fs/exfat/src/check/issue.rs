//! The issues of a volume: one variant per kind, each with its place.
//!
//! An `ino` is an inode number of the driver: the place of the first entry of a set, in units of 32 bytes; the root
//! directory is 1.

use alloc::vec::Vec;

use obento_base::Error;

obento_driver::issues! {
    // Boot regions.
    /// The boot region is unusable, and its backup is used.
    BootRegion { why: Error } Damage "boot-region", "{why}; the copy in sector 12 is used";
    /// The boot region leads to no structures, but its backup does.
    BootRegionFits {} Damage "boot-region-fits",
        "the boot region does not fit the tables of the volume, and the copy in sector 12 does";
    /// Neither boot region has a correct checksum.
    BootChecksum { why: Error } Damage "boot-checksum", "{why}, and the copy is damaged, too";
    /// The backup of the boot region differs.
    BackupBootRegion { offset: u32 } Safe "backup-boot-region",
        "the copy of the boot region differs from byte {offset} on";
    /// The device is shorter than the volume.
    Truncated { found: u64, expected: u64 } Damage "truncated",
        "the volume has {expected} bytes, of which {found} are there";
    /// The volume was not unmounted.
    InUse {} Safe "in-use", "the volume was not unmounted, or is in use";
    /// An error of the medium occurred.
    MarkedWithErrors {} Note "marked-with-errors", "an error of the medium was met";

    // Tables.
    /// The entry of the allocation bitmap is missing or does not lead to a bitmap.
    BitmapEntry { why: &'static str } Damage "bitmap-entry", "the allocation bitmap {why}";
    /// There is no bitmap; a new one is written.
    NoBitmap { cluster: u32 } Damage "no-bitmap",
        "the allocation bitmap cannot be found; another is written from cluster {cluster} on";
    /// The length of the bitmap does not match the number of clusters.
    BitmapLength { found: u64, expected: u64 } Safe "bitmap-length",
        "the allocation bitmap has {found} bytes, expected {expected}";
    /// The entry of the bitmap has flags of a volume with two FATs.
    BitmapFlags { found: u8 } Safe "bitmap-flags",
        "the entry of the allocation bitmap has the flags {found:#x}, expected 0";
    /// The FAT does not chain the clusters of a table, which are contiguous.
    TableChain { table: &'static str, cluster: u32 } Safe "table-chain",
        "the FAT does not have the chain of the {table} that starts with cluster {cluster}";
    /// The root directory has a second entry of a kind that may occur once.
    SecondTable { index: u32, kind: u8 } Damage "second-table",
        "entry {index} of the root directory is another one of type {kind:#x}";
    /// The up-case table is unusable.
    UpCaseTable { why: &'static str } Damage "up-case-table", "the up-case table {why}";

    // Sets.
    /// The checksum of a set is wrong.
    SetChecksum { ino: u64, dir: u64, found: u32, expected: u32 } Damage "set-checksum",
        "directory {dir}: the checksum of a set is {found:#x}, expected {expected:#x} (inode {ino})";
    /// Entries do not form a set.
    EntrySet { ino: u64, dir: u64, field: &'static str } Damage "entry-set",
        "directory {dir}: the entries at {ino} are no set: {field} is wrong";
    /// An entry belongs to no set, or has a kind that must not be there.
    StrayEntry { dir: u64, index: u32, kind: u32 } Damage "stray-entry",
        "directory {dir}: entry {index} of type {kind:#x} belongs to nothing";
    /// There are entries after the end of their directory.
    HiddenEntries { dir: u64, index: u32 } Damage "hidden-entries",
        "directory {dir}: ends at entry {index}, and others follow";
    /// A name contains invalid characters.
    EntryName { ino: u64, dir: u64, name: Vec<u8> } Damage "entry-name",
        "directory {dir}: '{}' is no name (inode {ino})", name.escape_ascii();
    /// Two sets of a directory have one name.
    DuplicateName { ino: u64, dir: u64, name: Vec<u8> } Damage "duplicate-name",
        "directory {dir}: '{}' is there already (inode {ino})", name.escape_ascii();
    /// The length of a name differs from the name in its entries.
    NameLength { ino: u64, found: u8, expected: u8 } Damage "name-length",
        "inode {ino}: its name has {found} characters by its length, expected {expected}";
    /// The hash of a name is wrong.
    NameHash { ino: u64, found: u32, expected: u32 } Safe "name-hash",
        "inode {ino}: the hash of its name is {found:#x}, expected {expected:#x}";
    /// A file is longer than the volume.
    Length { ino: u64, found: u64, expected: u64 } Damage "length",
        "inode {ino}: has {found} bytes, more than the volume, and {expected} of them are valid";
    /// The valid length of a file exceeds its length.
    ValidLength { ino: u64, found: u64, expected: u64 } Damage "valid-length",
        "inode {ino}: {found} bytes are valid of {expected}";
    /// The flags of a stream are invalid.
    StreamFlags { ino: u64, found: u8, expected: u8 } Safe "stream-flags",
        "inode {ino}: its stream has the flags {found:#x}, expected {expected:#x}";
    /// Clusters are contiguous, but the file claims that the FAT chains them, or the other way round.
    Arrangement { ino: u64, why: &'static str } Damage "arrangement", "inode {ino}: {why}";
    /// An empty file claims that its clusters are contiguous.
    EmptyContiguous { ino: u64 } Safe "empty-contiguous", "inode {ino}: is empty, and says that it is contiguous";
    /// The length of a directory is not that of its clusters.
    DirectoryLength { ino: u64, found: u64, expected: u64 } Damage "directory-length",
        "inode {ino}: a directory of {found} bytes, expected {expected}";

    // Clusters.
    /// The first cluster of a file is missing or not on the volume.
    StartCluster { ino: u64, cluster: u32, length: u64 } Damage "start-cluster",
        "inode {ino}: {length} bytes start with cluster {cluster}";
    /// Clusters cannot be followed.
    Chain { ino: u64, at: u32, cluster: u32, why: &'static str } Damage "chain",
        "inode {ino}: cluster {at} of the chain, which is {cluster}, {why}";
    /// A cluster belongs to another file.
    CrossLink { ino: u64, at: u32, cluster: u32 } Damage "cross-link",
        "inode {ino}: cluster {at} of the chain, which is {cluster}, belongs to another";
    /// There are more clusters than the length needs.
    LongChain { ino: u64, length: u64, clusters: u32 } Damage "long-chain",
        "inode {ino}: {length} bytes need {clusters} clusters, and there are more";
    /// There are fewer clusters than the length needs.
    ShortChain { ino: u64, length: u64, clusters: u32 } Damage "short-chain",
        "inode {ino}: {length} bytes do not fit the {clusters} clusters that there are";
    /// Clusters of files are free in the bitmap.
    UnmarkedClusters { cluster: u32, clusters: u32 } Safe "unmarked-clusters",
        "{clusters} clusters from {cluster} on are somebody's, and free by the bitmap";
    /// Clusters are in use and have no owner.
    LostClusters { cluster: u32, clusters: u32 } Safe "lost-clusters",
        "{clusters} clusters from {cluster} on belong to no file";
}
