//! The crash explorer: derives the disks that a power failure could leave from a recording of a device.
//!
//! A *window* is the sequence of writes between two flushes. After a power failure, all earlier windows are on the
//! disk. Any subset of the writes of the open window is on the disk, and any subset of the sectors of a write. The
//! explorer simulates a failure at the end of each window, when most has been promised. It builds every subset of a
//! small window. For a large window, it builds every prefix (256 for a very large one), each single write alone, each
//! single write missing, and random samples. A disk is checked once for each promise.
//!
//! Invariant: the states are a function of base, events and options, so that a [`StateName`] reproduces a state.

mod allowed;
pub mod campaign;
mod choice;
mod disk;
mod endure;
mod host_log;
mod name;
mod recover;
mod repairable;
pub mod volume;
mod window;

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, fs, io};

use obento_block::{BlockDevice, MemDevice, Overlay};

use crate::record::Event;
use disk::Disk;
pub use name::{Drawn, StateName};
use window::windows;

/// The number of states.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of the samples.
    pub seed: u64,
    /// The largest window, in writes, for which every subset is built.
    pub every_subset: u32,
    /// The number of random subsets of a larger window.
    pub samples: u32,
    /// The number of states with a torn write in each window.
    pub torn: u32,
    /// Bytes of the disk that are never torn: a structure that its format writes in place without detecting torn
    /// writes.
    pub whole: Range<u64>,
    /// The number of failures after which the exploration ends.
    pub failures: usize,
    /// States before this mark are not checked.
    pub from_mark: usize,
    /// Check only this state.
    pub only: Option<StateName>,
}

impl Options {
    /// Returns every subset of five writes, 24 samples of larger windows, 12 torn states, and up to five failures.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            every_subset: 5,
            samples: 24,
            torn: 12,
            whole: 0..0,
            failures: 5,
            from_mark: 0,
            only: None,
        }
    }

    /// Selects only the state with this name, and the options with which it was drawn.
    pub fn with_only(self, name: StateName) -> Self {
        let Drawn { every_subset, samples, torn } = name.drawn;
        Self { seed: name.seed, every_subset, samples, torn, only: Some(name), ..self }
    }

    fn drawn(&self) -> Drawn {
        Drawn { every_subset: self.every_subset, samples: self.samples, torn: self.torn }
    }
}

/// The disk after a power failure.
pub struct State<'a> {
    /// The name, which reproduces the state.
    pub name: StateName,
    /// The disk. Changes to it are discarded with the state.
    pub device: Arc<dyn BlockDevice>,
    /// The last mark before the failure.
    pub mark: Option<usize>,
    overlay: Arc<Overlay<Arc<MemDevice>>>,
    /// The disk before the window.
    bytes: &'a RefCell<Vec<u8>>,
    below: &'a MemDevice,
}

impl State<'_> {
    /// Passes all bytes of the disk to `judge`. This is faster than reading them, because few bytes differ from state
    /// to state.
    pub fn with_bytes<T>(&self, judge: impl FnOnce(&[u8]) -> T) -> T {
        let mut bytes = self.bytes.borrow_mut();
        let changed = self.overlay.changed();
        copy_ranges(&*self.overlay, &changed, &mut bytes);
        let judged = judge(&bytes);
        copy_ranges(self.below, &changed, &mut bytes);
        judged
    }
}

fn copy_ranges(device: &dyn BlockDevice, ranges: &[Range<u64>], bytes: &mut [u8]) {
    for range in ranges {
        let end = bytes.len().min(range.end as usize);
        device.read_at(range.start, &mut bytes[range.start as usize..end]).expect("memory can be read");
    }
}

/// The disks that were built, over several recordings and, with a file, over several campaigns.
#[derive(Debug, Default)]
pub struct SeenStates {
    hashes: Mutex<HashSet<u128>>,
    /// The number of disks from earlier campaigns.
    earlier: usize,
}

