//! Reporting the events of a check.

use obento_driver::{CheckProgress, CheckReport, Severity};

use super::issue::Issue;

/// The events of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An issue, and whether it was repaired.
    Found(Issue, bool),
    /// The progress.
    Progress(CheckProgress),
}

/// The receiver of events.
pub(super) struct Told<'a> {
    pub(super) report: &'a mut CheckReport,
    pub(super) tell: &'a mut dyn FnMut(Event),
}

impl Told<'_> {
    pub(super) fn found(&mut self, issue: Issue) {
        if issue.severity() > Severity::Note {
            self.report.found = self.report.found.saturating_add(1);
        }
        (self.tell)(Event::Found(issue, false));
    }

    pub(super) fn progress(&mut self, pass: &'static str, done: u64, total: u64) {
        (self.tell)(Event::Progress(CheckProgress { pass, done, total }));
    }
}
