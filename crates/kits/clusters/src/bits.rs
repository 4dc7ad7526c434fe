//! Sets of clusters whose memory depends on their contents, not on the size of the volume.
//!
//! A hostile or sparse image of a few MiB can declare 2^32 clusters, so that one bit per declared cluster is too much.
//! Invariant: a page whose bits all have the same value uses 16 bytes, unless its bits had different values
//! before. Pages after the last set bit use no memory.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};

use crate::pieces::Piece;
use crate::unit::Cluster;

/// Number of words of a page in memory: 4 KiB.
const WORDS: usize = 512;
/// Number of bits of a page.
const PAGE: u32 = 1 << 15;

/// The bits of [`PAGE`] clusters.
enum Page {
    /// All bits are clear.
    Empty,
    /// All bits are set.
    Full,
    Mixed(Box<[u64; WORDS]>),
}

impl Page {
    /// Returns the value of all words, if they are known to have the same one.
    fn uniform(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Full => Some(u64::MAX),
            Self::Mixed(_) => None,
        }
    }

    fn word(&self, at: usize) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Full => u64::MAX,
            Self::Mixed(words) => words.get(at).copied().unwrap_or(0),
        }
    }

    /// Returns the words for a change. Fails with `NoMemory`.
    fn words(&mut self) -> Result<&mut [u64; WORDS]> {
        if let Some(value) = self.uniform() {
            let mut words = Vec::new();
            words.try_reserve_exact(WORDS)?;
            words.resize(WORDS, value);
            *self = Self::Mixed(words.into_boxed_slice().try_into().map_err(|_| Error::NoMemory)?);
        }
        match self {
            Self::Mixed(words) => Ok(words),
            Self::Empty | Self::Full => Err(Error::NoMemory),
        }
    }
}

/// A set of clusters.
#[derive(Default)]
pub struct Bits {
    pages: Vec<Page>,
}

/// Returns the page of a cluster, the word in the page, and the bit in the word.
fn place(cluster: u32) -> (usize, usize, u64) {
    let word = to_usize(u64::from(cluster >> 6)) % WORDS;
    (to_usize(u64::from(cluster / PAGE)), word, 1 << (cluster & 63))
}

/// Returns the bits of a word from `low` up to `high`.
fn mask(low: u32, high: u32) -> u64 {
    let below = |bit: u32| 1_u64.checked_shl(bit).map_or(u64::MAX, |bit| bit.saturating_sub(1));
    below(high) & !below(low)
}

impl Bits {
    /// Adds `cluster`. Returns whether the set already contained it. Fails with `NoMemory`.
    pub fn set(&mut self, cluster: Cluster) -> Result<bool> {
        let (page, word, bit) = place(cluster.0);
        if self.word(page, word) & bit != 0 {
            return Ok(true);
        }
        if let Some(word) = self.page(page)?.words()?.get_mut(word) {
            *word |= bit;
        }
        Ok(false)
    }

    /// Removes `cluster`. Fails with `NoMemory`: a page in which all clusters were set needs memory for its
    /// bits.
    pub fn unset(&mut self, cluster: Cluster) -> Result<()> {
        self.fill(cluster.0..cluster.0.saturating_add(1), false)
    }

    /// Adds `count` clusters from `first` on. Fails with `NoMemory`.
    pub fn set_run(&mut self, first: Cluster, count: u32) -> Result<()> {
        self.fill(first.0..first.0.saturating_add(count), true)
    }

    /// Removes `count` clusters from `first` on. Fails with `NoMemory`.
    pub fn unset_run(&mut self, first: Cluster, count: u32) -> Result<()> {
        self.fill(first.0..first.0.saturating_add(count), false)
    }

    /// Allocates the pages of `count` clusters from `first` on, so that further changes of these clusters do not
    /// fail. Fails with `NoMemory`.
    pub fn make_writable(&mut self, first: Cluster, count: u32) -> Result<()> {
        let Some(last) = count.checked_sub(1).map(|more| first.0.saturating_add(more)) else { return Ok(()) };
        for page in place(first.0).0..=place(last).0 {
            self.page(page)?.words()?;
        }
        Ok(())
    }

