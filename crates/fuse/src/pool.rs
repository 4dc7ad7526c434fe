//! Threads for requests that wait for the disk.
//!
//! One thread reads requests and answers most of them itself: waking another costs more than the answer (an eighth of a
//! millisecond and more on a busy machine, where the answer takes five microseconds), and Linux wakes those that wait on
//! `/dev/fuse` in turn. What may wait, above all for a commit, goes here, so that nobody else waits with it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// Where jobs are given.
pub(crate) struct Jobs(Arc<Shared>);

/// What was given and not taken yet.
pub(crate) struct Queue(Arc<Shared>);

/// The threads that take it.
pub(crate) struct Workers(Vec<JoinHandle<()>>);

/// A job wakes one thread, if one sleeps, and that one wakes nobody: a channel with its receiver in a lock has each hand the
/// lock to the next.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Nobody gives any more; nobody takes any more.
    is_last: bool,
    is_left: bool,
}

/// Nothing to do, and nobody to do it.
pub(crate) fn queue() -> (Jobs, Queue) {
    let shared = Arc::<Shared>::default();
    (Jobs(Arc::clone(&shared)), Queue(shared))
}

impl Jobs {
    /// Has somebody run `job`; without anybody left, the caller.
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

impl Drop for Jobs {
    fn drop(&mut self) {
        self.0.state.lock().is_last = true;
        self.0.given.notify_all();
    }
}

impl Queue {
    /// Starts `count` threads. Errors: those of starting a thread.
    pub(crate) fn start(self, count: usize) -> io::Result<Workers> {
        let queue = Arc::new(self);
        let start = |number| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("fuse-{number}")).spawn(move || queue.work())
        };
        (0..count).map(start).collect::<Result<_, _>>().map(Workers)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.0.state.lock();
        loop {
            match state.jobs.pop_front() {
                Some(job) => return Some(job),
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
        // What they hold may lock this again.
        drop(state);
        drop(undone);
    }
}

impl Workers {
    /// Waits until all that was given is done, and nobody can give any more.
    pub(crate) fn join(self) {
        for thread in self.0 {
            // A job does not panic; if one did, its reply told so.
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
    fn what_was_given_is_done_when_the_threads_have_ended() {
        let done = Arc::default();
        let (jobs, queue) = queue();
        jobs.run(counted(&done));
        let workers = queue.start(3).unwrap();
        (0..100).for_each(|_| jobs.run(counted(&done)));
        drop(jobs);
        workers.join();
        assert_eq!(done.load(Ordering::Relaxed), 101);
    }

    #[test]
    fn without_anybody_left_who_gives_a_job_does_it() {
        let done = Arc::default();
        let (jobs, queue) = queue();
        drop(queue);
        jobs.run(counted(&done));
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }
}
