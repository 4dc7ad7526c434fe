//! Parts of a pass that several threads execute, with results in order.
//!
//! Locking: one lock over the parts that are done and not yet passed on.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use obento_env::sync::{Condvar, Mutex};
use obento_env::thread;

struct Shared<T> {
    next: AtomicU32,
    done: Mutex<BTreeMap<u32, T>>,
    came: Condvar,
    /// Number of threads that still work.
    alive: AtomicU32,
}

/// Marks a thread as working until it is dropped, whatever the reason.
struct Alive<T>(Arc<Shared<T>>);

impl<T> Drop for Alive<T> {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
        self.0.came.notify_all();
    }
}

/// Calls `work` for every number below `count`, in at most `threads` threads, and passes each result to `each`, which
/// runs in the caller's thread, in the order of the numbers.
pub(super) fn each_part<T, W>(threads: u32, count: u32, work: &Arc<W>, mut each: impl FnMut(u32, T))
where
    T: Send + 'static,
    W: Fn(u32) -> T + Send + Sync + 'static,
{
    let shared = Arc::new(Shared {
        next: AtomicU32::new(0),
        done: Mutex::new(BTreeMap::new()),
        came: Condvar::new(),
        alive: AtomicU32::new(0),
    });
    let mut others = Vec::new();
    for _ in 1..threads.min(count) {
        shared.alive.fetch_add(1, Ordering::SeqCst);
        let (alive, work) = (Alive(Arc::clone(&shared)), Arc::clone(work));
        others.extend(thread::spawn("check", move || {
            while let Some(number) = take(&alive.0.next, count) {
                let part = work(number);
                alive.0.done.lock().insert(number, part);
                alive.0.came.notify_all();
            }
        }));
    }
    let mut wanted = 0;
    while wanted < count {
        if let Some(number) = take(&shared.next, count) {
            let part = work(number);
            shared.done.lock().insert(number, part);
        }
        while let Some(part) = next_part(&shared, wanted, count) {
            each(wanted, part);
            wanted = wanted.saturating_add(1);
        }
        let is_lost = shared.next.load(Ordering::SeqCst) >= count
            && shared.alive.load(Ordering::SeqCst) == 0
            && wanted < count
            && !shared.done.lock().contains_key(&wanted);
        if is_lost {
            // The thread that had taken it has ended without a result.
            each(wanted, work(wanted));
            wanted = wanted.saturating_add(1);
        }
    }
    others.into_iter().for_each(thread::Thread::join);
}

/// Returns the next number, if there is one.
fn take(next: &AtomicU32, count: u32) -> Option<u32> {
    let number = next.fetch_add(1, Ordering::SeqCst);
    if number < count {
        return Some(number);
    }
    next.store(count, Ordering::SeqCst);
    None
}

/// Returns part `wanted`, if it is done. If no part is left to be taken, waits for it.
fn next_part<T>(shared: &Shared<T>, wanted: u32, count: u32) -> Option<T> {
    let mut done = shared.done.lock();
    loop {
        if let Some(part) = done.remove(&wanted) {
            return Some(part);
        }
        let others_work = shared.alive.load(Ordering::SeqCst) > 0;
        if wanted >= count || !others_work || shared.next.load(Ordering::SeqCst) < count {
            return None;
        }
        done = shared.came.wait_for(&shared.done, done, Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn parts_come_in_order_however_many_threads_there_are() {
        for threads in [0, 1, 2, 5] {
            let mut seen = Vec::new();
            each_part(threads, 100, &Arc::new(|number| number * 2), |number, part| seen.push((number, part)));
            assert_eq!(seen, (0..100).map(|n| (n, n * 2)).collect::<Vec<_>>());
        }
        each_part(2, 0, &Arc::new(|_| ()), |_, ()| unreachable!());
    }
}
