//! Following the clusters of one owner, and assigning them.

use alloc::vec::Vec;

use obento_base::{FileKind, Result};
use obento_clusters::{Bits, Cluster, Entry, Links as _, Run};

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

/// Returns whether the FAT chains exactly `count` clusters from `first` on, none of which has an owner. After
/// [`LINKS`](super::LINKS) links, chains count as incomplete. Fails if the device fails.
pub fn is_whole(view: &View, look: &mut Pass<'_>, first: Cluster, count: u32) -> Result<bool> {
    let (mut table, mut cluster, mut before) = (view.table(), first, None);
    for at in 1..=count {
        // A chain that returned to a cluster has no end.
        let is_impossible = !view.sb.has(cluster) || look.owned.has(cluster) || before == Some(cluster);
        if is_impossible || look.links == 0 {
            return Ok(false);
        }
        look.links = look.links.saturating_sub(1);
        before = if at.is_power_of_two() { Some(cluster) } else { before };
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
    count > 0 && view.sb.has_run(first, count) && !look.owned.has_any(first, count)
}

/// Assigns `count` clusters from `first` on. Fails with `NoMemory`.
pub fn claim_run(look: &mut Pass<'_>, first: Cluster, count: u32) -> Result<Vec<Run>> {
    look.owned.set_run(first, count)?;
    Ok(Vec::from([Run { at: 0, start: first, len: count }]))
}

/// Removes the clusters of `runs` from their owner. Fails with `NoMemory`.
pub fn release(look: &mut Pass<'_>, runs: &[Run]) -> Result<()> {
    runs.iter().try_for_each(|run| look.owned.unset_run(run.start, run.len))
}

/// Assigns the contiguous clusters of `owner`, up to the first one that belongs to another owner.
fn claim_contiguous(view: &View, owner: Owner, want: u32, look: &mut Pass<'_>) -> Result<Walk> {
    let Owner { ino, first, .. } = owner;
    let room = if view.sb.has(first) { view.sb.numbers().end.saturating_sub(first.0) } else { 0 };
    let there = first.0..first.0.saturating_add(want.min(room));
    let taken = |bits: &Bits| bits.runs(there.clone()).next().map(|(start, _)| start.0);
    let by_directory = if owner.kind == FileKind::Directory { None } else { taken(&look.directories) };
    let end = [taken(&look.owned), by_directory].into_iter().flatten().min();
    let (at, cluster) = match end {
        Some(end) => (end.saturating_sub(first.0), end),
        None => (want.min(room), there.end),
    };
    let issue = match end {
        Some(_) => Some(Issue::CrossLink { ino, at, cluster }),
        None if at < want => Some(Issue::Chain { ino, at, cluster, why: "does not exist" }),
        None => None,
    };
    let runs = if at > 0 { claim_run(look, first, at)? } else { Vec::new() };
    Ok(Walk { runs, count: at, issue })
}

/// Follows the clusters of `owner` and assigns them. Fails if the device fails.
pub fn claim(view: &View, owner: Owner, look: &mut Pass<'_>) -> Result<Walk> {
    let Owner { ino, first, length, .. } = owner;
    let want = length.map(|length| view.sb.clusters_for(length));
    if let Some(want) = want.filter(|_| owner.is_contiguous) {
        return claim_contiguous(view, owner, want, look);
    }
    let mut walk = Walk { runs: Vec::new(), count: 0, issue: None };
    let mut table = view.table();
    let mut next = first;
    loop {
        let (at, cluster) = (walk.count, next.0);
        if want == Some(at) {
            if let Some(length) = length {
                walk.issue = Some(Issue::LongChain { ino, length, clusters: at });
            }
            break;
        }
        if !view.sb.has(next) {
            walk.issue = Some(Issue::Chain { ino, at, cluster, why: "does not exist" });
            break;
        }
        let is_directorys = owner.kind != FileKind::Directory && look.directories.has(next);
        if is_directorys || !look.claim(next)? {
            walk.issue = Some(Issue::CrossLink { ino, at, cluster });
            break;
        }
        walk.push(next);
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
