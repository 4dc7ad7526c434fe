//! Clusters in use without an owner, and the number of free clusters.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::FromBytes as _;
use obento_clusters::{Bits, Entry};

use super::chain::ClusterOwners;
use super::repair::Edit;
use super::view::View;
use super::{Issue, Pass};
use crate::raw::RawFsInfo;
use crate::table::{Reader, last};
use crate::unit::Cluster;

/// Number of clusters between progress reports.
const OFTEN: u32 = 1 << 16;

/// Examines every cluster. Fails with `NoMemory`, or if the device fails.
pub fn check(view: &View, mut state: ClusterOwners, pass: &mut Pass<'_>) -> Result<()> {
    let all = || (2..view.sb.clusters.saturating_add(2)).map(Cluster);
    let mut named = Bits::new(view.sb.clusters)?;
    let (mut free, mut lost) = (0_u32, 0_u32);
    let mut table = view.table();
    for cluster in all() {
        match view.entry(&mut table, cluster)? {
            Entry::Free => free = free.saturating_add(1),
            Entry::Bad => {}
            _ if state.owned.has(cluster) => {}
            entry => {
                lost = lost.saturating_add(1);
                if let Entry::Next(next) = entry {
                    named.set(next);
                }
            }
        }
        if cluster.0.is_multiple_of(OFTEN) {
            pass.progress("clusters", cluster.0.into(), view.sb.clusters.into());
        }
    }
    // First chains with a first cluster, then circular ones.
    for is_first in [true, false] {
        for cluster in all().take_while(|_| lost > 0) {
            if !(state.owned.has(cluster) || is_first && named.has(cluster))
                && is_used(view, &mut table, cluster)?
            {
                chain(view, &mut state, cluster, pass)?;
            }
        }
    }
    free_count(view, free, state.is_damaged || lost > 0, pass)
}

fn is_used(view: &View, table: &mut Reader<'_>, cluster: Cluster) -> Result<bool> {
    Ok(!matches!(view.entry(table, cluster)?, Entry::Free | Entry::Bad))
}

/// Reports the part of the chain from `first` on that has no owner.
fn chain(view: &View, state: &mut ClusterOwners, first: Cluster, pass: &mut Pass<'_>) -> Result<()> {
    let mut table = view.table();
    let (mut cluster, mut end, mut clusters) = (first, first, 0_u32);
    let is_whole = loop {
        if !is_used(view, &mut table, cluster)? || state.owned.set(cluster) {
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
