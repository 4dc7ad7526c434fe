//! Fields of the super block that locate everything else, with their expected values. These are used if the primary
//! super block contradicts its backups or its own other fields.
//!
//! Invariant: a field is taken from a backup only if no program changes it in the primary super block alone. Linux
//! sets features such as `large_file` or `verity` only there, and so do repairs of this driver.
//! Invariant: corrections are made to a copy in memory; the caller decides what is written.
//! Source: e2fsprogs `lib/ext2fs/openfs.c` `ext2fs_open2`, `e2fsck/super.c` `check_super_block`,
//! `check_backup_super_block`; `lib/ext2fs/initialize.c` (`s_first_data_block`); Linux `fs/ext4/super.c`
//! `ext4_load_and_init_journal`.

use core::mem::offset_of;

use obento_base::wire::{IntoBytes, join};
use obento_base::{Corrupt, Error, Structure};
use obento_block::BlockDevice;

use crate::dir::UTF8_12_1;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::format::JOURNAL_INO;
use crate::gate::HURD;
use crate::locate::{self, FoundSuperBlock};
use crate::raw::RawSuperBlock;
use crate::super_block::{PRIMARY_OFFSET, SuperBlock};

/// Maximum number of backups that are read.
const MAX_COPIES: usize = 3;
/// `EXT4_GOOD_OLD_FIRST_INO`.
const FIRST_INO: u32 = 11;
/// `EXT4_DYNAMIC_REV`.
const DYNAMIC_REV: u32 = 1;
/// Maximum size of a flex group as a power of two, as in Linux and libext2fs.
const MAX_FLEX_LOG: u8 = 31;
/// `EXT2_MAX_DESC_SIZE`.
const MAX_DESC_SIZE: u16 = 1024;

/// Features that are set when a volume is created or converted, in all backups.
const INCOMPAT: Incompat = Incompat::META_BG
    .union(Incompat::SIXTY_FOUR_BIT)
    .union(Incompat::FLEX_BG)
    .union(Incompat::METADATA_CSUM_SEED);
const RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::UNINIT_BG);
/// Features that the primary super block may gain alone but never loses alone.
const NEVER_LOST: Incompat = Incompat::EXTENT
    .union(Incompat::EA_INODE)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::LARGE_DIR)
    .union(Incompat::CASEFOLD)
    .union(Incompat::ENCRYPT);

/// A field of the super block: its name and its place.
struct Field {
    name: &'static str,
    at: usize,
    len: usize,
}

impl Field {
    fn bytes<'a>(&self, raw: &'a RawSuperBlock) -> &'a [u8] {
        raw.as_bytes().get(self.at..self.at.saturating_add(self.len)).unwrap_or_default()
    }

    /// Returns the value in `raw`, or the first eight bytes of a longer field.
    fn number(&self, raw: &RawSuperBlock) -> u64 {
        self.bytes(raw).iter().take(8).rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    }
}

/// Returns the value of `field` in `raw`.
pub(crate) fn value(raw: &RawSuperBlock, field: &str) -> u64 {
    FIELDS.iter().find(|known| known.name == field).map_or(0, |field| field.number(raw))
}

/// Returns the size of the field that `_field` projects to.
const fn size<T>(_field: fn(&RawSuperBlock) -> &T) -> usize {
    size_of::<T>()
}

macro_rules! fields {
    ($($name:ident)*) => {
        &[$(Field {
            name: stringify!($name),
            at: offset_of!(RawSuperBlock, $name),
            len: size(|raw| &raw.$name),
        }),*]
    };
}

/// The fields that this module corrects.
const FIELDS: &[Field] = fields! {
    s_rev_level s_log_block_size s_log_cluster_size s_blocks_per_group s_clusters_per_group s_inodes_per_group
    s_first_data_block s_blocks_count_lo s_blocks_count_hi s_inodes_count s_inode_size s_first_ino s_creator_os
    s_feature_compat s_feature_incompat s_feature_ro_compat s_desc_size s_first_meta_bg s_reserved_gdt_blocks
    s_log_groups_per_flex s_checksum_type s_checksum_seed s_uuid s_backup_bgs s_encoding s_mmp_block
    s_journal_inum s_journal_dev s_journal_uuid s_orphan_file_inum s_usr_quota_inum s_grp_quota_inum s_prj_quota_inum
};

