//! Clusters in use without an owner, and the number of free clusters.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::FromBytes as _;
use obento_clusters::{Bits, Entry, clusters_of};

use super::chain::ClusterOwners;
use super::edit::Edit;
use super::issue::Issue;
use super::pass::Pass;
use super::view::View;
use crate::raw::RawFsInfo;
use crate::table::{Reader, last};
use crate::unit::Cluster;

/// Examines every cluster in use. Fails with `NoMemory`, or if the device fails.
pub fn check(view: &View, mut state: ClusterOwners, pass: &mut Pass<'_>) -> Result<()> {
    let used = view.used()?;
    let all = 2..view.sb.clusters.saturating_add(2);
    let (mut lost, mut named) = (Bits::default(), Bits::default());
    let mut table = view.table();
    for (first, count) in used.runs_without(&state.owned, all.clone()) {
        for cluster in clusters_of((first, count)) {
            let entry = view.entry(&mut table, cluster)?;
            if entry != Entry::Bad {
                lost.set(cluster)?;
            }
            if let Entry::Next(next) = entry {
                named.set(next)?;
            }
        }
        pass.progress("clusters", first.0.into(), view.sb.clusters.into());
    }
    // First chains with a first cluster, then circular ones.
    for is_first in [true, false] {
        for cluster in lost.runs(all.clone()).flat_map(clusters_of) {
            if !(state.owned.has(cluster) || is_first && named.has(cluster)) {
                chain(view, &mut state, cluster, pass)?;
            }
        }
    }
    let free = view.sb.clusters.saturating_sub(used.count(all.clone()));
    let has_lost = lost.runs(all).next().is_some();
    free_count(view, free, state.is_damaged || has_lost, pass)
}

fn is_used(view: &View, table: &mut Reader<'_>, cluster: Cluster) -> Result<bool> {
    Ok(!matches!(view.entry(table, cluster)?, Entry::Free | Entry::Bad))
}

/// Reports the part of the chain from `first` on that has no owner.
fn chain(view: &View, state: &mut ClusterOwners, first: Cluster, pass: &mut Pass<'_>) -> Result<()> {
    let mut table = view.table();
    let (mut cluster, mut end, mut clusters) = (first, first, 0_u32);
    let is_whole = loop {
        if !is_used(view, &mut table, cluster)? || state.owned.set(cluster)? {
            break false;
        }
        (clusters, end) = (clusters.saturating_add(1), cluster);
        match view.entry(&mut table, cluster)? {
            Entry::Next(next) => cluster = next,
            entry => break entry == Entry::Last,
        }
    };
    if state.tails.contains(&first) {
        pass.also(vec![Edit::Free { first, clusters }]);
        return Ok(());
    }
    let mut edits = Vec::new();
    if !is_whole {
        edits.push(Edit::Link { cluster: end, value: last(view.sb.width) });
    }
    edits.push(Edit::Save { first, clusters });
    pass.found(Issue::LostChain { cluster: first.0, clusters }, edits);
    Ok(())
}

fn free_count(view: &View, expected: u32, is_damaged: bool, pass: &mut Pass<'_>) -> Result<()> {
    let Some(offset) = view.sb.fs_info else { return Ok(()) };
    let mut bytes = [0; 512];
    view.device().read_at(offset, &mut bytes)?;
    let Ok(raw) = RawFsInfo::ref_from_bytes(&bytes) else { return Ok(()) };
    let found = raw.FSI_Free_Count.get();
    // Other issues change the count, and each repair corrects it.
    if raw.is_valid() && found != RawFsInfo::UNKNOWN && found != expected && !is_damaged {
        pass.found(Issue::FreeCount { found, expected }, vec![Edit::FreeCount]);
    }
    Ok(())
}
