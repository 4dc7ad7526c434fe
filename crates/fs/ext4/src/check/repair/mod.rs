//! Mending what a check finds.
//!
//! A round looks ([`passes::look`]), and each issue is mended by what its kind asks for, in a copy of the volume in
//! memory ([`edits`]); the next round looks at the copy. So a mend needs to know its own issue only, and what it brings
//! about is found by the next round. Rounds go on until one finds nothing that can be mended. The copy goes to the device
//! at the end, and before where it is large ([`commit`]): as after each mend less is wrong than before, a cut leaves what a
//! second run mends. Copies of what two claim go to free blocks of the device at once.
//! A round mends the issues of the first [`Stage`] that has any, since what comes after stands on it.
//! Invariant: no mend makes a readable file unreadable.
//! Source: e2fsprogs `e2fsck/problem.c` (what is mended without asking), `pass1.c` to `pass5.c`.

mod bitmaps;
mod cloning;
mod commit;
mod convert;
mod copies;
mod edits;
mod features;
mod fields;
mod found;
mod holes;
mod index;
mod journal;
mod names;
mod orphans;
mod own_files;
mod places;
mod replay;
mod resize;
mod room;
mod salvage;
mod tree;
mod twice;
mod values;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{Error, Result};
use obento_block::{BlockDevice, Overlay};
use obento_driver::{CheckOptions, CheckReport, Mending, Severity};

use super::issue::{Issue, Stage};
use super::told::Event;
use super::{passes, view};
use crate::feature::Incompat;
use crate::format::JOURNAL_INO as JOURNAL;
use commit::Target;
use edits::{Copy, Edits};

/// More rounds than any damage needs whose mends help.
const MAX_ROUNDS: u32 = 100;
/// How often one issue is mended that is found again.
const MAX_TRIES: u32 = 3;
/// `EXT4_VALID_FS`, `EXT4_ERROR_FS` of `s_state`.
const VALID_FS: u16 = 1;
const ERROR_FS: u16 = 2;

/// Checks and mends. Fails with `ReadOnly`, or in the same cases as those of a check.
pub(super) fn mend(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    tell: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    if device.is_read_only() {
        return Err(Error::ReadOnly);
    }
    if is_cut_short(device, options) {
        return passes::look(Arc::clone(device), options, tell);
    }
    let replayed = replay::onto(device, options)?;
    let copy = Arc::new(Overlay::new(Arc::clone(device)));
    let mut target = Target::new(device, options);
    let looking = CheckOptions { mending: Mending::Nothing, super_block: None, ..options.clone() };
    let mut rounds = Rounds {
        stuck: BTreeSet::new(),
        tries: BTreeMap::new(),
        told: Vec::new(),
        known: BTreeSet::new(),
        has_looked: false,
    };
    rounds.told.extend(replayed);
    let mut first = CheckOptions { mending: Mending::Nothing, ..options.clone() };
    for _ in 0..MAX_ROUNDS {
        let on: Arc<dyn BlockDevice> = Arc::<Copy>::clone(&copy);
        let issues = rounds.look(on, &first, tell)?.1;
        if issues.iter().any(shares_journal) {
            target.spare_journal();
        }
        let todo = rounds.todo(issues, options.mending);
        if todo.is_empty() {
            break;
        }
        let mut edits = Edits::open(&copy, &first)?;
        let is_cloned = todo.first().is_some_and(|issue| issue.stage() == Stage::Twice) && {
            // Copies go to the device at once, to what is free there.
            if copy.changed_len() > 0 {
                edits.super_block(commit::unfinished)?;
                target.commit(&copy)?;
            }
            let is_cloned = edits.clone_twice(&todo, &options.clock)?;
            device.flush()?;
            is_cloned
        };
        for issue in &todo {
            let is_mended = is_cloned || possible(edits.mend(issue, options))?;
            rounds.tried(issue, is_mended);
            if target.is_due(&copy) {
                edits.super_block(commit::unfinished)?;
                target.commit(&copy)?;
            }
        }
        first = looking.clone();
    }
    let on: Arc<dyn BlockDevice> = Arc::<Copy>::clone(&copy);
    let (mut report, left) = rounds.look(on, &looking, &mut |_| {})?;
    let left: BTreeSet<String> = left.iter().map(ToString::to_string).collect();
    if target.has_begun() || copy.changed_len() > 0 {
        let mut edits = Edits::open(&copy, &looking)?;
        edits.mark(left.is_empty())?;
        target.commit(&copy)?;
    }
    (report.found, report.mended) = (0, 0);
    for issue in rounds.told {
        let mended = !left.contains(&issue.to_string()) && issue.severity() > Severity::Note;
        if issue.severity() > Severity::Note {
            report.found = report.found.saturating_add(1);
            report.mended = report.mended.saturating_add(u64::from(mended));
        }
        tell(Event::Found(issue, mended));
    }
    Ok(report)
}

