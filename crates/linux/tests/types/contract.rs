//! The contract, implemented by the kernel's file systems.

use std::panic::{AssertUnwindSafe, catch_unwind};

use obento_testkit::conformance::{WritingCase, writing_cases};
use obento_testkit::passed;
use obento_testkit::recipes::EMPTY;

use super::image::Image;

/// A case that Linux does not satisfy for some types.
pub struct Exception {
    /// Its name.
    pub case: &'static str,
    /// The types.
    pub types: &'static [&'static str],
    /// The behaviour of Linux.
    pub why: &'static str,
}

const fn except(case: &'static str, types: &'static [&'static str], why: &'static str) -> Exception {
    Exception { case, types, why }
}

/// The types that have symbolic links, and with them files with metadata.
const UNIX: &[&str] = &[
    "xfs", "btrfs", "f2fs", "jfs", "reiserfs", "gfs2", "nilfs2", "minix", "minix2", "minix1", "udf",
    "hfsplus", "affs", "sysv", "hpfs",
];
/// The types without `RENAME_EXCHANGE`.
const NO_EXCHANGE: &[&str] =
    &["jfs", "reiserfs", "nilfs2", "minix", "minix2", "minix1", "udf", "hfs", "hfsplus", "sysv", "hpfs"];

/// All exceptions. The documentation contains this table.
pub const EXCEPT: &[Exception] = &[
    except(
        "a_new_inode_has_the_requested_properties_and_name",
        UNIX,
        "symbolic links have the permissions 0777",
    ),
    except(
        "a_symbolic_link_has_its_target_and_an_empty_one_is_invalid",
        &["udf"],
        "a target is stored as Unicode names of at most 254 bytes each",
    ),
    except(
        "a_symbolic_link_has_its_target_and_an_empty_one_is_invalid",
        &["affs"],
        "a target is stored in the form of AmigaOS; a target is refused if Linux would return a different target",
    ),
    except("link_adds_a_name_and_counts_it", &["hfsplus"], "only regular files can have several names"),
    except(
        "a_file_has_at_most_as_many_names_as_the_format_supports",
        &["minix", "minix2"],
        "Linux creates more names than `fsck.minix` can count, which is 255",
    ),
    except(
        "unlink_removes_a_name_and_the_inode_stays_usable_until_forget",
        &["hfs"],
        "the data of a file is freed with its name",
    ),
    except(
        "an_unused_inode_is_free_once_its_last_name_is_removed",
        &["xfs", "jfs"],
        "space is freed in the background",
    ),
    except(
        "an_unused_inode_is_free_once_its_last_name_is_removed",
        &["hfsplus"],
        "only regular files can have several names",
    ),
    except(
        "forget_frees_inodes_without_names_and_nothing_else",
        &["xfs", "btrfs"],
        "space is freed in the background",
    ),
    except(
        "forget_frees_inodes_without_names_and_nothing_else",
        &["nilfs2"],
        "space is allocated at write-back, and freed by a program of the host",
    ),
    except(
        "forget_frees_inodes_without_names_and_nothing_else",
        &["hfs"],
        "the data of a file is freed with its name",
    ),
    except(
        "forget_frees_inodes_without_names_and_nothing_else",
        &["hfsplus"],
        "the data of a file that is not open is freed with its name",
    ),
    except("rename_replaces_the_file_at_the_new_name", &["hpfs"], "a directory cannot replace another"),
    except("rename_tests_its_errors_in_order", &["hpfs"], "a directory cannot replace another"),
    except(
        "a_moved_directory_has_its_new_parent_and_is_counted_there",
        &["hpfs"],
        "a directory cannot replace another",
    ),
    except("exchange_swaps_two_names_of_any_types", NO_EXCHANGE, "there is no rename that exchanges"),
    except(
        "a_cookie_is_valid_after_its_entry_and_its_neighbours_are_removed",
        &["hfs", "hfsplus"],
        "a position in a listing is the index of an entry",
    ),
    except(
        "a_cookie_is_valid_after_its_entry_and_its_neighbours_are_removed",
        &["affs"],
        "a position in a listing is the index of an entry among those with the same hash",
    ),
    except(
        "a_directory_has_no_more_subdirectories_than_its_link_count_allows",
        &["hpfs"],
        "a file has one name, and a directory any number of subdirectories",
    ),
    except(
        "a_cookie_is_valid_after_its_entry_and_its_neighbours_are_removed",
        &["hpfs"],
        "a position in a listing is the place of an entry in a tree",
    ),
    except(
        "new_files_inherit_the_flags_of_their_directory",
        &["btrfs"],
        "Linux chooses which flags a file inherits",
    ),
    except(
        "new_files_inherit_the_flags_of_their_directory",
        &["gfs2", "hfsplus"],
        "flags that the type does not support are refused",
    ),
    except(
        "the_time_of_the_last_change_can_be_set_if_it_is_reported",
        &[
            "xfs", "btrfs", "f2fs", "jfs", "reiserfs", "gfs2", "nilfs2", "minix", "minix2", "udf", "bfs",
            "hfsplus", "sysv", "hpfs",
        ],
        "the change time cannot be set",
    ),
    except(
        "written_bytes_are_read_back_and_extend_the_size",
        &["bfs"],
        "allocated space is computed from the size that a file had when it was opened",
    ),
    except(
        "written_bytes_are_read_back_and_extend_the_size",
        &["affs"],
        "the allocated space of a file is not reported",
    ),
    except(
        "unwritten_ranges_are_zeros_and_take_no_space",
        &["jfs", "reiserfs", "nilfs2", "udf"],
        "holes are not reported (`SEEK_HOLE`)",
    ),
    except(
        "unwritten_ranges_are_zeros_and_take_no_space",
        &["minix", "minix2", "minix1", "sysv"],
        "allocated space is computed from the size of a file, and holes are not reported",
    ),
    except("truncate_drops_bytes_past_the_size", &["jfs"], "space is freed in the background"),
    except("truncate_drops_bytes_past_the_size", &["bfs"], "space is freed with the last name"),
    except("truncate_allocates_nothing", &["reiserfs"], "a hole takes four bytes per block"),
    except("truncate_drops_bytes_past_the_size", &["hpfs"], "setting the size cannot extend a file"),
    except("truncate_allocates_nothing", &["udf"], "a hole takes one record per GiB"),
    except(
        "punch_makes_a_hole_within_the_same_size",
        &["xfs", "btrfs"],
        "allocated space is counted at write-back",
    ),
    except(
        "inodes_run_out_before_a_name_is_created",
        &["f2fs", "gfs2"],
        "every free block counts as an inode, and names take some of the blocks",
    ),
    except(
        "inodes_run_out_before_a_name_is_created",
        &["bfs"],
        "the directory has no space for the name of the last one",
    ),
    except(
        "inodes_run_out_before_a_name_is_created",
        &["hpfs"],
        "the reported number of free inodes is the number of directories for which the directory band of HPFS has space",
    ),
    except(
        "allocate_tests_its_errors_in_order",
        &["f2fs"],
        "if there is no space for a whole range, the file has grown by the part that was allocated",
    ),
    except(
        "allocate_tests_its_errors_in_order",
        &["gfs2"],
        "if there is no space for a whole range, the part that was allocated past the end stays",
    ),
    except(
        "zero_range_tests_its_errors_in_order",
        &["f2fs"],
        "if there is no space for a whole range, the file has grown by the part that was allocated",
    ),
    except(
        "zeros_past_the_end_extend_the_size_if_requested",
        &["xfs"],
        "Linux preallocates space past the end of a file",
    ),
    except("free_space_is_discarded_and_nothing_else", &["f2fs"], "space is discarded in the background"),
    except(
        "free_space_is_discarded_and_nothing_else",
        &["xfs"],
        "reserved space counts as discarded and not as free",
    ),
    except(
        "free_space_is_discarded_and_nothing_else",
        &["hpfs"],
        "the space for directories is discarded, too, and not counted as free",
    ),
    except(
        "an_attribute_is_preserved_byte_for_byte_in_each_name_space",
        &["xfs", "btrfs", "f2fs", "jfs", "reiserfs"],
        "attributes are listed in order of creation or hash",
    ),
    except(
        "an_attribute_is_preserved_byte_for_byte_in_each_name_space",
        &["hfsplus"],
        "names of attributes are Unicode",
    ),
    except(
        "an_attribute_is_preserved_byte_for_byte_in_each_name_space",
        &["gfs2"],
        "an access control list that equals the permissions is stored as permissions",
    ),
    except(
        "set_xattr_obeys_its_mode",
        &["hfsplus"],
        "if the mode forbids or requires an existing attribute, Linux returns `NotSupported` instead of `Exists` or `NoData`",
    ),
    except(
        "set_xattr_tests_its_errors_in_order",
        &["xfs", "btrfs", "f2fs", "jfs", "reiserfs", "gfs2", "hfsplus"],
        "lengths are checked before the attribute",
    ),
    except(
        "a_removed_attribute_returns_no_data",
        &["hfsplus"],
        "only regular files and directories have attributes",
    ),
];

impl Exception {
    fn is_of(&self, name: &str) -> bool {
        self.types.contains(&name)
    }
}

/// Returns the required cases of a type, and its exceptions.
pub fn cases(name: &str) -> [Vec<(&'static str, WritingCase)>; 2] {
    let is_asked = |case: &str| !EXCEPT.iter().any(|except| except.case == case && except.is_of(name));
    let (asked, left_out) = writing_cases().into_iter().partition(|(case, _)| is_asked(case));
    [asked, left_out]
}

/// Returns whether a volume of a type passes a case and a subsequent check; none without the type's programs.
fn passes(name: &str, case: WritingCase) -> Option<bool> {
    let volume = Image::new(name)?.judged();
    Some(catch_unwind(AssertUnwindSafe(move || case(&*volume))).is_ok())
}

/// Cases that assert at once that space is free, which a thread of JFS frees a moment later (Linux 6.1,
/// fs/jfs/jfs_txnmgr.c `jfs_lazycommit`). On a busy machine, they sometimes fail. A block that is never freed fails all
/// attempts.
const FREED_LATER: [&str; 4] = [
    "a_file_without_a_name_stays_usable_until_forget",
    "a_full_volume_returns_no_space_and_reuses_freed_space",
    "an_unused_inode_is_free_once_its_last_name_is_removed",
    "forget_frees_inodes_without_names_and_nothing_else",
];
const ATTEMPTS: usize = 10;

/// A kernel starts for each case. `cargo xtask types` runs all cases of all types; other runs take every fifth case of a
/// type, and each case on every fifth type.
const SHARE: usize = 5;

/// Returns whether this run includes the case with this index.
fn is_included(name: &str, index: usize) -> bool {
    let of_type = EMPTY.iter().position(|recipe| recipe.name == name).unwrap();
    passed::is_recorded() || (index + of_type).is_multiple_of(SHARE)
}

/// Runs the cases on separate volumes, and reports all that fail.
fn conforms(name: &str) {
    let mut failed = Vec::new();
    let asked = cases(name).into_iter().next().unwrap().into_iter().enumerate();
    for (_, (case, run)) in asked.filter(|(index, _)| is_included(name, *index)) {
        // Each case of a kernel that does not answer takes a minute.
        if failed.len() == 5 {
            break;
        }
        let may_be_early = name == "jfs" && FREED_LATER.contains(&case);
        let mut attempts = (0..if may_be_early { ATTEMPTS } else { 1 }).map(|_| passes(name, run));
        let Some(has_passed) = attempts.find(|passed| *passed != Some(false)).unwrap_or(Some(false)) else {
            return;
        };
        failed.extend((!has_passed).then_some(case));
    }
    assert_eq!(failed, Vec::<&str>::new(), "{name}");
    passed::report(name, "contract");
}

macro_rules! conform {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            conforms($name);
        })*
    };
}

