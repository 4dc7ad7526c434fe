//! The super block, which defines the layout of the volume.
//!
//! On disk: [`RawSuperBlock`] at byte 1024; backups at the start of the groups for which [`SuperBlock::has_copy`] is
//! true.
//! Invariant: every number by which later arithmetic divides, shifts or allocates is checked here, once. The tests are
//! Linux' own before a mount (`fs/ext4/super.c`: `ext4_load_super`, `ext4_block_group_meta_init`,
//! `ext4_check_geometry`, `ext4_handle_clustersize`).
//! Invariant: the index of a bit in a group fits u32, and the bitmap of a group fits one block.
//! Invariant: a volume has at most [`MAX_VOLUME_LEN`] bytes, so that its block numbers are below 2^53.

use alloc::boxed::Box;
use core::mem::offset_of;

use obento_base::wire::{FromBytes, IntoBytes, join};
use obento_base::{Corrupt, Error, Feature, Ino, Result, Structure};

use crate::checksum::Crc;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::raw::RawSuperBlock;
use crate::size::{BlockSize, ClusterSize, MAX_VOLUME_LEN};
use crate::unit::VolBlock;

/// `EXT4_SUPER_MAGIC`.
pub const MAGIC: u16 = 0xef53;
/// Byte offset of the primary super block.
pub const PRIMARY_OFFSET: u64 = 1024;
/// The root directory: `EXT4_ROOT_INO`.
pub const ROOT_INO: Ino = Ino(2);
/// `EXT4_ORPHAN_BLOCK_MAGIC`.
pub const ORPHAN_MAGIC: u32 = 0x0b10_ca04;
/// `EXT4_VALID_FS` of `s_state`, which backups do not have.
pub const VALID_FS: u16 = 1;
/// `EXT4_ERROR_FS` of `s_state`.
pub const ERROR_FS: u16 = 2;
/// `EXT4_GOOD_OLD_INODE_SIZE`, `EXT4_GOOD_OLD_FIRST_INO`.
const OLD_INODE_SIZE: u16 = 128;
const OLD_FIRST_INO: u32 = 11;

/// The kind of checksums of metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksums {
    /// None.
    None,
    /// crc16 in the descriptors: `uninit_bg`.
    Descriptors,
    /// crc32c everywhere: `metadata_csum`.
    All,
}

/// The checked super block.
#[derive(Clone, Debug)]
pub struct SuperBlock {
    /// The raw super block, for fields that are not used in computations.
    pub raw: Box<RawSuperBlock>,
    /// Compatible features.
    pub compat: Compat,
    /// Incompatible features.
    pub incompat: Incompat,
    /// Read-only compatible features.
    pub ro_compat: RoCompat,
    /// Size of a block.
    pub block_size: BlockSize,
    /// Size of a cluster; one block without bigalloc.
    pub cluster: ClusterSize,
    /// The block that contains the primary super block, and the first block of group 0.
    pub first_data_block: u32,
    /// Number of blocks of the volume.
    pub blocks_count: u64,
    /// Blocks per group.
    pub blocks_per_group: u32,
    /// Number of inodes of the volume.
    pub inodes_count: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// Size of an inode in bytes: a power of two, at most a block.
    pub inode_size: u16,
    /// First inode that is not reserved.
    pub first_ino: u32,
    /// Size of a group descriptor in bytes: a power of two, at most a block.
    pub desc_size: u16,
    /// Number of groups of the volume.
    pub groups: u32,
    /// The kind of checksums of metadata.
    pub checksums: Checksums,
    /// The seed of every crc32c.
    pub checksum_seed: u32,
}

/// Returns `Corrupt::Field` for a field of the super block that was read from `$block`.
macro_rules! bad_field {
    ($block:expr, $field:ident, $found:expr) => {
        Error::from(Corrupt::Field {
            structure: Structure::SuperBlock,
            field: stringify!($field),
            block: $block.0,
            offset: u32::try_from(offset_of!(RawSuperBlock, $field)).unwrap_or(u32::MAX),
            found: u64::from($found),
        })
    };
}

