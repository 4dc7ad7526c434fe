//! Checking a volume as e2fsck does, with passes of its own.
//!
//! 0. [`super_block`], [`journal`]: the super block, the descriptors, the journal (applied as if replayed).
//! 1. [`inodes`]: every inode in use ([`fields`]) and all that it owns ([`blocks`], [`attributes`]); blocks claimed
//!    twice.
//! 2. [`directories`]: every entry; indexes ([`htree`]).
//! 3. [`connectivity`]: every directory is below the root.
//! 4. [`links`]: every inode has the right link count.
//! 5. [`counts`]: bitmaps and counts agree with what is in use, and so do the quota files ([`quota`]).
//!
//! A pass reads raw structures and trusts none: it examines the parts of structures that [`crate::volume::Volume`]
//! refuses as a whole. The modules of the passes depend on leaves that do not depend on them: [`issue`] and [`events`],
//! [`view`] and [`state`], [`part`] and `look`.
//! Invariant: nothing here writes. The results are [`Issue`]s; `repair/` turns them into changes.
//! Invariant: issues have the same order in each run, whatever the threads do: each part of a pass collects its own,
//! and the parts are reported in order.
//! Invariant: every loop is bounded by the size of the volume or of the device, and memory by what is in use: groups
//! that are marked as unused cost a descriptor.
//! Source: e2fsprogs `e2fsck/problem.h`, `pass1.c` to `pass5.c`; Linux `Documentation/filesystems/ext4/`.

mod attributes;
mod blocks;
mod budget;
mod claims;
mod connectivity;
mod counts;
mod directories;
mod encryption;
mod entries;
mod events;
mod fields;
mod growing;
mod htree;
mod inline;
mod inode_check;
mod inodes;
mod issue;
mod journal;
mod links;
mod mmp;
mod mode;
mod orphans;
mod parallel;
mod part;
mod passes;
mod phrases;
mod quota;
pub mod reason;
mod repair;
mod reserved;
mod resize;
mod state;
mod super_block;
mod view;
mod watched;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{Check, CheckObserver, CheckOptions, CheckReport, RepairMode, issues_of};

use crate::open::Ext4Driver;
pub use events::Event;
pub use issue::Issue;
use passes::look;
pub(crate) use repair::{
    JournalChange, QuotaChange, QuotaState, change_journal, change_quotas, change_settings, commit_growth,
    minimum_blocks, planned_blocks, recover, shrink,
};
use watched::WatchedDevice;

/// Checks the volume on `device` as [`Check::check`] does, with typed issues.
pub fn check_volume(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    emit: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    let watched = Arc::new(WatchedDevice::new(device));
    let device: Arc<dyn BlockDevice> = watched.clone();
    let report = match options.repair_mode {
        RepairMode::Nothing => look(device, options, emit),
        RepairMode::Safe | RepairMode::All => repair::repair(&device, options, emit),
    };
    watched.expect_read().and(report)
}

/// Returns the issues of the volume on `device` without notes.
pub fn issues(device: Arc<dyn BlockDevice>) -> Result<Vec<Issue>> {
    issues_of(|options, emit| check_volume(device, options, emit))
}

impl Check for Ext4Driver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport> {
        check_volume(device, options, &mut |event| event.pass_to(observer))
    }

    fn finds(&self, device: &Arc<dyn BlockDevice>, options: &CheckOptions) -> bool {
        view::find(&**device, options).is_ok()
    }
}
