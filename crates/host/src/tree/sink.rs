//! Writes the bytes of a file of the tree.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use obento_base::DeviceError;
use obento_base::wire::{to_u64, to_usize};
use obento_block::{Backing, BlockDevice};
use rustix::io::Errno;

use super::Shared;
use super::later::{Broken, PendingBytes, PendingPiece, SEND_MIN, SMALL, put, send};
use crate::{DataSink, HostError, HostFile, SinkError};

/// Bytes moved at once: enough to hide the cost of a call, and few enough to stay in a CPU cache.
const CHUNK: usize = 256 << 10;
/// Shorter ranges are read and written, because setting up a copy within the kernel costs more.
const COPY_RANGE_MIN: u64 = 128 << 10;

/// The file that is written.
pub(super) struct FileSink<'a> {
    pub shared: &'a Shared,
    pub file: &'a OwnedFd,
    pub buffer: &'a mut Vec<u8>,
    /// The path, for messages.
    pub path: &'a dyn Fn() -> PathBuf,
    /// The position of the next byte.
    pub position: u64,
    /// The end of the file according to the kernel.
    pub end: u64,
    /// Bytes of data written.
    pub written: u64,
    /// The waiting bytes of a small file, if it may wait.
    pub waiting: Option<Waiting<'a>>,
}

/// The bytes of a small file, to be written later.
pub(super) struct Waiting<'a> {
    /// The memory for them, which begins at `start` of its row.
    pub room: &'a mut [u8],
    pub start: usize,
    pub used: usize,
    /// How many bytes wait in total, in memory or in a host file.
    pub len: u64,
    pub pieces: Vec<PendingPiece>,
}

impl Waiting<'_> {
    /// Returns whether `len` more bytes may wait.
    fn takes(&self, len: u64) -> bool {
        self.len.saturating_add(len) <= to_u64(SMALL)
    }

    /// Returns memory for `len` more bytes.
    fn take(&mut self, position: u64, len: usize) -> Option<&mut [u8]> {
        let range = self.used..self.used.checked_add(len)?;
        let room = self.room.get_mut(range.clone())?;
        let bytes = PendingBytes::Row(self.start + range.start..self.start + range.end);
        self.pieces.push(PendingPiece { position, bytes });
        self.used = range.end;
        self.len += to_u64(len);
        Some(room)
    }
}

