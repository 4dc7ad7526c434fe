//! The lists of cases, and the macros that make tests of them.

use obento_driver::FileSystem;

use crate::outcome::Outcome;

/// Makes a test of each case that asks a volume. `$volume` is an expression that opens one, as anything that borrows
/// as `&dyn FileSystem`, and `None` skips.
#[macro_export]
macro_rules! reading_conformance {
    ($volume:expr) => {
        $crate::each_reading_case! { $crate::conformance_tests, $volume }
    };
}

/// Hands every case that asks a volume to a macro, with what else that takes.
#[doc(hidden)]
#[macro_export]
macro_rules! each_reading_case {
    ($run:path, $with:expr) => {
        $run! { $with, reading:
            every_name_that_is_listed_is_looked_up_to_the_same_inode
            an_entry_tells_the_kind_that_its_inode_has_or_none
            a_name_is_listed_once
            a_cookie_is_never_0_and_stays_below_2_to_the_63
            a_listing_goes_on_after_any_entry_with_what_followed_it
            a_listing_is_in_the_same_order_each_time_while_nothing_changes
            a_sink_that_breaks_gets_no_more
            the_sink_may_call_the_file_system
            a_name_that_is_not_there_is_not_found
            what_is_no_directory_answers_not_directory
            the_parent_of_a_directory_is_the_one_it_lies_in_and_the_roots_is_the_root
            an_inode_that_is_not_in_use_is_stale
            attributes_carry_the_number_that_was_asked_for
            a_run_is_not_empty_and_no_longer_than_asked_for
            past_the_end_of_a_file_is_a_hole
            a_run_of_zeros_ends_with_a_block_or_with_what_was_asked_for
            an_empty_range_is_invalid
            only_a_regular_file_is_mapped
            bytes_are_the_same_in_pieces_of_any_length
            the_target_of_a_link_is_as_long_as_its_size_and_has_no_nul
            only_a_symbolic_link_has_a_target
            every_attribute_that_is_listed_has_a_value
            an_attribute_that_is_not_there_is_no_data
            forget_may_come_for_an_inode_that_was_never_looked_up
            there_are_never_more_free_blocks_and_inodes_than_there_are
        }
        $run! { $with, inspect:
            structures_are_told_with_their_parts_and_places
            what_is_not_there_is_not_shown
            every_byte_has_a_place_and_what_shows_it_is_shown
            the_bytes_of_a_file_are_located_as_such
        }
    };
}

/// Makes a test of each case that changes a volume. `$volume` is an expression that makes an empty one with at least
/// 1 MiB and 100 inodes, and at most 64 MiB.
#[macro_export]
macro_rules! writing_conformance {
    ($volume:expr) => {
        $crate::each_writing_case! { $crate::conformance_tests, $volume }
    };
}

