//! Attributes, including extended ones.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use obento_linux_wire::{Answer, Moment, Stat, Times, Usage};
use rustix::fs::{
    AtFlags, CWD, Gid, IFlags, Mode, SeekFrom, Statx, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
    chmodat, chownat, fstatfs, getxattr, ioctl_setflags, listxattr, removexattr, seek, setxattr, utimensat,
};

use super::errno::{Errno, number};
use super::table::{Table, Use};

/// The most bytes of an attribute's value, and of the names of all attributes: include/uapi/linux/limits.h `XATTR_SIZE_MAX`, `XATTR_LIST_MAX`.
const XATTR_MAX: usize = 64 << 10;
/// The flags of immutable files.
const LOCKS: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND);
/// A smaller limit of the size of a file exists in no type of Linux.
const SMALLEST_MAX: u64 = 1 << 24;

/// Converts the result of `statx` for the wire.
pub fn stat_of(ino: u64, found: &Statx) -> Stat {
    let moment = |at: rustix::fs::StatxTimestamp| Moment { seconds: at.tv_sec, nanos: at.tv_nsec };
    let has_birth = found.stx_mask & rustix::fs::StatxFlags::BTIME.bits() != 0;
    Stat {
        ino,
        mode: found.stx_mode,
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        major: found.stx_rdev_major,
        minor: found.stx_rdev_minor,
        size: found.stx_size,
        blocks: found.stx_blocks,
        block_size: found.stx_blksize,
        flags: u32::try_from(found.stx_attributes.bits()).unwrap_or(0),
        atime: moment(found.stx_atime),
        mtime: moment(found.stx_mtime),
        ctime: moment(found.stx_ctime),
        btime: has_birth.then(|| moment(found.stx_btime)),
    }
}

/// The attributes to change.
pub struct Change {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub times: Times,
    pub flags: Option<u32>,
}

/// Changes attributes of `ino`, and returns them.
pub fn set(table: &mut Table, ino: u64, change: &Change) -> Result<Answer, Errno> {
    let path = table.path(ino)?;
    if change.uid.is_some() || change.gid.is_some() {
        let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
        chownat(table.place(ino)?, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(number)?;
    }
    // After the owner, since a change of the owner clears the set-user-ID bits.
    if let Some(mode) = change.mode {
        chmodat(CWD, &path, Mode::from_raw_mode(u32::from(mode)), AtFlags::empty()).map_err(number)?;
    }
    // Times of an immutable file cannot be set, so the flag is set last and cleared first.
    let locks = change.flags.is_some_and(|flags| IFlags::from_bits_retain(flags).intersects(LOCKS));
    if locks {
        set_times(table.place(ino)?, c"", &change.times)?;
        set_flags(table, ino, change.flags)?;
    } else {
        set_flags(table, ino, change.flags)?;
        set_times(table.place(ino)?, c"", &change.times)?;
    }
    Ok(Answer::Node { stat: table.stat(ino)? })
}

fn set_flags(table: &mut Table, ino: u64, flags: Option<u32>) -> Result<(), Errno> {
    let Some(flags) = flags else { return Ok(()) };
    // Only for files and directories: opening a pipe would wait for a writer.
    match ioctl_setflags(table.open(ino, Use::Read)?, IFlags::from_bits_retain(flags)) {
        // A type without flags ignores them, as our own drivers do.
        Err(rustix::io::Errno::NOTTY) => Ok(()),
        done => done.map_err(number),
    }
}

/// Sets the times of `name` in `at`, or of `at` itself.
pub fn set_times(at: BorrowedFd<'_>, name: &CStr, times: &Times) -> Result<(), Errno> {
    if times.atime.is_none() && times.mtime.is_none() {
        return Ok(());
    }
    let stamps = Timestamps {
        last_access: timespec(times.atime.as_ref()),
        last_modification: timespec(times.mtime.as_ref()),
    };
    utimensat(at, name, &stamps, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW).map_err(number)
}

fn timespec(moment: Option<&Moment>) -> Timespec {
    match moment {
        Some(moment) => Timespec { tv_sec: moment.seconds, tv_nsec: i64::from(moment.nanos) },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    }
}

/// Returns the value of an attribute.
pub fn get_xattr(table: &Table, ino: u64, name: &[u8]) -> Result<Answer, Errno> {
    let mut value = vec![0; XATTR_MAX];
    let len = getxattr(table.path(ino)?, name, &mut value[..]).map_err(number)?;
    value.truncate(len);
    Ok(Answer::Bytes { bytes: value })
}

/// Returns the names of all attributes.
pub fn list_xattrs(table: &Table, ino: u64) -> Result<Answer, Errno> {
    let mut names = vec![0; XATTR_MAX];
    let len = match listxattr(table.path(ino)?, &mut names[..]) {
        Ok(len) => len,
        // A type without attributes has an empty list.
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(number(errno)),
    };
    names.truncate(len);
    Ok(Answer::Bytes { bytes: names })
}

/// Sets an attribute.
pub fn set_xattr(table: &Table, ino: u64, name: &[u8], value: &[u8], flags: u32) -> Result<Answer, Errno> {
    setxattr(table.path(ino)?, name, value, XattrFlags::from_bits_retain(flags)).map_err(number)?;
    Ok(Answer::Done {})
}

/// Removes an attribute.
pub fn remove_xattr(table: &Table, ino: u64, name: &[u8]) -> Result<Answer, Errno> {
    removexattr(table.path(ino)?, name).map_err(number)?;
    Ok(Answer::Done {})
}

/// Returns the usage of the volume.
pub fn usage(table: &mut Table, root: u64) -> Result<Usage, Errno> {
    let found = fstatfs(table.open(root, Use::Read)?).map_err(number)?;
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    Ok(Usage {
        block_size: u32::try_from(if found.f_frsize > 0 { found.f_frsize } else { found.f_bsize })
            .unwrap_or(0),
        blocks: found.f_blocks,
        free: found.f_bfree,
        available: found.f_bavail,
        inodes: found.f_files,
        free_inodes: found.f_ffree,
        name_max: u32::try_from(count(found.f_namelen)).unwrap_or(0),
    })
}

/// Returns the largest size of a file of the volume. No system call reports it, so it is the largest offset that can be set
/// for the root, with few exceptions. Source: Linux, fs/read_write.c `generic_file_llseek`.
pub fn file_size_max(table: &mut Table, root: u64) -> Result<u64, Errno> {
    let root = table.open(root, Use::Read)?;
    let may = |size: u64| seek(root, SeekFrom::Start(size)).is_ok();
    let (mut low, mut high) = (0, i64::MAX.unsigned_abs());
    // An exception: the root accepts only positions of entries.
    if may(high) || !may(SMALLEST_MAX) {
        return Ok(high);
    }
    while low < high {
        let middle = high - (high - low) / 2;
        (low, high) = if may(middle) { (middle, high) } else { (low, middle - 1) };
    }
    Ok(low)
}
