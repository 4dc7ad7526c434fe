//! Small files that are read before they are asked for, many at a time: whoever reads one of a directory reads the next.
//!
//! Only of a volume that nobody changes.

use std::collections::{HashMap, HashSet};

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Ino, Result};
use obento_linux_wire::{Answer, DATA_MAX, Envelope, Piece, Request};

use crate::volume::{State, Volume, nonsense};

/// Files of at most this size are read ahead, when one before them in their directory is read.
pub const SMALL: u64 = 128 << 10;
/// How many at a time: their names fit a request.
const FILES: usize = 512;
/// How many are looked at for that.
const STEPS: usize = 4 * FILES;
/// And how many bytes, so that the last one fits the data.
const BYTES: u64 = DATA_MAX as u64 - SMALL;
/// Files that wait to be asked for, at most, and bytes of them: who asks for one of a directory need not ask for the others.
const HELD_FILES: usize = 4 * FILES;
const HELD_BYTES: usize = 4 * DATA_MAX;

impl Volume {
    /// Reads `ino` and the small files that follow it in its directory, whole.
    pub(crate) fn read_ahead(&self, state: &mut State, ino: Ino) -> Result<()> {
        make_room(&mut state.ahead);
        let wanted = wanted(state, ino);
        // What can be found by its name is read by it, and needs not be held.
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
                // No longer than was asked for, whatever the guest says.
                let mut bytes = vec![0; to_usize(size.min(fill.len.into()))];
                turn.data(at, &mut bytes);
                state.ahead.insert(ino, bytes);
            }
            at = at.saturating_add(to_usize(size));
        }
        Ok(())
    }
}

/// Lets go of what nobody has asked for, once that is much.
fn make_room(ahead: &mut HashMap<Ino, Vec<u8>>) {
    if ahead.len() >= HELD_FILES || ahead.values().map(Vec::len).sum::<usize>() >= HELD_BYTES {
        ahead.clear();
    }
}

/// `ino` and the small files that follow it and are not there yet, and their sizes. Files with several names may follow each other in
/// a circle.
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

/// Takes bytes from what was read ahead. What was taken to its end is not kept.
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
    fn what_nobody_asks_for_is_held_within_bounds() {
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
