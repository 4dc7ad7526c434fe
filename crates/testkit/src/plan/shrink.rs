//! Reduction of a failing plan: operations are removed while the plan still fails.
//!
//! The bytes of a write depend on its number ([`bytes`](super::bytes)), so a shorter plan writes other bytes to the
//! same places. Source: "Simplifying and Isolating Failure-Inducing Input" (Zeller, Hildebrandt 2002), the part that
//! removes.

use super::Plan;

/// Returns `plan` without the operations that it does not need to fail, and the reason of the failure. `fails` returns
/// why a plan fails; `plan` must fail.
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
        // Operations that only a removed operation required may be removed as well.
        len = if len == 1 && least.ops.len() < before { 1 } else { len / 2 };
    }
    (least, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Limits, Op, random};

    #[test]
    fn only_the_operations_that_a_failure_needs_remain() {
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
