//! The check: it finds what `ntfsfix -n` and `ntfsresize -i` find, and more. It repairs nothing, since the driver does not
//! write.
//!
//! Passes: the boot sector and its copy; the table and its copy; each record with its attributes and their clusters; each
//! directory with its tree; the bitmaps.
//! Memory: a bit for each cluster, 4 bytes for each record, and the text of each finding.

mod clusters;
mod directory;
mod issue;
mod records;
mod tables;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Feature, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Check, CheckObserver, CheckOptions, CheckProgress, CheckReport, Notice, RepairMode, Severity,
};

use self::clusters::Claims;
pub use self::issue::Issue;
use crate::driver::open::{Located, NtfsDriver, locate};
use crate::driver::options::NtfsOptions;
use crate::driver::volume::{DIRTY, Volume};

/// Memory for the caches of the volume.
const CACHE: usize = 16 << 20;

/// The versions that released versions of Windows write: NT 3.51 and 4 (1.1 and 1.2), 2000, XP and later. Source:
/// libntfs-3g, volume.c (`ntfs_version_is_supported`), which also accepts 2.x, of beta versions of Windows 2000.
const VERSIONS: [(u8, u8); 4] = [(1, 1), (1, 2), (3, 0), (3, 1)];

/// The least number of sectors after the copy of the boot sector that may belong to a disk, as the copy of a GPT does: the
/// device is then a disk from the start of the volume on, and not a partition.
const OTHER_DATA: u64 = 33;

/// A check in progress.
struct Run<'a> {
    volume: Volume,
    observer: &'a mut dyn CheckObserver,
    report: CheckReport,
    claims: Claims,
    /// Per record: number of names, and of entries in directories that are one of them.
    names: Vec<(u16, u16)>,
    /// The texts of the issues that were reported.
    known: BTreeSet<String>,
}

impl Check for NtfsDriver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport, Error> {
        let located = locate(&*device, options.probe.as_ref())?;
        if options.repair_mode != RepairMode::Nothing {
            return Err(Error::Unsupported(Feature::Repairing));
        }
        let geometry = located.geometry;
        let volume = Volume::open(device.clone(), geometry, NtfsOptions::default(), CACHE)?;
        // A device has no more records than fit on it, whatever the table says of itself.
        let possible = device.len().checked_div(geometry.record_size.into()).unwrap_or(0);
        let records = volume.mft().records().min(possible);
        let claims = Claims::new(geometry.clusters.min(device.len() / 256))?;
        let report = CheckReport { label: volume.label().to_vec(), checked: true, ..CheckReport::default() };
        let names = vec![(0, 0); to_usize(records)];
        let mut run = Run { volume, observer, report, claims, names, known: BTreeSet::new() };
        run.boot(&*device, &located);
        run.state();
        run.mirror();
        run.records();
        run.directories();
        run.entries();
        run.cluster_bitmap()?;
        let used = run.claims.count();
        run.report.blocks = (used, geometry.clusters);
        run.report.block_size = geometry.cluster_size;
        Ok(run.report)
    }

    fn finds(&self, device: &Arc<dyn BlockDevice>, _options: &CheckOptions) -> bool {
        locate(&**device, None).is_ok()
    }
}

impl Run<'_> {
    /// Reports an issue. Several passes read the same records, so an issue that is known is not reported again.
    fn found(&mut self, issue: &Issue) {
        let finding = issue.finding(false);
        if !self.known.insert(finding.text.clone()) {
            return;
        }
        if issue.severity() != Severity::Note {
            self.report.found = self.report.found.saturating_add(1);
        }
        self.observer.found(finding);
    }

    fn progress(&mut self, pass: &'static str, done: u64, total: u64) {
        if done.is_multiple_of(4096) || done == total {
            self.observer.progress(CheckProgress { pass, done, total });
        }
    }

    /// Compares the boot sector with its copy, and the lengths of volume and device.
    fn boot(&mut self, device: &dyn BlockDevice, located: &Located) {
        let geometry = located.geometry;
        if geometry.len > device.len() {
            self.found(&Issue::Truncated { found: device.len(), expected: geometry.len });
        }
        if let Some((why, _)) = located.damage {
            self.found(&Issue::BootSector { why });
            return;
        }
        let sector_size = u64::from(geometry.sector_size);
        let sector = geometry.len.checked_div(sector_size).unwrap_or(0);
        let last = device.len().checked_div(sector_size).unwrap_or(0).saturating_sub(1);
        let has_copy = |sector: u64| {
            let copy = crate::layout::boot::read(device, sector.saturating_mul(sector_size));
            located.boot.is_ok_and(|main| copy.is_ok_and(|copy| copy == main))
        };
        // The copy is after the volume, so an image of the volume alone lacks it.
        if geometry.len == device.len() {
            self.found(&Issue::BackupMissing { sector });
        } else if geometry.len < device.len() && has_copy(sector) {
            let rest = last.saturating_sub(sector);
            if rest > 0 && rest < OTHER_DATA {
                self.found(&Issue::BackupPlace { sector, last });
            }
        } else if geometry.len < device.len() && !has_copy(last) {
            self.found(&Issue::BackupBootSector { sector });
        }
    }

    /// Reports what the volume says about itself.
    fn state(&mut self) {
        let state = self.volume.state();
        let (flags, log, version) = (state.flags, state.log, state.version);
        if state.is_hibernated {
            self.found(&Issue::Hibernated {});
        }
        // A damaged record of the version is reported by itself.
        if version != (0, 0) && !VERSIONS.contains(&version) {
            self.found(&Issue::Version { major: version.0, minor: version.1 });
        }
        if flags & DIRTY != 0 {
            self.found(&Issue::InUse {});
        }
        if log.is_remarkable() {
            self.found(&Issue::LogFile { state: log.name() });
        }
        if let Some((unit, found)) = self.volume.up_case().wrong() {
            self.found(&Issue::UpCase { unit, found });
        }
        let damaged = |notice: &Notice| match notice {
            Notice::Damaged(why) => Some(*why),
            _ => None,
        };
        let damage: Vec<Error> = self.volume.notices().iter().filter_map(damaged).collect();
        for why in damage {
            self.found(&Issue::Tables { why });
        }
    }

    /// Reports files with fewer entries than names.
    fn entries(&mut self) {
        let names = core::mem::take(&mut self.names);
        for (ino, (names, entries)) in (0_u64..).zip(names) {
            if names != entries {
                self.found(&Issue::MissingEntry { ino, names, entries });
            }
        }
    }
}
