//! Buffers for requests that are read by one thread and answered by another.
//!
//! Invariant: there are at most [`MOST`] beside the one that is read into, so that who reads cannot run far ahead.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::LONGEST_REQUEST;

/// Two at work and one that waits, on the two processors that a copy each keeps busy.
const MOST: usize = 3;

/// What is not in use, and how many there are.
#[derive(Default)]
pub(super) struct Spares {
    free: Mutex<Vec<Vec<u8>>>,
    made: AtomicUsize,
}

impl Spares {
    /// One to read into; none while all are in use. By the one thread that reads alone.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.free.lock().pop().or_else(|| {
            let is_room = self.made.load(Ordering::Relaxed) < MOST;
            is_room.then(|| {
                self.made.fetch_add(1, Ordering::Relaxed);
                vec![0; LONGEST_REQUEST]
            })
        })
    }

    /// Takes `buffer` back.
    pub fn give_back(&self, buffer: Vec<u8>) {
        self.free.lock().push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_out_as_there_may_be_and_come_again() {
        let spares = Spares::default();
        let mut out: Vec<_> = std::iter::from_fn(|| spares.take()).collect();
        assert_eq!(out.len(), MOST);
        assert!(out.iter().all(|buffer| buffer.len() == LONGEST_REQUEST));
        spares.give_back(out.pop().unwrap());
        assert!(spares.take().is_some());
        assert!(spares.take().is_none());
    }
}