/// A field with an impossible value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wrong {
    /// The name of the field.
    field: &'static str,
    offset: usize,
    /// The stored value.
    found: u64,
}

impl Wrong {
    /// Returns the first field in which `raw` and `right` differ.
    fn first(raw: &RawSuperBlock, right: &RawSuperBlock) -> Option<Self> {
        let field = FIELDS.iter().find(|field| field.bytes(raw) != field.bytes(right))?;
        Some(Self { field: field.name, offset: field.at, found: field.number(raw) })
    }

    fn error(self) -> Error {
        let structure = Structure::SuperBlock;
        let offset = u32::try_from(self.offset).unwrap_or(u32::MAX);
        Corrupt::Field { structure, field: self.field, block: 0, offset, found: self.found }.into()
    }
}

/// Returns the primary super block with corrected fields, or `found` if it is correct or is a backup.
pub(crate) fn agreeing(device: &dyn BlockDevice, found: FoundSuperBlock) -> FoundSuperBlock {
    if found.is_copy() {
        return found;
    }
    let raw = *found.super_block.raw;
    let mut right = as_copies(device, &found.super_block).unwrap_or(raw);
    straighten(&mut right);
    corrected(&raw, &right).unwrap_or(found)
}

/// Returns the primary super block if it is unusable only because of a field whose value follows from other fields.
/// Otherwise fails with `error`.
pub(crate) fn find_straight(device: &dyn BlockDevice, error: Error) -> Result<FoundSuperBlock, Error> {
    let raw = locate::read_raw(device, PRIMARY_OFFSET)?.filter(|raw| locate::has_magic(raw)).ok_or(error)?;
    let mut right = raw.clone();
    straighten_block_size(&mut right, device.len());
    straighten(&mut right);
    corrected(&raw, &right).ok_or(error)
}

/// Returns `right` in place of the primary super block `raw`, if they differ and it is usable.
fn corrected(raw: &RawSuperBlock, right: &RawSuperBlock) -> Option<FoundSuperBlock> {
    let wrong = Wrong::first(raw, right)?;
    let super_block = SuperBlock::decode(right.as_bytes(), locate::place(1024, PRIMARY_OFFSET)).ok()?;
    Some(FoundSuperBlock { super_block, offset: PRIMARY_OFFSET, instead_of: Some(wrong.error()) })
}

/// Returns `raw` with the corrected fields of `right`.
pub(crate) fn with_fields(raw: &RawSuperBlock, right: &RawSuperBlock) -> RawSuperBlock {
    let mut all = *raw;
    for field in FIELDS {
        let to = all.as_mut_bytes().get_mut(field.at..).unwrap_or_default();
        to.iter_mut().zip(field.bytes(right)).for_each(|(to, from)| *to = *from);
    }
    all
}

/// Returns the primary super block with the fields of a backup, if no backup agrees with it.
fn as_copies(device: &dyn BlockDevice, sb: &SuperBlock) -> Option<RawSuperBlock> {
    let groups = sb.copies().skip(1).take(MAX_COPIES);
    let places = groups.map(|group| sb.group_start(group).0.saturating_mul(sb.block_size.into()));
    let mut has_place = false;
    let mut differing = None;
    for place in places {
        has_place = true;
        let Some((copy, _)) = locate::copy_at(device, place).filter(|(copy, _)| is_same_volume(sb, copy))
        else {
            continue;
        };
        let right = laid_out_as(sb, &copy, device.len());
        Wrong::first(&sb.raw, &right)?;
        differing = differing.or(Some(right));
    }
    if differing.is_some() || !has_place {
        return differing;
    }
    // No backup is where the primary super block implies: its own numbers may be wrong.
    let hint = locate::find_copy(device, Some(&sb.raw)).map(|(copy, _)| copy);
    let other = hint.or_else(|| Some(locate::find_copy_anywhere(device, Error::Invalid).ok()?.super_block));
    let copy = other.filter(|copy| is_same_volume(sb, copy) && copy.volume_len() <= device.len())?;
    Some(laid_out_as(sb, &copy, device.len()))
}

