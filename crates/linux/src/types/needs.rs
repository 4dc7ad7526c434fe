//! The build options that a kernel needs to show everything that a type stores.
//!
//! Source: `fs/*/Kconfig` of Linux 6.1, which names each option and what it adds.

/// A part of a type that a kernel shows only if it was built with an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The option, as `linux.uml --showconfig` prints it.
    pub option: &'static str,
    /// The part that is lost without the option.
    pub part: ShownPart,
}

/// A property that a volume can store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownPart {
    /// Extended attributes of any name.
    Attributes,
    /// POSIX access control lists.
    AccessLists,
    /// Attributes named `security.*`.
    Labels,
    /// Volumes or files that use a feature. Linux refuses to open them without the option, so nothing is lost silently.
    Feature(&'static str),
}

impl ShownPart {
    /// Names the part in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attributes => "extended attributes (including capabilities and security labels)",
            Self::AccessLists => "access control lists",
            Self::Labels => "capabilities and security labels",
            Self::Feature(name) => name,
        }
    }

    /// Whether Linux leaves the part out without an error.
    pub fn is_left_out_silently(self) -> bool {
        !matches!(self, Self::Feature(_))
    }
}

const fn need(option: &'static str, part: ShownPart) -> Need {
    Need { option, part }
}

pub(super) const BTRFS: &[Need] = &[need("CONFIG_BTRFS_FS_POSIX_ACL", ShownPart::AccessLists)];
pub(super) const XFS: &[Need] = &[
    need("CONFIG_XFS_POSIX_ACL", ShownPart::AccessLists),
    need("CONFIG_XFS_SUPPORT_V4", ShownPart::Feature("volumes of version 4")),
];
pub(super) const F2FS: &[Need] = &[
    need("CONFIG_F2FS_FS_XATTR", ShownPart::Attributes),
    need("CONFIG_F2FS_FS_POSIX_ACL", ShownPart::AccessLists),
    need("CONFIG_F2FS_FS_SECURITY", ShownPart::Labels),
    need("CONFIG_F2FS_FS_COMPRESSION", ShownPart::Feature("compressed files")),
    need("CONFIG_UNICODE", ShownPart::Feature("case-insensitive directories")),
    need("CONFIG_FS_ENCRYPTION", ShownPart::Feature("encrypted files")),
    need("CONFIG_FS_VERITY", ShownPart::Feature("fs-verity files")),
];
pub(super) const JFS: &[Need] =
    &[need("CONFIG_JFS_POSIX_ACL", ShownPart::AccessLists), need("CONFIG_JFS_SECURITY", ShownPart::Labels)];
pub(super) const REISERFS: &[Need] = &[
    need("CONFIG_REISERFS_FS_XATTR", ShownPart::Attributes),
    need("CONFIG_REISERFS_FS_POSIX_ACL", ShownPart::AccessLists),
    need("CONFIG_REISERFS_FS_SECURITY", ShownPart::Labels),
];
pub(super) const GFS2: &[Need] = &[need("CONFIG_FS_POSIX_ACL", ShownPart::AccessLists)];
pub(super) const SQUASHFS: &[Need] = &[
    need("CONFIG_SQUASHFS_XATTR", ShownPart::Attributes),
    need("CONFIG_SQUASHFS_ZLIB", ShownPart::Feature("gzip-compressed volumes")),
    need("CONFIG_SQUASHFS_LZO", ShownPart::Feature("lzo-compressed volumes")),
    need("CONFIG_SQUASHFS_LZ4", ShownPart::Feature("lz4-compressed volumes")),
    need("CONFIG_SQUASHFS_XZ", ShownPart::Feature("xz-compressed volumes")),
    need("CONFIG_SQUASHFS_ZSTD", ShownPart::Feature("zstd-compressed volumes")),
];
pub(super) const EROFS: &[Need] = &[
    need("CONFIG_EROFS_FS_XATTR", ShownPart::Attributes),
    need("CONFIG_EROFS_FS_POSIX_ACL", ShownPart::AccessLists),
    need("CONFIG_EROFS_FS_SECURITY", ShownPart::Labels),
    need("CONFIG_EROFS_FS_ZIP", ShownPart::Feature("lz4-compressed volumes")),
    need("CONFIG_EROFS_FS_ZIP_LZMA", ShownPart::Feature("lzma-compressed volumes")),
];
pub(super) const ISO9660: &[Need] = &[
    need("CONFIG_JOLIET", ShownPart::Feature("Joliet names")),
    need("CONFIG_ZISOFS", ShownPart::Feature("zisofs-compressed files")),
];
pub(super) const EXT4: &[Need] = &[
    need("CONFIG_EXT4_FS_POSIX_ACL", ShownPart::AccessLists),
    need("CONFIG_EXT4_FS_SECURITY", ShownPart::Labels),
    need("CONFIG_UNICODE", ShownPart::Feature("case-insensitive directories")),
    need("CONFIG_FS_ENCRYPTION", ShownPart::Feature("encrypted files")),
    need("CONFIG_FS_VERITY", ShownPart::Feature("fs-verity files")),
];
/// Properties that Linux supports without an option.
pub(super) const NOTHING: &[Need] = &[];