    /// Returns whether the set contains `cluster`.
    pub fn has(&self, cluster: Cluster) -> bool {
        let (page, word, bit) = place(cluster.0);
        self.word(page, word) & bit != 0
    }

    /// Returns whether the set contains any of `count` clusters from `first` on.
    pub fn has_any(&self, first: Cluster, count: u32) -> bool {
        self.runs(first.0..first.0.saturating_add(count)).next().is_some()
    }

    /// Returns whether the set contains all of `count` clusters from `first` on.
    pub fn has_all(&self, first: Cluster, count: u32) -> bool {
        self.gaps(first.0..first.0.saturating_add(count)).next().is_none()
    }

    /// Returns the number of clusters of `range` in the set.
    pub fn count(&self, range: Range<u32>) -> u32 {
        self.runs(range).fold(0, |count: u32, (_, len)| count.saturating_add(len))
    }

    /// Returns the runs of clusters of `range` in the set.
    pub fn runs(&self, range: Range<u32>) -> Runs<'_> {
        Runs { set: self, other: &EMPTY, wanted: |set, _| set, range }
    }

    /// Returns the runs of clusters of `range` that are not in the set.
    pub fn gaps(&self, range: Range<u32>) -> Runs<'_> {
        Runs { set: self, other: &EMPTY, wanted: |set, _| !set, range }
    }

    /// Returns the runs of clusters of `range` in the set that are not in `other`.
    pub fn runs_without<'s>(&'s self, other: &'s Self, range: Range<u32>) -> Runs<'s> {
        Runs { set: self, other, wanted: |set, other| set & !other, range }
    }

    /// Returns the runs of clusters of `range` that are neither in the set nor in `other`.
    pub fn gaps_of_both<'s>(&'s self, other: &'s Self, range: Range<u32>) -> Runs<'s> {
        Runs { set: self, other, wanted: |set, other| !(set | other), range }
    }

    /// Adds the clusters whose bits are set in `bytes`. The lowest bit of the first byte is `first`. Fails with
    /// `NoMemory`.
    pub fn load(&mut self, first: Cluster, bytes: &[u8]) -> Result<()> {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let all = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
        let places = (0_u32..).map(|at| first.0.saturating_add(at.saturating_mul(64)));
        for (at, word) in places.zip(all).filter(|(_, word)| *word != 0) {
            self.or(at, word << (at & 63))?;
            let high = word.checked_shr(64_u32.saturating_sub(at & 63)).unwrap_or(0);
            if high != 0 {
                self.or((at | 63).saturating_add(1), high)?;
            }
        }
        let end =
            u64::from(first.0).saturating_add(u64::try_from(bytes.len()).unwrap_or(0).saturating_mul(8));
        let pages = place(first.0).0..=to_usize(end >> PAGE.trailing_zeros());
        for page in self.pages.get_mut(*pages.start()..).unwrap_or_default().iter_mut().take(pages.count()) {
            if matches!(page, Page::Mixed(words) if words.iter().all(|&word| word == u64::MAX)) {
                *page = Page::Full;
            }
        }
        Ok(())
    }

    /// Writes a bit for each cluster from `first` on to `bytes`, set if the set contains the cluster.
    pub fn store(&self, first: Cluster, bytes: &mut [u8]) {
        let word = |cluster: u32| {
            let (page, word, _) = place(cluster);
            self.word(page, word)
        };
        for (at, to) in (0_u32..).zip(bytes.chunks_mut(8)) {
            let at = first.0.saturating_add(at.saturating_mul(64));
            let next = (at | 63).checked_add(1).map_or(0, word);
            let bits = word(at) >> (at & 63) | next.checked_shl(64_u32.saturating_sub(at & 63)).unwrap_or(0);
            to.iter_mut().zip(bits.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
    }

    /// Returns a copy. Fails with `NoMemory`.
    pub fn copy(&self) -> Result<Self> {
        let mut copy = Self::default();
        for (at, page) in self.pages.iter().enumerate() {
            match page {
                Page::Empty => {}
                Page::Full => *copy.page(at)? = Page::Full,
                Page::Mixed(words) => *copy.page(at)?.words()? = **words,
            }
        }
        Ok(copy)
    }

    /// Adds the clusters of the word of `cluster` whose bits are set in `bits`.
    fn or(&mut self, cluster: u32, bits: u64) -> Result<()> {
        let (page, word, _) = place(cluster);
        if bits & !self.word(page, word) != 0
            && let Some(word) = self.page(page)?.words()?.get_mut(word)
        {
            *word |= bits;
        }
        Ok(())
    }

    fn fill(&mut self, range: Range<u32>, is_set: bool) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let (page, word, _) = place(at);
            let page_start = at & !PAGE.saturating_sub(1);
            let page_end = page_start.saturating_add(PAGE);
            if at == page_start && page_end <= range.end {
                let value = if is_set { u64::MAX } else { 0 };
                match self.pages.get_mut(page) {
                    // The page stays in memory, so that later changes do not fail.
                    Some(Page::Mixed(words)) => words.fill(value),
                    None if !is_set => {}
                    _ => *self.page(page)? = if is_set { Page::Full } else { Page::Empty },
                }
                at = page_end;
                continue;
            }
            let start = at & !63;
            let end = start.saturating_add(64).min(range.end);
            let bits = mask(at & 63, end.saturating_sub(start));
            let old = self.word(page, word);
            let new = if is_set { old | bits } else { old & !bits };
            if new != old
                && let Some(word) = self.page(page)?.words()?.get_mut(word)
            {
                *word = new;
            }
            at = end;
        }
        Ok(())
    }

    /// Returns the number of pages in memory.
    #[cfg(test)]
    pub(crate) fn pages_in_memory(&self) -> usize {
        self.pages.iter().filter(|page| page.uniform().is_none()).count()
    }

    fn word(&self, page: usize, word: usize) -> u64 {
        self.pages.get(page).map_or(0, |page| page.word(word))
    }

    /// Returns a page for a change. Fails with `NoMemory`.
    fn page(&mut self, page: usize) -> Result<&mut Page> {
        if let Some(missing) = page.saturating_add(1).checked_sub(self.pages.len()) {
            self.pages.try_reserve(missing)?;
            self.pages.extend(core::iter::repeat_with(|| Page::Empty).take(missing));
        }
        self.pages.get_mut(page).ok_or(Error::NoMemory)
    }
}

