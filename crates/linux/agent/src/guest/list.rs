//! Listing a directory, attributes and all.

use std::mem::MaybeUninit;

use obento_linux_wire::{Answer, Entry, REPLY_MAX};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, openat, seek};

use super::table::Table;
use super::{Errno, number};

/// What an entry takes in a reply besides its name, at most.
const ENTRY: usize = 192;

/// The entries of `dir` from `from` on, as many as a reply holds.
pub fn list(table: &mut Table, dir: u64, from: u64) -> Result<Answer, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(table.place(dir)?, c".", flags, Mode::empty()).map_err(number)?;
    if from > 0 {
        seek(&folder, SeekFrom::Start(from)).map_err(number)?;
    }
    let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
    let mut names = RawDir::new(&folder, &mut buffer);
    let (mut entries, mut len) = (Vec::new(), 0);
    while let Some(found) = names.next() {
        let found = match found {
            Ok(found) => found,
            // What was listed before the damage is worth having; the next request meets the damage again.
            Err(_) if !entries.is_empty() => return Ok(Answer::Entries { entries, is_end: false }),
            Err(errno) => return Err(number(errno)),
        };
        let name = found.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let (stat, errno) = match table.glance(&folder, name) {
            Ok(stat) => (Some(stat), 0),
            Err(errno) => (None, errno),
        };
        len += ENTRY + name.to_bytes().len();
        entries.push(Entry { name: name.to_bytes().to_vec(), next: found.next_entry_cookie(), stat, errno });
        if len + ENTRY + 1024 > REPLY_MAX {
            return Ok(Answer::Entries { entries, is_end: false });
        }
    }
    Ok(Answer::Entries { entries, is_end: true })
}
