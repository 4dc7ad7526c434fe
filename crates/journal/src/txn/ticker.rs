//! The thread that commits changes after some time, and writes blocks back when too many are in memory. It exists
//! only in environments with threads.
//!
//! The thread starts with the first change after threads are permitted ([`thread::may_start`]). If the process drops
//! privileges before then, the thread does not have these privileges. Without the thread, callers do the work: a sync
//! commits, and the start of a transaction writes blocks back.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::mem;
use core::time::Duration;

use obento_env::sync::{Condvar, Mutex};
use obento_env::thread::{self, Thread};

use super::Transactions;

/// The communication with the thread.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    life: Mutex<Life>,
}

enum Life {
    /// No thread exists, and none will start.
    Without,
    /// The function that the thread will run, once it is needed.
    Wanted(Box<dyn FnOnce() + Send>),
    Runs(Thread),
}

struct Shared {
    wish: Mutex<Wish>,
    /// Signals a request.
    wished: Condvar,
    /// Signals a request that does not wait for the end of the interval.
    hurried: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Nothing,
    /// A transaction has started to age.
    Commit,
    /// A caller waits for the next transaction.
    Hurry,
    /// Too many blocks are in memory.
    Checkpoint,
    Stop,
}

impl Ticker {
    pub(super) fn new() -> Self {
        let (wish, wished, hurried) = (Mutex::new(Wish::Nothing), Condvar::new(), Condvar::new());
        Self { shared: Arc::new(Shared { wish, wished, hurried }), life: Mutex::new(Life::Without) }
    }

    /// Requests a thread for `transactions`. The thread does not keep them alive.
    pub(super) fn want(&self, transactions: Weak<Transactions>, interval: Duration) {
        let shared = Arc::clone(&self.shared);
        let run = move || while shared.wait(interval).is_some_and(|wish| act(&transactions, wish)) {};
        *self.life.lock() = Life::Wanted(Box::new(run));
    }

    /// Returns whether the thread exists. The first call starts it if it was requested.
    pub(super) fn runs(&self) -> bool {
        let mut life = self.life.lock();
        *life = match mem::replace(&mut *life, Life::Without) {
            Life::Wanted(run) if thread::may_start() => {
                thread::spawn("obento-commit", run).map_or(Life::Without, Life::Runs)
            }
            known => known,
        };
        matches!(*life, Life::Runs(_))
    }

    /// Returns whether no thread exists and none will start.
    pub(super) fn is_without(&self) -> bool {
        matches!(*self.life.lock(), Life::Without)
    }

    /// Records the first change of a transaction.
    pub(super) fn changed(&self) {
        self.shared.ask(Wish::Commit);
    }

    /// Records that the running transaction is full.
    pub(super) fn hurry(&self) {
        self.shared.ask(Wish::Hurry);
    }

    /// Records that memory fills up.
    pub(super) fn fills(&self) {
        self.shared.ask(Wish::Checkpoint);
    }

    /// Stops the thread.
    pub(super) fn stop(&self) {
        self.shared.ask(Wish::Stop);
        let life = mem::replace(&mut *self.life.lock(), Life::Without);
        if let Life::Runs(thread) = life {
            thread.join();
        }
    }
}

impl Shared {
    fn ask(&self, asked: Wish) {
        let mut wish = self.wish.lock();
        if *wish < asked {
            *wish = asked;
            self.wished.notify_all();
            self.hurried.notify_all();
        }
    }

    /// Waits for a request. Returns `None` if the thread must stop.
    fn wait(&self, interval: Duration) -> Option<Wish> {
        let mut wish = self.wish.lock();
        while *wish == Wish::Nothing {
            wish = self.wished.wait(&self.wish, wish);
        }
        if *wish == Wish::Commit {
            // Only a more urgent request ends the wait early.
            wish = self.hurried.wait_for(&self.wish, wish, interval);
        }
        let asked = *wish;
        if asked == Wish::Stop {
            return None;
        }
        *wish = Wish::Nothing;
        Some(asked)
    }
}

/// Executes a request. Returns whether the thread should continue.
fn act(transactions: &Weak<Transactions>, wish: Wish) -> bool {
    let Some(transactions) = transactions.upgrade() else { return false };
    let outcome = match wish {
        Wish::Checkpoint => transactions.checkpoint(),
        _ => transactions.wait_durable(transactions.running()),
    };
    // The next sync reports the error.
    outcome.is_ok()
}
