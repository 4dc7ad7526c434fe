//! Tar archives with pax headers.

use std::io::Write;
use std::ops::Range;

use obento_base::{DeviceNumber, FileKind};

use crate::{DataSink, HostError, Metadata};

/// Writes an archive.
pub struct PaxWriter<W> {
    output: W,
}

impl<W: Write> PaxWriter<W> {
    /// An empty archive.
    pub fn new(output: W) -> Self {
        Self { output }
    }

    /// A directory.
    pub fn directory(&mut self, _path: &[u8], _meta: &Metadata<'_>) -> Result<(), HostError> {
        todo!()
    }

    /// A regular file of `size` bytes of which those in `data` (in order, apart) are not holes. `fill` hands over
    /// exactly the bytes of `data`, in order, without the holes between.
    pub fn file<E: From<HostError>>(
        &mut self,
        _path: &[u8],
        _meta: &Metadata<'_>,
        _size: u64,
        _data: &[Range<u64>],
        _fill: impl FnOnce(&mut dyn DataSink) -> Result<(), E>,
    ) -> Result<(), E> {
        todo!()
    }

    /// A symbolic link.
    pub fn symlink(&mut self, _path: &[u8], _meta: &Metadata<'_>, _target: &[u8]) -> Result<(), HostError> {
        todo!()
    }

    /// Another name for an earlier entry of the archive.
    pub fn hard_link(
        &mut self,
        _path: &[u8],
        _meta: &Metadata<'_>,
        _original: &[u8],
    ) -> Result<(), HostError> {
        todo!()
    }

    /// A device node or FIFO. Answers false for a socket, which tar cannot hold.
    pub fn node(
        &mut self,
        _path: &[u8],
        _meta: &Metadata<'_>,
        _kind: FileKind,
        _rdev: DeviceNumber,
    ) -> Result<bool, HostError> {
        todo!()
    }

    /// Ends the archive and gives the output back.
    pub fn finish(self) -> Result<W, HostError> {
        let _ = &self.output;
        todo!()
    }
}
