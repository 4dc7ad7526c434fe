//! The bytes of files.

use obento_linux_wire::{Answer, Fill, Piece, Run, Shift, Space};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, ftruncate, seek};
use rustix::io::{pread, pwrite};

use super::table::{Table, Use};
use super::{Errno, number};

/// The most runs of one answer.
pub const RUNS_MAX: usize = 4096;

/// Reads pieces one behind the other into `data`. A piece that cannot be read says why, and the others follow.
pub fn read(table: &mut Table, pieces: &[Piece], data: &mut [u8]) -> Answer {
    let mut at = 0;
    let fills = pieces.iter().map(|piece| {
        let len = usize::try_from(piece.len).unwrap_or(0);
        let Some(room) = data.get_mut(at..at + len) else {
            return Fill { len: 0, errno: libc::EINVAL.unsigned_abs() };
        };
        match read_piece(table, piece, room) {
            Ok(len) => {
                at += len;
                Fill { len: u32::try_from(len).unwrap_or(0), errno: 0 }
            }
            Err(errno) => Fill { len: 0, errno },
        }
    });
    Answer::Filled { fills: fills.collect() }
}

fn read_piece(table: &mut Table, piece: &Piece, room: &mut [u8]) -> Result<usize, Errno> {
    let file = table.open(piece.ino, Use::Read)?;
    let mut done = 0;
    while done < room.len() {
        match pread(file, &mut room[done..], piece.offset + done as u64) {
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

/// Where `ino` has data between two bytes. A type that cannot tell has data everywhere.
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

/// Changes what has space.
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

/// Moves what follows.
pub fn shift(table: &mut Table, ino: u64, offset: u64, len: u64, shift: &Shift) -> Result<Answer, Errno> {
    let mode = match shift {
        Shift::Collapse {} => FallocateFlags::COLLAPSE_RANGE,
        Shift::Insert {} => FallocateFlags::INSERT_RANGE,
    };
    fallocate(table.open(ino, Use::Write)?, mode, offset, len).map_err(number)?;
    Ok(Answer::Done {})
}
