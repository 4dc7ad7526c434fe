//! Walks a tree with several threads: reading attributes needs system calls, which run in parallel on several
//! processors.
//!
//! A walker that finds a directory offers it to an idle walker. The findings of one walker have the order of
//! a [`Walk`]. Those of several walkers have no order, except that a directory comes before its contents.
//! Invariant: waiting data is bounded: [`WAITING`] pieces of [`ENTRIES`] entries, each of which keeps
//! [`DIRECTORIES`] directories open.
//! Locking: one mutex protects the directories that wait for a walker. No other work is done under it.

use std::sync::mpsc::sync_channel;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use obento_base::FileKind;

use super::{SourceEntry, Walk};
use crate::HostError;

/// Entries that are handed over at once.
const ENTRIES: usize = 256;
/// The most directories that contain them.
const DIRECTORIES: usize = 16;
/// Pieces that wait for the receiver.
const WAITING: usize = 8;
/// Directories that wait for a walker.
const OFFERS: usize = 8;

/// The path of one walker through a directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WalkerPath(u64);

impl WalkerPath {
    /// The way that begins with the root of the tree.
    pub const FIRST: Self = Self(0);
}

/// A finding of a walker.
#[derive(Debug)]
pub enum Step {
    /// An entry.
    Entry {
        /// The entry.
        entry: SourceEntry,
        /// The number of directories between the start of the way and the entry.
        depth: usize,
        /// The way through it, if it is a directory that another walker enters.
        below: Option<WalkerPath>,
    },
    /// An excluded entry. Its contents are excluded too.
    LeftOut,
    /// An entry that cannot be read.
    Failed(HostError),
}

/// Consecutive steps of one way.
#[derive(Debug)]
pub struct WalkedSteps {
    /// The way.
    pub way: WalkerPath,
    /// The steps.
    pub steps: Vec<Step>,
    /// Whether the way ends with them.
    pub is_end: bool,
}

/// Walks with the given number of threads, and hands their findings to `take`. With one thread, or if no thread can
/// be started, the calling thread does all the work. An entry is excluded if `leave_out` returns true for its path
/// from the root, with a slash before each name. Fails with the errors of `take`, which is not called again.
pub fn walk_together<E>(
    walk: Walk,
    threads: usize,
    leave_out: &(dyn Fn(&[u8]) -> bool + Sync),
    mut take: impl FnMut(WalkedSteps) -> Result<(), E>,
) -> Result<(), E> {
    let walkers = Walkers::new(walk, leave_out);
    let (sender, pieces) = sync_channel(WAITING);
    std::thread::scope(|scope| {
        let count = if threads > 1 { threads } else { 0 };
        let spawn = |_: &usize| {
            let (walkers, sender) = (&walkers, sender.clone());
            let work = move || walkers.work(&mut |piece| sender.send(piece).is_ok());
            std::thread::Builder::new().name("walker".into()).spawn_scoped(scope, work).is_ok()
        };
        let spawned = (0..count).filter(spawn).count();
        drop(sender);
        if spawned > 0 {
            return pieces.into_iter().try_for_each(take);
        }
        let mut taken = Ok(());
        walkers.work(&mut |piece| {
            taken = take(piece);
            taken.is_ok()
        });
        taken
    })
}

/// A directory for a walker.
struct Offer {
    way: WalkerPath,
    walk: Walk,
    /// Its path in the tree.
    path: Vec<u8>,
}

struct Offers {
    waiting: Vec<Offer>,
    /// Walkers that wait for a directory.
    idle: usize,
    /// Walkers that may still offer one.
    busy: usize,
    next: u64,
    is_over: bool,
}

struct Walkers<'a> {
    leave_out: &'a (dyn Fn(&[u8]) -> bool + Sync),
    offers: Mutex<Offers>,
    changed: Condvar,
}

impl<'a> Walkers<'a> {
    fn new(walk: Walk, leave_out: &'a (dyn Fn(&[u8]) -> bool + Sync)) -> Self {
        let waiting = vec![Offer { way: WalkerPath::FIRST, walk, path: Vec::new() }];
        let offers = Offers { waiting, idle: 0, busy: 0, next: 1, is_over: false };
        Self { leave_out, offers: Mutex::new(offers), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Offers> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Walks offered directories until none remain, or `send` returns false.
    fn work(&self, send: &mut dyn FnMut(WalkedSteps) -> bool) {
        while let Some(offer) = self.wait() {
            let is_wanted = self.walk(offer, send);
            let mut offers = self.lock();
            offers.busy -= 1;
            offers.is_over |= !is_wanted;
            drop(offers);
            self.changed.notify_all();
        }
    }

    /// Returns the next directory, or `None` if no more can be offered.
    fn wait(&self) -> Option<Offer> {
        let mut offers = self.lock();
        loop {
            if offers.is_over {
                return None;
            }
            if let Some(offer) = offers.waiting.pop() {
                offers.busy += 1;
                return Some(offer);
            }
            if offers.busy == 0 {
                return None;
            }
            offers.idle += 1;
            offers = self.changed.wait(offers).unwrap_or_else(PoisonError::into_inner);
            offers.idle -= 1;
        }
    }

    /// Returns a way for a directory that another walker could enter.
    fn new_way(&self) -> Option<WalkerPath> {
        let mut offers = self.lock();
        if offers.idle == 0 || offers.waiting.len() >= OFFERS {
            return None;
        }
        let way = WalkerPath(offers.next);
        offers.next += 1;
        Some(way)
    }

    fn offer(&self, offer: Offer) {
        self.lock().waiting.push(offer);
        self.changed.notify_one();
    }

    /// Walks one directory, without those subdirectories that other walkers enter. Returns whether to
    /// continue.
    fn walk(&self, offer: Offer, send: &mut dyn FnMut(WalkedSteps) -> bool) -> bool {
        let Offer { way, mut walk, mut path } = offer;
        // The lengths of the paths of the directories, from the start of the way down.
        let mut lens = vec![path.len()];
        let (mut steps, mut directories) = (Vec::new(), 1);
        while let Some(found) = walk.next() {
            if steps.len() >= ENTRIES || directories >= DIRECTORIES {
                if !send(WalkedSteps { way, steps: std::mem::take(&mut steps), is_end: false }) {
                    return false;
                }
                directories = 1;
            }
            let depth = walk.depth();
            let entry = match found {
                Ok(entry) => entry,
                Err(error) => {
                    steps.push(Step::Failed(error));
                    continue;
                }
            };
            let Some(name) = entry.name() else {
                steps.push(Step::Entry { entry, depth, below: None });
                continue;
            };
            lens.truncate(depth);
            path.truncate(lens.last().copied().unwrap_or(0));
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
            if (self.leave_out)(&path) {
                walk.prune();
                steps.push(Step::LeftOut);
                continue;
            }
            if entry.attr().kind != FileKind::Directory {
                steps.push(Step::Entry { entry, depth, below: None });
                continue;
            }
            directories += 1;
            lens.push(path.len());
            let below = self.new_way();
            steps.push(Step::Entry { entry, depth, below });
            if let (Some(below), Some(walk)) = (below, below.and_then(|_| walk.split())) {
                // Sent before the contents of the directory.
                if !send(WalkedSteps { way, steps: std::mem::take(&mut steps), is_end: false }) {
                    return false;
                }
                directories = 1;
                self.offer(Offer { way: below, walk, path: path.clone() });
            }
        }
        send(WalkedSteps { way, steps, is_end: true })
    }
}
