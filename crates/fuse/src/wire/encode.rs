//! What the server says, in `fuser`'s words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyEmpty, ReplyXattr, TimeOrNow};
use obento::{Attr, FileKind, Timestamp};

use crate::attr::encode_device;
use crate::server::Time;

pub(super) fn errno(errno: obento::Errno) -> Errno {
    Errno::from_i32(errno.0)
}

pub(super) fn kind(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

pub(super) fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos().into());
    let whole = Duration::from_secs(time.secs().unsigned_abs());
    let second = if time.secs() < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second.and_then(|second| second.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// `fuser` makes of seconds before 1970 and nanoseconds a moment that lies before by both; this takes them apart again.
pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp::new(after.as_secs().try_into().unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).map_or(i64::MIN, |secs| -secs);
            Timestamp::new(secs, before.subsec_nanos())
        }
    }
}

pub(super) fn time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::Now => Time::Now,
        TimeOrNow::SpecificTime(time) => Time::At(timestamp(time)),
    }
}

/// `ino` is what the kernel calls the inode, and what programs see as its number.
pub(super) fn file_attr(attr: &Attr, ino: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(attr.kind),
        perm: attr.mode.bits(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: encode_device(attr.rdev),
        blksize: attr.block_size,
        flags: 0,
    }
}

pub(super) fn generation(attr: &Attr) -> Generation {
    Generation(attr.generation.0.into())
}

/// Number 0: the name leads nowhere, which may be remembered.
pub(super) const NOWHERE: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};

pub(super) fn empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

pub(super) fn xattr(value: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Err(error) => reply.error(error),
        Ok(value) if size == 0 => reply.size(value.len().try_into().unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}
