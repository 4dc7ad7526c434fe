//! The least that fails: operations of a plan are left out as long as it does.
//!
//! What a later operation writes goes by its number ([`bytes`](super::bytes)), so that a shorter plan writes other bytes, in the same
//! places. Source: "Simplifying and Isolating Failure-Inducing Input" (Zeller, Hildebrandt 2002), the part that takes away.

use super::Plan;

/// `plan` without whatever it fails without, and why it still does. `fails` says why a plan fails; `plan` must.
pub fn shrink(plan: &Plan, fails: &dyn Fn(&Plan) -> Option<String>) -> (Plan, String) {
    let mut least = Plan { name: format!("{}, shrunk", plan.name), setup: 0, ..plan.clone() };
    let mut reason = fails(&least).expect("the plan fails");
    let mut len = least.ops.len();
    while len > 0 {
        let (mut at, before) = (0, least.ops.len());
        while at < least.ops.len() {
            let end = (at + len).min(least.ops.len());
            let mut shorter = least.clone();
            shorter.ops.drain(at..end);
            match fails(&shorter) {
                Some(again) => (least, reason) = (shorter, again),
                None => at = end,
            }
        }
        // What was needed by something that is gone now may go, too.
        len = if len == 1 && least.ops.len() < before { 1 } else { len / 2 };
    }
    (least, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Limits, Op, random};

    #[test]
    fn only_what_a_failure_needs_stays() {
        let mut plan = random(3, &Limits::SMALL);
        plan.ops.insert(7, Op::Hold("a".into()));
        plan.ops.insert(31, Op::Fsync("b".into()));
        let place = |plan: &Plan, op: &Op| plan.ops.iter().position(|other| other == op);
        let fails = |plan: &Plan| {
            let (first, second) = (place(plan, &Op::Hold("a".into()))?, place(plan, &Op::Fsync("b".into()))?);
            (first < second).then(|| "it fails".to_owned())
        };
        let (least, reason) = shrink(&plan, &fails);
        assert_eq!(least.ops, [Op::Hold("a".into()), Op::Fsync("b".into())]);
        assert_eq!(reason, "it fails");
    }
}
