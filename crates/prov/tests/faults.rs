//! Recorded volumes on devices that fail at any request. Acknowledged data is present, nothing panics, and a failure
//! of the log alone is never a failure of a user's operation.

mod common;

use obento_testkit::crash::campaign::Volume;
use obento_testkit::plan::Plan;
use obento_testkit::trials;

use common::volumes;

/// Which faults of a device that fails permanently users may not notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unnoticed {
    None,
    /// Only the log reads after reads have begun to fail, or only the log writes while users read.
    OfLog,
}

/// Makes every `step`-th request fail in one of `every` plans, as [`trials::faults::requests`] does. A write of the log
/// that fails once is not reported to users, so more faults are hidden than without a recorder. A device that fails
/// permanently is reported, except for `unnoticed`.
#[track_caller]
fn requests(volume: &Volume<'_>, every: usize, step: u64, unnoticed: Unnoticed) {
    let plans: Vec<_> = volume.named.iter().step_by(every).cloned().collect();
    let break_in = |plans: &[Plan]| {
        let tally = volume.subject.break_everywhere(&volume.base, plans, step);
        tally.unwrap_or_else(|reason| panic!("{}, {reason}", volume.name))
    };
    let mut tally = break_in(&[]);
    // A run of all faults that is stopped has the results of the plans so far.
    for (number, part) in (1..).zip(plans.chunks(if step == 1 { 1 } else { plans.len() })) {
        let one = break_in(part);
        tally.tried += one.tried;
        tally.noticed += one.noticed;
        tally.repeated.extend(one.repeated);
        tally.unnoticed.extend(one.unnoticed);
        println!("{}, {number} of {} plans: {} faults", volume.name, plans.len(), tally.tried);
    }
    let is_of_log = |fault: &&String| {
        let is_read = fault.contains("request: Read");
        let may_be = match fault {
            // Users and the check read everything.
            fault if fault.contains(", read, ") => !is_read,
            // No check follows.
            fault if fault.contains(", recovered, ") => true,
            // Users notice writes and flushes that fail during a plan.
            _ => is_read,
        };
        unnoticed == Unnoticed::OfLog && may_be
    };
    let (of_log, others): (Vec<_>, Vec<_>) = tally.unnoticed.iter().partition(is_of_log);
    let hidden = tally.repeated.len();
    println!("{}: {} faults, {hidden} hidden, {} for good", volume.name, tally.tried, of_log.len());
    assert_eq!(others, [""; 0], "{}", volume.name);
    assert!(of_log.is_empty() || (of_log.len() as u64) < tally.tried / 50, "{of_log:?}");
    assert!(tally.tried > 0 && (tally.repeated.len() as u64) < tally.tried / 3, "{tally:?}");
}

#[test]
fn whichever_request_fails_nothing_acknowledged_is_lost() {
    for volume in volumes::for_faults() {
        requests(&volume, volume.named.len().div_ceil(10), 29, Unnoticed::None);
    }
}

#[test]
fn a_full_recorded_volume_returns_no_space_and_keeps_its_files() {
    if let Some(volume) = volumes::exfat() {
        trials::faults::full(&volume, 30_000);
    }
}

#[test]
fn a_slow_device_changes_no_answer() {
    for mut volume in volumes::for_faults() {
        volume.named = volume.named.into_iter().step_by(6).collect();
        trials::faults::slow(&volume);
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn every_single_request_fails_in_turn() {
    for volume in volumes::for_faults() {
        requests(&volume, 1, 1, Unnoticed::OfLog);
    }
}

#[test]
fn whichever_request_fails_while_a_directory_grows_files_keep_their_contents() {
    // A failed read of the log changes which inode numbers the files of this plan get.
    if let Some(mut volume) = volumes::for_faults().into_iter().next() {
        volume.named.retain(|plan| plan.name == "directory-grows");
        requests(&volume, 1, 1, Unnoticed::OfLog);
    }
}
