//! The structures of the protocol, from the kernel's side: requests are encoded, replies are decoded.
//!
//! All integers have the byte order of the machine. Source: Linux include/uapi/linux/fuse.h, protocol 7.36.

use obento_base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode, Timestamp};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol that is offered. A server answers with its own minor number, and the smaller one counts.
pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 36;
/// The oldest minor number whose structures these are: `struct fuse_init_out` of 7.23.
pub const MINOR_MIN: u32 = 12;
/// The number of the root.
pub const ROOT: u64 = 1;
/// The longest name of an attribute, and its longest value.
pub const XATTR_MAX: u32 = 64 << 10;

/// `enum fuse_opcode`
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const DESTROY: u32 = 38;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
}

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

/// `FATTR_*`: the attributes that SETATTR sets.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// `FALLOC_FL_*`
pub mod falloc {
    pub const KEEP_SIZE: u32 = 1 << 0;
    pub const PUNCH_HOLE: u32 = 1 << 1;
    pub const ZERO_RANGE: u32 = 1 << 4;
}

/// `FUSE_GETATTR_FH`: the request contains an open file.
pub const GETATTR_FH: u32 = 1;

#[derive(IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct OutHeader {
    pub len: u32,
    pub error: i32,
    pub unique: u64,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub flags2: u32,
    pub unused: [u32; 11],
}

/// The part of the reply that every minor number has.
#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub background: u32,
    pub max_write: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawAttr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub blksize: u32,
    pub padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct EntryOut {
    pub nodeid: u64,
    pub generation: u64,
    pub entry_valid: u64,
    pub attr_valid: u64,
    pub entry_valid_nsec: u32,
    pub attr_valid_nsec: u32,
    pub attr: RawAttr,
}

#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct AttrOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub dummy: u32,
    pub attr: RawAttr,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GetattrIn {
    pub flags: u32,
    pub dummy: u32,
    pub fh: u64,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OpenIn {
    pub flags: u32,
    pub open_flags: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenOut {
    pub fh: u64,
    pub open_flags: u32,
    pub padding: u32,
}

/// The requests READ, READDIR, READDIRPLUS and WRITE.
#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TransferIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub transfer_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ReleaseIn {
    pub fh: u64,
    pub flags: u32,
    pub release_flags: u32,
    pub lock_owner: u64,
}

/// The request FLUSH.
#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FlushIn {
    pub fh: u64,
    pub unused: u32,
    pub padding: u32,
    pub lock_owner: u64,
}

/// The requests FSYNC and FSYNCDIR.
#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FsyncIn {
    pub fh: u64,
    pub flags: u32,
    pub padding: u32,
}

/// The reply to WRITE.
#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct WriteOut {
    pub size: u32,
    pub padding: u32,
}

#[derive(IntoBytes, KnownLayout, Immutable, Default)]
#[repr(C)]
pub struct SetattrIn {
    pub valid: u32,
    pub padding: u32,
    pub fh: u64,
    pub size: u64,
    pub lock_owner: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub unused4: u32,
    pub uid: u32,
    pub gid: u32,
    pub unused5: u32,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MknodIn {
    pub mode: u32,
    pub rdev: u32,
    pub umask: u32,
    pub padding: u32,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MkdirIn {
    pub mode: u32,
    pub umask: u32,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CreateIn {
    pub flags: u32,
    pub mode: u32,
    pub umask: u32,
    pub open_flags: u32,
}

/// The request RENAME2. RENAME has only the directory.
#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Rename2In {
    pub newdir: u64,
    pub flags: u32,
    pub padding: u32,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FallocateIn {
    pub fh: u64,
    pub offset: u64,
    pub length: u64,
    pub mode: u32,
    pub padding: u32,
}

/// The request SETXATTR, without the part that `FUSE_SETXATTR_EXT` adds.
#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SetxattrIn {
    pub size: u32,
    pub flags: u32,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ForgetIn {
    pub nlookup: u64,
}

#[derive(IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GetxattrIn {
    pub size: u32,
    pub padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct Dirent {
    pub ino: u64,
    pub off: u64,
    pub namelen: u32,
    pub kind: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub struct StatfsOut {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
    pub padding: u32,
    pub spare: [u32; 6],
}

const _: () = assert!(size_of::<InHeader>() == 40);
const _: () = assert!(size_of::<OutHeader>() == 16);
const _: () = assert!(size_of::<InitOut>() == 24);
const _: () = assert!(size_of::<RawAttr>() == 88);
const _: () = assert!(size_of::<EntryOut>() == 128);
const _: () = assert!(size_of::<AttrOut>() == 104);
const _: () = assert!(size_of::<TransferIn>() == 40);
const _: () = assert!(size_of::<ReleaseIn>() == 24);
const _: () = assert!(size_of::<InitIn>() == 64);
const _: () = assert!(size_of::<SetattrIn>() == 88);
const _: () = assert!(size_of::<FallocateIn>() == 32);
const _: () = assert!(size_of::<Dirent>() == 24);
const _: () = assert!(size_of::<StatfsOut>() == 80);

impl RawAttr {
    /// Returns the kind of the file, or `None` for a mode that no file has.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(u16::try_from(self.mode & 0o170_000).ok()?)
    }

    /// Returns the attributes of the inode `ino`.
    pub fn decode(&self, ino: Ino, generation: u64) -> Option<Attr> {
        let kind = self.kind()?;
        let mode = Mode::new(u16::try_from(self.mode & 0o7777).ok()?);
        let ctime = Timestamp::new(self.ctime, self.ctimensec);
        let rdev = decoded_device(self.rdev);
        Some(Attr {
            ino,
            generation: Generation(u32::try_from(generation & 0xffff_ffff).ok()?),
            kind,
            mode,
            nlink: self.nlink.max(1),
            uid: self.uid,
            gid: self.gid,
            rdev: if kind.is_device() { rdev } else { DeviceNumber::default() },
            size: self.size,
            blocks: self.blocks,
            block_size: self.blksize.clamp(512, 1 << 20),
            atime: Timestamp::new(self.atime, self.atimensec),
            mtime: Timestamp::new(self.mtime, self.mtimensec),
            ctime,
            btime: None,
            flags: FileFlags::empty(),
            change: self.ctime.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(self.ctimensec.into()),
            project: 0,
        })
    }
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
