//! The types that both sides of the border use: `c/obento.h` declares the same.

use core::ffi::c_void;

use obento_base::wire::to_u64;
use obento_base::{Attr, Error, FileFlags, Mode, Name, Result, Timestamp};
use obento_driver::{
    DataMode, Extent, Journalling, OpenOptions, Replay, SetAttr, Span, TimeChange, VolumeOptions,
};

/// The result of a call that returns no count: 0, or a negative error number.
pub(crate) type Status = i32;

/// A point in time.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Moment {
    secs: i64,
    nanos: u32,
    valid: u32,
}

impl From<Timestamp> for Moment {
    fn from(time: Timestamp) -> Self {
        Self { secs: time.secs(), nanos: time.nanos(), valid: 1 }
    }
}

impl Moment {
    pub(crate) fn change(self) -> TimeChange {
        TimeChange::At(Timestamp::new(self.secs, self.nanos))
    }
}

/// The attributes of an inode.
#[repr(C)]
pub struct Attributes {
    ino: u64,
    size: u64,
    blocks: u64,
    atime: Moment,
    mtime: Moment,
    ctime: Moment,
    btime: Moment,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    major: u32,
    minor: u32,
    generation: u32,
    flags: u32,
    project: u32,
    pad: u32,
}

impl From<Attr> for Attributes {
    fn from(attr: Attr) -> Self {
        Self {
            ino: attr.ino.0,
            size: attr.size,
            blocks: attr.blocks,
            atime: attr.atime.into(),
            mtime: attr.mtime.into(),
            ctime: attr.ctime.into(),
            btime: attr.btime.map(Moment::from).unwrap_or_default(),
            mode: u32::from(attr.st_mode()),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            major: attr.rdev.major,
            minor: attr.rdev.minor,
            generation: attr.generation.0,
            flags: attr.flags.bits(),
            project: attr.project,
            pad: 0,
        }
    }
}

/// An extent of a file.
#[repr(C)]
pub struct Place {
    kind: u32,
    pad: u32,
    at: u64,
    len: u64,
}

/// The kinds of a [`Place`].
const MAPPED: u32 = 0;
const HOLE: u32 = 1;
const UNWRITTEN: u32 = 2;
const DRIVER: u32 = 3;

impl From<Extent> for Place {
    fn from(extent: Extent) -> Self {
        let (kind, at) = match extent.span {
            Span::Mapped(at) => (MAPPED, at),
            Span::Hole => (HOLE, 0),
            Span::Unwritten => (UNWRITTEN, 0),
            Span::Driver => (DRIVER, 0),
        };
        Self { kind, pad: 0, at, len: extent.len }
    }
}

/// Limits and usage of a volume.
#[repr(C)]
#[derive(Default)]
pub struct Usage {
    pub(crate) block_size: u64,
    pub(crate) blocks: u64,
    pub(crate) free: u64,
    pub(crate) available: u64,
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
    pub(crate) name_max: u64,
    pub(crate) size_max: u64,
    pub(crate) granularity: u64,
    pub(crate) link_max: u64,
    pub(crate) id: u64,
    /// Bits of [`Usage::XATTRS`] and so on.
    pub(crate) features: u64,
}

impl Usage {
    /// The volume has extended attributes.
    pub(crate) const XATTRS: u64 = 1;
    /// The volume has files without a name.
    pub(crate) const NAMELESS: u64 = 2;
    /// Files have holes.
    pub(crate) const HOLES: u64 = 4;
    /// Only the driver can access data.
    pub(crate) const THROUGH: u64 = 8;
    /// The volume can discard free space.
    pub(crate) const TRIM: u64 = 16;
}

/// The attributes to change: bits of `valid` select them.
#[repr(C)]
pub struct Change {
    valid: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    flags: u32,
    project: u32,
    atime: Moment,
    mtime: Moment,
}

impl Change {
    pub(crate) fn set_attr(&self) -> SetAttr {
        let has = |bit: u32| self.valid & bit != 0;
        SetAttr {
            mode: has(1).then(|| mode(self.mode)),
            uid: has(2).then_some(self.uid),
            gid: has(4).then_some(self.gid),
            atime: has(8).then(|| self.atime.change()),
            mtime: has(16).then(|| self.mtime.change()),
            flags: has(32).then(|| FileFlags::from_bits_retain(self.flags)),
            project: has(64).then_some(self.project),
            ..SetAttr::default()
        }
    }
}

/// The attributes of a new inode.
#[repr(C)]
pub struct Node {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) pad: u32,
    /// Target of a symbolic link.
    pub(crate) target: Bytes,
}

/// Mount options.
#[repr(C)]
pub struct MountOptions {
    /// Selects the values that the user gave, and the options without a value.
    flags: u32,
    data: u32,
    commit_secs: u32,
    uid: u32,
    gid: u32,
    file_mask: u32,
    dir_mask: u32,
    code_page: u32,
    time_offset: i32,
    pub(crate) type_index: u32,
    super_block: u64,
    /// Identifies the boot of the machine.
    pub(crate) boot: [u8; 16],
}

