//! Reads small files ahead in batches: a caller that reads one file of a directory usually reads the next
//! one.
//!
//! Applies only to a volume that is open for reading.

use std::collections::{HashMap, HashSet};

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Ino, Result};
use obento_linux_wire::{Answer, DATA_MAX, Envelope, Piece, Request};

use crate::volume::{State, Volume, nonsense};

/// The size up to which files are read ahead, when an earlier one of their directory is read.
pub const SMALL: u64 = 128 << 10;
/// The most files of a batch: their names fit a request.
const FILES: usize = 512;
/// The most files that are examined for a batch.
const STEPS: usize = 4 * FILES;
/// The most bytes of a batch, so that the last file fits the data.
const BYTES: u64 = DATA_MAX as u64 - SMALL;
/// The most files, and bytes, that wait. A caller that reads one file of a directory may never read the
/// others.
const HELD_FILES: usize = 4 * FILES;
const HELD_BYTES: usize = 4 * DATA_MAX;

impl Volume {
    /// Reads `ino` and the small files that follow it in its directory, completely.
    pub(crate) fn read_ahead(&self, state: &mut State, ino: Ino) -> Result<()> {
        make_room(&mut state.ahead);
        let wanted = wanted(state, ino);
        // A file that is found by its name is also read by its name, so the guest need not hold it.
        let mut found = Vec::new();
        let pieces = wanted.iter().map(|&(ino, size)| {
            let place = state.nodes.place(ino);
            found.push(place.as_ref().map_or(ino, |place| Ino(place.dir)));
            Piece { ino: ino.0, place, offset: 0, len: u32::try_from(size).unwrap_or(0) }
        });
        let request = Some(Request::Read { pieces: pieces.collect() });
        found.dedup();
        let steps = state.nodes.steps(&found)?;
        let envelope = Envelope { forget: state.nodes.take_forgotten(), steps, request };
        let mut turn = self.engine.turn();
        let Answer::Filled { fills } = turn.ask(&envelope, &[])? else { return Err(nonsense()) };
        state.nodes.hold(&envelope.steps);
        let mut at = 0;
        for ((ino, size), fill) in wanted.into_iter().zip(fills) {
            if fill.errno == 0 {
                // At most the requested length, whatever the guest returns.
                let mut bytes = vec![0; to_usize(size.min(fill.len.into()))];
                turn.data(at, &mut bytes);
                state.ahead.insert(ino, bytes);
            }
            at = at.saturating_add(to_usize(size));
        }
        Ok(())
    }
}

/// Removes files that were not requested, if they exceed the limits.
fn make_room(ahead: &mut HashMap<Ino, Vec<u8>>) {
    if ahead.len() >= HELD_FILES || ahead.values().map(Vec::len).sum::<usize>() >= HELD_BYTES {
        ahead.clear();
    }
}

/// Returns `ino` and the following small files that are not present yet, with their sizes. Files with several
/// names may form a cycle.
fn wanted(state: &State, ino: Ino) -> Vec<(Ino, u64)> {
    let (mut wanted, mut total, mut next) = (Vec::new(), 0, Some(ino));
    let mut seen = HashSet::new();
    while let Some(ino) =
        next.filter(|ino| wanted.len() < FILES && total < BYTES && seen.len() < STEPS && seen.insert(*ino))
    {
        let Ok(known) = state.nodes.get(ino) else { break };
        next = known.follower;
        let size = known.attr.as_ref().map_or(u64::MAX, |attr| attr.size);
        if size <= SMALL && size > 0 && !state.ahead.contains_key(&ino) {
            wanted.push((ino, size));
            total += size;
        }
    }
    wanted
}

/// Returns bytes of a file that was read ahead. A file that was read to its end is removed.
pub fn serve(state: &mut State, ino: Ino, offset: u64, buf: &mut [u8]) -> Option<usize> {
    let bytes = state.ahead.get(&ino)?;
    let rest = bytes.get(to_usize(offset)..).unwrap_or_default();
    let len = rest.len().min(buf.len());
    buf.get_mut(..len)?.copy_from_slice(rest.get(..len)?);
    if to_u64(len).saturating_add(offset) >= to_u64(bytes.len()) {
        state.ahead.remove(&ino);
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrequested_read_ahead_is_bounded() {
        for (len, bound) in [(1, HELD_FILES), (to_usize(SMALL), HELD_BYTES.div_ceil(to_usize(SMALL)))] {
            let (mut ahead, mut most) = (HashMap::new(), 0);
            for number in 0..10_000 {
                make_room(&mut ahead);
                ahead.insert(Ino(number), vec![0; len]);
                most = most.max(ahead.len());
            }
            assert_eq!(most, bound, "files of {len} bytes");
        }
    }
}
