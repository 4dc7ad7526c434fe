//! The features of a new volume: those of its type, changed by name.
//!
//! Source: e2fsprogs `misc/mke2fs.c` (`ok_features`, `PRS`), `lib/e2p/feature.c` `e2p_edit_feature2`, and
//! `/etc/mke2fs.conf` of 1.47.0 on Debian.

use alloc::string::ToString;

use obento_driver::FormatError;

use crate::feature::{self, Compat, Incompat, RoCompat, Word};

/// `ok_features`: the features that can be chosen.
const COMPAT: Compat = Compat::HAS_JOURNAL
    .union(Compat::RESIZE_INODE)
    .union(Compat::DIR_INDEX)
    .union(Compat::EXT_ATTR)
    .union(Compat::SPARSE_SUPER2)
    .union(Compat::FAST_COMMIT)
    .union(Compat::STABLE_INODES)
    .union(Compat::ORPHAN_FILE);
const INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::EXTENT)
    .union(Incompat::JOURNAL_DEV)
    .union(Incompat::META_BG)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::MMP)
    .union(Incompat::SIXTY_FOUR_BIT)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD)
    .union(Incompat::METADATA_CSUM_SEED)
    .union(Incompat::LARGE_DIR);
const RO_COMPAT: RoCompat = RoCompat::LARGE_FILE
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::SPARSE_SUPER)
    .union(RoCompat::UNINIT_BG)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::QUOTA)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY);

/// Features with which the super block counts the bytes that were written to the volume.
const COUNTING: RoCompat = RoCompat::HUGE_FILE
    .union(RoCompat::UNINIT_BG)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::EXTRA_ISIZE);

/// The features of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Features {
    pub compat: Compat,
    pub incompat: Incompat,
    pub ro_compat: RoCompat,
}

/// One of the three old types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FormatVersion {
    Ext2,
    Ext3,
    Ext4,
}

impl FormatVersion {
    /// Returns the type with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "ext2" => Some(Self::Ext2),
            "ext3" => Some(Self::Ext3),
            "ext4" => Some(Self::Ext4),
            _ => None,
        }
    }
}

impl Features {
    /// No features.
    pub const NONE: Self =
        Self { compat: Compat::empty(), incompat: Incompat::empty(), ro_compat: RoCompat::empty() };

    /// Returns `base_features` and those of the type.
    pub fn of(kind: FormatVersion) -> Self {
        let base = Self {
            compat: Compat::RESIZE_INODE | Compat::DIR_INDEX | Compat::EXT_ATTR,
            incompat: Incompat::FILETYPE,
            ro_compat: RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE,
        };
        match kind {
            FormatVersion::Ext2 => base,
            FormatVersion::Ext3 => Self { compat: base.compat | Compat::HAS_JOURNAL, ..base },
            FormatVersion::Ext4 => Self {
                compat: base.compat | Compat::HAS_JOURNAL,
                incompat: base.incompat | Incompat::EXTENT | Incompat::FLEX_BG | Incompat::SIXTY_FOUR_BIT,
                ro_compat: base.ro_compat
                    | RoCompat::HUGE_FILE
                    | RoCompat::METADATA_CSUM
                    | RoCompat::DIR_NLINK
                    | RoCompat::EXTRA_ISIZE,
            },
        }
    }

