//! Reporting the events of a check.

use obento_driver::{CheckEvent, CheckProgress, CheckReport, Severity};

use super::issue::Issue;

/// The events of a check.
pub type Event = CheckEvent<Issue>;

/// The receiver of events.
pub(super) struct EventSink<'a> {
    pub(super) report: &'a mut CheckReport,
    pub(super) emit: &'a mut dyn FnMut(Event),
}

impl EventSink<'_> {
    pub(super) fn found(&mut self, issue: Issue) {
        if issue.severity() > Severity::Note {
            self.report.found = self.report.found.saturating_add(1);
        }
        (self.emit)(Event::Found(issue, false));
    }

    pub(super) fn progress(&mut self, pass: &'static str, done: u64, total: u64) {
        (self.emit)(Event::Progress(CheckProgress { pass, done, total }));
    }
}
