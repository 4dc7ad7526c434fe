//! Extended attributes: in the inode behind its fields, in one block, and values in inodes of their own.
//!
//! Layout: a table of entries growing from the start of the area, values growing from its end; 4 zero bytes end the
//! table. In an inode the area begins with a magic number and offsets count from the first entry; in a block with a
//! header, and they count from the block's start.
//! Invariant: a table's walk ends, because each entry takes at least 16 bytes.
//! Source: Linux Documentation/filesystems/ext4/attributes.rst; fs/ext4/xattr.c; e2fsprogs lib/ext2fs/ext_attr.c.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Ino, Result, Structure};
use obento_block::Block;
use zerocopy::{FromBytes, IntoBytes};

use crate::acl;
use crate::checksum::Crc;
use crate::inode::{Inode, InodeFlags};
use crate::raw::{RawInode, RawXattrEntry, RawXattrHeader};
use crate::volume::Volume;

/// `EXT4_XATTR_MAGIC`.
const MAGIC: u32 = 0xea02_0000;
/// `EXT4_XATTR_SIZE_MAX`: the longest value that a format with value inodes can hold.
const VALUE_MAX: u32 = 1 << 24;
/// `EXT4_XATTR_INDEX_*`.
const ACL_ACCESS: u8 = 2;
const ACL_DEFAULT: u8 = 3;
const SYSTEM: u8 = 7;
const RICHACL: u8 = 8;
/// The attribute under `SYSTEM` that holds what of inline data does not fit `i_block`.
const INLINE_DATA: &[u8] = b"data";

/// What a name index stands for.
fn prefix(index: u8) -> Option<&'static [u8]> {
    Some(match index {
        1 => b"user.",
        ACL_ACCESS => b"system.posix_acl_access",
        ACL_DEFAULT => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        SYSTEM => b"system.",
        RICHACL => b"system.richacl",
        10 => b"gnu.",
        _ => return None,
    })
}

/// Whether Linux lists attributes with this index: it has no handler for the others.
fn is_listed(index: u8) -> bool {
    prefix(index).is_some() && !matches!(index, SYSTEM | RICHACL)
}

impl Volume {
    /// The value of the attribute `name`, as `getxattr(2)` gives it. Errors: NoData; Corrupt.
    pub fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let inside =
            Area::in_inode(inode).map(|area| self.get_from(&area, inode, name)).transpose()?.flatten();
        if let Some(value) = inside {
            return Ok(value);
        }
        let Some(block) = self.xattr_block(inode)? else { return Err(Error::NoData) };
        self.get_from(&Area::in_block(inode.ino(), &block), inode, name)?.ok_or(Error::NoData)
    }

    /// Hands the name of every attribute to `sink`, those in the inode first. Errors: Corrupt, after what could be
    /// read.
    pub fn list_xattrs(&self, inode: &Inode, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let inside = Area::in_inode(inode).map_or(Ok(()), |area| area.list(sink));
        let block = self.xattr_block(inode).and_then(|block| match block {
            Some(block) => Area::in_block(inode.ino(), &block).list(sink),
            None => Ok(()),
        });
        inside.and(block)
    }

    /// What of an inode's inline data does not fit `i_block`: the value of `system.data`, which lies in the inode.
    pub(crate) fn inline_rest<'a>(&self, inode: &'a Inode) -> Result<&'a [u8]> {
        let Some(area) = Area::in_inode(inode) else { return Ok(&[]) };
        match area.find(|entry| entry.raw.e_name_index == SYSTEM && entry.name == INLINE_DATA)? {
            Some(entry) => area.value(&entry),
            None => Ok(&[]),
        }
    }

    fn get_from(&self, area: &Area<'_>, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
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

    /// The block of attributes, proved. The caller's inode names it, others may too.
    fn xattr_block(&self, inode: &Inode) -> Result<Option<Block>> {
        let Some(number) = inode.xattr_block() else { return Ok(None) };
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
        Ok(Some(block))
    }

    /// A value that has its own inode: proved by a hash, or in the old style of Lustre by pointing back to its owner.
    fn value_of_inode(
        &self,
        area: &Area<'_>,
        owner: &Inode,
        entry: &Entry<'_>,
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
        // `EXT4_XATTR_INODE_GET_PARENT`: there is no hash then.
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

/// A table of attributes with its values.
struct Area<'a> {
    ino: Ino,
    /// For errors: the block and where in it offsets are counted from.
    block: u64,
    base: u32,
    /// From where value offsets are counted to the end.
    bytes: &'a [u8],
    /// Byte offset of the first entry.
    table: usize,
}

/// An entry whose name lies within its area.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    offset: usize,
    raw: &'a RawXattrEntry,
    name: &'a [u8],
}

impl Entry<'_> {
    fn has_name(&self, wanted: &[u8]) -> bool {
        let index = self.raw.e_name_index;
        if index == SYSTEM && self.name == INLINE_DATA {
            return false;
        }
        prefix(index).and_then(|prefix| wanted.strip_prefix(prefix)) == Some(self.name)
    }
}

impl<'a> Area<'a> {
    /// What follows an inode's fields; none without the magic number.
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

