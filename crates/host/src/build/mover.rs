//! Moves the bytes of files to their positions in an image.
//!
//! Small files are gathered in memory, so that many are written at once. Large files are copied by the
//! kernel, which shares their blocks if the file system supports that.
//! Invariant: the bytes between the end of a file and the end of its last block are written as zeros or not
//! at all.

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use obento_base::wire::{to_u64, to_usize};
use rustix::io::Errno;

use super::gather::{GATHER, Gather, GatherTarget};
use super::supply::{OpenedSource, Supply};
use super::writeback::Writeback;
use crate::{HostError, HostFile};

/// Ranges of at least this length are copied by the kernel.
const COPY_RANGE_MIN: u64 = 256 << 10;

/// A part of a file, and its position in the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// The number of the file in the supply.
    pub data: u32,
    /// The length of the file when the tree was read.
    pub size: u64,
    /// The bytes of the file to move.
    pub range: Range<u64>,
    /// Their position in the image.
    pub offset: u64,
    /// Whether this is the last part of the file.
    pub is_last: bool,
}

/// Moves bytes. Each thread has its own.
pub struct Mover<'a> {
    supply: &'a Supply,
    target: GatherTarget<'a>,
    dir: Option<(u32, OwnedFd)>,
    gather: Gather,
    may_copy_range: bool,
}

impl<'a> Mover<'a> {
    /// Moves from `supply` to `file`, an image with blocks of `block` bytes that `writeback` writes back.
    /// `path` is for messages.
    pub fn new(
        supply: &'a Supply,
        (file, path): (&'a HostFile, &'a Path),
        writeback: &'a Writeback,
        block: u64,
    ) -> Self {
        let target = GatherTarget { file, path, writeback };
        Self { supply, target, dir: None, gather: Gather::new(block), may_copy_range: true }
    }

    /// Moves one part, at once or later. Fails with `System`, and with `Changed` if the length of the file changed.
    pub fn put(&mut self, job: &Job) -> Result<(), HostError> {
        let len = job.range.end.saturating_sub(job.range.start);
        let opened = self.supply.open(job.data, &mut self.dir)?;
        let (fd, base) = opened.place();
        let from = base.saturating_add(job.range.start);
        let is_end = matches!(opened, OpenedSource::Whole(_)) && job.range.end == job.size;
        if len >= COPY_RANGE_MIN {
            self.flush()?;
            self.copy(fd, job, from, len)?;
            return if is_end { self.expect_end(fd, job) } else { Ok(()) };
        }
        self.gather.make_room(job.offset, len, self.target)?;
        self.gather(fd, job, from, len, is_end)
    }

    /// Reads the bytes, and one more at the expected end of the file, to detect a longer file.
    fn gather(
        &mut self,
        fd: BorrowedFd<'_>,
        job: &Job,
        from: u64,
        len: u64,
        is_end: bool,
    ) -> Result<(), HostError> {
        let start = self.gather.bytes.len();
        let wanted = start + to_usize(len);
        self.gather.bytes.resize(wanted + usize::from(is_end), 0);
        let mut done = start;
        while let Some(rest) = self.gather.bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let asked = rest.len();
            match rustix::io::pread(fd, rest, from.saturating_add(to_u64(done - start))) {
                Ok(0) => break,
                Ok(len) => {
                    done += len;
                    // A short read means the end of the file.
                    if done == wanted && len < asked {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(HostError::system("read", self.supply.path(job.data), errno)),
            }
            if done == wanted && !is_end {
                break;
            }
        }
        self.gather.bytes.truncate(wanted);
        if done == wanted { Ok(()) } else { Err(self.changed(job)) }
    }

    fn changed(&self, job: &Job) -> HostError {
        HostError::Changed { path: self.supply.path(job.data) }
    }

    fn expect_end(&self, fd: BorrowedFd<'_>, job: &Job) -> Result<(), HostError> {
        match rustix::fs::fstat(fd) {
            Ok(stat) if stat.st_size.cast_unsigned() == job.size => Ok(()),
            Ok(_) => Err(self.changed(job)),
            Err(errno) => Err(HostError::system("examine", self.supply.path(job.data), errno)),
        }
    }

    fn copy(&mut self, fd: BorrowedFd<'_>, job: &Job, mut from: u64, mut len: u64) -> Result<(), HostError> {
        let mut to = job.offset;
        self.target.writeback.will_write(to..to.saturating_add(len));
        while len > 0 && self.may_copy_range {
            let file = self.target.file;
            let copy =
                || rustix::fs::copy_file_range(fd, Some(&mut from), file, Some(&mut to), to_usize(len));
            match self.target.writeback.alone(copy) {
                Ok(0) => break,
                Ok(copied) => len = len.saturating_sub(to_u64(copied)),
                Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                    self.may_copy_range = false;
                }
                Err(errno) => return Err(HostError::system("write", self.target.path, errno)),
            }
        }
        if to > job.offset {
            self.target.writeback.wrote(job.offset..to);
        }
        // The rest that the kernel does not copy is read and written. That also detects a file that ends too
        // early.
        while len > 0 {
            let part = to_usize(len).min(GATHER - 1);
            self.gather.start = to;
            self.gather(fd, job, from, to_u64(part), false)?;
            self.flush()?;
            (from, to, len) = (from + to_u64(part), to + to_u64(part), len - to_u64(part));
        }
        Ok(())
    }

    /// Writes the gathered bytes. Fails with `System`.
    pub fn flush(&mut self) -> Result<(), HostError> {
        self.gather.flush(self.target)
    }
}
