//! Repairing the issues that a check finds.
//!
//! A round checks the volume ([`passes::look`]), and each issue is repaired according to its kind, in a copy of the
//! volume in memory ([`edits`]). The next round checks the copy. A repair therefore needs to know only its own issue;
//! the next round finds its consequences. Rounds continue until one finds nothing that can be repaired, or until each
//! stage has used up its rounds ([`rounds`]). The copy is written to the device at the end, or earlier if it is large
//! ([`commit`]): after each repair less is wrong than before, so a second run completes an interrupted one. Copies of
//! blocks with several owners are written to free blocks of the device at once. A round repairs the issues of the first
//! [`Stage`] that has any, since later ones depend on it.
//! Invariant: no repair makes a readable file unreadable.
//! Source: e2fsprogs `e2fsck/problem.c` (what is repaired without asking), `pass1.c` to `pass5.c`.

mod bitmaps;
mod cloning;
mod commit;
mod convert;
mod copies;
mod dispatch;
mod edits;
mod features;
mod fields;
mod found;
mod growth;
mod holes;
mod index;
mod journal;
mod names;
mod orphans;
mod own_files;
mod places;
mod quotas;
mod replay;
mod resize;
mod room;
mod rounds;
mod salvage;
mod shrink;
mod tree;
mod tune;
mod twice;
mod usage;
mod values;
mod volume;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use obento_base::{Error, Result};
use obento_block::{BlockDevice, Overlay};
use obento_driver::{CheckOptions, CheckReport, RepairMode, Severity};

use super::events::Event;
use super::issue::{Issue, Stage};
use super::journal::is_log_missing;
use super::{passes, view};
use crate::feature::Incompat;
use crate::format::JOURNAL_INO as JOURNAL;
use commit::Target;
use edits::{Copy, Edits};
pub(crate) use growth::commit_growth;
pub(crate) use quotas::{QuotaChange, QuotaState, change_quotas};
use rounds::Rounds;
pub(crate) use shrink::{minimum_blocks, planned_blocks, shrink};
pub(crate) use tune::{JournalChange, change_journal, change_settings, recover};

use crate::super_block::{ERROR_FS, SuperBlock, VALID_FS};

/// Checks and repairs. Fails with `ReadOnly`, or in the same cases as a check.
pub(super) fn repair(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    emit: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    if device.is_read_only() {
        return Err(Error::ReadOnly);
    }
    if view::find(&**device, options).is_ok_and(|found| is_incomplete(device, &found.super_block, options)) {
        return passes::look(Arc::clone(device), options, emit);
    }
    // A repair changes the super block that a probe has found.
    let options = &CheckOptions { probe: None, ..options.clone() };
    let replayed = replay::onto(device, options)?;
    let copy = Arc::new(Overlay::new(Arc::clone(device)));
    let mut target = Target::new(device, options);
    let looking = CheckOptions { repair_mode: RepairMode::Nothing, super_block: None, ..options.clone() };
    let mut rounds = Rounds::default();
    rounds.reported.extend(replayed);
    let mut first = CheckOptions { repair_mode: RepairMode::Nothing, ..options.clone() };
    loop {
        let on: Arc<dyn BlockDevice> = Arc::<Copy>::clone(&copy);
        let (_, issues, used) = rounds.look(on, &first, emit)?;
        if issues.iter().any(shares_journal) {
            target.spare_journal();
        }
        rounds.keep_originals(&copy, &first, &issues)?;
        let todo = rounds.todo(issues, options.repair_mode);
        if todo.is_empty() {
            break;
        }
        let is_of = |stage| todo.first().is_some_and(|issue| issue.stage() == stage);
        let mut edits = Edits::open(&copy, &first)?;
        edits.originals = Arc::clone(&rounds.originals);
        edits.used = Some(used).filter(|_| is_of(Stage::Counts));
        let is_cloned = is_of(Stage::Twice) && {
            // Copies are written to the device at once, to blocks that are free there.
            if copy.changed_len() > 0 {
                edits.super_block(commit::unfinished)?;
                target.commit(&copy)?;
            }
            let is_cloned = edits.clone_twice(&todo, &options.clock)?;
            device.flush()?;
            is_cloned
        };
        for issue in &todo {
            let is_repaired = is_cloned || possible(edits.repair(issue, options))?;
            rounds.tried(issue, is_repaired);
            if target.is_due(&copy) {
                edits.super_block(commit::unfinished)?;
                target.commit(&copy)?;
            }
        }
        first = looking.clone();
    }
    let on: Arc<dyn BlockDevice> = Arc::<Copy>::clone(&copy);
    let (mut report, left, _) = rounds.look(on, &looking, &mut |_| {})?;
    let untried = if options.repair_mode == RepairMode::All { rounds.untried(&left) } else { 0 };
    let left: BTreeSet<Issue> = left.into_iter().collect();
    if target.has_begun() || copy.changed_len() > 0 || left.is_empty() && is_marked(&*copy, &looking) {
        let mut edits = Edits::open(&copy, &looking)?;
        edits.mark(left.is_empty())?;
        target.commit(&copy)?;
    }
    (report.found, report.repaired) = (0, 0);
    for issue in rounds.reported {
        let repaired = !left.contains(&issue) && issue.severity() > Severity::Note;
        if issue.severity() > Severity::Note {
            report.found = report.found.saturating_add(1);
            report.repaired = report.repaired.saturating_add(u64::from(repaired));
        }
        emit(Event::Found(issue, repaired));
    }
    if untried > 0 {
        emit(Event::Found(Issue::RepairUnfinished { left: untried }, false));
    }
    Ok(report)
}

/// Returns whether a part of the volume is missing, in which case nothing is repaired, as with e2fsck. If the end is
/// missing, files after a wrong end of a partition, or in a part that is still to be copied, would be lost. If changes
/// are in a journal that was not given, a later replay would overwrite the repaired blocks.
fn is_incomplete(device: &Arc<dyn BlockDevice>, sb: &SuperBlock, options: &CheckOptions) -> bool {
    sb.volume_len() > device.len() || is_log_missing(sb, options)
}

/// Returns whether the super block requests a check: it is marked as having errors, or as not unmounted cleanly.
fn is_marked(device: &dyn BlockDevice, options: &CheckOptions) -> bool {
    let is_marked = |state: u16| state & (VALID_FS | ERROR_FS) != VALID_FS;
    view::find(device, options).is_ok_and(|found| is_marked(found.super_block.raw.s_state.get()))
}

/// Returns whether another file claims blocks of the journal.
fn shares_journal(issue: &Issue) -> bool {
    matches!(*issue, Issue::BlockTwice { ino: JOURNAL, .. } | Issue::BlockOfVolume { ino: JOURNAL, .. })
}

/// Turns an error from damage near an issue into "not repaired".
fn possible(repaired: Result<bool>) -> Result<bool> {
    match repaired {
        Err(Error::Corrupt(_) | Error::Refused(_)) => Ok(false),
        repaired => repaired,
    }
}

impl Edits {
    /// Records in the super block that the volume was checked, and whether it is clean.
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
