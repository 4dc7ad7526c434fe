//! The pages of a file that were transferred by system calls, so that the page cache probably contains them.
//!
//! A page of zeros is never noted: it may be a hole. Reading a hole from a mapping allocates memory on tmpfs, and the
//! hole is lost.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::convert::is_zero;

/// The length of a page in bytes.
const PAGE: u64 = 4096;
/// The words of a leaf.
const WORDS: usize = 512;
/// The pages of a leaf: 128 MiB.
const LEAF: u64 = WORDS as u64 * 64;

/// A bit for each page, in leaves that are allocated when they are first used.
pub(super) struct Seen {
    leaves: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Seen {
    /// Creates the set for a file of `len` bytes, without pages.
    pub(super) fn new(len: u64) -> Self {
        let leaves = len.div_ceil(PAGE).div_ceil(LEAF);
        Self { leaves: (0..leaves).map(|_| OnceLock::new()).collect() }
    }

    /// Returns whether the set contains all pages of the `len` bytes at `offset`.
    pub(super) fn has(&self, offset: u64, len: usize) -> bool {
        let end = (offset + len as u64).div_ceil(PAGE);
        words(offset / PAGE..end).all(|(word, mask)| {
            self.leaf(word)
                .and_then(OnceLock::get)
                .is_some_and(|leaf| at(leaf, word).load(Ordering::Relaxed) & mask == mask)
        })
    }

    /// Adds the pages that `bytes` at `offset` contain completely, except pages of zeros.
    pub(super) fn add(&self, offset: u64, bytes: &[u8]) {
        let before = usize::try_from(offset.next_multiple_of(PAGE) - offset).unwrap_or(usize::MAX);
        let Some(whole) = bytes.get(before..) else { return };
        let first = offset.div_ceil(PAGE);
        for (page, bytes) in (first..).zip(whole.chunks_exact(PAGE as usize)) {
            if !is_zero(bytes) {
                self.add_page(page);
            }
        }
    }

    fn add_page(&self, page: u64) {
        let (word, mask) = (page / 64, 1 << (page % 64));
        let Some(leaf) = self.leaf(word) else { return };
        let leaf = leaf.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        // The word is only written if that changes it: processors share its cache line.
        if at(leaf, word).load(Ordering::Relaxed) & mask == 0 {
            at(leaf, word).fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// Removes the pages of which `range` contains a byte.
    pub(super) fn remove(&self, range: Range<u64>) {
        // The caller may not have checked the range yet.
        let end = range.end.div_ceil(PAGE).min(self.leaves.len() as u64 * LEAF);
        for (word, mask) in words(range.start / PAGE..end) {
            if let Some(leaf) = self.leaf(word).and_then(OnceLock::get) {
                at(leaf, word).fetch_and(!mask, Ordering::Relaxed);
            }
        }
    }

    /// Returns the leaf that contains a word, or `None` beyond the end of the file.
    fn leaf(&self, word: u64) -> Option<&OnceLock<Box<[AtomicU64]>>> {
        self.leaves.get(usize::try_from(word / WORDS as u64).ok()?)
    }
}

/// Returns the word with this number in its leaf.
fn at(leaf: &[AtomicU64], word: u64) -> &AtomicU64 {
    &leaf[(word % WORDS as u64) as usize]
}

/// Returns the numbers of the words that contain bits of `pages`, each with the mask of these bits.
fn words(pages: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    (pages.start / 64..pages.end.div_ceil(64)).map(move |word| {
        let (first, end) = (pages.start.max(word * 64), pages.end.min(word * 64 + 64));
        let bits = end.saturating_sub(first);
        let ones = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
        (word, ones << (first % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_with_data_are_noted_until_they_are_discarded() {
        let seen = Seen::new(1 << 40);
        let at = (1 << 39) + 3 * PAGE;
        let bytes = vec![1; 200 * PAGE as usize];
        seen.add(at + 1, &bytes);
        assert!(!seen.has(at, 1), "only a part of the page was transferred");
        assert!(seen.has(at + PAGE, 199 * PAGE as usize));
        assert!(seen.has(at + 2 * PAGE - 1, 2));
        assert!(!seen.has(at + 199 * PAGE, PAGE as usize + 1));
        seen.remove(at + 70 * PAGE + 5..at + 71 * PAGE);
        assert!(!seen.has(at + 70 * PAGE, 1) && seen.has(at + 71 * PAGE, 1) && seen.has(at + 69 * PAGE, 1));
        seen.remove(0..u64::MAX);
        assert!(!seen.has(at + PAGE, 1));
    }

    #[test]
    fn a_page_of_zeros_is_not_noted() {
        let seen = Seen::new(8 * PAGE);
        let mut bytes = vec![0; 3 * PAGE as usize];
        bytes[PAGE as usize + 7] = 1;
        seen.add(PAGE, &bytes);
        assert_eq!([1, 2, 3].map(|page| seen.has(page * PAGE, 1)), [false, true, false]);
        assert!(!seen.has(8 * PAGE, 1), "beyond the end");
    }
}
