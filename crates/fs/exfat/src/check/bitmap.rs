//! Comparing the bitmap with the owners of clusters.

use alloc::vec::Vec;

use obento_base::Result;
use obento_clusters::{Bits, Cluster, Entry, Links as _, Portions, Run, clusters_of};

use super::edit::Edit;
use super::issue::Issue;
use super::rescue::Rescue;
use super::{Pass, View};

/// Returns the byte offset on the device of byte `at` of the bitmap, and the number of contiguous bytes there.
pub fn place_of(view: &View, runs: &[Run], at: u64) -> Option<(u64, u64)> {
    let size = u64::from(view.sb.cluster_size);
    let cluster = u32::try_from(at.checked_div(size)?).ok()?;
    let run = runs.get(runs.partition_point(|run| run.at <= cluster).checked_sub(1)?)?;
    let skipped = cluster.checked_sub(run.at).filter(|&skipped| skipped < run.len)?;
    let start = view.sb.offset_of(Cluster(run.start.0.checked_add(skipped)?))?;
    let within = at.checked_rem(size)?;
    let left = u64::from(run.len.saturating_sub(skipped)).saturating_mul(size).saturating_sub(within);
    Some((start.checked_add(within)?, left))
}

/// Returns the clusters that the bitmap in `runs` marks as used. Fails with `NoMemory`, or if the device fails.
pub fn read(view: &View, runs: &[Run]) -> Result<Bits> {
    let (mut used, len) = (Bits::default(), view.sb.bitmap_len());
    for run in runs {
        let at = u64::from(run.at).saturating_mul(view.sb.cluster_size.into());
        let Some((start, left)) = place_of(view, runs, at) else { break };
        let end = start.saturating_add(left.min(len.saturating_sub(at)));
        let mut portions = Portions::new(&**view.device(), start..end);
        while let Some((range, bytes)) = portions.next_portion() {
            let byte = at.saturating_add(range.start.saturating_sub(start));
            let first = u32::try_from(byte.saturating_mul(8).saturating_add(2)).unwrap_or(u32::MAX);
            used.load(Cluster(first), bytes?)?;
        }
    }
    Ok(used)
}

/// Returns the first of `count` contiguous free clusters.
pub fn free_run(view: &View, look: &Pass<'_>, count: u32) -> Option<Cluster> {
    let mut free = view.used.gaps_of_both(&look.owned, view.sb.numbers());
    let found = free.find(|&(_, len)| len >= count && !view.bitmap.is_empty());
    found.map(|(start, _)| start)
}

/// Returns the runs of clusters in use without an owner. The bitmap marks clusters that the FAT describes as bad, so that
/// no file gets them.
fn lost(view: &View, look: &Pass<'_>) -> Result<Bits> {
    let (mut lost, mut table) = (Bits::default(), view.table());
    for (start, len) in view.used.runs_without(&look.owned, view.sb.numbers()) {
        lost.set_run(start, len)?;
        for cluster in clusters_of((start, len)) {
            if table.entry(cluster)? == Entry::Bad {
                lost.unset(cluster)?;
            }
        }
    }
    Ok(lost)
}

/// Compares the bitmap. Clusters without an owner are freed, or become files.
pub fn check(view: &View, look: &mut Pass<'_>, mut rescue: Option<Rescue>) -> Result<()> {
    if view.bitmap.is_empty() {
        return Ok(());
    }
    let unmarked = look.owned.runs_without(&view.used, view.sb.numbers());
    let unmarked: Vec<_> = unmarked.take(super::BATCH).collect();
    let lost = lost(view, look)?;
    look.report.blocks.0 = look.owned.count(view.sb.numbers()).into();
    // They may belong to something that is damaged.
    let is_damaged = look.is_damaged;
    for (Cluster(cluster), clusters) in unmarked {
        let edit = Edit::Mark(Cluster(cluster), clusters, true);
        look.found(Issue::UnmarkedClusters { cluster, clusters }, Vec::from([edit]));
    }
    for (Cluster(cluster), clusters) in lost.runs(view.sb.numbers()).take(super::BATCH) {
        let edits = match &mut rescue {
            _ if is_damaged => Vec::new(),
            Some(rescue) => rescue.file(view, Cluster(cluster), clusters),
            None => Vec::from([Edit::Mark(Cluster(cluster), clusters, false)]),
        };
        look.found(Issue::LostClusters { cluster, clusters }, edits);
    }
    Ok(())
}
