//! The thread that commits by age and writes back when memory fills, where the environment has threads.
//!
//! It begins with the first change, so that it has no right that its process gave up before. Without it all of that is
//! done by the callers: a commit when somebody syncs, writing back when a transaction begins.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::mem;
use core::time::Duration;

use obento_env::sync::{Condvar, Mutex};
use obento_env::thread::{self, Thread};

use super::Transactions;

/// How others reach the thread.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    life: Mutex<Life>,
}

enum Life {
    /// There is no thread, and will be none.
    Without,
    /// What the thread does, once it is needed.
    Wanted(Box<dyn FnOnce() + Send>),
    Runs(Thread),
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
        Self { shared: Arc::new(Shared { wish, wished, hurried }), life: Mutex::new(Life::Without) }
    }

    /// Wants a thread for `transactions`, whose life it does not prolong.
    pub(super) fn want(&self, transactions: Weak<Transactions>, interval: Duration) {
        let shared = Arc::clone(&self.shared);
        let run = move || while shared.wait(interval).is_some_and(|wish| act(&transactions, wish)) {};
        *self.life.lock() = Life::Wanted(Box::new(run));
    }

    /// Whether there is a thread; who asks first starts it, if one is wanted.
    pub(super) fn runs(&self) -> bool {
        let mut life = self.life.lock();
        *life = match mem::replace(&mut *life, Life::Without) {
            Life::Wanted(run) => thread::spawn("obento-commit", run).map_or(Life::Without, Life::Runs),
            known => known,
        };
        matches!(*life, Life::Runs(_))
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
