//! The locations of the recently read data of a file. The next read of the same data needs no call to the driver and
//! no lock of the driver.
//!
//! Invariant: a thread stores and uses locations only while it holds the layout lock of the inode shared. The
//! location of written data changes only while a thread holds the lock exclusively, or when a thread changes
//! the flags of the inode. Acquiring the lock exclusively clears the stored locations
//! ([`Inode::exclusive`](crate::table::Inode::exclusive)). After a change of the flags, `Vfs::set_attr`
//! acquires the lock exclusively for this purpose.
//! Locking: one leaf lock per inode. A thread holds the lock exclusively only to store the first location of a file.
//! Each slot has a version. A reader ignores a slot whose version is odd or changes during the read, since another
//! thread is then replacing the slot.

use alloc::boxed::Box;
use core::ops::Range;

use obento_env::sync::RwLock;
use obento_env::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Length of the range whose location the first read requests from the driver, unless the read is longer or the file
/// ends earlier. The length doubles with each location that is stored in a separate slot. On a FAT volume, the search
/// for the end of a long extent takes time, which only pays off for many reads.
const AHEAD: u64 = 4 << 20;
/// Maximum number of times that the length doubles.
const MOST_DOUBLED: usize = 10;

/// Number of slots: about the number of extents of a file of 100 MiB on a volume that is in use.
const SLOTS: usize = 16;

/// The locations of some data of a file.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// `None` until a location is stored, since most inodes are never read.
    slots: RwLock<Option<Box<[Slot; SLOTS]>>>,
    /// Number of locations that were stored in a separate slot, and not joined with the location in another slot.
    noted: AtomicUsize,
}

/// A part of the file. It is empty if `end` is 0.
#[derive(Debug, Default)]
struct Slot {
    /// Odd while the other fields change.
    version: AtomicUsize,
    start: AtomicU64,
    end: AtomicU64,
    /// The offset of byte `start` on the device.
    at: AtomicU64,
}

/// The contents of a slot.
#[derive(Clone, Copy)]
struct Place {
    start: u64,
    end: u64,
    at: u64,
}

impl Places {
    /// Returns the offset of `range` on the device. Returns `None` unless one stored location contains the whole range.
    pub(crate) fn find(&self, range: &Range<u64>) -> Option<u64> {
        self.slots.read().as_ref()?.iter().find_map(|slot| slot.read()?.locate(range))
    }

    /// Returns the length of the range whose location the next read requests from the driver.
    pub(crate) fn ahead(&self) -> u64 {
        AHEAD << self.noted.load(Ordering::Relaxed).min(MOST_DOUBLED)
    }

    /// Stores the location of `range`, which is at byte `at` of the device.
    pub(crate) fn note(&self, range: Range<u64>, at: u64) {
        if self.slots.read().is_none() {
            self.slots.write().get_or_insert_default();
        }
        let (new, slots) = (Place { start: range.start, end: range.end, at }, self.slots.read());
        let Some(slots) = slots.as_ref() else { return };
        for slot in &**slots {
            if let Some(joined) = slot.read().and_then(|old| old.join(new)) {
                return slot.replace(joined);
            }
        }
        let turn = self.noted.fetch_add(1, Ordering::Relaxed);
        if let Some(slot) = slots.get(turn % SLOTS) {
            slot.replace(new);
        }
    }

    /// Clears all locations. The caller holds the exclusive layout lock of the inode.
    pub(crate) fn clear(&self) {
        for slot in self.slots.read().iter().flat_map(|slots| slots.iter()) {
            if slot.end.load(Ordering::Relaxed) != 0 {
                slot.replace(Place { start: 0, end: 0, at: 0 });
            }
        }
    }
}

impl Slot {
    /// Returns the contents, or `None` if another thread is changing them.
    fn read(&self) -> Option<Place> {
        let version = self.version.load(Ordering::Acquire);
        // A thread that reads a new value also reads the new version below.
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        let at = self.at.load(Ordering::Acquire);
        let is_stable = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_stable.then_some(Place { start, end, at })
    }

    /// Replaces the contents. Does nothing if another thread is changing them.
    fn replace(&self, new: Place) {
        let version = self.version.load(Ordering::Relaxed);
        let changing = version.wrapping_add(1);
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        if !version.is_multiple_of(2)
            || self.version.compare_exchange(version, changing, success, failure).is_err()
        {
            return;
        }
        self.start.store(new.start, Ordering::Release);
        self.end.store(new.end, Ordering::Release);
        self.at.store(new.at, Ordering::Release);
        self.version.store(changing.wrapping_add(1), Ordering::Release);
    }
}

impl Place {
    fn locate(self, range: &Range<u64>) -> Option<u64> {
        let skip = range.start.checked_sub(self.start)?;
        (range.end <= self.end).then(|| self.at.saturating_add(skip))
    }

    /// Returns the union of both places if they overlap or are adjacent in the file and on the device.
    fn join(self, other: Self) -> Option<Self> {
        let (first, second) = if self.start <= other.start { (self, other) } else { (other, self) };
        let gap = second.start.checked_sub(first.start)?;
        let touches =
            self.end != 0 && second.start <= first.end && first.at.checked_add(gap) == Some(second.at);
        touches.then_some(Self { start: first.start, end: first.end.max(second.end), at: first.at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_range_that_is_known_as_a_whole_is_found() {
        let places = Places::default();
        assert_eq!(places.find(&(0..1)), None);
        places.note(4096..8192, 1 << 20);
        assert_eq!(places.find(&(4096..8192)), Some(1 << 20));
        assert_eq!(places.find(&(5000..5001)), Some((1 << 20) + 904));
        assert_eq!(places.find(&(4095..4097)), None);
        assert_eq!(places.find(&(8000..8193)), None);
        places.clear();
        assert_eq!(places.find(&(5000..5001)), None);
    }

    #[test]
    fn places_that_touch_become_one_and_others_replace_the_oldest() {
        let places = Places::default();
        places.note(100..200, 1100);
        places.note(200..300, 1200);
        places.note(50..120, 1050);
        assert_eq!(places.find(&(50..300)), Some(1050));
        // At another place of the device.
        places.note(300..400, 5000);
        assert_eq!(places.find(&(250..350)), None);
        assert_eq!(places.find(&(300..400)), Some(5000));
        (0..14).for_each(|n| places.note(900 + 2 * n..901 + 2 * n, 100));
        assert_eq!(places.find(&(50..300)), Some(1050));
        places.note(2000..2100, 100);
        assert_eq!(places.find(&(50..300)), None);
        assert_eq!(places.find(&(300..400)), Some(5000));
        // Places that overlap in the file, but not on the device.
        places.note(350..500, 7000);
        assert_eq!(places.find(&(350..500)), Some(7000));
    }

    #[test]
    fn a_thread_never_sees_parts_of_two_places() {
        let places = Places::default();
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let places = &places;
                scope.spawn(move || {
                    for round in 0..20_000_u64 {
                        let start = (round * 7 + thread) % 64 * 1000;
                        places.note(start..start + 10, start * 3);
                        let asked = round % 64 * 1000;
                        let found = places.find(&(asked..asked + 10));
                        assert!(found.is_none_or(|at| at == asked * 3), "{asked} {found:?}");
                    }
                });
            }
        });
    }
}
