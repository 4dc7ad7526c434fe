//! Many system calls in one: io_uring of the guest's kernel.
//!
//! A system call of a process of this kernel costs as much as several operations, since the host's kernel traces it. Entries
//! of a ring are executed within the kernel. A file is opened into a slot of the ring, read or written there and closed,
//! without a descriptor.
//!
//! Invariant: the objects that an entry points to outlive it: `run` returns when all entries have completed.
//! Source: io_uring(7), io_uring_enter(2).

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::thread;
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{DestinationSlot, Fd, Fixed};
use io_uring::{IoUring, opcode};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat};

use super::errno::{Errno, number};
use super::table::look;

/// Entries of the ring.
const ENTRIES: u32 = 256;
/// The most files that are open in the ring; each takes three entries.
const SLOTS: u32 = 64;
/// The tick of this kernel: it has a hundred a second.
const TICK: Duration = Duration::from_millis(10);
/// The most ticks to wait for files to be closed.
const CLOSING: u32 = 200;
/// Expects a regular file, even if the listed file was replaced.
const OPEN: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// A file of a directory, and the buffer for its bytes.
pub struct Wanted<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: CString,
    pub room: &'a mut [u8],
}

/// A file to create in a directory, and its bytes.
pub struct Fresh<'a> {
    pub name: CString,
    pub mode: u32,
    pub bytes: &'a [u8],
}

impl Fresh<'_> {
    /// Creates the file, empty.
    pub fn create(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(dir, &self.name, flags, Mode::from_raw_mode(self.mode)).map(drop).map_err(number)
    }
}

/// The ring. If the kernel has no rings, each call is made separately.
pub struct Ring {
    ring: Option<IoUring>,
    /// Whether files were written since the kernel last released all files.
    wrote: bool,
    /// The number of files that were open before, except those of this process.
    before: Option<usize>,
}

impl Ring {
    /// Creates the ring.
    pub fn new() -> Self {
        let ring = || {
            let ring = IoUring::new(ENTRIES)?;
            ring.submitter().register_files_sparse(SLOTS)?;
            io::Result::Ok(ring)
        };
        Self { ring: ring().ok(), wrote: false, before: None }
    }

    /// Lets the kernel release closed files. It keeps the file of a slot for a further second (Linux 6.1,
    /// `io_rsrc_node_ref_zero` of io_uring/rsrc.c). A volume with files that are open for writing cannot become
    /// read-only.
    pub fn let_go(&mut self) {
        self.wrote = false;
        let Some(ring) = &self.ring else { return };
        let slots = ring.submitter();
        if slots.unregister_files().and_then(|()| slots.register_files_sparse(SLOTS)).is_err() {
            self.ring = None;
        }
    }

    /// Like [`let_go`](Self::let_go), and waits until the files are closed. The kernel closes a released file a tick
    /// later (Linux 6.1, `fput` of fs/file_table.c), or later still.
    pub fn close_files(&mut self) {
        if !self.wrote {
            return;
        }
        self.let_go();
        for _ in 0..CLOSING {
            thread::sleep(TICK);
            if others_open() <= self.before {
                return;
            }
        }
    }

    /// Reads each file from its start, at most as much as its buffer holds; returns the numbers of bytes.
    pub fn read(&mut self, files: &mut [Wanted<'_>]) -> Vec<Result<usize, Errno>> {
        if self.ring.is_none() {
            return vec![Ok(0); files.len()];
        }
        let mut done = Vec::with_capacity(files.len());
        for round in files.chunks_mut(SLOTS as usize) {
            let chains = round.iter_mut().zip(0..SLOTS).map(|(file, slot)| {
                let len = u32::try_from(file.room.len()).unwrap_or(u32::MAX);
                let read = opcode::Read::new(Fixed(slot), file.room.as_mut_ptr(), len).build();
                chain(file.dir.as_raw_fd(), &file.name, (libc::O_RDONLY, 0), slot, read)
            });
            let chains = chains.flatten().collect();
            // SAFETY: names and buffers are borrowed by `files`, which outlives the call.
            let results = unsafe { self.run(chains) };
            done.extend(results.chunks_exact(3).map(|chain| match *chain {
                [error @ ..0, ..] | [_, error @ ..0, _] => Err(error.unsigned_abs()),
                [_, read, _] => Ok(usize::try_from(read).unwrap_or(0)),
                _ => Err(libc::EIO.unsigned_abs()),
            }));
        }
        done
    }

    /// Creates each file in `dir`, where its name must not exist, and writes at most its bytes; returns the numbers of bytes.
    /// For a created file, an error of writing is left to the caller, which writes the rest. The kernel starts the
    /// writeback at once. Btrfs reserves half a MiB for each file until the file is written, and waits when its space
    /// for that is used up.
    pub fn make(&mut self, dir: BorrowedFd<'_>, files: &[Fresh<'_>]) -> Vec<Result<usize, Errno>> {
        if self.ring.is_none() {
            return files.iter().map(|file| file.create(dir).map(|()| 0)).collect();
        }
        if !self.wrote {
            (self.wrote, self.before) = (true, others_open());
        }
        let mut done = Vec::with_capacity(files.len());
        for round in files.chunks(SLOTS as usize) {
            let chains = round.iter().zip(0..SLOTS).map(|(file, slot)| {
                let len = u32::try_from(file.bytes.len()).unwrap_or(u32::MAX);
                let write = opcode::Write::new(Fixed(slot), file.bytes.as_ptr(), len).build();
                let how = (libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, file.mode);
                let [open, write, close] = chain(dir.as_raw_fd(), &file.name, how, slot, write);
                let begin = opcode::SyncFileRange::new(Fixed(slot), 0).flags(libc::SYNC_FILE_RANGE_WRITE);
                [open, write, begin.build().flags(Flags::IO_HARDLINK), close]
            });
            let chains = chains.flatten().collect();
            // SAFETY: names and bytes are borrowed by `files`, which outlives the call.
            let results = unsafe { self.run(chains) };
            done.extend(results.chunks_exact(4).map(|chain| match *chain {
                [error @ ..0, ..] => Err(error.unsigned_abs()),
                [_, written, ..] => Ok(usize::try_from(written).unwrap_or(0)),
                _ => Err(libc::EIO.unsigned_abs()),
            }));
        }
        done
    }

