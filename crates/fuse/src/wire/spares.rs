//! Buffers for requests that one thread reads and another answers.
//!
//! Invariant: at most [`MOST`] buffers exist besides the one of the reading thread, so that it cannot read far ahead.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::LONGEST_REQUEST;

/// Two requests that are copied on two processors, and one that waits.
const MOST: usize = 3;

/// The free buffers, and the number of all buffers.
#[derive(Default)]
pub(super) struct Spares {
    free: Mutex<Vec<Vec<u8>>>,
    made: AtomicUsize,
}

impl Spares {
    /// Returns a buffer, or `None` if all are in use. Only the reading thread calls this.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.free.lock().pop().or_else(|| {
            let is_room = self.made.load(Ordering::Relaxed) < MOST;
            is_room.then(|| {
                self.made.fetch_add(1, Ordering::Relaxed);
                vec![0; LONGEST_REQUEST]
            })
        })
    }

    /// Adds `buffer` to the free ones.
    pub fn give_back(&self, buffer: Vec<u8>) {
        self.free.lock().push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_buffers_is_bounded_and_they_are_reused() {
        let spares = Spares::default();
        let mut out: Vec<_> = std::iter::from_fn(|| spares.take()).collect();
        assert_eq!(out.len(), MOST);
        assert!(out.iter().all(|buffer| buffer.len() == LONGEST_REQUEST));
        spares.give_back(out.pop().unwrap());
        assert!(spares.take().is_some());
        assert!(spares.take().is_none());
    }
}
