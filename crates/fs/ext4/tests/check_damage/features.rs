//! Features that the super block has or lacks, against what is on the volume.

use crate::case::cases;
use crate::lab::bases::{self, oracles};
use crate::lab::judge::{contents, repaired};

/// `EXT4_FEATURE_INCOMPAT_EXTENTS`.
const EXTENTS: u32 = 0x40;

cases! {
    extents_without_the_feature(PLAIN, ["feature feature=Text(\"extent\")"], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() & !EXTENTS).into());
    });
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
