//! Threads for requests that wait for the disk.
//!
//! One thread reads requests and answers most of them itself: waking another costs more than the answer (an eighth of a
//! millisecond and more on a busy machine, where the answer takes five microseconds), and Linux wakes those that wait on
//! `/dev/fuse` in turn. What may wait, above all for a commit, goes here, so that nobody else waits with it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// Where jobs are given.
pub(crate) struct Jobs(Sender<Job>);

/// What was given and not taken yet.
pub(crate) struct Queue(Receiver<Job>);

/// The threads that take it.
pub(crate) struct Workers(Vec<JoinHandle<()>>);

/// Nothing to do, and nobody to do it.
pub(crate) fn queue() -> (Jobs, Queue) {
    let (jobs, queue) = channel();
    (Jobs(jobs), Queue(queue))
}

impl Jobs {
    /// Has somebody run `job`; without anybody left, the caller.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if let Err(unsent) = self.0.send(Box::new(job)) {
            (unsent.0)();
        }
    }
}

impl Queue {
    /// Starts `count` threads. Errors: those of starting a thread.
    pub(crate) fn start(self, count: usize) -> io::Result<Workers> {
        let queue = Arc::new(Mutex::new(self.0));
        let start = |number| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("fuse-{number}")).spawn(move || work(&queue))
        };
        (0..count).map(start).collect::<Result<_, _>>().map(Workers)
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

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
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
