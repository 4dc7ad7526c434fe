//! Gathers bytes in memory at their relative positions, so that many small pieces are written at once.
//!
//! Invariant: a gap between two pieces in one block is written as zeros. Whole blocks between pieces are not
//! written.

use std::path::Path;

use obento_base::wire::{to_u64, to_usize};
use rustix::io::Errno;

use super::writeback::Writeback;
use crate::{HostError, HostFile};

/// Bytes that are gathered before they are written.
pub(super) const GATHER: usize = 1 << 20;

/// The file that receives the bytes.
#[derive(Clone, Copy)]
pub(super) struct GatherTarget<'a> {
    pub(super) file: &'a HostFile,
    /// The path for messages.
    pub(super) path: &'a Path,
    /// Receives the ranges that were written.
    pub(super) writeback: &'a Writeback,
}

/// Contiguous bytes.
#[derive(Debug)]
pub(super) struct Gather {
    pub(super) bytes: Vec<u8>,
    /// The position of the first byte.
    pub(super) start: u64,
    /// The block size of the image in bytes.
    block: u64,
}

impl Gather {
    /// Creates an empty buffer for an image with blocks of `block` bytes.
    pub(super) fn new(block: u64) -> Self {
        Self { bytes: Vec::with_capacity(GATHER), start: 0, block }
    }

    /// Makes room for `len` bytes at `offset`. Writes the gathered bytes if necessary. Fails with `System`.
    pub(super) fn make_room(
        &mut self,
        offset: u64,
        len: u64,
        target: GatherTarget<'_>,
    ) -> Result<(), HostError> {
        let end = self.start.saturating_add(to_u64(self.bytes.len()));
        let gap = offset.checked_sub(end).filter(|&gap| gap < self.block && !self.bytes.is_empty());
        let fits =
            |gap: u64| to_u64(self.bytes.len()).saturating_add(gap).saturating_add(len) < to_u64(GATHER);
        match gap {
            Some(gap) if fits(gap) => self.bytes.resize(self.bytes.len() + to_usize(gap), 0),
            _ => {
                self.flush(target)?;
                self.start = offset;
            }
        }
        Ok(())
    }

    /// Writes the gathered bytes. Fails with `System`.
    pub(super) fn flush(&mut self, target: GatherTarget<'_>) -> Result<(), HostError> {
        write_all(&self.bytes, self.start, target)?;
        self.bytes.clear();
        Ok(())
    }
}

/// Writes `bytes` at `at`. Fails with `System`.
pub(super) fn write_all(mut bytes: &[u8], mut at: u64, target: GatherTarget<'_>) -> Result<(), HostError> {
    let start = at;
    target.writeback.will_write(at..at.saturating_add(to_u64(bytes.len())));
    while !bytes.is_empty() {
        match rustix::io::pwrite(target.file, bytes, at) {
            Ok(len) => {
                at += to_u64(len);
                bytes = bytes.get(len..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(HostError::system("write", target.path, errno)),
        }
    }
    if at > start {
        target.writeback.wrote(start..at);
    }
    Ok(())
}
