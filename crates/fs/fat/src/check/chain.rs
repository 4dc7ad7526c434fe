//! The chains that entries refer to: each cluster has one owner, and each chain has as many clusters as the size
//! needs.

use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashSet;
use obento_base::{Error, Result};
use obento_clusters::{Bits, Entry};

use super::copies::{self, RequiredChain};
use super::edit::Edit;
use super::issue::Issue;
use super::pass::Pass;
use super::view::View;
use crate::dir::MAX_SLOTS;
use crate::inode::Attributes;
use crate::raw::RawEntry;
use crate::table::last;
use crate::unit::{Cluster, ENTRY, ENTRY_LEN};

/// The owners of clusters.
pub struct ClusterOwners {
    /// Clusters with an owner.
    pub owned: Bits,
    /// The rests of chains that are longer than their files. They are freed.
    pub tails: HashSet<Cluster>,
    /// Whether an issue was found that changes which clusters are free.
    pub is_damaged: bool,
}

/// An entry and its place.
pub struct Named<'e> {
    /// The entry.
    pub raw: &'e RawEntry,
    /// Its byte offset.
    pub offset: u64,
    /// The offsets of the parts of its long name.
    pub parts: Vec<u64>,
}

impl Named<'_> {
    /// Returns the inode number of the driver.
    pub fn ino(&self) -> u64 {
        self.offset / ENTRY_LEN
    }

    fn is_dir(&self) -> bool {
        self.raw.attributes().contains(Attributes::DIRECTORY)
    }

    /// Returns edits that set the first cluster and the size.
    fn set(&self, first: u32, size: u32) -> Vec<Edit> {
        let [a, b, c, d] = first.to_le_bytes();
        vec![
            Edit::write(self.offset.saturating_add(0x14), &[c, d]),
            Edit::write(self.offset.saturating_add(0x1a), &[a, b]),
            self.set_size(size),
        ]
    }

    fn set_size(&self, size: u32) -> Edit {
        Edit::write(self.offset.saturating_add(0x1c), &size.to_le_bytes())
    }

    /// Returns edits that remove the entry and its long name.
    pub fn remove(&self) -> Vec<Edit> {
        self.parts.iter().chain([&self.offset]).map(|&offset| Edit::write(offset, &[0xe5])).collect()
    }
}

/// The result of following a chain.
struct Walk {
    /// Number of clusters that now belong to the owner.
    count: u32,
    /// The last of them.
    last: Option<Cluster>,
    /// The cluster at which the walk stopped, and the reason, unless the chain ended.
    stop: Option<(Cluster, Stop)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Free,
    Bad,
    Invalid,
    Loop,
    Owned,
    Enough,
}

impl Stop {
    fn why(self) -> &'static str {
        match self {
            Self::Free => "is free",
            Self::Bad => "is bad",
            Self::Invalid => "is followed by an invalid number",
            Self::Loop => "occurs twice",
            Self::Owned | Self::Enough => "does not belong to it",
        }
    }
}

/// Follows the chain from `first` on for at most `most` clusters, and assigns them to the owner.
fn walk(view: &View, state: &mut ClusterOwners, first: Cluster, most: u64) -> Result<Walk> {
    let mut table = view.table();
    let mut walk = Walk { count: 0, last: None, stop: None };
    let mut cluster = first;
    loop {
        let entry = view.entry(&mut table, cluster)?;
        let stop = match entry {
            Entry::Free => Some(Stop::Free),
            Entry::Bad => Some(Stop::Bad),
            _ if u64::from(walk.count) >= most => Some(Stop::Enough),
            _ if state.owned.set(cluster)? => {
                Some(if is_before(view, first, walk.count, cluster)? { Stop::Loop } else { Stop::Owned })
            }
            _ => None,
        };
        if let Some(stop) = stop {
            walk.stop = Some((cluster, stop));
            return Ok(walk);
        }
        (walk.count, walk.last) = (walk.count.saturating_add(1), Some(cluster));
        match entry {
            Entry::Next(next) => cluster = next,
            Entry::Invalid(_) => {
                walk.stop = Some((cluster, Stop::Invalid));
                return Ok(walk);
            }
            _ => return Ok(walk),
        }
    }
}