/// Returns whether two super blocks have the same UUID, except for one damaged byte.
fn is_same_volume(sb: &SuperBlock, copy: &SuperBlock) -> bool {
    sb.raw.s_uuid.iter().zip(&copy.raw.s_uuid).filter(|(one, other)| one != other).count() <= 1
}

/// Returns the primary super block `sb` with the layout of `copy`.
fn laid_out_as(sb: &SuperBlock, copy: &SuperBlock, device_len: u64) -> RawSuperBlock {
    let (from, mut right) = (&copy.raw, *sb.raw);
    macro_rules! take {
        ($($field:ident)*) => { $(right.$field = from.$field;)* };
    }
    take!(s_log_block_size s_log_cluster_size s_blocks_per_group s_clusters_per_group s_inodes_per_group);
    take!(s_first_data_block s_creator_os);
    // A repair changes revision 0 with features to revision 1, in the primary super block alone.
    if from.s_rev_level.get() >= DYNAMIC_REV {
        take!(s_rev_level s_inode_size s_first_ino);
    }
    let features = features_as(sb, copy);
    right.s_feature_compat.set(features.0.bits());
    right.s_feature_incompat.set(features.1.bits());
    right.s_feature_ro_compat.set(features.2.bits());
    let both = |feature: Incompat| features.1.contains(feature) && copy.incompat.contains(feature);
    if both(Incompat::SIXTY_FOUR_BIT) {
        take!(s_desc_size);
    }
    if both(Incompat::META_BG) {
        take!(s_first_meta_bg);
    }
    if both(Incompat::FLEX_BG) {
        take!(s_log_groups_per_flex);
    }
    if both(Incompat::CASEFOLD) {
        take!(s_encoding);
    }
    if both(Incompat::MMP) {
        take!(s_mmp_block);
    }
    if both(Incompat::METADATA_CSUM_SEED) {
        take!(s_checksum_seed);
    }
    if features.2.contains(RoCompat::METADATA_CSUM) {
        take!(s_checksum_type);
    }
    if features.2.intersects(RoCompat::METADATA_CSUM | RoCompat::UNINIT_BG) {
        take!(s_uuid);
    }
    if features.0.contains(Compat::SPARSE_SUPER2) {
        take!(s_backup_bgs);
    }
    if features.0.contains(Compat::ORPHAN_FILE) && from.s_orphan_file_inum.get() != 0 {
        take!(s_orphan_file_inum);
    }
    if features.2.contains(RoCompat::QUOTA) {
        // A repair removes the number of a quota file in the primary super block alone.
        macro_rules! take_named {
            ($($inum:ident)*) => {
                $(if right.$inum.get() != 0 && from.$inum.get() != 0 { take!($inum); })*
            };
        }
        take_named!(s_usr_quota_inum s_grp_quota_inum s_prj_quota_inum);
    }
    if features.0.contains(Compat::RESIZE_INODE) && copy.compat.contains(Compat::RESIZE_INODE) {
        take!(s_reserved_gdt_blocks);
    }
    let (ours, theirs) = (sb.volume_len(), copy.volume_len());
    // A volume that is being extended has its new size first in the primary super block.
    let is_longer = theirs > ours || ours > device_len;
    let is_shape_wrong = Wrong::first(&sb.raw, &right).is_some();
    if theirs <= device_len && (is_longer || is_shape_wrong) && (copy.groups == sb.groups || is_shape_wrong) {
        take!(s_blocks_count_lo s_blocks_count_hi s_inodes_count);
    }
    right
}

/// Returns the features of `sb`, with the layout features of `copy`.
fn features_as(sb: &SuperBlock, copy: &SuperBlock) -> (Compat, Incompat, RoCompat) {
    let raw = &sb.raw;
    let lost =
        |feature: Compat, is_named: bool| if is_named { copy.compat & feature } else { Compat::empty() };
    let compat = sb.compat.difference(Compat::SPARSE_SUPER2)
        | copy.compat & Compat::SPARSE_SUPER2
        | lost(Compat::ORPHAN_FILE, raw.s_orphan_file_inum.get() != 0);
    // A repair removes the feature from a volume of the Hurd, in the primary super block alone.
    let is_hurd = copy.raw.s_creator_os.get() == HURD;
    let fixed = if is_hurd { INCOMPAT } else { INCOMPAT | Incompat::FILETYPE };
    let incompat = sb.incompat.difference(fixed) | copy.incompat & (fixed | NEVER_LOST);
    let quotas = [&raw.s_usr_quota_inum, &raw.s_grp_quota_inum, &raw.s_prj_quota_inum];
    let has_quotas = quotas.iter().any(|inum| inum.get() != 0);
    let kept = if has_quotas { RoCompat::QUOTA | RoCompat::PROJECT } else { RoCompat::empty() };
    let ro_compat = sb.ro_compat.difference(RO_COMPAT) | copy.ro_compat & (RO_COMPAT | kept);
    (compat, incompat, ro_compat)
}