/// Hands every case that changes a volume to a macro, with what else that takes.
#[doc(hidden)]
#[macro_export]
macro_rules! each_writing_case {
    ($run:path, $with:expr) => {
        $run! { $with, names:
            a_new_inode_is_what_was_asked_for_and_named
            a_directory_starts_with_two_links_and_counts_in_its_parents
            a_symbolic_link_has_its_target_and_an_empty_one_is_invalid
            create_tests_its_errors_in_order
            link_gives_another_name_and_counts_it
            link_tests_its_errors_in_order
            a_file_has_at_most_as_many_names_as_the_format_holds
            unlink_removes_a_name_and_the_inode_reads_and_writes_until_its_forget
            unlink_tests_its_errors_in_order
            rmdir_removes_an_empty_directory_in_which_nothing_can_be_created_then
            rmdir_tests_its_errors_in_order
            what_nobody_uses_is_free_once_its_last_name_is_gone
            remove_asks_once_what_it_found_and_a_refusal_changes_nothing
            forget_frees_what_has_no_name_and_nothing_else
            a_number_in_its_next_life_has_another_generation
        }
        $run! { $with, nameless:
            a_file_without_a_name_reads_and_writes_until_its_forget
            a_file_that_gets_a_name_stays
            nameless_calls_test_their_errors_in_order
        }
        $run! { $with, bulk:
            files_made_at_once_are_what_was_asked_for
            a_file_that_cannot_be_made_keeps_no_other_from_it
            files_without_room_are_not_there
        }
        $run! { $with, renames:
            rename_moves_a_name_within_and_between_directories
            a_rename_that_makes_its_directory_grow_leaves_nothing_of_the_old_name
            rename_replaces_what_stands_at_the_new_name
            rename_without_replacing_is_exists_if_anything_stands_there
            exchange_lets_two_names_change_places_whatever_they_are
            both_flags_at_once_are_invalid
            rename_tests_its_errors_in_order
            two_names_of_one_inode_are_left_as_they_are
            a_directory_that_moves_gets_its_new_parent_and_is_counted_there
            a_directory_holds_no_more_directories_than_its_link_count_tells
        }
        $run! { $with, listing:
            an_entry_that_is_there_throughout_is_handed_over_exactly_once
            an_entry_that_comes_or_goes_is_handed_over_at_most_once
            a_cookie_is_right_after_its_entry_and_those_around_it_are_gone
            names_of_any_bytes_are_kept_as_they_are
        }
        $run! { $with, attributes:
            set_attr_changes_what_it_names_and_leaves_the_rest
            what_is_made_in_a_directory_gets_the_flags_that_it_hands_on
            times_are_kept_to_the_granularity
            the_time_of_the_last_change_is_set_where_it_is_told
            the_time_of_birth_is_told_from_the_begin_and_set_where_it_is_told
            a_project_is_kept_or_not_supported
            changes_of_data_and_of_attributes_are_stamped_apart
            the_change_counter_grows_with_every_change_or_with_the_times
            a_time_that_the_format_cannot_hold_is_out_of_range_or_the_nearest
            an_owner_that_the_format_cannot_hold_is_out_of_range_at_create
        }
        $run! { $with, data:
            what_was_written_is_read_and_moves_the_size
            what_was_never_written_is_zeros_and_takes_no_space
            nothing_is_read_of_what_was_reserved_until_end_write
            end_write_stamps_the_moment_that_it_is_told_and_takes_no_later_ctime_back
            abandon_gives_back_what_nobody_wrote
            truncate_drops_what_lies_past_the_size
            truncate_allocates_nothing
            punch_makes_a_hole_within_the_same_size
            punch_refuses_parts_of_blocks_but_at_the_end_of_the_file
            data_calls_refuse_what_is_no_regular_file
            a_size_past_the_largest_is_file_too_big
        }
        $run! { $with, allocation:
            what_is_allocated_reads_as_zeros_and_what_was_there_stays
            what_is_allocated_is_written_on_a_full_volume
            space_past_the_end_leaves_the_size_where_that_is_asked
            allocate_tests_its_errors_in_order
            a_range_that_is_made_zeros_keeps_its_space
            zeros_past_the_end_move_the_size_where_that_is_asked
            zero_range_tests_its_errors_in_order
            what_follows_a_range_that_is_cut_out_moves_down
            collapse_tests_its_errors_in_order
            what_lies_behind_a_hole_that_is_put_in_moves_up
            insert_tests_its_errors_in_order
        }
        $run! { $with, space:
            a_full_volume_answers_no_space_and_takes_again_what_was_freed
            inodes_run_out_before_anything_was_named
            sync_succeeds_on_a_sound_device
        }
        $run! { $with, life:
            files_are_synced_in_one_call_whatever_they_are
            a_volume_that_was_closed_still_reads_and_takes_no_change
            what_is_free_is_discarded_and_nothing_else
        }
        $run! { $with, threads:
            every_method_may_be_called_from_any_thread_at_any_time
        }
        $run! { $with, xattrs:
            an_attribute_is_kept_byte_for_byte_in_each_name_space
            set_xattr_obeys_its_mode
            set_xattr_tests_its_errors_in_order
            a_removed_attribute_is_no_data
            an_attribute_is_of_the_inode_and_not_of_the_name
        }
    };
}

/// A case.
pub type Case = fn(&dyn FileSystem) -> Outcome;

/// A case that changes a volume.
pub type WritingCase = Case;

macro_rules! listed {
    ($list:expr, $module:ident: $($case:ident)*) => {
        $($list.push((stringify!($case), super::$module::$case as Case));)*
    };
}

/// Every case that changes a volume, by name: what [`writing_conformance!`](crate::writing_conformance) makes tests of.
#[expect(clippy::vec_init_then_push, reason = "the list comes in parts")]
pub fn writing_cases() -> Vec<(&'static str, WritingCase)> {
    let mut cases = Vec::new();
    each_writing_case! { listed, cases }
    cases
}

/// Every case that asks a volume, by name.
#[expect(clippy::vec_init_then_push, reason = "the list comes in parts")]
pub fn reading_cases() -> Vec<(&'static str, Case)> {
    let mut cases = Vec::new();
    each_reading_case! { listed, cases }
    cases
}

/// One test a case.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($volume:expr, $module:ident: $($case:ident)*) => {
        $(#[test]
        fn $case() {
            if let Some(volume) = $volume {
                let outcome = $crate::conformance::$module::$case(&*volume);
                $crate::outcome::tell(stringify!($case), outcome);
            }
        })*
    };
}
