//! Files that are open as handles (`O_PATH`): opening them, and changing the metadata of links and nodes.
//!
//! Linux changes the metadata of a handle only through a path: the empty path, or the path of the descriptor below
//! `/proc`. seccomp compares the addresses of paths, not their bytes. These paths therefore have fixed addresses, as do
//! the flags with which a handle is opened.
//! Invariant: the bytes at these addresses do not change. They are on pages of their own, which are read-only, and a
//! sandbox allows no call that could replace or unlock the pages.
//!
//! Source: open(2) `O_PATH`, openat2(2), seccomp(2), proc_pid_fd(5).

use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Gid, MemfdFlags, Mode, OFlags, ResolveFlags, Timestamps, Uid, XattrFlags};
use rustix::io::{DupFlags, Errno};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// The preferred address. On all 64-bit architectures, programs, heaps and stacks are elsewhere.
const ADDRESS: u64 = 64 << 30;
/// No heap grows so far from below.
const BELOW: u64 = ADDRESS / 2;
/// The largest page of Linux.
const LEN: usize = 64 << 10;
/// The offset of the empty path.
const EMPTY: usize = 0;
/// The offsets of `struct open_how`, by [`HandleOf`].
const HOW: [usize; 2] = [64, 128];
/// The offset of the path of [`Fixed::taken`].
const TAKEN: usize = 192;
/// The length of `struct open_how` in [`HOW`].
const HOW_LEN: usize = 24;

/// The restrictions of a file that is opened by its name in a directory.
pub(crate) const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The kind of file that a handle is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandleOf {
    /// Any file. A symbolic link is opened itself.
    Any,
    /// A directory.
    Directory,
}

impl HandleOf {
    fn flags(self) -> OFlags {
        let handle = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if self == Self::Directory { handle | OFlags::DIRECTORY } else { handle }
    }
}

/// The addresses that a filter of system calls compares.
pub(crate) struct FixedAddresses {
    /// The empty path.
    pub empty: usize,
    /// The path of the descriptor on which metadata is changed.
    pub taken: usize,
    /// The flags of handles; empty without openat2(2).
    pub how: Vec<usize>,
    /// The pages that contain them, or `None` if their address could not be chosen.
    pub pages: Option<FixedPages>,
}

/// Pages that must stay as they are. Their start is twice `below`, so that a range that starts below `below` and is no
/// longer than that ends before them.
#[derive(Clone, Copy)]
pub(crate) struct FixedPages {
    /// No mapping of the process is between this address and the pages.
    pub below: u64,
    /// The end of the pages.
    pub end: u64,
}

struct Fixed {
    /// [`LEN`] bytes that live as long as the process.
    bytes: &'static [u8],
    is_chosen: bool,
    /// The descriptor that the path at [`TAKEN`] names.
    taken: Mutex<OwnedFd>,
    /// The file that `taken` refers to between changes, so that no other file stays open.
    unused: OwnedFd,
    has_openat2: bool,
}

/// Returns the addresses for a filter of system calls. Fails if the system has too few descriptors.
pub(crate) fn addresses() -> Result<FixedAddresses, Errno> {
    let fixed = fixed()?;
    let start = fixed.bytes.as_ptr() as usize;
    let pages = FixedPages { below: BELOW, end: ADDRESS + LEN as u64 };
    Ok(FixedAddresses {
        empty: start + EMPTY,
        taken: start + TAKEN,
        how: if fixed.has_openat2 { HOW.map(|offset| start + offset).into() } else { Vec::new() },
        pages: fixed.is_chosen.then_some(pages),
    })
}

/// Opens a handle of `name`, a single component, in `dir`. Fails with the errors of openat2(2) and openat(2).
pub(crate) fn open(dir: impl AsFd, name: &[u8], of: HandleOf) -> Result<OwnedFd, Errno> {
    // A filter of system calls is only installed with the fixed addresses, so openat(2) works without them.
    // The parent is not beneath the directory.
    let fixed = fixed().ok().filter(|fixed| fixed.has_openat2 && name != b"..");
    let Some(fixed) = fixed else {
        return rustix::fs::openat(dir, name, of.flags(), Mode::empty());
    };
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    match fixed.open(dir.as_fd(), &name, of) {
        // The sandbox of a process that only reads refuses this call, and permits openat(2).
        Err(Errno::NOSYS) => rustix::fs::openat(dir, &*name, of.flags(), Mode::empty()),
        opened => opened,
    }
}

pub(crate) fn chown(handle: BorrowedFd<'_>, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
    rustix::fs::chownat(handle, empty_path(), uid, gid, AtFlags::EMPTY_PATH)
}

pub(crate) fn set_times(handle: BorrowedFd<'_>, times: &Timestamps) -> Result<(), Errno> {
    rustix::fs::utimensat(handle, empty_path(), times, AtFlags::EMPTY_PATH)
}

