//! Checking a volume: what `fsck.exfat` looks for and what it does not, and mending it.
//!
//! 1. `boot`: the boot region and its copy, the marks.
//! 2. `tables`: the chain of the root directory, the entries of the bitmap and of the up-case table, and that table.
//! 3. `tree`: every directory from the root on, its sets (`sets`, `names`), and the clusters that they name (`chain`).
//! 4. `bitmap`: clusters in use that nobody names, and the other way round.
//!
//! What is found comes with the edits that mend it (`mend`), which are made when a look is over; then the volume is looked at
//! again, since one damage hides another, until nothing is left that may be mended. Of a set one thing is mended at a time.
//! Invariant: each cluster is followed once in a look, so that a look ends; one keeps a bit a cluster and the hashes of the
//! names of one directory, and one that mends at most `BATCH` findings besides.
//! Invariant: clusters are freed only once nothing else is wrong, since what is damaged may be whose they are.
//! Source: specification; what is an error where that is silent: exfatprogs 1.2.0, `fsck/fsck.c`.

mod bitmap;
mod boot;
mod chain;
mod edit;
mod issue;
mod mend;
mod names;
mod rescue;
mod sets;
mod tables;
mod tree;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{DeviceError, Result};
use obento_block::{BlockDevice, Cache};
use obento_clusters::{Bits, Cluster, ROOT, Run, Slot};
use obento_driver::{Check, CheckObserver, CheckOptions, CheckProgress, CheckReport, Mending, Severity};

use self::edit::Edit;
use self::rescue::Rescue;
use crate::open::ExFatDriver;
use crate::raw::RawBitmap;
use crate::super_block::SuperBlock;
use crate::table::Reader;
use crate::up_case::UpCase;

pub use issue::Issue;

/// How many findings are mended at a time.
const BATCH: usize = 4096;
/// How often a volume is looked at; each time but the last something was mended.
const MAX_ROUNDS: u32 = 1 << 10;
/// What is kept of the metadata.
const CACHE: usize = 8 << 20;

impl Check for ExFatDriver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport> {
        check_volume(&device, options, &mut |event| match event {
            Event::Found(issue, mended) => observer.found(issue.finding(mended)),
            Event::Progress(progress) => observer.progress(progress),
        })
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

/// The issues of the volume that fills `device`, without mere notes. Errors: as [`Check::check`].
pub fn issues(device: Arc<dyn BlockDevice>) -> Result<Vec<Issue>> {
    let mut found = Vec::new();
    let options = CheckOptions::new(Arc::new(obento_env::NO_CLOCK));
    check_volume(&device, &options, &mut |event| match event {
        Event::Found(issue, _) if issue.severity() > Severity::Note => found.push(issue),
        _ => {}
    })?;
    Ok(found)
}

/// Checks the volume that fills `device`, as [`Check::check`], with typed issues.
pub fn check_volume(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    tell: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    if options.mending != Mending::Nothing && device.is_read_only() {
        return Err(DeviceError::ReadOnly.into());
    }
    let most = match options.mending {
        Mending::Nothing => Severity::Note,
        Mending::Safe => Severity::Safe,
        Mending::All => Severity::Damage,
    };
    let (mut mended, mut before) = (0_u64, Vec::new());
    for round in 1..=MAX_ROUNDS {
        let (view, look) = Look::at(device, options, &mut *tell, Claims::AsMet)?;
        // Where clusters have two owners, it matters who comes first.
        let (view, look) = if look.is_crossed() {
            drop(look);
            Look::at(device, options, &mut *tell, Claims::DirectoriesFirst)?
        } else {
            (view, look)
        };
        let may_mend = |item: &&Item| !item.edits.is_empty() && item.issue.severity() <= most;
        let now: Vec<Issue> = look.found.iter().filter(may_mend).map(|item| item.issue.clone()).collect();
        if now.is_empty() || now == before || round == MAX_ROUNDS {
            let mut report = look.report;
            for Item { issue, .. } in look.found {
                report.found = report.found.saturating_add(u64::from(issue.severity() > Severity::Note));
                tell(Event::Found(issue, false));
            }
            (report.found, report.mended) = (report.found.saturating_add(mended), mended);
            return Ok(report);
        }
        mend::apply(&view, look.found.iter().filter(may_mend).flat_map(|item| &item.edits))?;
        for issue in &now {
            mended = mended.saturating_add(1);
            tell(Event::Found(issue.clone(), true));
        }
        before = now;
    }
    Ok(CheckReport { mended, found: mended, ..CheckReport::default() })
}

/// Something that was found, and what mends it.
struct Item {
    issue: Issue,
    edits: Vec<Edit>,
}

/// The volume that is looked at.
struct View {
    sb: SuperBlock,
    cache: Cache,
    up_case: UpCase,
    /// Where the bitmap lies.
    bitmap: Vec<Run>,
}

impl View {
    fn table(&self) -> Reader<'_> {
        Reader::new(&self.sb, &self.cache)
    }

