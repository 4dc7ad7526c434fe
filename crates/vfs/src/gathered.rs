//! The data that an inode gathers: see [`gather`](crate::gather).

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Timestamp;
use obento_base::wire::{to_u64, to_usize};
use obento_env::sync::Mutex;
use obento_env::sync::atomic::AtomicBool;

/// The times of a file after a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Times {
    /// The time at which the driver writes.
    Now,
    /// The time at which the data was accepted.
    Accepted(Timestamp),
    /// The old times. A cache above this layer maintains the times of the file.
    Unchanged,
}

/// The gathering state of an inode.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Whether data is gathered: a copy of the state that is read without the lock. Cleared when the driver
    /// has the data.
    pub(crate) holds: AtomicBool,
    pub(crate) state: Mutex<GatherState>,
}

#[derive(Debug, Default)]
pub(crate) struct GatherState {
    pub(crate) gathered: Option<Gathered>,
    /// The end of the file, if the last write ended there.
    pub(crate) end: Option<u64>,
    /// Minimum size of the file for gathering. If the driver cannot reserve enough space, the minimum becomes
    /// twice the size of the file.
    pub(crate) not_below: u64,
}

/// Gathered data. It follows the end of the file that the driver stores.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    /// Whole blocks that the driver has reserved. The data ends within them or before them.
    pub(crate) reserved: Range<u64>,
    /// The time at which the last bytes were accepted, according to the clock of the driver.
    pub(crate) times: Times,
}

impl Gathered {
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(to_u64(self.bytes.len()))
    }

    pub(crate) fn room(&self) -> usize {
        to_usize(self.reserved.end.saturating_sub(self.end()))
    }
}

impl Gather {
    /// Returns the end of the file if the file is gathering.
    pub(crate) fn end(&self) -> Option<u64> {
        self.state.lock().gathered.as_ref().map(Gathered::end)
    }

    /// Records the end of the file after a write that ended there. The caller holds the guard of the inode.
    pub(crate) fn set_end(&self, end: Option<u64>) {
        self.state.lock().end = end;
    }
}
