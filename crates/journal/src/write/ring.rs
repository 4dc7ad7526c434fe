//! The space of the log: a ring of blocks between tail and head.
//!
//! Invariant: at least one block stays free, so that head and tail are equal only if the ring is empty.

use core::ops::Range;

/// The positions of tail and head in the ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ring {
    log: Range<u32>,
    tail: u32,
    head: u32,
}

impl Ring {
    /// Creates an empty ring in the non-empty range `log`, which continues at `head`.
    pub(crate) fn new(log: Range<u32>, head: u32) -> Self {
        let head = if log.contains(&head) { head } else { log.start };
        Self { log, tail: head, head }
    }

    /// Returns the maximum number of used blocks.
    pub(crate) fn capacity(&self) -> u32 {
        self.len().saturating_sub(1)
    }

    /// Returns the number of blocks that can be written before the tail must move.
    pub(crate) fn free(&self) -> u32 {
        self.capacity().saturating_sub(self.used())
    }

    /// Returns the position of the next block.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Takes the next block. Returns `None` if the ring is full.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.free() == 0 {
            return None;
        }
        let at = self.head;
        self.head = at.checked_add(1).filter(|next| self.log.contains(next)).unwrap_or(self.log.start);
        Some(at)
    }

    /// Frees all blocks before `tail`, which must be a used block or the head. If `tail` is the head, the
    /// whole ring becomes free.
    pub(crate) fn release(&mut self, tail: u32) {
        debug_assert!(self.log.contains(&tail), "{tail} in {:?}", self.log);
        self.tail = tail;
    }

    fn len(&self) -> u32 {
        self.log.end.saturating_sub(self.log.start)
    }

    fn used(&self) -> u32 {
        match self.head.checked_sub(self.tail) {
            Some(used) => used,
            None => self.len().saturating_sub(self.tail.saturating_sub(self.head)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn blocks_go_round_and_never_meet_the_tail() {
        let mut ring = Ring::new(3..8, 6);
        let taken: Vec<_> = core::iter::from_fn(|| ring.take()).collect();
        assert_eq!((taken, ring.free(), ring.head()), ([6, 7, 3, 4].to_vec(), 0, 5));
        ring.release(3);
        assert_eq!((ring.free(), ring.take(), ring.take(), ring.take()), (2, Some(5), Some(6), None));
        ring.release(ring.head());
        assert_eq!((ring.free(), ring.capacity()), (4, 4));
    }

    #[test]
    fn a_head_outside_the_log_starts_at_its_beginning() {
        assert_eq!((Ring::new(1..9, 0).head(), Ring::new(1..9, 9).head()), (1, 1));
    }
}
