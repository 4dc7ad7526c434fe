//! Threads that repeat the same work until a limit is reached.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Measure, Phase, WorkloadContext};
use crate::random::Rng;
use crate::{BenchError, Result};

/// Threads that start together, and their results.
pub struct ThreadGroup {
    name: String,
    measure: Measure,
    threads: usize,
    end: Option<Duration>,
}

/// The state of one thread.
pub struct GroupMember<'t> {
    /// The index of the thread, from 0.
    pub index: usize,
    /// The random numbers of the thread.
    pub rng: Rng,
    operations: &'t AtomicU64,
    bytes: &'t AtomicU64,
    failed: &'t AtomicBool,
    deadline: Option<Instant>,
}

impl GroupMember<'_> {
    /// Adds to the number of operations and bytes.
    pub fn count(&self, operations: u64, bytes: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns whether the time is over, or another thread has failed.
    pub fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl ThreadGroup {
    /// Returns this number of threads for a phase with this name.
    pub fn new(name: impl Into<String>, measure: Measure, threads: usize) -> Self {
        Self { name: name.into(), measure, threads, end: None }
    }

    /// Ends after this time.
    pub fn for_time(self, time: Duration) -> Self {
        Self { end: Some(time), ..self }
    }

    /// Runs `work` in every thread. Fails with the first error of a thread; the other threads then end soon.
    pub fn run(
        self,
        context: &WorkloadContext,
        work: impl Fn(&mut GroupMember<'_>) -> std::io::Result<()> + Sync,
    ) -> Result<Phase> {
        let (operations, bytes, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let start = Barrier::new(self.threads);
        // Each thread records its own start and end, because the thread that waits for them may wake late.
        let alone = |index| {
            start.wait();
            let begin = Instant::now();
            let deadline = self.end.map(|time| begin + time);
            let rng = context.rng(index);
            let mut member =
                GroupMember { index, rng, operations: &operations, bytes: &bytes, failed: &failed, deadline };
            let end = work(&mut member).inspect_err(|_| failed.store(true, Ordering::Relaxed));
            end.map(|()| (begin, Instant::now()))
        };
        let ends: Vec<_> = std::thread::scope(|scope| {
            let members: Vec<_> =
                (0..self.threads).map(|index| scope.spawn(for_thread(&alone, index))).collect();
            members.into_iter().map(|member| member.join()).collect()
        });
        let mut span: Option<(Instant, Instant)> = None;
        for end in ends {
            let died =
                |_| BenchError::Program { program: self.name.clone(), message: "a thread died".into() };
            let (begin, end) = end.map_err(died)?.map_err(|error| self.failed(error))?;
            span = span.map(|(first, last)| (first.min(begin), last.max(end))).or(Some((begin, end)));
        }
        let seconds = span.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
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

impl ThreadGroup {
    /// Returns the error of a thread. The only phase of a workload has no name.
    fn failed(&self, source: std::io::Error) -> BenchError {
        match self.name.as_str() {
            "" => BenchError::Workload(source),
            name => BenchError::Io { action: "run the phase", path: name.into(), source },
        }
    }
}

/// Returns `work` for the thread `index`.
fn for_thread<T>(work: &(impl Fn(usize) -> T + Sync), index: usize) -> impl FnOnce() -> T {
    move || work(index)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::ImageFiles;
    use crate::workload::Settings;

    fn context() -> WorkloadContext {
        let files = Arc::new(ImageFiles::new(obento::Volume::in_memory()));
        WorkloadContext { files, path: None, settings: Settings::default() }
    }

    #[test]
    fn the_time_is_from_the_first_start_to_the_last_end() {
        let busy = |member: &mut GroupMember<'_>| {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(20 * (1 + member.index as u64)) {
                std::hint::spin_loop();
            }
            member.count(1, 10);
            Ok(())
        };
        let phase = ThreadGroup::new("", Measure::Rate, 3).run(&context(), busy).unwrap();
        assert!(phase.seconds >= 0.06, "{}", phase.seconds);
        assert_eq!((phase.operations, phase.bytes), (3, 30));
    }

    #[test]
    fn an_error_of_a_phase_without_a_name_names_the_workload() {
        let error = |name: &str| {
            let full = |_: &mut GroupMember<'_>| Err(std::io::ErrorKind::StorageFull.into());
            ThreadGroup::new(name, Measure::Rate, 1).run(&context(), full).unwrap_err().to_string()
        };
        assert_eq!(error(""), "the workload failed: no storage space");
        assert_eq!(error("create"), "cannot run the phase 'create': no storage space");
    }

    #[test]
    fn the_error_of_one_thread_ends_all_threads_and_is_returned() {
        let error = ThreadGroup::new("phase", Measure::Rate, 2).run(&context(), |member| {
            if member.index == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            while !member.is_over() {
                std::thread::yield_now();
            }
            Ok(())
        });
        assert!(error.unwrap_err().to_string().contains("phase"));
    }
}
