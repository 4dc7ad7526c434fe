//! Threads for requests that wait for the disk.
//!
//! One thread reads requests and answers most of them itself. Waking another thread takes longer than the answer: 125
//! µs and more on a busy machine, where the answer takes 5 µs. Linux would wake the threads that wait on `/dev/fuse` in
//! turn. This pool answers requests that may block, above all requests that wait for a commit, so that no other request
//! waits behind them.
//!
//! Jobs that wait for the kernel have a second pool. The kernel may wait for replies of the first pool, whose threads
//! must not all wait for the kernel.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// The side that queues jobs.
pub(crate) struct Jobs(Arc<Shared>);

/// The side that takes jobs.
pub(crate) struct Queue(Arc<Shared>);

/// The threads that run jobs.
pub(crate) struct Workers(Vec<JoinHandle<()>>);

/// The queue. A new job wakes one sleeping thread, and that thread wakes no other. A channel whose receiver is behind a
/// lock would make each thread pass the lock to the next one.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    given: Condvar,
    /// No job is queued or running.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    running: usize,
    /// No more jobs will be queued, or no more jobs will be taken.
    is_last: bool,
    is_left: bool,
}

/// Returns an empty queue without threads.
pub(crate) fn queue() -> (Jobs, Queue) {
    let shared = Arc::<Shared>::default();
    (Jobs(Arc::clone(&shared)), Queue(shared))
}

impl Jobs {
    /// Queues `job`. If the other side has ended, runs `job` in this thread.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        if state.is_left {
            drop(state);
            return job();
        }
        state.jobs.push_back(Box::new(job));
        drop(state);
        self.0.given.notify_one();
    }
}

impl Jobs {
    /// Waits until no job is queued or running, for at most `longest`. Returns whether that is so.
    pub(crate) fn wait_until_idle(&self, longest: Duration) -> bool {
        let end = Instant::now() + longest;
        let mut state = self.0.state.lock();
        while !state.is_idle() {
            if self.0.idle.wait_until(&mut state, end).timed_out() {
                return state.is_idle();
            }
        }
        true
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.jobs.is_empty()
    }
}

/// A job that is running, until this is dropped.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running = state.running.saturating_sub(1);
        if state.is_idle() {
            self.0.idle.notify_all();
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.0.state.lock().is_last = true;
        self.0.given.notify_all();
    }
}

impl Queue {
    /// Starts `count` threads whose names begin with `name`. Fails with the errors of starting a thread.
    pub(crate) fn start(self, name: &str, count: usize) -> io::Result<Workers> {
        let queue = Arc::new(self);
        let start = |number| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || queue.work())
        };
        (0..count).map(start).collect::<Result<_, _>>().map(Workers)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let _running = Running(&self.0);
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.0.state.lock();
        loop {
            match state.jobs.pop_front() {
                Some(job) => {
                    state.running = state.running.saturating_add(1);
                    return Some(job);
                }
                None if state.is_last => return None,
                None => self.0.given.wait(&mut state),
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_left = true;
        let undone = std::mem::take(&mut state.jobs);
        // Dropping a job may lock the queue again.
        drop(state);
        drop(undone);
    }
}

impl Workers {
    /// No threads.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Waits until all jobs are done and no more can be queued.
    pub(crate) fn join(self) {
        for thread in self.0 {
            // A job does not panic. If one did, the kernel received EIO.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counted(done: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
        let done = Arc::clone(done);
        move || {
            done.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_jobs_are_done_when_the_threads_have_ended() {
        let done = Arc::default();
        let (jobs, queue) = queue();
        jobs.run(counted(&done));
        let workers = queue.start("test", 3).unwrap();
        (0..100).for_each(|_| jobs.run(counted(&done)));
        drop(jobs);
        workers.join();
        assert_eq!(done.load(Ordering::Relaxed), 101);
    }

    #[test]
    fn the_jobs_are_idle_when_no_job_waits_or_runs() {
        let (jobs, queue) = queue();
        assert!(jobs.wait_until_idle(Duration::ZERO));
        let (release, released) = std::sync::mpsc::channel::<()>();
        jobs.run(move || {
            let _ = released.recv();
        });
        assert!(!jobs.wait_until_idle(Duration::ZERO));
        let workers = queue.start("test", 2).unwrap();
        assert!(!jobs.wait_until_idle(Duration::from_millis(1)));
        release.send(()).unwrap();
        assert!(jobs.wait_until_idle(Duration::from_secs(60)));
        drop(jobs);
        workers.join();
    }

    #[test]
    fn without_worker_threads_the_caller_does_the_job() {
        let done = Arc::default();
        let (jobs, queue) = queue();
        drop(queue);
        jobs.run(counted(&done));
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }
}
