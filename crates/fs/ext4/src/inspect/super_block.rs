//! Showing a super block.

use core::mem::offset_of;

use obento_base::wire::{FromBytes, to_usize};
use obento_base::{Corrupt, Error, Result, Structure};
use obento_driver::fields;
use obento_driver::record::Builder;

use super::Sink;
use crate::raw::RawSuperBlock;
use crate::super_block::{PRIMARY_OFFSET, SuperBlock};
use crate::unit::VolBlock;
use crate::volume::Volume;

/// Passes copy number `copy` of the super block to `sink`.
pub(super) fn inspect(volume: &Volume, copy: u32, sink: Sink<'_>) -> Result<()> {
    let sb = volume.super_block();
    let group = sb.copies().nth(to_usize(copy.into())).ok_or(Error::NotFound)?;
    let block = sb.group_start(group);
    let start = match group {
        0 => PRIMARY_OFFSET,
        _ => block.0.saturating_mul(sb.block_size.into()),
    };
    let mut bytes = [0; size_of::<RawSuperBlock>()];
    volume.device().read_at(start, &mut bytes)?;
    let truncated =
        Corrupt::Truncated { structure: Structure::SuperBlock, block: block.0, offset: 0, len: 1024 };
    let raw = RawSuperBlock::ref_from_bytes(&bytes).map_err(|_| truncated)?;
    let mut builder = Builder::new("super block", 0, start);
    first_fields(&mut builder, raw);
    later_fields(&mut builder, raw);
    sink(Ok(builder.finish()));
    let at = VolBlock(start.checked_div(sb.block_size.into()).unwrap_or(0));
    if let Err(error) = SuperBlock::decode(&bytes, at).and_then(|copy| copy.verify(at)) {
        sink(Err(error));
    }
    Ok(())
}

fn first_fields(builder: &mut Builder, raw: &RawSuperBlock) {
    fields!(
        builder,
        raw,
        RawSuperBlock {
            s_inodes_count: Number,
            s_blocks_count_lo: Number,
            s_r_blocks_count_lo: Number,
            s_free_blocks_count_lo: Number,
            s_free_inodes_count: Number,
            s_first_data_block: Number,
            s_log_block_size: Number,
            s_log_cluster_size: Number,
            s_blocks_per_group: Number,
            s_clusters_per_group: Number,
            s_inodes_per_group: Number,
            s_mtime: Number,
            s_wtime: Number,
            s_mnt_count: Number,
            s_max_mnt_count: Number,
            s_magic: Hex,
            s_state: Hex,
            s_errors: Number,
            s_minor_rev_level: Number,
            s_lastcheck: Number,
            s_checkinterval: Number,
            s_creator_os: Number,
            s_rev_level: Number,
            s_def_resuid: Number,
            s_def_resgid: Number,
            s_first_ino: Number,
            s_inode_size: Number,
            s_block_group_nr: Number,
            s_feature_compat: Hex,
            s_feature_incompat: Hex,
            s_feature_ro_compat: Hex,
            s_uuid: Bytes,
            s_volume_name: Bytes,
            s_last_mounted: Bytes,
            s_algorithm_usage_bitmap: Hex,
            s_prealloc_blocks: Number,
            s_prealloc_dir_blocks: Number,
            s_reserved_gdt_blocks: Number,
            s_journal_uuid: Bytes,
            s_journal_inum: Number,
            s_journal_dev: Hex,
            s_last_orphan: Number,
            s_hash_seed: Bytes,
            s_def_hash_version: Number,
            s_jnl_backup_type: Number,
            s_desc_size: Number,
            s_default_mount_opts: Hex,
            s_first_meta_bg: Number,
            s_mkfs_time: Number,
            s_jnl_blocks: Bytes,
        }
    );
}

fn later_fields(builder: &mut Builder, raw: &RawSuperBlock) {
    debug_assert_eq!(offset_of!(RawSuperBlock, s_blocks_count_hi), 0x150);
    fields!(
        builder,
        raw,
        RawSuperBlock {
            s_blocks_count_hi: Number,
            s_r_blocks_count_hi: Number,
            s_free_blocks_count_hi: Number,
            s_min_extra_isize: Number,
            s_want_extra_isize: Number,
            s_flags: Hex,
            s_raid_stride: Number,
            s_mmp_update_interval: Number,
            s_mmp_block: Number,
            s_raid_stripe_width: Number,
            s_log_groups_per_flex: Number,
            s_checksum_type: Number,
            s_encryption_level: Number,
            s_kbytes_written: Number,
            s_snapshot_inum: Number,
            s_snapshot_id: Number,
            s_snapshot_r_blocks_count: Number,
            s_snapshot_list: Number,
            s_error_count: Number,
            s_first_error_time: Number,
            s_first_error_ino: Number,
            s_first_error_block: Number,
            s_first_error_func: Bytes,
            s_first_error_line: Number,
            s_last_error_time: Number,
            s_last_error_ino: Number,
            s_last_error_line: Number,
            s_last_error_block: Number,
            s_last_error_func: Bytes,
            s_mount_opts: Bytes,
            s_usr_quota_inum: Number,
            s_grp_quota_inum: Number,
            s_overhead_clusters: Number,
            s_backup_bgs: Bytes,
            s_encrypt_algos: Bytes,
            s_encrypt_pw_salt: Bytes,
            s_lpf_ino: Number,
            s_prj_quota_inum: Number,
            s_checksum_seed: Hex,
            s_wtime_hi: Number,
            s_mtime_hi: Number,
            s_mkfs_time_hi: Number,
            s_lastcheck_hi: Number,
            s_first_error_time_hi: Number,
            s_last_error_time_hi: Number,
            s_first_error_errcode: Number,
            s_last_error_errcode: Number,
            s_encoding: Number,
            s_encoding_flags: Hex,
            s_orphan_file_inum: Number,
            s_def_resuid_hi: Number,
            s_def_resgid_hi: Number,
            s_checksum: Hex,
        }
    );
}