impl SuperBlock {
    /// Checks the 1024 bytes that were read from `block`. [`Self::verify`] verifies the checksum separately, because
    /// a volume whose super block has only a wrong checksum can still be read.
    ///
    /// Fails with the first error: `Corrupt` for the magic number; `Unsupported` for a feature; `Corrupt` for a
    /// field.
    pub fn decode(bytes: &[u8], block: VolBlock) -> Result<Self> {
        let truncated =
            Corrupt::Truncated { structure: Structure::SuperBlock, block: block.0, offset: 0, len: 1024 };
        let (raw, _) = RawSuperBlock::ref_from_prefix(bytes).map_err(|_| truncated)?;
        if raw.s_magic.get() != MAGIC {
            return Err(Corrupt::Magic {
                structure: Structure::SuperBlock,
                block: block.0,
                found: raw.s_magic.get().into(),
                expected: MAGIC.into(),
            }
            .into());
        }
        let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
        incompat.check_readable()?;
        let ro_compat = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
        let log_block_size = raw.s_log_block_size.get();
        let block_size = BlockSize::from_log(log_block_size)
            .ok_or_else(|| bad_field!(block, s_log_block_size, log_block_size))?;
        let (inode_size, first_ino) = decode_inode_size(raw, block_size, block)?;
        let mut this = Self {
            raw: Box::new(*raw),
            compat: Compat::from_bits_retain(raw.s_feature_compat.get()),
            incompat,
            ro_compat,
            block_size,
            cluster: decode_cluster_size(raw, block_size, block)?,
            first_data_block: raw.s_first_data_block.get(),
            blocks_count: decode_blocks_count(raw, incompat),
            blocks_per_group: raw.s_blocks_per_group.get(),
            inodes_count: raw.s_inodes_count.get(),
            inodes_per_group: raw.s_inodes_per_group.get(),
            inode_size,
            first_ino,
            desc_size: decode_desc_size(raw, block_size, block)?,
            groups: 0,
            checksums: decode_checksums(raw)?,
            checksum_seed: decode_seed(raw),
        };
        this.check_group_shape(block)?;
        this.groups = this.count_groups(block)?;
        this.check_counts(block)?;
        Ok(this)
    }

    /// Verifies the checksum. Succeeds without `metadata_csum`.
    pub fn verify(&self, block: VolBlock) -> Result<()> {
        if self.checksums != Checksums::All {
            return Ok(());
        }
        verify_sum(&self.raw, block)
    }

    /// Returns the inodes of the quota files of users, groups and projects.
    pub(crate) fn quota_inodes(&self) -> [Option<Ino>; 3] {
        let has_files = self.ro_compat.contains(RoCompat::QUOTA);
        let numbers = [&self.raw.s_usr_quota_inum, &self.raw.s_grp_quota_inum, &self.raw.s_prj_quota_inum];
        numbers.map(|number| Some(Ino(number.get().into())).filter(|ino| has_files && ino.0 != 0))
    }

    /// Returns the super block for a reader with this option: if checksums are ignored, the volume appears to have
    /// none.
    pub(crate) fn verified_as(self, checksums: obento_driver::Checksums) -> Self {
        use obento_driver::Checksums as Wanted;
        match checksums {
            Wanted::Verify => self,
            Wanted::Ignore | Wanted::IgnoreIfSupported => Self { checksums: Checksums::None, ..self },
        }
    }

    /// Checks blocks and clusters per group: each bitmap must fit a block, and the two must agree.
    fn check_group_shape(&self, block: VolBlock) -> Result<()> {
        let bits = self.block_size.bits();
        let clusters = self.raw.s_clusters_per_group.get();
        if self.has_bigalloc() {
            if clusters == 0 || clusters > bits {
                return Err(bad_field!(block, s_clusters_per_group, clusters));
            }
            if Some(self.blocks_per_group) != clusters.checked_mul(self.cluster_blocks()) {
                return Err(bad_field!(block, s_blocks_per_group, self.blocks_per_group));
            }
        } else if self.blocks_per_group > bits {
            return Err(bad_field!(block, s_blocks_per_group, self.blocks_per_group));
        }
        if self.blocks_per_group == 0 {
            return Err(bad_field!(block, s_blocks_per_group, 0_u32));
        }
        if self.inodes_per_group < self.inodes_per_block() || self.inodes_per_group > bits {
            return Err(bad_field!(block, s_inodes_per_group, self.inodes_per_group));
        }
        Ok(())
    }

