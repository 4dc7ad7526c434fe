//! Finding deleted files.
//!
//! Linux empties the map of an inode that it deletes, and clears the entry of the directory. Three places still
//! describe deleted files:
//!
//! - inodes without links that are marked as used: files that were open when the volume was last used (orphans);
//! - free inodes whose map is intact, as debugfs and old kernels leave them;
//! - the log of the journal, which contains older versions of blocks until later transactions overwrite them
//!   ([`old`]): inodes with their maps, extent and indirect blocks, and directories with the names.
//!
//! A file is found with the newest version that had links and a size. Names also come from the unused space of directory
//! blocks ([`names`]). The blocks of a file must be free now; of files that claim the same block, only the newest one
//! can be certain or likely.
//!
//! Invariant: nothing is written. Each block of a table, directory or log is read a bounded number of times, and all
//! other steps count against [`Search::effort`], so that a search ends for any contents.
//! Source: Linux `fs/ext4/inode.c` `ext4_evict_inode`, `fs/ext4/namei.c` `ext4_generic_delete_entry`,
//! `fs/ext4/orphan.c`.

mod blocks;
mod inodes;
mod names;
mod old;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{Certainty, Checksums, DeletedFile, OpenOptions, Undelete, Unsearched};
use obento_env::NO_CLOCK;

use self::blocks::BlockClaims;
use self::inodes::{Found, OldInode, Origin};
use self::names::Names;
use self::old::OldBlocks;
use crate::open::{Ext4Driver, open_volume};
use crate::volume::Volume;

/// Steps for each block of the volume.
const EFFORT: u64 = 64;

impl Undelete for Ext4Driver {
    fn deleted(
        &self,
        device: &Arc<dyn BlockDevice>,
        found: &mut dyn FnMut(DeletedFile) -> ControlFlow<()>,
    ) -> Result<Vec<Unsearched>> {
        let options = OpenOptions { checksums: Checksums::Ignore, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
        let volume = open_volume(Arc::clone(device), &options)?;
        let blocks = device.len().checked_div(volume.block_size().into()).unwrap_or(0);
        let old = OldBlocks::read(&volume)?;
        let mut search = Search { volume: &volume, effort: blocks.saturating_mul(EFFORT) };
        let Found { mut files, directories } = search.inodes(&old, blocks);
        let names = search.names(&old, &files, &directories);
        // The newest version claims its blocks first.
        files.sort_by_key(|file| (file.origin, file.ino));
        let mut claims = BlockClaims::new(&volume, blocks);
        for file in &files {
            if let Some(file) = search.file(file, &old, &names, &mut claims)
                && found(file).is_break()
            {
                break;
            }
        }
        Ok(Vec::new())
    }
}

/// A search of a volume.
struct Search<'v> {
    volume: &'v Volume,
    /// The steps that the search may still take.
    effort: u64,
}

impl Search<'_> {
    /// Counts a step. Returns false if the search must end.
    fn step(&mut self) -> bool {
        let is_left = self.effort > 0;
        self.effort = self.effort.saturating_sub(1);
        is_left
    }

    /// Returns a file with its path and the condition of its blocks.
    fn file(
        &mut self,
        inode: &OldInode,
        old: &OldBlocks,
        names: &Names,
        claims: &mut BlockClaims<'_>,
    ) -> Option<DeletedFile> {
        let block_size = u64::from(self.volume.block_size());
        let map = self.map(inode, old);
        if map.runs.is_empty() && inode.size > 0 && matches!(inode.origin, Origin::Table) {
            // Linux has emptied the map.
            return None;
        }
        let mut layout = Layout { size: inode.size, block_size, ..Layout::default() };
        let (mut is_whole, mut is_first_lost) = (map.is_whole, false);
        for run in &map.runs {
            if !layout.add(run.at, run.start, run.len) {
                is_whole = false;
                continue;
            }
            // Blocks past the end are preallocated.
            let most = inode.size.div_ceil(block_size.max(1)).saturating_sub(run.at);
            for block in run.start..run.start.saturating_add(run.len.min(most)) {
                if !self.step() {
                    is_whole = false;
                    break;
                }
                let is_own = claims.claim(block, inode.origin == Origin::Orphan);
                is_first_lost |= !is_own && run.at == 0 && block == run.start;
                is_whole &= is_own;
            }
        }
        layout.finish();
        let certainty = match (inode.size, is_whole, inode.origin) {
            (0, ..) => Certainty::Certain,
            _ if is_first_lost || layout.extents.is_empty() && !is_whole => Certainty::Overwritten,
            (_, false, _) => Certainty::Doubtful,
            // The last change may have been in the transaction that deleted the file.
            (_, true, Origin::Journal(_)) => Certainty::Likely,
            (_, true, Origin::Orphan | Origin::Table) => Certainty::Certain,
        };
        let Layout { extents, holes, .. } = layout;
        let path = names.path(inode);
        Some(DeletedFile {
            path,
            size: inode.size,
            modified: Some(inode.modified),
            extents,
            holes,
            certainty,
        })
    }
}

/// The data of a file on the device.
#[derive(Default)]
struct Layout {
    size: u64,
    block_size: u64,
    /// The end of the last run, in bytes of the file.
    end: u64,
    extents: Vec<Range<u64>>,
    holes: Vec<Range<u64>>,
}

impl Layout {
    /// Adds `len` blocks from block `at` of the file on, which are at block `start` of the device. Returns false for
    /// blocks that overlap the last ones, or exceed the file by more than preallocated blocks do.
    fn add(&mut self, at: u64, start: u64, len: u64) -> bool {
        let from = at.saturating_mul(self.block_size);
        if from >= self.size {
            return true;
        }
        if from < self.end {
            return false;
        }
        self.hole(from);
        let most = self.size.saturating_sub(from).div_ceil(self.block_size.max(1));
        let len = len.min(most).saturating_mul(self.block_size);
        let start = start.saturating_mul(self.block_size);
        let range = start..start.saturating_add(len);
        match self.extents.last_mut() {
            Some(last)
                if last.end == range.start && self.holes.last().is_none_or(|hole| hole.end != from) =>
            {
                last.end = range.end;
            }
            _ => self.extents.push(range),
        }
        self.end = from.saturating_add(len);
        true
    }

    fn hole(&mut self, end: u64) {
        if self.end < end {
            self.holes.push(self.end..end);
        }
    }

    fn finish(&mut self) {
        self.hole(self.size);
    }
}
