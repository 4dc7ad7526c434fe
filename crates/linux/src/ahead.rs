//! Small files that are read before they are asked for, many at a time: whoever reads one of a directory reads the next.
//!
//! Only of a volume that nobody changes.

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Ino, Result};
use obento_linux_wire::{Answer, DATA_MAX, Envelope, Piece, Request};

use crate::volume::{State, Volume, nonsense};

/// Files of at most this size are read ahead, when one before them in their directory is read.
pub const SMALL: u64 = 128 << 10;
/// How many at a time: their names fit a request.
const FILES: usize = 512;
/// And how many bytes, so that the last one fits the data.
const BYTES: u64 = DATA_MAX as u64 - SMALL;

impl Volume {
    /// Reads `ino` and the small files that follow it in its directory, whole.
    pub(crate) fn read_ahead(&self, state: &mut State, ino: Ino) -> Result<()> {
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

/// `ino` and the small files that follow it and are not there yet, and their sizes.
fn wanted(state: &State, ino: Ino) -> Vec<(Ino, u64)> {
    let (mut wanted, mut total, mut next) = (Vec::new(), 0, Some(ino));
    while let Some(ino) = next.filter(|_| wanted.len() < FILES && total < BYTES) {
        let Ok(known) = state.nodes.get(ino) else { break };
        next = known.follower;
        let size = known.attr.map_or(u64::MAX, |attr| attr.size);
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
