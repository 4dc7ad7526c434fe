//! Groups of syncs: while a sync runs, the next one gathers the files of all threads that wait.
//!
//! Each sync writes the block of records that is not full, which changes the segment. Threads that sync at the same time
//! would otherwise cause a commit each, also where one commit covers the changes of all.
//!
//! Locking: no thread holds the lock during a sync.

use alloc::vec::Vec;

use obento_base::{Ino, Result};
use obento_env::sync::{Condvar, Mutex};

/// The sync that runs, and the next one.
#[derive(Default)]
pub(crate) struct Syncs {
    state: Mutex<SyncState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    is_running: bool,
    /// Number of syncs that have begun.
    begun: u64,
    /// Number of syncs that have ended.
    ended: u64,
    /// Number of the last sync that failed, counted from 1.
    failed: u64,
    /// The files of the next sync.
    waiting: Vec<Ino>,
}

impl Syncs {
    /// Syncs `inos` by `sync`, together with the files of other threads. If a sync of several threads fails, each of them
    /// syncs its own files and returns the result.
    pub(crate) fn run(&self, inos: &[Ino], sync: impl Fn(&[Ino]) -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        state.waiting.extend_from_slice(inos);
        let own = state.begun.saturating_add(1);
        while state.is_running && state.ended < own {
            state = self.changed.wait(&self.state, state);
        }
        if state.ended >= own {
            let has_failed = state.failed >= own;
            drop(state);
            return if has_failed { sync(inos) } else { Ok(()) };
        }
        (state.is_running, state.begun) = (true, own);
        let all = core::mem::take(&mut state.waiting);
        drop(state);
        let mut running = RunningSync { syncs: self, number: own, has_failed: true };
        let result = sync(&all);
        running.has_failed = result.is_err();
        drop(running);
        if result.is_err() && all.len() > inos.len() { sync(inos) } else { result }
    }
}

/// A sync that runs. It ends on drop, also if the driver panics.
struct RunningSync<'a> {
    syncs: &'a Syncs,
    number: u64,
    has_failed: bool,
}

impl Drop for RunningSync<'_> {
    fn drop(&mut self) {
        let mut state = self.syncs.state.lock();
        (state.is_running, state.ended) = (false, self.number);
        if self.has_failed {
            state.failed = self.number;
        }
        drop(state);
        self.syncs.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use std::sync::Mutex as StdMutex;

    use obento_base::Error;

    use super::*;

    /// Four threads sync a file each, the last three while the sync of the first runs. Returns their results in the order of
    /// the files, and the files of each sync.
    fn together(result: impl Fn(&[Ino]) -> Result<()> + Sync) -> (Vec<Result<()>>, Vec<Vec<u64>>) {
        let (syncs, calls) = (Syncs::default(), StdMutex::new(Vec::new()));
        let waiting = || syncs.state.lock().waiting.len();
        let sync = |inos: &[Ino]| {
            let mut numbers: Vec<_> = inos.iter().map(|ino| ino.0).collect();
            numbers.sort_unstable();
            let is_first = numbers == [1];
            calls.lock().unwrap().push(numbers);
            while is_first && waiting() < 3 {
                std::thread::yield_now();
            }
            result(inos)
        };
        let (syncs, sync) = (&syncs, &sync);
        let results = std::thread::scope(|scope| {
            let first = scope.spawn(move || syncs.run(&[Ino(1)], sync));
            while !syncs.state.lock().is_running {
                std::thread::yield_now();
            }
            let others = [2, 3, 4].map(|number| scope.spawn(move || syncs.run(&[Ino(number)], sync)));
            [first].into_iter().chain(others).map(|thread| thread.join().unwrap()).collect()
        });
        (results, calls.into_inner().unwrap())
    }

    #[test]
    fn threads_that_wait_for_a_sync_share_the_next_one() {
        let (results, calls) = together(|_| Ok(()));
        assert_eq!((results, calls), (vec![Ok(()); 4], vec![vec![1], vec![2, 3, 4]]));
    }

    #[test]
    fn a_failure_reaches_only_the_thread_whose_file_fails() {
        let failure = Err(Error::NoMemory);
        let (results, mut calls) = together(|inos| if inos.contains(&Ino(3)) { failure } else { Ok(()) });
        assert_eq!(results, [Ok(()), Ok(()), failure, Ok(())]);
        calls[2..].sort_unstable();
        assert_eq!(calls, [vec![1], vec![2, 3, 4], vec![2], vec![3], vec![4]]);
    }
}
