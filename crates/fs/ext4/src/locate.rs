//! Finding a usable super block: the primary one, the one that the caller names, or a backup.
//!
//! Invariant: a backup is valid only if it is at its own group number times its group size. Neither file data nor
//! remnants of another volume are therefore mistaken for a backup. The search reads at most [`MAX_CANDIDATES`] places.
//! Source of the places: e2fsprogs `misc/mke2fs.c`, `lib/ext2fs/initialize.c` (default group size 8 x block size);
//! `e2fsck/util.c` `get_backup_sb`. Source for `s_first_meta_bg`: `lib/ext2fs/openfs.c` `ext2fs_open2`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use obento_base::wire::{FromZeros, IntoBytes, to_u64};
use obento_base::{Corrupt, Error, FileKind, Result, Structure};
use obento_block::BlockDevice;
use obento_driver::{Decoded, Probe};

use crate::feature::{Incompat, RoCompat};
use crate::raw::{RawGroup32, RawInode, RawSuperBlock};
use crate::super_block::{MAGIC, PRIMARY_OFFSET, SuperBlock, verify_sum};
use crate::unit::VolBlock;

/// Enough for every block size with every cluster size, in a few groups each.
const MAX_CANDIDATES: usize = 512;
/// 1 KiB to 64 KiB.
const BLOCK_SIZES: [u32; 7] = [1024, 2048, 4096, 8192, 16384, 32768, 65536];
/// The first groups that contain backups with `sparse_super`.
const COPY_GROUPS: [u32; 5] = [1, 3, 5, 7, 9];
/// Cluster sizes with bigalloc, in blocks and as powers of two: the default is 16 blocks, and 2^10 is more than is
/// used in practice.
const CLUSTER_SHIFTS: u32 = 10;

/// A super block that was found.
#[derive(Clone, Debug)]
pub struct FoundSuperBlock {
    /// The super block.
    pub super_block: SuperBlock,
    /// Its byte offset on the device.
    pub offset: u64,
    /// The error of the primary super block, if this is another one.
    pub instead_of: Option<Error>,
}

impl FoundSuperBlock {
    /// Returns the block that contains it.
    pub fn block(&self) -> VolBlock {
        VolBlock(self.super_block.block_size.whole(self.offset))
    }

    /// Returns the result of a probe that found it.
    pub fn into_probe(self) -> Probe {
        let probe = self.super_block.probe();
        Probe { decoded: Decoded::new(self), ..probe }
    }

    /// Returns whether it is a backup, whose free counts and journal state are old.
    pub fn is_copy(&self) -> bool {
        self.offset != PRIMARY_OFFSET
    }
}

/// Returns the raw super block at byte `offset`, or `None` if the device ends before it.
pub fn read_raw(device: &dyn BlockDevice, offset: u64) -> Result<Option<Box<RawSuperBlock>>> {
    let mut raw = Box::new(RawSuperBlock::new_zeroed());
    let end = offset.checked_add(to_u64(size_of::<RawSuperBlock>()));
    if end.is_none_or(|end| end > device.len()) {
        return Ok(None);
    }
    device.read_at(offset, raw.as_mut_bytes())?;
    Ok(Some(raw))
}

/// Returns the primary super block. If it is damaged, returns a backup. Returns the primary if no backup exists and
/// only the primary's checksum is wrong.
///
/// Fails with the first error: `Unsupported` for a feature of the primary super block; the error of the primary super
/// block.
#[inline(never)]
pub fn find(device: &dyn BlockDevice) -> Result<FoundSuperBlock> {
    match read_raw(device, PRIMARY_OFFSET) {
        Ok(raw) => find_from(device, raw.as_deref()),
        Err(error) => find_instead(device, None, error, None),
    }
}

/// Returns the same as [`find`] for a device whose primary super block is `raw`.
pub fn find_from(device: &dyn BlockDevice, raw: Option<&RawSuperBlock>) -> Result<FoundSuperBlock> {
    let super_block = match decode(raw, PRIMARY_OFFSET) {
        Ok(super_block) => super_block,
        Err(error) => return find_instead(device, raw, error, None),
    };
    match verify(&super_block, PRIMARY_OFFSET) {
        Ok(()) => Ok(FoundSuperBlock { super_block, offset: PRIMARY_OFFSET, instead_of: None }),
        Err(error) => find_instead(device, raw, error, Some(super_block)),
    }
}

