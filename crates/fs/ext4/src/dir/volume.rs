//! Directories of an open volume, from its super block and an inode.

use core::cell::Cell;

use obento_base::{Error, Feature, Ino, Name, Result};
use obento_driver::{Cookie, EntrySink};

use super::block::{BlockOrHole, DirBlocks};
use super::{Chars, Damaged, DirShape, Directory, EntriesBody, Fold, Hasher, Inline, Order};
use crate::checksum::inode_seed;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::inode::{Inode, InodeFlags};
use crate::map::{Blocks, MappedRun};
use crate::super_block::SuperBlock;
use crate::unit::FileBlock;
use crate::volume::Volume;

/// `EXT2_FLAGS_UNSIGNED_HASH` of `s_flags`. Volumes with neither flag come from machines with signed characters, or
/// from a kernel that will set one (fs/ext4/super.c, `ext4_hash_info_init`).
const UNSIGNED_HASH: u32 = 2;
/// `EXT4_ENC_UTF8_12_1`.
pub(crate) const UTF8_12_1: u16 = 1;
/// `EXT4_HTREE_LEVEL` and `EXT4_HTREE_LEVEL_COMPAT`.
const LEVELS_LARGE_DIR: u8 = 3;
const LEVELS: u8 = 2;
/// `DX_HASH_TEA`: higher versions are not stored in an index.
const MAX_STORED_HASH: u8 = 2;

impl Volume {
    /// Passes the entries of `dir` from `from` on to `sink`, including errors of damaged parts. Fails with
    /// `NotDirectory`, or with `Unsupported` if the names are encrypted.
    pub fn read_dir(&self, dir: &Inode, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.refuse_encrypted(dir, "encrypted file name")?;
        self.with_directory_as(dir, Damaged::VolumeOptions, |directory| {
            directory.read_dir(from, &mut |entry| {
                if let Err(Error::Corrupt(damage)) = &entry {
                    self.damage_was_shown(*damage);
                }
                sink(entry)
            });
            Ok(())
        })
    }

    /// Returns the inode that `name` refers to in `dir`, and adds a notice for damage of the block that contains the
    /// name. Fails with `NotDirectory`, `NotFound`, or with `Unsupported` if the names are encrypted.
    pub fn lookup(&self, dir: &Inode, name: &Name) -> Result<Ino> {
        self.refuse_encrypted(dir, "encrypted file name")?;
        let hit = self.with_directory_as(dir, Damaged::VolumeOptions, |directory| directory.find(name))?;
        if let Some(Error::Corrupt(damage)) = hit.damage {
            self.damage_was_met(damage);
        }
        Ok(hit.ino)
    }

    /// Returns the parent of `dir`. Fails with `NotDirectory`.
    pub fn parent(&self, dir: &Inode) -> Result<Ino> {
        self.with_directory_as(dir, Damaged::VolumeOptions, |directory| directory.parent())
    }

    /// Calls a function with a directory for a change, which uses no block with a wrong checksum.
    pub(crate) fn with_directory<T>(
        &self,
        inode: &Inode,
        f: impl FnOnce(&Directory<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_directory_as(inode, Damaged::Refused, f)
    }

    fn with_directory_as<T>(
        &self,
        inode: &Inode,
        damaged: Damaged,
        f: impl FnOnce(&Directory<'_>) -> Result<T>,
    ) -> Result<T> {
        if !inode.is_dir() {
            return Err(Error::NotDirectory);
        }
        let shape = match self.shape(inode)? {
            shape if shape.damaged == Damaged::Ignored => shape,
            shape => DirShape { damaged, ..shape },
        };
        if inode.has(InodeFlags::INLINE_DATA) {
            let body = EntriesBody::Inline(self.inline(inode)?);
            return f(&Directory { shape, body });
        }
        let blocks = InodeBlocks { volume: self, inode, last: Cell::new(None) };
        f(&Directory { shape, body: EntriesBody::Blocks(&blocks) })
    }

    fn inline<'a>(&self, inode: &'a Inode) -> Result<Inline<'a>> {
        let place = inode.place();
        let in_block = |offset| place.offset.saturating_add(offset);
        let (offset, rest) = self.inline_rest_at(inode)?;
        let rest = (in_block(u32::try_from(offset).unwrap_or(u32::MAX)), rest);
        Ok(Inline { block: place.block.0, i_block: (in_block(I_BLOCK), inode.i_block()), rest })
    }

