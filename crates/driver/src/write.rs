//! The ticket of a write: see [`WriteTicket`].

use core::fmt;
use core::ops::Range;

use obento_base::{Ino, Result, Timestamp};

use crate::{Extent, Span};

/// The place of a write, and the state of the file before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritePlace {
    /// The place of the data, as one extent that starts at the start of the requested range. The place is `Mapped`, or
    /// `Driver` if the caller must call [`WritableFileSystem::write`](crate::WritableFileSystem::write).
    pub extent: Extent,
    /// The previous location of the first block of the extent, as `map` returns it. If the block is past the
    /// end of the file, the value is unspecified. The other blocks of the extent had the same kind of location,
    /// except blocks past the end of the file.
    pub was: Span,
    /// Size of the file in bytes, before the write.
    pub size: u64,
    /// Modification time of the file, before the write.
    pub mtime: Timestamp,
}

/// The part of a driver that releases reserved blocks.
pub trait Reserves: Sync {
    /// Releases the blocks of `range` that `begin_write` reserved and `end_write` did not publish. `range` is
    /// in bytes of the file. Ignores blocks that are not reserved, and inodes that no longer exist. Acquires
    /// locks of the driver, so a thread that holds such a lock must not drop a ticket.
    fn release(&self, ino: Ino, range: &Range<u64>);

    /// Reserves the blocks that the mapping of the file may need to publish `range`:
    /// [`WriteTicket::reserve_mapping`]. `range` is in bytes of the file. A driver whose mapping needs no blocks does
    /// nothing. Acquires locks of the driver.
    ///
    /// # Errors
    ///
    /// - `NoSpace`: not enough blocks are free. Nothing more is reserved.
    /// - The other errors of reading the mapping, such as `Corrupt`.
    fn reserve_mapping(&self, ino: Ino, range: &Range<u64>) -> Result<()>;
}

/// A write for which a driver reserved blocks, between [`begin_write`] and [`end_write`].
///
/// Invariant: reserved blocks are published or released exactly once. `end_write` publishes the blocks.
/// Dropping the ticket releases them. If the caller [detaches](Self::detach) the ticket, the blocks stay
/// reserved, and the caller must later publish or release them through a ticket of [`resume_write`].
///
/// Locking: while a ticket exists, its caller holds the layout lock of the inode shared
/// ([`Layout`](crate::Layout)), and the driver holds no lock of its own.
///
/// [`begin_write`]: crate::WritableFileSystem::begin_write
/// [`end_write`]: crate::WritableFileSystem::end_write
/// [`resume_write`]: crate::WritableFileSystem::resume_write
#[must_use = "dropping the ticket releases the blocks"]
pub struct WriteTicket<'a> {
    ino: Ino,
    start: u64,
    place: WritePlace,
    /// The change counter of the driver when the ticket was issued.
    seen: Option<u64>,
    driver: Option<&'a dyn Reserves>,
}

impl<'a> WriteTicket<'a> {
    /// Issues the ticket of a write to `range`, in bytes of the file. The ticket covers the part of `range`
    /// that the extent of `place` covers, which starts at `range.start`. `driver` is `None` for a driver that
    /// reserves nothing.
    pub fn new(ino: Ino, range: &Range<u64>, place: WritePlace, driver: Option<&'a dyn Reserves>) -> Self {
        let len = place.extent.len.min(range.end.saturating_sub(range.start));
        let place = WritePlace { extent: Extent { len, ..place.extent }, ..place };
        // Nothing is reserved for data that the driver writes itself.
        let driver = driver.filter(|_| place.extent.span != Span::Driver);
        Self { ino, start: range.start, place, seen: None, driver }
    }

