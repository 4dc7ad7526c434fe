//! Targets of symbolic links.
//!
//! On disk: a target of up to 59 bytes is in `i_block` (a *fast* link, which owns no block). A longer target is in the
//! first block of the file, or stored as inline data. Source: Linux `fs/ext4/inode.c` `ext4_inode_is_fast_symlink`,
//! `fs/ext4/symlink.c`.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, FileKind, Result};

use crate::inode::{Inode, InodeFlags};
use crate::raw::RawInode;
use crate::super_block::until_nul;
use crate::unit::FileBlock;
use crate::volume::Volume;

/// Size of `i_block`, including the NUL.
const FAST_MAX: u64 = 60;

impl Volume {
    /// Returns the target of a symbolic link. Fails with `Invalid` if `inode` is not a symbolic link.
    pub(crate) fn read_target(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.kind() != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        self.refuse_encrypted(inode, "encrypted symbolic link")?;
        let bad_size =
            || inode.bad_field("i_size_lo", core::mem::offset_of!(RawInode, i_size_lo), inode.size());
        if inode.size() == 0 || inode.size() > self.block_size().into() {
            return Err(bad_size());
        }
        let len = to_usize(inode.size());
        let mut target = Vec::new();
        target.try_reserve_exact(len)?;
        if inode.has(InodeFlags::INLINE_DATA) {
            target.resize(len, 0);
            let copied = self.inline_data(inode)?.copy(inode, 0, &mut target);
            target.truncate(copied);
        } else if self.is_fast(inode) {
            target.extend_from_slice(inode.i_block().get(..len).ok_or_else(bad_size)?);
        } else if let Some(block) = self.read_file_block(inode, FileBlock(0))? {
            target.extend_from_slice(block.get(..len).unwrap_or_default());
        }
        let end = until_nul(&target).len();
        target.truncate(end);
        if target.is_empty() { Err(bad_size()) } else { Ok(target) }
    }

    /// Returns whether the target is in `i_block`: the inode owns no block except that of its attributes.
    fn is_fast(&self, inode: &Inode) -> bool {
        let sb = self.super_block();
        let cluster_sectors = sb.cluster.len(sb.block_size.sectors().into());
        let attributes = if inode.xattr_block().is_some() { cluster_sectors } else { 0 };
        let owns_nothing = inode.sectors(sb).saturating_sub(attributes) == 0;
        // Attribute values in inodes of their own are counted, too; the size then decides.
        owns_nothing || inode.size() < FAST_MAX && !inode.has(InodeFlags::EXTENTS)
    }
}
