//! A pass over a volume: what it reports, and the edits that it stores for a repair.

use alloc::vec::Vec;

use obento_driver::{CheckEvent, CheckProgress, CheckReport, FoundIssue, RepairMode, Severity};

use super::edit::Edit;
use super::issue::Issue;

/// Maximum number of issues that are repaired at a time.
const BATCH: usize = 4096;

/// The events of a check.
pub type Event = CheckEvent<Issue>;

type Item = FoundIssue<Issue, Edit>;

/// One pass over the volume.
pub(super) struct Pass<'t> {
    pub emit: &'t mut dyn FnMut(Event),
    pub repair_mode: RepairMode,
    pub found: Vec<Item>,
    /// Whether the rest is left to the next pass.
    waits: bool,
    pub report: CheckReport,
}

impl<'t> Pass<'t> {
    /// Creates a pass that found nothing yet.
    pub fn new(emit: &'t mut dyn FnMut(Event), repair_mode: RepairMode) -> Self {
        Self { emit, repair_mode, found: Vec::new(), waits: false, report: CheckReport::default() }
    }

    /// Reports an issue, or stores it for a repair.
    pub fn found(&mut self, issue: Issue, edits: Vec<Edit>) {
        if self.repair_mode == RepairMode::Nothing {
            let is_note = issue.severity() == Severity::Note;
            self.report.found = self.report.found.saturating_add(u64::from(!is_note));
            (self.emit)(Event::Found(issue, false));
        } else if !self.is_full() {
            self.found.push(Item { issue: Some(issue), edits });
        }
    }

    /// Adds further edits.
    pub fn also(&mut self, edits: Vec<Edit>) {
        if self.repair_mode != RepairMode::Nothing && !self.is_full() {
            self.found.push(Item { issue: None, edits });
        }
    }

    /// Stores an issue, even past the limit.
    pub fn must(&mut self, issue: Issue, edits: Vec<Edit>) {
        let waits = core::mem::take(&mut self.waits);
        self.found(issue, edits);
        self.waits = waits;
    }

    /// Leaves everything else to the next pass.
    pub fn wait(&mut self) {
        self.waits = true;
    }

    /// Returns whether so many issues are stored that the rest is left to the next pass.
    pub fn is_full(&self) -> bool {
        self.waits || self.found.len() >= BATCH
    }

    pub fn progress(&mut self, pass: &'static str, done: u64, total: u64) {
        (self.emit)(Event::Progress(CheckProgress { pass, done, total }));
    }
}
