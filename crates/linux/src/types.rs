//! The types of file systems that the engine opens, and their signatures.
//!
//! Sources: for a signature, the file of Linux 6.1 beside it; for labels and UUIDs, libblkid
//! (util-linux, libblkid/src/superblocks); for the properties that a type stores, its test in `tests/`.

use obento_base::Feature;
use obento_block::BlockDevice;
use obento_driver::StoredProperties;

use crate::tools::{self, Checker, Maker, Tuner};
use first_bytes::{
    bfs_len, btrfs_grown, cluster_of_gfs2, cramfs_len, erofs_len, f2fs_len, has_attributes_of_squashfs,
    hfs_len, hfsplus_len, hpfs_len, is_44bsd, is_hfs, is_minix, is_minix3, is_squashfs, is_udf, iso_len,
    jfs_len, log_of_jfs, minix_len, minix3_len, reiserfs_len, romfs_len, sysv_len, xfs_grown,
};
pub use id::Id;
use needs::Need;

mod first_bytes;
mod id;
mod label;
pub mod needs;
mod udf;

/// Bytes that identify a type.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Byte offset.
    pub at: u64,
    /// The bytes.
    pub bytes: &'static [u8],
}

/// The location and encoding of a label.
#[derive(Clone, Copy, Debug)]
pub enum Label {
    /// The type has no label.
    None,
    /// Bytes from an offset on, at most this many, up to a NUL or trailing spaces.
    Bytes(u64, usize),
    /// UTF-16, little-endian.
    Utf16(u64, usize),
    /// A byte with the length, then the label.
    Pascal(u64, usize),
    /// The result of this function.
    On(fn(&dyn BlockDevice) -> Option<Vec<u8>>),
}

/// The source of a volume's length.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// The length of the device, since the volume stores none.
    Device,
    /// A number of bytes: little-endian, 64 bits.
    Bytes(u64),
    /// A number of blocks, big-endian 64 bits, and their size, big-endian 32 bits.
    BigBlocks(u64, u64),
    /// The result of this function for the first bytes.
    By(fn(&[u8]) -> Option<u64>),
    /// The result of this function.
    On(fn(&dyn BlockDevice) -> Option<u64>),
}

/// The longest target of a symbolic link.
#[derive(Clone, Copy, Debug)]
pub enum LinkTarget {
    /// This many bytes.
    Bytes(u32),
    /// A block without this many bytes, for example a final NUL.
    BlockWith(u32),
}

/// A type.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// Its names for `-t`, its own name first.
    pub names: &'static [&'static str],
    /// Modules of the kernel that are not built in.
    pub modules: &'static [&'static str],
    /// The signatures, one of which is sufficient.
    pub marks: &'static [Mark],
    /// A further condition.
    pub also: fn(&[u8]) -> bool,
    /// The location of the label.
    pub label: Label,
    /// The location of the UUID.
    pub uuid: Option<u64>,
    /// Reads the identifier if it is not a UUID at a fixed place.
    pub id: Option<fn(&dyn BlockDevice) -> Option<Id>>,
    /// Its length.
    pub len: Length,
    /// Whether the name of a file or an attribute is stored unchanged. Linux changes other names, so that two become equal.
    pub keeps_name: fn(&[u8]) -> bool,
    /// Whether the target of a symbolic link is stored unchanged.
    pub keeps_target: fn(&[u8]) -> bool,
    /// The reason why a volume with these first bytes is not changed, if any.
    pub stays: fn(&[u8]) -> Option<Feature>,
    /// Whether a directory with an unreadable block may be listed without the block and without an error.
    pub skips_unread: bool,
    /// Mount options.
    pub options: &'static str,
    /// Whether owners and permissions of files are mount options.
    pub shows_owners: bool,
    /// Whether the kernel can change it.
    pub writes: bool,
    /// The longest target of a symbolic link.
    pub target: LinkTarget,
    /// The most names of a file.
    pub link_max: u32,
    /// The resolution of timestamps in nanoseconds.
    pub grain: u32,
    /// The first and the last second, if the type's code in Linux stores wrong values for other times without reporting its limits.
    pub seconds: (i64, i64),
    /// The largest number of a user.
    pub uid_max: u32,
    /// The largest number of a group.
    pub gid_max: u32,
    /// Whether names are compared without case.
    pub folds: bool,
    /// Whether files have attributes with any name.
    pub xattrs: bool,
    /// Whether a volume with these first bytes can have extended attributes.
    pub may_have_xattrs: fn(&[u8]) -> bool,
    /// The options that the kernel needs to show the whole volume.
    pub needs: &'static [Need],
    /// The properties that the type stores.
    pub keeps: StoredProperties,
    /// The program that creates an empty volume.
    pub maker: Option<Maker>,
    /// The program that checks a volume.
    pub checker: Option<Checker>,
    /// The programs that change the settings of a volume.
    pub tuner: Option<Tuner>,
    /// The length that a volume with these first bytes gets when Linux grows it to at most a number of bytes, for a type
    /// that Linux grows.
    pub grown: Option<GrownLen>,
    /// The smallest length in bytes to which Linux changes the size of a volume.
    pub least_resized: u64,
}