    /// Returns the attributes of the inodes with these names in `dir`.
    pub fn look(&mut self, dir: BorrowedFd<'_>, names: &[&CStr]) -> Vec<Result<Statx, Errno>> {
        if self.ring.is_none() {
            return names.iter().map(|name| look(dir, name)).collect();
        }
        let mut done = Vec::with_capacity(names.len());
        for round in names.chunks(ENTRIES as usize) {
            // SAFETY: consists of integers, which may be zero.
            let mut found: Vec<Statx> = vec![unsafe { std::mem::zeroed() }; round.len()];
            let looks = round.iter().zip(&mut found).map(|(name, found)| {
                opcode::Statx::new(Fd(dir.as_raw_fd()), name.as_ptr(), std::ptr::from_mut(found).cast())
                    .flags((AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT).bits().cast_signed())
                    .mask((StatxFlags::BASIC_STATS | StatxFlags::BTIME).bits())
                    .build()
            });
            let looks = looks.collect();
            // SAFETY: names are borrowed, and `found` is not touched before the call returns; it has the layout of `struct statx`
            // (rustix passes it to the kernel as such).
            let results = unsafe { self.run(looks) };
            done.extend(found.into_iter().zip(results).map(|(found, result)| match result {
                0.. => Ok(found),
                error => Err(error.unsigned_abs()),
            }));
        }
        done
    }

    /// Executes all `entries`, at most [`ENTRIES`], and returns their results in this order.
    ///
    /// # Safety
    ///
    /// The memory that the entries point to must stay valid and unused by other code until the call returns.
    unsafe fn run(&mut self, entries: Vec<Entry>) -> Vec<i32> {
        let mut results = vec![-libc::EIO; entries.len()];
        let Some(ring) = &mut self.ring else { return results };
        let entries: Vec<_> = (0..).zip(entries).map(|(index, entry)| entry.user_data(index)).collect();
        // SAFETY: by the caller's obligation; no entry is pending when this returns.
        unsafe { ring.submission().push_multiple(&entries) }.expect("no more than there is room");
        let mut left = entries.len();
        while left > 0 {
            match ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel may still write to memory that would be reused, so only ending the process is safe.
                Err(error) => panic!("the ring: {error}"),
            }
            for done in ring.completion() {
                left -= 1;
                if let Some(result) =
                    usize::try_from(done.user_data()).ok().and_then(|at| results.get_mut(at))
                {
                    *result = done.result();
                }
            }
        }
        results
    }
}

/// Returns the number of open files without a descriptor in this process: those in slots, and those that are not closed yet.
/// Source: Linux, Documentation/admin-guide/sysctl/fs.rst, `file-nr`.
fn others_open() -> Option<usize> {
    let all = fs::read_to_string("/proc/sys/fs/file-nr").ok()?;
    let own = fs::read_dir("/proc/self/fd").ok()?.count();
    all.split_whitespace().next()?.parse::<usize>().ok()?.checked_sub(own)
}

/// Opens a file into `slot`, executes `what` on it, and closes it even after an error.
fn chain(dir: RawFd, name: &CStr, (how, mode): (i32, u32), slot: u32, what: Entry) -> [Entry; 3] {
    let target = DestinationSlot::try_from_slot_target(slot).ok();
    let open = opcode::OpenAt::new(Fd(dir), name.as_ptr()).file_index(target).flags(how | OPEN).mode(mode);
    [
        open.build().flags(Flags::IO_LINK),
        what.flags(Flags::IO_HARDLINK),
        opcode::Close::new(Fixed(slot)).build(),
    ]
}
