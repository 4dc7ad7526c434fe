//! The thread that commits by age and writes back when memory fills, where the environment has threads.
//!
//! Without it all of that is done by the callers: a commit when somebody syncs, writing back when a transaction
//! begins.

use alloc::sync::{Arc, Weak};
use core::time::Duration;

use obento_env::sync::{Condvar, Mutex};
use obento_env::thread::{self, Thread};

use super::Transactions;

/// How others reach the thread.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

struct Shared {
    wish: Mutex<Wish>,
    /// There is a wish.
    wished: Condvar,
    /// Not to wait for the interval's end.
    hurried: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Nothing,
    /// A transaction has begun to age.
    Commit,
    /// Somebody waits for the next transaction.
    Hurry,
    /// Too much is in memory.
    Checkpoint,
    Stop,
}

impl Ticker {
    pub(super) fn new() -> Self {
        let (wish, wished, hurried) = (Mutex::new(Wish::Nothing), Condvar::new(), Condvar::new());
        Self { shared: Arc::new(Shared { wish, wished, hurried }), thread: Mutex::new(None) }
    }

    /// Starts the thread for `transactions`, whose life it does not prolong.
    pub(super) fn start(&self, transactions: Weak<Transactions>, interval: Duration) {
        let shared = Arc::clone(&self.shared);
        let run = move || while shared.wait(interval).is_some_and(|wish| act(&transactions, wish)) {};
        *self.thread.lock() = thread::spawn("obento-commit", run);
    }

    /// Whether there is a thread.
    pub(super) fn runs(&self) -> bool {
        self.thread.lock().is_some()
    }

    /// A transaction has its first change.
    pub(super) fn changed(&self) {
        self.shared.ask(Wish::Commit);
    }

    /// The running transaction is full.
    pub(super) fn hurry(&self) {
        self.shared.ask(Wish::Hurry);
    }

    /// Memory fills.
    pub(super) fn fills(&self) {
        self.shared.ask(Wish::Checkpoint);
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.shared.ask(Wish::Stop);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
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

    /// Waits for something to do. `None`: to stop.
    fn wait(&self, interval: Duration) -> Option<Wish> {
        let mut wish = self.wish.lock();
        while *wish == Wish::Nothing {
            wish = self.wished.wait(&self.wish, wish);
        }
        if *wish == Wish::Commit {
            // Only a greater wish ends this early.
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

/// Does it. Answers whether there will be more to do.
fn act(transactions: &Weak<Transactions>, wish: Wish) -> bool {
    let Some(transactions) = transactions.upgrade() else { return false };
    let outcome = match wish {
        Wish::Checkpoint => transactions.checkpoint(),
        _ => transactions.wait_durable(transactions.running()),
    };
    // Whoever syncs next is told of an error.
    outcome.is_ok()
}
