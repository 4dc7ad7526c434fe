//! The words of issues that select a repair: fields, flags, features and reasons.

pub use crate::quota::QuotaDefect;

obento_driver::finding_words! {
    /// A field of the super block with an impossible value.
    SuperBlockField { ReservedBlocks = "s_r_blocks_count", Revision = "s_rev_level" }

    /// A field for the extra size of inodes.
    ExtraSizeField { Min = "s_min_extra_isize", Want = "s_want_extra_isize" }

    /// A feature that contradicts the volume.
    VolumeFeature {
        AttributeInodes = "ea_inode",
        DirLinks = "dir_nlink",
        Extents = "extent",
        FileTypes = "filetype",
        Journal = "has_journal",
        LargeFiles = "large_file",
        ResizeInode = "resize_inode",
    }

    /// A field that an inode cannot have.
    WrongField {
        Attributes = "i_file_acl",
        AttributesHigh = "l_i_file_acl_high",
        BlocksHigh = "l_i_blocks_high",
        FragmentAddress = "i_obso_faddr",
        SizeHigh = "i_size_high",
    }

    /// A flag that an inode cannot have.
    WrongFlag {
        AttributeInode = "ea_inode",
        Casefold = "casefold",
        Encrypted = "encrypted",
        Extents = "extents",
        ExtentsBesideInlineData = "extents beside inline data",
        Imagic = "imagic",
        Immutable = "immutable",
        Index = "index",
        InlineData = "inline data",
        InlineDataBesideExtents = "inline data beside extents",
        InlineDataAndExtents = "inline data and extents",
        Verity = "verity",
    }

    /// A flag that an inode lacks.
    MissingFlag { Extents = "extents" }

    /// A time of an inode.
    TimeField { Access = "i_atime", Change = "i_ctime", Modification = "i_mtime", Creation = "i_crtime" }

    /// A field of the header of an extent tree node.
    HeaderField { Magic = "eh_magic", Depth = "eh_depth", Entries = "eh_entries", Max = "eh_max" }

    /// A defect of inline data.
    InlineDefect {
        NoAttribute = "the attribute system.data is missing",
        NoContents = "i_block contains neither data nor extents nor block numbers",
    }

    /// A defect of an inline directory.
    InlineDirDefect { Parent = "invalid parent", Record = "damaged record" }

    /// A defect of an encryption context.
    ContextDefect {
        Missing = "it is encrypted but has no encryption context",
        Damaged = "its encryption context is damaged",
    }

    /// A defect of the orphan file.
    OrphanFileDefect {
        NotRegular = "it is not a regular file",
        NotWhole = "it has fewer blocks than its size requires, or ends within a block",
        Deleted = "its link count is 0",
        NoJournal = "the volume has no journal",
        Unreadable = "it cannot be read",
        Magic = "a block has the wrong magic number",
        Checksum = "a block has the wrong checksum",
        InodeNumber = "it contains an invalid inode number",
    }

    /// A name with which a directory begins.
    DotName { Dot = ".", DotDot = ".." }
}