    /// Returns the shape of a directory from the super block and `inode`.
    pub(crate) fn shape(&self, inode: &Inode) -> Result<DirShape> {
        let sb = self.super_block();
        let fold = if inode.has(InodeFlags::CASEFOLD) && sb.incompat.contains(Incompat::CASEFOLD) {
            if sb.raw.s_encoding.get() != UTF8_12_1 {
                return Err(Error::Unsupported(Feature::Named("encoding of file names")));
            }
            Some(Fold::from_flags(sb.raw.s_encoding_flags.get()))
        } else {
            None
        };
        // No directory has more blocks than the device, even if its size or the super block claims so.
        let there_are = self.device().len().div_ceil(u64::from(sb.block_size)).min(sb.blocks_count);
        let blocks = inode.size().div_ceil(u64::from(sb.block_size)).min(there_are);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let has_index = sb.compat.contains(Compat::DIR_INDEX);
        let is_inline = inode.has(InodeFlags::INLINE_DATA);
        let chars = chars(sb);
        let hash_seed = sb.raw.s_hash_seed.map(|word| word.get());
        let has_sums = sb.ro_compat.contains(RoCompat::METADATA_CSUM);
        let version = sb.raw.s_def_hash_version;
        let hasher = Hasher::new(version, chars, hash_seed);
        Ok(DirShape {
            dir: inode.ino(),
            block_size: sb.block_size.bytes(),
            blocks,
            max_ino: sb.inodes_count,
            file_types: sb.incompat.contains(Incompat::FILETYPE),
            // Blocks have space for checksums even if these are ignored.
            checksum_seed: has_sums.then(|| inode.checksum_seed()),
            order: match hasher {
                Ok(hasher) if has_index && (is_inline || blocks == 1) => Order::Hash(hasher),
                _ => Order::Offset,
            },
            new_index: (has_index && hasher.is_ok() && version <= MAX_STORED_HASH).then_some(version),
            indexed: has_index && inode.has(InodeFlags::INDEX) && !is_inline,
            max_levels: max_levels(sb),
            chars,
            hash_seed,
            fold,
            damaged: if has_sums && !sb.has_metadata_csum() { Damaged::Ignored } else { Damaged::Refused },
        })
    }
}

impl DirShape {
    /// Returns the shape of a directory of a new volume, which gets an index if it is large.
    pub(crate) fn of_new(sb: &SuperBlock, ino: u32) -> Self {
        let version = sb.raw.s_def_hash_version;
        let has_index = sb.compat.contains(Compat::DIR_INDEX) && version <= MAX_STORED_HASH;
        Self {
            dir: Ino(ino.into()),
            block_size: sb.block_size.bytes(),
            blocks: 1,
            max_ino: sb.inodes_count,
            file_types: sb.incompat.contains(Incompat::FILETYPE),
            checksum_seed: sb.has_metadata_csum().then(|| inode_seed(sb.checksum_seed, ino, 0)),
            order: Order::Offset,
            new_index: has_index.then_some(version),
            indexed: false,
            max_levels: max_levels(sb),
            chars: chars(sb),
            hash_seed: sb.raw.s_hash_seed.map(|word| word.get()),
            fold: None,
            damaged: Damaged::Refused,
        }
    }
}

fn max_levels(sb: &SuperBlock) -> u8 {
    if sb.incompat.contains(Incompat::LARGE_DIR) { LEVELS_LARGE_DIR } else { LEVELS }
}

fn chars(sb: &SuperBlock) -> Chars {
    let unsigned = sb.raw.s_flags.get() & UNSIGNED_HASH != 0;
    if unsigned { Chars::Unsigned } else { Chars::Signed }
}

/// Byte offset of `i_block` in an inode.
const I_BLOCK: u32 = 40;

/// The blocks of a directory, found through its inode's map.
struct InodeBlocks<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
    /// The last run that was found, and its first block, since adjacent blocks are read next.
    last: Cell<Option<(u32, MappedRun)>>,
}

impl DirBlocks for InodeBlocks<'_> {
    fn block(&self, at: FileBlock) -> Result<BlockOrHole> {
        let known = self.last.get().and_then(|(start, run)| {
            let inside = at.0.checked_sub(start).filter(|&inside| inside < run.len)?;
            Some((inside, run))
        });
        let (inside, run) = match known {
            Some(known) => known,
            None => {
                let run = self.volume.map_run(self.inode, at)?;
                self.last.set(Some((at.0, run)));
                (0, run)
            }
        };
        match run.place {
            Blocks::Mapped(start) => {
                let number = start.0.saturating_add(inside.into());
                self.volume.cache().get(number).map(BlockOrHole::Block)
            }
            Blocks::Unwritten(_) | Blocks::Hole => Ok(BlockOrHole::Hole(run.len.saturating_sub(inside))),
        }
    }
}