impl FileSink<'_> {
    /// Extends the file over a hole at its end. Called once after the last byte.
    pub fn finish(&mut self) -> Result<(), HostError> {
        if self.position > self.end {
            rustix::fs::ftruncate(self.file, self.position).map_err(|errno| self.failed(errno))?;
        }
        Ok(())
    }

    fn failed(&self, errno: Errno) -> HostError {
        HostError::system("write to", (self.path)(), errno)
    }

    fn take(&self, len: u64) -> Result<(), HostError> {
        let limit = self.shared.options.max_bytes;
        if self.shared.take(len) { Ok(()) } else { Err(HostError::Limit { path: (self.path)(), limit }) }
    }

    fn advance(&mut self, len: u64) {
        self.position = self.position.saturating_add(len);
        self.end = self.end.max(self.position);
        self.written = self.written.saturating_add(len);
    }

    /// Returns memory for the next `len` bytes. Returns `None` after writing the waiting bytes: the next
    /// bytes are written at once.
    fn wait(&mut self, len: u64) -> Result<Option<&mut [u8]>, SinkError> {
        if self.waiting.as_ref().is_some_and(|waiting| !waiting.takes(len)) {
            self.write_waiting()?;
        }
        let position = self.position;
        Ok(self.waiting.as_mut().and_then(|waiting| waiting.take(position, to_usize(len))))
    }

    /// Lets the bytes of `device` wait in their host file, if it has one. Returns whether they wait.
    fn wait_there(&mut self, device: &dyn BlockDevice, offset: u64, len: u64) -> bool {
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| len >= SEND_MIN && waiting.takes(len))
        else {
            return false;
        };
        let backing = device.backing(offset..offset.saturating_add(len));
        let Some(backing) = backing.filter(|it| it.len == len && HostFile::of(it).is_some()) else {
            return false;
        };
        waiting.len += len;
        waiting.pieces.push(PendingPiece { position: self.position, bytes: PendingBytes::Host(backing) });
        true
    }

    /// Writes the waiting bytes, because more bytes follow than may wait.
    fn write_waiting(&mut self) -> Result<(), SinkError> {
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        let mut at = 0;
        for PendingPiece { position, bytes } in waiting.pieces {
            let written = match bytes {
                PendingBytes::Row(range) => {
                    let range = range.start - waiting.start..range.end - waiting.start;
                    let bytes = waiting.room.get(range).unwrap_or_default();
                    put(self.file, bytes, position).map_err(Broken::Target)
                }
                PendingBytes::Host(backing) => send(self.file, &backing, position, &mut at),
            };
            written.map_err(|broken| match broken {
                Broken::Target(errno) => SinkError::Sink(self.failed(errno)),
                Broken::Source(errno) => {
                    let errno = errno.raw_os_error();
                    SinkError::Source(DeviceError::Read { offset: position, len: waiting.len, errno }.into())
                }
            })?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        put(self.file, bytes, self.position)?;
        self.advance(to_u64(bytes.len()));
        Ok(())
    }

    /// Copies as much of `backing` as possible within the kernel. Returns the number of bytes. If it is
    /// short, reading and writing the rest reports the reason.
    fn copy_range(&mut self, backing: &Backing) -> u64 {
        let Some(source) = HostFile::of(backing) else { return 0 };
        let mut from = backing.offset;
        let mut done = 0;
        while done < backing.len {
            let mut to = self.position;
            let len = to_usize(backing.len - done);
            match rustix::fs::copy_file_range(source.as_fd(), Some(&mut from), self.file, Some(&mut to), len)
            {
                Ok(0) => break,
                Ok(len) => {
                    done += to_u64(len);
                    self.advance(to_u64(len));
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    if matches!(
                        errno,
                        Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM
                    ) {
                        self.shared.may_copy_range.store(false, Ordering::Relaxed);
                    }
                    break;
                }
            }
        }
        done
    }
}

impl DataSink for FileSink<'_> {
    fn hole(&mut self, len: u64) -> Result<(), HostError> {
        let end = self.position.checked_add(len).filter(|&end| i64::try_from(end).is_ok());
        self.position = end.ok_or_else(|| self.failed(Errno::FBIG))?;
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        let len = to_u64(bytes.len());
        self.take(len)?;
        match self.wait(len) {
            Ok(Some(room)) => {
                room.copy_from_slice(bytes);
                self.advance(len);
                Ok(())
            }
            Ok(None) => self.write(bytes).map_err(|errno| self.failed(errno)),
            Err(SinkError::Sink(error)) => Err(error),
            Err(SinkError::Source(error)) => Err(self.failed(Errno::from_raw_os_error(error.errno().0))),
        }
    }

    fn device(&mut self, device: &dyn BlockDevice, mut offset: u64, mut len: u64) -> Result<(), SinkError> {
        self.take(len)?;
        if self.wait_there(device, offset, len) {
            self.advance(len);
            return Ok(());
        }
        if let Some(room) = self.wait(len)? {
            device.read_at(offset, room).map_err(SinkError::Source)?;
            self.advance(len);
            return Ok(());
        }
        while len > 0 {
            if len >= COPY_RANGE_MIN && self.shared.may_copy_range.load(Ordering::Relaxed) {
                let end = offset.saturating_add(len);
                let copied = device.backing(offset..end).map_or(0, |backing| self.copy_range(&backing));
                if copied > 0 {
                    offset += copied;
                    len -= copied.min(len);
                    continue;
                }
            }
            let chunk = to_usize(len).min(CHUNK);
            let mut buffer = std::mem::take(self.buffer);
            buffer.resize(buffer.len().max(chunk), 0);
            let part = buffer.get_mut(..chunk).unwrap_or_default();
            let result = match device.read_at(offset, part) {
                Ok(()) => self.write(part).map_err(|errno| self.failed(errno).into()),
                Err(error) => Err(SinkError::Source(error)),
            };
            *self.buffer = buffer;
            result?;
            offset += to_u64(chunk);
            len -= to_u64(chunk);
        }
        Ok(())
    }
}
