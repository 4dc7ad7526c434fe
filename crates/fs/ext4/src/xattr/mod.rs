//! Extended attributes: in the inode after its fields, in one block, and values in inodes of their own.
//!
//! Layout: a table of entries grows from the start of the area, and values grow from its end; 4 zero bytes end the
//! table. In an inode the area begins with a magic number, and offsets count from the first entry. A block begins
//! with a header, and offsets count from the block's start.
//! Invariant: a walk through a table ends, since each entry has at least 16 bytes.
//! Source: Linux Documentation/filesystems/ext4/attributes.rst; fs/ext4/xattr.c; e2fsprogs lib/ext2fs/ext_attr.c.

mod area;
mod block;
mod change;
mod hash;
mod inline;
mod name;
mod plan;
mod set;
mod share;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod values;
#[cfg(test)]
mod volume_tests;

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Ino, Result, Structure};
use obento_block::Block;
use zerocopy::{FromBytes, IntoBytes};

pub(crate) use area::{AttributeArea, AttributeEntry, VALUE_MAX};
pub(crate) use block::USERS_MAX;
pub(crate) use hash::{block_hash, entry_hash, signed_entry_hash, words};
pub(crate) use inline::{inline_rest_max, with_inline_rest};
pub(crate) use set::{AttributeSet, LargeValue, LargeValues, SetError};
pub(crate) use share::Shares;
pub(crate) use values::UnreferencedValues;

use name::{ACL_ACCESS, ACL_DEFAULT, INLINE_DATA, SYSTEM, StoredName};

use crate::acl;
use crate::checksum::Crc;
use crate::inode::{Inode, InodeFlags};
use crate::raw::{RawInode, RawXattrHeader};
use crate::unit::VolBlock;
use crate::volume::Volume;

/// `EXT4_XATTR_MAGIC`.
pub(crate) const MAGIC: u32 = 0xea02_0000;

