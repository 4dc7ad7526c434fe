//! Checking a volume: what `fsck.fat` looks for, and mending it.
//!
//! 1. `boot`: the boot sector, as it fits the volume (`geometry`), and its copy, FSInfo, the copies of the FAT.
//! 2. `tree`: every directory from the root on, its entries (`long`, `names`), and the chains that they name (`chain`).
//! 3. `copies`: which of several FATs has the chains, and what the others lack.
//! 4. `lost`: clusters in use that nobody names; how many are free. `label`: the labels and the marks.
//!
//! What is found comes with the edits that mend it (`mend`), which are made when a pass is over; then the volume is looked at
//! again, since one damage hides another, until nothing is left that may be mended.
//! Invariant: each cluster is followed once in a pass, so that a pass ends; a pass that only looks keeps two bits a cluster and
//! the names of one directory, one that mends at most `BATCH` findings besides.
//! Source: fatgen103; what is an error where that is silent: dosfstools 4.2, `src/check.c`, `boot.c`, `fat.c`, `lfn.c`.

mod boot;
mod chain;
mod copies;
mod geometry;
mod issue;
mod label;
mod long;
mod lost;
mod mend;
mod names;
mod tree;
mod view;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{DeviceError, Result};
use obento_block::BlockDevice;
use obento_clusters::Bits;
use obento_driver::{
    Check, CheckObserver, CheckOptions, CheckProgress, CheckReport, Finding, Mending, Severity,
};

use self::mend::Edit;
use self::view::View;
use crate::open::FatDriver;

pub use issue::Issue;

/// How many findings are mended at a time.
const BATCH: usize = 4096;
/// How often a volume is looked at; each time but the last something was mended.
const MAX_ROUNDS: u32 = 1 << 10;

impl Check for FatDriver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport> {
        check_volume(device, options, &mut |event| match event {
            Event::Found(issue, mended) => observer.found(issue.finding(mended)),
            Event::Progress(progress) => observer.progress(progress),
        })
    }

    fn finds(&self, device: &Arc<dyn BlockDevice>, _: &CheckOptions) -> bool {
        geometry::finds(device)
    }
}

/// What a check tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An issue, and whether it was mended.
    Found(Issue, bool),
    /// How far it is.
    Progress(CheckProgress),
}

/// Checks the volume that fills `device`, as [`Check::check`], with typed issues.
pub fn check_volume(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    tell: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    if options.mending == Mending::Nothing {
        let mut pass = Pass {
            tell,
            mending: Mending::Nothing,
            found: Vec::new(),
            waits: false,
            report: CheckReport::default(),
        };
        pass.look(&device)?;
        return Ok(pass.report);
    }
    if device.is_read_only() {
        return Err(DeviceError::ReadOnly.into());
    }
    mend_all(&device, options, tell)
}

/// The issues of the volume that fills `device`, without mere notes.
pub fn issues(device: Arc<dyn BlockDevice>) -> Result<Vec<Issue>> {
    let mut found = Vec::new();
    check_volume(device, &CheckOptions::new(Arc::new(obento_env::NO_CLOCK)), &mut |event| match event {
        Event::Found(issue, _) if issue.severity() > Severity::Note => found.push(issue),
        _ => {}
    })?;
    Ok(found)
}