/// Returns the length that a volume gets when it grows, from its first bytes and the room for it.
pub type GrownLen = fn(&[u8], u64) -> Option<u64>;

/// The number of bytes that any signature, label or UUID needs.
pub const WINDOW: u64 = 72 << 10;

const fn mark(at: u64, bytes: &'static [u8]) -> Mark {
    Mark { at, bytes }
}

fn anything(_: &[u8]) -> bool {
    true
}

/// Linux replaces other bytes with question marks.
fn is_unicode(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok()
}

/// Linux removes other characters at the end: Linux 6.1, fs/hpfs/name.c `hpfs_adjust_length`.
fn is_kept_by_hpfs(name: &[u8]) -> bool {
    !matches!(name.last(), Some(b'.' | b' '))
}

/// Returns whether a target is read as it was written, except for parts without an effect (`.`). It is stored in the form of
/// AmigaOS, with volumes and with `/` for `../`. Linux converts it to a longer form and cuts that to the stored length.
/// Source: Linux 6.1, fs/affs/namei.c `affs_symlink`, fs/affs/symlink.c, fs/namei.c `page_get_link`.
fn is_kept_by_affs(target: &[u8]) -> bool {
    let mut above = target.rsplit(|byte| *byte == b'/').skip(1);
    !target.starts_with(b"/") && !target.contains(&b':') && above.all(|part| part != b"..")
}

/// The properties that a type without directories lacks.
const FLAT: StoredProperties = StoredProperties::DIRECTORIES.union(StoredProperties::SUBDIRECTORIES);

/// Returns the properties of a type that lacks `lost`.
const fn without(lost: StoredProperties) -> StoredProperties {
    StoredProperties::all().difference(lost)
}

/// A type without special properties, the base of all entries.
const NONE: Type = Type {
    names: &[],
    modules: &[],
    marks: &[],
    also: anything,
    label: Label::None,
    uuid: None,
    id: None,
    len: Length::Device,
    keeps_name: anything,
    keeps_target: anything,
    stays: |_| None,
    skips_unread: true,
    options: "",
    shows_owners: false,
    writes: false,
    // `PATH_MAX` of Linux without the final NUL.
    target: LinkTarget::Bytes(4095),
    // Unless the type or its code in Linux has a limit (`s_max_links`).
    link_max: u32::MAX,
    // fs/super.c `alloc_super`, if the type sets no other value.
    grain: 1_000_000_000,
    // No limit: Linux itself clamps times to the limits of the type (`s_time_min`, `s_time_max`).
    seconds: (i64::MIN, i64::MAX),
    uid_max: u32::MAX,
    gid_max: u32::MAX,
    folds: false,
    xattrs: false,
    may_have_xattrs: anything,
    needs: needs::NOTHING,
    keeps: StoredProperties::all(),
    maker: None,
    checker: None,
    tuner: None,
    grown: None,
    least_resized: 0,
};