/// Takes the block size of a volume without clusters from the cluster size, if only that agrees with
/// `s_first_data_block` and the length of the device.
fn straighten_block_size(raw: &mut RawSuperBlock, device_len: u64) {
    if RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()).contains(RoCompat::BIGALLOC) {
        return;
    }
    let is_wide = Incompat::from_bits_retain(raw.s_feature_incompat.get()).contains(Incompat::SIXTY_FOUR_BIT);
    let high = if is_wide { raw.s_blocks_count_hi.get() } else { 0 };
    let blocks = join(raw.s_blocks_count_lo.get(), high);
    let fits = |log: u32| {
        let size = 1024_u64.checked_shl(log).filter(|&size| size <= 64 << 10);
        let len = size.and_then(|size| blocks.checked_mul(size));
        raw.s_first_data_block.get() == u32::from(log == 0) && len.is_some_and(|len| len <= device_len)
    };
    if !fits(raw.s_log_block_size.get()) && fits(raw.s_log_cluster_size.get()) {
        raw.s_log_block_size = raw.s_log_cluster_size;
    }
}

/// Corrects the fields whose values follow from other fields, or that belong to features that the volume lacks.
fn straighten(raw: &mut RawSuperBlock) {
    let compat = Compat::from_bits_retain(raw.s_feature_compat.get());
    let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
    let ro_compat = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
    if raw.s_rev_level.get() > DYNAMIC_REV {
        raw.s_rev_level.set(DYNAMIC_REV);
    }
    if raw.s_rev_level.get() == DYNAMIC_REV
        && !(FIRST_INO..=raw.s_inodes_count.get()).contains(&raw.s_first_ino.get())
    {
        raw.s_first_ino.set(FIRST_INO);
    }
    if !ro_compat.contains(RoCompat::BIGALLOC) {
        raw.s_log_cluster_size = raw.s_log_block_size;
        raw.s_clusters_per_group = raw.s_blocks_per_group;
    }
    raw.s_first_data_block.set(u32::from(raw.s_log_cluster_size.get() == 0));
    if raw.s_log_groups_per_flex > MAX_FLEX_LOG {
        raw.s_log_groups_per_flex = 0;
    }
    let desc_size = raw.s_desc_size.get();
    let is_size = desc_size == 0 || desc_size.is_power_of_two() && desc_size <= MAX_DESC_SIZE;
    if !incompat.contains(Incompat::SIXTY_FOUR_BIT) && !is_size {
        raw.s_desc_size.set(0);
    }
    if compat.contains(Compat::HAS_JOURNAL) {
        straighten_journal(raw);
    }
    straighten_features(raw, compat, incompat, ro_compat);
    if !compat.contains(Compat::ORPHAN_FILE) {
        raw.s_orphan_file_inum.set(0);
    }
    if !ro_compat.contains(RoCompat::QUOTA) {
        [&mut raw.s_usr_quota_inum, &mut raw.s_grp_quota_inum, &mut raw.s_prj_quota_inum]
            .into_iter()
            .for_each(|inum| inum.set(0));
    }
}

