//! Decoding of a record to an [`Inode`].

use core::mem::offset_of;

use alloc::sync::Arc;

use obento_base::wire::{FromBytes, join, to_u64};
use obento_base::{Corrupt, Error, FileKind, Ino, Result, Structure};
use obento_block::Block;

use super::{Inode, InodeFlags, InodePlace, Record};
use crate::checksum::{Crc, inode_seed};
use crate::feature::{Incompat, RoCompat};
use crate::raw::{RawInode, RawInodeExtra};
use crate::size::BlockSize;
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

/// The fields that Linux supports. They are used for an inode that has space for them and an `i_extra_isize` of 0.
const DEFAULT_EXTRA_ISIZE: u16 = 32;
const GOOD_OLD_SIZE: u16 = 128;

/// Properties of records from the super block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) inode_size: u16,
    pub(crate) block_size: BlockSize,
    pub(crate) checksum_seed: u32,
    pub(crate) has_sums: bool,
    /// Directories have 64-bit sizes.
    pub(crate) has_large_dirs: bool,
    /// The allocated space is counted in 48 bits, or in blocks.
    pub(crate) has_huge_files: bool,
    /// Quota files count inodes and space.
    pub(crate) has_quotas: bool,
}

impl From<&SuperBlock> for Format {
    fn from(sb: &SuperBlock) -> Self {
        Self {
            inode_size: sb.inode_size,
            block_size: sb.block_size,
            checksum_seed: sb.checksum_seed,
            has_sums: sb.has_metadata_csum(),
            has_large_dirs: sb.incompat.contains(Incompat::LARGE_DIR),
            has_huge_files: sb.ro_compat.contains(RoCompat::HUGE_FILE),
            has_quotas: sb.ro_compat.contains(RoCompat::QUOTA),
        }
    }
}

/// Returns the raw fields of a record.
pub(super) fn split_record(record: &[u8]) -> Option<(&RawInode, Option<&RawInodeExtra>)> {
    let (raw, rest) = RawInode::ref_from_prefix(record).ok()?;
    Some((raw, RawInodeExtra::ref_from_prefix(rest).ok().map(|(extra, _)| extra)))
}

/// Returns whether `i_extra_isize` includes the field that ends at byte `end` of the record.
pub(crate) fn reaches(extra_isize: u16, end: usize) -> bool {
    usize::from(GOOD_OLD_SIZE.saturating_add(extra_isize)) >= end
}

impl Inode {
    /// Decodes the inode whose record starts at byte `offset` of `block`.
    ///
    /// Fails with the first error: `Stale` if it is not in use; `Corrupt` for its checksum; `Corrupt` for a field.
    pub(crate) fn from_table(sb: &SuperBlock, ino: Ino, block: Block, offset: usize) -> Result<Self> {
        Self::in_table(sb, ino, block, offset, Verify::All)
    }

    /// Like [`Self::from_table`], for an inode that is known to be in use although it has no name.
    pub(crate) fn unlinked_from_table(
        sb: &SuperBlock,
        ino: Ino,
        block: Block,
        offset: usize,
    ) -> Result<Self> {
        Self::in_table(sb, ino, block, offset, Verify::Checksum)
    }

    fn in_table(sb: &SuperBlock, ino: Ino, block: Block, offset: usize, verify: Verify) -> Result<Self> {
        let place =
            InodePlace { block: VolBlock(block.number()), offset: u32::try_from(offset).unwrap_or(u32::MAX) };
        let end = offset.saturating_add(sb.inode_size.into());
        let truncated = Corrupt::Truncated {
            structure: Structure::Inode(ino),
            block: place.block.0,
            offset: place.offset,
            len: sb.inode_size.into(),
        };
        block.get(offset..end).ok_or(truncated)?;
        let is_proved = block.is_verified();
        let needed = if is_proved && verify == Verify::All { Verify::Links } else { verify };
        let record = Record::Table { block: block.clone(), start: offset, end };
        let this = Self::decode(sb.into(), ino, record, place, needed)?;
        if !is_proved && sb.has_metadata_csum() && all_sound(sb, ino, &block, offset) {
            // Every change of a record in this block updates its checksum, so this stays true.
            block.set_verified();
        }
        Ok(this)
    }

