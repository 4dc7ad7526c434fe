//! Feature bits, with the names of e2fsprogs.
//!
//! Source: e2fsprogs `lib/ext2fs/ext2_fs.h` (values) and `lib/e2p/feature.c` (names).
#![expect(missing_docs, reason = "the names are the specification's")]

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use obento_base::{Error, Feature};

bitflags::bitflags! {
    /// `s_feature_compat`: a driver may read and write a volume with unknown bits.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Compat: u32 {
        const DIR_PREALLOC = 0x1;
        const IMAGIC_INODES = 0x2;
        const HAS_JOURNAL = 0x4;
        const EXT_ATTR = 0x8;
        const RESIZE_INODE = 0x10;
        const DIR_INDEX = 0x20;
        const LAZY_BG = 0x40;
        const EXCLUDE_INODE = 0x80;
        const SNAPSHOT_BITMAP = 0x100;
        const SPARSE_SUPER2 = 0x200;
        const FAST_COMMIT = 0x400;
        const STABLE_INODES = 0x800;
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }

    /// `s_feature_incompat`: a driver must not use a volume with unknown bits.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Incompat: u32 {
        const COMPRESSION = 0x1;
        const FILETYPE = 0x2;
        const NEEDS_RECOVERY = 0x4;
        const JOURNAL_DEV = 0x8;
        const META_BG = 0x10;
        const EXTENT = 0x40;
        const SIXTY_FOUR_BIT = 0x80;
        const MMP = 0x100;
        const FLEX_BG = 0x200;
        const EA_INODE = 0x400;
        const DIRDATA = 0x1000;
        const METADATA_CSUM_SEED = 0x2000;
        const LARGE_DIR = 0x4000;
        const INLINE_DATA = 0x8000;
        const ENCRYPT = 0x10000;
        const CASEFOLD = 0x20000;
        const _ = !0;
    }

    /// `s_feature_ro_compat`: a driver may only read a volume with unknown bits.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct RoCompat: u32 {
        const SPARSE_SUPER = 0x1;
        const LARGE_FILE = 0x2;
        const BTREE_DIR = 0x4;
        const HUGE_FILE = 0x8;
        const UNINIT_BG = 0x10;
        const DIR_NLINK = 0x20;
        const EXTRA_ISIZE = 0x40;
        const SNAPSHOT = 0x80;
        const QUOTA = 0x100;
        const BIGALLOC = 0x200;
        const METADATA_CSUM = 0x400;
        const REPLICA = 0x800;
        const READONLY = 0x1000;
        const PROJECT = 0x2000;
        const SHARED_BLOCKS = 0x4000;
        const VERITY = 0x8000;
        const ORPHAN_PRESENT = 0x10000;
        const _ = !0;
    }
}

const COMPAT: &[(u32, &str)] = &[
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (0x4, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (0x20, "dir_index"),
    (0x40, "lazy_bg"),
    (0x80, "exclude_inode"),
    (0x100, "snapshot_bitmap"),
    (0x200, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];

const INCOMPAT: &[(u32, &str)] = &[
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x10000, "encrypt"),
    (0x20000, "casefold"),
];

const RO_COMPAT: &[(u32, &str)] = &[
    (0x1, "sparse_super"),
    (0x2, "large_file"),
    (0x4, "btree_dir"),
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x80, "snapshot"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x10000, "orphan_present"),
];

/// A feature, by the word that contains its bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    Compat(Compat),
    Incompat(Incompat),
    RoCompat(RoCompat),
}

/// Returns the feature with this name, or with an older name that e2fsprogs still accepts.
pub(crate) fn named(name: &str) -> Option<Word> {
    let name = match name {
        "extents" => "extent",
        "uninit_groups" => "uninit_bg",
        name => name,
    };
    let find = |table: &[(u32, &str)]| table.iter().find(|(_, known)| *known == name).map(|&(bit, _)| bit);
    let compat = find(COMPAT).map(|bit| Word::Compat(Compat::from_bits_retain(bit)));
    let incompat = || find(INCOMPAT).map(|bit| Word::Incompat(Incompat::from_bits_retain(bit)));
    let ro_compat = || find(RO_COMPAT).map(|bit| Word::RoCompat(RoCompat::from_bits_retain(bit)));
    compat.or_else(incompat).or_else(ro_compat)
}

