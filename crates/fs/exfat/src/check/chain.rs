//! Following the clusters of one owner, and assigning them.

use alloc::vec::Vec;

use obento_base::{FileKind, Result};
use obento_clusters::{Cluster, Entry, Links as _, Run};

use super::issue::Issue;
use super::{Pass, View};

/// The result of a walk.
pub struct Walk {
    /// The clusters that belong to the owner.
    pub runs: Vec<Run>,
    /// Number of these clusters.
    pub count: u32,
    /// The issue, if there are too few, too many or damaged clusters.
    pub issue: Option<Issue>,
}

impl Walk {
    /// Returns the last of the clusters.
    pub fn last(&self) -> Option<Cluster> {
        self.runs.last().map(|run| run.last())
    }

    fn push(&mut self, cluster: Cluster) {
        match self.runs.last_mut() {
            Some(run) if run.last().0.saturating_add(1) == cluster.0 => run.len = run.len.saturating_add(1),
            _ => self.runs.push(Run { at: self.count, start: cluster, len: 1 }),
        }
        self.count = self.count.saturating_add(1);
    }
}

/// An owner of clusters.
#[derive(Clone, Copy)]
pub struct Owner {
    /// Its inode number.
    pub ino: u64,
    /// Its first cluster.
    pub first: Cluster,
    /// Its length in bytes; unknown for the root directory.
    pub length: Option<u64>,
    /// Whether the FAT has no entries for its clusters.
    pub is_contiguous: bool,
    /// Its type.
    pub kind: FileKind,
}

/// Returns whether the FAT chains exactly `count` clusters from `first` on, none of which has an owner. Fails if the
/// device fails.
pub fn is_whole(view: &View, look: &Pass<'_>, first: Cluster, count: u32) -> Result<bool> {
    let (mut table, mut cluster) = (view.table(), first);
    for at in 1..=count {
        if !view.sb.has(cluster) || look.owned.has(cluster) {
            return Ok(false);
        }
        match table.entry(cluster)? {
            Entry::Next(next) if at < count => cluster = next,
            Entry::Last => return Ok(at == count),
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// Returns whether `count` clusters from `first` on are on the volume and have no owner.
pub fn is_free_run(view: &View, look: &Pass<'_>, first: Cluster, count: u32) -> bool {
    let end = first.0.saturating_add(count);
    count > 0
        && view.sb.has_run(first, count)
        && !(first.0..end).any(|cluster| look.owned.has(Cluster(cluster)))
}

/// Assigns `count` clusters from `first` on.
pub fn claim_run(look: &mut Pass<'_>, first: Cluster, count: u32) -> Vec<Run> {
    for cluster in first.0..first.0.saturating_add(count) {
        look.claim(Cluster(cluster));
    }
    Vec::from([Run { at: 0, start: first, len: count }])
}

/// Removes the clusters of `runs` from their owner.
pub fn release(look: &mut Pass<'_>, runs: &[Run]) {
    let clusters = runs.iter().flat_map(|run| run.start.0..run.start.0.saturating_add(run.len));
    clusters.for_each(|cluster| look.owned.unset(Cluster(cluster)));
}

/// Follows the clusters of `owner` and assigns them. Fails if the device fails.
pub fn claim(view: &View, owner: Owner, look: &mut Pass<'_>) -> Result<Walk> {
    let Owner { ino, first, length, is_contiguous, .. } = owner;
    let want = length.map(|length| view.sb.clusters_for(length));
    let mut walk = Walk { runs: Vec::new(), count: 0, issue: None };
    let mut table = view.table();
    let mut next = first;
    loop {
        let (at, cluster) = (walk.count, next.0);
        if want == Some(at) {
            if let Some(length) = length.filter(|_| !is_contiguous) {
                walk.issue = Some(Issue::LongChain { ino, length, clusters: at });
            }
            break;
        }
        if !view.sb.has(next) {
            walk.issue = Some(Issue::Chain { ino, at, cluster, why: "does not exist" });
            break;
        }
        let is_directorys = owner.kind != FileKind::Directory && look.directories.has(next);
        if is_directorys || !look.claim(next) {
            walk.issue = Some(Issue::CrossLink { ino, at, cluster });
            break;
        }
        walk.push(next);
        if is_contiguous {
            next = Cluster(cluster.saturating_add(1));
            continue;
        }
        let why = match table.entry(next)? {
            Entry::Next(cluster) => {
                next = cluster;
                continue;
            }
            Entry::Last => break,
            Entry::Free => "has no successor",
            Entry::Bad => "is marked as bad",
            Entry::Invalid(_) => "is followed by an invalid number",
        };
        walk.issue = Some(Issue::Chain { ino, at, cluster, why });
        break;
    }
    if let (Some(length), Some(want), None) = (length, want, &walk.issue)
        && walk.count < want
    {
        walk.issue = Some(Issue::ShortChain { ino, length, clusters: walk.count });
    }
    Ok(walk)
}
