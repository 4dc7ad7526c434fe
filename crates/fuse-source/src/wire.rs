//! The version and the flags of the client, and the values in its requests and in the replies.
//!
//! All integers have the byte order of the machine. Source: Linux include/uapi/linux/fuse.h, protocol 7.36.

use obento_base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode, Timestamp};
use obento_fuse_abi::RawAttr;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The minor number that is offered. A server answers with its own minor number, and the smaller one counts.
pub const MINOR: u32 = 36;
/// The oldest minor number whose structures these are: `struct fuse_init_out` of 7.23.
pub const MINOR_MIN: u32 = 12;
/// The longest name of an attribute, and its longest value.
pub const XATTR_MAX: u32 = 64 << 10;

/// Of the flags of INIT: requests that the server may get, and replies that it may send.
pub mod flag {
    pub const ASYNC_READ: u32 = 1 << 0;
    pub const EXPORT_SUPPORT: u32 = 1 << 4;
    pub const BIG_WRITES: u32 = 1 << 5;
    /// The caller has applied the umask. Some servers require this flag.
    pub const DONT_MASK: u32 = 1 << 6;
    pub const DO_READDIRPLUS: u32 = 1 << 13;
    pub const PARALLEL_DIROPS: u32 = 1 << 18;
    pub const NO_OPEN_SUPPORT: u32 = 1 << 17;
    pub const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
    /// The request has a second word of flags.
    pub const INIT_EXT: u32 = 1 << 30;
    pub const OFFERED: u32 = ASYNC_READ
        | EXPORT_SUPPORT
        | BIG_WRITES
        | DONT_MASK
        | DO_READDIRPLUS
        | PARALLEL_DIROPS
        | NO_OPEN_SUPPORT
        | NO_OPENDIR_SUPPORT
        | INIT_EXT;
}

/// The flags of open(2) that the requests about an open file contain.
pub mod open {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const READ_WRITE: u32 = 2;
    /// `O_CREAT | O_EXCL`
    pub const NEW: u32 = 0o100 | 0o200;
    /// `O_LARGEFILE`, which the kernel always sets; the server may look at it.
    pub const LARGE: u32 = 0o100_000;
}

/// `FALLOC_FL_*`
pub mod falloc {
    pub const KEEP_SIZE: u32 = 1 << 0;
    pub const PUNCH_HOLE: u32 = 1 << 1;
    pub const ZERO_RANGE: u32 = 1 << 4;
}

/// The part of `struct fuse_init_out` that every minor number has.
#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct InitReply {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub background: u32,
    pub max_write: u32,
}

const _: () = assert!(size_of::<InitReply>() == 24);

/// Returns the kind of the file, or `None` for a mode that no file has.
pub fn kind(attr: &RawAttr) -> Option<FileKind> {
    FileKind::from_mode(u16::try_from(attr.mode & 0o170_000).ok()?)
}

/// Returns the attributes of the inode `ino`.
pub fn decode(attr: &RawAttr, ino: Ino, generation: u64) -> Option<Attr> {
    let kind = kind(attr)?;
    let mode = Mode::new(u16::try_from(attr.mode & 0o7777).ok()?);
    let ctime = Timestamp::new(attr.ctime, attr.ctimensec);
    let rdev = decoded_device(attr.rdev);
    Some(Attr {
        ino,
        generation: Generation(u32::try_from(generation & 0xffff_ffff).ok()?),
        kind,
        mode,
        nlink: attr.nlink.max(1),
        uid: attr.uid,
        gid: attr.gid,
        rdev: if kind.is_device() { rdev } else { DeviceNumber::default() },
        size: attr.size,
        blocks: attr.blocks,
        block_size: attr.blksize.clamp(512, 1 << 20),
        atime: Timestamp::new(attr.atime, attr.atimensec),
        mtime: Timestamp::new(attr.mtime, attr.mtimensec),
        ctime,
        btime: None,
        flags: FileFlags::empty(),
        change: attr.ctime.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(attr.ctimensec.into()),
        project: 0,
    })
}

/// Decodes the number of a device: `new_decode_dev` of Linux. 12 bits of the minor number are above the major number.
fn decoded_device(rdev: u32) -> DeviceNumber {
    DeviceNumber { major: rdev >> 8 & 0xfff, minor: rdev & 0xff | rdev >> 12 & 0xf_ff00 }
}

/// Encodes the number of a device: `new_encode_dev` of Linux. Returns `None` if the number does not fit.
pub fn encoded_device(device: DeviceNumber) -> Option<u32> {
    let DeviceNumber { major, minor } = device;
    (major <= 0xfff && minor <= 0xf_ffff).then_some(minor & 0xff | major << 8 | (minor & 0xf_ff00) << 12)
}

/// Returns the structure at the start of a reply, and the rest.
pub fn take<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Option<(T, &[u8])> {
    T::read_from_prefix(bytes).ok()
}