static EMPTY: Bits = Bits { pages: Vec::new() };

/// An iterator over runs of clusters that are, or are not, in a set.
pub struct Runs<'s> {
    set: &'s Bits,
    other: &'s Bits,
    /// Returns the wanted bits of a word, from those of `set` and `other`.
    wanted: fn(u64, u64) -> u64,
    /// The clusters that are left.
    range: Range<u32>,
}

impl Runs<'_> {
    /// Returns the first cluster that is left and whose bit is wanted, or is not wanted if `flip` has all bits.
    fn first(&self, flip: u64) -> Option<u32> {
        let mut at = self.range.start;
        while at < self.range.end {
            let (page, word, _) = place(at);
            let (set, other) = (self.set.pages.get(page), self.other.pages.get(page));
            let uniform = |page: Option<&Page>| page.map_or(Some(0), Page::uniform);
            if let (Some(set), Some(other)) = (uniform(set), uniform(other)) {
                if (self.wanted)(set, other) ^ flip != 0 {
                    return Some(at);
                }
                at = (at | PAGE.saturating_sub(1)).checked_add(1)?;
                continue;
            }
            let word_of = |page: Option<&Page>| page.map_or(0, |page| page.word(word));
            let hits = ((self.wanted)(word_of(set), word_of(other)) ^ flip) & u64::MAX << (at & 63);
            if hits != 0 {
                let found = (at & !63).saturating_add(hits.trailing_zeros());
                return (found < self.range.end).then_some(found);
            }
            at = (at | 63).checked_add(1)?;
        }
        None
    }
}