/// Returns a backup, or `unverified`, the primary super block whose checksum is wrong.
fn find_instead(
    device: &dyn BlockDevice,
    raw: Option<&RawSuperBlock>,
    error: Error,
    unverified: Option<SuperBlock>,
) -> Result<FoundSuperBlock> {
    // An unknown feature counts as present, unless the checksum is wrong.
    let error = match (error, raw.and_then(wrong_checksum)) {
        (Error::Unsupported(_), None) => return Err(error),
        (Error::Unsupported(_), Some(checksum)) => checksum,
        (error, _) => error,
    };
    let found = find_copy(device, raw).or_else(|| Some((unverified?, PRIMARY_OFFSET)));
    let (super_block, offset) = found.ok_or(error)?;
    Ok(FoundSuperBlock { super_block, offset, instead_of: Some(error) })
}

/// Returns the primary super block without verifying its checksum, if it can be decoded. Otherwise the same as
/// [`find`].
pub fn find_unverified(device: &dyn BlockDevice) -> Result<FoundSuperBlock> {
    match decode_at(device, PRIMARY_OFFSET) {
        Ok(super_block) => Ok(FoundSuperBlock { super_block, offset: PRIMARY_OFFSET, instead_of: None }),
        Err(_) => find(device),
    }
}

/// Returns the error of a wrong checksum, if the super block claims to have one.
fn wrong_checksum(raw: &RawSuperBlock) -> Option<Error> {
    let has_checksum =
        RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()).contains(RoCompat::METADATA_CSUM);
    verify_sum(raw, place(1024, PRIMARY_OFFSET)).err().filter(|_| has_checksum)
}

/// Returns the super block at block `number`, in units of the block size that it contains.
pub fn find_at(device: &dyn BlockDevice, number: u64) -> Result<FoundSuperBlock> {
    let mut error = Error::Invalid;
    for block_size in BLOCK_SIZES {
        let primary = number == u64::from(block_size == 1024);
        let offset = match number.checked_mul(block_size.into()) {
            _ if primary => PRIMARY_OFFSET,
            Some(offset) => offset,
            None => continue,
        };
        match check_at(device, offset) {
            Ok(super_block) if super_block.block_size.bytes() == block_size => {
                return Ok(FoundSuperBlock { super_block, offset, instead_of: None });
            }
            Ok(_) => {}
            // An error about a super block with a magic number is more precise than a missing magic number.
            Err(Error::Corrupt(Corrupt::Magic { .. })) if error != Error::Invalid => {}
            Err(found) => error = found,
        }
    }
    Err(error)
}

/// Returns a backup that is where it claims to be.
#[inline(never)]
pub fn find_copy(device: &dyn BlockDevice, hint: Option<&RawSuperBlock>) -> Option<(SuperBlock, u64)> {
    candidates(device.len(), hint).into_iter().find_map(|offset| copy_at(device, offset))
}

/// Returns the primary super block as one without `meta_bg`, if only `s_first_meta_bg` is impossible. For such a large
/// number, libext2fs assumes that all descriptors are where they are without the feature. Otherwise fails with `error`,
/// or if the device fails.
pub(crate) fn find_plain(device: &dyn BlockDevice, error: Error) -> Result<FoundSuperBlock> {
    let is_it = matches!(error, Error::Corrupt(Corrupt::Field { field: "s_first_meta_bg", .. }));
    let raw = read_raw(device, PRIMARY_OFFSET)?.filter(|_| is_it);
    let mut raw = raw.ok_or(error)?;
    drop_meta_groups(&mut raw);
    let super_block = SuperBlock::decode(raw.as_bytes(), place(1024, PRIMARY_OFFSET)).map_err(|_| error)?;
    Ok(FoundSuperBlock { super_block, offset: PRIMARY_OFFSET, instead_of: Some(error) })
}

/// Removes `meta_bg` from a super block.
pub(crate) fn drop_meta_groups(raw: &mut RawSuperBlock) {
    raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::META_BG.bits());
    raw.s_first_meta_bg.set(0);
}

/// Returns the first backup for groups of any size. It is for an unknown volume whose groups or clusters do not have
/// the default size. Otherwise fails with `error`.
pub(crate) fn find_copy_anywhere(device: &dyn BlockDevice, error: Error) -> Result<FoundSuperBlock> {
    let copy = BLOCK_SIZES.into_iter().find_map(|block_size| {
        // The size of a group is a multiple of eight blocks, since its bitmap is one block.
        let sizes = (1..=block_size).map(|eighth| u64::from(eighth).saturating_mul(8));
        let blocks = sizes.map(|blocks| blocks.saturating_add(u64::from(block_size == 1024)));
        let offsets = blocks.map(|block| block.saturating_mul(block_size.into()));
        offsets.take_while(|&offset| offset < device.len()).find_map(|offset| copy_at(device, offset))
    });
    let (super_block, offset) = copy.or_else(|| find_old_copy(device)).ok_or(error)?;
    Ok(FoundSuperBlock { super_block, offset, instead_of: Some(error) })
}

