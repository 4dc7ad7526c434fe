//! Creating, removing and renaming.

use std::ffi::CString;
use std::os::fd::BorrowedFd;

use obento_linux_wire::{Answer, NewFile, Node};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Statx, Uid, chmodat, chownat, linkat, makedev,
    mkdirat, mknodat, openat, renameat_with, symlinkat, unlinkat,
};
use rustix::io::pwrite;

use super::attributes::set_times;
use super::errno::{Errno, number};
use super::ring::{Fresh, Ring};
use super::table::{Table, c_name, look};

/// Creates an inode in `dir`. If its owner or mode cannot be set, the inode is removed.
pub fn make(table: &mut Table, dir: u64, name: &[u8], node: &Node) -> Result<Answer, Errno> {
    let c_name = c_name(name)?;
    let place = table.place(dir)?;
    create(place, &c_name, node)?;
    if let Err(errno) = dress(place, &c_name, node) {
        let is_dir = kind(node) == FileType::Directory;
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(place, &c_name, flags).map_err(number)?;
        return Err(errno);
    }
    Ok(Answer::Node { stat: table.look(dir, name)? })
}

fn kind(node: &Node) -> FileType {
    FileType::from_raw_mode(u32::from(node.mode))
}

fn create(dir: BorrowedFd<'_>, name: &CString, node: &Node) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(u32::from(node.mode) & 0o7777);
    match kind(node) {
        FileType::Directory => mkdirat(dir, name, mode),
        FileType::Symlink => {
            let target = CString::new(node.target.clone()).map_err(|_| libc::EINVAL.unsigned_abs())?;
            symlinkat(target, dir, name)
        }
        kind => mknodat(dir, name, kind, mode, makedev(node.major, node.minor)),
    }
    .map_err(number)
}

/// Sets owner and mode as requested: the kernel chooses them by its own rules, for example the group of a set-group-ID directory.
fn dress(dir: BorrowedFd<'_>, name: &CString, node: &Node) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(node.uid), Gid::from_raw(node.gid));
    match chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
        // A type that stores no owners refuses all except its own.
        Err(rustix::io::Errno::PERM | rustix::io::Errno::OPNOTSUPP) if node.uid == 0 && node.gid == 0 => {}
        other => other.map_err(number)?,
    }
    if kind(node) == FileType::Symlink {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(u32::from(node.mode) & 0o7777);
    chmodat(dir, name, mode, AtFlags::empty()).map_err(number)
}

/// The files to create.
pub struct NewFiles<'a> {
    /// The directory.
    pub dir: u64,
    pub files: &'a [NewFile],
    /// The contents, concatenated.
    pub bytes: &'a [u8],
    /// Whether open files, or recently closed ones, may have reserved space.
    pub sets_aside: bool,
}

/// Creates files. An incomplete file is removed. Files without space are tried again one by one if other files can release space.
pub fn make_files(table: &mut Table, ring: &mut Ring, new: &NewFiles<'_>) -> Result<Answer, Errno> {
    let NewFiles { dir, files, bytes: mut rest, sets_aside } = *new;
    let fresh = files.iter().map(|file| {
        let bytes = usize::try_from(file.len).ok().and_then(|len| rest.split_off(..len));
        let (name, bytes) = (c_name(&file.name)?, bytes.ok_or(libc::EINVAL.unsigned_abs())?);
        Ok(Fresh { name, mode: u32::from(file.mode & 0o7777), bytes })
    });
    let fresh = fresh.collect::<Result<Vec<_>, Errno>>()?;
    let mut errnos = make_at_once(table.place(dir)?, ring, files, &fresh);
    let no_room = libc::ENOSPC.unsigned_abs();
    if !sets_aside || !errnos.contains(&no_room) {
        return Ok(Answer::Made { errnos });
    }
    ring.close_files();
    table.close_files();
    let place = table.place(dir)?;
    for ((file, fresh), errno) in files.iter().zip(&fresh).zip(&mut errnos) {
        if *errno == no_room {
            let made =
                fresh.create(place).and_then(|()| finish(place, file, fresh, (0, look(place, &fresh.name))));
            *errno = made.err().unwrap_or(0);
        }
    }
    Ok(Answer::Made { errnos })
}

/// Returns the result for each file: 0, or an error number.
fn make_at_once(dir: BorrowedFd<'_>, ring: &mut Ring, files: &[NewFile], fresh: &[Fresh<'_>]) -> Vec<Errno> {
    let written = ring.make(dir, fresh);
    let names: Vec<_> = fresh.iter().map(|file| file.name.as_c_str()).collect();
    let found = ring.look(dir, &names);
    let made = files.iter().zip(fresh).zip(written.into_iter().zip(found));
    let errnos = made.map(|((file, fresh), (written, found))| {
        written.and_then(|len| finish(dir, file, fresh, (len, found))).err().unwrap_or(0)
    });
    errnos.collect()
}

/// Writes the rest of a new file, and sets its owner, mode and times.
fn finish(
    dir: BorrowedFd<'_>,
    file: &NewFile,
    fresh: &Fresh<'_>,
    (written, found): (usize, Result<Statx, Errno>),
) -> Result<(), Errno> {
    let finish = || {
        write_rest(dir, fresh, written)?;
        let found = found?;
        let has = (u32::from(found.stx_mode) & 0o7777, found.stx_uid, found.stx_gid);
        if has != (fresh.mode, file.uid, file.gid) {
            let node = Node { mode: file.mode, uid: file.uid, gid: file.gid, ..Node::default() };
            dress(dir, &fresh.name, &node)?;
        }
        set_times(dir, &fresh.name, &file.times)
    };
    finish().inspect_err(|_| {
        // The error that prevented the completion is returned.
        let _ = unlinkat(dir, &fresh.name, AtFlags::empty());
    })
}

fn write_rest(dir: BorrowedFd<'_>, fresh: &Fresh<'_>, mut done: usize) -> Result<(), Errno> {
    if done == fresh.bytes.len() {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(dir, &fresh.name, flags, Mode::empty()).map_err(number)?;
    while done < fresh.bytes.len() {
        match pwrite(&file, &fresh.bytes[done..], done as u64).map_err(number)? {
            0 => return Err(libc::ENOSPC.unsigned_abs()),
            len => done += len,
        }
    }
    Ok(())
}

/// Adds a name for `ino`.
pub fn link(table: &mut Table, ino: u64, dir: u64, name: &[u8]) -> Result<Answer, Errno> {
    linkat(CWD, table.path(ino)?, table.place(dir)?, &c_name(name)?, AtFlags::SYMLINK_FOLLOW)
        .map_err(number)?;
    Ok(Answer::Node { stat: table.stat(ino)? })
}

/// Removes a name.
pub fn unlink(table: &Table, dir: u64, name: &[u8], is_dir: bool) -> Result<Answer, Errno> {
    let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(table.place(dir)?, &c_name(name)?, flags).map_err(number)?;
    Ok(Answer::Done {})
}

/// Renames.
pub fn rename(
    table: &Table,
    (from, name): (u64, &[u8]),
    (to, new_name): (u64, &[u8]),
    flags: u32,
) -> Result<Answer, Errno> {
    let flags = RenameFlags::from_bits_retain(flags);
    let (name, new_name) = (c_name(name)?, c_name(new_name)?);
    renameat_with(table.place(from)?, &name, table.place(to)?, &new_name, flags).map_err(number)?;
    Ok(Answer::Done {})
}