/// The types, the longest signatures first.
pub static TYPES: &[Type] = &[
    // fs/btrfs/ctree.h `BTRFS_SUPER_INFO_OFFSET`, `BTRFS_MAGIC`.
    Type {
        names: &["btrfs"],
        marks: &[mark(0x1_0040, b"_BHRfS_M")],
        label: Label::Bytes(0x1_012b, 256),
        uuid: Some(0x1_0020),
        len: Length::Bytes(0x1_0070),
        // All other subvolumes are visible from this one. Another subvolume may be the default.
        options: "subvolid=5",
        writes: true,
        // fs/btrfs/ctree.h `BTRFS_LINK_MAX`.
        link_max: 65535,
        grain: 1,
        xattrs: true,
        needs: needs::BTRFS,
        keeps: without(StoredProperties::SUBDIRECTORIES),
        // Btrfs usually has a second copy of such a block, and otherwise reports an error.
        skips_unread: false,
        maker: Some(tools::MAKE_BTRFS),
        checker: Some(tools::CHECK_BTRFS),
        tuner: Some(tools::TUNE_BTRFS),
        grown: Some(btrfs_grown),
        // fs/btrfs/ioctl.c `btrfs_ioctl_resize`.
        least_resized: 256 << 20,
        ..NONE
    },
    // fs/xfs/libxfs/xfs_format.h `XFS_SB_MAGIC`. A volume and its snapshot have the same UUID, which is harmless here.
    Type {
        names: &["xfs"],
        marks: &[mark(0, b"XFSB")],
        label: Label::Bytes(108, 12),
        uuid: Some(32),
        len: Length::BigBlocks(8, 4),
        options: "nouuid",
        writes: true,
        // fs/xfs/libxfs/xfs_fs.h `XFS_SYMLINK_MAXLEN`, without the final NUL.
        target: LinkTarget::Bytes(1023),
        // fs/xfs/libxfs/xfs_format.h `XFS_MAXLINK`.
        link_max: i32::MAX.unsigned_abs(),
        grain: 1,
        xattrs: true,
        needs: needs::XFS,
        maker: Some(tools::MAKE_XFS),
        checker: Some(tools::CHECK_XFS),
        tuner: Some(tools::TUNE_XFS),
        grown: Some(xfs_grown),
        ..NONE
    },
    // include/linux/f2fs_fs.h `F2FS_SUPER_OFFSET`, `F2FS_SUPER_MAGIC` (include/uapi/linux/magic.h).
    Type {
        names: &["f2fs"],
        modules: &["f2fs"],
        marks: &[mark(1024, b"\x10\x20\xf5\xf2")],
        label: Label::Utf16(1024 + 0x7c, 512),
        uuid: Some(1024 + 0x6c),
        len: Length::By(f2fs_len),
        writes: true,
        target: LinkTarget::BlockWith(1),
        grain: 1,
        xattrs: true,
        needs: needs::F2FS,
        maker: Some(tools::MAKE_F2FS),
        checker: Some(tools::CHECK_F2FS),
        tuner: Some(tools::TUNE_F2FS),
        ..NONE
    },
    // fs/jfs/jfs_filsys.h `SUPER1_OFF`, fs/jfs/jfs_superblock.h `JFS_MAGIC`.
    Type {
        names: &["jfs"],
        marks: &[mark(0x8000, b"JFS1")],
        label: Label::Bytes(0x8000 + 152, 16),
        len: Length::By(jfs_len),
        uuid: Some(0x8000 + 136),
        writes: true,
        stays: log_of_jfs,
        grain: 1,
        xattrs: true,
        needs: needs::JFS,
        maker: Some(tools::MAKE_JFS),
        checker: Some(tools::CHECK_JFS),
        tuner: Some(tools::TUNE_JFS),
        ..NONE
    },
    // fs/reiserfs/reiserfs.h `REISERFS_DISK_OFFSET_IN_BYTES`, `REISERFS_SUPER_MAGIC_STRING`.
    Type {
        names: &["reiserfs"],
        marks: &[
            mark(0x1_0034, b"ReIsErFs"),
            mark(0x1_0034, b"ReIsEr2Fs"),
            mark(0x1_0034, b"ReIsEr3Fs"),
            mark(0x2034, b"ReIsErFs"),
        ],
        label: Label::Bytes(0x1_0064, 16),
        uuid: Some(0x1_0054),
        len: Length::By(reiserfs_len),
        options: "acl,user_xattr",
        writes: true,
        // fs/reiserfs/reiserfs.h `MAX_DIRECT_ITEM_LEN` of a block of 4 KiB, the only size that Linux creates.
        target: LinkTarget::Bytes(3976),
        // fs/reiserfs/reiserfs.h `REISERFS_LINK_MAX`.
        link_max: 64535,
        xattrs: true,
        needs: needs::REISERFS,
        maker: Some(tools::MAKE_REISERFS),
        checker: Some(tools::CHECK_REISERFS),
        tuner: Some(tools::TUNE_REISERFS),
        ..NONE
    },
    // include/uapi/linux/nilfs2_ondisk.h `struct nilfs_super_block`, `NILFS_SB_OFFSET_BYTES`.
    Type {
        names: &["nilfs2"],
        modules: &["nilfs2"],
        marks: &[mark(1024, b"\x02\0\0\0\0\0\x34\x34")],
        label: Label::Bytes(1024 + 0xa8, 80),
        uuid: Some(1024 + 0x98),
        // `s_dev_size`.
        len: Length::Bytes(1024 + 32),
        writes: true,
        target: LinkTarget::BlockWith(1),
        // include/uapi/linux/nilfs2_ondisk.h `NILFS_LINK_MAX`.
        link_max: 32000,
        grain: 1,
        // `struct nilfs_inode` has no space for it.
        keeps: without(StoredProperties::ATIME),
        maker: Some(tools::MAKE_NILFS2),
        ..NONE
    },
    // fs/hfsplus/hfsplus_raw.h `HFSPLUS_VOLHEAD_SIG`, `HFSPLUS_VOLHEAD_SIGX`.
    Type {
        names: &["hfsplus"],
        modules: &["hfsplus", "nls_utf8"],
        label: Label::On(label::of_hfsplus),
        id: Some(id::of_hfsplus),
        marks: &[mark(1024, b"H+\0\x04"), mark(1024, b"HX\0\x05")],
        keeps_name: is_unicode,
        writes: true,
        folds: true,
        len: Length::By(hfsplus_len),
        // The number of names is unlimited: fs/hfsplus/hfsplus_raw.h `HFSPLUS_LINK_MAX` is not used.
        // fs/hfsplus/hfsplus_fs.h `__hfsp_ut2mt`.
        seconds: HFS_SECONDS,
        xattrs: true,
        keeps: without(
            StoredProperties::NAMES.union(StoredProperties::HOLES).union(StoredProperties::SUBDIRECTORIES),
        ),
        ..NONE
    },
    // fs/hfs/hfs.h `HFS_SUPER_MAGIC`; its allocation blocks are a multiple of 512 bytes.
    Type {
        names: &["hfs"],
        modules: &["hfs"],
        marks: &[mark(1024, b"BD")],
        also: is_hfs,
        label: Label::Pascal(1024 + 36, 27),
        id: Some(id::of_hfs),
        len: Length::By(hfs_len),
        // A property that the type lacks is never requested.
        options: "quiet",
        writes: true,
        folds: true,
        link_max: 1,
        // fs/hfs/hfs_fs.h `__hfs_u_to_mtime`.
        seconds: HFS_SECONDS,
        keeps: StoredProperties::DIRECTORIES,
        maker: Some(tools::MAKE_HFS),
        ..NONE
    },
    // fs/squashfs/squashfs_fs.h `SQUASHFS_MAGIC`.
    Type {
        names: &["squashfs"],
        modules: &["squashfs"],
        marks: &[mark(0, b"hsqs")],
        also: is_squashfs,
        // `bytes_used`.
        len: Length::Bytes(40),
        xattrs: true,
        may_have_xattrs: has_attributes_of_squashfs,
        needs: needs::SQUASHFS,
        ..NONE
    },
    // fs/erofs/erofs_fs.h `EROFS_SUPER_OFFSET`, `EROFS_SUPER_MAGIC_V1`.
    Type {
        names: &["erofs"],
        modules: &["erofs"],
        marks: &[mark(1024, b"\xe2\xe1\xf5\xe0")],
        label: Label::Bytes(1024 + 64, 16),
        uuid: Some(1024 + 48),
        len: Length::By(erofs_len),
        grain: 1,
        xattrs: true,
        needs: needs::EROFS,
        checker: Some(tools::CHECK_EROFS),
        ..NONE
    },
    // fs/udf/super.c `udf_check_vsd`: ECMA-167 3/9.1, a descriptor `NSR02` or `NSR03` in the recognition sequence.
    Type {
        names: &["udf"],
        modules: &["udf", "nls_utf8"],
        marks: &[mark(0x8001, b"BEA01"), mark(0x8001, b"CD001")],
        also: is_udf,
        label: Label::On(udf::label),
        id: Some(id::of_udf),
        len: Length::On(udf::len),
        keeps_name: is_unicode,
        options: "iocharset=utf8",
        writes: true,
        // fs/udf/super.c `UDF_MAX_LINKS`.
        link_max: 65535,
        // fs/udf/super.c `udf_fill_super`.
        grain: 1000,
        keeps: without(StoredProperties::NAMES),
        maker: Some(tools::MAKE_UDF),
        ..NONE
    },
    // include/uapi/linux/iso_fs.h `ISO_STANDARD_ID`: ECMA-119 8.4.
    Type {
        names: &["iso9660"],
        modules: &["isofs", "nls_utf8"],
        marks: &[mark(0x8001, b"CD001")],
        label: Label::On(label::of_iso),
        id: Some(id::of_iso),
        len: Length::By(iso_len),
        options: "iocharset=utf8",
        needs: needs::ISO9660,
        ..NONE
    },
    // include/uapi/linux/romfs_fs.h `ROMSB_WORD0`.
    Type {
        names: &["romfs"],
        modules: &["romfs"],
        marks: &[mark(0, b"-rom1fs-")],
        label: Label::Bytes(16, 16),
        len: Length::By(romfs_len),
        ..NONE
    },
    // include/uapi/linux/cramfs_fs.h `CRAMFS_MAGIC`; the second place leaves space for a boot sector (fs/cramfs/inode.c).
    Type {
        names: &["cramfs"],
        modules: &["cramfs"],
        marks: &[mark(0, b"\x45\x3d\xcd\x28"), mark(512, b"\x45\x3d\xcd\x28")],
        label: Label::Bytes(48, 16),
        len: Length::By(cramfs_len),
        checker: Some(tools::CHECK_CRAMFS),
        ..NONE
    },
    // include/uapi/linux/bfs_fs.h `BFS_MAGIC`.
    Type {
        names: &["bfs"],
        modules: &["bfs"],
        marks: &[mark(0, b"\xce\xfa\xad\x1b")],
        len: Length::By(bfs_len),
        writes: true,
        keeps: without(
            FLAT.union(StoredProperties::SYMLINKS)
                .union(StoredProperties::SPECIAL)
                .union(StoredProperties::HOLES),
        ),
        maker: Some(tools::MAKE_BFS),
        ..NONE
    },
    // fs/befs/befs_fs_types.h `BEFS_SUPER_MAGIC1`, in either byte order: at 512 on x86, at the start on PowerPC
    // (fs/befs/linuxvfs.c `befs_fill_super`). Without the mount option, a name that is not ASCII ends a listing with an error.
    Type {
        names: &["befs"],
        modules: &["befs", "nls_utf8"],
        marks: &[mark(512 + 32, b"1SFB"), mark(512 + 32, b"BFS1"), mark(32, b"1SFB"), mark(32, b"BFS1")],
        label: Label::Bytes(512, 32),
        keeps_name: is_unicode,
        options: "iocharset=utf8",
        ..NONE
    },
    // include/linux/efs_fs_sb.h `EFS_MAGIC`, `EFS_NEWMAGIC`: big-endian, in the second sector.
    Type {
        names: &["efs"],
        modules: &["efs"],
        marks: &[mark(512 + 28, b"\0\x07\x29\x59"), mark(512 + 28, b"\0\x07\x29\x5a")],
        ..NONE
    },
    // fs/ufs/ufs_fs.h `UFS2_MAGIC`, `SBLOCK_UFS2`, in either byte order; the super block is the first sectors at its place.
    Type {
        names: &["ufs", "ufs2"],
        modules: &["ufs"],
        marks: &[mark(0x1_0000 + 1372, b"\x19\x01\x54\x19"), mark(0x1_0000 + 1372, b"\x19\x54\x01\x19")],
        options: "ufstype=ufs2",
        ..NONE
    },
    // fs/ufs/ufs_fs.h `UFS_MAGIC`, `SBLOCK_UFS1`, in either byte order.
    Type {
        names: &["ufs1"],
        modules: &["ufs"],
        marks: &[mark(0x2000 + 1372, b"\x54\x19\x01\0"), mark(0x2000 + 1372, b"\0\x01\x19\x54")],
        also: is_44bsd,
        options: "ufstype=44bsd",
        ..NONE
    },
    // fs/ufs/ufs_fs.h `UFS_MAGIC_LFN`, `_FEA` and `_4GB`, which only HP-UX has; its processors are big-endian.
    Type {
        names: &["ufs-hp"],
        modules: &["ufs"],
        marks: &[
            mark(0x2000 + 1372, b"\0\x09\x50\x14"),
            mark(0x2000 + 1372, b"\0\x19\x56\x12"),
            mark(0x2000 + 1372, b"\x05\x23\x19\x94"),
        ],
        options: "ufstype=hp",
        ..NONE
    },
    // include/uapi/linux/gfs2_ondisk.h `GFS2_SB_ADDR` (of 512 bytes each), `GFS2_MAGIC` and `GFS2_METATYPE_SB`, big-endian.
    // The label is the name of a lock table, which a single machine does not need.
    Type {
        names: &["gfs2"],
        modules: &["gfs2"],
        marks: &[mark(0x1_0000, b"\x01\x16\x19\x70\0\0\0\x01")],
        label: Label::Bytes(0x1_0000 + 160, 64),
        uuid: Some(0x1_0000 + 256),
        options: "lockproto=lock_nolock,acl",
        writes: true,
        stays: cluster_of_gfs2,
        // After the inode, `struct gfs2_dinode`, and with the final NUL: fs/gfs2/inode.c `gfs2_symlink`.
        target: LinkTarget::BlockWith(232 + 1),
        grain: 1,
        xattrs: true,
        needs: needs::GFS2,
        maker: Some(tools::MAKE_GFS2),
        checker: Some(tools::CHECK_GFS2),
        ..NONE
    },
    // fs/omfs/omfs_fs.h `OMFS_MAGIC`, `struct omfs_super_block`: big-endian.
    Type {
        names: &["omfs"],
        modules: &["omfs"],
        marks: &[mark(272, b"\xc2\x99\x3d\x87")],
        // fs/omfs/omfs_fs.h `struct omfs_super_block`: `s_num_blocks`, `s_blocksize`.
        len: Length::BigBlocks(264, 276),
        shows_owners: true,
        keeps: StoredProperties::DIRECTORIES.union(StoredProperties::NAMES),
        ..NONE
    },
    // fs/freevxfs/vxfs.h `VXFS_SUPER_MAGIC`; fs/freevxfs/vxfs_super.c: UnixWare in block 1, HP-UX in block 8, of 1024 bytes each.
    Type {
        names: &["vxfs"],
        modules: &["freevxfs"],
        marks: &[mark(1024, b"\xf5\xfc\x01\xa5"), mark(8192, b"\xa5\x01\xfc\xf5")],
        ..NONE
    },
    // include/uapi/linux/affs_hardblocks.h, fs/affs/amigaffs.h `FS_OFS` and the following: `DOS` and a number.
    Type {
        names: &["affs"],
        modules: &["affs"],
        marks: &[mark(0, b"DOS")],
        also: |start| start.get(3).is_some_and(|kind| *kind <= 7),
        writes: true,
        folds: true,
        // fs/affs/namei.c `affs_symlink` with blocks of 512 bytes.
        target: LinkTarget::Bytes(287),
        keeps_target: is_kept_by_affs,
        // fs/affs/amigaffs.h `struct affs_tail`.
        uid_max: 0xffff,
        gid_max: 0xffff,
        // A file has one time.
        keeps: without(
            StoredProperties::NAMES
                .union(StoredProperties::SPECIAL)
                .union(StoredProperties::HOLES)
                .union(StoredProperties::SUBDIRECTORIES)
                .union(StoredProperties::CTIME)
                .union(StoredProperties::ATIME),
        ),
        ..NONE
    },
    // include/linux/sysv_fs.h `struct sysv4_super_block`: magic and type at the end of the second sector's 512 bytes.
    Type {
        names: &["sysv"],
        modules: &["sysv"],
        marks: &[mark(512 + 504, b"\x20\x7e\x18\xfd"), mark(512 + 504, b"\xfd\x18\x7e\x20")],
        writes: true,
        // include/linux/sysv_fs.h `struct sysv_inode`.
        uid_max: 0xffff,
        gid_max: 0xffff,
        target: LinkTarget::BlockWith(1),
        // fs/sysv/sysv.h `SYSV_LINK_MAX`.
        link_max: 126,
        len: Length::By(sysv_len),
        label: Label::Bytes(512 + 440, 6),
        ..NONE
    },
    // fs/hpfs/hpfs.h `SB_MAGIC`, in sector 16.
    Type {
        names: &["hpfs"],
        modules: &["hpfs"],
        label: Label::On(label::of_hpfs),
        id: Some(id::of_hpfs),
        marks: &[mark(0x2000, b"\x49\xe8\x95\xf9\xc5\xe9\x53\xfa")],
        len: Length::By(hpfs_len),
        writes: true,
        folds: true,
        link_max: 1,
        keeps_name: is_kept_by_hpfs,
        // fs/hpfs/inode.c `hpfs_write_inode_ea`.
        uid_max: 0xffff,
        gid_max: 0xffff,
        keeps: without(StoredProperties::NAMES.union(StoredProperties::HOLES)),
        ..NONE
    },
    // include/uapi/linux/magic.h `QNX6_SUPER_MAGIC`, in either byte order; after `QNX6_BOOTBLOCK_SIZE`, or without a boot block
    // (fs/qnx6/inode.c `qnx6_fill_super`).
    Type {
        names: &["qnx6"],
        modules: &["qnx6"],
        marks: &[
            mark(0x2000, b"\x22\x11\x19\x68"),
            mark(0x2000, b"\x68\x19\x11\x22"),
            mark(0, b"\x22\x11\x19\x68"),
            mark(0, b"\x68\x19\x11\x22"),
        ],
        ..NONE
    },
    // include/uapi/linux/minix_fs.h `struct minix3_super_block`, include/uapi/linux/magic.h `MINIX3_SUPER_MAGIC`.
    Type {
        names: &["minix", "minix3"],
        len: Length::By(minix3_len),
        modules: &["minix"],
        marks: &[mark(1024 + 24, b"\x5a\x4d")],
        also: is_minix3,
        maker: Some(tools::MAKE_MINIX),
        link_max: MINIX_LINK_MAX,
        ..MINIX
    },
    // `MINIX2_SUPER_MAGIC` and `MINIX2_SUPER_MAGIC2`: with names of 14 and of 30 bytes.
    Type {
        names: &["minix2"],
        len: Length::By(minix_len),
        marks: &[mark(1024 + 16, b"\x68\x24"), mark(1024 + 16, b"\x78\x24")],
        maker: Some(Maker { arguments: &["-2"], ..tools::MAKE_MINIX }),
        link_max: MINIX_LINK_MAX,
        ..MINIX
    },
    // `MINIX_SUPER_MAGIC` and `MINIX_SUPER_MAGIC2`; an inode of this version has one time.
    Type {
        names: &["minix1"],
        len: Length::By(minix_len),
        marks: &[mark(1024 + 16, b"\x7f\x13"), mark(1024 + 16, b"\x8f\x13")],
        maker: Some(Maker { arguments: &["-1"], ..tools::MAKE_MINIX }),
        // fs/minix/inode.c `minix_fill_super`.
        link_max: 250,
        // include/uapi/linux/minix_fs.h `struct minix_inode`.
        gid_max: 0xff,
        keeps: without(StoredProperties::CTIME.union(StoredProperties::ATIME)),
        ..MINIX
    },
];

