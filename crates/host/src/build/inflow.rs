//! An image whose files are written while they come.

use std::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice as _;

use super::fresh::FreshFile;
use super::gather::{GATHER, Gather, Target, write_all};
use super::writeback::Writeback;
use crate::HostError;

/// A new image that has no length yet.
#[derive(Debug)]
pub struct Inflow {
    fresh: FreshFile,
    gather: Gather,
    writeback: Writeback,
    /// What lies behind is not written, since there will be no image.
    limit: u64,
}

impl Inflow {
    /// Into `fresh`, which will have blocks of `block` bytes, and be `limit` bytes long at most.
    pub fn new(fresh: FreshFile, block: u64, limit: u64) -> Self {
        let writeback = Writeback::new(fresh.device().host_file().clone());
        Self { fresh, gather: Gather::new(block), writeback, limit }
    }

    fn target<'a>(fresh: &'a FreshFile, writeback: &'a Writeback) -> Target<'a> {
        let device = fresh.device();
        Target { file: device.host_file(), path: device.path(), writeback }
    }

    /// Writes bytes where they belong, at once or later. Errors: System.
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

    /// Lets the image be `len` bytes long, with zeros in `gone` and behind what was written. Errors: System; those of the
    /// device.
    pub fn finish(mut self, len: u64, gone: &[Range<u64>]) -> Result<FreshFile, HostError> {
        self.gather.flush(Self::target(&self.fresh, &self.writeback))?;
        self.fresh.set_len(len)?;
        let inside = gone.iter().map(|range| range.start.min(len)..range.end.min(len));
        inside.filter(|range| !range.is_empty()).try_for_each(|range| self.zero(range))?;
        Ok(self.fresh)
    }

    /// Lets `range` be zeros: a hole, where the file system makes one.
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
    fn what_came_is_where_it_belongs_and_what_is_gone_is_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("image");
        let mut inflow = Inflow::new(FreshFile::new(&target, 0).unwrap(), 4096, 4 << 20);
        inflow.write(8192, &[1; 100]).unwrap();
        inflow.write(12_288, &[2; 5000]).unwrap();
        inflow.write(1 << 20, &vec![3; 2 << 20]).unwrap();
        inflow.write(4 << 20, b"behind the end").unwrap();
        let gone = [12_288..20_480, (3 << 20) - 1..5 << 20];
        inflow.finish(3 << 20, &gone).unwrap().publish(Publish::Keep).unwrap();
        let mut expected = vec![0; 3 << 20];
        expected[8192..8292].fill(1);
        expected[1 << 20..(3 << 20) - 1].fill(3);
        assert!(std::fs::read(&target).unwrap() == expected);
    }
}