    fn count_groups(&self, block: VolBlock) -> Result<u32> {
        let first = self.first_data_block;
        // With blocks of 1 KiB, block 0 contains the boot sector; only a group with bigalloc may start there.
        let first_is_boot =
            first == 0 && self.block_size == BlockSize::MIN && self.cluster == ClusterSize::ONE;
        if u64::from(first) >= self.blocks_count || first_is_boot {
            return Err(bad_field!(block, s_first_data_block, first));
        }
        let bad_count = || bad_field!(block, s_blocks_count_lo, self.blocks_count);
        let len = self.block_size.checked_len(self.blocks_count);
        if len.is_none_or(|len| len > MAX_VOLUME_LEN) {
            return Err(bad_count());
        }
        let blocks = self.blocks_count.checked_sub(first.into()).ok_or_else(bad_count)?;
        let groups = blocks.div_ceil(u64::from(self.blocks_per_group).max(1));
        let most = u64::from(u32::MAX).saturating_sub(self.descs_per_block().into());
        u32::try_from(groups).ok().filter(|_| groups <= most).ok_or_else(bad_count)
    }

    fn check_counts(&self, block: VolBlock) -> Result<()> {
        let inodes = u64::from(self.groups).checked_mul(self.inodes_per_group.into());
        if inodes != Some(self.inodes_count.into()) {
            // The inodes of whole groups contradict only the number of blocks.
            let is_whole = self.inodes_count > 0 && self.inodes_count.is_multiple_of(self.inodes_per_group);
            return Err(if is_whole {
                bad_field!(block, s_blocks_count_lo, self.blocks_count)
            } else {
                bad_field!(block, s_inodes_count, self.inodes_count)
            });
        }
        let reserved = self.raw.s_reserved_gdt_blocks.get();
        if u32::from(reserved) > self.block_size.pointers() {
            return Err(bad_field!(block, s_reserved_gdt_blocks, reserved));
        }
        let first_meta = self.raw.s_first_meta_bg.get();
        if self.incompat.contains(Incompat::META_BG) && first_meta > self.desc_blocks() {
            return Err(bad_field!(block, s_first_meta_bg, first_meta));
        }
        Ok(())
    }

    /// Returns whether space is allocated in clusters.
    pub fn has_bigalloc(&self) -> bool {
        self.ro_compat.contains(RoCompat::BIGALLOC)
    }

    /// Returns whether every structure has a crc32c.
    pub fn has_metadata_csum(&self) -> bool {
        self.checksums == Checksums::All
    }

    /// Returns the number of free blocks (clusters with bigalloc) in the super block.
    pub fn free_blocks(&self) -> u64 {
        self.wide(self.raw.s_free_blocks_count_lo.get(), self.raw.s_free_blocks_count_hi.get())
    }

    /// Returns the number of blocks that are reserved for the super user.
    pub fn reserved_blocks(&self) -> u64 {
        self.wide(self.raw.s_r_blocks_count_lo.get(), self.raw.s_r_blocks_count_hi.get())
    }

    /// Combines the halves of a number whose high half is valid only with `64bit`.
    fn wide(&self, low: u32, high: u32) -> u64 {
        join(low, if self.incompat.contains(Incompat::SIXTY_FOUR_BIT) { high } else { 0 })
    }

    /// Returns the label: up to the first NUL.
    pub fn label(&self) -> &[u8] {
        until_nul(&self.raw.s_volume_name)
    }

    /// Returns `ext2`, `ext3` or `ext4`, as `blkid` decides: by the features that the older formats lack.
    pub fn fs_type(&self) -> &'static str {
        let old_incompat = Incompat::FILETYPE | Incompat::NEEDS_RECOVERY | Incompat::META_BG;
        let old_ro = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE | RoCompat::BTREE_DIR;
        let new_bits = self.incompat.bits() & !old_incompat.bits() | self.ro_compat.bits() & !old_ro.bits();
        match new_bits {
            0 if self.compat.contains(Compat::HAS_JOURNAL) => "ext3",
            0 => "ext2",
            _ => "ext4",
        }
    }
}