    fn device(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }
}

/// In which order owners get their clusters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claims {
    /// As sets are met.
    AsMet,
    /// Directories before files, since their names are lost with their clusters.
    DirectoriesFirst,
}

/// One look at the volume.
struct Look<'t> {
    tell: &'t mut dyn FnMut(Event),
    mending: Mending,
    found: Vec<Item>,
    /// Whether something is wrong that may be why clusters are nobody's.
    is_damaged: bool,
    report: CheckReport,
    /// Whose clusters are known.
    owned: Bits,
    /// Who comes first.
    claims: Claims,
    /// The clusters of directories, which no file gets.
    directories: Bits,
    /// If there is no entry for the bitmap, or a wrong one: what is wrong, where one has room, and where one that was removed
    /// says that the bitmap is.
    no_bitmap: Option<(&'static str, Option<Slot>, Option<Cluster>)>,
    /// The entry of a bitmap of which it is not sure that it lies there.
    doubtful_bitmap: Option<(Slot, RawBitmap)>,
    /// What is wrong with the up-case table, where its entry is or has room, and the clusters that it has.
    bad_up_case: Option<(&'static str, Option<Slot>, Vec<Run>)>,
}

impl<'t> Look<'t> {
    /// Looks at all.
    fn at(
        device: &Arc<dyn BlockDevice>,
        options: &CheckOptions,
        tell: &'t mut dyn FnMut(Event),
        claims: Claims,
    ) -> Result<(View, Self)> {
        let mut this = Self {
            tell,
            mending: options.mending,
            found: Vec::new(),
            is_damaged: false,
            report: CheckReport::default(),
            owned: Bits::default(),
            claims,
            directories: Bits::default(),
            no_bitmap: None,
            doubtful_bitmap: None,
            bad_up_case: None,
        };
        let sb = boot::check(device, &mut this)?;
        this.owned = Bits::new(sb.clusters)?;
        this.report.checked = true;
        this.report.block_size = sb.cluster_size;
        this.report.blocks.1 = sb.clusters.into();
        let cache = Cache::new(device.clone(), sb.sector_size, CACHE);
        let mut view = View { sb, cache, up_case: UpCase::standard()?, bitmap: Vec::new() };
        if let Some(root) = tables::check(&mut view, &mut this)? {
            let runs = root.runs.clone();
            if claims == Claims::DirectoriesFirst {
                this.directories = tree::directories(&view, &runs)?;
            }
            tree::check(&view, root, &mut this)?;
            tables::check_doubtful_bitmap(&mut view, &mut this)?;
            tables::mend_bitmap(&mut view, &mut this)?;
            let rescue = options.rescue && !this.is_damaged;
            let root = rescue.then(|| tables::directory(&view, ROOT, ROOT, runs));
            let root = root.map(|root| Rescue::new(&view, root, options.clock.now())).transpose()?;
            bitmap::check(&view, &mut this, root)?;
            tables::mend_up_case(&view, &mut this)?;
        }
        this.report.inodes.1 = this.report.inodes.0;
        Ok((view, this))
    }

    /// Keeps an issue.
    fn found(&mut self, issue: Issue, edits: Vec<Edit>) {
        self.is_damaged |= issue.severity() == Severity::Damage;
        if self.mending == Mending::Nothing || self.found.len() < BATCH {
            self.found.push(Item { issue, edits });
        } else {
            self.is_damaged = true;
        }
    }

    /// Whether a cluster has two owners.
    fn is_crossed(&self) -> bool {
        self.found.iter().any(|item| matches!(item.issue, Issue::CrossLink { .. }))
    }

    /// Whether all that files have is known: nothing else is damaged.
    fn is_complete(&self) -> bool {
        self.found.iter().all(|item| item.issue.severity() < Severity::Damage)
    }

    fn progress(&mut self, pass: &'static str, done: u64, total: u64) {
        (self.tell)(Event::Progress(CheckProgress { pass, done, total }));
    }

    /// Whether `cluster` was nobody's until now.
    fn claim(&mut self, cluster: Cluster) -> bool {
        !self.owned.set(cluster)
    }
}
