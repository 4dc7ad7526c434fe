//! A tree that several threads walk at once: looking at files is calls of the system, which as many do at a time as there are
//! processors.
//!
//! A walker that finds a directory hands it to one that has nothing to do. What one of them finds comes in the order of a [`Walk`];
//! what several find comes in any order, but a directory always before what is in it.
//! Invariant: what waits is bounded: [`WAITING`] pieces of [`ENTRIES`] entries, which keep [`DIRECTORIES`] directories open each.
//! Locking: one mutex, over the directories that wait for a walker; nothing else is done under it.

use std::sync::mpsc::sync_channel;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use obento_base::FileKind;

use super::{SourceEntry, Walk};
use crate::HostError;

/// Entries that are handed over at once.
const ENTRIES: usize = 256;
/// Directories among which they lie, at most.
const DIRECTORIES: usize = 16;
/// Pieces that wait for whoever takes them.
const WAITING: usize = 8;
/// Directories that wait for a walker.
const OFFERS: usize = 8;

/// One walker's way through a directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Way(u64);

impl Way {
    /// The way that begins with the root of the tree.
    pub const FIRST: Self = Self(0);
}

/// What a walker comes by.
#[derive(Debug)]
pub enum Step {
    /// An entry.
    Entry {
        /// What it is.
        entry: SourceEntry,
        /// How many directories lie between the one in which the way begins and it.
        depth: usize,
        /// The way through it, if it is a directory that another walker goes into.
        below: Option<Way>,
    },
    /// An entry that is left out, with all that is in it.
    LeftOut,
    /// Something that cannot be read.
    Failed(HostError),
}

/// Steps that follow each other on one way.
#[derive(Debug)]
pub struct Piece {
    /// The way.
    pub way: Way,
    /// The steps.
    pub steps: Vec<Step>,
    /// Whether the way ends with them.
    pub is_end: bool,
}

/// Walks with so many threads, and hands to `take` what they find; with one, or where there are no more, this one does all. What
/// `leave_out` says of a path, counted from the root with a slash before each name, is left out. Errors: those of `take`, which is not
/// called again.
pub fn walk_together<E>(
    walk: Walk,
    threads: usize,
    leave_out: &(dyn Fn(&[u8]) -> bool + Sync),
    mut take: impl FnMut(Piece) -> Result<(), E>,
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
    way: Way,
    walk: Walk,
    /// Its path in the tree.
    path: Vec<u8>,
}

struct Offers {
    waiting: Vec<Offer>,
    /// Walkers that wait for one.
    idle: usize,
    /// Walkers that may still make one.
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
        let waiting = vec![Offer { way: Way::FIRST, walk, path: Vec::new() }];
        let offers = Offers { waiting, idle: 0, busy: 0, next: 1, is_over: false };
        Self { leave_out, offers: Mutex::new(offers), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Offers> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Walks what is offered until all is done, or `send` takes no more.
    fn work(&self, send: &mut dyn FnMut(Piece) -> bool) {
        while let Some(offer) = self.wait() {
            let is_wanted = self.walk(offer, send);
            let mut offers = self.lock();
            offers.busy -= 1;
            offers.is_over |= !is_wanted;
            drop(offers);
            self.changed.notify_all();
        }
    }

    /// The next directory; none when no more can come.
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

    /// A way for a directory that somebody else could go into.
    fn new_way(&self) -> Option<Way> {
        let mut offers = self.lock();
        if offers.idle == 0 || offers.waiting.len() >= OFFERS {
            return None;
        }
        let way = Way(offers.next);
        offers.next += 1;
        Some(way)
    }

    fn offer(&self, offer: Offer) {
        self.lock().waiting.push(offer);
        self.changed.notify_one();
    }

    /// Walks one directory, but for those in it that others go into. Whether more is wanted.
    fn walk(&self, offer: Offer, send: &mut dyn FnMut(Piece) -> bool) -> bool {
        let Offer { way, mut walk, mut path } = offer;
        // How long the paths of the directories are, from that of the way down.
        let mut lens = vec![path.len()];
        let (mut steps, mut directories) = (Vec::new(), 1);
        while let Some(found) = walk.next() {
            if steps.len() >= ENTRIES || directories >= DIRECTORIES {
                if !send(Piece { way, steps: std::mem::take(&mut steps), is_end: false }) {
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
                // Before what is in it.
                if !send(Piece { way, steps: std::mem::take(&mut steps), is_end: false }) {
                    return false;
                }
                directories = 1;
                self.offer(Offer { way: below, walk, path: path.clone() });
            }
        }
        send(Piece { way, steps, is_end: true })
    }
}
