//! The rounds of a repair: what was found and tried in earlier rounds, and the number of rounds.
//!
//! Each stage has its own number of rounds. A repair ends at a stage whose rounds are used up: the later stages rely on
//! it, for example on right bitmaps. A round with many issues that no round has tried before does not count, up to a
//! limit.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_u64;
use obento_block::BlockDevice;
use obento_driver::{CheckOptions, CheckReport, RepairMode, Severity};

use super::super::events::Event;
use super::super::issue::{Issue, Stage};
use super::super::passes;
use super::super::state::CheckState;
use super::edits::{Copy, Edits};
use crate::unit::VolBlock;

/// Maximum number of rounds of a stage: more than any damage needs whose repairs succeed.
const MAX_ROUNDS: u32 = 100;
/// Maximum number of rounds that correct counts and bitmaps: a round of another stage that allocates or frees blocks needs
/// one, and allocates only where the bitmaps are right.
const MAX_COUNT_ROUNDS: u32 = 10 * MAX_ROUNDS;
/// Number of new issues with which a round does not count.
const PROGRESS: usize = 200;
/// Maximum number of rounds that do not count.
const MAX_FREE_ROUNDS: u32 = 400;
/// Maximum number of metadata blocks whose contents are kept for files that claim them.
const MAX_ORIGINALS: usize = 256;
/// Maximum number of repairs of an issue that is found again.
const MAX_TRIES: u32 = 3;

/// The state that is kept from round to round.
#[derive(Default)]
pub(super) struct Rounds {
    /// Issues that cannot be repaired.
    stuck: BTreeSet<Issue>,
    tries: BTreeMap<Issue, u32>,
    /// Issues in the order in which they were found.
    pub(super) reported: Vec<Issue>,
    known: BTreeSet<Issue>,
    has_looked: bool,
    /// Number of rounds of each stage.
    spent: BTreeMap<Stage, u32>,
    /// Number of rounds that were not counted for a stage, since they repaired much.
    free_rounds: u32,
    /// Blocks of the volume that files claim too, as they were before any repair: bitmaps are written long before the
    /// files get copies.
    pub(super) originals: Arc<BTreeMap<u64, Vec<u8>>>,
}

impl Rounds {
    /// Checks the volume, and records new issues. Passes progress on. Also returns the state of the check.
    pub(super) fn look(
        &mut self,
        on: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        emit: &mut dyn FnMut(Event),
    ) -> Result<(CheckReport, Vec<Issue>, Arc<CheckState>)> {
        let mut issues = Vec::new();
        let (report, state) = passes::survey(on, options, &mut |event| match event {
            Event::Found(issue, _) => issues.push(issue),
            Event::Progress(_) => emit(event),
        })?;
        let is_first = !core::mem::replace(&mut self.has_looked, true);
        for issue in &issues {
            let is_new = self.known.insert(issue.clone());
            // The first round reports what a check without repairs reports. Notes of an unfinished repair are not
            // reported.
            if is_first || is_new && issue.severity() > Severity::Note {
                self.reported.push(issue.clone());
            }
        }
        issues.retain(|issue| issue.severity() > Severity::Note);
        Ok((report, issues, state))
    }

    /// Keeps the contents of metadata blocks that files claim.
    pub(super) fn keep_originals(
        &mut self,
        copy: &Arc<Copy>,
        options: &CheckOptions,
        issues: &[Issue],
    ) -> Result<()> {
        let claimed = issues.iter().filter_map(|issue| match *issue {
            Issue::BlockOfVolume { block, len, .. } => Some(block..block.saturating_add(len)),
            _ => None,
        });
        let mut missing = claimed.flatten().filter(|block| !self.originals.contains_key(block)).peekable();
        if missing.peek().is_none() || self.originals.len() >= MAX_ORIGINALS {
            return Ok(());
        }
        let edits = Edits::open(copy, options)?;
        let mut originals = BTreeMap::clone(&self.originals);
        for block in missing.take(MAX_ORIGINALS.saturating_sub(self.originals.len())) {
            originals.insert(block, edits.view.read(VolBlock(block), 1)?);
        }
        self.originals = Arc::new(originals);
        Ok(())
    }

