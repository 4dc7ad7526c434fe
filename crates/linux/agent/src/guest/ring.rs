//! Many system calls in one: io_uring of the guest's kernel.
//!
//! A system call of a process of this kernel costs as much as the work of several, since the host's kernel traces it; what a ring
//! is handed is done within the kernel. A file is opened into a slot of the ring, read or written there and closed: none of it
//! takes a descriptor.
//!
//! Invariant: what an entry points to outlives it: `run` comes back when all of them have ended.
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

use super::table::look;
use super::{Errno, number};

/// Entries of the ring.
const ENTRIES: u32 = 256;
/// Files that are open in it at once; each takes three entries.
const SLOTS: u32 = 64;
/// What this kernel counts time by: it has a hundred a second.
const TICK: Duration = Duration::from_millis(10);
/// How many ticks files may take to be closed.
const CLOSING: u32 = 200;
/// A regular file, whatever has taken the place of what was listed.
const OPEN: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// A file of a directory, and where its bytes go.
pub struct Wanted<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: CString,
    pub room: &'a mut [u8],
}

/// A file to be made in a directory, and its bytes.
pub struct Fresh<'a> {
    pub name: CString,
    pub mode: u32,
    pub bytes: &'a [u8],
}

impl Fresh<'_> {
    /// Makes it, with nothing in it.
    pub fn create(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(dir, &self.name, flags, Mode::from_raw_mode(self.mode)).map(drop).map_err(number)
    }
}

/// It. Where the kernel has none, each call is made by itself.
pub struct Ring {
    ring: Option<IoUring>,
    /// Whether files were written since the kernel was told to let go of all.
    wrote: bool,
    /// How many files were open besides this process's own before that.
    before: Option<usize>,
}

impl Ring {
    /// A new one.
    pub fn new() -> Self {
        let ring = || {
            let ring = IoUring::new(ENTRIES)?;
            ring.submitter().register_files_sparse(SLOTS)?;
            io::Result::Ok(ring)
        };
        Self { ring: ring().ok(), wrote: false, before: None }
    }

    /// Has the kernel let go of the files that were closed. It keeps what was in a slot for a second longer (Linux 6.1,
    /// `io_rsrc_node_ref_zero` of io_uring/rsrc.c), and a volume with files that are open for writing does not become read-only.
    pub fn let_go(&mut self) {
        self.wrote = false;
        let Some(ring) = &self.ring else { return };
        let slots = ring.submitter();
        if slots.unregister_files().and_then(|()| slots.register_files_sparse(SLOTS)).is_err() {
            self.ring = None;
        }
    }

    /// [`let_go`](Self::let_go), and waits until they are closed: what lets go of them does it a tick later (Linux 6.1, `fput` of
    /// fs/file_table.c), or when it gets to it.
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

    /// Reads each file from its start on, as far as its room goes or not so far; answers how many bytes.
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
            // SAFETY: names and rooms are borrowed by `files`, which outlives the call.
            let results = unsafe { self.run(chains) };
            done.extend(results.chunks_exact(3).map(|chain| match *chain {
                [error @ ..0, ..] | [_, error @ ..0, _] => Err(error.unsigned_abs()),
                [_, read, _] => Ok(usize::try_from(read).unwrap_or(0)),
                _ => Err(libc::EIO.unsigned_abs()),
            }));
        }
        done
    }

    /// Makes each file in `dir`, where nothing may have its name, and writes its bytes, or fewer; answers how many. Of a file that
    /// was made, an error of writing is left to who writes the rest. The kernel begins at once to bring them to the disk: Btrfs reserves half a
    /// MiB for each file until it is there, and waits when its room for that is used up.
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

    /// Attributes of what the names lead to in `dir`.
    pub fn look(&mut self, dir: BorrowedFd<'_>, names: &[&CStr]) -> Vec<Result<Statx, Errno>> {
        if self.ring.is_none() {
            return names.iter().map(|name| look(dir, name)).collect();
        }
        let mut done = Vec::with_capacity(names.len());
        for round in names.chunks(ENTRIES as usize) {
            // SAFETY: of integers alone, which may be zero.
            let mut found: Vec<Statx> = vec![unsafe { std::mem::zeroed() }; round.len()];
            let looks = round.iter().zip(&mut found).map(|(name, found)| {
                opcode::Statx::new(Fd(dir.as_raw_fd()), name.as_ptr(), std::ptr::from_mut(found).cast())
                    .flags((AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT).bits().cast_signed())
                    .mask((StatxFlags::BASIC_STATS | StatxFlags::BTIME).bits())
                    .build()
            });
            let looks = looks.collect();
            // SAFETY: names are borrowed, and `found` is not touched before the call comes back; it has the layout of
            // `struct statx` (rustix gives it to the kernel as such).
            let results = unsafe { self.run(looks) };
            done.extend(found.into_iter().zip(results).map(|(found, result)| match result {
                0.. => Ok(found),
                error => Err(error.unsigned_abs()),
            }));
        }
        done
    }

    /// Does all of `entries`, at most [`ENTRIES`], and answers their results in this order.
    ///
    /// # Safety
    ///
    /// What they point to must be theirs until the call comes back.
    unsafe fn run(&mut self, entries: Vec<Entry>) -> Vec<i32> {
        let mut results = vec![-libc::EIO; entries.len()];
        let Some(ring) = &mut self.ring else { return results };
        let entries: Vec<_> = (0..).zip(entries).map(|(index, entry)| entry.user_data(index)).collect();
        // SAFETY: as the caller promises; no entry is left when this comes back.
        unsafe { ring.submission().push_multiple(&entries) }.expect("no more than there is room");
        let mut left = entries.len();
        while left > 0 {
            match ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel may write to memory that others would use next: nothing is safe but to end.
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

/// How many files are open besides those that this process has descriptors of: those in slots, and those that are yet to be closed.
/// Source: Linux, Documentation/admin-guide/sysctl/fs.rst, `file-nr`.
fn others_open() -> Option<usize> {
    let all = fs::read_to_string("/proc/sys/fs/file-nr").ok()?;
    let own = fs::read_dir("/proc/self/fd").ok()?.count();
    all.split_whitespace().next()?.parse::<usize>().ok()?.checked_sub(own)
}

/// Opens a file into `slot`, does `what` with it, and closes it. It is closed whatever became of the rest.
fn chain(dir: RawFd, name: &CStr, (how, mode): (i32, u32), slot: u32, what: Entry) -> [Entry; 3] {
    let target = DestinationSlot::try_from_slot_target(slot).ok();
    let open = opcode::OpenAt::new(Fd(dir), name.as_ptr()).file_index(target).flags(how | OPEN).mode(mode);
    [
        open.build().flags(Flags::IO_LINK),
        what.flags(Flags::IO_HARDLINK),
        opcode::Close::new(Fixed(slot)).build(),
    ]
}
