//! Work on a file's map that may be more than one transaction holds.
//!
//! A job goes on in memory until it is done or its transaction is full; then what it did is committed and it goes on
//! from there. What fits one transaction is one change, also after a crash.

use alloc::vec::Vec;

use obento_base::Result;
use obento_journal::{Credits, Txn};

use crate::inode::Inode;
use crate::map::change::{FileMap, Nodes};
use crate::map::promise::Run;
use crate::writer::{InodeEdit, Writer, cost};

/// The most runs that one transaction sets free.
const MOST_LOST: usize = 4096;

/// Whether a job has more to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    More,
    Done,
}

/// Where a transaction stands among those of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub first: bool,
    pub last: bool,
}

/// Work in steps.
pub(super) trait Job {
    /// Does a little: a few nodes of the map. Adds to `lost` what this sets free.
    fn step(&mut self, map: &mut FileMap<'_, Nodes<'_>>, lost: &mut Vec<Run>) -> Result<Progress>;

    /// Changes the rest of the inode in each transaction.
    fn finish(
        &mut self,
        writer: &Writer,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        place: Place,
    ) -> Result<()>;
}

impl Writer {
    /// Does `job` on `inode`, which was read since its lock was taken.
    pub(super) fn run(&self, inode: Inode, job: &mut dyn Job) -> Result<()> {
        let limit = self.credits_per_step();
        let (mut inode, mut first) = (inode, true);
        loop {
            let nodes = Nodes { volume: self.volume(), inode: &inode };
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
            let change = self.plan_change(&inode, map, Vec::new(), lost)?;
            let place = Place { first, last };
            self.commit_change(&inode, change, cost::ORPHAN, |txn, edit| job.finish(self, txn, edit, place))?;
            if last {
                return Ok(());
            }
            first = false;
            inode = self.volume().inode(inode.ino())?;
        }
    }

    /// Returns how many blocks one step of a job may change: a transaction is there for others too.
    fn credits_per_step(&self) -> Credits {
        Credits((self.txns().credits_max().0 / 8).max(16))
    }
}
