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
mod choices;
mod copies;
mod edit;
mod geometry;
mod issue;
mod label;
mod long;
mod lost;
mod names;
mod pass;
mod repair;
mod tree;
mod view;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{DeviceError, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Check, CheckObserver, CheckOptions, CheckReport, CheckRound, Finding, Probe, RepairMode, check_in_rounds,
    issues_of,
};

use self::edit::Edit;
use self::pass::Pass;
use self::view::View;
use crate::open::FatDriver;

pub use issue::Issue;
pub use pass::Event;

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

/// Checks the volume on `device` as [`Check::check`] does, with typed issues.
pub fn check_volume(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    emit: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    if options.repair_mode != RepairMode::Nothing && device.is_read_only() {
        return Err(DeviceError::ReadOnly.into());
    }
    let look = |emit: &mut dyn FnMut(Event)| run_pass(&device, options, emit);
    check_in_rounds(options.repair_mode, emit, look, |view, edits| repair::apply(view, edits, options))
}

/// Returns the issues of the volume on `device` without notes.
pub fn issues(device: Arc<dyn BlockDevice>) -> Result<Vec<Issue>> {
    issues_of(|options, emit| check_volume(device, options, emit))
}

/// Runs one pass.
fn run_pass(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    emit: &mut dyn FnMut(Event),
) -> Result<CheckRound<View, Issue, Edit>> {
    let mut pass = Pass::new(emit, options.repair_mode);
    // A repair changes the boot sector.
    let probe = options.probe.as_ref().filter(|_| options.repair_mode == RepairMode::Nothing);
    let view = look(&mut pass, device, probe)?;
    Ok(CheckRound { view, found: pass.found, report: pass.report })
}

/// Checks the volume. Returns `None` if there is no volume that could be changed.
fn look(pass: &mut Pass<'_>, device: &Arc<dyn BlockDevice>, probe: Option<&Probe>) -> Result<Option<View>> {
    let Some(view) = boot::open(device, probe, pass)? else { return Ok(None) };
    pass.report.checked = true;
    pass.report.block_size = view.sb.cluster_size;
    pass.report.blocks.1 = view.sb.clusters.into();
    pass.report.label = view.sb.probe(None).label;
    let state = tree::check(&view, pass)?;
    label::check(&view, pass)?;
    copies::check(&view, pass)?;
    lost::check(&view, state, pass)?;
    pass.report.inodes.1 = pass.report.inodes.0;
    Ok(Some(view))
}

impl From<&Issue> for Finding {
    fn from(issue: &Issue) -> Self {
        issue.finding(false)
    }
}
