//! A power cut, and then a device on which one request fails while the volume is recovered, read and closed: the error is clean, and
//! once more, on a sound device, everything is there as if it had not failed.

use std::sync::Arc;

use super::endure::{Counts, Reached, broken, counts, later};
use super::repairable;
use super::volume::{End, Recording, Subject, looked_at};
use crate::fault::Fault;
use crate::plan::{Op, Plan};
use crate::record::Event;
use crate::snapshot::Snapshot;

/// What a cut left.
pub(super) struct Cut {
    /// The plan, all of it synced.
    recording: Recording,
    /// The disk, to which every write came.
    disk: Vec<u8>,
    /// What is found on it.
    tree: Snapshot,
}

impl Subject<'_> {
    /// What is left of `plan` where the power goes after all of it was synced, while its files are held open: a journal to be replayed,
    /// inodes without a name. And how many requests of each kind it takes to recover, read and close that.
    pub(super) fn cut_at_the_end(&self, base: &Arc<[u8]>, plan: &Plan) -> Result<(Cut, Counts), String> {
        let mut synced = plan.clone();
        synced.ops.push(Op::Sync);
        let recording = self.record(base, &synced, End::Dropped)?;
        let mut disk = base.to_vec();
        for event in &recording.events {
            if let Event::Write { offset, bytes } = event {
                let start = usize::try_from(*offset).expect("a test's device is small");
                disk[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
        let tree = self.recovered(&disk)?;
        let (_, device) = broken(&disk, None);
        match self.look_through(&device, &tree)? {
            None => {}
            Some(error) => return Err(format!("nothing fails, and: {error}")),
        }
        Ok((Cut { recording, disk, tree }, counts(&device)))
    }

    fn recovered(&self, disk: &[u8]) -> Result<Snapshot, String> {
        let (memory, _) = broken(disk, None);
        let fs = (self.open)(memory, later()).map_err(|e| format!("does not open: {e}"))?;
        Snapshot::read(&looked_at(fs), None).map_err(|e| format!("does not read: {e}"))
    }

    /// Recovers, reads and closes what was cut on a device with this fault, and then without. Says whether the fault was noticed.
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
