//! The issues of a volume: one variant per kind, each with its place.
//!
//! The order is that of the passes. A comment after a variant's severity is the name in e2fsck (`problem.h`).

use alloc::vec::Vec;

use obento_base::{Error, Quantity};
use obento_driver::about_inode;

use super::phrases::{
    extent_node, header_value, kind, marked, negated, octal, of_parent, refers, run, shown, to_replay,
};
use super::reason::{
    ContextDefect, DotName, ExtraSizeField, HeaderField, InlineDefect, InlineDirDefect, MissingFlag,
    OrphanFileDefect, SuperBlockField, TimeField, VolumeFeature, WrongField, WrongFlag,
};
use crate::quota::QuotaDefect;

/// The order of repairs: the issues of a later stage may be consequences of an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    Volume,
    Orphans,
    Inodes,
    Counts,
    Twice,
    Directories,
    Indexes,
    Names,
    Links,
    /// It allocates free blocks, so the owners of blocks must be known.
    Journal,
}

obento_driver::issues! {
    repaired by Stage;

    // Super block and descriptors.
    /// The primary super block is unusable, and a backup is used.
    SuperBlockDamaged { block: u64, why: Error } Damage Volume "super-block-damaged",
        "{why}; the copy at block {block} is used";
    /// Only the super block's checksum is wrong.
    SuperBlockChecksum { found: u32, expected: u32 } Safe Volume "super-block-checksum",
        "super block: stored checksum is {found:#x}, computed {expected:#x}";
    /// A field of the super block has an impossible value.
    SuperBlockField { field: SuperBlockField, found: u64, expected: u64 } Safe Volume "super-block-field",
        "super block: {field} is {found}, expected {expected}";
    /// A layout field of the super block contradicts its backups or its other fields.
    SuperBlockValue { field: &'static str, found: u64, expected: u64 } Damage Volume "super-block-value",
        "super block: {field} is {found}, expected {expected}";
    /// The extra size for new inodes, or the minimum extra size, is impossible.
    WantedExtraSize { field: ExtraSizeField, found: u16, expected: u16 } Damage Volume "wanted-extra-size",
        "super block: {field} is {found}, which no inode can have; expected {expected}";
    /// `s_first_meta_bg` is after the last descriptor.
    FirstMetaGroup { found: u64, most: u32 } Damage Volume "first-meta-group",
        "super block: s_first_meta_bg is {found}, but the volume has only {}",
        Quantity::new((*most).into(), "descriptor block");
    /// The device is shorter than the volume.
    Truncated { found: u64, expected: u64 } Damage Volume "truncated",
        "the volume has {expected} bytes, of which {found} are present";
    /// The volume is marked as having errors.
    MarkedWithErrors { errors: u32 } Note Inodes "marked-with-errors",
        "the volume is marked as having errors ({errors} recorded)";
    /// A repair ended before it had tried to repair every issue.
    RepairUnfinished { left: u64 } Note Volume "repair-unfinished",
        "the repair has reached its limit; it can continue with {}", Quantity::new(*left, "error");
    /// A descriptor's checksum is wrong.
    DescriptorChecksum { group: u32, found: u16, expected: u16 } Safe Volume "descriptor-checksum",
        "group {group}: stored checksum of the descriptor is {found:#x}, computed {expected:#x}";
    /// A group's block bitmap is outside of the volume or overlaps another structure.
    BlockBitmapPlace { group: u32, block: u64 } Damage Volume "block-bitmap-place",
        "group {group}: the block bitmap cannot be at block {block}";
    /// A group's inode bitmap is outside of the volume or overlaps another structure.
    InodeBitmapPlace { group: u32, block: u64 } Damage Volume "inode-bitmap-place",
        "group {group}: the inode bitmap cannot be at block {block}";
    /// A group's inode table is outside of the volume or overlaps another structure.
    InodeTablePlace { group: u32, block: u64 } Damage Volume "inode-table-place",
        "group {group}: the inode table cannot be at block {block}";
    /// Flags of a group contradict the volume's features.
    DescriptorFlags { group: u32, found: u16 } Safe Volume "descriptor-flags",
        "group {group}: the descriptor has the flags {found:#x}, which are invalid without checksums";
    /// More unused inodes than a group has.
    UnusedInodes { group: u32, found: u32 } Safe Volume "unused-inodes",
        "group {group}: the number of unused inodes cannot be {found}";
    /// A group's descriptor marks an inode as never used, but a name refers to it.
    HiddenInode { group: u32, ino: u32 } Safe Volume "hidden-inode",
        "group {group}: inode {ino} is marked as never used, but is a file with a name";
    /// The volume needs a feature that the super block lacks.
    MissingFeature { feature: VolumeFeature } Safe Volume "missing-feature",
        "the volume requires the feature {feature}";
    /// A feature of the super block contradicts the rest of the volume: a necessary one is missing, or one excludes
    /// another.
    Feature { feature: VolumeFeature, why: &'static str } Damage Volume "feature", "feature {feature}: {why}";
    /// The multiple mount protection block is damaged.
    Mmp { block: u64, why: Error } Safe Volume "mmp", "{why}";

    // Journal and orphans.
    /// The journal contains transactions that are not in their places.
    JournalDirty { transactions: u64 } Safe Volume "journal-dirty",
        "{}", to_replay(*transactions);
    /// Part of the journal is damaged.
    JournalReplay { why: Error } Damage Volume "journal-replay", "the journal can be replayed only in part: {why}";
    /// The journal inode is unusable, and the copy of its map in the super block is used.
    JournalInode { ino: u32, why: Error } Damage Volume "journal-inode",
        "the journal inode is damaged: {why}; the copy of its block map in the super block is used";
    /// The journal is unusable.
    JournalDamaged { why: Error } Damage Journal "journal-damaged", "the journal is not usable: {why}";
    /// The super block of the journal has a field that an internal journal cannot have.
    JournalField { field: &'static str, found: u32 } Damage Volume "journal-field",
        "super block of the journal: {field} cannot be {found}";
    /// The journal was aborted by an error that the super block does not contain.
    JournalAborted { errno: u32 } Safe Volume "journal-aborted",
        "the journal was aborted with error {}", negated(*errno);
    /// The volume needs recovery, and the device of its external journal was not given.
    JournalNotRead {} Damage Volume "journal-not-read",
        "the volume needs recovery, and its journal on another device was not read";
    /// The device of the external journal was not given.
    JournalMissing {} Note Volume "journal-missing", "the journal is on another device, which was not specified";
    /// The super block names a journal, but the volume has none.
    JournalNamed { ino: u32 } Damage Volume "journal-named",
        "the super block refers to journal inode {ino}, but the volume has no journal";
    /// A volume without a journal requests recovery.
    JournalNotThere {} Safe Volume "journal-not-there", "the volume is marked for recovery but has no journal";
    /// An inode is to be freed or truncated.
    Orphan { ino: u32 } Safe Orphans "orphan", "inode {ino} is on the orphan list, to be freed or truncated";
    /// The orphan list is broken.
    OrphanList { ino: u32, why: &'static str } Safe Volume "orphan-list", "the orphan list {why} (inode {ino})";
    /// The orphan file is damaged.
    OrphanFile { ino: u32, why: OrphanFileDefect } Safe Names "orphan-file", "orphan file (inode {ino}): {why}";
    /// The feature that announces inodes in the orphan file is set, but the file is empty.
    OrphansAnnounced {} Safe Volume "orphans-announced",
        "the feature orphan_present is set, but the orphan file is empty";

    // Pass 1: inodes.
    /// The root is not a directory.
    RootNotDirectory { ino: u32 } Damage Inodes "root-not-directory", "the root (inode {ino}) is not a directory";
    /// A reserved inode has an impossible mode.
    ReservedInode { ino: u32, mode: u16 } Safe Inodes "reserved-inode",
        "reserved inode {ino} has mode {}", octal(*mode);
    /// Only an inode's checksum is wrong.
    InodeChecksum { ino: u32, found: u32, expected: u32 } Damage Inodes "inode-checksum",
        "inode {ino}: stored checksum is {found:#x}, computed {expected:#x}";
    /// A block of the inode table could not be read.
    InodeUnreadable { ino: u32, why: Error } Damage Inodes "inode-unreadable", "inode {ino} cannot be read: {why}";
    /// A deleted inode has no time of deletion.
    DeletedWithoutTime { ino: u32 } Safe Inodes "deleted-without-time", "deleted inode {ino} has no deletion time";
    /// An inode in use has a time of deletion.
    DeletionTime { ino: u32 } Safe Inodes "deletion-time", "inode {ino} is in use, but has a deletion time";
    /// An inode was left on an orphan list that does not lead to it.
    LostOrphan { ino: u32 } Damage Inodes "lost-orphan", "inode {ino} was on a damaged orphan list";
    /// An inode's mode contains no valid type.
    BadMode { ino: u32, mode: u16 } Damage Inodes "bad-mode",
        "inode {ino}: mode {} has no valid file type", octal(*mode);
    /// An inode is a directory, but its mode is that of another type.
    DirectoryMode { ino: u32, mode: u16 } Damage Inodes "directory-mode",
        "inode {ino} has mode {}, but its contents are those of a directory", octal(*mode);
    /// A device, FIFO or socket has impossible blocks, flags or size.
    BadSpecial { ino: u32 } Damage Inodes "bad-special", "inode {ino}: invalid device, FIFO or socket";
    /// A symbolic link is invalid.
    BadSymlink { ino: u32 } Damage Inodes "bad-symlink", "symbolic link {ino} is invalid";
    /// An inode's size does not match its blocks.
    Size { ino: u32, found: u64, expected: u64 } Safe Inodes "size",
        "inode {ino}: size is {found}, should be {expected}";
    /// A tree of extents with inner nodes has data after the size of its inode. Unlike the size of other inodes, e2fsck
    /// does not correct it without asking, because the last index entry may be wrong as well as the size.
    SizeOfTree { ino: u32, found: u64, expected: u64 } Damage Inodes "size-of-tree",
        "inode {ino}: size is {found}, but its extent tree has data up to {expected}";
    /// An inode's count of blocks is wrong.
    BlockCount { ino: u32, found: u64, expected: u64 } Safe Inodes "block-count",
        "inode {ino}: sector count is {found}, should be {expected}";
    /// An inode has a field that its type or the volume's features do not allow.
    InodeField { ino: u32, field: WrongField, found: u64 } Damage Inodes "inode-field",
        "inode {ino}: {field} cannot be {found:#x}";
    /// An inode has a flag that its type or the volume's features do not allow.
    InodeFlag { ino: u32, flag: WrongFlag } Damage Inodes "inode-flag", "inode {ino} cannot have the flag {flag}";
    /// An inode lacks a flag.
    InodeFlagMissing { ino: u32, flag: MissingFlag } Damage Inodes "inode-flag-missing",
        "inode {ino} should have the flag {flag}";
    /// An inode's extra size is impossible.
    ExtraSize { ino: u32, found: u16 } Safe Inodes "extra-size", "inode {ino}: i_extra_isize cannot be {found}";
    /// A time of an inode is not representable with its extra bits.
    Time { ino: u32, field: TimeField } Safe Inodes "time",
        "inode {ino}: {field} is a time before 1970 or after 2310";
    /// A block of an inode is outside of the volume or in its metadata.
    IllegalBlock { ino: u32, at: u64, block: u64 } Damage Inodes "illegal-block",
        "inode {ino}: block {block} (file block {at}) is outside the volume or contains volume metadata";
    /// An inode has more illegal blocks than are reported.
    TooManyIllegal { ino: u32 } Damage Inodes "too-many-illegal", "inode {ino} has too many illegal blocks";
    /// An extent tree's header is invalid.
    ExtentHeader { ino: u32, block: u64, field: HeaderField, found: u64 } Damage Inodes "extent-header",
        "inode {ino}: {field} of {} is {}", extent_node(*block), header_value(*field, *found);
    /// An extent tree's node has the wrong checksum.
    ExtentChecksum { ino: u32, block: u64, found: u32, expected: u32 } Damage Directories "extent-checksum",
        "inode {ino}: stored checksum of an extent node is {found:#x}, computed {expected:#x} (block {block})";
    /// An extent is invalid.
    BadExtent { ino: u32, at: u64, block: u64, len: u64 } Damage Inodes "bad-extent",
        "inode {ino}: an extent of {} at block {block} (file block {at}) is not valid",
        Quantity::new(*len, "block");
    /// A file has a block map on a volume with clusters, which requires extents.
    BlockMapped { ino: u32 } Damage Names "block-mapped",
        "inode {ino} is mapped by block numbers, but bigalloc requires extents";
    /// Extents are out of order or overlap.
    ExtentOrder { ino: u32, block: u64, index: u16, at: u64 } Damage Inodes "extent-order",
        "inode {ino}: entry {index} of {} covers file block {at}, which is out of order", extent_node(*block);
    /// A node of an extent tree refers to itself or to a node above it.
    ExtentCircle { ino: u32, block: u64, below: u64 } Damage Inodes "extent-circle",
        "inode {ino}: {} refers to node {below}, which is itself or an ancestor", extent_node(*block);
    /// The first file block of a node differs from the entry above it.
    ExtentStart { ino: u32, block: u64, found: u64, expected: u64 } Damage Inodes "extent-start",
        "inode {ino}: {} begins at file block {found}, but its parent has {expected}", extent_node(*block);
    /// An extent of a directory, quota file or the like is unwritten.
    ExtentUnwritten { ino: u32, at: u64 } Damage Inodes "extent-unwritten",
        "inode {ino}: file block {at} was never written";
    /// Inline data is invalid.
    InlineData { ino: u32, why: InlineDefect } Damage Inodes "inline-data", "inode {ino}: inline data: {why}";
    /// Attributes in an inode are damaged.
    Xattr { ino: u32, why: Error } Damage Inodes "xattr", "{}", about_inode(*ino, why);
    /// A block of attributes is damaged.
    XattrBlock { ino: u32, block: u64, why: Error } Damage Inodes "xattr-block", "{}", about_inode(*ino, why);
    /// Attributes overlap, or their hash is wrong.
    XattrEntry { ino: u32, block: u64, name: Vec<u8>, why: &'static str } Damage Inodes "xattr-entry",
        "inode {ino}: attribute: {why} (block {block})";
    /// The user count of a block of attributes is wrong.
    XattrUsers { block: u64, found: u32, expected: u32 } Damage Inodes "xattr-users",
        "attribute block {block}: reference count is {found}, should be {expected}";
    /// An attribute value is in an inode that cannot contain values.
    XattrInode { ino: u32, value: u32 } Damage Inodes "xattr-inode",
        "inode {ino}: an attribute's value cannot be in inode {value}";
    /// The reference count of a value's inode is wrong.
    ValueUsers { ino: u32, found: u64, expected: u64 } Safe Inodes "value-users",
        "value inode {ino}: reference count is {found}, should be {expected}";
    /// The hash of an attribute does not match its value, which is in an inode of its own.
    XattrValueHash { ino: u32, block: u64, value: u32, found: u32, expected: u32 } Damage Inodes "xattr-value-hash",
        "inode {ino}: the hash of an attribute is {found:#x}, computed {expected:#x} from its value in inode {value} (block {block})";
    /// An attribute contains another size of its value than the value's inode.
    XattrValueSize { ino: u32, block: u64, value: u32, found: u32, expected: u32 } Damage Inodes "xattr-value-size",
        "inode {ino}: the size of an attribute is {found}, should be {expected}, the size of its value inode {value} (block {block})";
    /// The size of a value's inode is wrong, according to the hash of the contents.
    ValueSize { ino: u32, found: u64, expected: u64 } Damage Inodes "value-size",
        "value inode {ino}: size is {found}, should be {expected}";
    /// The hash in a value's inode is wrong.
    ValueHash { ino: u32, found: u32, expected: u32 } Damage Inodes "value-hash",
        "value inode {ino}: hash is {found:#x}, computed {expected:#x}";
    /// A block has two owners.
    BlockTwice { ino: u32, at: u64, block: u64, len: u64 } Damage Twice "block-twice",
        "inode {ino} shares {} (file block {at}) with other files", run("block", *block, *len);
    /// A file block has another offset in its volume cluster than in its file cluster.
    ClusterRule { ino: u32, at: u64, block: u64 } Damage Twice "cluster-rule",
        "inode {ino}: block {block} is at the wrong place in its cluster for file block {at}";
    /// Blocks of a file belong to the volume itself.
    BlockOfVolume { ino: u32, at: u64, block: u64, len: u64 } Damage Twice "block-of-volume",
        "inode {ino} claims {} (file block {at}), which the volume itself uses", run("block", *block, *len);
    /// Two structures of the volume share a block.
    MetadataTwice { group: u32, block: u64 } Damage Volume "metadata-twice",
        "group {group}: block {block} is used by another structure of the volume too";
    /// The resize inode is damaged.
    ResizeInode { why: &'static str } Damage Names "resize-inode", "the resize inode {why}";
    /// The inode of bad blocks is damaged.
    BadBlocksInode { why: &'static str } Damage Inodes "bad-blocks-inode", "the bad blocks inode {why}";
    /// A quota file is unusable.
    QuotaInode { ino: u32, why: QuotaDefect } Safe Links "quota-inode", "quota file (inode {ino}): {why}";

    /// A file is encrypted and lacks its context, or is not encrypted and should be.
    Encryption { ino: u32, why: ContextDefect } Damage Inodes "encryption", "inode {ino}: {why}";

    // Pass 2: directories.
    /// A block of a directory cannot be read.
    DirectoryUnreadable { dir: u32, block: u64, why: Error } Damage Directories "directory-unreadable",
        "directory {dir}: block {block} cannot be read: {why}";
    /// A directory has a hole.
    DirectoryHole { dir: u32, at: u64 } Damage Directories "directory-hole",
        "directory {dir}: file block {at} is a hole";
    /// A directory has no blocks.
    DirectoryEmpty { dir: u32 } Damage Directories "directory-empty", "directory {dir} has no block";
    /// A record of a directory is damaged.
    DirectoryRecord { dir: u32, block: u64, offset: u32, rec_len: u32 } Damage Directories "directory-record",
        "directory {dir}: the record at byte {offset} of block {block} is damaged (length {rec_len})";
    /// A directory does not begin with `.` and `..`.
    Dot { dir: u32, block: u64, name: DotName, why: &'static str } Damage Directories "dot",
        "directory {dir}: '{name}' {why} (block {block})";
    /// `.` refers to another inode.
    DotInode { dir: u32, found: u32 } Damage Directories "dot-inode", "directory {dir}: '.' is inode {found}";
    /// A name is invalid.
    EntryName { dir: u32, block: u64, offset: u32, name: Vec<u8> } Damage Directories "entry-name",
        "directory {dir}: the bytes at byte {offset} of block {block} are not a file name";
    /// A name in a case-insensitive directory is not in the encoding that a strict volume requires.
    EntryEncoding { dir: u32, name: Vec<u8>, ino: u32 } Damage Directories "entry-encoding",
        "directory {dir}: {} is not UTF-8, which the directory requires", shown(name);
    /// A name occurs twice in a directory.
    DuplicateName { dir: u32, block: u64, name: Vec<u8> } Damage Directories "duplicate-name",
        "directory {dir}: duplicate name in block {block}: {}", shown(name);
    /// A second entry `.` or `..`.
    DuplicateDot { dir: u32, block: u64, offset: u32 } Damage Directories "duplicate-dot",
        "directory {dir}: duplicate '.' or '..' at byte {offset} of block {block}";
    /// An entry refers to an inode that no name may refer to.
    EntryInode { dir: u32, name: Vec<u8>, found: u32 } Damage Directories "entry-inode",
        "directory {dir}: {} {}", shown(name), refers(*dir, *found);
    /// An entry refers to an inode that is not in use.
    EntryUnused { dir: u32, name: Vec<u8>, ino: u32 } Damage Directories "entry-unused",
        "directory {dir}: {} refers to inode {ino}, which is not in use", shown(name);
    /// An entry of an encrypted directory refers to a file that is not encrypted.
    EntryEncryption { dir: u32, name: Vec<u8>, ino: u32 } Damage Directories "entry-encryption",
        "directory {dir}: {} refers to inode {ino}, which does not have the encryption policy of the directory",
        shown(name);
    /// An entry contains another type than its inode.
    EntryType { dir: u32, name: Vec<u8>, ino: u32, found: u8, expected: u8 } Damage Directories "entry-type",
        "directory {dir}: the entry {} has the type {}, but inode {ino} has the type {}", shown(name),
        kind(*found), kind(*expected);
    /// An entry contains no type, like those from before the feature.
    EntryTypeMissing { dir: u32, name: Vec<u8>, ino: u32, expected: u8 } Safe Directories "entry-type-missing",
        "directory {dir}: the entry {} has no type, should be {}", shown(name), kind(*expected);
    /// A directory has two names.
    DirectoryTwice { dir: u32, name: Vec<u8>, ino: u32 } Damage Directories "directory-twice",
        "directory {dir}: {} is a second name of directory {ino}", shown(name);
    /// An entry refers to the root.
    EntryRoot { dir: u32, name: Vec<u8> } Damage Directories "entry-root",
        "directory {dir}: {} refers to the root", shown(name);
    /// A block of a directory has the wrong checksum.
    DirectoryChecksum { dir: u32, block: u64, found: u32, expected: u32 } Damage Directories "directory-checksum",
        "directory {dir}: stored checksum of block {block} is {found:#x}, computed {expected:#x}";
    /// A directory block lacks the record of its checksum.
    DirectoryNoTail { dir: u32, block: u64 } Damage Directories "directory-no-tail",
        "directory {dir}: block {block} has no checksum entry";
    /// An inline directory is damaged.
    InlineDirectory { dir: u32, offset: u32, why: InlineDirDefect } Damage Directories "inline-directory",
        "directory {dir}: inline entry at byte {offset}: {why}";
    /// The index of a directory is damaged.
    Index { dir: u32, at: u64, why: &'static str, found: u64 } Damage Indexes "index",
        "index of directory {dir}: {why} {found} (file block {at})";
    /// A node of an index has the wrong checksum.
    IndexChecksum { dir: u32, at: u64, found: u32, expected: u32 } Damage Indexes "index-checksum",
        "index of directory {dir}: stored checksum is {found:#x}, computed {expected:#x} (file block {at})";
    /// An entry has a hash outside the range of its leaf.
    IndexHash { dir: u32, at: u64, found: u32 } Damage Indexes "index-hash",
        "index of directory {dir}: hash {found:#x} is out of range for file block {at}";
    /// A block of an indexed directory is missing in the index, or occurs twice.
    IndexReference { dir: u32, at: u64, why: &'static str } Damage Indexes "index-reference",
        "index of directory {dir}: file block {at} {why}";

    // Pass 3: connectivity.
    /// The root is missing.
    NoRoot {} Damage Inodes "no-root", "the root directory is missing";
    /// A directory cannot be reached from the root.
    Unconnected { dir: u32, parent: u32 } Damage Names "unconnected",
        "directory {dir}{} cannot be reached", of_parent(*parent);
    /// `..` does not refer to the directory that contains the entry.
    DotDot { dir: u32, found: u32, expected: u32 } Damage Directories "dot-dot",
        "directory {dir}: '..' is inode {found}, should be {expected}";

    // Pass 4: link counts.
    /// An inode's link count is wrong.
    LinkCount { ino: u32, stored: u32, found: u32 } Safe Links "link-count",
        "inode {ino}: link count is {stored}, should be {found}";
    /// An inode in use has no name.
    Unnamed { ino: u32 } Damage Names "unnamed", "inode {ino} is in use but has no name";

    // Pass 5: bitmaps and counts.
    /// A bitmap of blocks is wrong.
    BlockBitmap { group: u32, block: u64, len: u64, stored: u8 } Safe Counts "block-bitmap",
        "group {group}: {} {}", run("block", *block, *len), marked(*len, *stored);
    /// A bitmap of blocks has more wrong runs than are reported.
    BlockBitmapOthers { group: u32, runs: u64 } Safe Counts "block-bitmap-others",
        "group {group}: the block bitmap is wrong in {}", Quantity::new(*runs, "more range");
    /// A bitmap of inodes is wrong.
    InodeBitmap { group: u32, ino: u32, len: u32, stored: u8 } Safe Counts "inode-bitmap",
        "group {group}: {} {}", run("inode", (*ino).into(), (*len).into()), marked((*len).into(), *stored);
    /// A bitmap of inodes has more wrong runs than are reported.
    InodeBitmapOthers { group: u32, runs: u64 } Safe Counts "inode-bitmap-others",
        "group {group}: the inode bitmap is wrong in {}", Quantity::new(*runs, "more range");
    /// The bits after the end of a block bitmap are not set.
    BlockBitmapPadding { group: u32 } Safe Counts "block-bitmap-padding",
        "group {group}: the bits after the last block in the block bitmap are not set";
    /// The bits after the end of an inode bitmap are not set.
    InodeBitmapPadding { group: u32 } Safe Counts "inode-bitmap-padding",
        "group {group}: the bits after the last inode in the inode bitmap are not set";
    /// The checksum of a block bitmap is wrong.
    BlockBitmapChecksum { group: u32, found: u32, expected: u32 } Safe Counts "block-bitmap-checksum",
        "group {group}: stored checksum of the block bitmap is {found:#x}, computed {expected:#x}";
    /// The checksum of an inode bitmap is wrong.
    InodeBitmapChecksum { group: u32, found: u32, expected: u32 } Safe Counts "inode-bitmap-checksum",
        "group {group}: stored checksum of the inode bitmap is {found:#x}, computed {expected:#x}";
    /// A bitmap cannot be read.
    BitmapUnreadable { group: u32, why: Error } Damage Counts "bitmap-unreadable",
        "group {group}: a bitmap cannot be read: {why}";
    /// The usage in a quota file is wrong.
    QuotaUsage { ino: u32, id: u32, found: u64, expected: u64, found_inodes: u64, expected_inodes: u64 } Safe Links "quota-usage",
        "quota file (inode {ino}): usage of ID {id}: byte count is {found}, should be {expected}; inode count is {found_inodes}, should be {expected_inodes}";
    /// A group's count of free blocks is wrong.
    GroupFreeBlocks { group: u32, found: u64, expected: u64 } Safe Counts "group-free-blocks",
        "group {group}: free block count is {found}, should be {expected}";
    /// A group's count of free inodes is wrong.
    GroupFreeInodes { group: u32, found: u64, expected: u64 } Safe Counts "group-free-inodes",
        "group {group}: free inode count is {found}, should be {expected}";
    /// A group's count of directories is wrong.
    GroupDirectories { group: u32, found: u64, expected: u64 } Safe Counts "group-directories",
        "group {group}: directory count is {found}, should be {expected}";
    /// A group marks its bitmap or table as never used, but something in it is in use.
    GroupUninit { group: u32, what: &'static str } Safe Counts "group-uninit",
        "group {group}: {what} are marked as never used, but are in use";
    /// The last group marks its block bitmap as never written, which Linux does not accept.
    LastGroupUninit { group: u32 } Safe Counts "last-group-uninit",
        "group {group}: the block bitmap of the last group cannot be marked as never written";
    /// The super block's count of free blocks is wrong.
    FreeBlocks { found: u64, expected: u64 } Safe Counts "free-blocks",
        "free block count is {found}, should be {expected}";
    /// The super block's count of free inodes is wrong.
    FreeInodes { found: u64, expected: u64 } Safe Counts "free-inodes",
        "free inode count is {found}, should be {expected}";
}

#[cfg(test)]
mod tests {
    use super::*;

    use alloc::string::ToString as _;

    use obento_base::{Corrupt, Ino, Structure};

    #[test]
    fn every_issue_has_a_name_of_its_own() {
        let mut codes = Issue::CODES.to_vec();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Issue::CODES.len());
    }

    #[test]
    fn a_finding_has_the_numbers_of_its_issue() {
        let finding = Issue::LinkCount { ino: 12, stored: 3, found: 2 }.finding(false);
        assert_eq!((finding.number("ino"), finding.number("found")), (Some(12), Some(2)));
        assert_eq!(finding.text, "inode 12: link count is 3, should be 2");
    }

    #[test]
    fn codes_and_modes_are_shown_in_words_and_in_the_notation_of_chmod() {
        let text = |issue: Issue| issue.finding(false).text;
        let wrong = Issue::EntryType { dir: 2, name: b"etc".to_vec(), ino: 12, found: 2, expected: 1 };
        assert_eq!(
            text(wrong),
            "directory 2: the entry 'etc' has the type directory, but inode 12 has the type regular file"
        );
        let mode = |mode| text(Issue::ReservedInode { ino: 8, mode });
        assert_eq!(
            [mode(0), mode(0o100_600)],
            ["reserved inode 8 has mode 0", "reserved inode 8 has mode 0100600"]
        );
        let entry = |found| text(Issue::EntryInode { dir: 12, name: b"\xfd".to_vec(), found });
        assert_eq!(entry(12), r"directory 12: '\375' refers to the directory itself");
        assert_eq!(entry(99), r"directory 12: '\375' refers to the invalid inode 99");
    }

    #[test]
    fn an_issue_names_its_structure_once() {
        let text = |issue: Issue| issue.finding(false).text;
        let root = |block| Issue::ExtentHeader { ino: 15, block, field: HeaderField::Magic, found: 0 };
        assert_eq!(
            text(root(0)),
            "inode 15: eh_magic of the extent node in the inode is 0x0, expected 0xf30a"
        );
        assert_eq!(text(root(9)), "inode 15: eh_magic of extent node 9 is 0x0, expected 0xf30a");
        let corrupt = Corrupt::Magic {
            structure: Structure::Xattr(Ino(154)),
            block: 4,
            found: 0,
            expected: 0xea02_0000,
        };
        assert_eq!(text(Issue::Xattr { ino: 154, why: corrupt.into() }), corrupt.to_string());
        let empty = text(Issue::JournalDirty { transactions: 0 });
        assert_eq!(empty, "the journal is marked for replay, but contains no transactions");
    }

    #[test]
    fn a_wrong_bitmap_and_a_directory_without_a_parent_are_described_in_sentences() {
        let text = |issue: Issue| issue.finding(false).text;
        let blocks = |len, stored| text(Issue::BlockBitmap { group: 0, block: 5, len, stored });
        assert_eq!(blocks(1, 0), "group 0: block 5 is marked free, but is in use");
        assert_eq!(blocks(2, 1), "group 0: 2 blocks from 5 on are marked in use, but are free");
        let inode = Issue::InodeBitmap { group: 1, ino: 17, len: 1, stored: 1 };
        assert_eq!(text(inode), "group 1: inode 17 is marked in use, but is free");
        let extent = |len| text(Issue::BadExtent { ino: 15, at: 0, block: 7, len });
        assert_eq!(extent(1), "inode 15: an extent of 1 block at block 7 (file block 0) is not valid");
        assert_eq!(extent(2), "inode 15: an extent of 2 blocks at block 7 (file block 0) is not valid");
        let lost = |parent| text(Issue::Unconnected { dir: 12, parent });
        assert_eq!(
            [lost(0), lost(2)],
            ["directory 12 cannot be reached", "directory 12 (parent 2) cannot be reached"]
        );
    }
}