impl Volume {
    /// Returns the value of the attribute `name` in the form of `getxattr(2)`. Fails with `NotSupported` for a name
    /// that cannot be set, and with `NoData` or `Corrupt`.
    pub fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        StoredName::parse(name)?;
        let inside = AttributeArea::in_inode(inode)
            .map(|area| self.get_from(&area, inode, name))
            .transpose()?
            .flatten();
        if let Some(value) = inside {
            return Ok(value);
        }
        let Some(block) = self.xattr_block(inode)? else { return Err(Error::NoData) };
        self.get_from(&AttributeArea::in_block(inode.ino(), &block), inode, name)?.ok_or(Error::NoData)
    }

    /// Passes the name of every attribute to `sink`, first those in the inode. Fails with `Corrupt` after the
    /// readable names.
    pub fn list_xattrs(&self, inode: &Inode, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let inside = AttributeArea::in_inode(inode).map_or(Ok(()), |area| area.list(sink));
        let block = self.xattr_block(inode).and_then(|block| match block {
            Some(block) => AttributeArea::in_block(inode.ino(), &block).list(sink),
            None => Ok(()),
        });
        inside.and(block)
    }

    /// Returns the inline data after `i_block`: the value of `system.data`, which is in the inode.
    pub(crate) fn inline_rest<'a>(&self, inode: &'a Inode) -> Result<&'a [u8]> {
        self.inline_rest_at(inode).map(|(_, rest)| rest)
    }

    /// Returns [`Self::inline_rest`] with its byte offset in the inode's record.
    pub(crate) fn inline_rest_at<'a>(&self, inode: &'a Inode) -> Result<(usize, &'a [u8])> {
        let Some(area) = AttributeArea::in_inode(inode) else { return Ok((0, &[])) };
        match area.find(|entry| entry.raw.e_name_index == SYSTEM && entry.name == INLINE_DATA)? {
            Some(entry) => {
                let start = usize::from(inode.xattr_offset().unwrap_or(0)).saturating_add(4);
                Ok((start.saturating_add(entry.raw.e_value_offs.get().into()), area.value(&entry)?))
            }
            None => Ok((0, &[])),
        }
    }

    fn get_from(&self, area: &AttributeArea<'_>, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(entry) = area.find(|entry| entry.has_name(name))? else { return Ok(None) };
        let value = match entry.raw.e_value_inum.get() {
            0 => {
                let value = area.value(&entry)?;
                area.check_hash(&entry, words(value))?;
                copy(value)?
            }
            inum => self.value_of_inode(area, inode, &entry, inum)?,
        };
        if !matches!(entry.raw.e_name_index, ACL_ACCESS | ACL_DEFAULT) {
            return Ok(Some(value));
        }
        let bad = || area.bad_field(&entry, "ext4_acl_header", entry.raw.e_value_offs.get().into());
        acl::to_xattr(&value)?.ok_or_else(bad).map(Some)
    }

    /// Returns the verified block of attributes of an inode. Other inodes may share it.
    fn xattr_block(&self, inode: &Inode) -> Result<Option<Block>> {
        inode.xattr_block().map(|number| self.xattr_block_at(inode, number)).transpose()
    }

    fn xattr_block_at(&self, inode: &Inode, number: VolBlock) -> Result<Block> {
        let structure = Structure::Xattr(inode.ino());
        let block = self.data_block(number, structure)?;
        let Ok((header, rest)) = RawXattrHeader::ref_from_prefix(&block) else {
            return Err(Corrupt::Truncated { structure, block: number.0, offset: 0, len: 32 }.into());
        };
        let magic = header.h_magic.get();
        if magic != MAGIC {
            let (found, expected) = (magic.into(), MAGIC.into());
            return Err(Corrupt::Magic { structure, block: number.0, found, expected }.into());
        }
        if header.h_blocks.get() != 1 {
            let found = header.h_blocks.get().into();
            return Err(
                Corrupt::Field { structure, field: "h_blocks", block: number.0, offset: 8, found }.into()
            );
        }
        if self.super_block().has_metadata_csum() && !block.is_verified() {
            let blank = RawXattrHeader { h_checksum: 0.into(), ..*header };
            let crc = Crc::new(self.super_block().checksum_seed).add(&number.0.to_le_bytes());
            let (found, expected) = (header.h_checksum.get(), crc.add(blank.as_bytes()).add(rest).get());
            if found != expected {
                return Err(Corrupt::Checksum { structure, block: number.0, found, expected }.into());
            }
            block.set_verified();
        }
        Ok(block)
    }

    /// Returns a value in an inode of its own. It is verified by a hash, or in the old style of Lustre by a reference
    /// to its owner.
    fn value_of_inode(
        &self,
        area: &AttributeArea<'_>,
        owner: &Inode,
        entry: &AttributeEntry<'_>,
        inum: u32,
    ) -> Result<Vec<u8>> {
        let holder = self.inode(Ino(inum.into()))?;
        let size = entry.raw.e_value_size.get();
        if !holder.has(InodeFlags::EA_INODE) || holder.size() != u64::from(size) || size > VALUE_MAX {
            return Err(area.bad_field(entry, "e_value_inum", inum.into()));
        }
        let mut value = Vec::new();
        value.try_reserve_exact(to_usize(size.into()))?;
        value.resize(to_usize(size.into()), 0);
        self.read_inode_data(&holder, 0, &mut value)?;
        let raw = RawInode::ref_from_prefix(holder.record()).map(|(raw, _)| raw);
        let (hash, parent) = raw.map_or((0, 0), |raw| (raw.i_atime.get(), raw.i_mtime.get()));
        // `EXT4_XATTR_INODE_GET_PARENT`: there is no hash.
        let is_lustre = entry.raw.e_hash.get() != hash
            && u64::from(parent) == owner.ino().0
            && holder.generation() == owner.generation();
        if is_lustre {
            return Ok(value);
        }
        let expected = Crc::new(self.super_block().checksum_seed).add(&value).get();
        if hash != expected {
            let (structure, block) = (Structure::Xattr(owner.ino()), holder.place().block.0);
            return Err(Corrupt::Checksum { structure, block, found: hash, expected }.into());
        }
        area.check_hash(entry, core::iter::once(hash))?;
        Ok(value)
    }
}

fn copy(value: &[u8]) -> Result<Vec<u8>> {
    let mut own = Vec::new();
    own.try_reserve_exact(value.len())?;
    own.extend_from_slice(value);
    Ok(own)
}

impl<'a> AttributeArea<'a> {
    /// Returns the area after an inode's fields, if it has the magic number.
    fn in_inode(inode: &'a Inode) -> Option<Self> {
        let (magic, bytes) = inode.xattr_bytes().split_first_chunk()?;
        let place = inode.place();
        let offset = u32::from(inode.xattr_offset()?).saturating_add(4);
        let base = place.offset.saturating_add(offset);
        let this = Self { ino: inode.ino(), block: place.block.0, base, bytes, table: 0 };
        (u32::from_le_bytes(*magic) == MAGIC).then_some(this)
    }

    fn in_block(ino: Ino, block: &'a Block) -> Self {
        Self { ino, block: block.number(), base: 0, bytes: block, table: size_of::<RawXattrHeader>() }
    }
}
