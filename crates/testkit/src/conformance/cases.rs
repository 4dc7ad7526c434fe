//! The lists of cases, and the macros that create tests from them.

use obento_driver::FileSystem;

use crate::outcome::Outcome;

/// Creates a test for each case that only reads a volume. `$volume` is an expression that opens a volume: any value
/// that borrows as `&dyn FileSystem`. `None` skips the test.
#[macro_export]
macro_rules! reading_conformance {
    ($volume:expr) => {
        $crate::each_reading_case! { $crate::conformance_tests, $volume }
    };
}

/// Passes every case that only reads a volume to a macro, with the other arguments of that macro.
#[doc(hidden)]
#[macro_export]
macro_rules! each_reading_case {
    ($run:path, $with:expr) => {
        $run! { $with, reading:
            a_lookup_of_a_listed_name_returns_the_same_inode
            an_entry_has_the_kind_of_its_inode_or_no_kind
            a_name_is_listed_once
            a_cookie_is_never_0_and_stays_below_2_to_the_63
            a_listing_continues_after_any_entry_with_the_next_one
            a_listing_is_in_the_same_order_each_time_while_nothing_changes
            a_sink_that_breaks_gets_no_more_entries
            the_sink_may_call_the_file_system
            a_missing_name_is_not_found
            other_files_than_directories_return_not_directory
            the_parent_of_a_directory_contains_it_and_the_parent_of_the_root_is_the_root
            an_inode_that_does_not_exist_is_stale
            attributes_contain_the_requested_inode_number
            a_run_is_not_empty_and_no_longer_than_requested
            a_range_past_the_end_of_a_file_is_a_hole
            a_run_of_zeros_ends_with_a_block_or_with_the_requested_range
            an_empty_range_is_invalid
            only_a_regular_file_is_mapped
            bytes_are_the_same_in_pieces_of_any_length
            the_target_of_a_link_is_as_long_as_its_size_and_has_no_nul
            only_a_symbolic_link_has_a_target
            every_attribute_that_is_listed_has_a_value
            a_missing_attribute_returns_no_data
            forget_accepts_an_inode_that_was_never_looked_up
            free_blocks_and_inodes_never_exceed_the_totals
        }
        $run! { $with, inspect:
            structures_are_shown_with_their_parts_and_locations
            missing_structures_are_not_shown
            every_byte_has_a_location_and_a_command_that_shows_it
            the_bytes_of_a_file_are_located_in_the_file
        }
    };
}

/// Creates a test for each case that changes a volume. `$volume` is an expression that creates an empty volume with at
/// least 1 MiB and 100 inodes, and at most 64 MiB.
#[macro_export]
macro_rules! writing_conformance {
    ($volume:expr) => {
        $crate::each_writing_case! { $crate::conformance_tests, $volume }
    };
}

