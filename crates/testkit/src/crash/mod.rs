//! The crash explorer: from what was done to a device, the disks that a power cut could leave.
//!
//! A *window* is what lies between two flushes. When the power fails, all windows before are on the disk, and of the
//! one that was open any part is: each write or not, and of a write any sectors. The explorer cuts at the end of each
//! window, where most has been promised, and builds every subset of a small window; of a large one every prefix (256 of
//! those of a very large one), single writes alone and missing, and a sample of the rest. A disk is judged once for each
//! promise.
//!
//! Invariant: the states are a function of base, events and options, so that a [`StateName`] reproduces one.

mod allowed;
pub mod campaign;
mod choice;
mod disk;
mod endure;
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

/// How many states to build.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the samples are drawn by.
    pub seed: u64,
    /// Windows of up to so many writes are cut in every subset.
    pub every_subset: u32,
    /// How many subsets are drawn of a larger window.
    pub samples: u32,
    /// How many states with a torn write are drawn of each window.
    pub torn: u32,
    /// Bytes of the disk that are never torn: a structure that its format writes in place and cannot tell torn.
    pub whole: Range<u64>,
    /// Failures after which to give up.
    pub failures: usize,
    /// Cuts before this mark are not judged.
    pub from_mark: usize,
    /// This state alone.
    pub only: Option<StateName>,
}

impl Options {
    /// Every subset of five writes, 24 samples beyond, 12 torn states, up to five failures.
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

    /// The same, as the state of this name was drawn, and that one alone.
    pub fn with_only(self, name: StateName) -> Self {
        let Drawn { every_subset, samples, torn } = name.drawn;
        Self { seed: name.seed, every_subset, samples, torn, only: Some(name), ..self }
    }

    fn drawn(&self) -> Drawn {
        Drawn { every_subset: self.every_subset, samples: self.samples, torn: self.torn }
    }
}

/// The disk after a cut.
pub struct State<'a> {
    /// What reproduces it.
    pub name: StateName,
    /// The disk; changes to it are lost with it.
    pub device: Arc<dyn BlockDevice>,
    /// The last mark before the cut.
    pub mark: Option<usize>,
    overlay: Arc<Overlay<Arc<MemDevice>>>,
    /// The disk as it was before the window.
    bytes: &'a RefCell<Vec<u8>>,
    below: &'a MemDevice,
}

impl State<'_> {
    /// Hands all bytes that the disk has now to `judge`: cheaper than reading them, since few differ from state to state.
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

/// The disks that were built, over several recordings and, by a file, over several campaigns.
#[derive(Debug, Default)]
pub struct Seen {
    hashes: Mutex<HashSet<u128>>,
    /// How many of them are of campaigns before.
    earlier: usize,
}

impl Seen {
    /// Begins with those that [`Seen::keep`] wrote to `path`, if it did.
    pub fn with_earlier(path: &Path) -> io::Result<Self> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let hashes: HashSet<u128> =
            bytes.as_chunks().0.iter().map(|hash| u128::from_le_bytes(*hash)).collect();
        Ok(Self { earlier: hashes.len(), hashes: Mutex::new(hashes) })
    }

    /// Writes all of them to `path`, for a later campaign.
    pub fn keep(&self, path: &Path) -> io::Result<()> {
        let bytes: Vec<u8> = self.lock().iter().flat_map(|hash| hash.to_le_bytes()).collect();
        let beside = path.with_extension("new");
        fs::write(&beside, bytes)?;
        fs::rename(beside, path)
    }

    /// How many different ones that no campaign before had.
    pub fn count(&self) -> usize {
        self.lock().len() - self.earlier
    }

    /// How many different ones with those of the campaigns before.
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

/// A state that the judge refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What reproduces it.
    pub name: StateName,
    /// What the judge said.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// What an exploration came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Windows that were cut.
    pub windows: usize,
    /// States that were judged.
    pub judged: usize,
    /// States that were built and had been judged already.
    pub repeated: usize,
    /// Those that the judge refused.
    pub failures: Vec<Failure>,
}

/// Builds the states that cuts of `events` could leave of `base` and has each judged.
pub fn explore(
    base: &[u8],
    events: &[Event],
    options: &Options,
    seen: &Seen,
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
                    summary.failures.push(Failure { name: state.name, reason });
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
        let first = Seen::with_earlier(&path).unwrap();
        [1, u128::MAX, 1].into_iter().for_each(|hash| first.insert(hash));
        assert_eq!((first.count(), first.total()), (2, 2));
        first.keep(&path).unwrap();
        let second = Seen::with_earlier(&path).unwrap();
        [u128::MAX, 7].into_iter().for_each(|hash| second.insert(hash));
        assert_eq!((second.count(), second.total()), (1, 3));
    }
}
