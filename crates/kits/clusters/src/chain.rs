//! Cluster chains, as runs of contiguous clusters.
//!
//! Invariant: the stored part of a chain is a prefix of it. Its runs cannot be merged, and there are at most
//! [`MAX_RUNS`] of them. A walk beyond them starts at the last stored run, so that memory is bounded for any chain.
//! Invariant: a walk ends, since it visits no more clusters than the volume has.

use alloc::vec::Vec;
use core::fmt;

use obento_base::{Corrupt, Ino, Result};

use crate::unit::Cluster;

/// The entry of a cluster in a file allocation table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The cluster is free.
    Free,
    /// The next cluster of the chain.
    Next(Cluster),
    /// The last cluster of a chain.
    Last,
    /// The cluster cannot be used.
    Bad,
    /// A number that is not a cluster of the volume.
    Invalid(u32),
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::Next(cluster) => write!(f, "next cluster {}", cluster.0),
            Self::Last => f.write_str("last cluster of a chain"),
            Self::Bad => f.write_str("bad"),
            Self::Invalid(number) => write!(f, "invalid: {number:#x}"),
        }
    }
}

/// A file allocation table.
pub trait Links {
    /// Returns the number of clusters of the volume. The first cluster is 2.
    fn clusters(&self) -> u32;

    /// Returns the entry of `cluster`. Fails with `Corrupt` if the number is not a cluster of the volume, or if the
    /// device fails.
    fn entry(&mut self, cluster: Cluster) -> Result<Entry>;
}

/// Maximum number of stored runs: enough for a file in 65,536 pieces, and limits memory to 768 KiB.
const MAX_RUNS: usize = 1 << 16;

/// Clusters that are contiguous in a file and on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Index of the first cluster within the file.
    pub at: u32,
    /// The first cluster.
    pub start: Cluster,
    /// Number of clusters.
    pub len: u32,
}

impl Run {
    fn end(&self) -> u32 {
        self.at.saturating_add(self.len)
    }

    /// Returns the last cluster.
    pub fn last(&self) -> Cluster {
        Cluster(self.start.0.saturating_add(self.len.saturating_sub(1)))
    }

    /// Returns the part of this run from file cluster `at` on, if the run contains it.
    fn from(self, at: u32) -> Option<Self> {
        let skipped = at.checked_sub(self.at).filter(|&skipped| skipped < self.len)?;
        let start = Cluster(self.start.0.saturating_add(skipped));
        Some(Self { at, start, len: self.len.saturating_sub(skipped) })
    }
}

/// The known part of a chain.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    runs: Vec<Run>,
    /// The last run that was found after `runs` was full.
    beyond: Option<Run>,
    /// The first cluster, or `None` for an empty file.
    first: Option<Cluster>,
    /// Whether the last known run is the last run of the chain.
    is_whole: bool,
}

impl Chain {
    /// Creates the chain that starts with `first`, or an empty chain. The methods read the other clusters
    /// when they need them.
    pub fn new(first: Option<Cluster>) -> Self {
        Self { first, is_whole: first.is_none(), ..Self::default() }
    }

    /// Creates the chain of `len` contiguous clusters, for which the table has no entries.
    pub fn contiguous(first: Option<Cluster>, len: u32) -> Self {
        let run = first.filter(|_| len > 0).map(|start| Run { at: 0, start, len });
        Self { runs: run.into_iter().collect(), beyond: None, first, is_whole: true }
    }

    /// Returns the run that starts at cluster `at` of the file. Reads the chain until the run has `want`
    /// clusters, or until the run ends. Returns `None` if the chain ends before `at`. Fails with `NoMemory`,
    /// or if the device fails. Fails with `Corrupt` for a chain that leaves the volume, contains a free or
    /// bad cluster, or is longer than the volume.
    pub fn find(&mut self, table: &mut impl Links, ino: Ino, at: u32, want: u32) -> Result<Option<Run>> {
        if let Some(run) = self.known(at)
            && (run.len >= want || self.is_whole || run.end() < self.reached())
        {
            return Ok(Some(run));
        }
        let goal = at.saturating_add(want.max(1));
        // `at` is between the stored runs and the end of the last walk: repeat the walk.
        if self.beyond.is_some_and(|run| at < run.at) && self.known(at).is_none() {
            (self.beyond, self.is_whole) = (None, false);
        }
        while !self.is_whole && self.reached() < goal {
            let done = self.known(at).is_some_and(|run| run.end() < self.reached());
            if done {
                break;
            }
            if let Err(error) = self.step(table, ino, goal) {
                return self.known(at).map(Some).ok_or(error);
            }
        }
        Ok(self.known(at))
    }