    /// Issues another ticket for blocks whose first ticket was [detached](Self::detach). `range` is in bytes
    /// of the file. The new ticket contains neither the place of the data nor the previous state of the file.
    /// The caller writes the data and passes the ticket to `end_write`, or drops the ticket to release the blocks.
    pub fn resumed(ino: Ino, range: &Range<u64>, driver: Option<&'a dyn Reserves>) -> Self {
        let extent = Extent { len: range.end.saturating_sub(range.start), span: Span::Driver };
        let place = WritePlace { extent, was: Span::Driver, size: 0, mtime: Timestamp::EPOCH };
        let mut ticket = Self::new(ino, range, place, None);
        ticket.driver = driver;
        ticket
    }

    /// Stores the change counter of the driver in the ticket.
    pub fn seen_at(mut self, change: u64) -> Self {
        self.seen = Some(change);
        self
    }

    /// Returns whether the ticket stores the change counter `change`. The driver passes its current counter:
    /// `true` then means that the mapping of the file has not changed since the driver issued the ticket.
    pub fn is_current(&self, change: u64) -> bool {
        self.seen == Some(change)
    }

    /// Returns the inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the range of the file, in bytes, that the ticket covers.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.place.extent.len)
    }

    /// Returns the place of the data.
    pub fn extent(&self) -> Extent {
        self.place.extent
    }

    /// Returns the previous location of the first block of the extent ([`WritePlace::was`]).
    pub fn was(&self) -> Span {
        self.place.was
    }

    /// Returns the size of the file in bytes before the write.
    pub fn size(&self) -> u64 {
        self.place.size
    }

    /// Returns the modification time of the file before the write.
    pub fn mtime(&self) -> Timestamp {
        self.place.mtime
    }

    /// Returns the range of the file to write, in bytes. `block` is the block size in bytes. The range consists of the
    /// data and of the bytes around the data that must become zeros. These bytes are:
    ///
    /// - the rest of each new block;
    /// - the bytes between the end of the file and the data, if both are in the same block.
    ///
    /// A block is new if it was a hole, unwritten, or past the end of the file.
    pub fn frame(&self, block: u64) -> Range<u64> {
        let Range { start, end } = self.range();
        let floor = |at: u64| at.saturating_sub(at.checked_rem(block).unwrap_or(0));
        let is_new = |at: u64| self.place.was.is_zeros() || floor(at) >= self.place.size;
        let first = if is_new(start) { floor(start) } else { start.min(self.place.size) };
        let last = end.saturating_sub(1);
        first..if is_new(last) { floor(last).saturating_add(block).max(end) } else { end }
    }

    /// Calls `publish`, which must make the blocks part of the file. If `publish` fails, releases the blocks.
    ///
    /// # Errors
    ///
    /// The errors of `publish`.
    pub fn publish(mut self, publish: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        publish(&self)?;
        self.driver = None;
        Ok(())
    }

    /// Reserves the blocks that the mapping of the file may need to publish the range of the ticket. Each block of the
    /// range must be part of the file, or be reserved by `begin_write`. A caller that reports success before it calls
    /// `end_write` needs this method. Afterwards, `end_write` does not fail with `NoSpace` under these conditions:
    ///
    /// - The parts of the range are published in the order of the file.
    /// - No other change of the mapping of the file precedes them, except overwriting in place.
    ///
    /// The blocks for the mapping are released when the whole range was published or released.
    ///
    /// # Errors
    ///
    /// - `NoSpace`: not enough blocks are free. The ticket still reserves the blocks of the data.
    /// - The other errors of reading the mapping, such as `Corrupt`.
    pub fn reserve_mapping(&self) -> Result<()> {
        self.driver.map_or(Ok(()), |driver| driver.reserve_mapping(self.ino, &self.range()))
    }

    /// Ends the ticket without releasing the blocks, for a caller that publishes or releases them later, through
    /// [`resume_write`](crate::WritableFileSystem::resume_write). Returns the place of the write.
    pub fn detach(mut self) -> WritePlace {
        self.driver = None;
        self.place
    }
}

