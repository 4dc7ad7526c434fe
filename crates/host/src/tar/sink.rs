//! Writes the bytes of a file in an archive.

use std::io::Write;

use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;

use super::{BUFFER, Output};
use crate::{DataSink, HostError, SinkError};

/// The data of one entry.
pub(super) struct ArchiveSink<'a, W: Write> {
    pub output: &'a mut Output<W>,
    pub buffer: &'a mut Vec<u8>,
    /// Bytes that the header announced and that are still missing.
    pub left: u64,
}

impl<W: Write> ArchiveSink<'_, W> {
    fn take(&mut self, len: u64) -> Result<(), HostError> {
        self.left = self.left.checked_sub(len).ok_or_else(|| HostError::Stream {
            operation: "write to",
            path: self.output.path.clone(),
            reason: "a file is longer than the size in its header".into(),
        })?;
        Ok(())
    }
}

impl<W: Write> DataSink for ArchiveSink<'_, W> {
    fn hole(&mut self, len: u64) -> Result<(), HostError> {
        self.take(len)?;
        self.output.zeros(len)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        self.take(to_u64(bytes.len()))?;
        self.output.write(bytes)
    }

    fn device(&mut self, device: &dyn BlockDevice, mut offset: u64, mut len: u64) -> Result<(), SinkError> {
        while len > 0 {
            let chunk = to_usize(len).min(BUFFER);
            self.buffer.resize(self.buffer.len().max(chunk), 0);
            let part = self.buffer.get_mut(..chunk).unwrap_or_default();
            device.read_at(offset, part)?;
            let part = std::mem::take(self.buffer);
            let written = self.bytes(part.get(..chunk).unwrap_or_default());
            *self.buffer = part;
            written?;
            offset += to_u64(chunk);
            len -= to_u64(chunk);
        }
        Ok(())
    }
}
