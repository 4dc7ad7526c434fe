//! The directories that have been read since a volume was opened, and the owners of their clusters.
//!
//! Invariant: a cluster belongs to one directory or to a table of the volume. If two directories claim it, the first
//! one owns it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::{Corrupt, Error, Ino, Result};

use crate::chain::Run;
use crate::unit::Cluster;

/// A directory whose entries are in clusters.
pub trait Placed {
    /// Returns its inode number.
    fn ino(&self) -> Ino;
    /// Returns its runs; empty for a directory that is not in clusters.
    fn runs(&self) -> &[Run];
}

/// Truncates `runs` before the first cluster that they already contain.
pub fn cut_at_return(runs: &mut Vec<Run>) {
    let mut seen = DirectoryOwners::<()>::default();
    let returned = runs.iter().position(|run| {
        let returns = seen.overlaps(run.start, run.len);
        seen.runs.insert(run.start.0, (run.len, Ino(0), run.at));
        returns
    });
    returned.into_iter().for_each(|at| runs.truncate(at));
}

/// The known directories, and the owners of their clusters.
pub struct DirectoryOwners<D> {
    /// Runs by their first cluster: number of clusters, owner, and index of the first cluster within the owner.
    runs: BTreeMap<u32, (u32, Ino, u32)>,
    directories: HashMap<Ino, Arc<D>>,
}

impl<D> Default for DirectoryOwners<D> {
    fn default() -> Self {
        Self { runs: BTreeMap::new(), directories: HashMap::new() }
    }
}

impl<D> DirectoryOwners<D> {
    /// Returns the owner of `cluster`, and the index of the cluster within it.
    pub fn owner(&self, cluster: Cluster) -> Option<(Ino, u32)> {
        let (&start, &(len, ino, at)) = self.runs.range(..=cluster.0).next_back()?;
        let skipped = cluster.0.saturating_sub(start);
        (skipped < len).then(|| (ino, at.saturating_add(skipped)))
    }

    /// Returns whether any of `len` clusters from `start` on has an owner.
    pub fn overlaps(&self, start: Cluster, len: u32) -> bool {
        let end = start.0.saturating_add(len);
        self.owner(start).is_some() || self.runs.range(start.0..end).next().is_some()
    }

    fn release(&mut self, runs: &[Run]) {
        for run in runs {
            self.runs.remove(&run.start.0);
        }
    }
}

impl<D: Placed> DirectoryOwners<D> {
    /// Returns the directory `ino`, if it has been read.
    pub fn directory(&self, ino: Ino) -> Option<&Arc<D>> {
        self.directories.get(&ino)
    }

    /// Returns all known directories.
    pub fn directories(&self) -> impl Iterator<Item = &Arc<D>> {
        self.directories.values()
    }

    /// Records `ino` as the owner of `runs`. Fails with `Corrupt` if one of them has an owner, and then records none.
    pub fn claim(&mut self, ino: Ino, runs: &[Run]) -> Result<()> {
        if let Some(run) = runs.iter().find(|run| self.overlaps(run.start, run.len)) {
            let what = "continues in a cluster of another directory or table";
            return Err(Corrupt::Chain { ino, at: run.at, what }.into());
        }
        for (at, run) in runs.iter().enumerate() {
            // The chain returns to itself.
            if self.overlaps(run.start, run.len) {
                self.release(runs.get(..at).unwrap_or_default());
                return Err(Corrupt::Chain { ino, at: run.at, what: "comes back to itself" }.into());
            }
            self.runs.insert(run.start.0, (run.len, ino, run.at));
        }
        Ok(())
    }

    /// Records a directory, unless it is known. Fails with `NoMemory`, or with `Corrupt` if one of its clusters
    /// belongs to another directory.
    pub fn learn(&mut self, dir: D) -> Result<Arc<D>> {
        let ino = dir.ino();
        if let Some(dir) = self.directories.get(&ino) {
            return Ok(dir.clone());
        }
        self.directories.try_reserve(1).map_err(|_| Error::NoMemory)?;
        self.claim(ino, dir.runs())?;
        let dir = Arc::new(dir);
        self.directories.insert(ino, dir.clone());
        Ok(dir)
    }

    /// Forgets the directory `ino` and the owners of its clusters.
    pub fn forget(&mut self, ino: Ino) -> Option<Arc<D>> {
        let dir = self.directories.remove(&ino)?;
        self.release(dir.runs());
        Some(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    struct Dir(u64, Vec<Run>);

    impl Placed for Dir {
        fn ino(&self) -> Ino {
            Ino(self.0)
        }
        fn runs(&self) -> &[Run] {
            &self.1
        }
    }

    fn run(at: u32, start: u32, len: u32) -> Run {
        Run { at, start: Cluster(start), len }
    }

    #[test]
    fn a_cluster_belongs_to_the_first_that_claims_it_until_that_is_forgotten() {
        let mut known = DirectoryOwners::default();
        known.learn(Dir(1, vec![run(0, 10, 4), run(4, 30, 2)])).unwrap();
        assert_eq!(known.owner(Cluster(31)), Some((Ino(1), 5)));
        assert_eq!((known.owner(Cluster(9)), known.owner(Cluster(14))), (None, None));
        let other = || Dir(2, vec![run(0, 20, 1), run(1, 13, 2)]);
        assert!(matches!(known.learn(other()), Err(Error::Corrupt(_))));
        assert_eq!(known.owner(Cluster(20)), None, "nothing of a refused directory is noted");
        assert!(known.overlaps(Cluster(5), 6) && !known.overlaps(Cluster(5), 5));
        assert!(known.forget(Ino(1)).is_some() && known.forget(Ino(1)).is_none());
        assert!(known.learn(other()).is_ok() && known.directory(Ino(2)).is_some());
    }

    #[test]
    fn a_chain_that_comes_back_to_itself_is_refused_and_leaves_nothing() {
        let mut known = DirectoryOwners::default();
        assert!(matches!(known.learn(Dir(1, vec![run(0, 10, 4), run(4, 12, 1)])), Err(Error::Corrupt(_))));
        assert!(!known.overlaps(Cluster(2), 100) && known.directories().next().is_none());
        let mut runs = vec![run(0, 10, 4), run(4, 30, 2), run(6, 12, 1), run(7, 40, 1)];
        cut_at_return(&mut runs);
        assert_eq!(runs, [run(0, 10, 4), run(4, 30, 2)]);
        cut_at_return(&mut runs);
        assert_eq!(runs.len(), 2);
    }
}
