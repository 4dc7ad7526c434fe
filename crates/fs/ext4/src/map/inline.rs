//! Small files whose data is in the inode.
//!
//! On disk: the first 60 bytes are in `i_block`, the rest is the value of the attribute `system.data` in the inode.
//! Bytes after these up to the size read as zeros: extending such a file writes nothing.
//! Source: Linux `Documentation/filesystems/ext4/inlinedata.rst`, `fs/ext4/inline.c`.

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};

use crate::inode::{Inode, InodeFlags};
use crate::volume::Volume;

/// The inline data of a file, in two pieces.
#[derive(Clone, Copy, Debug)]
pub struct InlineData<'a> {
    /// From `i_block`.
    pub head: &'a [u8],
    /// From `system.data`.
    pub tail: &'a [u8],
}

impl InlineData<'_> {
    /// Returns the number of bytes, limited to the size of the file.
    pub fn len(&self, inode: &Inode) -> u64 {
        to_u64(self.head.len().saturating_add(self.tail.len())).min(inode.size())
    }

    /// Copies bytes from `offset` on into `buf`. Returns their number.
    pub fn copy(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> usize {
        let left = to_usize(self.len(inode).saturating_sub(offset));
        let bytes = self.head.iter().chain(self.tail).skip(to_usize(offset)).take(left);
        buf.iter_mut().zip(bytes).map(|(to, from)| *to = *from).count()
    }
}

impl Volume {
    /// Returns the data of a file with the flag `INLINE_DATA`, or empty data for other files.
    pub fn inline_data<'a>(&self, inode: &'a Inode) -> Result<InlineData<'a>> {
        if !inode.has(InodeFlags::INLINE_DATA) {
            return Ok(InlineData { head: &[], tail: &[] });
        }
        Ok(InlineData { head: inode.i_block(), tail: self.inline_rest(inode)? })
    }
}