pub(crate) fn chmod(handle: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    fixed()?.with_path(handle, |path| rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()))
}

pub(crate) fn set_xattr(handle: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    fixed()?.with_path(handle, |path| rustix::fs::setxattr(path, name, value, XattrFlags::empty()))
}

/// Returns the empty path, at its fixed address if that exists.
fn empty_path() -> &'static CStr {
    fixed().map_or(c"", |fixed| fixed.path(EMPTY))
}

fn fixed() -> Result<&'static Fixed, Errno> {
    static FIXED: OnceLock<Result<Fixed, Errno>> = OnceLock::new();
    FIXED.get_or_init(Fixed::new).as_ref().map_err(|errno| *errno)
}

impl Fixed {
    fn new() -> Result<Self, Errno> {
        let unused = rustix::fs::memfd_create("unused", MemfdFlags::CLOEXEC)?;
        let taken = rustix::io::fcntl_dupfd_cloexec(&unused, 3)?;
        let (bytes, is_chosen) = publish(contents(&taken));
        let mut fixed = Self { bytes, is_chosen, taken: Mutex::new(taken), unused, has_openat2: true };
        let root = rustix::fs::open("/", HandleOf::Directory.flags(), Mode::empty());
        // Linux before 5.6, or a container that refuses unknown calls.
        fixed.has_openat2 = root.is_ok_and(|root| fixed.open(root.as_fd(), c".", HandleOf::Any).is_ok());
        Ok(fixed)
    }

    /// Returns the path at `offset`.
    fn path(&self, offset: usize) -> &'static CStr {
        let bytes = self.bytes.get(offset..).unwrap_or_default();
        CStr::from_bytes_until_nul(bytes).unwrap_or_default()
    }

    fn open(&self, dir: BorrowedFd<'_>, name: &CStr, of: HandleOf) -> Result<OwnedFd, Errno> {
        let how = self.bytes.as_ptr().wrapping_add(HOW[usize::from(of == HandleOf::Directory)]);
        // SAFETY: the name ends with a zero, and the kernel reads `HOW_LEN` bytes at `how`, which are in `bytes`.
        let fd = unsafe { libc::syscall(libc::SYS_openat2, dir.as_raw_fd(), name.as_ptr(), how, HOW_LEN) };
        match i32::try_from(fd) {
            // SAFETY: the descriptor is new and belongs to nothing else.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }

    /// Calls `change` with a path to the file of `handle`.
    fn with_path(
        &self,
        handle: BorrowedFd<'_>,
        change: impl FnOnce(&CStr) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut taken = self.taken.lock();
        rustix::io::dup3(handle, &mut taken, DupFlags::CLOEXEC)?;
        let changed = change(self.path(TAKEN));
        changed.and(rustix::io::dup3(&self.unused, &mut taken, DupFlags::CLOEXEC))
    }
}

/// Returns the bytes for the fixed addresses.
fn contents(taken: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    let mut put = |offset: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(offset..offset + value.len()) {
            place.copy_from_slice(value);
        }
    };
    for (offset, of) in HOW.into_iter().zip([HandleOf::Any, HandleOf::Directory]) {
        // `struct open_how`: flags, mode, resolve.
        put(offset, &u64::from(of.flags().bits()).to_ne_bytes());
        put(offset + 16, &RESOLVE.bits().to_ne_bytes());
    }
    let mut path = String::new();
    let _ = write!(path, "/proc/self/fd/{}", taken.as_raw_fd());
    put(TAKEN, path.as_bytes());
    bytes
}

/// Makes `bytes` last as long as the process. Returns whether they are read-only and at [`ADDRESS`].
fn publish(bytes: Vec<u8>) -> (&'static [u8], bool) {
    let chosen = usize::try_from(ADDRESS).ok().and_then(|address| map(address, &bytes).ok());
    chosen.map_or_else(|| (&*bytes.leak(), false), |mapped| (mapped, true))
}

/// Maps read-only pages with `bytes` at `address`. Fails if it is in use, or the kernel cannot choose it.
fn map(address: usize, bytes: &[u8]) -> Result<&'static [u8], Errno> {
    let wanted = null_mut::<u8>().wrapping_add(address);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: with this flag the kernel replaces no mapping; an older kernel chooses another address.
    let start =
        unsafe { rustix::mm::mmap_anonymous(wanted.cast(), LEN, ProtFlags::READ | ProtFlags::WRITE, flags)? };
    if start as usize != address {
        // SAFETY: the mapping is new, and nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(start, LEN) };
        return Err(Errno::EXIST);
    }
    // SAFETY: the mapping is new, `LEN` bytes long, as are `bytes`, and is never removed.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast::<u8>(), bytes.len().min(LEN));
        rustix::mm::mprotect(start, LEN, MprotectFlags::READ)?;
        Ok(std::slice::from_raw_parts(start.cast::<u8>(), LEN))
    }
}
