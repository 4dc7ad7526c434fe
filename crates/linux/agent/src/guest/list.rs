//! Lists a directory with attributes.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use obento_linux_wire::{Answer, Entry, REPLY_MAX};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, openat, seek};

use super::errno::{Errno, number};
use super::ring::Ring;
use super::table::Table;

/// The most bytes of an entry in a reply, without its name.
const ENTRY: usize = 192;

/// A name, the inode number in the directory, and the position after it.
struct Found {
    name: CString,
    ino: u64,
    next: u64,
}

/// Returns the entries of `dir` from `from` on, as many as fit in a reply.
pub fn list(table: &mut Table, ring: &mut Ring, dir: u64, from: u64) -> Result<Answer, Errno> {
    let folder = open(table.place(dir)?)?;
    if from > 0 {
        seek(&folder, SeekFrom::Start(from)).map_err(number)?;
    }
    let (found, is_end) = read_names(&folder)?;
    let names: Vec<_> = found.iter().map(|found| found.name.as_c_str()).collect();
    let stats = ring.look(folder.as_fd(), &names);
    let entries = found.into_iter().zip(stats).map(|(Found { name, ino, next }, stat)| {
        let (stat, errno) = match stat.and_then(|stat| table.expect_named(&stat, ino).map(|()| stat)) {
            Ok(stat) => (Some(table.glance(&folder, &name, &stat)), 0),
            Err(errno) => (None, errno),
        };
        Entry { name: name.into_bytes(), next, stat, errno }
    });
    Ok(Answer::Entries { entries: entries.collect(), is_end })
}

/// More entries than a directory without a cycle can have.
const LISTED: usize = 1 << 20;

/// Returns the inode number of the entry `name` in `dir`. Fails with ENOENT, and with EIO for an endless directory.
pub fn listed(dir: impl AsFd, name: &CStr) -> Result<u64, Errno> {
    let folder = open(dir)?;
    let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
    let mut names = RawDir::new(&folder, &mut buffer);
    for _ in 0..LISTED {
        let Some(found) = names.next() else { return Err(libc::ENOENT.unsigned_abs()) };
        let found = found.map_err(number)?;
        if found.file_name() == name {
            return Ok(found.ino());
        }
    }
    Err(libc::EIO.unsigned_abs())
}

fn open(dir: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(dir, c".", flags, Mode::empty()).map_err(number)
}

/// Returns the following names, as many as fit in a reply, and whether no further names exist.
fn read_names(folder: &OwnedFd) -> Result<(Vec<Found>, bool), Errno> {
    let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
    let mut names = RawDir::new(folder, &mut buffer);
    let (mut all, mut len) = (Vec::new(), 0);
    while let Some(found) = names.next() {
        let found = match found {
            Ok(found) => found,
            // The entries before the damage are useful; the next request meets the damage again.
            Err(_) if !all.is_empty() => return Ok((all, false)),
            Err(errno) => return Err(number(errno)),
        };
        let name = found.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        len += ENTRY + name.to_bytes().len();
        all.push(Found { name: name.to_owned(), ino: found.ino(), next: found.next_entry_cookie() });
        if len + ENTRY + 1024 > REPLY_MAX {
            return Ok((all, false));
        }
    }
    Ok((all, true))
}
