//! Sequential reads: the guest reads ahead while the earlier bytes are used.
//!
//! The length of a read-ahead doubles each time, up to the space for data. Applies only to a volume that is
//! open for reading.

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, Ino, Result};
use obento_linux_wire::{Answer, DATA_MAX, Piece, Request};

use crate::volume::{State, Volume, nonsense};

/// The file that was read last.
#[derive(Default)]
pub struct Stream {
    ino: Option<Ino>,
    /// Bytes of the file, and their position.
    start: u64,
    bytes: Vec<u8>,
    /// The end of the last read.
    end: u64,
    /// The piece that the guest was asked to read ahead.
    early: Option<Piece>,
}

impl Stream {
    /// Returns bytes that are already present.
    fn serve(&mut self, ino: Ino, offset: u64, buf: &mut [u8]) -> usize {
        let skipped = offset.checked_sub(self.start).filter(|_| self.ino == Some(ino));
        let rest = skipped.and_then(|skipped| self.bytes.get(to_usize(skipped)..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        if len > 0 {
            self.end = offset.saturating_add(to_u64(len));
        }
        len
    }

    /// Returns the piece that was requested early, if it begins at `offset`.
    fn take_early(&mut self, ino: Ino, offset: u64) -> Option<Piece> {
        self.early.take_if(|piece| piece.ino == ino.0 && piece.offset == offset)
    }
}

impl Volume {
    /// Reads a regular file from `offset` on. May return fewer bytes than requested, and none at its end.
    pub(crate) fn read_on(
        &self,
        state: &mut State,
        attr: &Attr,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let goes_on = state.stream.ino == Some(attr.ino) && state.stream.end == offset;
        let served = state.stream.serve(attr.ino, offset, buf);
        if served > 0 {
            return Ok(served);
        }
        if let Some(len) = self.read_bytes_that_were_requested_early(state, attr, offset)? {
            return Ok(if len > 0 { state.stream.serve(attr.ino, offset, buf) } else { 0 });
        }
        let piece = piece(attr, offset, buf.len());
        let answer = self.ask(state, &[attr.ino], Request::Read { pieces: vec![piece.clone()] })?;
        let len = self.filled(answer, &piece)?;
        self.engine.turn().data(0, &mut buf[..len]);
        let end = offset.saturating_add(to_u64(len));
        state.stream = Stream { ino: Some(attr.ino), start: end, end, ..Stream::default() };
        if goes_on {
            self.read_early(state, attr, &piece, len);
        }
        Ok(len)
    }

    /// Returns the bytes at `offset` that were requested early, and requests the next ones. Returns `None` if
    /// they were not requested.
    fn read_bytes_that_were_requested_early(
        &self,
        state: &mut State,
        attr: &Attr,
        offset: u64,
    ) -> Result<Option<usize>> {
        let Some(piece) = state.stream.take_early(attr.ino, offset) else { return Ok(None) };
        let request = Request::Read { pieces: vec![piece.clone()] };
        let answer = self.engine.turn().take_early(&request);
        let Some(answer) = answer else { return Ok(None) };
        let len = self.filled(answer?, &piece)?;
        state.stream.start = offset;
        state.stream.bytes.resize(len, 0);
        self.engine.turn().data(0, &mut state.stream.bytes);
        self.read_early(state, attr, &piece, len);
        Ok(Some(len))
    }

    /// Asks the guest to continue after `last`, whose `len` bytes were all read. A short read is not continued.
    fn read_early(&self, state: &mut State, attr: &Attr, last: &Piece, len: usize) {
        let next = piece(attr, last.offset.saturating_add(to_u64(len)), len.saturating_mul(2));
        let is_held = state.nodes.get(attr.ino).is_ok_and(|known| known.held);
        if is_held && !self.is_writable() && len == to_usize(last.len.into()) && next.len > 0 {
            self.engine.turn().ask_early(Request::Read { pieces: vec![next.clone()] });
            state.stream.early = Some(next);
        }
    }

    /// Returns the number of valid bytes of `piece`, at most the requested number, whatever the guest
    /// returns.
    fn filled(&self, answer: Answer, piece: &Piece) -> Result<usize> {
        let Answer::Filled { fills } = answer else { return Err(nonsense()) };
        let fill = fills.first().ok_or_else(nonsense)?;
        match fill.errno {
            0 => Ok(to_usize(fill.len.min(piece.len).into())),
            errno => Err(self.engine.turn().trouble(errno).into()),
        }
    }
}

/// Returns a piece of at most `len` bytes that fits the data and the file.
fn piece(attr: &Attr, offset: u64, len: usize) -> Piece {
    let len = to_u64(len.min(DATA_MAX)).min(attr.size.saturating_sub(offset));
    Piece { ino: attr.ino.0, place: None, offset, len: u32::try_from(len).unwrap_or(0) }
}