    /// The entries in their order; an error is the last item.
    fn entries(&self) -> impl Iterator<Item = Result<Entry<'a>>> {
        let mut next = Some(self.table);
        core::iter::from_fn(move || {
            let entry = self.entry(next.take()?)?;
            next = entry.as_ref().ok().and_then(|entry| entry.end());
            Some(entry)
        })
    }

    /// The entry at `offset`; none at the end of the table.
    fn entry(&self, offset: usize) -> Option<Result<Entry<'a>>> {
        let bytes = self.bytes.get(offset..)?;
        if bytes.first_chunk().is_none_or(|end| *end == [0; 4]) {
            return None;
        }
        let Ok((raw, rest)) = RawXattrEntry::ref_from_prefix(bytes) else {
            return Some(Err(self.truncated(offset, size_of::<RawXattrEntry>())));
        };
        let Some(name) = rest.get(..usize::from(raw.e_name_len)) else {
            return Some(Err(self.truncated(offset, usize::from(raw.e_name_len).saturating_add(16))));
        };
        let entry = Entry { offset, raw, name };
        if name.contains(&0) {
            return Some(Err(self.bad_field(&entry, "e_name", u64::from(raw.e_name_len))));
        }
        Some(Ok(entry))
    }

    fn find(&self, is_wanted: impl Fn(&Entry<'_>) -> bool) -> Result<Option<Entry<'a>>> {
        for entry in self.entries() {
            let entry = entry?;
            if is_wanted(&entry) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn list(&self, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut full = Vec::new();
        for entry in self.entries() {
            let entry = entry?;
            if let Some(prefix) = prefix(entry.raw.e_name_index).filter(|_| is_listed(entry.raw.e_name_index))
            {
                full.clear();
                full.try_reserve(prefix.len().saturating_add(entry.name.len()))?;
                full.extend_from_slice(prefix);
                full.extend_from_slice(entry.name);
                sink(&full);
            }
        }
        Ok(())
    }

    /// The value of `entry`, which lies in this area, behind the table.
    fn value(&self, entry: &Entry<'_>) -> Result<&'a [u8]> {
        let (offset, size) = (entry.raw.e_value_offs.get(), entry.raw.e_value_size.get());
        if size > VALUE_MAX {
            return Err(self.bad_field(entry, "e_value_size", size.into()));
        }
        if size == 0 {
            return Ok(&[]);
        }
        let start = usize::from(offset);
        let value = self.bytes.get(start..start.saturating_add(to_usize(size.into())));
        let end = self.entries().filter_map(|entry| entry.ok()?.end()).last();
        if end.is_some_and(|end| start < end) {
            return Err(self.bad_field(entry, "e_value_offs", offset.into()));
        }
        value.ok_or_else(|| self.bad_field(entry, "e_value_size", size.into()))
    }

    /// Compares `e_hash` with what name and value give; 0 was written for attributes in inodes once.
    fn check_hash(&self, entry: &Entry<'_>, value: impl Iterator<Item = u32> + Clone) -> Result<()> {
        let found = entry.raw.e_hash.get();
        let expected = entry_hash(entry.name.iter().map(|&byte| u32::from(byte)), value.clone());
        // Old kernels took characters as signed where the compiler did.
        let signed = entry.name.iter().map(|&byte| i32::from(byte.cast_signed()).cast_unsigned());
        if found == 0 || found == expected || found == entry_hash(signed, value) {
            return Ok(());
        }
        let structure = Structure::Xattr(self.ino);
        Err(Corrupt::Checksum { structure, block: self.block, found, expected }.into())
    }

    fn place(&self, offset: usize) -> u32 {
        self.base.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX))
    }

    fn truncated(&self, offset: usize, len: usize) -> Error {
        let (structure, len) = (Structure::Xattr(self.ino), obento_base::wire::to_u64(len));
        Corrupt::Truncated { structure, block: self.block, offset: self.place(offset), len }.into()
    }

    fn bad_field(&self, entry: &Entry<'_>, field: &'static str, found: u64) -> Error {
        let (structure, offset) = (Structure::Xattr(self.ino), self.place(entry.offset));
        Corrupt::Field { structure, field, block: self.block, offset, found }.into()
    }
}

impl Entry<'_> {
    /// Where the next entry starts.
    fn end(&self) -> Option<usize> {
        let len = usize::from(self.raw.e_name_len).checked_next_multiple_of(4)?;
        self.offset.checked_add(size_of::<RawXattrEntry>())?.checked_add(len)
    }
}

/// `ext4_xattr_hash_entry`.
fn entry_hash(name: impl Iterator<Item = u32>, value: impl Iterator<Item = u32>) -> u32 {
    let name = name.fold(0_u32, |hash, char| hash.rotate_left(5) ^ char);
    value.fold(name, |hash, word| hash.rotate_left(16) ^ word)
}

/// A value as little-endian words, the last one filled up with zeros.
fn words(value: &[u8]) -> impl Iterator<Item = u32> + Clone {
    value.chunks(4).map(|chunk| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)))
}

fn copy(value: &[u8]) -> Result<Vec<u8>> {
    let mut own = Vec::new();
    own.try_reserve_exact(value.len())?;
    own.extend_from_slice(value);
    Ok(own)
}
