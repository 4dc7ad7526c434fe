//! The writes between two flushes.

use std::ops::Range;
use std::sync::Arc;

use crate::record::Event;

/// The unit in which a write may tear.
pub(super) const SECTOR: u64 = 512;

/// One write of a window.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub event: usize,
    pub offset: u64,
    pub bytes: Arc<[u8]>,
}

/// A part of a write within one sector, which is written completely or not at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub offset: u64,
    pub bytes: &'a [u8],
}

impl Write {
    /// Returns the parts, sector by sector. Bytes in `whole` are one part.
    pub fn pieces<'a>(&'a self, whole: &Range<u64>) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        let (mut at, whole) = (0, whole.clone());
        std::iter::from_fn(move || {
            let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
            let offset = self.offset + at as u64;
            let end = if whole.contains(&offset) { whole.end } else { offset - offset % SECTOR + SECTOR };
            let len = rest.len().min((end - offset) as usize);
            at += len;
            Some(Piece { offset, bytes: &rest[..len] })
        })
    }
}

/// The writes between two flushes, and the progress of the recording at the second flush.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The event that ends the window.
    pub end: usize,
    pub writes: Vec<Write>,
    pub mark: Option<usize>,
}

/// Returns the windows of a recording. A window without writes is omitted, unless an operation promised further durable
/// data in it.
pub(super) fn windows(events: &[Event]) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    let (mut writes, mut mark) = (Vec::new(), None);
    let mut close = |end, writes: &mut Vec<Write>, mark| {
        let promised = windows.last().map(|last| last.mark);
        if !writes.is_empty() || promised != Some(mark) {
            windows.push(Window { end, writes: std::mem::take(writes), mark });
        }
    };
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Write { offset, bytes } => {
                writes.push(Write { event: at, offset: *offset, bytes: Arc::clone(bytes) });
            }
            Event::Flush => close(at, &mut writes, mark),
            Event::Mark(reached) => mark = Some(*reached),
        }
    }
    close(events.len(), &mut writes, mark);
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, len: usize) -> Event {
        Event::Write { offset, bytes: vec![1; len].into() }
    }

    #[test]
    fn a_window_ends_at_a_flush_and_records_the_last_guarantee() {
        let events = [write(0, 1), Event::Mark(1), Event::Flush, Event::Mark(2), write(9, 1), Event::Mark(3)];
        let found = windows(&events);
        let shape: Vec<_> =
            found.iter().map(|window| (window.end, window.writes.len(), window.mark)).collect();
        assert_eq!(shape, [(2, 1, Some(1)), (6, 1, Some(3))]);
    }

    #[test]
    fn a_guarantee_without_a_write_is_a_window_too() {
        let events = [write(0, 1), Event::Flush, Event::Mark(5), Event::Flush, Event::Flush];
        assert_eq!(windows(&events).iter().map(|window| window.end).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_write_is_cut_at_the_borders_of_sectors() {
        let write = Write { event: 0, offset: 500, bytes: vec![0; 540].into() };
        let pieces = |whole| -> Vec<(u64, usize)> {
            write.pieces(&whole).map(|piece| (piece.offset, piece.bytes.len())).collect()
        };
        assert_eq!(pieces(0..0), [(500, 12), (512, 512), (1024, 16)]);
        assert_eq!(pieces(512..1536), [(500, 12), (512, 528)]);
    }
}
