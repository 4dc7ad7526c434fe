//! Features of the super block that contradict the volume.

use crate::case::{cases, run_unknown};
use crate::lab::bases::{self, oracles};
use crate::lab::judge::{contents, repaired};

/// `EXT4_FEATURE_INCOMPAT_META_BG`, `EXT4_FEATURE_INCOMPAT_EXTENTS`.
const META_BG: u32 = 0x10;
const EXTENTS: u32 = 0x40;
/// `EXT2_OS_HURD`.
const HURD: u32 = 1;

cases! {
    kept_blocks_beside_meta_groups(EXT4, ["super-block-value field=Text(\"s_feature_incompat\")"], |disk| {
        // Only the backups have reserved descriptor blocks.
        disk.edit_super_block(|sb| {
            sb.s_feature_incompat = (sb.s_feature_incompat.get() | META_BG).into();
        });
    });
    extents_without_the_feature_where_no_copy_has_it(LARGE, ["feature feature=Text(\"extent\")"], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() & !EXTENTS).into());
    });
    extents_without_the_feature_that_the_copies_have(PLAIN, [
        "super-block-value field=Text(\"s_feature_incompat\")"
    ], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() & !EXTENTS).into());
    });
}

#[test]
fn types_in_entries_on_a_volume_of_the_hurd() {
    let expected = ["feature feature=Text(\"filetype\")"];
    run_unknown(&bases::EXT2, &expected, |disk| disk.edit_super_block(|sb| sb.s_creator_os = HURD.into()));
}

#[test]
fn files_are_as_they_were_after_the_feature_of_extents_was_missing() {
    if oracles() {
        for base in [&bases::EXT4, &bases::UNINIT, &bases::LARGE] {
            let sound = base.disk();
            let mut disk = sound.clone();
            disk.edit_super_block(|sb| {
                sb.s_feature_incompat = (sb.s_feature_incompat.get() & !EXTENTS).into()
            });
            assert_eq!(contents(&repaired(&disk.bytes).unwrap()), contents(&sound.bytes), "{}", base.name);
        }
    }
}
