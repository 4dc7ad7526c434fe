//! The data of a regular file: pages by their position; a missing page is a hole.
//!
//! Invariant: no page is entirely past the size, and the part of a page in memory past the size is zero.

use alloc::collections::BTreeMap;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_driver::{Extent, Span};

use crate::space::{PAGE, Page, Space};

/// Maximum length of an extent in pages: worth a system call, and found in bounded time.
const MAX_RUN: u64 = 256;

/// The pages of a file.
#[derive(Debug, Default)]
pub(crate) struct Data {
    pages: BTreeMap<u64, Page>,
}

/// Returns the pages that `range` touches.
fn touched(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE..range.end.div_ceil(PAGE)
}

/// Returns the pages that are entirely in `range`.
fn covered(range: &Range<u64>) -> Range<u64> {
    let end = range.end / PAGE;
    range.start.div_ceil(PAGE).min(end)..end
}

/// Returns the part of a page that `len` bytes at `offset` occupy.
fn within_page(offset: u64, len: usize) -> Range<usize> {
    let start = to_usize(offset % PAGE);
    start..start.saturating_add(len).min(to_usize(PAGE))
}

impl Data {
    pub(crate) fn page_count(&self) -> u64 {
        to_u64(self.pages.len())
    }

    fn span_at(&self, index: u64) -> Span {
        match self.pages.get(&index) {
            None => Span::Hole,
            Some(Page::Memory(_)) => Span::Driver,
            Some(Page::Device { published: false, .. }) => Span::Unwritten,
            Some(Page::Device { at, .. }) => Span::Mapped(*at),
        }
    }

    /// Returns the extent at `range.start`; `range` is not empty.
    pub(crate) fn map(&self, range: Range<u64>) -> Extent {
        let first = range.start / PAGE;
        let span = self.span_at(first);
        let limit = range.end.div_ceil(PAGE).min(first.saturating_add(MAX_RUN));
        let end = match span {
            Span::Hole => self.pages.range(first..).next().map_or(u64::MAX, |(&next, _)| next),
            _ => (first.saturating_add(1)..limit)
                .find(|&index| !follows(span, index.saturating_sub(first), self.span_at(index)))
                .unwrap_or(limit),
        };
        let end = end.saturating_mul(PAGE).min(range.end);
        let span = match span {
            Span::Mapped(at) => Span::Mapped(at.saturating_add(range.start % PAGE)),
            other => other,
        };
        Extent { len: end.saturating_sub(range.start), span }
    }