impl MountOptions {
    const READ_ONLY: u32 = 1;
    const NO_REPLAY: u32 = 2;
    const NO_BARRIER: u32 = 4;
    const DISCARD: u32 = 8;
    const KEEP_LAST_DOTS: u32 = 16;
    const COMMIT: u32 = 32;
    const UID: u32 = 64;
    const GID: u32 = 128;
    const FILE_MASK: u32 = 256;
    const DIR_MASK: u32 = 512;
    const CODE_PAGE: u32 = 1024;
    const TIME_OFFSET: u32 = 2048;
    const SUPER_BLOCK: u32 = 4096;
    const PROVENANCE: u32 = 8192;
    const SHOW_PROVENANCE: u32 = 16384;

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.has(Self::READ_ONLY)
    }

    /// Whether the history of the volume is recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.has(Self::PROVENANCE | Self::SHOW_PROVENANCE)
    }

    /// Whether the directory of the history is visible.
    pub(crate) fn shows_history(&self) -> bool {
        self.has(Self::SHOW_PROVENANCE)
    }

    /// Applies the options to `open`.
    pub(crate) fn apply(&self, open: &mut OpenOptions) {
        if self.has(Self::NO_REPLAY) {
            open.replay = Replay::Skip;
        }
        open.super_block = self.has(Self::SUPER_BLOCK).then_some(self.super_block);
        open.journalling = Journalling {
            mode: match self.data {
                1 => DataMode::Journal,
                2 => DataMode::Writeback,
                _ => DataMode::Ordered,
            },
            barrier: !self.has(Self::NO_BARRIER),
            ..Journalling::default()
        };
        if self.has(Self::COMMIT) {
            open.journalling.commit_interval = core::time::Duration::from_secs(self.commit_secs.into());
        }
        open.shown = VolumeOptions {
            uid: self.has(Self::UID).then_some(self.uid),
            gid: self.has(Self::GID).then_some(self.gid),
            file_mask: self.has(Self::FILE_MASK).then(|| mode(self.file_mask)),
            dir_mask: self.has(Self::DIR_MASK).then(|| mode(self.dir_mask)),
            code_page: u16::try_from(self.code_page).ok().filter(|_| self.has(Self::CODE_PAGE)),
            time_offset: i16::try_from(self.time_offset).ok().filter(|_| self.has(Self::TIME_OFFSET)),
            keep_last_dots: self.has(Self::KEEP_LAST_DOTS),
            discard: self.has(Self::DISCARD),
            ..VolumeOptions::default()
        };
    }
}

/// Bytes that C lends for the time of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    at: *const u8,
    len: usize,
}

impl Bytes {
    /// # Safety
    ///
    /// C keeps the bytes alive and unchanged during the call.
    pub(crate) unsafe fn get<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the promise of the caller.
        unsafe { core::slice::from_raw_parts(self.at, self.len) }
    }

    /// Returns the bytes as a name.
    ///
    /// # Safety
    ///
    /// As for [`get`](Self::get).
    pub(crate) unsafe fn name<'a>(self) -> Result<&'a Name> {
        // SAFETY: the promise of the caller.
        Name::new(unsafe { self.get() }).map_err(|_| Error::Invalid)
    }
}

/// Numbers in memory of C, which are valid during a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Numbers {
    at: *const u64,
    len: usize,
}

impl Numbers {
    /// # Safety
    ///
    /// C keeps the numbers alive and unchanged during the call.
    pub(crate) unsafe fn get<'a>(self) -> &'a [u64] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the promise of the caller.
        unsafe { core::slice::from_raw_parts(self.at, self.len) }
    }
}

/// A buffer that C lends for the time of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Buffer {
    at: *mut u8,
    len: usize,
}

impl Buffer {
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// # Safety
    ///
    /// C keeps the buffer alive during the call and does not use it.
    pub(crate) unsafe fn get<'a>(self) -> &'a mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: the promise of the caller.
        unsafe { core::slice::from_raw_parts_mut(self.at, self.len) }
    }

    /// Copies `bytes` as getxattr(2) does: a buffer without room asks for the length.
    ///
    /// # Safety
    ///
    /// As for [`get`](Self::get).
    pub(crate) unsafe fn take(self, bytes: &[u8]) -> Result<usize> {
        if self.len > 0 {
            // SAFETY: the promise of the caller.
            let room = unsafe { self.get() };
            room.get_mut(..bytes.len()).ok_or(Error::OutOfRange)?.copy_from_slice(bytes);
        }
        Ok(bytes.len())
    }
}

/// A function of C that takes one directory entry and returns whether it has room for more.
pub(crate) type Emit = unsafe extern "C" fn(*mut c_void, Bytes, ino: u64, kind: u32, next: u64) -> bool;

/// A function of C that copies the bytes. It returns 0, or a negative error number.
pub(crate) type Take = unsafe extern "C" fn(*mut c_void, Bytes) -> Status;

/// Returns the bytes of a slice in the form for C.
pub(crate) fn lend(bytes: &[u8]) -> Bytes {
    Bytes { at: bytes.as_ptr(), len: bytes.len() }
}

pub(crate) fn mode(bits: u32) -> Mode {
    Mode::new(u16::try_from(bits & 0o7777).unwrap_or_default())
}

/// Returns a count as C expects it.
pub(crate) fn count(len: usize) -> i64 {
    i64::try_from(to_u64(len)).unwrap_or(i64::MAX)
}
