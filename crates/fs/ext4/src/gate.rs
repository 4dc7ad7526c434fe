//! Features that prevent changes by this driver. Each is refused by its name.
//!
//! Source: Linux `fs/ext4/super.c` `ext4_feature_set_ok`, `EXT4_FEATURE_RO_COMPAT_SUPP`.

use obento_base::{DeviceError, Error, Feature, Result};

use crate::feature::{Compat, Incompat, RoCompat};
use crate::super_block::SuperBlock;

/// `EXT4_OS_HURD`, whose inodes use other fields.
pub(crate) const HURD: u32 = 1;

impl RoCompat {
    /// The features that this driver maintains when it writes.
    const WRITE: Self = Self::SPARSE_SUPER
        .union(Self::LARGE_FILE)
        .union(Self::BTREE_DIR)
        .union(Self::HUGE_FILE)
        .union(Self::UNINIT_BG)
        .union(Self::DIR_NLINK)
        .union(Self::EXTRA_ISIZE)
        .union(Self::QUOTA)
        .union(Self::BIGALLOC)
        .union(Self::METADATA_CSUM)
        .union(Self::PROJECT)
        .union(Self::VERITY)
        .union(Self::ORPHAN_PRESENT);
    /// The features that a check supports: `EXT2_LIB_FEATURE_RO_COMPAT_SUPP` of e2fsprogs.
    const KNOWN: Self =
        Self::WRITE.union(Self::READONLY).union(Self::SHARED_BLOCKS).difference(Self::BTREE_DIR);
}

impl Compat {
    /// The features that a check supports: `EXT2_LIB_FEATURE_COMPAT_SUPP` of e2fsprogs.
    const KNOWN: Self = Self::DIR_PREALLOC
        .union(Self::IMAGIC_INODES)
        .union(Self::HAS_JOURNAL)
        .union(Self::EXT_ATTR)
        .union(Self::RESIZE_INODE)
        .union(Self::DIR_INDEX)
        .union(Self::SPARSE_SUPER2)
        .union(Self::FAST_COMMIT)
        .union(Self::STABLE_INODES)
        .union(Self::ORPHAN_FILE);
}

impl SuperBlock {
    /// Checks whether the volume can be checked: an unknown feature may change the meaning of any structure. Fails with
    /// `Unsupported` for the first feature that e2fsprogs does not support.
    pub(crate) fn check_known(&self) -> Result<()> {
        let compat = self.compat.bits() & !Compat::KNOWN.bits();
        if compat != 0 {
            return Err(Error::Unsupported(Compat::name_of(compat)));
        }
        let ro_compat = self.ro_compat.bits() & !RoCompat::KNOWN.bits();
        if ro_compat != 0 {
            return Err(Error::Unsupported(RoCompat::name_of(ro_compat)));
        }
        Ok(())
    }

    /// Checks whether the settings of the volume can be changed on a device of `len` bytes. Fails with `OutOfBounds` if
    /// the device is too short, and with `Unsupported` for a feature that neither this driver nor e2fsprogs supports: only
    /// reading is then possible.
    pub(crate) fn check_tunable(&self, len: u64) -> Result<()> {
        self.check_len(len)?;
        match self.ro_compat.bits() & !RoCompat::WRITE.union(RoCompat::KNOWN).bits() {
            0 => Ok(()),
            unknown => Err(Error::Unsupported(RoCompat::name_of(unknown))),
        }
    }

    /// Checks that a device of `len` bytes contains the whole volume. Fails with `OutOfBounds`.
    pub(crate) fn check_len(&self, len: u64) -> Result<()> {
        if self.volume_len() <= len {
            return Ok(());
        }
        Err(DeviceError::OutOfBounds { offset: 0, len: self.volume_len(), device_len: len }.into())
    }

    /// Fails with `Unsupported` for the first feature that prevents changes.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let refuse = |name| Err(Error::Unsupported(Feature::Named(name)));
        if self.ro_compat.contains(RoCompat::READONLY) {
            return Err(Error::Unsupported(Feature::MarkedReadOnly));
        }
        let lacking = self.ro_compat.bits() & !RoCompat::WRITE.bits();
        if lacking != 0 {
            return Err(Error::Unsupported(RoCompat::name_of(lacking)));
        }
        let raw = &self.raw;
        if self.incompat.contains(Incompat::MMP) {
            return refuse("writing with multiple mount protection (mmp)");
        }
        if raw.s_creator_os.get() == HURD {
            return refuse("writing to a volume of the Hurd");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::RawSuperBlock;
    use crate::unit::VolBlock;
    use obento_base::wire::{FromZeros, IntoBytes};

    fn small_super_block() -> SuperBlock {
        let mut raw = RawSuperBlock::new_zeroed();
        raw.s_magic.set(0xef53);
        raw.s_rev_level.set(1);
        raw.s_first_ino.set(11);
        raw.s_inode_size.set(128);
        raw.s_first_data_block.set(1);
        raw.s_blocks_count_lo.set(100);
        raw.s_inodes_count.set(16);
        raw.s_inodes_per_group.set(16);
        raw.s_blocks_per_group.set(8192);
        raw.s_clusters_per_group.set(8192);
        SuperBlock::decode(raw.as_bytes(), VolBlock(1)).unwrap()
    }

    #[test]
    fn features_that_cannot_be_maintained_are_refused_by_name() {
        let plain = small_super_block();
        assert_eq!(plain.check_writable(), Ok(()));
        let with = |change: &dyn Fn(&mut SuperBlock)| {
            let mut sb = plain.clone();
            change(&mut sb);
            sb.check_writable()
        };
        let named = |name| Err(Error::Unsupported(Feature::Named(name)));
        assert_eq!(with(&|sb| sb.ro_compat |= RoCompat::SHARED_BLOCKS), named("shared_blocks"));
        let marked = Err(Error::Unsupported(Feature::MarkedReadOnly));
        assert_eq!(with(&|sb| sb.ro_compat |= RoCompat::READONLY), marked);
        assert_eq!(
            with(&|sb| sb.incompat |= Incompat::MMP),
            named("writing with multiple mount protection (mmp)")
        );
        assert_eq!(with(&|sb| sb.ro_compat |= RoCompat::QUOTA), Ok(()));
        let quota = with(&|sb| {
            sb.ro_compat |= RoCompat::QUOTA;
            sb.incompat |= Incompat::EA_INODE;
            sb.raw.s_grp_quota_inum.set(4);
        });
        assert_eq!(quota, Ok(()));
        let unknown = Feature::Bits { set: "read-only compatible", bits: 1 << 20 };
        let found = with(&|sb| sb.ro_compat |= RoCompat::from_bits_retain(1 << 20));
        assert_eq!(found, Err(Error::Unsupported(unknown)));
    }
}