    /// Reads from the page in memory at `offset`, at most to the end of the page.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let part = within_page(offset, buf.len());
        let Some(buf) = buf.get_mut(..part.len()) else { return 0 };
        match self.pages.get(&(offset / PAGE)) {
            Some(Page::Memory(bytes)) => buf.copy_from_slice(bytes.get(part).unwrap_or_default()),
            _ => buf.fill(0),
        }
        buf.len()
    }

    /// Writes to the page in memory at `offset`, which is created if necessary. Fails with `NoSpace` or
    /// `NoMemory`.
    pub(crate) fn write(&mut self, space: &Space, offset: u64, bytes: &[u8]) -> Result<usize> {
        let part = within_page(offset, bytes.len());
        let Page::Memory(target) = self.page(space, offset / PAGE)? else { return Err(Error::Invalid) };
        let (Some(target), Some(bytes)) = (target.get_mut(part.clone()), bytes.get(..part.len())) else {
            return Ok(0);
        };
        target.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn page(&mut self, space: &Space, index: u64) -> Result<&mut Page> {
        use alloc::collections::btree_map::Entry;
        match self.pages.entry(index) {
            Entry::Occupied(slot) => Ok(slot.into_mut()),
            Entry::Vacant(slot) => Ok(slot.insert(space.take()?)),
        }
    }

    /// Reserves pages of the device for the start of `range`; in memory, returns that the driver writes.
    /// Fails with `NoSpace`.
    pub(crate) fn reserve(&mut self, space: &Space, range: Range<u64>) -> Result<Extent> {
        if space.device().is_none() {
            return Ok(Extent { len: range.end.saturating_sub(range.start), span: Span::Driver });
        }
        let first = range.start / PAGE;
        let mut run = Range { start: first, end: first };
        let mut start = 0;
        for index in touched(&range).take(to_usize(MAX_RUN)) {
            let at = match self.page(space, index) {
                Ok(Page::Device { at, .. }) => *at,
                Ok(Page::Memory(_)) => return Err(Error::Invalid),
                Err(error) if run.is_empty() => return Err(error),
                Err(_) => break,
            };
            if run.is_empty() {
                start = at;
            } else if at != start.saturating_add(index.saturating_sub(first).saturating_mul(PAGE)) {
                break;
            }
            run.end = index.saturating_add(1);
        }
        let end = run.end.saturating_mul(PAGE).min(range.end);
        Ok(Extent {
            len: end.saturating_sub(range.start),
            span: Span::Mapped(start.saturating_add(range.start % PAGE)),
        })
    }

    /// Publishes the pages that `range` touches.
    pub(crate) fn publish(&mut self, range: &Range<u64>) {
        for (_, page) in self.pages.range_mut(touched(range)) {
            if let Page::Device { published, .. } = page {
                *published = true;
            }
        }
    }

    /// Releases pages in `range` that are reserved and not published.
    pub(crate) fn abandon(&mut self, space: &Space, range: &Range<u64>) {
        self.drop_pages(space, touched(range), |page| matches!(page, Page::Device { published: false, .. }));
    }

    /// Turns the pages that are entirely in `range` into holes.
    pub(crate) fn punch(&mut self, space: &Space, range: &Range<u64>) {
        self.drop_pages(space, covered(range), |_| true);
    }

    /// Allocates every page that `range` touches. Fails with `NoMemory`, or with `NoSpace` after a part of
    /// them.
    pub(crate) fn fill(&mut self, space: &Space, range: &Range<u64>) -> Result<()> {
        touched(range).try_for_each(|index| self.page(space, index).map(drop))
    }

    /// Moves the pages from `from` to `to`, both multiples of a page. When moving down, no pages are
    /// between the two.
    pub(crate) fn shift(&mut self, from: u64, to: u64) {
        for (index, page) in self.pages.split_off(&(from / PAGE)) {
            let distance = index.saturating_sub(from / PAGE);
            self.pages.insert((to / PAGE).saturating_add(distance), page);
        }
    }

    /// Drops the data past `size`.
    pub(crate) fn truncate(&mut self, space: &Space, size: u64) {
        self.drop_pages(space, size.div_ceil(PAGE)..u64::MAX, |_| true);
        if let Some(Page::Memory(bytes)) = self.pages.get_mut(&(size / PAGE)) {
            bytes.get_mut(to_usize(size % PAGE)..).unwrap_or_default().fill(0);
        }
    }

    fn drop_pages(&mut self, space: &Space, range: Range<u64>, unwanted: impl Fn(&Page) -> bool) {
        let mut next = range.start;
        while let Some((&index, page)) = self.pages.range(next..range.end.max(next)).next() {
            next = index.saturating_add(1);
            if unwanted(page)
                && let Some(page) = self.pages.remove(&index)
            {
                space.give_back(page);
            }
        }
    }
}

/// Returns whether a page at this distance continues the extent that `first` starts.
fn follows(first: Span, distance: u64, span: Span) -> bool {
    match (first, span) {
        (Span::Mapped(start), Span::Mapped(at)) => at == start.saturating_add(distance.saturating_mul(PAGE)),
        _ => first == span,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use obento_block::MemDevice;
    use std::vec;

    #[test]
    fn separate_pages_leave_a_hole_between_them() {
        let space = Space::new(9, None);
        let mut data = Data::default();
        data.write(&space, 0, b"a").unwrap();
        data.write(&space, 2 * PAGE + 5, b"b").unwrap();
        assert_eq!(data.map(10..9 * PAGE), Extent { len: PAGE - 10, span: Span::Driver });
        assert_eq!(data.map(PAGE..9 * PAGE), Extent { len: PAGE, span: Span::Hole });
        assert_eq!(data.map(2 * PAGE..9 * PAGE), Extent { len: PAGE, span: Span::Driver });
        assert_eq!(data.map(3 * PAGE..9 * PAGE), Extent { len: 6 * PAGE, span: Span::Hole });
    }

    #[test]
    fn reserved_pages_read_as_zeros_until_they_are_published_and_can_be_given_back() {
        let space = Space::new(99, Some(Arc::new(MemDevice::new(vec![1; 5 * 4096]))));
        let mut data = Data::default();
        assert_eq!(space.pages(), 5);
        let extent = data.reserve(&space, 100..3 * PAGE).unwrap();
        assert_eq!(extent, Extent { len: 3 * PAGE - 100, span: Span::Mapped(100) });
        assert_eq!(data.map(0..3 * PAGE).span, Span::Unwritten);
        data.publish(&(100..200));
        assert_eq!(data.map(0..3 * PAGE), Extent { len: PAGE, span: Span::Mapped(0) });
        data.abandon(&space, &(0..3 * PAGE));
        assert_eq!((data.page_count(), space.free_pages()), (1, 4));
    }

    #[test]
    fn a_run_ends_where_space_ends() {
        let space = Space::new(2, Some(Arc::new(MemDevice::new(vec![0; 9 * 4096]))));
        let mut data = Data::default();
        assert_eq!(data.reserve(&space, 0..9 * PAGE).unwrap().len, 2 * PAGE);
        assert_eq!(data.reserve(&space, 2 * PAGE..9 * PAGE), Err(Error::NoSpace));
    }
}
