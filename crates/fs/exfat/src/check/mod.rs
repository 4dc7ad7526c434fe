//! Checking a volume, as `fsck.exfat` does and beyond, and repairing it.
//!
//! 1. `boot`: the boot region and its backup, the marks.
//! 2. `tables`: the chain of the root directory, the entries of the bitmap and of the up-case table, and that table.
//! 3. `tree`: every directory from the root on, its sets (`sets`, `names`), and the clusters that they refer to
//!    (`chain`).
//! 4. `bitmap`: clusters in use without an owner, and the other way round.
//!
//! An issue contains the edits that repair it (`repair`), which are applied at the end of a pass. Then the volume is
//! checked again, since one damage hides another, until no repairable issue is left. One issue of a set is repaired at
//! a time.
//! Invariant: each cluster is followed once per pass, so that a pass ends. It stores four bits per cluster in use and the
//! hashes of the names of one directory; a pass that repairs also stores at most `BATCH` issues.
//! Invariant: time and memory follow the entries, and the parts of the bitmap and of the FAT that are not holes of the
//! image, whatever the number of clusters that the boot sector declares. Contiguous clusters are runs.
//! Invariant: clusters are freed only if nothing else is wrong, since they may belong to something that is damaged.
//! Source: specification; where it defines no errors: exfatprogs 1.2.0, `fsck/fsck.c`.

mod bitmap;
mod boot;
mod chain;
mod edit;
mod issue;
mod names;
mod repair;
mod rescue;
mod sets;
mod tables;
mod tree;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{DeviceError, Result};
use obento_block::{BlockDevice, Cache};
use obento_clusters::{Bits, Cluster, ROOT, Run, Slot};
use obento_driver::{
    Check, CheckEvent, CheckObserver, CheckOptions, CheckProgress, CheckReport, CheckRound, FoundIssue,
    RepairMode, Severity, check_in_rounds, issues_of,
};

use self::edit::Edit;
use self::rescue::Rescue;
use crate::open::ExFatDriver;
use crate::raw::RawBitmap;
use crate::super_block::SuperBlock;
use crate::table::Reader;
use crate::up_case::UpCase;

pub use issue::Issue;

/// Maximum number of issues that are repaired at a time.
const BATCH: usize = 4096;
/// Maximum number of links that are followed to find out whether a flag is wrong. Few sets need this, unless an image is
/// made to cost much.
const LINKS: u64 = 1 << 26;
/// Size of the metadata cache.
const CACHE: usize = 8 << 20;

impl Check for ExFatDriver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport> {
        check_volume(&device, options, &mut |event| event.pass_to(observer))
    }
}

/// The events of a check.
pub type Event = CheckEvent<Issue>;

/// Returns the issues of the volume on `device` without notes. Fails in the same cases as [`Check::check`].
pub fn issues(device: Arc<dyn BlockDevice>) -> Result<Vec<Issue>> {
    issues_of(|options, emit| check_volume(&device, options, emit))
}

/// Checks the volume on `device` as [`Check::check`] does, with typed issues.
pub fn check_volume(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    emit: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    if options.repair_mode != RepairMode::Nothing && device.is_read_only() {
        return Err(DeviceError::ReadOnly.into());
    }
    let look = |emit: &mut dyn FnMut(Event)| {
        let round = Pass::at(device, options, &mut *emit, Claims::AsMet)?;
        if !is_crossed(&round.found) {
            return Ok(round);
        }
        drop(round);
        // If clusters have two owners, the order of the owners matters.
        Pass::at(device, options, emit, Claims::DirectoriesFirst)
    };
    check_in_rounds(options.repair_mode, emit, look, |view, edits| repair::apply(view, edits))
}

type Item = FoundIssue<Issue, Edit>;

/// Returns whether a cluster has two owners.
fn is_crossed(found: &[Item]) -> bool {
    found.iter().any(|item| matches!(item.issue, Some(Issue::CrossLink { .. })))
}

/// The volume that is checked.
struct View {
    sb: SuperBlock,
    cache: Cache,
    up_case: UpCase,
    /// The clusters of the bitmap.
    bitmap: Vec<Run>,
    /// The clusters that the bitmap marks as used.
    used: Bits,
}

impl View {
    fn table(&self) -> Reader<'_> {
        Reader::new(&self.sb, &self.cache)
    }

    fn device(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }

    /// Reads the bitmap in `runs`. Fails with `NoMemory`, or if the device fails.
    fn set_bitmap(&mut self, runs: Vec<Run>) -> Result<()> {
        self.used = bitmap::read(self, &runs)?;
        self.bitmap = runs;
        Ok(())
    }
}

