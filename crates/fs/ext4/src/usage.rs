//! Free and used space, as Linux counts it.
//!
//! Source: Linux `fs/ext4/super.c` `ext4_statfs`, `ext4_calculate_overhead`, `ext4_calculate_resv_clusters`.

use obento_base::Ino;
use obento_driver::StatFs;

use crate::feature::{Compat, Incompat};
use crate::group::Totals;
use crate::super_block::SuperBlock;
use crate::volume::Volume;

/// Maximum number of clusters that Linux reserves for itself.
const MAX_KEPT_CLUSTERS: u64 = 4096;

impl Volume {
    /// Returns the statistics of a volume with these free counts.
    pub(crate) fn usage(&self, totals: Totals) -> StatFs {
        let sb = self.super_block();
        let free = to_blocks(sb, totals.free_blocks).min(sb.blocks_count);
        let kept = sb.reserved_blocks().saturating_add(to_blocks(sb, kept_clusters(sb)));
        StatFs {
            block_size: sb.block_size.bytes(),
            blocks: sb.blocks_count.saturating_sub(self.overhead()),
            free,
            available: free.saturating_sub(kept),
            inodes: sb.inodes_count.into(),
            free_inodes: totals.free_inodes,
        }
    }

    /// Returns the number of blocks of the format itself.
    fn overhead(&self) -> u64 {
        let sb = self.super_block();
        let stored = u64::from(sb.raw.s_overhead_clusters.get());
        let clusters = sb.cluster.whole(sb.blocks_count);
        if stored != 0 && stored <= clusters {
            return to_blocks(sb, stored);
        }
        let metadata = if self.zones().is_empty() {
            0
        } else {
            // Block 0 of a volume with 1 KiB blocks is part of the zones and of `s_first_data_block`.
            self.zones().clusters(sb.cluster).saturating_add(self.reserved_descriptors())
        };
        to_blocks(sb, metadata).saturating_add(self.journal_blocks())
    }

    /// Returns the number of clusters of the reserved descriptor blocks in all groups with backups.
    fn reserved_descriptors(&self) -> u64 {
        let sb = self.super_block();
        if sb.incompat.contains(Incompat::META_BG) {
            return 0;
        }
        let copies = (0..sb.groups).filter(|&group| sb.has_copy(group)).count();
        let blocks =
            obento_base::wire::to_u64(copies).saturating_mul(sb.raw.s_reserved_gdt_blocks.get().into());
        sb.cluster.whole(blocks)
    }

    fn journal_blocks(&self) -> u64 {
        let sb = self.super_block();
        let inum = sb.raw.s_journal_inum.get();
        if !sb.compat.contains(Compat::HAS_JOURNAL) || inum == 0 {
            return 0;
        }
        let size = self.inode(Ino(inum.into())).map_or(0, |inode| inode.size());
        sb.block_size.whole(size)
    }
}

fn to_blocks(sb: &SuperBlock, clusters: u64) -> u64 {
    clusters.saturating_mul(sb.cluster_blocks().into())
}

/// Returns the number of clusters that Linux reserves so that delayed allocation never fails.
pub(crate) fn kept_clusters(sb: &SuperBlock) -> u64 {
    if !sb.incompat.contains(Incompat::EXTENT) {
        return 0;
    }
    let clusters = sb.cluster.whole(sb.blocks_count);
    (clusters / 50).min(MAX_KEPT_CLUSTERS)
}
