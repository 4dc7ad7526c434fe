//! The check: both super blocks, every inode with its blocks, every name and link count. It repairs nothing.
//!
//! Memory is proportional to the number of inodes in use, and to the blocks that they take. A block is followed once, so
//! that the time is bounded by the size of the device. The segment table is not checked: NetBSD rebuilds it when it mounts
//! a volume that was not unmounted.

mod census;
mod issue;

use alloc::sync::Arc;

use obento_base::{Error, Feature, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Check, CheckObserver, CheckOptions, CheckReport, FileSystem as _, RepairMode, Replay, Severity,
};

pub use self::issue::Issue;
use crate::open::LfsDriver;
use crate::super_block::{FIRST, SuperBlocks};
use crate::volume::Volume;

/// Memory for the cache of blocks.
const CACHE: usize = 4 << 20;

/// Receives issues and counts them.
pub struct Findings<'a> {
    pub observer: &'a mut dyn CheckObserver,
    found: u64,
}

impl Findings<'_> {
    /// Reports an issue.
    pub fn add(&mut self, issue: &Issue) {
        if issue.severity() != Severity::Note {
            self.found = self.found.saturating_add(1);
        }
        self.observer.found(issue.finding(false));
    }

    /// Reports an error of a structure.
    ///
    /// # Errors
    ///
    /// Errors of the device are returned.
    pub fn add_error(&mut self, error: Error, issue: impl FnOnce(Error) -> Issue) -> Result<()> {
        match error {
            Error::Device(_) | Error::Refused(obento_base::Refusal::NoMemory) => Err(error),
            other => {
                self.add(&issue(other));
                Ok(())
            }
        }
    }
}

/// Reports the damage of super blocks.
fn super_blocks(volume: &Volume, second_damage: Option<Error>, findings: &mut Findings<'_>) {
    if let Some(why) = second_damage {
        findings.add(&Issue::SuperBlock { why });
    }
    for notice in &volume.notices {
        if let obento_driver::Notice::Damaged(error) = notice
            && volume.super_block_at != FIRST
        {
            findings.add(&Issue::SuperBlock { why: *error });
        }
    }
}

impl Check for LfsDriver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport, Error> {
        let found = SuperBlocks::of(&*device, options.probe.as_ref())?;
        if options.repair_mode != RepairMode::Nothing {
            return Err(Error::Unsupported(Feature::Repairing));
        }
        let mut findings = Findings { observer, found: 0 };
        let mut volume = Volume::open(device, found.intact, CACHE)?;
        super_blocks(&volume, found.second_damage, &mut findings);
        volume.roll_forward(Replay::InMemory)?;
        if volume.rolled.segments > 0 {
            findings.add(&Issue::NotClean { segments: volume.rolled.segments });
        }
        let counts = census::run(&volume, &mut findings)?;
        let usage = volume.statfs()?;
        Ok(CheckReport {
            checked: true,
            inodes: (counts.inodes, counts.inodes),
            blocks: (usage.blocks.saturating_sub(usage.free), usage.blocks),
            directories: counts.directories,
            block_size: usage.block_size,
            found: findings.found,
            ..CheckReport::default()
        })
    }
}
