//! Threads for requests that wait for the disk.
//!
//! One thread reads requests and answers most of them itself: waking another costs more than the answer (an eighth of a
//! millisecond and more on a busy machine, where the answer takes five microseconds), and Linux wakes those that wait on
//! `/dev/fuse` in turn. What may wait, above all for a commit, goes here, so that nobody else waits with it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// A number of threads, and what they are to do.
pub(crate) struct Pool {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `count` threads. Errors: those of starting a thread.
    pub(crate) fn start(count: usize) -> std::io::Result<Self> {
        let (jobs, receiver) = channel::<Job>();
        let receiver = Arc::new(Mutex::new(receiver));
        let start = |number| {
            let receiver = Arc::clone(&receiver);
            std::thread::Builder::new().name(format!("fuse-{number}")).spawn(move || work(&receiver))
        };
        let threads = (0..count).map(start).collect::<Result<_, _>>()?;
        Ok(Self { jobs: Some(jobs), threads })
    }

    /// Has one of the threads run `job`; without any left, this one.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        match &self.jobs {
            Some(jobs) => {
                if let Err(unsent) = jobs.send(Box::new(job)) {
                    (unsent.0)();
                }
            }
            None => job(),
        }
    }

    /// Waits until all that was given is done.
    pub(crate) fn finish(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A job does not panic; if one did, its reply told so.
            let _ = thread.join();
        }
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().recv();
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

    #[test]
    fn what_was_given_is_done_when_the_pool_has_finished() {
        let done = Arc::new(AtomicUsize::new(0));
        let mut pool = Pool::start(3).unwrap();
        for _ in 0..100 {
            let done = Arc::clone(&done);
            pool.run(move || {
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        pool.finish();
        assert_eq!(done.load(Ordering::Relaxed), 100);
        let done = Arc::new(AtomicUsize::new(0));
        let here = Arc::clone(&done);
        pool.run(move || {
            here.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }
}