impl Drop for WriteTicket<'_> {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.release(self.ino, &self.range());
        }
    }
}

impl fmt::Debug for WriteTicket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ino, start, place, seen, .. } = self;
        f.debug_struct("WriteTicket")
            .field("ino", ino)
            .field("start", start)
            .field("place", place)
            .field("seen", seen)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use obento_base::Error;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Released(Mutex<Vec<Range<u64>>>);

    impl Reserves for Released {
        fn release(&self, _: Ino, range: &Range<u64>) {
            self.0.lock().unwrap().push(range.clone());
        }
        fn reserve_mapping(&self, _: Ino, range: &Range<u64>) -> Result<()> {
            if range.end > 100 { Err(Error::NoSpace) } else { Ok(()) }
        }
    }

    const MAPPED: Span = Span::Mapped(8192);

    fn place(len: u64, was: Span, size: u64) -> WritePlace {
        WritePlace { extent: Extent { len, span: MAPPED }, was, size, mtime: Timestamp::EPOCH }
    }

    fn ticket(driver: &Released, range: Range<u64>) -> WriteTicket<'_> {
        WriteTicket::new(Ino(9), &range, place(100, MAPPED, 0), Some(driver))
    }

    #[test]
    fn blocks_are_released_unless_the_ticket_is_published_or_detached() {
        let driver = Released::default();
        drop(ticket(&driver, 0..50));
        assert_eq!(ticket(&driver, 100..900).publish(|_| Ok(())), Ok(()));
        assert_eq!(ticket(&driver, 100..900).publish(|_| Err(Error::NoSpace)), Err(Error::NoSpace));
        assert_eq!(ticket(&driver, 5..900).detach().extent.len, 100);
        drop(WriteTicket::resumed(Ino(9), &(7..9), Some(&driver)));
        assert_eq!(driver.0.into_inner().unwrap(), [0..50, 100..200, 7..9]);
    }

    #[test]
    fn a_ticket_reserves_blocks_for_the_mapping_of_its_range() {
        let driver = Released::default();
        assert_eq!(ticket(&driver, 0..50).reserve_mapping(), Ok(()));
        assert_eq!(ticket(&driver, 50..900).reserve_mapping(), Err(Error::NoSpace));
        assert_eq!(WriteTicket::resumed(Ino(9), &(7..900), None).reserve_mapping(), Ok(()));
    }

    #[test]
    fn a_ticket_is_current_until_the_change_counter_moves() {
        let driver = Released::default();
        let ticket = ticket(&driver, 0..50);
        assert!(!ticket.is_current(0));
        let ticket = ticket.seen_at(7);
        assert!(ticket.is_current(7) && !ticket.is_current(8));
        assert_eq!(driver.0.lock().unwrap().len(), 0, "the ticket still reserves its blocks");
    }

    #[test]
    fn a_frame_covers_new_blocks_and_only_the_data_of_others() {
        let frame = |range: Range<u64>, was, size| {
            WriteTicket::new(Ino(9), &range, place(u64::MAX, was, size), None).frame(4096)
        };
        // In a hole, in an unwritten block, and past the end of the file.
        assert_eq!(frame(5000..6000, Span::Hole, 99_999), 4096..8192);
        assert_eq!(frame(5000..9000, Span::Unwritten, 99_999), 4096..12288);
        assert_eq!(frame(5000..6000, MAPPED, 4096), 4096..8192);
        // In data.
        assert_eq!(frame(5000..6000, MAPPED, 99_999), 5000..6000);
        assert_eq!(frame(5000..6000, Span::Driver, 99_999), 5000..6000);
        // From data over the end of the file: in the same block, and in the next one.
        assert_eq!(frame(50..200, MAPPED, 100), 50..200);
        assert_eq!(frame(50..5000, MAPPED, 100), 50..8192);
        // After the end of the file, in its last block.
        assert_eq!(frame(200..300, MAPPED, 100), 100..300);
    }
}