conform! {
    an_xfs_keeps_the_contract "xfs"
    a_btrfs_keeps_the_contract "btrfs"
    an_f2fs_keeps_the_contract "f2fs"
    a_jfs_keeps_the_contract "jfs"
    a_reiserfs_keeps_the_contract "reiserfs"
    a_nilfs2_keeps_the_contract "nilfs2"
    a_minix_keeps_the_contract "minix"
    a_minix_of_the_second_version_keeps_the_contract "minix2"
    a_minix_of_the_first_version_keeps_the_contract "minix1"
    a_udf_keeps_the_contract "udf"
    an_hfs_keeps_the_contract "hfs"
    a_bfs_keeps_the_contract "bfs"
    an_hfs_plus_keeps_the_contract "hfsplus"
    an_affs_keeps_the_contract "affs"
    a_sysv_keeps_the_contract "sysv"
    an_hpfs_keeps_the_contract "hpfs"
    a_gfs2_keeps_the_contract "gfs2"
}

#[test]
#[ignore = "minutes, and those cases that wait for the watchdog"]
fn no_type_passes_a_case_that_is_listed_as_an_exception() {
    let mut passed = Vec::new();
    for recipe in EMPTY {
        for (case, run) in cases(recipe.name).into_iter().nth(1).unwrap() {
            passed.extend((passes(recipe.name, run) == Some(true)).then_some((recipe.name, case)));
        }
    }
    assert_eq!(passed, Vec::new());
}
