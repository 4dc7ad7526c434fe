//! Threads that do the same until a limit is reached.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Measure, Phase, Scene};
use crate::error::During as _;
use crate::random::Rng;
use crate::{BenchError, Result};

/// Threads that begin together, and what they did.
pub struct Team {
    name: String,
    measure: Measure,
    threads: usize,
    end: Option<Duration>,
}

/// One thread's part.
pub struct Member<'t> {
    /// Which one it is, from 0.
    pub index: usize,
    /// Its random numbers.
    pub rng: Rng,
    operations: &'t AtomicU64,
    bytes: &'t AtomicU64,
    failed: &'t AtomicBool,
    deadline: Option<Instant>,
}

impl Member<'_> {
    /// Counts operations that moved so many bytes.
    pub fn count(&self, operations: u64, bytes: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether its time is over, or another thread has failed.
    pub fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Team {
    /// So many threads for a phase of this name.
    pub fn new(name: impl Into<String>, measure: Measure, threads: usize) -> Self {
        Self { name: name.into(), measure, threads, end: None }
    }

    /// Ends after this time.
    pub fn for_time(self, time: Duration) -> Self {
        Self { end: Some(time), ..self }
    }

    /// Lets every thread do `work` to its end. Errors: the first of a thread; the others end soon then.
    pub fn run(
        self,
        scene: &Scene,
        work: impl Fn(&mut Member<'_>) -> std::io::Result<()> + Sync,
    ) -> Result<Phase> {
        let (operations, bytes, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let start = Barrier::new(self.threads + 1);
        let alone = |index| {
            start.wait();
            let deadline = self.end.map(|time| Instant::now() + time);
            let rng = scene.rng(index);
            let mut member =
                Member { index, rng, operations: &operations, bytes: &bytes, failed: &failed, deadline };
            work(&mut member).inspect_err(|_| failed.store(true, Ordering::Relaxed))
        };
        let (seconds, ends) = std::thread::scope(|scope| {
            let members: Vec<_> =
                (0..self.threads).map(|index| scope.spawn(move_index(&alone, index))).collect();
            start.wait();
            let begin = Instant::now();
            let ends: Vec<_> = members.into_iter().map(|member| member.join()).collect();
            (begin.elapsed().as_secs_f64(), ends)
        });
        for end in ends {
            end.map_err(|_| BenchError::Program {
                program: self.name.clone(),
                message: "a thread died".into(),
            })?
            .during("work in", &self.name)?;
        }
        let (operations, bytes) = (operations.into_inner(), bytes.into_inner());
        Ok(Phase {
            name: self.name,
            measure: self.measure,
            seconds,
            operations,
            bytes,
            percentiles: Default::default(),
        })
    }
}

/// `work` for one thread, which takes its number along.
fn move_index<T>(work: &(impl Fn(usize) -> T + Sync), index: usize) -> impl FnOnce() -> T {
    move || work(index)
}