impl Incompat {
    /// The features that this driver can read.
    pub const READ: Self = Self::FILETYPE
        .union(Self::NEEDS_RECOVERY)
        .union(Self::META_BG)
        .union(Self::EXTENT)
        .union(Self::SIXTY_FOUR_BIT)
        .union(Self::MMP)
        .union(Self::FLEX_BG)
        .union(Self::EA_INODE)
        .union(Self::METADATA_CSUM_SEED)
        .union(Self::LARGE_DIR)
        .union(Self::INLINE_DATA)
        .union(Self::ENCRYPT)
        .union(Self::CASEFOLD);

    /// Fails with `Unsupported` for the first feature that cannot be read, by its name, or by the bits without a
    /// name.
    pub fn check_readable(self) -> Result<(), Error> {
        let lacking = self.bits() & !Self::READ.bits();
        if lacking == 0 {
            return Ok(());
        }
        let feature = match INCOMPAT.iter().find(|(bit, _)| bit & lacking != 0) {
            Some((_, name)) => Feature::Named(name),
            None => Feature::Bits { set: "incompatible", bits: lacking.into() },
        };
        Err(Error::Unsupported(feature))
    }
}

impl Compat {
    /// Returns the name of the first of `bits` that has one, or else the bits.
    pub(crate) fn name_of(bits: u32) -> Feature {
        match COMPAT.iter().find(|(bit, _)| bit & bits != 0) {
            Some((_, name)) => Feature::Named(name),
            None => Feature::Bits { set: "compatible", bits: bits.into() },
        }
    }
}

impl RoCompat {
    /// Returns the name of the first of `bits` that has one, or else the bits.
    pub(crate) fn name_of(bits: u32) -> Feature {
        match RO_COMPAT.iter().find(|(bit, _)| bit & bits != 0) {
            Some((_, name)) => Feature::Named(name),
            None => Feature::Bits { set: "read-only compatible", bits: bits.into() },
        }
    }
}

/// Returns the names of all set bits in the order of `dumpe2fs`, and bits without a name in its form `FEATURE_I21`.
pub fn names(compat: Compat, incompat: Incompat, ro_compat: RoCompat) -> Vec<String> {
    let words =
        [(compat.bits(), COMPAT, 'C'), (incompat.bits(), INCOMPAT, 'I'), (ro_compat.bits(), RO_COMPAT, 'R')];
    words.iter().flat_map(|&(bits, table, letter)| word_names(bits, table, letter)).collect()
}

fn word_names(
    bits: u32,
    table: &'static [(u32, &'static str)],
    letter: char,
) -> impl Iterator<Item = String> {
    (0..u32::BITS).filter_map(move |n| {
        let bit = 1_u32.checked_shl(n).filter(|bit| bits & bit != 0)?;
        Some(match table.iter().find(|(known, _)| *known == bit) {
            Some((_, name)) => name.to_string(),
            None => alloc::format!("FEATURE_{letter}{n}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_named_as_e2fsprogs_names_them() {
        let incompat = Incompat::EXTENT | Incompat::SIXTY_FOUR_BIT | Incompat::from_bits_retain(1 << 21);
        assert_eq!(
            names(Compat::HAS_JOURNAL, incompat, RoCompat::UNINIT_BG),
            ["has_journal", "extent", "64bit", "FEATURE_I21", "uninit_bg"]
        );
    }

    #[test]
    fn an_incompatible_feature_is_refused_by_name_or_by_its_bits() {
        assert_eq!(Incompat::READ.check_readable(), Ok(()));
        assert_eq!(
            (Incompat::READ | Incompat::COMPRESSION).check_readable(),
            Err(Error::Unsupported(Feature::Named("compression")))
        );
        assert_eq!(
            Incompat::from_bits_retain(0x8000_0002).check_readable(),
            Err(Error::Unsupported(Feature::Bits { set: "incompatible", bits: 0x8000_0000 }))
        );
    }
}
