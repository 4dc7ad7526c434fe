//! Checking a volume: what e2fsck looks for, found by passes of its own.
//!
//! 0. [`super_block`], [`journal`]: what the volume is measured by, its descriptors, its journal (shown as if replayed).
//! 1. [`inodes`]: every inode in use ([`fields`]) and all that it owns ([`blocks`], [`attributes`]); blocks claimed twice.
//! 2. [`directories`]: every entry; indexes ([`htree`]).
//! 3. [`connectivity`]: every directory is below the root.
//! 4. [`links`]: every inode has as many names as it counts.
//! 5. [`counts`]: bitmaps and counts say what is in use; so do the quota files ([`quota`]).
//!
//! A pass looks at raw structures and believes none: what [`crate::volume::Volume`] refuses whole, a check takes apart.
//! Invariant: nothing here writes. What is found are [`Issue`]s; `repair/` turns them into changes.
//! Invariant: issues come in the same order each time, whatever the threads do: each part of a pass gathers its own, and
//! the parts are told in order.
//! Invariant: every loop is bounded by the size of the volume or of the device, and memory by what is in use: groups
//! that say that they were never used cost a descriptor.
//! Source: e2fsprogs `e2fsck/problem.h`, `pass1.c` to `pass5.c`; Linux `Documentation/filesystems/ext4/`.

mod attributes;
mod blocks;
mod claims;
mod connectivity;
mod counts;
mod directories;
mod encryption;
mod fields;
mod htree;
mod inline;
mod inodes;
mod issue;
mod journal;
mod links;
mod mmp;
mod orphans;
mod parallel;
mod quota;
mod repair;
mod resize;
mod state;
mod super_block;
mod view;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{
    Check, CheckObserver, CheckOptions, CheckProgress, CheckReport, Finding, Mending, Severity,
};

use crate::feature::RoCompat;
use crate::open::Ext4Driver;
use inodes::Known;
pub use issue::Issue;
use state::State;
use view::View;

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
        return look(device, options, tell);
    }
    repair::mend(&device, options, tell)
}

/// The issues of the volume that fills `device`, without mere notes.
pub fn issues(device: Arc<dyn BlockDevice>) -> Result<Vec<Issue>> {
    let mut found = Vec::new();
    look(device, &CheckOptions::new(Arc::new(obento_env::NO_CLOCK)), &mut |event| match event {
        Event::Found(issue, _) if issue.severity() > Severity::Note => found.push(issue),
        _ => {}
    })?;
    Ok(found)
}

/// All passes.
fn look(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    tell: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let mut told = Told { report: &mut report, tell };
    let view = View::open(device, options, &mut told)?;
    super_block::check(&view, &mut told);
    told.progress("super block", 1, 1);
    let view = Arc::new(view);
    let state = State::new(&view)?;
    state.take_metadata(&view);
    mmp::check(&view, &mut told);
    resize::check(&view, &mut told);
    let orphans = orphans::check(&view, &state, &mut told);
    let known = Known::new(&view, orphans.clone());
    let (state, mut attributes, usage) = inodes::check(&view, state, known, options.threads, &mut told);
    attributes::shared(&view, &state, &mut attributes, &mut told);
    // Files that may share blocks are never written.
    let may_share = view.sb.ro_compat.contains(RoCompat::SHARED_BLOCKS);
    if state.has_twice() && !may_share {
        inodes::find_twice(&view, &state, &Known::new(&view, orphans), &mut told);
    }
    let state = Arc::new(state);
    directories::check(&view, &state, options.threads, &mut told);
    connectivity::check(&view, &state, &mut told);
    links::check(&view, &state, &mut told);
    counts::check(&view, &state, options.threads, &mut told);
    quota::check(&view, &state, &usage, &mut told);
    let sb = &view.sb;
    report.label = sb.label().to_vec();
    report.block_size = sb.block_size;
    report.checked = true;
    Ok(report)
}

/// Whom the passes tell.
struct Told<'a> {
    report: &'a mut CheckReport,
    tell: &'a mut dyn FnMut(Event),
}

impl Told<'_> {
    fn found(&mut self, issue: Issue) {
        if issue.severity() > Severity::Note {
            self.report.found = self.report.found.saturating_add(1);
        }
        (self.tell)(Event::Found(issue, false));
    }

    fn progress(&mut self, pass: &'static str, done: u64, total: u64) {
        (self.tell)(Event::Progress(CheckProgress { pass, done, total }));
    }
}

impl Check for Ext4Driver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport> {
        check_volume(device, options, &mut |event| match event {
            Event::Found(issue, mended) => observer.found(Finding { mended, ..issue.to_finding(mended) }),
            Event::Progress(progress) => observer.progress(progress),
        })
    }

    fn finds(&self, device: &dyn BlockDevice, options: &CheckOptions) -> bool {
        view::find(device, options).is_ok()
    }
}