/// Returns a backup of revision 0, which does not contain its group number. It is valid where a group begins
/// according to its own numbers, if the descriptors after it lead to a root directory. Another volume may begin
/// there, in a partition or as a remnant of an earlier use. Its descriptors lead elsewhere, since they count from its
/// own start.
fn find_old_copy(device: &dyn BlockDevice) -> Option<(SuperBlock, u64)> {
    if is_something_else(device).unwrap_or(true) {
        return None;
    }
    let hint = read_raw(device, PRIMARY_OFFSET).ok().flatten();
    candidates(device.len(), hint.as_deref()).into_iter().find_map(|offset| old_copy_at(device, offset))
}

fn old_copy_at(device: &dyn BlockDevice, offset: u64) -> Option<(SuperBlock, u64)> {
    let super_block = check_at(device, offset).ok().filter(|found| found.raw.s_rev_level.get() == 0)?;
    let block = place(super_block.block_size.bytes(), offset);
    let group = super_block.group_of(block).filter(|&group| group != 0)?;
    let own = super_block.block_size.checked_len(super_block.group_start(group).0);
    (own == Some(offset) && has_root(device, &super_block, offset)).then_some((super_block, offset))
}

/// Returns whether the first descriptor after a backup of revision 0 leads to an inode table whose second inode is a
/// directory.
fn has_root(device: &dyn BlockDevice, sb: &SuperBlock, copy: u64) -> bool {
    let block_size = u64::from(sb.block_size);
    let (mut group, mut root) = (RawGroup32::new_zeroed(), RawInode::new_zeroed());
    let read = device.read_at(copy.saturating_add(block_size), group.as_mut_bytes()).and_then(|()| {
        let table = u64::from(group.bg_inode_table_lo.get()).saturating_mul(block_size);
        device.read_at(table.saturating_add(to_u64(size_of::<RawInode>())), root.as_mut_bytes())
    });
    read.is_ok() && FileKind::from_mode(root.i_mode.get()) == Some(FileKind::Directory)
}

/// Returns the backup at byte `offset`, if it claims to be there.
pub(crate) fn copy_at(device: &dyn BlockDevice, offset: u64) -> Option<(SuperBlock, u64)> {
    let super_block = check_at(device, offset).ok()?;
    let group = u32::from(super_block.raw.s_block_group_nr.get());
    let own = super_block.block_size.checked_len(super_block.group_start(group).0);
    (group != 0 && own == Some(offset)).then_some((super_block, offset))
}

/// Returns byte offsets of possible backups, first those that follow from the damaged primary super block.
fn candidates(device_len: u64, hint: Option<&RawSuperBlock>) -> Vec<u64> {
    let mut offsets = Vec::new();
    if let Some(raw) = hint {
        let block_size = 1024_u32.checked_shl(raw.s_log_block_size.get()).unwrap_or(0);
        let per_group = raw.s_blocks_per_group.get();
        if BLOCK_SIZES.contains(&block_size) && per_group != 0 {
            add_candidates(&mut offsets, device_len, block_size, per_group.into());
        }
    }
    let hinted = offsets.len();
    for shift in 0..=CLUSTER_SHIFTS {
        for block_size in BLOCK_SIZES {
            let blocks = u64::from(block_size).saturating_mul(8);
            add_candidates(
                &mut offsets,
                device_len,
                block_size,
                blocks.checked_shl(shift).unwrap_or(u64::MAX),
            );
        }
    }
    // The best known backup comes first.
    offsets.get_mut(hinted..).unwrap_or_default().sort_unstable();
    offsets
}

/// Adds the offsets of backups for this block size and number of blocks per group.
fn add_candidates(offsets: &mut Vec<u64>, device_len: u64, block_size: u32, per_group: u64) {
    let last = device_len.checked_div(per_group.saturating_mul(block_size.into())).unwrap_or(0);
    // The last group contains the second backup of `sparse_super2`.
    let groups = COPY_GROUPS.iter().map(|&group| u64::from(group)).chain([last, last.saturating_sub(1)]);
    for group in groups.filter(|&group| group > 0) {
        // With blocks of 1 KiB, groups start at block 1, or with bigalloc at block 0.
        for first in [u64::from(block_size == 1024), 0] {
            let block = group.saturating_mul(per_group).saturating_add(first);
            let offset = block.saturating_mul(block_size.into());
            if offset < device_len && offsets.len() < MAX_CANDIDATES && !offsets.contains(&offset) {
                offsets.push(offset);
            }
        }
    }
}

