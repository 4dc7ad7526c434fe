//! The places of the bytes of a file.
//!
//! Bytes past the valid length read as zeros and are [`Span::Unwritten`]. The rest of the block that contains the end
//! of the valid length has arbitrary contents. Only the driver can read and write it: [`Span::Driver`].

use core::ops::Range;

use obento_base::{Corrupt, Error, Result};
use obento_driver::{Extent, Span};

use crate::inode::Inode;
use crate::super_block::SuperBlock;
use crate::volume::Volume;

impl SuperBlock {
    /// Returns the unit in which files are mapped: a page, or a cluster if that is smaller.
    pub fn block_size(&self) -> u32 {
        self.cluster_size.min(4096)
    }
}

impl Volume {
    /// Returns the run of `inode` at `range.start`, as `map` of the contract requires. Fails with `Invalid` for an
    /// empty range, or with `Corrupt` for a chain that ends too early or is damaged there.
    pub fn map(&self, inode: &Inode, range: Range<u64>) -> Result<Extent> {
        let (size, valid) = (inode.entry.size(), inode.entry.valid());
        let asked = range.end.checked_sub(range.start).filter(|&len| len > 0).ok_or(Error::Invalid)?;
        let block = u64::from(self.super_block().block_size());
        let valid_end = valid.checked_next_multiple_of(block).unwrap_or(u64::MAX);
        match range.start {
            start if start >= size => Ok(Extent { len: asked, span: Span::Hole }),
            start if start < valid => {
                let run = self.run_at(inode, start, asked.min(valid.saturating_sub(start)))?;
                Ok(Extent { len: run.end.saturating_sub(run.start), span: Span::Mapped(run.start) })
            }
            start if start < valid_end => {
                let len = asked.min(valid_end.min(size).saturating_sub(start));
                Ok(Extent { len, span: Span::Driver })
            }
            start => {
                let end = size.checked_next_multiple_of(block).unwrap_or(u64::MAX);
                Ok(Extent { len: asked.min(end.saturating_sub(start)), span: Span::Unwritten })
            }
        }
    }

    /// Returns the place on the device of at most `len` bytes from `offset` on, all of which are in clusters of the
    /// file.
    pub fn run_at(&self, inode: &Inode, offset: u64, len: u64) -> Result<Range<u64>> {
        let cluster_size = u64::from(self.super_block().cluster_size);
        let number = |bytes: Option<u64>| bytes.and_then(|count| u32::try_from(count).ok());
        let at = number(offset.checked_div(cluster_size)).ok_or(Error::FileTooBig)?;
        let within = offset.checked_rem(cluster_size).unwrap_or(0);
        let want = self.super_block().clusters_for(within.saturating_add(len));
        let chain = self.chain(inode)?;
        let run = chain.lock().find(&mut self.table(), inode.ino, at, want)?;
        let run =
            run.ok_or(Corrupt::Chain { ino: inode.ino, at, what: "ends before the end of the file" })?;
        let start = self.super_block().offset_of(run.start).ok_or(Error::Invalid)?.saturating_add(within);
        let covered = u64::from(run.len).saturating_mul(cluster_size).saturating_sub(within);
        Ok(start..start.saturating_add(len.min(covered)))
    }
}
