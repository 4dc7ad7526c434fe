//! Properties of a volume from its first bytes: the exact type and the length. Signatures do not suffice for these
//! types.
//!
//! Sources: files of Linux 6.1, named beside each function. A function returns `None` for a missing field.

use obento_base::Feature;

/// Returns the units of a text in big-endian UTF-16.
pub(super) fn utf16_be(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]])).collect()
}

pub(super) fn u16_at(start: &[u8], at: usize) -> Option<u16> {
    start.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

pub(super) fn u32_at(start: &[u8], at: usize) -> Option<u32> {
    start.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Returns the length of a Btrfs volume that grows to at most `len` bytes.
/// fs/btrfs/ctree.h `struct btrfs_super_block`: `sectorsize`; fs/btrfs/ioctl.c `btrfs_ioctl_resize`.
pub(super) fn btrfs_grown(start: &[u8], len: u64) -> Option<u64> {
    len.checked_sub(len.checked_rem(u32_at(start, 0x1_0090)?.into())?)
}

/// Returns the length of an XFS volume that grows to at most `len` bytes. A last allocation group of fewer than 64 blocks
/// is left out.
/// fs/xfs/libxfs/xfs_format.h `struct xfs_dsb`: `sb_blocksize`, `sb_agblocks`, big-endian; fs/xfs/xfs_fsops.c
/// `xfs_growfs_data_private`; fs/xfs/libxfs/xfs_fs.h `XFS_MIN_AG_BLOCKS`.
pub(super) fn xfs_grown(start: &[u8], len: u64) -> Option<u64> {
    let u32_at = |at: usize| Some(u64::from(u32::from_be_bytes(*start.get(at..)?.first_chunk()?)));
    let (block, group) = (u32_at(4)?, u32_at(84)?);
    let blocks = len.checked_div(block)?;
    let rest = blocks.checked_rem(group)?;
    let left_out = if rest < 64 { rest } else { 0 };
    blocks.checked_sub(left_out)?.checked_mul(block)
}

/// fs/squashfs/squashfs_fs.h `struct squashfs_super_block`: `xattr_id_table_start`, which is `SQUASHFS_INVALID_BLK` if no file has attributes.
pub(super) fn has_attributes_of_squashfs(start: &[u8]) -> bool {
    start.get(56..64) != Some(&[0xff; 8])
}

/// drAlBlkSiz, big-endian.
pub(super) fn is_hfs(start: &[u8]) -> bool {
    let size =
        start.get(1024 + 20..).and_then(|rest| rest.first_chunk()).map(|bytes| u32::from_be_bytes(*bytes));
    size.is_some_and(|size| size > 0 && size % 512 == 0)
}

/// fs/hfsplus/hfsplus_raw.h `struct hfsplus_vh`: `blocksize`, `total_blocks`, big-endian.
pub(super) fn hfsplus_len(start: &[u8]) -> Option<u64> {
    let size = u32::from_be_bytes(*start.get(1024 + 40..)?.first_chunk()?);
    let blocks = u32::from_be_bytes(*start.get(1024 + 44..)?.first_chunk()?);
    u64::from(size).checked_mul(blocks.into())
}

/// fs/hfs/hfs.h `struct hfs_mdb`: `drNmAlBlks` blocks of `drAlBlkSiz` bytes from sector `drAlBlSt` on.
pub(super) fn hfs_len(start: &[u8]) -> Option<u64> {
    let u16_at = |at: usize| Some(u16::from_be_bytes(*start.get(1024 + at..)?.first_chunk()?));
    let size = u32::from_be_bytes(*start.get(1024 + 20..)?.first_chunk()?);
    let blocks = u64::from(size).checked_mul(u16_at(18)?.into())?;
    blocks.checked_add(u64::from(u16_at(28)?) * 512)
}

/// fs/reiserfs/reiserfs.h `struct reiserfs_super_block_v1`: `s_block_count`, `s_blocksize`.
pub(super) fn reiserfs_len(start: &[u8]) -> Option<u64> {
    let is_old = start.get(0x2034..)?.starts_with(b"ReIsErFs");
    let at = if is_old { 0x2000 } else { 0x1_0000 };
    Some(u64::from(u32_at(start, at)?) * u64::from(u16_at(start, at + 44)?))
}

/// include/uapi/linux/iso_fs.h `struct iso_primary_descriptor`: `volume_space_size`, `logical_block_size`.
pub(super) fn iso_len(start: &[u8]) -> Option<u64> {
    let is_primary = start.get(0x8000) == Some(&1);
    is_primary.then_some(u64::from(u32_at(start, 0x8050)?) * u64::from(u16_at(start, 0x8080)?))
}

/// include/uapi/linux/romfs_fs.h `struct romfs_super_block`: `size`.
pub(super) fn romfs_len(start: &[u8]) -> Option<u64> {
    Some(u32::from_be_bytes(*start.get(8..)?.first_chunk()?).into())
}

/// include/uapi/linux/cramfs_fs.h `struct cramfs_super`: `size`, which the first version did not set (`CRAMFS_FLAG_FSID_VERSION_2`).
pub(super) fn cramfs_len(start: &[u8]) -> Option<u64> {
    let at = if start.starts_with(b"\x45\x3d\xcd\x28") { 0 } else { 512 };
    (u32_at(start, at + 8)? & 1 != 0).then_some(u32_at(start, at + 4)?.into())
}

/// fs/erofs/erofs_fs.h `struct erofs_super_block`: `blocks`, `blkszbits`.
pub(super) fn erofs_len(start: &[u8]) -> Option<u64> {
    let shift = u32::from(*start.get(1024 + 12)?);
    u64::from(u32_at(start, 1024 + 36)?).checked_mul(1_u64.checked_shl(shift)?)
}

/// include/uapi/linux/bfs_fs.h `struct bfs_super_block`: `s_end`, the last byte.
pub(super) fn bfs_len(start: &[u8]) -> Option<u64> {
    Some(u64::from(u32_at(start, 8)?) + 1)
}

/// fs/hpfs/hpfs.h `struct hpfs_super_block`: `n_sectors`.
pub(super) fn hpfs_len(start: &[u8]) -> Option<u64> {
    Some(u64::from(u32_at(start, 0x2000 + 16)?) * 512)
}

/// SunOS and NeXTSTEP use the same magic number, but store owners and states at other places: fs/ufs/ufs_fs.h
/// `fs_u2.fs_44.fs_inodefmt`, `UFS_44INODEFMT`.
pub(super) fn is_44bsd(start: &[u8]) -> bool {
    let format = start.get(0x2000 + 1324..).and_then(|rest| rest.first_chunk::<4>());
    matches!(format, Some([2, 0, 0, 0] | [0, 0, 0, 2]))
}

/// include/linux/f2fs_fs.h `struct f2fs_super_block`: `block_count`, `log_blocksize`.
pub(super) fn f2fs_len(start: &[u8]) -> Option<u64> {
    let blocks = u64::from_le_bytes(*start.get(1024 + 36..)?.first_chunk()?);
    let shift = u32_at(start, 1024 + 16)?;
    blocks.checked_mul(1_u64.checked_shl(shift)?)
}

/// fs/jfs/jfs_superblock.h `struct jfs_superblock`: `s_size`, in blocks of `s_pbsize` bytes; the log follows.
pub(super) fn jfs_len(start: &[u8]) -> Option<u64> {
    let blocks = u64::from_le_bytes(*start.get(0x8000 + 8..)?.first_chunk()?);
    let size = u32_at(start, 0x8000 + 24)?;
    blocks.checked_mul(size.into())
}

/// Linux does not replay the log of a JFS volume. Unless `s_state` is `FM_CLEAN` (fs/jfs/jfs_superblock.h), the volume is mounted or was not unmounted.
pub(super) fn log_of_jfs(start: &[u8]) -> Option<Feature> {
    let state = start.get(0x8000 + 40..)?.first_chunk::<4>()?;
    (*state != [0; 4]).then_some(Feature::UnreplayedLog)
}

/// Several machines of a cluster may mount the volume and coordinate by locks: `sb_lockproto` of include/uapi/linux/gfs2_ondisk.h.
pub(super) fn cluster_of_gfs2(start: &[u8]) -> Option<Feature> {
    let locks = start.get(0x1_0000 + 96..)?;
    (!locks.starts_with(b"lock_nolock\0")).then_some(Feature::Cluster)
}

/// include/linux/sysv_fs.h `struct sysv4_super_block`: `s_fsize`, in blocks whose size `s_type` defines, in the byte order of
/// the magic number.
pub(super) fn sysv_len(start: &[u8]) -> Option<u64> {
    let little = start.get(512 + 504..)?.first_chunk() == Some(&[0x20, 0x7e, 0x18, 0xfd]);
    let field = |at: usize| {
        let bytes = *start.get(512 + at..)?.first_chunk()?;
        Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    // fs/sysv/super.c `detect_sysv`.
    let kind = match field(508)? {
        kind @ 1..=3 => kind,
        kind @ 0x10..=0x30 => kind >> 4,
        _ => return None,
    };
    Some(u64::from(field(4)?) << (8 + kind))
}

/// include/uapi/linux/minix_fs.h `struct minix_super_block`: `s_nzones`, or `s_zones` of the second version; zones of 1024 bytes.
pub(super) fn minix_len(start: &[u8]) -> Option<u64> {
    let zones = u32_at(start, 1024 + 20)?;
    let zones = if zones > 0 { zones } else { u32::from(u16_at(start, 1024 + 2)?) };
    Some(u64::from(zones) << 10)
}

/// `struct minix3_super_block`: `s_zones`, `s_blocksize`.
pub(super) fn minix3_len(start: &[u8]) -> Option<u64> {
    let zones = u32_at(start, 1024 + 20)?;
    u64::from(zones).checked_mul(u16_at(start, 1024 + 28)?.into())
}

/// Two bytes are a weak signature, so the bitmaps are verified too. The volume must have an imap, a zmap, a first data
/// zone after them, and zones of one block.
pub(super) fn is_minix(start: &[u8]) -> bool {
    let field = |at: usize| u16_at(start, 1024 + at).unwrap_or(0);
    field(4) > 0 && field(6) > 0 && field(8) > field(4) && field(10) == 0
}

/// The same conditions for the third version, and a block size.
pub(super) fn is_minix3(start: &[u8]) -> bool {
    let field = |at: usize| u16_at(start, 1024 + at).unwrap_or(0);
    field(6) > 0 && field(8) > 0 && matches!(field(28), 1024 | 2048 | 4096)
}

/// fs/squashfs/squashfs_fs.h `struct squashfs_super_block`: `s_major`. Linux opens version 4 only.
pub(super) fn is_squashfs(start: &[u8]) -> bool {
    u16_at(start, 28) == Some(4)
}

/// The recognition sequence: descriptors of 2048 bytes, or of a block, up to the first invalid one.
pub(super) fn is_udf(start: &[u8]) -> bool {
    [2048, 4096].iter().any(|step| {
        let descriptors = (0x8000..start.len()).step_by(*step).map_while(|at| start.get(at + 1..at + 6));
        descriptors
            .take_while(|name| name.iter().any(|byte| *byte != 0))
            .any(|name| name.starts_with(b"NSR0"))
    })
}
