//! Inodes: decoding of the record in the inode table to checked fields.
//!
//! On disk: [`RawInode`], then [`RawInodeExtra`] up to `i_extra_isize`, then extended attributes up to the super
//! block's inode size.
//! Invariant: an [`Inode`] never changes. It is a view of the block that contains it (or of a record that the journal
//! gave in its place) and keeps that alive.
//! Source: Linux `Documentation/filesystems/ext4/inodes.rst`, `fs/ext4/inode.c` `__ext4_iget`.

mod attr;
mod decode;
mod flags;
mod live;

use alloc::sync::Arc;

use obento_base::{FileKind, Ino};
use obento_block::Block;

pub(crate) use attr::{
    encode_device, encode_nearest_time, encode_time, fits_device, nanoseconds, sectors_of, timestamp,
};
pub(crate) use decode::{Format, reaches, seal_record, stored_checksum};
pub use flags::InodeFlags;
pub(crate) use live::Live;

use crate::raw::{RawInode, RawInodeExtra};
use crate::unit::VolBlock;

/// A checked inode.
#[derive(Clone, Debug)]
pub struct Inode {
    ino: Ino,
    record: Record,
    place: InodePlace,
    kind: FileKind,
    mode: u16,
    links: u16,
    size: u64,
    flags: InodeFlags,
    generation: u32,
    file_acl: VolBlock,
    xattr_start: Option<u16>,
    seed: u32,
}

/// The place of an inode on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodePlace {
    /// Block of the inode table.
    pub block: VolBlock,
    /// Byte offset within the block.
    pub offset: u32,
}

/// The bytes of an inode: exactly `inode_size`, checked when it is created.
#[derive(Clone, Debug)]
enum Record {
    Table { block: Block, start: usize, end: usize },
    Replayed(Arc<[u8]>),
}

impl Inode {
    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the type of the file.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns `st_mode` as stored.
    pub fn mode(&self) -> u16 {
        self.mode
    }

    /// Returns the link count as stored: with `dir_nlink`, 1 means more than 65,000 subdirectories.
    pub fn links(&self) -> u16 {
        self.links
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the flags.
    pub fn flags(&self) -> InodeFlags {
        self.flags
    }

    /// Returns whether all of `flags` are set.
    pub fn has(&self, flags: InodeFlags) -> bool {
        self.flags.contains(flags)
    }

    /// Returns the generation, which distinguishes successive inodes with this number.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the block of extended attributes, if there is one.
    pub fn xattr_block(&self) -> Option<VolBlock> {
        (self.file_acl.0 != 0).then_some(self.file_acl)
    }

    /// Returns the seed of the checksums of this file's blocks: from UUID (or `s_checksum_seed`), number and
    /// generation.
    pub fn checksum_seed(&self) -> u32 {
        self.seed
    }

    /// Returns the place on the volume.
    pub fn place(&self) -> InodePlace {
        self.place
    }

    /// Returns the whole record, of the super block's inode size.
    pub fn record(&self) -> &[u8] {
        match &self.record {
            Record::Table { block, start, end } => block.get(*start..*end).unwrap_or_default(),
            Record::Replayed(bytes) => bytes,
        }
    }

    /// Returns `i_block`: 60 bytes of block map, extent tree, link target or inline data.
    pub fn i_block(&self) -> &[u8] {
        self.raw().map_or(&[], |(raw, _)| &raw.i_block)
    }

    /// Returns the extended attributes in the inode, including their magic number. Empty if the inode has no space for
    /// attributes.
    pub fn xattr_bytes(&self) -> &[u8] {
        self.xattr_start.and_then(|start| self.record().get(usize::from(start)..)).unwrap_or_default()
    }

    /// Returns the byte offset of [`Self::xattr_bytes`] within the record.
    pub fn xattr_offset(&self) -> Option<u16> {
        self.xattr_start
    }

    /// Returns the raw fields, with those after the first 128 bytes if the inode has space for them.
    fn raw(&self) -> Option<(&RawInode, Option<&RawInodeExtra>)> {
        decode::split_record(self.record())
    }
}