    /// Decodes the record with which a fast commit replaces the one at `place`. The checksum in the record is not
    /// verified, since it covers the logged record without the mapping. The log has its own checksum.
    pub(crate) fn from_replay(
        sb: &SuperBlock,
        ino: Ino,
        record: Arc<[u8]>,
        place: InodePlace,
    ) -> Result<Self> {
        Self::decode(sb.into(), ino, Record::Replayed(record), place, Verify::Links)
    }

    /// Decodes an inode that is being changed, from its current record, whether it has a name or not. `seed` is the
    /// seed of its checksums.
    pub(crate) fn from_edit(
        format: Format,
        ino: Ino,
        record: Arc<[u8]>,
        place: InodePlace,
        seed: u32,
    ) -> Result<Self> {
        Self::decode(format, ino, Record::Replayed(record), place, Verify::Nothing(seed))
    }

    fn decode(format: Format, ino: Ino, record: Record, place: InodePlace, verify: Verify) -> Result<Self> {
        let mut this = Self {
            ino,
            record,
            place,
            kind: FileKind::Regular,
            mode: 0,
            links: 0,
            size: 0,
            flags: InodeFlags::empty(),
            generation: 0,
            file_acl: VolBlock(0),
            xattr_start: None,
            seed: 0,
        };
        let truncated = Corrupt::Truncated {
            structure: Structure::Inode(ino),
            block: place.block.0,
            offset: place.offset,
            len: GOOD_OLD_SIZE.into(),
        };
        let (raw, extra) = this.raw().ok_or(truncated)?;
        let (raw, extra) = (*raw, extra.copied());
        if raw.i_links_count.get() == 0 && matches!(verify, Verify::All | Verify::Links) {
            return Err(Error::Stale);
        }
        this.generation = raw.i_generation.get();
        this.seed = match verify {
            Verify::Nothing(seed) => seed,
            _ => inode_seed(format.checksum_seed, ino_bits(ino), this.generation),
        };
        if matches!(verify, Verify::All | Verify::Checksum) && format.has_sums {
            this.verify(&raw, extra.as_ref())?;
        }
        this.mode = raw.i_mode.get();
        this.kind = FileKind::from_mode(this.mode).ok_or_else(|| this.bad_field("i_mode", 0, this.mode))?;
        this.links = raw.i_links_count.get();
        this.flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        this.file_acl = VolBlock(join(raw.i_file_acl_lo.get(), raw.l_i_file_acl_high.get().into()));
        this.size = this.decode_size(format, &raw)?;
        this.xattr_start = this.decode_xattr_start(format, extra.as_ref())?;
        Ok(this)
    }

    /// Decodes the size. Only regular files, and directories with `large_dir`, use the high half: `ext4_isize`.
    fn decode_size(&self, format: Format, raw: &RawInode) -> Result<u64> {
        let wide = self.kind == FileKind::Regular || format.has_large_dirs;
        let size = join(raw.i_size_lo.get(), if wide { raw.i_size_high.get() } else { 0 });
        if i64::try_from(size).is_err() {
            return Err(self.bad_field("i_size_high", offset_of!(RawInode, i_size_high), raw.i_size_high));
        }
        Ok(size)
    }

    /// Returns the start of the extended attributes after `i_extra_isize`, if there is space for their magic number.
    fn decode_xattr_start(&self, format: Format, extra: Option<&RawInodeExtra>) -> Result<Option<u16>> {
        let Some(extra) = extra else { return Ok(None) };
        let extra_isize = extra.i_extra_isize.get();
        let start = GOOD_OLD_SIZE.saturating_add(extra_isize);
        if start > format.inode_size || extra_isize % 4 != 0 {
            return Err(self.bad_field("i_extra_isize", size_of::<RawInode>(), extra_isize));
        }
        let has_room = format.inode_size.checked_sub(start).is_some_and(|room| room > 4);
        Ok((extra_isize != 0 && has_room).then_some(start))
    }

    /// Verifies the checksum as `ext4_inode_csum_verify` does: over the whole record with a checksum of 0. It has 32
    /// bits if `i_extra_isize` includes the high half, else 16.
    fn verify(&self, raw: &RawInode, extra: Option<&RawInodeExtra>) -> Result<()> {
        let Some((expected, wide)) = inode_checksum(self.seed, self.record()) else { return Ok(()) };
        let high = extra.filter(|_| wide).map_or(0, |extra| extra.i_checksum_hi.get());
        let found = u32::from(raw.l_i_checksum_lo.get()) | u32::from(high) << 16;
        if found == expected {
            return Ok(());
        }
        let structure = Structure::Inode(self.ino);
        Err(Corrupt::Checksum { structure, block: self.place.block.0, found, expected }.into())
    }