    /// Records whether an issue was repaired. An issue that is found again and again cannot be repaired.
    pub(super) fn tried(&mut self, issue: &Issue, is_repaired: bool) {
        let tries = self.tries.entry(issue.clone()).or_insert(0);
        *tries = tries.saturating_add(1);
        if !is_repaired || *tries >= MAX_TRIES {
            self.stuck.insert(issue.clone());
        }
    }

    /// Returns the number of issues that another repair may repair.
    pub(super) fn untried(&self, left: &[Issue]) -> u64 {
        to_u64(left.iter().filter(|issue| !self.stuck.contains(issue)).count())
    }

    /// Returns the issues of the first stage that has any which may be repaired; none if its rounds are used up. If only safe
    /// repairs are permitted and there are other issues, too, nothing is repaired, since the safe issues may be their
    /// consequences.
    pub(super) fn todo(&mut self, mut issues: Vec<Issue>, repair_mode: RepairMode) -> Vec<Issue> {
        let has_damage = issues.iter().any(|issue| issue.severity() == Severity::Damage);
        if repair_mode == RepairMode::Safe && has_damage {
            return Vec::new();
        }
        let max = |stage: Stage| if stage == Stage::Counts { MAX_COUNT_ROUNDS } else { MAX_ROUNDS };
        let is_used_up = |stage: Stage| self.spent.get(&stage).is_some_and(|rounds| *rounds >= max(stage));
        issues.retain(|issue| !self.stuck.contains(issue));
        let Some(first) = issues.iter().map(Issue::stage).min() else { return issues };
        if is_used_up(first) {
            return Vec::new();
        }
        issues.retain(|issue| issue.stage() == first);
        let fresh = issues.iter().filter(|issue| !self.tries.contains_key(issue)).count();
        if fresh < PROGRESS || self.free_rounds >= MAX_FREE_ROUNDS {
            let spent = self.spent.entry(first).or_insert(0);
            *spent = spent.saturating_add(1);
        } else {
            self.free_rounds = self.free_rounds.saturating_add(1);
        }
        issues
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn early(number: u32) -> Issue {
        Issue::SuperBlockChecksum { found: number, expected: 0 }
    }

    fn count(number: u32) -> Issue {
        Issue::BlockBitmapPadding { group: number }
    }

    /// Tries each of `issues`, and returns whether it gets a round.
    fn rounds(rounds: &mut Rounds, issues: Vec<Issue>) -> bool {
        let chosen = rounds.todo(issues, RepairMode::All);
        chosen.iter().for_each(|issue| rounds.tried(issue, true));
        !chosen.is_empty()
    }

    #[test]
    fn a_repair_ends_at_the_first_stage_whose_rounds_are_used_up() {
        let mut state = Rounds::default();
        assert!(
            (0..MAX_ROUNDS)
                .all(|number| rounds(&mut state, vec![early(number), Issue::DirectoryEmpty { dir: 9 }]))
        );
        let left = [early(MAX_ROUNDS), Issue::DirectoryEmpty { dir: 9 }];
        assert!(!rounds(&mut state, left.to_vec()));
        assert_eq!(state.untried(&left), 2);
        // The later stage has its own rounds.
        assert!(rounds(&mut state, left[1..].to_vec()));
    }

    #[test]
    fn a_round_with_many_new_issues_does_not_count_up_to_a_limit() {
        let mut state = Rounds::default();
        let most = u32::try_from(PROGRESS).unwrap();
        let mut round =
            |number: u32| rounds(&mut state, (0..most).map(|n| early(number * most + n)).collect());
        assert!((0..MAX_FREE_ROUNDS + MAX_ROUNDS).all(&mut round));
        assert!(!round(MAX_FREE_ROUNDS + MAX_ROUNDS));
    }

    #[test]
    fn counts_have_more_rounds_than_the_stages_that_allocate() {
        let mut state = Rounds::default();
        assert!((0..MAX_COUNT_ROUNDS).all(|number| rounds(&mut state, vec![count(number)])));
        assert!(!rounds(&mut state, vec![count(MAX_COUNT_ROUNDS)]));
    }

    #[test]
    fn an_issue_that_is_found_again_and_again_is_not_repaired_for_ever() {
        let mut state = Rounds::default();
        assert!((0..MAX_TRIES).all(|_| rounds(&mut state, vec![early(1)])));
        assert!(!rounds(&mut state, vec![early(1)]));
        assert_eq!(state.untried(&[early(1)]), 0);
    }
}
