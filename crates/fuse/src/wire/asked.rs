//! What some requests change.

use super::abi::{FallocateIn, InHeader, SetattrIn, fattr, opcode};
use super::request::RequestBody;

/// The attributes that a SETATTR changes.
pub(super) enum Asked {
    /// It confirms that a capability was removed before a write.
    Nothing,
    Times,
    Other,
}

/// Returns the attributes that a SETATTR changes.
pub(super) fn changed(asked: &SetattrIn) -> u32 {
    asked.valid & !(fattr::FH | fattr::LOCKOWNER | fattr::KILL_SUIDGID)
}

pub(super) fn what(asked: &SetattrIn) -> Asked {
    const TIMES: u32 = fattr::ATIME | fattr::ATIME_NOW | fattr::MTIME | fattr::MTIME_NOW | fattr::CTIME;
    let valid = changed(asked);
    match valid & !TIMES {
        0 if valid == 0 => Asked::Nothing,
        0 => Asked::Times,
        _ => Asked::Other,
    }
}

/// Returns whether a request is the SETATTR without a value that the kernel sends before a write to a gated file.
pub(super) fn confirms_a_write(header: &InHeader, mut body: RequestBody<'_>) -> bool {
    header.opcode == opcode::SETATTR && body.take().is_ok_and(|asked| matches!(what(&asked), Asked::Nothing))
}

/// Returns whether a request inserts or removes a range, so that the data behind it moves.
pub(super) fn moves_data(header: &InHeader, mut body: RequestBody<'_>) -> bool {
    let moves = (libc::FALLOC_FL_INSERT_RANGE | libc::FALLOC_FL_COLLAPSE_RANGE).cast_unsigned();
    header.opcode == opcode::FALLOCATE
        && body.take::<FallocateIn>().is_ok_and(|asked| asked.mode & moves != 0)
}