/// Removes features whose requirements are not met: neither e2fsck nor Linux opens a volume with them.
fn straighten_features(raw: &mut RawSuperBlock, compat: Compat, incompat: Incompat, ro_compat: RoCompat) {
    let (mut compat, mut incompat, mut ro_compat) = (compat, incompat, ro_compat);
    if raw.s_orphan_file_inum.get() == 0 {
        compat.remove(Compat::ORPHAN_FILE);
    }
    if !compat.contains(Compat::ORPHAN_FILE) {
        ro_compat.remove(RoCompat::ORPHAN_PRESENT);
    }
    if raw.s_mmp_block.get() == 0 {
        incompat.remove(Incompat::MMP);
    }
    if raw.s_encoding.get() == 0 {
        incompat.remove(Incompat::CASEFOLD);
    } else if incompat.contains(Incompat::CASEFOLD) {
        raw.s_encoding.set(UTF8_12_1);
    }
    raw.s_feature_compat.set(compat.bits());
    raw.s_feature_incompat.set(incompat.bits());
    raw.s_feature_ro_compat.set(ro_compat.bits());
}

/// Corrects the fields of the journal. A volume has an internal or an external journal; Linux mounts no volume that
/// names both or neither.
fn straighten_journal(raw: &mut RawSuperBlock) {
    // A UUID with a single nonzero byte is damage.
    let is_named = raw.s_journal_uuid.iter().filter(|&&byte| byte != 0).count() > 1;
    let inum = raw.s_journal_inum.get();
    if inum == JOURNAL_INO || inum != 0 && !is_named {
        raw.s_journal_dev.set(0);
        raw.s_journal_uuid = [0; 16];
    } else if is_named {
        raw.s_journal_inum.set(0);
    } else if raw.s_journal_dev.get() == 0 {
        raw.s_journal_inum.set(JOURNAL_INO);
        raw.s_journal_uuid = [0; 16];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::wire::FromZeros;

    fn sound() -> RawSuperBlock {
        let mut raw = RawSuperBlock::new_zeroed();
        raw.s_rev_level.set(1);
        raw.s_first_ino.set(11);
        raw.s_inodes_count.set(64);
        raw.s_first_data_block.set(1);
        raw.s_blocks_per_group.set(8192);
        raw.s_clusters_per_group.set(8192);
        raw
    }

    fn straightened(change: impl FnOnce(&mut RawSuperBlock)) -> Option<(&'static str, u64, u64)> {
        let mut raw = sound();
        change(&mut raw);
        let mut right = raw;
        straighten(&mut right);
        Wrong::first(&raw, &right).map(|wrong| (wrong.field, wrong.found, value(&right, wrong.field)))
    }

    #[test]
    fn a_sound_super_block_is_not_changed() {
        assert_eq!(straightened(|_| {}), None);
    }

    #[test]
    fn a_field_that_follows_from_others_is_named_with_the_value_that_it_must_have() {
        assert_eq!(straightened(|raw| raw.s_rev_level.set(9)), Some(("s_rev_level", 9, 1)));
        assert_eq!(straightened(|raw| raw.s_first_ino.set(65)), Some(("s_first_ino", 65, 11)));
        let clusters = straightened(|raw| raw.s_clusters_per_group.set(1));
        assert_eq!(clusters, Some(("s_clusters_per_group", 1, 8192)));
        assert_eq!(
            straightened(|raw| raw.s_log_groups_per_flex = 32),
            Some(("s_log_groups_per_flex", 32, 0))
        );
        assert_eq!(straightened(|raw| raw.s_desc_size.set(96)), Some(("s_desc_size", 96, 0)));
    }

    #[test]
    fn a_journal_is_in_the_volume_or_on_one_other_device() {
        let journal = |raw: &mut RawSuperBlock| raw.s_feature_compat.set(Compat::HAS_JOURNAL.bits());
        let neither = straightened(journal);
        assert_eq!(neither, Some(("s_journal_inum", 0, 8)));
        let both = straightened(|raw| {
            journal(raw);
            raw.s_journal_inum.set(8);
            raw.s_journal_dev.set(0x801);
        });
        assert_eq!(both, Some(("s_journal_dev", 0x801, 0)));
        let outside = straightened(|raw| {
            journal(raw);
            raw.s_journal_uuid = [7; 16];
        });
        assert_eq!(outside, None);
    }

    #[test]
    fn an_inode_of_a_feature_that_the_volume_lacks_is_not_named() {
        assert_eq!(straightened(|raw| raw.s_orphan_file_inum.set(12)), Some(("s_orphan_file_inum", 12, 0)));
        assert_eq!(straightened(|raw| raw.s_grp_quota_inum.set(4)), Some(("s_grp_quota_inum", 4, 0)));
    }
}
