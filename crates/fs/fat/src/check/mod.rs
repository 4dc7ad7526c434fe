//! Checking a volume as `fsck.fat` does, and repairing it.
//!
//! 1. `boot`: the boot sector that fits the volume (`geometry`), its backup, FSInfo, the copies of the FAT.
//! 2. `tree`: every directory from the root on, its entries (`long`, `names`), and the chains that they refer to
//!    (`chain`).
//! 3. `copies`: selects the FAT that contains the chains, and finds the entries that the other FATs lack.
//! 4. `lost`: clusters in use without an owner, and the number of free clusters. `label`: the labels and the marks.
//!
//! An issue contains the edits that repair it (`repair`), which are applied at the end of a pass. Then the volume is
//! checked again, since one damage hides another, until no repairable issue is left.
//! Invariant: each cluster is followed once per pass, so that a pass ends. A pass that only checks stores four bits
//! per cluster in use and the names of one directory; one that repairs also stores at most `BATCH` issues.
//! Invariant: time and memory follow the parts of the FATs that are not holes of the image, whatever the number of
//! clusters that the boot sector declares.
//! Source: fatgen103; where it defines no errors: dosfstools 4.2, `src/check.c`, `boot.c`, `fat.c`, `lfn.c`.

mod boot;
mod chain;
mod copies;
mod geometry;
mod issue;
mod label;
mod long;
mod lost;
mod names;
mod repair;
mod tree;
mod view;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{DeviceError, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Check, CheckEvent, CheckObserver, CheckOptions, CheckProgress, CheckReport, CheckRound, Finding,
    FoundIssue, RepairMode, Severity, check_in_rounds, issues_of,
};

use self::repair::Edit;
use self::view::View;
use crate::open::FatDriver;

pub use issue::Issue;

/// Maximum number of issues that are repaired at a time.
const BATCH: usize = 4096;

impl Check for FatDriver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport> {
        check_volume(device, options, &mut |event| event.pass_to(observer))
    }

    fn finds(&self, device: &Arc<dyn BlockDevice>, _: &CheckOptions) -> bool {
        geometry::finds(device)
    }
}

/// The events of a check.
pub type Event = CheckEvent<Issue>;

/// Checks the volume on `device` as [`Check::check`] does, with typed issues.
pub fn check_volume(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    emit: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    if options.repair_mode != RepairMode::Nothing && device.is_read_only() {
        return Err(DeviceError::ReadOnly.into());
    }
    let look = |emit: &mut dyn FnMut(Event)| Pass::at(&device, options.repair_mode, emit);
    check_in_rounds(options.repair_mode, emit, look, |view, edits| repair::apply(view, edits, options))
}

/// Returns the issues of the volume on `device` without notes.
pub fn issues(device: Arc<dyn BlockDevice>) -> Result<Vec<Issue>> {
    issues_of(|options, emit| check_volume(device, options, emit))
}

type Item = FoundIssue<Issue, Edit>;

/// One pass over the volume.
struct Pass<'t> {
    emit: &'t mut dyn FnMut(Event),
    repair_mode: RepairMode,
    found: Vec<Item>,
    /// Whether the rest is left to the next pass.
    waits: bool,
    report: CheckReport,
}

impl Pass<'_> {
    /// Reports an issue, or stores it for a repair.
    fn found(&mut self, issue: Issue, edits: Vec<Edit>) {
        if self.repair_mode == RepairMode::Nothing {
            let is_note = issue.severity() == Severity::Note;
            self.report.found = self.report.found.saturating_add(u64::from(!is_note));
            (self.emit)(Event::Found(issue, false));
        } else if !self.is_full() {
            self.found.push(Item { issue: Some(issue), edits });
        }
    }

    /// Adds further edits.
    fn also(&mut self, edits: Vec<Edit>) {
        if self.repair_mode != RepairMode::Nothing && !self.is_full() {
            self.found.push(Item { issue: None, edits });
        }
    }

    /// Stores an issue, even past the limit.
    fn must(&mut self, issue: Issue, edits: Vec<Edit>) {
        let waits = core::mem::take(&mut self.waits);
        self.found(issue, edits);
        self.waits = waits;
    }

    /// Leaves everything else to the next pass.
    fn wait(&mut self) {
        self.waits = true;
    }

    /// Returns whether so many issues are stored that the rest is left to the next pass.
    fn is_full(&self) -> bool {
        self.waits || self.found.len() >= BATCH
    }

    fn progress(&mut self, pass: &'static str, done: u64, total: u64) {
        (self.emit)(Event::Progress(CheckProgress { pass, done, total }));
    }

    /// Runs one pass.
    fn at(
        device: &Arc<dyn BlockDevice>,
        repair_mode: RepairMode,
        emit: &mut dyn FnMut(Event),
    ) -> Result<CheckRound<View, Issue, Edit>> {
        let report = CheckReport::default();
        let mut pass = Pass { emit, repair_mode, found: Vec::new(), waits: false, report };
        let view = pass.look(device)?;
        Ok(CheckRound { view, found: pass.found, report: pass.report })
    }

    /// Checks the volume. Returns `None` if there is no volume that could be changed.
    fn look(&mut self, device: &Arc<dyn BlockDevice>) -> Result<Option<View>> {
        let Some(view) = boot::open(device, self)? else { return Ok(None) };
        self.report.checked = true;
        self.report.block_size = view.sb.cluster_size;
        self.report.blocks.1 = view.sb.clusters.into();
        self.report.label = view.sb.probe(None).label;
        let state = tree::check(&view, self)?;
        label::check(&view, self)?;
        copies::check(&view, self)?;
        lost::check(&view, state, self)?;
        self.report.inodes.1 = self.report.inodes.0;
        Ok(Some(view))
    }
}

impl From<&Issue> for Finding {
    fn from(issue: &Issue) -> Self {
        issue.finding(false)
    }
}