impl SeenStates {
    /// Starts with the disks that [`SeenStates::keep`] wrote to `path`, if the file exists.
    pub fn with_earlier(path: &Path) -> io::Result<Self> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let hashes: HashSet<u128> =
            bytes.as_chunks().0.iter().map(|hash| u128::from_le_bytes(*hash)).collect();
        Ok(Self { earlier: hashes.len(), hashes: Mutex::new(hashes) })
    }

    /// Writes the disks to `path`, for a later campaign.
    pub fn keep(&self, path: &Path) -> io::Result<()> {
        let bytes: Vec<u8> = self.lock().iter().flat_map(|hash| hash.to_le_bytes()).collect();
        let beside = path.with_extension("new");
        fs::write(&beside, bytes)?;
        fs::rename(beside, path)
    }

    /// Returns the number of different disks that earlier campaigns did not have.
    pub fn count(&self) -> usize {
        self.lock().len() - self.earlier
    }

    /// Returns the number of different disks including those of earlier campaigns.
    pub fn total(&self) -> usize {
        self.lock().len()
    }

    fn insert(&self, hash: u128) {
        self.lock().insert(hash);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u128>> {
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A state that failed the check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RejectedState {
    /// The name, which reproduces the state.
    pub name: StateName,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for RejectedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// The result of an exploration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// The number of windows.
    pub windows: usize,
    /// The number of checked states.
    pub judged: usize,
    /// The number of states that were built and had been checked before.
    pub repeated: usize,
    /// The states that failed the check.
    pub failures: Vec<RejectedState>,
}

/// Builds the states that power failures during `events` could leave of `base`, and checks each.
pub fn explore(
    base: &[u8],
    events: &[Event],
    options: &Options,
    seen: &SeenStates,
    judge: &mut dyn FnMut(&State<'_>) -> Result<(), String>,
) -> Summary {
    let mut summary = Summary::default();
    let mut disk = Disk::new(base, options.whole.clone());
    let mut judged = HashSet::new();
    let below = Arc::new(MemDevice::new(base.to_vec()));
    let bytes = RefCell::new(base.to_vec());
    for window in windows(events) {
        summary.windows += 1;
        let is_due = window.mark.unwrap_or(0) >= options.from_mark;
        if is_due && options.only.as_ref().is_none_or(|only| only.event == window.end) {
            for (number, choice) in choice::choices(&window, options).into_iter().enumerate() {
                let drawn = options.drawn();
                let name = StateName { event: window.end, seed: options.seed, number, drawn };
                if options.only.as_ref().is_some_and(|only| *only != name) {
                    continue;
                }
                let changed = disk.changed(&window, &choice);
                let hash = disk.hash_with(&changed);
                seen.insert(hash);
                if !judged.insert((hash, window.mark)) {
                    summary.repeated += 1;
                    continue;
                }
                summary.judged += 1;
                let overlay = Arc::new(Overlay::new(Arc::clone(&below)));
                changed.put_on(&*overlay);
                let device: Arc<dyn BlockDevice> = overlay.clone();
                let state = State { name, device, mark: window.mark, overlay, bytes: &bytes, below: &below };
                if let Err(reason) = judge(&state) {
                    let reason = format!("{reason}\n  ({})", choice.describe(&window));
                    summary.failures.push(RejectedState { name: state.name, reason });
                    if summary.failures.len() >= options.failures {
                        return summary;
                    }
                }
            }
        }
        let changed = disk.apply(&window);
        changed.put_on(&*below);
        changed.put_in(&mut bytes.borrow_mut());
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_of_an_earlier_campaign_is_not_counted_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen");
        let first = SeenStates::with_earlier(&path).unwrap();
        [1, u128::MAX, 1].into_iter().for_each(|hash| first.insert(hash));
        assert_eq!((first.count(), first.total()), (2, 2));
        first.keep(&path).unwrap();
        let second = SeenStates::with_earlier(&path).unwrap();
        [u128::MAX, 7].into_iter().for_each(|hash| second.insert(hash));
        assert_eq!((second.count(), second.total()), (1, 3));
    }
}