/// The order in which owners get their clusters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claims {
    /// The order of their sets.
    AsMet,
    /// Directories before files, since the names in a directory are lost with its clusters.
    DirectoriesFirst,
}

/// One pass over the volume.
struct Pass<'t> {
    emit: &'t mut dyn FnMut(Event),
    repair_mode: RepairMode,
    found: Vec<Item>,
    /// Whether damage was found that may explain clusters without an owner.
    is_damaged: bool,
    report: CheckReport,
    /// Clusters with an owner.
    owned: Bits,
    /// The order of the owners.
    claims: Claims,
    /// Links of the FAT that may still be followed before clusters are assigned.
    links: u64,
    /// The clusters of directories, which no file gets.
    directories: Bits,
    /// If the entry of the bitmap is missing or wrong: the error, a place for a new entry, and the first cluster in a
    /// removed entry.
    no_bitmap: Option<(&'static str, Option<Slot>, Option<Cluster>)>,
    /// The entry of a bitmap whose place is doubtful.
    doubtful_bitmap: Option<(Slot, RawBitmap)>,
    /// The error of the up-case table, the place of its entry or for a new one, and its clusters.
    bad_up_case: Option<(&'static str, Option<Slot>, Vec<Run>)>,
}

impl<'t> Pass<'t> {
    /// Runs one pass.
    fn at(
        device: &Arc<dyn BlockDevice>,
        options: &CheckOptions,
        emit: &'t mut dyn FnMut(Event),
        claims: Claims,
    ) -> Result<CheckRound<View, Issue, Edit>> {
        let mut this = Self {
            emit,
            repair_mode: options.repair_mode,
            found: Vec::new(),
            is_damaged: false,
            report: CheckReport::default(),
            owned: Bits::default(),
            claims,
            links: LINKS,
            directories: Bits::default(),
            no_bitmap: None,
            doubtful_bitmap: None,
            bad_up_case: None,
        };
        // A repair changes the boot regions.
        let probe = options.probe.as_ref().filter(|_| options.repair_mode == RepairMode::Nothing);
        let sb = boot::check(device, probe, &mut this)?;
        this.report.checked = true;
        this.report.block_size = sb.cluster_size;
        this.report.blocks.1 = sb.clusters.into();
        let cache = Cache::new(device.clone(), sb.sector_size, CACHE);
        let (up_case, used) = (UpCase::standard()?, Bits::default());
        let mut view = View { sb, cache, up_case, bitmap: Vec::new(), used };
        if let Some(root) = tables::check(&mut view, &mut this)? {
            let runs = root.runs.clone();
            if claims == Claims::DirectoriesFirst {
                this.directories = tree::directories(&view, &runs)?;
            }
            tree::check(&view, root, &mut this)?;
            tables::keep_place_of_up_case(&mut this)?;
            tables::check_doubtful_bitmap(&mut view, &mut this)?;
            tables::repair_bitmap(&mut view, &mut this)?;
            let rescue = options.rescue && !this.is_damaged;
            let root = rescue.then(|| tables::directory(&view, ROOT, ROOT, runs));
            let root = root.map(|root| Rescue::new(&view, root, options.clock.now())).transpose()?;
            bitmap::check(&view, &mut this, root)?;
            tables::repair_up_case(&view, &mut this)?;
        }
        // The root has no entry in a directory.
        let inodes = this.report.inodes.0.saturating_add(this.report.directories.min(1));
        this.report.inodes = (inodes, inodes);
        Ok(CheckRound { view: Some(view), found: this.found, report: this.report })
    }

    /// Stores an issue.
    fn found(&mut self, issue: Issue, edits: Vec<Edit>) {
        self.is_damaged |= issue.severity() == Severity::Damage;
        if self.repair_mode == RepairMode::Nothing || self.found.len() < BATCH {
            self.found.push(Item { issue: Some(issue), edits });
        } else {
            self.is_damaged = true;
        }
    }

    /// Returns whether the clusters of all files were found, because nothing else is damaged.
    fn is_complete(&self) -> bool {
        !self
            .found
            .iter()
            .filter_map(|item| item.issue.as_ref())
            .any(|issue| issue.severity() == Severity::Damage)
    }

    fn progress(&mut self, pass: &'static str, done: u64, total: u64) {
        (self.emit)(Event::Progress(CheckProgress { pass, done, total }));
    }

    /// Assigns `cluster`. Returns whether it had no owner. Fails with `NoMemory`.
    fn claim(&mut self, cluster: Cluster) -> Result<bool> {
        Ok(!self.owned.set(cluster)?)
    }
}