/// Returns whether the end of the volume is not there. Nothing of it is mended, as by e2fsck: what lies behind a
/// wrong end of a partition, or is still to be copied, would be given up.
fn is_cut_short(device: &Arc<dyn BlockDevice>, options: &CheckOptions) -> bool {
    view::find(&**device, options).is_ok_and(|found| found.super_block.volume_len() > device.len())
}

/// What is known from round to round.
struct Rounds {
    /// Issues that nothing can mend.
    stuck: BTreeSet<String>,
    tries: BTreeMap<String, u32>,
    /// Issues in the order in which they came up.
    told: Vec<Issue>,
    known: BTreeSet<String>,
    has_looked: bool,
}

impl Rounds {
    /// Looks, and notes what is new; progress is told on.
    fn look(
        &mut self,
        on: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        tell: &mut dyn FnMut(Event),
    ) -> Result<(CheckReport, Vec<Issue>)> {
        let mut issues = Vec::new();
        let report = passes::look(on, options, &mut |event| match event {
            Event::Found(issue, _) => issues.push(issue),
            Event::Progress(_) => tell(event),
        })?;
        let is_first = !core::mem::replace(&mut self.has_looked, true);
        for issue in &issues {
            // What a mend that is not at its end notes is not news.
            if (is_first || issue.severity() > Severity::Note) && self.known.insert(issue.to_string()) {
                self.told.push(issue.clone());
            }
        }
        issues.retain(|issue| issue.severity() > Severity::Note);
        Ok((report, issues))
    }

    /// Notes whether something was done about an issue; one that is found again and again cannot be mended.
    fn tried(&mut self, issue: &Issue, is_mended: bool) {
        let words = issue.to_string();
        let tries = self.tries.entry(words.clone()).or_insert(0);
        *tries = tries.saturating_add(1);
        if !is_mended || *tries >= MAX_TRIES {
            self.stuck.insert(words);
        }
    }

    /// The issues of the first stage that has any which may be mended. Where only what is safe may, and something else
    /// is wrong too, nothing is: what is safe may come from what is not.
    fn todo(&self, mut issues: Vec<Issue>, mending: Mending) -> Vec<Issue> {
        let has_damage = issues.iter().any(|issue| issue.severity() == Severity::Damage);
        if mending == Mending::Safe && has_damage {
            return Vec::new();
        }
        issues.retain(|issue| !self.stuck.contains(&issue.to_string()));
        let Some(first) = issues.iter().map(Issue::stage).min() else { return issues };
        issues.retain(|issue| issue.stage() == first);
        issues
    }
}

/// Returns whether somebody else claims what the journal has.
fn shares_journal(issue: &Issue) -> bool {
    matches!(*issue, Issue::BlockTwice { ino: JOURNAL, .. } | Issue::BlockOfVolume { ino: JOURNAL, .. })
}

/// What cannot be mended for the damage around it is left.
fn possible(mended: Result<bool>) -> Result<bool> {
    match mended {
        Err(Error::Corrupt(_) | Error::Refused(_)) => Ok(false),
        mended => mended,
    }
}

impl Edits {
    /// Mends an issue; false if nothing is known that would.
    fn mend(&mut self, issue: &Issue, options: &CheckOptions) -> Result<bool> {
        let clock = &options.clock;
        Ok(self.mend_feature(issue)?
            || self.mend_volume(issue)?
            || self.mend_journal(issue, options)?
            || self.mend_resize(issue)?
            || self.mend_place(issue)?
            || self.mend_tree(issue)?
            || self.mend_inode(issue)?
            || self.mend_value(issue)?
            || self.mend_hole(issue)?
            || self.mend_block_map(issue, clock)?
            || self.mend_index(issue, clock)?
            || self.mend_own_file(issue, clock)?
            || self.mend_names(issue)?
            || self.mend_count(issue)?
            || self.mend_orphan(issue, clock)?
            || self.mend_found(issue, clock)?)
    }

    /// Says that the volume was checked, and whether it is as it should be.
    fn mark(&mut self, is_clean: bool) -> Result<()> {
        let now = self.now();
        self.super_block(|raw| {
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits());
            raw.s_lastcheck.set(now);
            raw.s_mnt_count.set(0);
            let others = raw.s_state.get() & !(VALID_FS | ERROR_FS);
            raw.s_state.set(others | if is_clean { VALID_FS } else { ERROR_FS });
        })
    }
}
