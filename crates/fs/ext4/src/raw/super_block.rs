//! `struct ext4_super_block`, at byte 1024 of the volume.

use obento_base::wire::le::{U16, U32, U64};
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The super block: 1024 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawSuperBlock {
    /// 0x0: number of inodes.
    pub s_inodes_count: U32,
    /// 0x4: number of blocks, low 32 bits.
    pub s_blocks_count_lo: U32,
    /// 0x8: blocks that are reserved for the super user, low 32 bits.
    pub s_r_blocks_count_lo: U32,
    /// 0xc: free blocks, low 32 bits (clusters with bigalloc).
    pub s_free_blocks_count_lo: U32,
    /// 0x10: free inodes.
    pub s_free_inodes_count: U32,
    /// 0x14: the block that contains the primary super block.
    pub s_first_data_block: U32,
    /// 0x18: block size is 1024 shifted left by this.
    pub s_log_block_size: U32,
    /// 0x1c: cluster size likewise (fragment size without bigalloc).
    pub s_log_cluster_size: U32,
    /// 0x20: blocks per group.
    pub s_blocks_per_group: U32,
    /// 0x24: clusters per group.
    pub s_clusters_per_group: U32,
    /// 0x28: inodes per group.
    pub s_inodes_per_group: U32,
    /// 0x2c: time of the last mount.
    pub s_mtime: U32,
    /// 0x30: time of the last write.
    pub s_wtime: U32,
    /// 0x34: number of mounts since the last check.
    pub s_mnt_count: U16,
    /// 0x36: number of mounts after which to check.
    pub s_max_mnt_count: U16,
    /// 0x38: 0xef53.
    pub s_magic: U16,
    /// 0x3a: 1 clean, 2 errors, 4 orphans being recovered.
    pub s_state: U16,
    /// 0x3c: behaviour on errors: 1 continue, 2 read-only, 3 panic.
    pub s_errors: U16,
    /// 0x3e: minor revision.
    pub s_minor_rev_level: U16,
    /// 0x40: time of the last check.
    pub s_lastcheck: U32,
    /// 0x44: seconds between checks.
    pub s_checkinterval: U32,
    /// 0x48: 0 Linux, 1 Hurd, 2 Masix, 3 FreeBSD, 4 Lites.
    pub s_creator_os: U32,
    /// 0x4c: 0 original, 1 with dynamic inode sizes.
    pub s_rev_level: U32,
    /// 0x50: user who may use reserved blocks.
    pub s_def_resuid: U16,
    /// 0x52: group that may use reserved blocks.
    pub s_def_resgid: U16,
    /// 0x54: first inode that is not reserved.
    pub s_first_ino: U32,
    /// 0x58: size of an inode in bytes.
    pub s_inode_size: U16,
    /// 0x5a: group of this backup.
    pub s_block_group_nr: U16,
    /// 0x5c
    pub s_feature_compat: U32,
    /// 0x60
    pub s_feature_incompat: U32,
    /// 0x64
    pub s_feature_ro_compat: U32,
    /// 0x68
    pub s_uuid: [u8; 16],
    /// 0x78: label, up to the first NUL.
    pub s_volume_name: [u8; 16],
    /// 0x88: last mount point.
    pub s_last_mounted: [u8; 64],
    /// 0xc8
    pub s_algorithm_usage_bitmap: U32,
    /// 0xcc
    pub s_prealloc_blocks: u8,
    /// 0xcd
    pub s_prealloc_dir_blocks: u8,
    /// 0xce: descriptor blocks that are reserved for growth.
    pub s_reserved_gdt_blocks: U16,
    /// 0xd0: UUID of the external journal.
    pub s_journal_uuid: [u8; 16],
    /// 0xe0: inode of the journal.
    pub s_journal_inum: U32,
    /// 0xe4: device of the external journal.
    pub s_journal_dev: U32,
    /// 0xe8: head of the orphan list.
    pub s_last_orphan: U32,
    /// 0xec: seed of directory hashes.
    pub s_hash_seed: [U32; 4],
    /// 0xfc: hash of new directories.
    pub s_def_hash_version: u8,
    /// 0xfd: 1 if `s_jnl_blocks` contains a copy of the journal inode's map.
    pub s_jnl_backup_type: u8,
    /// 0xfe: size of a descriptor in bytes, with `64bit`.
    pub s_desc_size: U16,
    /// 0x100
    pub s_default_mount_opts: U32,
    /// 0x104: first descriptor block whose place `meta_bg` defines.
    pub s_first_meta_bg: U32,
    /// 0x108: time of creation.
    pub s_mkfs_time: U32,
    /// 0x10c: copy of the journal inode's `i_block` and size.
    pub s_jnl_blocks: [U32; 17],
    /// 0x150: number of blocks, high 32 bits.
    pub s_blocks_count_hi: U32,
    /// 0x154
    pub s_r_blocks_count_hi: U32,
    /// 0x158
    pub s_free_blocks_count_hi: U32,
    /// 0x15c
    pub s_min_extra_isize: U16,
    /// 0x15e
    pub s_want_extra_isize: U16,
    /// 0x160: 1 signed directory hash, 2 unsigned, 4 test file system.
    pub s_flags: U32,
    /// 0x164
    pub s_raid_stride: U16,
    /// 0x166: seconds between checks of the multiple mount protection.
    pub s_mmp_update_interval: U16,
    /// 0x168: block of the multiple mount protection.
    pub s_mmp_block: U64,
    /// 0x170
    pub s_raid_stripe_width: U32,
    /// 0x174: number of groups in a flex group as a power of two.
    pub s_log_groups_per_flex: u8,
    /// 0x175: 1 for crc32c.
    pub s_checksum_type: u8,
    /// 0x176
    pub s_encryption_level: u8,
    /// 0x177
    pub s_reserved_pad: u8,
    /// 0x178: KiB written since creation.
    pub s_kbytes_written: U64,
    /// 0x180
    pub s_snapshot_inum: U32,
    /// 0x184
    pub s_snapshot_id: U32,
    /// 0x188
    pub s_snapshot_r_blocks_count: U64,
    /// 0x190
    pub s_snapshot_list: U32,
    /// 0x194: number of errors.
    pub s_error_count: U32,
    /// 0x198
    pub s_first_error_time: U32,
    /// 0x19c
    pub s_first_error_ino: U32,
    /// 0x1a0
    pub s_first_error_block: U64,
    /// 0x1a8
    pub s_first_error_func: [u8; 32],
    /// 0x1c8
    pub s_first_error_line: U32,
    /// 0x1cc
    pub s_last_error_time: U32,
    /// 0x1d0
    pub s_last_error_ino: U32,
    /// 0x1d4
    pub s_last_error_line: U32,
    /// 0x1d8
    pub s_last_error_block: U64,
    /// 0x1e0
    pub s_last_error_func: [u8; 32],
    /// 0x200
    pub s_mount_opts: [u8; 64],
    /// 0x240
    pub s_usr_quota_inum: U32,
    /// 0x244
    pub s_grp_quota_inum: U32,
    /// 0x248: blocks of the format itself.
    pub s_overhead_clusters: U32,
    /// 0x24c: groups with backups, with `sparse_super2`.
    pub s_backup_bgs: [U32; 2],
    /// 0x254
    pub s_encrypt_algos: [u8; 4],
    /// 0x258
    pub s_encrypt_pw_salt: [u8; 16],
    /// 0x268: inode of lost+found.
    pub s_lpf_ino: U32,
    /// 0x26c
    pub s_prj_quota_inum: U32,
    /// 0x270: seed of all checksums, with `metadata_csum_seed`.
    pub s_checksum_seed: U32,
    /// 0x274
    pub s_wtime_hi: u8,
    /// 0x275
    pub s_mtime_hi: u8,
    /// 0x276
    pub s_mkfs_time_hi: u8,
    /// 0x277
    pub s_lastcheck_hi: u8,
    /// 0x278
    pub s_first_error_time_hi: u8,
    /// 0x279
    pub s_last_error_time_hi: u8,
    /// 0x27a
    pub s_first_error_errcode: u8,
    /// 0x27b
    pub s_last_error_errcode: u8,
    /// 0x27c: 1 for UTF-8 12.1, with `casefold`.
    pub s_encoding: U16,
    /// 0x27e: 1 to refuse names that are not in the encoding.
    pub s_encoding_flags: U16,
    /// 0x280: inode of the orphan file.
    pub s_orphan_file_inum: U32,
    /// 0x284
    pub s_def_resuid_hi: U16,
    /// 0x286
    pub s_def_resgid_hi: U16,
    /// 0x288
    pub s_reserved: [U32; 93],
    /// 0x3fc: crc32c of all bytes before it.
    pub s_checksum: U32,
}
const _: () = assert!(size_of::<RawSuperBlock>() == 1024);
