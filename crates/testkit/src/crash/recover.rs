//! A power failure, followed by the recovery on a device on which one request fails. The error is reported properly,
//! and a further recovery on a sound device finds everything.

use std::sync::Arc;

use obento_block::MemDevice;

use super::endure::{Counts, Reached, broken, counts, later};
use super::repairable;
use super::volume::{PlanEnd, Recording, Subject, looked_at};
use crate::fault::Fault;
use crate::plan::{Op, Plan};
use crate::record::Event;
use crate::snapshot::Snapshot;

/// The disk after a power failure.
pub(super) struct Cut {
    /// The plan, which was synced completely.
    recording: Recording,
    /// The disk, which every write reached.
    disk: Arc<MemDevice>,
    /// The contents of the disk.
    tree: Snapshot,
}

impl Subject<'_> {
    /// Runs `plan`, syncs, and cuts the power while its files are open, so that a journal must be replayed and inodes
    /// have no name. Also returns the number of requests of each kind that recovering, reading and closing takes.
    pub(super) fn cut_at_the_end(&self, base: &Arc<[u8]>, plan: &Plan) -> Result<(Cut, Counts), String> {
        let mut synced = plan.clone();
        synced.ops.push(Op::Sync);
        let recording = self.record(base, &synced, PlanEnd::Dropped)?;
        let mut disk = base.to_vec();
        for event in &recording.events {
            if let Event::Write { offset, bytes } = event {
                let start = usize::try_from(*offset).expect("a test's device is small");
                disk[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
        let disk = Arc::new(MemDevice::new(disk));
        let tree = self.recovered(&disk)?;
        let (_, device) = broken(&disk, None);
        match self.look_through(&device, &tree)? {
            None => {}
            Some(error) => return Err(format!("no request fails, but: {error}")),
        }
        Ok((Cut { recording, disk, tree }, counts(&device)))
    }

    fn recovered(&self, disk: &Arc<MemDevice>) -> Result<Snapshot, String> {
        let (memory, _) = broken(disk, None);
        let fs = (self.open)(memory, later()).map_err(|e| format!("does not open: {e}"))?;
        Snapshot::read(&looked_at(fs), None).map_err(|e| format!("does not read: {e}"))
    }

    /// Recovers, reads and closes the disk on a device with this fault, and then without. Returns whether the fault was
    /// reported.
    pub(super) fn endure_recovery(&self, cut: &Cut, fault: Fault, second: bool) -> Result<bool, String> {
        let (memory, device) = broken(&cut.disk, Some(fault));
        let failed = self.look_through(&device, &cut.tree)?.is_some();
        let point = cut.recording.history.points.last().cloned().unwrap_or_default();
        let mut tree = cut.tree.clone();
        tree.objects.retain(|path, _| !repairable::is_saved(path));
        let reached = Reached { point, failed, tree: Some(tree) };
        self.check_after(&cut.recording, &reached, &memory, second)?;
        Ok(failed)
    }
}
