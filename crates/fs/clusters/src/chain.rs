//! Chains of clusters, gathered into runs that lie together.
//!
//! Invariant: what is kept of a chain is a prefix of it, runs that join neither in the file nor on the volume, at most
//! [`MAX_RUNS`] of them; beyond those a walk starts from the last one kept, so that memory is bounded whatever the chain.
//! Invariant: a walk ends, because it goes no further than the volume has clusters.

use alloc::vec::Vec;

use obento_base::{Corrupt, Ino, Result};

use crate::unit::Cluster;

/// What an entry of a file allocation table says of its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// It belongs to nothing.
    Free,
    /// The next of the chain.
    Next(Cluster),
    /// It is the last of a chain.
    Last,
    /// It cannot be used.
    Bad,
    /// A number that no cluster has.
    Invalid(u32),
}

/// A file allocation table.
pub trait Links {
    /// Returns how many clusters the volume has; the first is 2.
    fn clusters(&self) -> u32;

    /// Returns the entry of `cluster`. Fails with `Corrupt` for a number that no cluster has, or if the device fails.
    fn entry(&mut self, cluster: Cluster) -> Result<Entry>;
}

/// Enough for a file in 64 Ki pieces: 768 KiB.
const MAX_RUNS: usize = 1 << 16;

/// Clusters that follow each other in a file and on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Which of the file's clusters is the first.
    pub at: u32,
    /// The first cluster.
    pub start: Cluster,
    /// How many.
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

    /// This run from file cluster `at` on, if that is in it.
    fn from(self, at: u32) -> Option<Self> {
        let skipped = at.checked_sub(self.at).filter(|&skipped| skipped < self.len)?;
        let start = Cluster(self.start.0.saturating_add(skipped));
        Some(Self { at, start, len: self.len.saturating_sub(skipped) })
    }
}

/// What is known of a chain.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    runs: Vec<Run>,
    /// The last run that was found, where `runs` is full.
    beyond: Option<Run>,
    /// The first of all; none for an empty file.
    first: Option<Cluster>,
    /// Whether the last run known is the last there is.
    is_whole: bool,
}

impl Chain {
    /// The chain that starts with `first`, of which nothing else is known; empty if there is none.
    pub fn new(first: Option<Cluster>) -> Self {
        Self { first, is_whole: first.is_none(), ..Self::default() }
    }

    /// Clusters that lie together, about which the table says nothing.
    pub fn contiguous(first: Option<Cluster>, len: u32) -> Self {
        let run = first.filter(|_| len > 0).map(|start| Run { at: 0, start, len });
        Self { runs: run.into_iter().collect(), beyond: None, first, is_whole: true }
    }

    /// The run that holds the file's cluster `at`, from there on, as far as it has to be known for `want` clusters.
    /// `None`: the chain ends before. Fails with `NoMemory`, with `Corrupt` for a chain that leaves the volume, goes
    /// on in what is free or bad, or is longer than the volume, or if the device fails.
    pub fn find(&mut self, table: &mut impl Links, ino: Ino, at: u32, want: u32) -> Result<Option<Run>> {
        if let Some(run) = self.known(at)
            && (run.len >= want || self.is_whole || run.end() < self.reached())
        {
            return Ok(Some(run));
        }
        let goal = at.saturating_add(want.max(1));
        // Between what is kept and where the last walk came to: that walk is done again.
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

    /// Returns all runs. Fails in the same cases as [`Chain::find`], and for more clusters than `most`.
    pub fn all(&mut self, table: &mut impl Links, ino: Ino, most: u32) -> Result<&[Run]> {
        while !self.is_whole {
            self.step(table, ino, most.saturating_add(1))?;
            if self.reached() > most || self.beyond.is_some() {
                return Err(Corrupt::Chain { ino, at: most, what: "is longer than it may be" }.into());
            }
        }
        Ok(&self.runs)
    }

    /// Learns the first `goal` clusters and says how many there are of them, or one more. Fails in the same cases as
    /// [`Chain::find`].
    pub fn reach(&mut self, table: &mut impl Links, ino: Ino, goal: u32) -> Result<u32> {
        while !self.is_whole && self.reached() < goal {
            self.step(table, ino, goal)?;
        }
        Ok(self.reached())
    }

    /// Returns how many clusters there are in all. Fails in the same cases as [`Chain::find`].
    pub fn count(&mut self, table: &mut impl Links, ino: Ino) -> Result<u32> {
        while !self.is_whole {
            self.step(table, ino, u32::MAX)?;
        }
        Ok(self.reached())
    }

    /// The last cluster of a chain that was [counted](Chain::count).
    pub fn last(&self) -> Option<Cluster> {
        self.tail().map(|run| run.last())
    }

    /// The chain goes on with `len` clusters from `start` on. It was counted before. Fails with `NoMemory`, before
    /// anything was done.
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

    /// Returns the runs that are known.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns how many clusters are known.
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

    /// Learns the next run, or more of the last, up to file cluster `goal`.
    fn step(&mut self, table: &mut impl Links, ino: Ino, goal: u32) -> Result<()> {
        let corrupt = |at, what| obento_base::Error::from(Corrupt::Chain { ino, at, what });
        let Some(first) = self.first else {
            self.is_whole = true;
            return Ok(());
        };
        let mut run = match self.tail() {
            Some(run) => run,
            None if first.is_one_of(table.clusters()) => Run { at: 0, start: first, len: 1 },
            None => return Err(corrupt(0, "starts with a number that no cluster has")),
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
                Entry::Free => next = Err("goes on in a free cluster"),
                Entry::Bad => next = Err("goes on in a bad cluster"),
                Entry::Invalid(_) => next = Err("goes on with a number that no cluster has"),
            }
            if run.end() > table.clusters() {
                next = Err("is longer than the volume");
            }
            if next.is_err() || run.end() >= goal {
                break;
            }
        }
        // What comes before the damage can be read all the same.
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

    /// Keeps `run`, which is the last known or follows it.
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
