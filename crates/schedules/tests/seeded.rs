//! Tests of the explorer: it finds seeded bugs.
#![cfg(obento_env = "shuttle")]

use std::sync::Arc;

use obento_block::{Cache, MemDevice};
use obento_env::NO_CLOCK;
use obento_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use obento_env::sync::{Condvar, Mutex};
use obento_env::thread::spawn;
use obento_journal::{CommitOptions, Credits, Log, NoHooks, Transactions};
use obento_schedules::explore;

fn both(first: impl FnOnce() + Send + 'static, second: impl FnOnce()) {
    let first = spawn("first", first).expect("there are threads");
    second();
    first.join();
}

/// Takes both locks, in this order.
fn add(first: &Mutex<u64>, second: &Mutex<u64>) {
    let first = first.lock();
    *second.lock() += *first;
}

#[test]
#[should_panic(expected = "deadlock")]
fn two_locks_that_are_taken_in_two_orders_are_found() {
    explore(|| {
        let locks = Arc::new((Mutex::new(0), Mutex::new(0)));
        let others = Arc::clone(&locks);
        both(move || add(&others.0, &others.1), || add(&locks.1, &locks.0));
    });
}

#[test]
fn two_locks_that_are_taken_in_one_order_are_not() {
    explore(|| {
        let locks = Arc::new((Mutex::new(0), Mutex::new(0)));
        let others = Arc::clone(&locks);
        both(move || add(&others.0, &others.1), || add(&locks.0, &locks.1));
    });
}

/// A flag, and the threads that wait for it.
#[derive(Default)]
struct Gate {
    lock: Mutex<()>,
    opened: Condvar,
    is_open: AtomicBool,
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_up_that_comes_between_the_look_and_the_wait_is_found_lost() {
    explore(|| {
        let gate = Arc::new(Gate::default());
        let opener = Arc::clone(&gate);
        let open = move || {
            opener.is_open.store(true, Ordering::Release);
            // Without the lock, a thread may begin to wait after this notification.
            opener.opened.notify_all();
        };
        both(open, || {
            let mut guard = gate.lock.lock();
            while !gate.is_open.load(Ordering::Acquire) {
                guard = gate.opened.wait(&gate.lock, guard);
            }
        });
    });
}

#[test]
fn a_wake_up_under_the_lock_is_not_lost() {
    explore(|| {
        let gate = Arc::new(Gate::default());
        let opener = Arc::clone(&gate);
        let open = move || {
            let _guard = opener.lock.lock();
            opener.is_open.store(true, Ordering::Release);
            opener.opened.notify_all();
        };
        both(open, || {
            let mut guard = gate.lock.lock();
            while !gate.is_open.load(Ordering::Acquire) {
                guard = gate.opened.wait(&gate.lock, guard);
            }
        });
    });
}

#[test]
#[should_panic(expected = "an addition is lost")]
fn an_addition_in_two_steps_is_found_lost() {
    explore(|| {
        let sum = Arc::new(AtomicU64::new(0));
        let other = Arc::clone(&sum);
        let add = |sum: &AtomicU64| sum.store(sum.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
        both(move || add(&other), || add(&sum));
        assert_eq!(sum.load(Ordering::SeqCst), 2, "an addition is lost");
    });
}

/// The module of transactions forbids this.
#[test]
#[should_panic(expected = "deadlock")]
fn a_handle_whose_thread_waits_for_its_commit_is_found() {
    explore(|| {
        let device = Arc::new(MemDevice::new(vec![0; 8 * 1024]));
        let cache = Arc::new(Cache::new(device, 1024, 1 << 20));
        let options = CommitOptions::new(Arc::new(NO_CLOCK));
        let transactions = Transactions::new(cache, Log::None, options, Arc::new(NoHooks));
        for waits in [false, true] {
            let mut txn = transactions.begin(Credits(1)).expect("it is open");
            let taken = txn.take(3).expect("it reads");
            txn.edit(&taken)[0] = 1;
            if waits {
                let _ = transactions.wait_durable(txn.tid());
            }
            txn.commit();
        }
    });
}