impl Iterator for Runs<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let start = self.first(0)?;
        self.range.start = start;
        let end = self.first(u64::MAX).unwrap_or(self.range.end);
        self.range.start = end;
        Some((Cluster(start), end.saturating_sub(start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    const ALL: Range<u32> = 0..u32::MAX;

    fn runs(bits: &Bits) -> Vec<(u32, u32)> {
        bits.runs(ALL).map(|(start, len)| (start.0, len)).collect()
    }

    fn pages(bits: &Bits) -> usize {
        bits.pages_in_memory()
    }

    #[test]
    fn a_set_contains_what_was_added_and_not_removed() {
        let mut bits = Bits::default();
        assert_eq!(bits.set(Cluster(70)), Ok(false));
        assert_eq!(bits.set(Cluster(70)), Ok(true));
        bits.set_run(Cluster(100), 200_000).unwrap();
        bits.unset(Cluster(50_000)).unwrap();
        bits.unset_run(Cluster(60_000), 70_000).unwrap();
        assert_eq!(runs(&bits), [(70, 1), (100, 49_900), (50_001, 9_999), (130_000, 70_100)]);
        assert!(bits.has(Cluster(100)) && !bits.has(Cluster(99)) && !bits.has(Cluster(u32::MAX)));
        assert!(bits.has_all(Cluster(100), 49_900) && !bits.has_all(Cluster(100), 49_901));
        assert!(bits.has_any(Cluster(0), 71) && !bits.has_any(Cluster(71), 29));
        assert_eq!(bits.count(75..200_000), 49_900 + 9_999 + 70_000);
        let gaps: Vec<_> = bits.gaps(60..110).collect();
        assert_eq!(gaps, [(Cluster(60), 10), (Cluster(71), 29)]);
    }

    #[test]
    fn the_clusters_of_one_set_that_another_lacks_are_found() {
        let (mut one, mut other) = (Bits::default(), Bits::default());
        one.set_run(Cluster(10), 1 << 20).unwrap();
        other.set_run(Cluster(0), 20).unwrap();
        other.set_run(Cluster(500_000), 1 << 20).unwrap();
        let found: Vec<_> = one.runs_without(&other, ALL).collect();
        assert_eq!(found, [(Cluster(20), 499_980)]);
        assert_eq!(other.runs_without(&one, ALL).count(), 2);
    }

    #[test]
    fn a_range_of_two_to_the_32nd_clusters_takes_two_pages() {
        let mut bits = Bits::default();
        bits.set_run(Cluster(2), u32::MAX - 9).unwrap();
        assert_eq!((runs(&bits), pages(&bits)), (vec![(2, u32::MAX - 9)], 2));
        bits.set(Cluster(u32::MAX)).unwrap();
        assert!(bits.has(Cluster(u32::MAX)));
        bits.unset_run(Cluster(0), u32::MAX).unwrap();
        assert_eq!(runs(&bits), []);
    }

    #[test]
    fn the_bits_of_a_stored_bitmap_begin_with_any_cluster() {
        let bytes: Vec<u8> = (0..20_011_u32).map(|at| (at * at / 7) as u8).collect();
        for first in [0, 2, 64, 63, 32_767] {
            let mut bits = Bits::default();
            bits.load(Cluster(first), &bytes).unwrap();
            for (at, byte) in (0..).zip(&bytes) {
                for bit in 0..8 {
                    let cluster = Cluster(first + at * 8 + bit);
                    assert_eq!(bits.has(cluster), byte >> bit & 1 == 1, "{first} {at} {bit}");
                }
            }
            assert!(!bits.has(Cluster(first + 20_011 * 8)));
            let mut stored = vec![1; 20_011];
            bits.copy().unwrap().store(Cluster(first), &mut stored);
            assert!(stored == bytes, "{first}");
        }
        let mut bits = Bits::default();
        bits.load(Cluster(2), &vec![0xff; 65_536]).unwrap();
        assert_eq!((runs(&bits), pages(&bits)), (vec![(2, 1 << 19)], 2), "full pages take no memory");
    }
}
