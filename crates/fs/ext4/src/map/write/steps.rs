//! Work on a file's map that may exceed one transaction.
//!
//! A job continues in memory until it is done or its transaction is full. Then its changes are committed, and it
//! continues. Work that fits one transaction is one change, also after a crash.

use alloc::vec::Vec;

use obento_base::Result;
use obento_journal::{Credits, Txn};

use crate::map::change::{FileMap, Nodes};
use crate::map::reservation::Run;
use crate::writer::{InodeEdit, InodeGuard, Writer, cost};

/// Maximum number of runs that one transaction frees.
const MOST_LOST: usize = 4096;

/// Whether a job has more to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    More,
    Done,
}

/// The position of a transaction among those of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StepPosition {
    pub first: bool,
    pub last: bool,
}

/// Work in steps.
pub(super) trait Job {
    /// Does a small part: a few nodes of the map. Adds the freed runs to `lost`.
    fn step(&mut self, map: &mut FileMap<'_, Nodes<'_>>, lost: &mut Vec<Run>) -> Result<Progress>;

    /// Changes the rest of the inode in each transaction.
    fn finish(
        &mut self,
        writer: &Writer,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        place: StepPosition,
    ) -> Result<()>;
}

impl Writer {
    /// Executes `job` on a locked inode. Afterwards, the guard does not show the changes of the last step.
    pub(super) fn run(&self, inode: &mut InodeGuard<'_>, job: &mut dyn Job) -> Result<()> {
        let limit = self.credits_per_step();
        let mut first = true;
        loop {
            let nodes = Nodes { volume: self.volume(), inode };
            let mut map = FileMap::new(&nodes)?;
            let mut lost = Vec::new();
            let progress = loop {
                let progress = job.step(&mut map, &mut lost)?;
                if progress == Progress::Done
                    || lost.len() >= MOST_LOST
                    || self.estimate(&map, &lost) >= limit
                {
                    break progress;
                }
            };
            let last = progress == Progress::Done;
            let change = self.plan_change(inode, map, Vec::new(), lost)?;
            let place = StepPosition { first, last };
            self.commit_change(inode.view(), change, cost::ORPHAN, |txn, edit| {
                job.finish(self, txn, edit, place)
            })?;
            if last {
                return Ok(());
            }
            first = false;
            self.refresh(inode)?;
        }
    }

    /// Returns the maximum number of blocks that one step of a job changes, since other operations share the
    /// transaction.
    fn credits_per_step(&self) -> Credits {
        Credits((self.txns().credits_max().0 / 8).max(16))
    }
}
