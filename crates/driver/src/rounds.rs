//! The events of a check, and repairs in rounds ([`check_in_rounds`]).
//!
//! A round checks the whole volume, and collects issues with the edits that repair them. [`check_in_rounds`] applies
//! the permitted edits, and starts the next round. Several rounds are necessary, because one inconsistency can hide
//! another.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Error;
use obento_env::NO_CLOCK;

use crate::{CheckObserver, CheckOptions, CheckProgress, CheckReport, Finding, RepairMode, Severity};

/// Maximum number of rounds. Every round except the last one applies edits.
const MAX_ROUNDS: u32 = 1 << 10;

/// The type of the issues of a driver. [`issues!`](macro@crate::issues) implements this trait.
pub trait CheckIssue: Clone + Eq {
    /// Returns the severity.
    fn severity(&self) -> Severity;

    /// Converts the issue to a finding.
    fn finding(&self, repaired: bool) -> Finding;
}

/// The events of a check with typed issues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckEvent<I> {
    /// An issue, and whether it was repaired.
    Found(I, bool),
    /// The progress.
    Progress(CheckProgress),
}

impl<I: CheckIssue> CheckEvent<I> {
    /// Passes the event to `observer`.
    pub fn pass_to(self, observer: &mut dyn CheckObserver) {
        match self {
            Self::Found(issue, repaired) => observer.found(issue.finding(repaired)),
            Self::Progress(progress) => observer.progress(progress),
        }
    }
}

/// Runs `check` with the default options, which repair nothing, and returns the issues that it finds. Omits notes.
///
/// # Errors
///
/// The errors of `check`.
pub fn issues_of<I: CheckIssue>(
    check: impl FnOnce(&CheckOptions, &mut dyn FnMut(CheckEvent<I>)) -> Result<CheckReport, Error>,
) -> Result<Vec<I>, Error> {
    let mut found = Vec::new();
    check(&CheckOptions::new(Arc::new(NO_CLOCK)), &mut |event| match event {
        CheckEvent::Found(issue, _) if issue.severity() > Severity::Note => found.push(issue),
        _ => {}
    })?;
    Ok(found)
}

/// An issue and the edits that repair it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundIssue<I, E> {
    /// The issue, or `None` if the edits belong to the repair of another issue. Edits without an issue count as safe.
    pub issue: Option<I>,
    /// The edits; empty if no repair is known.
    pub edits: Vec<E>,
}

impl<I: CheckIssue, E> FoundIssue<I, E> {
    /// Returns whether the issue has a repair that `repair_mode` allows.
    fn is_repairable(&self, repair_mode: RepairMode) -> bool {
        let severity = self.issue.as_ref().map_or(Severity::Safe, CheckIssue::severity);
        let is_allowed = match repair_mode {
            RepairMode::Nothing => false,
            RepairMode::Safe => severity <= Severity::Safe,
            RepairMode::All => true,
        };
        is_allowed && !self.edits.is_empty()
    }
}

/// The result of one round.
pub struct CheckRound<V, I, E> {
    /// The volume to which `apply` applies edits, or `None` if the volume cannot be repaired.
    pub view: Option<V>,
    /// The issues that the round found and did not report.
    pub found: Vec<FoundIssue<I, E>>,
    /// The report of the round. `report.found` counts only the issues that `look` reported itself.
    pub report: CheckReport,
}

