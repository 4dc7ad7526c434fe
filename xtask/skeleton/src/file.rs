//! The data of files: pages in memory, and holes between them.

use std::ops::Range;

use obento::{Error, Result};
use obento::base::{Ino, Timestamp};
use obento::driver::{Extent, Span, TimeChange};

use crate::raw::PAGE;
use crate::tree::{Body, IN_PAGE, INODE, Inode, Tree};

/// The largest file, in bytes.
pub(crate) const SIZE_MAX: u64 = 1 << 44;
const LEN: u64 = PAGE as u64;

/// Returns the part of a page that `len` bytes at `offset` cover.
fn within(offset: u64, len: usize) -> Range<usize> {
    let start = (offset % LEN) as usize;
    start..PAGE.min(start.saturating_add(len))
}

impl Inode {
    /// Returns the number of bytes that the inode takes on disk.
    pub(crate) fn taken(&self) -> u64 {
        INODE
            + match &self.body {
                Body::File(pages) => pages.len() as u64 * IN_PAGE,
                Body::Symlink(target) => target.len() as u64,
                // The entries of a directory are counted when they are added and removed.
                Body::Directory(_) | Body::Node => 0,
            }
    }

    /// Returns the run of pages, or of holes, at the start of `range`.
    pub(crate) fn run(&self, range: &Range<u64>) -> Result<Extent> {
        let pages = self.file()?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        let first = range.start / LEN;
        let end = if pages.contains_key(&first) {
            (first + 1) * LEN
        } else {
            pages.range(first..).next().map_or(u64::MAX, |(index, _)| index * LEN)
        };
        let span = if pages.contains_key(&first) { Span::Driver } else { Span::Hole };
        Ok(Extent { len: end.min(range.end) - range.start, span })
    }

    /// Reads up to the end of the page.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = usize::try_from(self.attr.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let part = within(offset, buf.len().min(left));
        let page = self.file()?.get(&(offset / LEN));
        let to = &mut buf[..part.len()];
        match page {
            Some(page) => to.copy_from_slice(&page[part]),
            None => to.fill(0),
        }
        Ok(to.len())
    }
}

impl Tree {
    /// Returns whether a byte can be written at `offset`. Fails with `NoSpace`, or with the errors of [`Inode::file`].
    pub(crate) fn room_at(&self, ino: Ino, offset: u64) -> Result<()> {
        let is_there = self.get(ino)?.file()?.contains_key(&(offset / LEN));
        if is_there { Ok(()) } else { self.fits(IN_PAGE) }
    }

    /// Writes up to the end of the page.
    pub(crate) fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8], now: Timestamp) -> Result<usize> {
        self.room_at(ino, offset)?;
        let inode = self.inodes.get_mut(&ino).ok_or(Error::Stale)?;
        let Body::File(pages) = &mut inode.body else { return Err(Error::Invalid) };
        let part = within(offset, bytes.len());
        let len = part.len();
        let page = pages.entry(offset / LEN).or_insert_with(|| {
            self.used += IN_PAGE;
            Box::new([0; PAGE])
        });
        page[part].copy_from_slice(&bytes[..len]);
        inode.attr.size = inode.attr.size.max(offset + len as u64);
        inode.touch_data(now, TimeChange::Now);
        Ok(len)
    }

    /// Replaces whole pages by holes.
    fn drop_pages(&mut self, ino: Ino, pages: Range<u64>) {
        let Some(Inode { body: Body::File(all), .. }) = self.inodes.get_mut(&ino) else { return };
        let mut cut = all.split_off(&pages.start);
        let mut kept = cut.split_off(&pages.end.max(pages.start));
        all.append(&mut kept);
        self.used -= cut.len() as u64 * IN_PAGE;
    }

    pub(crate) fn truncate(&mut self, ino: Ino, size: u64, now: Timestamp) -> Result<()> {
        self.get(ino)?.file()?;
        if size > SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        self.drop_pages(ino, size.div_ceil(LEN)..u64::MAX);
        let inode = self.get_mut(ino)?;
        if let Body::File(pages) = &mut inode.body
            && let Some(page) = pages.get_mut(&(size / LEN))
        {
            page[(size % LEN) as usize..].fill(0);
        }
        inode.attr.size = size;
        inode.touch_data(now, TimeChange::Now);
        Ok(())
    }

    pub(crate) fn punch(&mut self, ino: Ino, range: Range<u64>, now: Timestamp) -> Result<()> {
        let inode = self.get(ino)?;
        inode.file()?;
        let to_the_end = range.end >= inode.attr.size;
        if !range.start.is_multiple_of(LEN) || !(to_the_end || range.end.is_multiple_of(LEN)) {
            return Err(Error::Invalid);
        }
        self.drop_pages(ino, range.start / LEN..range.end.div_ceil(LEN));
        self.get_mut(ino)?.touch_data(now, TimeChange::Now);
        Ok(())
    }
}