/// Verifies the checksum of `raw`, which was read from `block`.
pub(crate) fn verify_sum(raw: &RawSuperBlock, block: VolBlock) -> Result<()> {
    let bytes = raw.as_bytes();
    let covered = bytes.get(..offset_of!(RawSuperBlock, s_checksum)).unwrap_or(bytes);
    let (found, expected) = (raw.s_checksum.get(), Crc::new(!0).add(covered).get());
    if found == expected {
        return Ok(());
    }
    Err(Corrupt::Checksum { structure: Structure::SuperBlock, block: block.0, found, expected }.into())
}

/// Returns the bytes before the first NUL.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn decode_blocks_count(raw: &RawSuperBlock, incompat: Incompat) -> u64 {
    let high = if incompat.contains(Incompat::SIXTY_FOUR_BIT) { raw.s_blocks_count_hi.get() } else { 0 };
    join(raw.s_blocks_count_lo.get(), high)
}

fn decode_inode_size(raw: &RawSuperBlock, block_size: BlockSize, block: VolBlock) -> Result<(u16, u32)> {
    if raw.s_rev_level.get() == 0 {
        return Ok((OLD_INODE_SIZE, OLD_FIRST_INO));
    }
    let (size, first) = (raw.s_inode_size.get(), raw.s_first_ino.get());
    if first < OLD_FIRST_INO {
        return Err(bad_field!(block, s_first_ino, first));
    }
    if size < OLD_INODE_SIZE || !size.is_power_of_two() || u32::from(size) > block_size.bytes() {
        return Err(bad_field!(block, s_inode_size, size));
    }
    Ok((size, first))
}

fn decode_cluster_size(raw: &RawSuperBlock, block_size: BlockSize, block: VolBlock) -> Result<ClusterSize> {
    let log_cluster = raw.s_log_cluster_size.get();
    let bigalloc = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()).contains(RoCompat::BIGALLOC);
    ClusterSize::from_log(log_cluster, block_size)
        .filter(|&size| bigalloc || size == ClusterSize::ONE)
        .ok_or_else(|| bad_field!(block, s_log_cluster_size, log_cluster))
}

fn decode_desc_size(raw: &RawSuperBlock, block_size: BlockSize, block: VolBlock) -> Result<u16> {
    let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
    if !incompat.contains(Incompat::SIXTY_FOUR_BIT) {
        return Ok(32);
    }
    let size = raw.s_desc_size.get();
    if size < 64 || !size.is_power_of_two() || u32::from(size) > block_size.bytes() {
        return Err(bad_field!(block, s_desc_size, size));
    }
    Ok(size)
}

fn decode_checksums(raw: &RawSuperBlock) -> Result<Checksums> {
    const CRC32C: u8 = 1; // EXT4_CRC32C_CHKSUM
    let ro_compat = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
    if ro_compat.contains(RoCompat::METADATA_CSUM) {
        return match raw.s_checksum_type {
            CRC32C => Ok(Checksums::All),
            _ => Err(Error::Unsupported(Feature::Named("checksum algorithm"))),
        };
    }
    Ok(if ro_compat.contains(RoCompat::UNINIT_BG) { Checksums::Descriptors } else { Checksums::None })
}

fn decode_seed(raw: &RawSuperBlock) -> u32 {
    let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
    if incompat.contains(Incompat::METADATA_CSUM_SEED) {
        raw.s_checksum_seed.get()
    } else {
        Crc::new(!0).add(&raw.s_uuid).get()
    }
}

/// Returns `s_volume_name` for a label; `None` if the label is too long or contains a NUL.
pub(crate) fn raw_label(label: &[u8]) -> Option<[u8; 16]> {
    let mut raw = [0; 16];
    raw.get_mut(..label.len()).filter(|_| !label.contains(&0))?.copy_from_slice(label);
    Some(raw)
}
