//! The locations of the bytes of files on the disk.
//!
//! Source: Linux, Documentation/filesystems/fiemap.rst and include/uapi/linux/fiemap.h.

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::Instant;

use obento_linux_wire::{Answer, Run};

use super::data::RUNS_MAX;
use super::errno::{Errno, last_error};
use super::table::{Table, Use};

/// `_IOWR('f', 11, struct fiemap)`: include/uapi/linux/fs.h.
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// `FIEMAP_FLAG_SYNC`: writes unwritten data first.
const SYNC: u32 = 1;
/// Extents of one call.
const EXTENTS: usize = 256;

/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 0x1;
/// `FIEMAP_EXTENT_UNWRITTEN`: space that reads as zeros.
const UNWRITTEN: u32 = 0x800;
/// `FIEMAP_EXTENT_UNKNOWN`, `_DELALLOC`, `_ENCODED`, `_DATA_ENCRYPTED`, `_NOT_ALIGNED`, `_DATA_INLINE`, `_DATA_TAIL`: the
/// bytes on the disk are not the bytes of the file.
const ELSEWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;

#[repr(C)]
struct Question {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    len: u64,
    reserved: [u64; 2],
    flags: u32,
    more: [u32; 3],
}

const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Question>() == 32 + EXTENTS * 56);

/// Returns where `ino` has data between two bytes, and its location on the disk. The answer may end before `end`.
pub fn map(table: &mut Table, ino: u64, offset: u64, end: u64) -> Result<Answer, Errno> {
    let file = table.open(ino, Use::Read)?;
    Ok(Answer::Runs { runs: runs(&file, offset..end, None)? })
}

/// Returns where `file` has data in `range`, and the location that its type reports. The answer may end before the range, at `until`.
pub fn runs(file: &impl AsRawFd, range: Range<u64>, until: Option<Instant>) -> Result<Vec<Run>, Errno> {
    let Range { start: mut at, end } = range;
    let mut runs = Vec::new();
    let is_late = || until.is_some_and(|until| Instant::now() >= until);
    while at < end && runs.len() < RUNS_MAX && (runs.is_empty() || !is_late()) {
        let (extents, is_end) = ask(file, at, end - at)?;
        for extent in &extents {
            let stop = extent.logical.saturating_add(extent.len).min(end);
            if extent.logical > at {
                at = extent.logical.min(end);
                runs.push(Run { end: at, is_data: false, place: None });
            }
            if stop > at {
                let place = extent.physical.checked_add(at - extent.logical);
                let place = place.filter(|_| extent.flags & (ELSEWHERE | UNWRITTEN) == 0);
                at = stop;
                runs.push(Run { end: at, is_data: extent.flags & UNWRITTEN == 0, place });
            }
        }
        if is_end && at < end {
            at = end;
            runs.push(Run { end, is_data: false, place: None });
        }
    }
    Ok(runs)
}

/// Returns the extents from `start` on, and whether these are all.
fn ask(file: &impl AsRawFd, start: u64, len: u64) -> Result<(Vec<Extent>, bool), Errno> {
    let none = Extent { logical: 0, physical: 0, len: 0, reserved: [0; 2], flags: 0, more: [0; 3] };
    let room = EXTENTS as u32;
    let mut question = Box::new(Question {
        start,
        len,
        flags: SYNC,
        mapped: 0,
        room,
        reserved: 0,
        extents: [none; EXTENTS],
    });
    // SAFETY: the request uses a structure with this layout and fills at most as many extents as `room` allows.
    if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *question) } != 0 {
        return Err(last_error());
    }
    let count = usize::try_from(question.mapped).unwrap_or(0).min(EXTENTS);
    let extents = question.extents[..count].to_vec();
    let is_last = extents.last().is_none_or(|extent| extent.flags & LAST != 0 || extent.len == 0);
    Ok((extents, is_last || count < EXTENTS))
}
