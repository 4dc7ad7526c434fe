//! The blocks of an inode that refers to all of them itself, as most files and directories do.

use alloc::vec::Vec;

use obento_base::{Ino, Result};
use obento_journal::{Credits, Txn};

use super::remove::has_blocks;
use crate::allocator::{BlockRun, Freed};
use crate::inode::{Inode, InodeFlags};
use crate::map::change::{FileMap, Nodes};
use crate::map::empty_root;
use crate::map::extents::{Bounds, ExtentNode, extent_len, extent_start};
use crate::map::indirect::direct;
use crate::map::tree::Mapping;
use crate::raw::RawExtent;
use crate::size::ClusterSize;
use crate::unit::VolBlock;
use crate::writer::{InodeEdit, Writer, cost};

/// Maximum number of runs: the extents in a root.
const MOST: usize = 4;
/// Maximum number of blocks that are revoked together with other changes in one transaction.
const MOST_REVOKED: u32 = 256;

/// All blocks of an inode, few enough to be freed in one transaction with its other changes.
pub(crate) struct OwnBlocks {
    runs: [Option<BlockRun>; MOST],
    content: Freed,
}

impl OwnBlocks {
    /// No blocks, for an inode whose blocks were freed.
    pub(crate) const NONE: Self = Self { runs: [None; MOST], content: Freed::Data };

    fn runs(&self) -> impl Iterator<Item = BlockRun> {
        self.runs.iter().flatten().copied()
    }

    /// Adds the `runs` that fit. Returns whether all do.
    fn push_all(&mut self, runs: impl Iterator<Item = BlockRun>) -> bool {
        let mut runs = runs;
        runs.all(|run| self.push(run))
    }

    fn push(&mut self, run: BlockRun) -> bool {
        let free = self.runs.iter().position(Option::is_none).unwrap_or(MOST);
        if let Some(Some(last)) = free.checked_sub(1).and_then(|last| self.runs.get_mut(last))
            && last.start.checked_add(last.len.into()) == Some(run.start)
        {
            last.len = last.len.saturating_add(run.len);
            return true;
        }
        self.runs.get_mut(free).map(|slot| *slot = Some(run)).is_some()
    }
}

impl Writer {
    /// Returns the blocks of `inode`, if it refers to all of them itself and they are few. Returns `None` if
    /// `bigalloc` requires an examination of clusters. Fails with `Corrupt`, or if the device fails.
    pub(crate) fn own_blocks(&self, inode: &Inode) -> Result<Option<OwnBlocks>> {
        if !has_blocks(inode) {
            return Ok(Some(OwnBlocks::NONE));
        }
        if self.volume().super_block().cluster != ClusterSize::ONE {
            return Ok(None);
        }
        let mut own = OwnBlocks { content: self.content_of(inode), ..OwnBlocks::NONE };
        let fits = if inode.has(InodeFlags::EXTENTS) {
            let root = ExtentNode::root(inode)?;
            root.check_entries(inode, Bounds::ALL)?;
            root.depth == 0 && own.push_all(root.extents().iter().map(run_of))
        } else {
            let one = |number: u32| BlockRun { start: VolBlock(number.into()), len: 1 };
            direct(inode.i_block()).is_some_and(|blocks| own.push_all(blocks.map(one)))
        };
        let revoked = own.runs().map(|run| run.len).fold(0, u32::saturating_add);
        if !fits || own.content == Freed::Metadata && revoked > MOST_REVOKED {
            return Ok(None);
        }
        if own.runs().nth(1).is_some() {
            // An error of a single run is detected before anything changes.
            own.runs().try_for_each(|run| self.allocator().expect_taken(run))?;
        }
        Ok(Some(own))
    }

    /// Maps blocks that are already allocated to a file without blocks. Fails with `NoSpace` for the nodes of the
    /// tree after mapping some of them.
    pub(crate) fn map_pieces(&self, ino: Ino, pieces: &[Mapping]) -> Result<()> {
        let mut inode = self.lock_inode(ino)?;
        for piece in pieces {
            let nodes = Nodes { volume: self.volume(), inode: &inode };
            let mut map = FileMap::new(&nodes)?;
            map.splice(piece.range(), &[*piece], &mut Vec::new())?;
            let change = self.plan_change(&inode, map, Vec::new(), Vec::new())?;
            self.commit_change(inode.view(), change, Credits(0), |_, _| Ok(()))?;
            self.refresh(&mut inode)?;
        }
        Ok(())
    }

    /// Returns the credits for [`Self::free_own`].
    pub(crate) fn own_credits(&self, own: &OwnBlocks) -> Credits {
        own.runs().map(|run| cost::RUN * self.groups_of_run(run)).fold(Credits(0), |sum, run| sum + run)
    }

    /// Frees the blocks and removes them from `edit`, which the caller stores. A run after the first that cannot be
    /// freed, since another file on a damaged volume has it too, is skipped and recorded. Fails with `Corrupt`, or if
    /// the device fails, before anything is changed.
    pub(crate) fn free_own(&self, txn: &mut Txn<'_>, edit: &mut InodeEdit, own: &OwnBlocks) -> Result<()> {
        for (nth, run) in own.runs().enumerate() {
            match self.allocator().free_blocks(txn, run.start, run.len, own.content) {
                Err(error) if nth == 0 => return Err(error),
                Err(error) => self.note_damage(error),
                Ok(()) => {}
            }
            edit.remove_blocks(run.len.into());
        }
        if own.runs().next().is_some() {
            let has_extents = edit.has(InodeFlags::EXTENTS);
            *edit.i_block_mut() = if has_extents { empty_root() } else { [0; 60] };
        }
        Ok(())
    }
}

fn run_of(extent: &RawExtent) -> BlockRun {
    BlockRun { start: extent_start(extent), len: extent_len(extent).0.into() }
}