    /// Returns `Corrupt::Field` for a field at byte `offset` of the record.
    pub(crate) fn bad_field(&self, field: &'static str, offset: usize, found: impl Into<u64>) -> Error {
        let offset = self.place.offset.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX));
        let structure = Structure::Inode(self.ino);
        Corrupt::Field { structure, field, block: self.place.block.0, offset, found: found.into() }.into()
    }

    /// Returns the number of bytes after the first 128 that contain fields.
    pub(super) fn extra_isize(extra: &RawInodeExtra) -> u16 {
        match extra.i_extra_isize.get() {
            0 => DEFAULT_EXTRA_ISIZE,
            isize => isize,
        }
    }
}

/// Returns whether every used inode of an inode table block has a correct checksum. That of `ino` is at `offset`.
fn all_sound(sb: &SuperBlock, ino: Ino, block: &[u8], offset: usize) -> bool {
    let size = usize::from(sb.inode_size);
    let before = to_u64(offset.checked_div(size).unwrap_or(0));
    let first = ino.0.saturating_sub(before);
    (first..).zip(block.chunks_exact(size)).all(|(number, record)| {
        let Some((raw, extra)) = split_record(record) else { return false };
        if raw.i_links_count.get() == 0 {
            return true;
        }
        let seed = inode_seed(sb.checksum_seed, ino_bits(Ino(number)), raw.i_generation.get());
        let Some((expected, wide)) = inode_checksum(seed, record) else { return false };
        let high = extra.filter(|_| wide).map_or(0, |extra| extra.i_checksum_hi.get());
        expected == u32::from(raw.l_i_checksum_lo.get()) | u32::from(high) << 16
    })
}

/// The verified properties of a record: the link count shows whether it is in use, the checksum whether it is intact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verify {
    All,
    Links,
    Checksum,
    /// No checksum is verified, since the inode is being changed and the seed of its checksums is known.
    Nothing(u32),
}

/// Returns the checksum of a record, over all of it with a checksum of 0, and whether there is space for all 32 bits.
/// Returns `None` for a record that is too short.
pub(crate) fn inode_checksum(seed: u32, record: &[u8]) -> Option<(u32, bool)> {
    let (_, extra) = split_record(record)?;
    let wide = extra.is_some_and(|extra| reaches(extra.i_extra_isize.get(), 0x84));
    let (before, rest) = record.split_at_checked(offset_of!(RawInode, l_i_checksum_lo))?;
    let (old, new) = rest.get(2..)?.split_at_checked(2)?;
    let crc = Crc::new(seed).add(before).add(&[0, 0]).add(old);
    match new.split_at_checked(2).zip(new.get(4..)).filter(|_| wide) {
        Some(((isize, _), after)) => Some((crc.add(isize).add(&[0, 0]).add(after).get(), true)),
        None => Some((crc.add(new).low(), false)),
    }
}

/// Returns the stored and the expected checksum of a record, or `None` for a record that is too short.
pub(crate) fn stored_checksum(seed: u32, record: &[u8]) -> Option<(u32, u32)> {
    let (expected, wide) = inode_checksum(seed, record)?;
    let (raw, extra) = split_record(record)?;
    let high = extra.filter(|_| wide).map_or(0, |extra| extra.i_checksum_hi.get());
    Some((u32::from(raw.l_i_checksum_lo.get()) | u32::from(high) << 16, expected))
}

/// Stores the checksum in an inode's record: 32 bits if `i_extra_isize` includes the high half, else 16.
pub(crate) fn seal_record(record: &mut [u8], seed: u32) {
    let Some((sum, wide)) = inode_checksum(seed, record) else { return };
    let [a, b, c, d] = sum.to_le_bytes();
    if let Ok((raw, rest)) = RawInode::mut_from_prefix(record) {
        raw.l_i_checksum_lo.set(u16::from_le_bytes([a, b]));
        if wide && let Ok((extra, _)) = RawInodeExtra::mut_from_prefix(rest) {
            extra.i_checksum_hi.set(u16::from_le_bytes([c, d]));
        }
    }
}

/// Returns the 32 bits of an inode number of the format. `Volume` has refused larger numbers.
fn ino_bits(ino: Ino) -> u32 {
    u32::try_from(ino.0).unwrap_or(0)
}