    /// Enables and disables features by name: `extent`, `^resize_inode`, `none`, several separated by commas. Fails
    /// with `UnknownFeature`.
    pub fn edit(&mut self, names: &str) -> Result<(), FormatError> {
        for name in names.split([',', ' ']).filter(|name| !name.is_empty()) {
            if name.eq_ignore_ascii_case("none") {
                *self = Self::NONE;
                continue;
            }
            let (bare, on) = match name.strip_prefix(['^', '-']) {
                Some(bare) => (bare, false),
                None => (name.strip_prefix('+').unwrap_or(name), true),
            };
            self.set(bare, on).ok_or_else(|| FormatError::UnknownFeature { name: bare.to_string() })?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, on: bool) -> Option<()> {
        match feature::named(name)? {
            Word::Compat(bit) if COMPAT.contains(bit) => self.compat.set(bit, on),
            Word::Incompat(bit) if INCOMPAT.contains(bit) => self.incompat.set(bit, on),
            Word::RoCompat(bit) if RO_COMPAT.contains(bit) => self.ro_compat.set(bit, on),
            _ => return None,
        }
        Some(())
    }

    pub fn has(&self, bit: Compat) -> bool {
        self.compat.contains(bit)
    }

    pub fn needs(&self, bit: Incompat) -> bool {
        self.incompat.contains(bit)
    }

    pub fn keeps(&self, bit: RoCompat) -> bool {
        self.ro_compat.contains(bit)
    }

    /// Returns whether the super block counts the bytes that were written to the volume.
    pub fn counts_writes(&self) -> bool {
        self.needs(Incompat::FLEX_BG) || self.ro_compat.intersects(COUNTING)
    }

    /// Checks features that exclude or need each other, in the order of `mke2fs`. Fails with `Needs`, `Excludes` or
    /// `Unsupported`.
    pub fn check(&self) -> Result<(), FormatError> {
        let needs = |what, needs| Err(FormatError::Needs { what, needs });
        let excludes = |what, other| Err(FormatError::Excludes { what, other });
        let extent = self.needs(Incompat::EXTENT);
        if self.needs(Incompat::SIXTY_FOUR_BIT) && !extent {
            return needs("64bit", "extent");
        }
        if self.keeps(RoCompat::BIGALLOC) && !extent {
            return needs("bigalloc", "extent");
        }
        let resize = self.has(Compat::RESIZE_INODE);
        if self.needs(Incompat::META_BG) && resize {
            return excludes("meta_bg", "resize_inode");
        }
        if resize && !self.keeps(RoCompat::SPARSE_SUPER) {
            return needs("resize_inode", "sparse_super");
        }
        if self.needs(Incompat::METADATA_CSUM_SEED) && !self.keeps(RoCompat::METADATA_CSUM) {
            return needs("metadata_csum_seed", "metadata_csum");
        }
        if self.has(Compat::ORPHAN_FILE) && !self.has(Compat::HAS_JOURNAL) {
            return needs("orphan_file", "has_journal");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_switched_by_name_in_their_order() {
        let mut features = Features::of(FormatVersion::Ext4);
        features.edit("^has_journal,bigalloc ^extents,extent").unwrap();
        assert!(!features.has(Compat::HAS_JOURNAL) && features.keeps(RoCompat::BIGALLOC));
        assert!(features.needs(Incompat::EXTENT));
        features.edit("none,filetype").unwrap();
        assert_eq!(features, Features { incompat: Incompat::FILETYPE, ..Features::NONE });
        for bad in ["extend", "needs_recovery", "lazy_bg", "^snapshot", "shared_blocks"] {
            let name = bad.trim_start_matches('^').to_string();
            assert_eq!(features.edit(bad), Err(FormatError::UnknownFeature { name }), "{bad}");
        }
    }

    #[test]
    fn conflicting_features_are_reported_by_name() {
        let check = |kind, edit| {
            let mut features = Features::of(kind);
            features.edit(edit).unwrap();
            features.check()
        };
        let needs = |what, needs| Err(FormatError::Needs { what, needs });
        assert_eq!(check(FormatVersion::Ext4, ""), Ok(()));
        assert_eq!(check(FormatVersion::Ext4, "^extent"), needs("64bit", "extent"));
        assert_eq!(check(FormatVersion::Ext2, "bigalloc"), needs("bigalloc", "extent"));
        assert_eq!(check(FormatVersion::Ext3, "^sparse_super"), needs("resize_inode", "sparse_super"));
        assert_eq!(
            check(FormatVersion::Ext3, "metadata_csum_seed"),
            needs("metadata_csum_seed", "metadata_csum")
        );
        let excludes = FormatError::Excludes { what: "meta_bg", other: "resize_inode" };
        assert_eq!(check(FormatVersion::Ext4, "meta_bg"), Err(excludes));
    }
}
