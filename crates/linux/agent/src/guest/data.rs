//! The bytes of files.

use std::os::fd::AsFd;

use obento_linux_wire::{Answer, Fill, Piece, Run, Shift, Space};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, fallocate, ftruncate, openat, seek};
use rustix::io::{pread, pwrite};

use super::errno::{Errno, number};
use super::ring::{Ring, Wanted};
use super::table::{Table, Use, c_name};

/// The most runs of an answer.
pub const RUNS_MAX: usize = 4096;

/// Reads pieces into `data`, each after the full length of the preceding ones. A failed piece has an error number, and the
/// following pieces are still read. Pieces with a known location use the ring.
pub fn read(table: &mut Table, ring: &mut Ring, pieces: &[Piece], data: &mut [u8]) -> Answer {
    let mut rest = data;
    let mut rooms: Vec<_> = pieces.iter().map(|piece| split_off(&mut rest, piece.len)).collect();
    let mut fills = vec![Fill { len: 0, errno: libc::EINVAL.unsigned_abs() }; pieces.len()];
    for ((piece, room), fill) in pieces.iter().zip(&mut rooms).zip(&mut fills) {
        if let (None, Some(room)) = (&piece.place, room) {
            *fill = filled(read_piece(table, piece, room));
        }
    }
    let mut named = Vec::new();
    for (((index, piece), room), fill) in (0..).zip(pieces).zip(rooms).zip(&mut fills) {
        let (Some(place), Some(room)) = (&piece.place, room) else { continue };
        match (table.place(place.dir), c_name(&place.name)) {
            (Ok(dir), Ok(name)) => named.push((index, Wanted { dir, name, room })),
            (Err(errno), _) | (_, Err(errno)) => *fill = filled(Err(errno)),
        }
    }
    let (indices, mut wanted): (Vec<usize>, Vec<_>) = named.into_iter().unzip();
    let done = ring.read(&mut wanted);
    for ((index, wanted), done) in indices.into_iter().zip(wanted).zip(done) {
        fills[index] = filled(match done {
            // A short read is not necessarily the end of the file.
            Ok(len) if len < wanted.room.len() => read_named(wanted),
            done => done,
        });
    }
    Answer::Filled { fills }
}

/// Takes the first bytes of `rest`, if it has as many.
fn split_off<'a>(rest: &mut &'a mut [u8], len: u32) -> Option<&'a mut [u8]> {
    rest.split_off_mut(..usize::try_from(len).ok()?)
}

fn filled(done: Result<usize, Errno>) -> Fill {
    match done {
        Ok(len) => Fill { len: u32::try_from(len).unwrap_or(0), errno: 0 },
        Err(errno) => Fill { len: 0, errno },
    }
}

fn read_named(Wanted { dir, name, room }: Wanted<'_>) -> Result<usize, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    read_full(&openat(dir, &name, flags, Mode::empty()).map_err(number)?, 0, room)
}

fn read_piece(table: &mut Table, piece: &Piece, room: &mut [u8]) -> Result<usize, Errno> {
    read_full(table.open(piece.ino, Use::Read)?, piece.offset, room)
}

fn read_full(file: impl AsFd, offset: u64, room: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < room.len() {
        match pread(&file, &mut room[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(number(errno)),
        }
    }
    Ok(done)
}

/// Writes `bytes`.
pub fn write(table: &mut Table, ino: u64, offset: u64, bytes: &[u8]) -> Result<Answer, Errno> {
    let count = pwrite(table.open(ino, Use::Write)?, bytes, offset).map_err(number)?;
    Ok(Answer::Count { count: count as u64 })
}

/// Returns where `ino` has data between two bytes. For a type without this report, everything is data.
pub fn map(table: &mut Table, ino: u64, offset: u64, end: u64) -> Result<Answer, Errno> {
    let file = table.open(ino, Use::Read)?;
    let (mut runs, mut at) = (Vec::new(), offset);
    while at < end && runs.len() < RUNS_MAX {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => end,
            Err(errno) => return Err(number(errno)),
        };
        if data > at {
            at = data.min(end);
            runs.push(Run { end: at, is_data: false, place: None });
            continue;
        }
        at = seek(file, SeekFrom::Hole(at)).map_err(number)?.clamp(at + 1, end);
        runs.push(Run { end: at, is_data: true, place: None });
    }
    Ok(Answer::Runs { runs })
}

/// Sets the size.
pub fn truncate(table: &mut Table, ino: u64, size: u64) -> Result<Answer, Errno> {
    ftruncate(table.open(ino, Use::Write)?, size).map_err(number)?;
    Ok(Answer::Done {})
}

/// Changes the allocation of a range.
pub fn reserve(table: &mut Table, ino: u64, offset: u64, len: u64, space: &Space) -> Result<Answer, Errno> {
    let keep = |grow: bool| if grow { FallocateFlags::empty() } else { FallocateFlags::KEEP_SIZE };
    let mode = match space {
        Space::Allocate { grow } => keep(*grow),
        Space::Punch {} => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        Space::Zero { grow } => FallocateFlags::ZERO_RANGE | keep(*grow),
    };
    fallocate(table.open(ino, Use::Write)?, mode, offset, len).map_err(number)?;
    Ok(Answer::Done {})
}

/// Moves the data after a range.
pub fn shift(table: &mut Table, ino: u64, offset: u64, len: u64, shift: &Shift) -> Result<Answer, Errno> {
    let mode = match shift {
        Shift::Collapse {} => FallocateFlags::COLLAPSE_RANGE,
        Shift::Insert {} => FallocateFlags::INSERT_RANGE,
    };
    fallocate(table.open(ino, Use::Write)?, mode, offset, len).map_err(number)?;
    Ok(Answer::Done {})
}