    /// Returns all runs. Fails in the same cases as [`Chain::find`], and if the chain has more than `most` clusters.
    pub fn all(&mut self, table: &mut impl Links, ino: Ino, most: u32) -> Result<&[Run]> {
        while !self.is_whole {
            self.step(table, ino, most.saturating_add(1))?;
            if self.reached() > most || self.beyond.is_some() {
                return Err(Corrupt::Chain { ino, at: most, what: "is too long" }.into());
            }
        }
        Ok(&self.runs)
    }

    /// Reads the chain up to its first `goal` clusters. Returns the number of known clusters, which may exceed
    /// `goal`. Fails in the same cases as [`Chain::find`].
    pub fn reach(&mut self, table: &mut impl Links, ino: Ino, goal: u32) -> Result<u32> {
        while !self.is_whole && self.reached() < goal {
            self.step(table, ino, goal)?;
        }
        Ok(self.reached())
    }

    /// Returns the number of clusters of the chain. Fails in the same cases as [`Chain::find`].
    pub fn count(&mut self, table: &mut impl Links, ino: Ino) -> Result<u32> {
        while !self.is_whole {
            self.step(table, ino, u32::MAX)?;
        }
        Ok(self.reached())
    }

    /// Returns the last cluster of a chain that was [counted](Chain::count).
    pub fn last(&self) -> Option<Cluster> {
        self.tail().map(|run| run.last())
    }

    /// Appends `len` clusters from `start` on to a chain that was counted. Fails with `NoMemory`, and then changes
    /// nothing.
    pub fn push(&mut self, start: Cluster, len: u32) -> Result<()> {
        self.runs.try_reserve(1)?;
        self.first.get_or_insert(start);
        match self.tail() {
            Some(tail) if tail.last().0.saturating_add(1) == start.0 => {
                self.learn(Run { len: tail.len.saturating_add(len), ..tail })
            }
            tail => self.learn(Run { at: tail.map_or(0, |run| run.end()), start, len }),
        }
    }

    /// Returns the known runs.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the number of known clusters.
    pub fn reached(&self) -> u32 {
        self.tail().map_or(0, |run| run.end())
    }

    fn tail(&self) -> Option<Run> {
        self.beyond.or(self.runs.last().copied())
    }

    fn known(&self, at: u32) -> Option<Run> {
        if let Some(run) = self.beyond.and_then(|run| run.from(at)) {
            return Some(run);
        }
        let after = self.runs.partition_point(|run| run.at <= at);
        self.runs.get(after.checked_sub(1)?)?.from(at)
    }

    /// Reads the next run, or more of the last one, up to file cluster `goal`.
    fn step(&mut self, table: &mut impl Links, ino: Ino, goal: u32) -> Result<()> {
        let corrupt = |at, what| obento_base::Error::from(Corrupt::Chain { ino, at, what });
        let Some(first) = self.first else {
            self.is_whole = true;
            return Ok(());
        };
        let mut run = match self.tail() {
            Some(run) => run,
            None if first.is_one_of(table.clusters()) => Run { at: 0, start: first, len: 1 },
            None => return Err(corrupt(0, "starts with an invalid cluster number")),
        };
        let mut next = Ok(None);
        loop {
            match table.entry(run.last())? {
                Entry::Next(cluster) if cluster.0 == run.last().0.saturating_add(1) => {
                    run.len = run.len.saturating_add(1);
                }
                Entry::Next(cluster) => {
                    next = Ok(Some(Run { at: run.end(), start: cluster, len: 1 }));
                    break;
                }
                Entry::Last => {
                    self.is_whole = true;
                    break;
                }
                Entry::Free => next = Err("continues in a free cluster"),
                Entry::Bad => next = Err("continues in a bad cluster"),
                Entry::Invalid(_) => next = Err("continues with an invalid cluster number"),
            }
            if run.end() > table.clusters() {
                next = Err("is longer than the volume");
            }
            if next.is_err() || run.end() >= goal {
                break;
            }
        }
        // The part before the damage can still be read.
        self.learn(run)?;
        match next {
            Ok(Some(next)) if next.at > table.clusters() => {
                Err(corrupt(next.at, "is longer than the volume"))
            }
            Ok(Some(next)) => self.learn(next),
            Ok(None) => Ok(()),
            Err(what) => Err(corrupt(run.end(), what)),
        }
    }

    /// Stores `run`, which extends or follows the last known run.
    fn learn(&mut self, run: Run) -> Result<()> {
        if self.beyond.is_some() {
            self.beyond = Some(run);
            return Ok(());
        }
        let is_full = self.runs.len() >= MAX_RUNS;
        match self.runs.last_mut() {
            Some(last) if last.at == run.at => *last = run,
            _ if is_full => self.beyond = Some(run),
            _ => {
                self.runs.try_reserve(1)?;
                self.runs.push(run);
            }
        }
        Ok(())
    }
}
