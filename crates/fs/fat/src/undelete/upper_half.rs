//! The lost upper half of the number of the first cluster.
//!
//! When Windows deletes an entry of FAT32, it clears `DIR_FstClusHI`. Linux and obento keep this field. On a volume with
//! cluster numbers above 65535, a deleted entry whose upper half is 0 therefore has several *candidates*: the free clusters
//! whose number has the same lower half.
//!
//! A directory proves its number: its entry `.` contains this number, and its entry `..` that of its parent. A file has no
//! such proof. The candidate that fits best is chosen, and the file is at most [`Certainty::Possible`] if the choice is not
//! certain.
//!
//! Invariant: [`TRIES`] bounds the work of a search, so that a volume with many deleted entries and clusters ends, too.
//! Source: authors of recovery programs describe what Windows does; fatgen103 does not.

use alloc::vec;

use obento_base::wire::to_usize;
use obento_driver::Certainty;

use super::{FREE, Pending, Search};
use crate::name::ShortName;
use crate::raw::RawEntry;
use crate::super_block::{Root, Width};
use crate::unit::{Cluster, ENTRY_LEN};

/// Number of candidates that a search examines. A candidate that is read counts as [`READ`].
pub(super) const TRIES: u32 = 1 << 24;
const READ: u32 = 16;
/// The bytes of a candidate that are compared with the name of the file.
const HEAD: usize = 512;

/// The likelihood that a candidate is the start of a file. The order of the fields is that of their weight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Fitness {
    head: Head,
    /// Whether the clusters from the candidate on are free and claimed by no other file.
    has_room: bool,
    /// Whether the upper half is that of the directory: systems allocate near by.
    is_near: bool,
}

/// The first bytes of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Head {
    /// No file with this extension begins with these bytes.
    Foreign,
    /// The bytes are all zero, or cannot be read.
    Blank,
    /// The name does not determine the first bytes.
    Unknown,
    /// Files with this extension begin with these bytes.
    Typical,
}

impl Search<'_> {
    /// Returns whether the upper half of the entry may have been cleared.
    fn may_be_cleared(&self, raw: &RawEntry) -> bool {
        let is_deleted = raw.DIR_Name.first() == Some(&FREE);
        let is_wide = self.sb.width == Width::Fat32 && self.sb.has(Cluster(1 << 16));
        is_wide && is_deleted && raw.DIR_FstClusHI.get() == 0
    }

    /// Returns the free cluster from `upper` on that has the lower half of the entry, and removes the candidates up to it.
    fn next_candidate(&mut self, raw: &RawEntry, upper: &mut u32) -> Option<Cluster> {
        loop {
            let cluster = Cluster(u32::from(raw.DIR_FstClusLO.get()) | upper.checked_shl(16)?);
            // The numbers 0 and 1 do not exist, but 65536 and 65537 do.
            if !self.sb.has(cluster) && *upper > 0 {
                return None;
            }
            self.tries = self.tries.checked_sub(1)?;
            *upper = upper.saturating_add(1);
            if self.space.is_free(cluster) {
                return Some(cluster);
            }
        }
    }

    /// Returns the first cluster of a deleted file, and the greatest certainty that its place can have.
    pub(super) fn first_of_file(
        &mut self,
        raw: &RawEntry,
        path: &[u8],
        parent: &Pending,
    ) -> (Option<Cluster>, Certainty) {
        let stored = raw.first(self.sb.width);
        let size = raw.size();
        if !self.may_be_cleared(raw) || size == 0 {
            return (stored, Certainty::Certain);
        }
        let needed = size.div_ceil(self.sb.cluster_size.max(1).into());
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        let near = parent.first.map_or(0, |first| first.0 >> 16);
        let (mut best, mut upper): (Option<(Fitness, Cluster)>, _) = (None, 0);
        let mut has_equal = false;
        while let Some(cluster) = self.next_candidate(raw, &mut upper) {
            let Some(head) = self.head(cluster, size, path) else { break };
            let has_room = self.space.has_room(cluster, needed);
            let fitness = Fitness { head, has_room, is_near: cluster.0 >> 16 == near };
            has_equal = match best {
                Some((other, _)) if other.head > head => has_equal,
                Some((other, _)) => other.head == head,
                None => false,
            };
            // Of equal candidates, the first one is chosen: the one that the entry names.
            if best.is_none_or(|(other, _)| fitness > other) {
                best = Some((fitness, cluster));
            }
        }
        let Some((fitness, cluster)) = best else { return (stored, Certainty::Possible) };
        let most = match fitness.head {
            Head::Foreign => Certainty::Doubtful,
            // Without further tries, other candidates are unknown.
            _ if has_equal || Some(cluster) != stored || self.tries < READ => Certainty::Possible,
            _ => Certainty::Certain,
        };
        (Some(cluster), most)
    }

    /// Describes the first bytes of a candidate. Returns `None` if the search may read no more candidates.
    fn head(&mut self, cluster: Cluster, size: u64, path: &[u8]) -> Option<Head> {
        self.tries = self.tries.checked_sub(READ)?;
        let mut bytes = vec![0; to_usize(size).min(HEAD)];
        let is_read =
            self.sb.offset_of(cluster).is_some_and(|at| self.device.read_at(at, &mut bytes).is_ok());
        Some(match super::contents::fits(path, &bytes) {
            Some(true) if is_read => Head::Typical,
            Some(_) => Head::Foreign,
            None if !is_read || bytes.iter().all(|&byte| byte == 0) => Head::Blank,
            None => Head::Unknown,
        })
    }

    /// Returns the first cluster of a deleted directory: the candidate whose entries `.` and `..` contain its number and
    /// that of the parent. If there are several, one that was created at the time of the entry is preferred.
    pub(super) fn first_of_directory(&mut self, raw: &RawEntry, parent: &Pending) -> Option<Cluster> {
        let stored = raw.first(self.sb.width);
        if !self.may_be_cleared(raw) {
            return stored;
        }
        let created = |entry: &RawEntry| (entry.DIR_CrtDate, entry.DIR_CrtTime);
        let (mut found, mut upper) = (None, 0);
        while let Some(cluster) = self.next_candidate(raw, &mut upper) {
            let Some(tries) = self.tries.checked_sub(READ) else { break };
            self.tries = tries;
            let Some(own) = self.first_entry(cluster).filter(|_| self.is_child(cluster, parent)) else {
                continue;
            };
            if created(&own) == created(raw) {
                return Some(cluster);
            }
            found = found.or(Some(cluster));
        }
        found.or(stored)
    }

    /// Returns whether the cluster is the start of a directory in `parent`.
    pub(super) fn is_child(&self, cluster: Cluster, parent: &Pending) -> bool {
        let Some(at) = self.sb.offset_of(cluster) else { return false };
        let (width, root) = (self.sb.width, self.sb.root);
        let (own, above) = (self.entry_at(at), self.entry_at(at.saturating_add(ENTRY_LEN)));
        let is_own = |own: &RawEntry| own.name() == ShortName::DOT && own.first(width) == Some(cluster);
        // Some systems write the number of the root in place of 0.
        let is_above = |first: Option<Cluster>| match (parent.first, root) {
            (None, Root::Chain(root)) => first.is_none_or(|first| first == root),
            (parent, _) => first == parent,
        };
        let is_in_parent =
            |above: &RawEntry| above.name() == ShortName::DOT_DOT && is_above(above.first(width));
        own.is_some_and(|own| is_own(&own)) && above.is_some_and(|above| is_in_parent(&above))
    }
}
