//! Small files whose bytes lie in the inode.
//!
//! On disk: the first 60 bytes in `i_block`, the rest as the value of the attribute `system.data` in the inode.
//! What the size promises beyond these reads as zeros: growing a file this way writes nothing.
//! Source: Linux `Documentation/filesystems/ext4/inlinedata.rst`, `fs/ext4/inline.c`.

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};

use crate::inode::{Inode, InodeFlags};
use crate::volume::Volume;

/// The bytes of a file that lie in its inode, in two pieces.
#[derive(Clone, Copy, Debug)]
pub struct InlineData<'a> {
    /// From `i_block`.
    pub head: &'a [u8],
    /// From `system.data`.
    pub tail: &'a [u8],
}

impl InlineData<'_> {
    /// Returns how many there are, but no more than the file has.
    pub fn len(&self, inode: &Inode) -> u64 {
        to_u64(self.head.len().saturating_add(self.tail.len())).min(inode.size())
    }

    /// Copies bytes from `offset` on into `buf`; answers how many.
    pub fn copy(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> usize {
        let left = to_usize(self.len(inode).saturating_sub(offset));
        let bytes = self.head.iter().chain(self.tail).skip(to_usize(offset)).take(left);
        buf.iter_mut().zip(bytes).map(|(to, from)| *to = *from).count()
    }
}

impl Volume {
    /// Returns the bytes of a file with the flag `INLINE_DATA`; none for others.
    pub fn inline_data<'a>(&self, inode: &'a Inode) -> Result<InlineData<'a>> {
        if !inode.has(InodeFlags::INLINE_DATA) {
            return Ok(InlineData { head: &[], tail: &[] });
        }
        Ok(InlineData { head: inode.i_block(), tail: self.inline_rest(inode)? })
    }
}
