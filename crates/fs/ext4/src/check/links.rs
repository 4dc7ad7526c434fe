//! Pass 4: every inode in use has a name, and the right link count.
//!
//! Source: e2fsprogs `e2fsck/pass4.c` `e2fsck_pass4`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::events::EventSink;
use super::issue::Issue;
use super::reason::{VolumeFeature, WrongFlag};
use super::state::{CheckState, Marks};
use super::view::View;
use crate::feature::RoCompat;

const ROOT: u32 = 2;
/// `EXT2_LINK_MAX` of e2fsprogs: a directory with more subdirectories has a link count of 1.
const LINK_MAX: u32 = 65_000;
/// Maximum number of names of a file that e2fsck counts (`icount_16_xlate`).
const MOST_COUNTED: u32 = 65_500;
/// `file_type` of a directory.
const DIRECTORY: u8 = 2;

/// Checks all inodes. An inode of `doubtful` without a name is the value that attributes refer to, and its issues are
/// reported. With a name it is a file, whose flag is wrong.
pub(super) fn check(
    view: &View,
    state: &CheckState,
    mut doubtful: BTreeMap<u32, Vec<Issue>>,
    reported: &mut EventSink<'_>,
) {
    let (has_feature, mut has_many) = (view.sb.ro_compat.contains(RoCompat::DIR_NLINK), false);
    let mut first = 1_u32;
    for slots in &state.inodes {
        for (ino, slot) in (first..).zip(slots.iter()) {
            if slot.links == 0 || slot.marks.contains(Marks::OWN) {
                continue;
            }
            let (stored, mut found) = (u32::from(slot.links), slot.names());
            if slot.marks.contains(Marks::FLAGGED) {
                if found > 0 {
                    reported.found(Issue::InodeFlag { ino, flag: WrongFlag::AttributeInode });
                } else if let Some(issues) = doubtful.remove(&ino) {
                    issues.into_iter().for_each(|issue| reported.found(issue));
                    found = 1;
                }
            }
            if slot.kind == DIRECTORY {
                let lost = ino != ROOT && state.dir(ino).is_some_and(|dir| dir.parent() == 0);
                // The missing name is already reported, and will be added.
                found = found.saturating_add(lost.into());
                if ino == ROOT {
                    // Missing entries `.` and `..` are recreated.
                    found = found.max(2);
                }
                if found > LINK_MAX {
                    has_many = true;
                    found = 1;
                }
            } else if found == 0 {
                reported.found(Issue::Unnamed { ino });
                continue;
            } else {
                found = found.min(MOST_COUNTED);
            }
            if stored != found {
                reported.found(Issue::LinkCount { ino, stored, found });
            }
        }
        first = first.saturating_add(view.sb.inodes_per_group);
    }
    if has_many && !has_feature {
        let why = "it is not set, but a directory has more subdirectories than the link count can express";
        reported.found(Issue::Feature { feature: VolumeFeature::DirLinks, why });
    }
}
