//! Recordings of plans that ran on a mount: the log of a disk becomes a [`Recording`].
//!
//! The library runs the same plan for the expected results and trees. The marks of the log must be exactly those that the
//! guest writes for these results.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{History, Point};
use crate::plan::Plan;
use crate::record::Event;
use crate::write_log::UNMOUNTED;

use super::volume::{PlanEnd, Recording, Subject};

impl Subject<'_> {
    /// Returns the recording of `plan` on a volume that was mounted: `events` of its disk, and the error numbers of
    /// failed operations. Before operation `n`, the clock was set to that of [`Run`](crate::model::Run), and mark
    /// `2n + 1` was written. After a success, mark `2n + 2` was written. After unmounting, [`UNMOUNTED`] was written: all
    /// changes must be durable from then on.
    ///
    /// Fails with a description if a result differs from that of the library, or if a mark is missing or unexpected. No
    /// difference is permitted. Linux rejects some calls before a driver receives them, but no plan of the catalogue
    /// contains such a call.
    pub fn recorded_by_host(
        &self,
        base: &Arc<[u8]>,
        plan: &Plan,
        events: Vec<Event>,
        errors: &BTreeMap<usize, i32>,
    ) -> Result<Recording, String> {
        let mut recording = self.record(base, plan, PlanEnd::Dropped)?;
        let history = &mut recording.history;
        compare(history, errors)?;
        let marks = expected_marks(history);
        history.points.push(unmounted(history));
        let events = with_points(events, &marks)?;
        Ok(Recording { events, unwatched: true, by_another: true, whole_seconds: true, ..recording })
    }
}

/// Fails if the error numbers are not those of the history.
fn compare(history: &History, errors: &BTreeMap<usize, i32>) -> Result<(), String> {
    if let Some((number, errno)) = errors.range(history.ops.len()..).next() {
        return Err(format!(
            "operation {number} failed with error {errno}, but the plan does not contain it"
        ));
    }
    for (number, (op, answer)) in history.ops.iter().zip(&history.answers).enumerate() {
        let expected = answer.err().map(|error| error.errno().0);
        let found = errors.get(&number).copied();
        if expected != found {
            return Err(format!(
                "operation {number}, {op:?}: expected error number {expected:?}, found {found:?}"
            ));
        }
    }
    Ok(())
}

/// Returns the marks that the guest writes, in their order, with the index of the point that each mark reaches.
fn expected_marks(history: &History) -> Vec<(usize, usize)> {
    let points = &history.points;
    let mut marks = vec![(0, 0)];
    for (number, answer) in history.answers.iter().enumerate() {
        let is_of_it = |point: &Point| point.begun == number + 1;
        let begun = points.iter().position(is_of_it).map(|point| (2 * number + 1, point));
        let ended = points.iter().rposition(is_of_it).map(|point| (2 * number + 2, point));
        marks.extend(begun);
        marks.extend(ended.filter(|_| answer.is_ok()));
    }
    marks.push((UNMOUNTED as usize, points.len()));
    marks
}

/// Returns the point after unmounting: the last tree is durable, with all data.
fn unmounted(history: &History) -> Point {
    let last = history.trees.len() - 1;
    let synced = history.trees[last].objects.values().map(|object| (object.id, last)).collect();
    Point { begun: history.ops.len(), durable: last, synced }
}

/// Replaces each mark by its point. Fails if the marks of `events` are not exactly `marks`.
fn with_points(events: Vec<Event>, marks: &[(usize, usize)]) -> Result<Vec<Event>, String> {
    let mut marks = marks.iter();
    let with_point = |event| match event {
        Event::Mark(found) => match marks.next() {
            Some((mark, point)) if *mark == found => Ok(Event::Mark(*point)),
            Some((mark, _)) => Err(format!("the log has mark {found} instead of {mark}")),
            None => Err(format!("the log has mark {found} after the last one")),
        },
        event => Ok(event),
    };
    let events = events.into_iter().map(with_point).collect::<Result<_, String>>()?;
    match marks.next() {
        None => Ok(events),
        Some((mark, _)) => Err(format!("the log does not have mark {mark}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::allowed::{self, Rules};
    use super::*;
    use crate::model::{Run, StepClock};
    use crate::plan::Op;
    use obento_base::FileKind::Regular;
    use obento_driver::DataMode;
    use obento_tmpfs::{Options, Tmpfs};

    /// The history of a creation, a sync, a failed operation and a write that is not synced.
    fn history() -> History {
        let clock = Arc::new(StepClock::default());
        let mut run = Run::new(Arc::new(Tmpfs::new(Options::new(clock.clone()))), clock).unwrap();
        let ops = [
            Op::Create("f".into(), Regular, 0o644),
            Op::Sync,
            Op::Unlink("missing".into()),
            Op::Write("f".into(), 0, 3000),
        ];
        run.all(&Plan::new("writes", ops), &mut |_| ()).unwrap();
        run.cut()
    }

    fn events(marks: &[usize]) -> Vec<Event> {
        marks.iter().copied().map(Event::Mark).collect()
    }

    const MARKS: [usize; 9] = [0, 1, 2, 3, 4, 5, 7, 8, UNMOUNTED as usize];

    #[test]
    fn the_marks_of_all_operations_become_points_and_a_failed_operation_has_one_mark() {
        let found = with_points(events(&MARKS), &expected_marks(&history())).unwrap();
        assert_eq!(found, events(&[0, 1, 1, 2, 3, 4, 5, 5, 6]));
    }

    #[test]
    fn a_log_without_one_of_the_marks_is_rejected() {
        let expected = expected_marks(&history());
        for (at, missing) in MARKS.iter().enumerate() {
            let mut marks = MARKS.to_vec();
            marks.remove(at);
            assert!(with_points(events(&marks), &expected).is_err(), "{missing}");
        }
        assert!(with_points(events(&[&MARKS[..], &[9]].concat()), &expected).is_err());
        assert!(with_points(Vec::new(), &expected).is_err());
    }

    #[test]
    fn a_tree_before_the_last_is_rejected_after_unmounting() {
        let history = history();
        let rules =
            Rules { data: DataMode::Writeback, gathers: true, cuts_at_old_end: false, by_another: true };
        let [before, last] = &history.trees[3..] else { panic!("five trees") };
        let unsynced = history.points.last().unwrap();
        allowed::check(&history, unsynced, rules, before).unwrap();
        let point = unmounted(&history);
        allowed::check(&history, &point, rules, last).unwrap();
        allowed::check(&history, &point, rules, before).unwrap_err();
    }

    #[test]
    fn a_failure_with_another_error_number_is_rejected() {
        let history = history();
        let compared = |errors: &[(usize, i32)]| compare(&history, &errors.iter().copied().collect());
        compared(&[(2, 2)]).unwrap();
        for wrong in [&[][..], &[(2, 13)], &[(2, 0)], &[(2, 2), (3, 28)], &[(2, 2), (4, 28)]] {
            compared(wrong).unwrap_err();
        }
    }
}
