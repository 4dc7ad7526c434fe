//! Moving the bytes of files to their places in an image.
//!
//! Small files are gathered in memory as they will lie, so that many become one write; large ones are copied by the kernel,
//! which shares their blocks where the file system can.
//! Invariant: what lies between the end of a file and that of its last block is written as zeros or not at all.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use obento_base::wire::{to_u64, to_usize};
use rustix::io::Errno;

use super::supply::{Opened, Supply};
use crate::{HostError, HostFile};

/// Bytes that are gathered before they are written.
const GATHER: usize = 1 << 20;
/// Longer ranges are copied by the kernel.
const COPY_RANGE_MIN: u64 = 256 << 10;

/// A part of a file and where it belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// The file's number in the supply.
    pub data: u32,
    /// Its length as it was when the tree was read.
    pub size: u64,
    /// Which bytes of it.
    pub range: Range<u64>,
    /// Where they belong in the image.
    pub offset: u64,
}

/// Moves bytes; one a thread.
pub struct Mover<'a> {
    supply: &'a Supply,
    target: &'a HostFile,
    path: PathBuf,
    /// Bytes a block of the image.
    block: u64,
    dir: Option<(u32, OwnedFd)>,
    gathered: Vec<u8>,
    /// Where what was gathered belongs.
    start: u64,
    may_copy_range: bool,
}

impl<'a> Mover<'a> {
    /// From `supply` to `target`, an image with blocks of `block` bytes; `path` is for messages.
    pub fn new(supply: &'a Supply, target: &'a HostFile, path: PathBuf, block: u64) -> Self {
        let gathered = Vec::with_capacity(GATHER);
        Self { supply, target, path, block, dir: None, gathered, start: 0, may_copy_range: true }
    }

    /// Moves one part, at once or later. Errors: System; Changed if the file is not as long as it was.
    pub fn put(&mut self, job: &Job) -> Result<(), HostError> {
        let len = job.range.end.saturating_sub(job.range.start);
        let opened = self.supply.open(job.data, &mut self.dir)?;
        let (fd, base) = match &opened {
            Opened::Whole(fd) => (fd.as_fd(), 0),
            Opened::Part(file, offset) => (file.as_fd(), *offset),
        };
        let from = base.saturating_add(job.range.start);
        let is_end = matches!(opened, Opened::Whole(_)) && job.range.end == job.size;
        if len >= COPY_RANGE_MIN {
            self.flush()?;
            self.copy(fd, job, from, len)?;
            return if is_end { self.expect_end(fd, job) } else { Ok(()) };
        }
        self.make_room(job.offset, len)?;
        self.gather(fd, job, from, len, is_end)
    }

    /// Makes sure that the next `len` bytes can be gathered for `offset`.
    fn make_room(&mut self, offset: u64, len: u64) -> Result<(), HostError> {
        let end = self.start.saturating_add(to_u64(self.gathered.len()));
        let gap = offset.checked_sub(end).filter(|&gap| gap < self.block && !self.gathered.is_empty());
        let fits =
            |gap: u64| to_u64(self.gathered.len()).saturating_add(gap).saturating_add(len) < to_u64(GATHER);
        match gap {
            Some(gap) if fits(gap) => self.gathered.resize(self.gathered.len() + to_usize(gap), 0),
            _ => {
                self.flush()?;
                self.start = offset;
            }
        }
        Ok(())
    }

    /// Reads the bytes, and one more where the file should end, to see that it does.
    fn gather(
        &mut self,
        fd: BorrowedFd<'_>,
        job: &Job,
        from: u64,
        len: u64,
        is_end: bool,
    ) -> Result<(), HostError> {
        let start = self.gathered.len();
        let wanted = start + to_usize(len);
        self.gathered.resize(wanted + usize::from(is_end), 0);
        let mut done = start;
        while let Some(rest) = self.gathered.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(fd, rest, from.saturating_add(to_u64(done - start))) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(HostError::system("read", self.supply.path(job.data), errno)),
            }
            if done == wanted && !is_end {
                break;
            }
        }
        self.gathered.truncate(wanted);
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
        while len > 0 && self.may_copy_range {
            match rustix::fs::copy_file_range(fd, Some(&mut from), self.target, Some(&mut to), to_usize(len))
            {
                Ok(0) => break,
                Ok(copied) => len = len.saturating_sub(to_u64(copied)),
                Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                    self.may_copy_range = false;
                }
                Err(errno) => return Err(HostError::system("write", &self.path, errno)),
            }
        }
        // What the kernel does not copy is read and written; where a file ends too early that tells.
        while len > 0 {
            let part = to_usize(len).min(GATHER - 1);
            self.start = to;
            self.gather(fd, job, from, to_u64(part), false)?;
            self.flush()?;
            (from, to, len) = (from + to_u64(part), to + to_u64(part), len - to_u64(part));
        }
        Ok(())
    }

    /// Writes what was gathered. Errors: System.
    pub fn flush(&mut self) -> Result<(), HostError> {
        let mut bytes = self.gathered.as_slice();
        let mut at = self.start;
        while !bytes.is_empty() {
            match rustix::io::pwrite(self.target, bytes, at) {
                Ok(len) => {
                    at += to_u64(len);
                    bytes = bytes.get(len..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(HostError::system("write", &self.path, errno)),
            }
        }
        self.gathered.clear();
        Ok(())
    }
}
