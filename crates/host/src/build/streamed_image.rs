//! An image whose files are written on arrival.

use std::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice as _;

use super::fresh::FreshFile;
use super::gather::{GATHER, Gather, GatherTarget, write_all};
use super::writeback::Writeback;
use crate::HostError;

/// A new image whose length is not known yet.
#[derive(Debug)]
pub struct StreamedImage {
    fresh: FreshFile,
    gather: Gather,
    writeback: Writeback,
    /// Bytes past this limit are not written, because the build will fail.
    limit: u64,
}

impl StreamedImage {
    /// Writes to `fresh`, with blocks of `block` bytes and a length of at most `limit` bytes.
    pub fn new(fresh: FreshFile, block: u64, limit: u64) -> Self {
        let writeback = Writeback::new(fresh.device().host_file().clone());
        Self { fresh, gather: Gather::new(block), writeback, limit }
    }

    fn target<'a>(fresh: &'a FreshFile, writeback: &'a Writeback) -> GatherTarget<'a> {
        let device = fresh.device();
        GatherTarget { file: device.host_file(), path: device.path(), writeback }
    }

    /// Writes bytes at their position, at once or later. Fails with `System`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), HostError> {
        let len = to_u64(bytes.len());
        if offset.saturating_add(len) > self.limit {
            return Ok(());
        }
        let target = Self::target(&self.fresh, &self.writeback);
        self.gather.make_room(offset, len, target)?;
        if bytes.len() < GATHER {
            self.gather.bytes.extend_from_slice(bytes);
            return Ok(());
        }
        write_all(bytes, offset, target)
    }

    /// Sets the length of the image to `len` bytes, with zeros in `gone` and after the last written byte. Fails with
    /// `System` or the errors of the device.
    pub fn finish(mut self, len: u64, gone: &[Range<u64>]) -> Result<FreshFile, HostError> {
        self.gather.flush(Self::target(&self.fresh, &self.writeback))?;
        self.fresh.set_len(len)?;
        let inside = gone.iter().map(|range| range.start.min(len)..range.end.min(len));
        inside.filter(|range| !range.is_empty()).try_for_each(|range| self.zero(range))?;
        Ok(self.fresh)
    }

    /// Fills `range` with zeros, as a hole if the file system supports holes.
    fn zero(&self, range: Range<u64>) -> Result<(), HostError> {
        let device = self.fresh.device();
        if device.punch(range.clone()).unwrap_or(false) {
            return Ok(());
        }
        let zeros = vec![0; GATHER];
        let mut at = range.start;
        while at < range.end {
            let part = to_usize(range.end - at).min(GATHER);
            let bytes = zeros.get(..part).unwrap_or_default();
            write_all(bytes, at, Self::target(&self.fresh, &self.writeback))?;
            at += to_u64(part);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Publish;

    #[test]
    fn received_bytes_are_in_place_and_missing_ones_are_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("image");
        let mut streamed_image = StreamedImage::new(FreshFile::new(&target, 0).unwrap(), 4096, 4 << 20);
        streamed_image.write(8192, &[1; 100]).unwrap();
        streamed_image.write(12_288, &[2; 5000]).unwrap();
        streamed_image.write(1 << 20, &vec![3; 2 << 20]).unwrap();
        streamed_image.write(4 << 20, b"behind the end").unwrap();
        let gone = [12_288..20_480, (3 << 20) - 1..5 << 20];
        streamed_image.finish(3 << 20, &gone).unwrap().publish(Publish::Keep).unwrap();
        let mut expected = vec![0; 3 << 20];
        expected[8192..8292].fill(1);
        expected[1 << 20..(3 << 20) - 1].fill(3);
        assert!(std::fs::read(&target).unwrap() == expected);
    }
}