/// Checks a volume in rounds, and applies the repairs that `repair_mode` permits. `look` runs one round. `apply`
/// applies the edits to the volume.
///
/// The last round is the first one to which one of these conditions applies:
///
/// - No issue has a permitted repair.
/// - The repairable issues are equal to those of the previous round.
/// - The round has no [`view`](CheckRound::view).
/// - The round is number 1,024.
///
/// Each issue is passed to `emit` in one of these rounds:
///
/// - A note: in the first round. Later rounds report only notes that they repair and that no earlier round repaired.
///   The report counts no notes.
/// - A repaired issue: in the round that repairs the issue. If the repair had no effect, the last round finds
///   the issue again, and also reports the issue as not repaired.
/// - Any other issue: in the last round.
///
/// # Errors
///
/// The errors of `look` and `apply`.
pub fn check_in_rounds<V, I: CheckIssue, E>(
    repair_mode: RepairMode,
    emit: &mut dyn FnMut(CheckEvent<I>),
    mut look: impl FnMut(&mut dyn FnMut(CheckEvent<I>)) -> Result<CheckRound<V, I, E>, Error>,
    mut apply: impl FnMut(&V, &mut dyn Iterator<Item = &E>) -> Result<(), Error>,
) -> Result<CheckReport, Error> {
    let (mut repaired, mut before, mut has_noted, mut left) = (0_u64, Vec::new(), false, MAX_ROUNDS);
    // Notes that earlier rounds repaired. A repair without effect is not reported again.
    let mut repaired_notes = Vec::new();
    loop {
        left = left.saturating_sub(1);
        let CheckRound { view, found, mut report } = look(emit)?;
        let may_repair = |item: &&FoundIssue<I, E>| item.is_repairable(repair_mode);
        let now: Vec<I> = found.iter().filter(may_repair).filter_map(|item| item.issue.clone()).collect();
        let is_last = now.is_empty() || now == before || left == 0;
        let view = view.filter(|_| !is_last);
        if let Some(view) = &view {
            apply(view, &mut found.iter().filter(may_repair).flat_map(|item| &item.edits))?;
        }
        for item in found {
            let is_repaired = view.is_some() && item.is_repairable(repair_mode);
            let Some(issue) = item.issue else { continue };
            if issue.severity() == Severity::Note {
                let is_new = !has_noted || is_repaired && !repaired_notes.contains(&issue);
                if is_new && is_repaired {
                    repaired_notes.push(issue.clone());
                }
                if is_new {
                    emit(CheckEvent::Found(issue, is_repaired));
                }
            } else if is_repaired {
                repaired = repaired.saturating_add(1);
                emit(CheckEvent::Found(issue, true));
            } else if view.is_none() {
                report.found = report.found.saturating_add(1);
                emit(CheckEvent::Found(issue, false));
            }
        }
        if view.is_none() {
            (report.found, report.repaired) = (report.found.saturating_add(repaired), repaired);
            return Ok(report);
        }
        (has_noted, before) = (true, now);
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    /// A defect of a test volume, which is a set of numbers. Even numbers are safe to repair, and 0 and 100 are notes.
    /// Multiples of 7 have no repair.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Wrong(u32);

    impl CheckIssue for Wrong {
        fn severity(&self) -> Severity {
            match self.0 {
                0 | 100 => Severity::Note,
                even if even % 2 == 0 => Severity::Safe,
                _ => Severity::Damage,
            }
        }

        fn finding(&self, repaired: bool) -> Finding {
            let (code, severity) = ("wrong", self.severity());
            Finding { code, severity, fields: Vec::new(), text: alloc::format!("{}", self.0), repaired }
        }
    }

    /// Checks a volume with `numbers`, of which a round finds at most two. Returns the events, the report, and the
    /// numbers that are left.
    fn check(numbers: &[u32], repair_mode: RepairMode) -> (Vec<(u32, bool)>, CheckReport, Vec<u32>) {
        let left = core::cell::RefCell::new(numbers.iter().copied().collect::<BTreeSet<u32>>());
        let mut events = Vec::new();
        let mut emit = |event| match event {
            CheckEvent::Found(Wrong(number), repaired) => events.push((number, repaired)),
            CheckEvent::Progress(_) => {}
        };
        let look = |_: &mut dyn FnMut(CheckEvent<Wrong>)| {
            let numbers = left.borrow();
            let found = numbers.iter().take(2).map(|&number| {
                let edits = if number % 7 == 0 { Vec::new() } else { alloc::vec![number] };
                FoundIssue { issue: Some(Wrong(number)), edits }
            });
            Ok(CheckRound { view: Some(()), found: found.collect(), report: CheckReport::default() })
        };
        let apply = |(): &(), edits: &mut dyn Iterator<Item = &u32>| {
            edits.for_each(|number| assert!(left.borrow_mut().remove(number)));
            Ok(())
        };
        let report = check_in_rounds(repair_mode, &mut emit, look, apply).unwrap();
        (events, report, left.into_inner().into_iter().collect())
    }

    #[test]
    fn a_check_without_repairs_runs_one_round_and_changes_nothing() {
        let (events, report, left) = check(&[2, 3, 4], RepairMode::Nothing);
        assert_eq!((events, report.found, report.repaired), (Vec::from([(2, false), (3, false)]), 2, 0));
        assert_eq!(left, [2, 3, 4]);
    }

    #[test]
    fn rounds_continue_until_nothing_is_left_to_repair() {
        let (events, report, left) = check(&[2, 3, 4, 6, 7], RepairMode::All);
        assert_eq!(events, [(2, true), (3, true), (4, true), (6, true), (7, false)]);
        assert_eq!((report.found, report.repaired, left), (5, 4, Vec::from([7])));
    }

    #[test]
    fn safe_repairs_leave_damage() {
        let (events, report, left) = check(&[2, 3], RepairMode::Safe);
        assert_eq!(events, [(2, true), (3, false)]);
        assert_eq!((report.found, report.repaired, left), (2, 1, Vec::from([3])));
    }

    #[test]
    fn a_note_is_reported_once_and_never_counted() {
        let (events, report, _) = check(&[0, 2, 4], RepairMode::All);
        assert_eq!(events, [(0, false), (2, true), (4, true)]);
        assert_eq!((report.found, report.repaired), (2, 2));
    }

    #[test]
    fn a_note_that_is_repaired_is_reported_as_repaired() {
        for (numbers, events) in
            [(&[100][..], &[(100, true)][..]), (&[2, 4, 100], &[(2, true), (4, true), (100, true)])]
        {
            let (found, report, left) = check(numbers, RepairMode::Safe);
            assert_eq!((&found[..], left), (events, Vec::new()));
            assert_eq!((report.found, report.repaired), (numbers.len() as u64 - 1, numbers.len() as u64 - 1));
        }
        assert_eq!(check(&[100], RepairMode::Nothing).0, [(100, false)]);
    }

    #[test]
    fn a_note_whose_repair_has_no_effect_is_reported_once() {
        let (mut left, mut events) = (Vec::from([4, 6, 8]), Vec::new());
        let look = |_: &mut dyn FnMut(CheckEvent<Wrong>)| {
            let numbers = left.pop().into_iter().chain([100]);
            let found =
                numbers.map(|number| FoundIssue { issue: Some(Wrong(number)), edits: Vec::from([number]) });
            Ok(CheckRound { view: Some(()), found: found.collect(), report: CheckReport::default() })
        };
        let mut emit = |event| match event {
            CheckEvent::Found(Wrong(number), repaired) => events.push((number, repaired)),
            CheckEvent::Progress(_) => {}
        };
        check_in_rounds(RepairMode::Safe, &mut emit, look, |_, _| Ok(())).unwrap();
        assert_eq!(events, [(8, true), (100, true), (6, true), (4, true)]);
    }

    #[test]
    fn a_repair_that_changes_nothing_ends_the_check() {
        let (mut rounds, mut events) = (0, Vec::new());
        let look = |_: &mut dyn FnMut(CheckEvent<Wrong>)| {
            rounds += 1;
            let found = Vec::from([FoundIssue { issue: Some(Wrong(3)), edits: Vec::from([3]) }]);
            Ok(CheckRound { view: Some(()), found, report: CheckReport::default() })
        };
        let mut emit = |event| events.push(event);
        let report = check_in_rounds(RepairMode::All, &mut emit, look, |_, _| Ok(())).unwrap();
        assert_eq!((rounds, report.found, report.repaired), (2, 2, 1));
    }

    #[test]
    fn only_inconsistencies_are_issues() {
        let found = issues_of(|options, emit| {
            assert_eq!(options.repair_mode, RepairMode::Nothing);
            [0, 3].map(Wrong).into_iter().for_each(|issue| emit(CheckEvent::Found(issue, false)));
            Ok(CheckReport::default())
        });
        assert_eq!(found.unwrap(), [Wrong(3)]);
    }
}