/// Returns the super block at byte `offset`, with its checksum verified.
pub(crate) fn check_at(device: &dyn BlockDevice, offset: u64) -> Result<SuperBlock> {
    let super_block = decode_at(device, offset)?;
    verify(&super_block, offset)?;
    Ok(super_block)
}

fn verify(super_block: &SuperBlock, offset: u64) -> Result<()> {
    super_block.verify(place(super_block.block_size.bytes(), offset))
}

/// Returns the super block at byte `offset`, whose checksum may be wrong.
pub(crate) fn decode_at(device: &dyn BlockDevice, offset: u64) -> Result<SuperBlock> {
    decode(read_raw(device, offset)?.as_deref(), offset)
}

fn decode(raw: Option<&RawSuperBlock>, offset: u64) -> Result<SuperBlock> {
    let raw = raw.ok_or(Corrupt::Truncated {
        structure: Structure::SuperBlock,
        block: place(1024, offset).0,
        offset: 0,
        len: 1024,
    })?;
    let log = raw.s_log_block_size.get();
    let block_size = 1024_u32.checked_shl(log).filter(|size| BLOCK_SIZES.contains(size)).unwrap_or(1024);
    SuperBlock::decode(raw.as_bytes(), place(block_size, offset))
}

pub(crate) fn place(block_size: u32, offset: u64) -> VolBlock {
    VolBlock(offset.checked_div(block_size.into()).unwrap_or(0))
}

/// Returns whether 1024 bytes have the magic number of a super block.
pub fn has_magic(raw: &RawSuperBlock) -> bool {
    raw.s_magic.get() == MAGIC
}

/// Returns whether the device starts with a boot record or a partition table. Backups of a super block after it are
/// then remnants.
pub fn is_something_else(device: &dyn BlockDevice) -> Result<bool> {
    let mut start = [0_u8; 1024];
    if device.len() < PRIMARY_OFFSET {
        return Ok(true);
    }
    device.read_at(0, &mut start)?;
    let boot = start.get(510..512) == Some(&[0x55, 0xaa]);
    Ok(boot || start.get(512..520) == Some(b"EFI PART"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    #[test]
    fn candidates_are_few_and_include_the_defaults_of_every_block_size() {
        let offsets = candidates(1 << 45, None);
        assert!(offsets.len() <= MAX_CANDIDATES);
        for offset in [8193 * 1024, 16384 * 2048, 32768 * 4096, 524_288 * 65536, 3 * 32768 * 4096] {
            assert!(offsets.contains(&offset), "{offset}");
        }
    }

    #[test]
    fn a_copy_of_revision_0_counts_where_a_group_begins_and_a_root_is_unless_there_is_a_partition_table() {
        let mut raw = RawSuperBlock::new_zeroed();
        raw.s_magic.set(MAGIC);
        raw.s_first_data_block.set(1);
        raw.s_blocks_count_lo.set(12_000);
        raw.s_blocks_per_group.set(8192);
        raw.s_clusters_per_group.set(8192);
        raw.s_inodes_count.set(3008);
        raw.s_inodes_per_group.set(1504);
        let mut bytes = alloc::vec![0; 12_000 << 10];
        let place = 8193 << 10;
        bytes[place..place + 1024].copy_from_slice(raw.as_bytes());
        let find = |bytes: &[u8]| find_copy_anywhere(&MemDevice::read_only(bytes.to_vec()), Error::Invalid);
        // A volume that begins here has no root directory at this place.
        bytes[place + 1024 + 8] = 5;
        assert_eq!(find(&bytes).err(), Some(Error::Invalid));
        bytes[(5 << 10) + 128 + 1] = 0x41;
        assert_eq!(find(&bytes).unwrap().offset, to_u64(place));
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(find(&bytes).err(), Some(Error::Invalid));
    }

    #[test]
    fn a_damaged_primary_hints_at_its_own_group_size() {
        let mut raw = RawSuperBlock::new_zeroed();
        raw.s_log_block_size.set(0);
        raw.s_blocks_per_group.set(256);
        assert_eq!(candidates(1 << 30, Some(&raw)).first(), Some(&(257 * 1024)));
    }
}
