//! Conversion of the server's results to structures of the protocol.

use std::time::Duration;

use obento_base::{Attr, FileFlags, FileKind, Timestamp};

use super::abi::{AttrOut, EntryOut, RawAttr, Statx, StatxOut, StatxTime};
use crate::attr::encode_device;
use crate::server::Found;

/// The times for which the kernel may cache an entry and its attributes.
#[derive(Clone, Copy)]
pub(super) struct Validity {
    pub name: Duration,
    pub attr: Duration,
}

/// Returns the type of a directory entry, such as `DT_REG`: the upper four bits of the mode.
pub(super) fn kind(kind: FileKind) -> u32 {
    u32::from(kind.mode_bits()) >> 12
}

/// Encodes the attributes that programs see. The inode number is that of the volume, not the node ID.
pub(super) fn attr(attr: &Attr) -> RawAttr {
    RawAttr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.secs(),
        mtime: attr.mtime.secs(),
        ctime: attr.ctime.secs(),
        atimensec: attr.atime.nanos(),
        mtimensec: attr.mtime.nanos(),
        ctimensec: attr.ctime.nanos(),
        mode: attr.st_mode().into(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: encode_device(attr.rdev),
        blksize: attr.block_size,
        flags: 0,
    }
}

pub(super) fn attr_out(of: &Attr, valid: Duration) -> AttrOut {
    AttrOut { attr_valid: valid.as_secs(), attr_valid_nsec: valid.subsec_nanos(), dummy: 0, attr: attr(of) }
}

/// The flags that are attributes of statx(2), with the same values. Source: Linux include/uapi/linux/stat.h.
const STATX_ATTRIBUTES: FileFlags = FileFlags::COMPRESS
    .union(FileFlags::IMMUTABLE)
    .union(FileFlags::APPEND)
    .union(FileFlags::NO_DUMP)
    .union(FileFlags::ENCRYPTED)
    .union(FileFlags::VERITY);

pub(super) fn statx_out(of: &Attr, valid: Duration) -> StatxOut {
    let time = |time: Timestamp| StatxTime { tv_sec: time.secs(), tv_nsec: time.nanos(), reserved: 0 };
    let btime_mask = if of.btime.is_some() { libc::STATX_BTIME } else { 0 };
    StatxOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        stat: Statx {
            mask: libc::STATX_BASIC_STATS | btime_mask,
            blksize: of.block_size,
            attributes: of.flags.intersection(STATX_ATTRIBUTES).bits().into(),
            attributes_mask: STATX_ATTRIBUTES.bits().into(),
            nlink: of.nlink,
            uid: of.uid,
            gid: of.gid,
            mode: of.st_mode(),
            ino: of.ino.0,
            size: of.size,
            blocks: of.blocks,
            atime: time(of.atime),
            btime: of.btime.map(time).unwrap_or_default(),
            ctime: time(of.ctime),
            mtime: time(of.mtime),
            rdev_major: of.rdev.major,
            rdev_minor: of.rdev.minor,
            ..Statx::default()
        },
        ..StatxOut::default()
    }
}

pub(super) fn entry_out(found: &Found, valid: Validity) -> EntryOut {
    EntryOut {
        nodeid: found.id,
        generation: found.attr.generation.0.into(),
        entry_valid: valid.name.as_secs(),
        attr_valid: valid.attr.as_secs(),
        entry_valid_nsec: valid.name.subsec_nanos(),
        attr_valid_nsec: valid.attr.subsec_nanos(),
        attr: attr(&found.attr),
    }
}

/// Encodes a name that does not exist, by node ID 0. The kernel may cache that for `valid`.
pub(super) fn nowhere(valid: Duration) -> EntryOut {
    EntryOut { entry_valid: valid.as_secs(), entry_valid_nsec: valid.subsec_nanos(), ..EntryOut::default() }
}

/// Decodes a time. Nanoseconds count forwards also for times before 1970.
pub(super) fn timestamp(secs: i64, nanos: u32) -> Timestamp {
    Timestamp::new(secs, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_of_directories() {
        let known = [(FileKind::Regular, libc::DT_REG), (FileKind::Socket, libc::DT_SOCK)];
        assert!(known.into_iter().all(|(of, number)| kind(of) == u32::from(number)));
    }
}