/// Returns whether `cluster` is among the first `count` clusters of a chain.
fn is_before(view: &View, first: Cluster, count: u32, cluster: Cluster) -> Result<bool> {
    let mut table = view.table();
    let mut at = first;
    for _ in 0..count {
        if at == cluster {
            return Ok(true);
        }
        match view.entry(&mut table, at)? {
            Entry::Next(next) => at = next,
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// Assigns the clusters of the root directory of FAT32. Returns their number.
pub fn claim_root(
    view: &View,
    state: &mut ClusterOwners,
    first: Cluster,
    pass: &mut Pass<'_>,
) -> Result<u32> {
    let ino = obento_clusters::ROOT.0;
    if !view.sb.has(first) {
        let why = "does not exist";
        pass.found(Issue::Chain { ino, at: 0, cluster: first.0, why }, Vec::new());
        return Ok(0);
    }
    let most = most_of_a_directory(view);
    copies::settle(view, &state.owned, RequiredChain { first, need: None, most }, pass)?;
    let found = walk(view, state, first, most)?;
    let Some((cluster, stop)) = found.stop else { return Ok(found.count) };
    state.is_damaged = true;
    let end = match (found.last, stop) {
        (Some(end), _) => vec![link_end(view, end)],
        (None, Stop::Free) => vec![link_end(view, first)],
        _ => Vec::new(),
    };
    match stop {
        Stop::Enough => pass.found(Issue::LongDirectory { dir: ino }, end),
        _ => pass.found(Issue::Chain { ino, at: found.count, cluster: cluster.0, why: stop.why() }, end),
    }
    Ok(found.count)
}

fn link_end(view: &View, cluster: Cluster) -> Edit {
    Edit::Link { cluster, value: last(view.sb.width) }
}

fn most_of_a_directory(view: &View) -> u64 {
    let per_cluster = view.sb.cluster_size / ENTRY;
    u64::from(MAX_SLOTS.checked_div(per_cluster).unwrap_or(1).max(1))
}

/// Assigns the clusters of an entry. Returns their number.
pub fn claim(view: &View, state: &mut ClusterOwners, named: &Named<'_>, pass: &mut Pass<'_>) -> Result<u32> {
    let (ino, is_dir) = (named.ino(), named.is_dir());
    let size = if is_dir { 0 } else { named.raw.DIR_FileSize.get() };
    let cluster_size = u64::from(view.sb.cluster_size);
    let first = named.raw.first(view.sb.width);
    let Some(first) = first else {
        if is_dir {
            let why = "is that of the root directory";
            pass.found(Issue::DirectoryStart { ino, cluster: 0, why }, named.remove());
        } else if size > 0 {
            pass.found(Issue::ShortChain { ino, size, clusters: 0 }, vec![named.set_size(0)]);
        }
        return Ok(0);
    };
    if !view.sb.has(first) {
        match is_dir {
            true => {
                let why = "does not exist";
                pass.found(Issue::DirectoryStart { ino, cluster: first.0, why }, named.remove());
            }
            false => pass.found(Issue::StartCluster { ino, cluster: first.0 }, named.set(0, 0)),
        }
        return Ok(0);
    }
    let need = if is_dir { most_of_a_directory(view) } else { u64::from(size).div_ceil(cluster_size) };
    let wanted = RequiredChain { first, need: (!is_dir).then_some(need), most: need };
    copies::settle(view, &state.owned, wanted, pass)?;
    let found = walk(view, state, first, need)?;
    let room = u64::from(found.count).saturating_mul(cluster_size);
    let Some((cluster, stop)) = found.stop else {
        if !is_dir && u64::from(size) > room {
            let fitting = u32::try_from(room).unwrap_or(u32::MAX);
            let edits = vec![named.set_size(fitting)];
            pass.found(Issue::ShortChain { ino, size, clusters: found.count }, edits);
        }
        return Ok(found.count);
    };
    state.is_damaged = true;
    let kept = u32::try_from(room.min(size.into())).map_err(|_| Error::Invalid)?;
    let edits = match found.last {
        Some(end) if is_dir => vec![link_end(view, end)],
        Some(end) => vec![link_end(view, end), named.set_size(kept)],
        None if is_dir => named.remove(),
        None => named.set(0, 0),
    };
    let at = found.count;
    let issue = match stop {
        Stop::Enough if is_dir => Issue::LongDirectory { dir: ino },
        Stop::Enough => {
            state.tails.try_reserve(1).map_err(|_| Error::NoMemory)?;
            state.tails.insert(cluster);
            Issue::LongChain { ino, size, clusters: at }
        }
        _ if is_dir && at == 0 => {
            Issue::DirectoryStart { ino, cluster: cluster.0, why: "has no valid '.' entry" }
        }
        Stop::Owned => Issue::CrossLink { ino, at, cluster: cluster.0 },
        // The cluster itself belongs to the file; the next cluster does not.
        Stop::Invalid => Issue::Chain { ino, at: at.saturating_sub(1), cluster: cluster.0, why: stop.why() },
        _ => Issue::Chain { ino, at, cluster: cluster.0, why: stop.why() },
    };
    pass.found(issue, edits);
    Ok(at)
}
