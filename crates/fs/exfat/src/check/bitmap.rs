//! Comparing the bitmap with the owners of clusters.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_usize;
use obento_clusters::{Cluster, Entry, Links as _};

use super::edit::Edit;
use super::issue::Issue;
use super::rescue::Rescue;
use super::{Pass, View};

/// Number of bytes of the bitmap that are read at a time.
const STEP: u64 = 64 << 10;

/// Returns the byte offset on the device of byte `at` of the bitmap.
pub fn place_of(view: &View, at: u64) -> Option<u64> {
    let size = u64::from(view.sb.cluster_size);
    let cluster = u32::try_from(at.checked_div(size)?).ok()?;
    let run = view.bitmap.get(view.bitmap.partition_point(|run| run.at <= cluster).checked_sub(1)?)?;
    let skipped = cluster.checked_sub(run.at).filter(|&skipped| skipped < run.len)?;
    let start = view.sb.offset_of(Cluster(run.start.0.checked_add(skipped)?))?;
    start.checked_add(at.checked_rem(size)?)
}

/// Passes each cluster to `act`, and whether the bitmap marks it as used, until `act` returns false.
pub fn each(view: &View, mut act: impl FnMut(Cluster, bool) -> bool) -> Result<()> {
    let (len, size) = (view.sb.bitmap_len(), u64::from(view.sb.cluster_size));
    let mut bytes = vec![0; to_usize(STEP)];
    let mut at = 0_u64;
    let mut cluster = 2_u32;
    while at < len {
        let Some(place) = place_of(view, at) else { return Ok(()) };
        let in_cluster = size.saturating_sub(at.checked_rem(size).unwrap_or(0));
        let step = in_cluster.min(STEP).min(len.saturating_sub(at)).max(1);
        let part = bytes.get_mut(..to_usize(step)).unwrap_or_default();
        view.device().read_at(place, part)?;
        for bit in part.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)) {
            if !view.sb.has(Cluster(cluster)) {
                break;
            }
            if !act(Cluster(cluster), bit) {
                return Ok(());
            }
            cluster = cluster.saturating_add(1);
        }
        at = at.saturating_add(step);
    }
    Ok(())
}

/// Returns whether the bitmap marks `count` clusters from `first` on as used. Fails if the device fails.
pub fn is_marked(view: &View, first: Cluster, count: u32) -> Result<bool> {
    let start = u64::from(first.0.saturating_sub(2));
    for bit in start..start.saturating_add(count.into()) {
        let Some(place) = place_of(view, bit >> 3) else { return Ok(false) };
        let size = u64::from(view.sb.sector_size);
        let sector = view.cache.get(place.checked_div(size).unwrap_or(0))?;
        let byte = sector.get(to_usize(place.checked_rem(size).unwrap_or(0))).copied().unwrap_or(0);
        if byte >> (bit & 7) & 1 == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the first of `count` contiguous free clusters.
pub fn free_run(view: &View, look: &Pass<'_>, count: u32) -> Result<Option<Cluster>> {
    let (mut len, mut found) = (0_u32, None);
    each(view, |cluster, in_use| {
        len = if in_use || look.owned.has(cluster) { 0 } else { len.saturating_add(1) };
        if len >= count {
            found = Some(Cluster(cluster.0.saturating_add(1).saturating_sub(count)));
        }
        found.is_none()
    })?;
    Ok(found)
}

/// A run of clusters of one kind.
#[derive(Default)]
struct Row {
    start: u32,
    len: u32,
}

impl Row {
    /// Adds a cluster. Returns the previous run, if the cluster does not extend it.
    fn push(&mut self, cluster: Cluster) -> Option<Self> {
        if self.len > 0 && self.start.saturating_add(self.len) == cluster.0 {
            self.len = self.len.saturating_add(1);
            return None;
        }
        let before = core::mem::replace(self, Self { start: cluster.0, len: 1 });
        (before.len > 0).then_some(before)
    }
}

/// Compares the bitmap. Clusters without an owner are freed, or become files.
pub fn check(view: &View, look: &mut Pass<'_>, mut rescue: Option<Rescue>) -> Result<()> {
    if view.bitmap.is_empty() {
        return Ok(());
    }
    let (mut unmarked, mut lost, mut used) = (Row::default(), Row::default(), 0_u64);
    let (mut unmarked_rows, mut lost_rows) = (Vec::new(), Vec::new());
    let (mut table, mut failed) = (view.table(), None);
    each(view, |cluster, in_use| {
        let owned = look.owned.has(cluster);
        used = used.saturating_add(u64::from(owned));
        match (owned, in_use) {
            (true, false) => unmarked_rows.extend(unmarked.push(cluster)),
            // The bitmap marks clusters that the FAT describes as bad, so that no file gets them.
            (false, true) => match table.entry(cluster) {
                Ok(Entry::Bad) => {}
                Ok(_) => lost_rows.extend(lost.push(cluster)),
                Err(error) => failed = Some(error),
            },
            _ => {}
        }
        failed.is_none() && unmarked_rows.len().max(lost_rows.len()) < super::BATCH
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    unmarked_rows.extend(Some(unmarked).filter(|row| row.len > 0));
    lost_rows.extend(Some(lost).filter(|row| row.len > 0));
    look.report.blocks.0 = used;
    // They may belong to something that is damaged.
    let is_damaged = look.is_damaged;
    for Row { start: cluster, len: clusters } in unmarked_rows {
        let edit = Edit::Mark(Cluster(cluster), clusters, true);
        look.found(Issue::UnmarkedClusters { cluster, clusters }, Vec::from([edit]));
    }
    for Row { start: cluster, len: clusters } in lost_rows {
        let edits = match &mut rescue {
            _ if is_damaged => Vec::new(),
            Some(rescue) => rescue.file(view, Cluster(cluster), clusters),
            None => Vec::from([Edit::Mark(Cluster(cluster), clusters, false)]),
        };
        look.found(Issue::LostClusters { cluster, clusters }, edits);
    }
    Ok(())
}
