//! Writes the bytes of a file in an image.

use obento_base::Error;
use obento_block::BlockDevice;
use obento_host::{DataSink, HostError, SinkError};
use obento_vfs::Node;

/// Bytes moved at once.
pub(in crate::copy) const CHUNK: usize = 1 << 20;

/// The file that is written.
pub(super) struct ImageSink<'a> {
    pub node: &'a Node,
    /// A buffer for copies from devices, which is reused between files.
    pub buffer: &'a mut Vec<u8>,
    /// The position of the next byte.
    pub position: u64,
    /// The present end of the file in the image.
    pub end: u64,
    /// Bytes of data that may still be written.
    pub room: u64,
    /// The error of the image, which is more precise than a [`HostError`].
    pub failure: Option<Failure>,
}

/// The reason why the image did not accept the bytes.
pub(super) enum Failure {
    Volume(Error),
    Limit,
}

impl ImageSink<'_> {
    /// Extends the file over a hole at its end. Called once after the last byte.
    pub fn finish(&mut self) -> Result<(), Error> {
        if self.position > self.end {
            self.node.truncate(self.position)?;
        }
        Ok(())
    }

    fn failed(&mut self, failure: Failure) -> HostError {
        self.failure = Some(failure);
        HostError::Stream { operation: "write to", path: "the image".into(), reason: String::new() }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), HostError> {
        self.room = match self.room.checked_sub(bytes.len() as u64) {
            Some(room) => room,
            None => return Err(self.failed(Failure::Limit)),
        };
        while !bytes.is_empty() {
            match self.node.write_at(self.position, bytes) {
                Ok(0) => return Err(self.failed(Failure::Volume(Error::NoSpace))),
                Ok(len) => {
                    self.position += len as u64;
                    self.end = self.end.max(self.position);
                    bytes = bytes.get(len..).unwrap_or_default();
                }
                Err(error) => return Err(self.failed(Failure::Volume(error))),
            }
        }
        Ok(())
    }
}

impl DataSink for ImageSink<'_> {
    fn hole(&mut self, len: u64) -> Result<(), HostError> {
        let end = self.position.checked_add(len);
        let max = self.node.vfs().limits().file_size_max;
        match end.filter(|&end| end <= max) {
            Some(end) => self.position = end,
            None => return Err(self.failed(Failure::Volume(Error::FileTooBig))),
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        self.write(bytes)
    }

    fn device(&mut self, device: &dyn BlockDevice, mut offset: u64, mut len: u64) -> Result<(), SinkError> {
        let mut buffer = std::mem::take(self.buffer);
        let chunk = usize::try_from(len).unwrap_or(CHUNK).min(CHUNK);
        buffer.resize(buffer.len().max(chunk), 0);
        let mut moved = Ok(());
        while len > 0 && moved.is_ok() {
            let part = usize::try_from(len).unwrap_or(CHUNK).min(CHUNK);
            let bytes = buffer.get_mut(..part).unwrap_or_default();
            moved = device.read_at(offset, bytes).map_err(SinkError::Source);
            if moved.is_ok() {
                moved = self.write(bytes).map_err(SinkError::Sink);
            }
            offset += part as u64;
            len -= part as u64;
        }
        *self.buffer = buffer;
        moved
    }
}
