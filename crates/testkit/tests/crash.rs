//! Tests of the crash explorer: a correct journal passes, and each kind of bug in it is found.

mod toy;

use obento_testkit::crash::{Options, SeenStates, Summary, explore};
use toy::{Bug, Protocol, Run};

fn cut(run: &Run, protocol: Protocol, bug: Option<Bug>, options: &Options) -> Summary {
    explore(&run.base, &run.events, options, &SeenStates::default(), &mut |state| {
        let promise = &run.promises[state.mark.unwrap_or(0)];
        toy::judge(state.device.clone(), protocol, bug, promise)
    })
}

fn right(protocol: Protocol) {
    let run = toy::run(protocol, None);
    let summary = cut(&run, protocol, None, &Options::new(1));
    assert_eq!(summary.failures, [], "{protocol:?}");
    assert!(summary.judged > 150 && summary.windows >= 18, "{summary:?}");
}

/// Checks that the bug is found, and that the printed name reproduces it.
fn caught(protocol: Protocol, bug: Bug) {
    let run = toy::run(protocol, Some(bug));
    let summary = cut(&run, protocol, Some(bug), &Options::new(1));
    let failure = summary.failures.first().unwrap_or_else(|| panic!("{bug:?} passes: {summary:?}"));
    let name = failure.name.to_string().parse().unwrap();
    let again = cut(&run, protocol, Some(bug), &Options::new(1).with_only(name));
    assert_eq!((again.judged, &again.failures[..]), (1, &[failure.clone()][..]));
}

#[test]
fn a_journal_with_its_barriers_survives_every_cut() {
    right(Protocol::Barrier);
}

#[test]
fn a_journal_with_checksums_in_place_of_a_barrier_survives_every_cut() {
    right(Protocol::Checksum);
}

#[test]
fn a_missing_barrier_is_caught() {
    caught(Protocol::Barrier, Bug::MissingBarrier);
}

#[test]
fn a_commit_record_that_is_written_early_is_caught() {
    caught(Protocol::Barrier, Bug::CommitWrittenEarly);
}

#[test]
fn a_torn_descriptor_that_is_accepted_is_caught() {
    caught(Protocol::Checksum, Bug::TornDescriptorAccepted);
}

#[test]
fn a_freed_block_that_is_reused_too_soon_is_caught() {
    caught(Protocol::Barrier, Bug::FreedBlockReusedTooSoon);
}

#[test]
fn a_sync_that_is_acknowledged_before_its_flush_is_caught() {
    caught(Protocol::Barrier, Bug::AcknowledgedBeforeTheFlush);
}

#[test]
fn a_home_location_that_is_written_before_the_commit_is_caught() {
    caught(Protocol::Barrier, Bug::HomeWrittenBeforeTheCommit);
}

#[test]
fn a_log_that_is_reused_before_its_blocks_came_home_is_caught() {
    caught(Protocol::Barrier, Bug::LogReusedTooSoon);
}

#[test]
fn data_that_is_written_after_its_commit_is_caught() {
    caught(Protocol::Barrier, Bug::DataWrittenAfterTheCommit);
}