/// Seconds since 1904 in 32 bits. Linux reads the values before 1970 as times in the following 136 years.
const HFS_SECONDS: (i64, i64) = (0, u32::MAX as i64);

/// include/uapi/linux/minix_fs.h `MINIX2_LINK_MAX`.
const MINIX_LINK_MAX: u32 = 65530;

/// The properties that the versions have in common.
const MINIX: Type = Type {
    modules: &["minix"],
    also: is_minix,
    writes: true,
    target: LinkTarget::BlockWith(1),
    // include/uapi/linux/minix_fs.h `struct minix2_inode`.
    uid_max: 0xffff,
    gid_max: 0xffff,
    checker: Some(tools::CHECK_MINIX),
    ..NONE
};

/// Types that have a native driver, which recognises them. The entries define how the kernel opens them on request.
pub static OTHERS: &[Type] = &[
    // The module also opens ext2 and ext3. fs/ext4/ext4.h `EXT4_LINK_MAX`.
    Type {
        names: &["ext4"],
        writes: true,
        link_max: 65000,
        grain: 1,
        xattrs: true,
        needs: needs::EXT4,
        ..NONE
    },
    Type {
        names: &["vfat"],
        modules: &["vfat", "nls_cp437", "nls_utf8", "nls_iso8859-1"],
        options: "codepage=437,iocharset=iso8859-1,utf8,tz=UTC",
        shows_owners: true,
        writes: true,
        folds: true,
        link_max: 1,
        grain: 2_000_000_000,
        keeps: StoredProperties::DIRECTORIES,
        ..NONE
    },
    Type {
        names: &["exfat"],
        modules: &["exfat", "nls_utf8"],
        options: "iocharset=utf8,time_offset=0",
        shows_owners: true,
        writes: true,
        folds: true,
        link_max: 1,
        grain: 10_000_000,
        keeps: StoredProperties::DIRECTORIES,
        ..NONE
    },
];