/// Looks and mends until nothing is left to mend.
fn mend_all(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    tell: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    let (mut found, mut mended, mut told_notes) = (0_u64, 0_u64, false);
    let mut before: Vec<Issue> = Vec::new();
    for round in 1..=MAX_ROUNDS {
        let mut pass = Pass {
            tell,
            mending: options.mending,
            found: Vec::new(),
            waits: false,
            report: CheckReport::default(),
        };
        let view = pass.look(device)?;
        let Pass { found: batch, mut report, .. } = pass;
        let may_mend = |item: &Item| !item.edits.is_empty() && item.severity() <= most(options.mending);
        let now: Vec<Issue> =
            batch.iter().filter(|item| may_mend(item)).filter_map(|item| item.issue.clone()).collect();
        let is_stuck = now == before || round == MAX_ROUNDS;
        if now.is_empty() || is_stuck {
            for issue in batch.into_iter().filter_map(|item| item.issue) {
                let is_note = issue.severity() == Severity::Note;
                found = found.saturating_add(u64::from(!is_note));
                if !is_note || !told_notes {
                    tell(Event::Found(issue, false));
                }
            }
            (report.found, report.mended) = (found, mended);
            return Ok(report);
        }
        let Some(view) = view else { break };
        mend::apply(&view, batch.iter().filter(|item| may_mend(item)).flat_map(|item| &item.edits), options)?;
        for item in batch {
            let (is_mended, Some(issue)) = (may_mend(&item), item.issue) else { continue };
            if is_mended {
                (found, mended) = (found.saturating_add(1), mended.saturating_add(1));
                tell(Event::Found(issue, true));
            } else if issue.severity() == Severity::Note && !told_notes {
                tell(Event::Found(issue, false));
            }
        }
        told_notes = true;
        before = now;
    }
    Ok(CheckReport { found, mended, ..CheckReport::default() })
}

fn most(mending: Mending) -> Severity {
    match mending {
        Mending::Nothing => Severity::Note,
        Mending::Safe => Severity::Safe,
        Mending::All => Severity::Damage,
    }
}

/// Something that was found, and what mends it. Without an issue: what follows from another's.
struct Item {
    issue: Option<Issue>,
    edits: Vec<Edit>,
}

impl Item {
    fn severity(&self) -> Severity {
        self.issue.as_ref().map_or(Severity::Safe, Issue::severity)
    }
}

/// One look at the volume.
struct Pass<'t> {
    tell: &'t mut dyn FnMut(Event),
    mending: Mending,
    found: Vec<Item>,
    /// Whether the rest is left to the next look.
    waits: bool,
    report: CheckReport,
}

impl Pass<'_> {
    /// Tells an issue, or keeps it to be mended.
    fn found(&mut self, issue: Issue, edits: Vec<Edit>) {
        if self.mending == Mending::Nothing {
            let is_note = issue.severity() == Severity::Note;
            self.report.found = self.report.found.saturating_add(u64::from(!is_note));
            (self.tell)(Event::Found(issue, false));
        } else if !self.is_full() {
            self.found.push(Item { issue: Some(issue), edits });
        }
    }

    /// What is to be done besides.
    fn also(&mut self, edits: Vec<Edit>) {
        if self.mending != Mending::Nothing && !self.is_full() {
            self.found.push(Item { issue: None, edits });
        }
    }

    /// Keeps an issue, whatever else is kept.
    fn must(&mut self, issue: Issue, edits: Vec<Edit>) {
        let waits = core::mem::take(&mut self.waits);
        self.found(issue, edits);
        self.waits = waits;
    }

    /// Leaves whatever else there is to the next look.
    fn wait(&mut self) {
        self.waits = true;
    }

    /// Whether so much is to be mended that the rest is left to the next look.
    fn is_full(&self) -> bool {
        self.waits || self.found.len() >= BATCH
    }

    fn progress(&mut self, pass: &'static str, done: u64, total: u64) {
        (self.tell)(Event::Progress(CheckProgress { pass, done, total }));
    }

    /// Looks at all. `None` if there is nothing that edits could be made to.
    fn look(&mut self, device: &Arc<dyn BlockDevice>) -> Result<Option<View>> {
        let Some(view) = boot::open(device, self)? else { return Ok(None) };
        self.report.checked = true;
        self.report.block_size = view.sb.cluster_size;
        self.report.blocks.1 = view.sb.clusters.into();
        self.report.label = view.sb.probe(None).label;
        let owned = Bits::new(view.sb.clusters)?;
        let state = tree::check(&view, owned, self)?;
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