/// Passes every case that changes a volume to a macro, with the other arguments of that macro.
#[doc(hidden)]
#[macro_export]
macro_rules! each_writing_case {
    ($run:path, $with:expr) => {
        $run! { $with, names:
            a_new_inode_has_the_requested_properties_and_name
            a_new_directory_has_the_link_count_of_the_format_and_is_counted_in_its_parent
            a_symbolic_link_has_its_target_and_an_empty_one_is_invalid
            create_tests_its_errors_in_order
            link_adds_a_name_and_counts_it
            link_tests_its_errors_in_order
            a_file_has_at_most_as_many_names_as_the_format_supports
            unlink_removes_a_name_and_the_inode_stays_usable_until_forget
            unlink_tests_its_errors_in_order
            rmdir_removes_an_empty_directory_and_prevents_new_entries
            rmdir_tests_its_errors_in_order
            an_unused_inode_is_free_once_its_last_name_is_removed
            remove_asks_once_about_the_found_inode_and_a_refusal_changes_nothing
            forget_frees_inodes_without_names_and_nothing_else
            a_reused_inode_number_has_another_generation
        }
        $run! { $with, nameless:
            a_file_without_a_name_stays_usable_until_forget
            a_nameless_file_that_gets_a_name_is_kept
            nameless_calls_test_their_errors_in_order
        }
        $run! { $with, bulk:
            files_created_together_have_the_requested_properties
            a_file_that_cannot_be_created_does_not_prevent_others
            files_without_space_are_absent
        }
        $run! { $with, renames:
            rename_moves_a_name_within_and_between_directories
            a_rename_that_makes_its_directory_grow_leaves_nothing_of_the_old_name
            rename_replaces_the_file_at_the_new_name
            rename_without_replacing_returns_exists_if_the_name_exists
            exchange_swaps_two_names_of_any_types
            both_flags_at_once_are_invalid
            a_rename_that_leaves_a_whiteout_gives_the_old_name_to_it
            rename_tests_its_errors_in_order
            a_rename_between_two_names_of_one_inode_changes_nothing
            a_moved_directory_has_its_new_parent_and_is_counted_there
            a_directory_has_no_more_subdirectories_than_its_link_count_allows
        }
        $run! { $with, listing:
            an_entry_that_exists_throughout_is_listed_exactly_once
            an_entry_that_is_created_or_removed_is_listed_at_most_once
            a_cookie_is_valid_after_its_entry_and_its_neighbours_are_removed
            names_with_arbitrary_bytes_are_preserved
        }
        $run! { $with, attributes:
            set_attr_changes_the_named_attributes_and_leaves_the_rest
            new_files_inherit_the_flags_of_their_directory
            times_are_rounded_down_to_the_granularity_of_the_format
            the_time_of_the_last_change_can_be_set_if_it_is_reported
            the_time_of_birth_is_reported_from_the_start_and_can_be_set_if_it_is_reported
            a_project_is_stored_or_not_supported
            data_and_attribute_changes_set_different_times
            the_change_counter_grows_with_every_change_or_with_the_times
            a_time_that_the_format_cannot_store_fails_with_out_of_range_or_becomes_the_nearest
            an_owner_that_the_format_cannot_store_is_out_of_range_at_create
        }
        $run! { $with, data:
            written_bytes_are_read_back_and_extend_the_size
            unwritten_ranges_are_zeros_and_take_no_space
            reserved_blocks_are_not_read_until_end_write
            end_write_sets_the_given_time_and_never_moves_a_later_ctime_back
            a_ticket_describes_the_file_before_the_write
            a_dropped_ticket_releases_its_blocks
            a_detached_write_is_resumed_with_its_blocks
            truncate_drops_bytes_past_the_size
            truncate_allocates_nothing
            punch_makes_a_hole_within_the_same_size
            punch_refuses_partial_blocks_except_at_the_end_of_the_file
            data_calls_refuse_files_that_are_not_regular
            a_size_past_the_largest_is_file_too_big
        }
        $run! { $with, open_writes:
            dropping_a_ticket_does_not_release_the_blocks_of_other_tickets
            writes_past_the_end_of_a_file_end_in_any_order
            a_file_that_grows_keeps_the_blocks_of_open_writes
        }
        $run! { $with, allocation:
            allocated_space_reads_as_zeros_and_existing_data_stays
            allocated_space_is_writable_on_a_full_volume
            space_past_the_end_keeps_the_size_if_requested
            allocate_tests_its_errors_in_order
            a_zeroed_range_keeps_its_space
            zeros_past_the_end_extend_the_size_if_requested
            zero_range_tests_its_errors_in_order
            the_data_after_a_removed_range_moves_down
            collapse_tests_its_errors_in_order
            the_data_after_an_inserted_hole_moves_up
            insert_tests_its_errors_in_order
        }
        $run! { $with, space:
            a_full_volume_returns_no_space_and_reuses_freed_space
            inodes_run_out_before_a_name_is_created
            sync_succeeds_on_a_sound_device
        }
        $run! { $with, life:
            files_of_any_type_are_synced_in_one_call
            a_closed_volume_can_be_read_and_not_changed
            free_space_is_discarded_and_nothing_else
        }
        $run! { $with, threads:
            every_method_may_be_called_from_any_thread_at_any_time
        }
        $run! { $with, xattrs:
            an_attribute_is_preserved_byte_for_byte_in_each_name_space
            set_xattr_obeys_its_mode
            set_xattr_tests_its_errors_in_order
            a_removed_attribute_returns_no_data
            an_attribute_belongs_to_the_inode_and_not_to_the_name
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

/// Returns every case that changes a volume, by name: those of [`writing_conformance!`](crate::writing_conformance).
#[expect(clippy::vec_init_then_push, reason = "the list comes in parts")]
pub fn writing_cases() -> Vec<(&'static str, WritingCase)> {
    let mut cases = Vec::new();
    each_writing_case! { listed, cases }
    cases
}

/// Returns every case that only reads a volume, by name.
#[expect(clippy::vec_init_then_push, reason = "the list comes in parts")]
pub fn reading_cases() -> Vec<(&'static str, Case)> {
    let mut cases = Vec::new();
    each_reading_case! { listed, cases }
    cases
}

/// Creates one test for each case.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($volume:expr, $module:ident: $($case:ident)*) => {
        $(#[test]
        fn $case() {
            if let Some(volume) = $volume {
                let outcome = $crate::conformance::$module::$case(&*volume);
                $crate::outcome::report(stringify!($case), outcome);
            }
        })*
    };
}
