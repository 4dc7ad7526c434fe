//! The places of the bytes of a file.

use core::ops::Range;

use obento_base::{Corrupt, Error, Result};
use obento_driver::{Extent, Span};

use crate::inode::Inode;
use crate::volume::Volume;

impl Volume {
    /// Returns the run of `inode` at `range.start`, as `map` of the contract requires. Fails with `Invalid` for an
    /// empty range, or with `Corrupt` for a chain that ends too early or is damaged there.
    pub fn map(&self, inode: &Inode, range: Range<u64>) -> Result<Extent> {
        let size = inode.entry.size();
        let asked = range.end.checked_sub(range.start).filter(|&len| len > 0).ok_or(Error::Invalid)?;
        if range.start >= size {
            return Ok(Extent { len: asked, span: Span::Hole });
        }
        let cluster_size = u64::from(self.super_block().cluster_size);
        let number = |bytes: Option<u64>| bytes.and_then(|count| u32::try_from(count).ok());
        let at = number(range.start.checked_div(cluster_size)).ok_or(Error::FileTooBig)?;
        let within = range.start.checked_rem(cluster_size).unwrap_or(0);
        let len = asked.min(size.saturating_sub(range.start));
        let want = number(Some(within.saturating_add(len).div_ceil(cluster_size))).unwrap_or(u32::MAX);
        let chain = self.chain(inode);
        let run = chain.lock().find(&mut self.table(), inode.ino, at, want)?;
        let run =
            run.ok_or(Corrupt::Chain { ino: inode.ino, at, what: "ends before the end of the file" })?;
        let start = self.super_block().offset_of(run.start).ok_or(Error::Invalid)?;
        let covered = u64::from(run.len).saturating_mul(cluster_size).saturating_sub(within);
        Ok(Extent { len: len.min(covered), span: Span::Mapped(start.saturating_add(within)) })
    }
}
