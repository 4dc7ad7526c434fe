//! Files that get their places before the volume is known, since their data comes from a pipe in its own order.
//!
//! On disk: structures with a fixed place are at the start of groups. These are the super block, descriptors and their
//! backups, and without `flex_bg` bitmaps and inode tables. Their place is kept free for the given length or for the
//! maximum length. All other structures are between the files and after them.
//! Invariant: runs are allocated from front to back, in whole clusters.
//! Memory: 24 bytes per file in one piece.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Error;
use obento_base::wire::to_usize;
use obento_driver::tree::{Body, DataId, Node};
use obento_driver::{BuildError, FormatError, Tree};

use super::map;
use crate::feature::Incompat;
use crate::format::{Draft, Piece};

/// The received files, and the space that is kept free.
pub(super) struct Received {
    /// A volume that contains only structures with a fixed place, and the files.
    pub(super) draft: Draft,
    /// Each file and the index of its first piece, in the order of arrival.
    files: Vec<(DataId, u32)>,
    pub(super) pieces: Vec<Piece>,
    /// The end of the last run.
    goal: u64,
    /// Whether files that do not fit are counted past the end.
    is_counting: bool,
    /// The runs of the files that the tree contains, once it is known: whole clusters, sorted and disjoint.
    kept: Vec<Range<u64>>,
}

impl Received {
    /// Creates an empty state. `draft` contains only the backups of the super block and the descriptors. It is as
    /// long as the volume or, if `table` is `None`, as long as a volume may become. `table` is the number of blocks
    /// of a group's inode table.
    pub fn new(mut draft: Draft, table: Option<u32>) -> Self {
        let (sb, is_counting) = (&draft.sb, table.is_some());
        if !sb.incompat.contains(Incompat::FLEX_BG) {
            // Two bitmaps, and an inode table with the maximum number of inodes if the number is not known.
            let table = table.map_or(u64::from(sb.inode_size).saturating_mul(8), u64::from);
            for group in 0..sb.groups {
                let (start, copies) = sb.copy_blocks(group);
                let reserved = sb.raw.s_reserved_gdt_blocks.get().into();
                let len = copies.saturating_add(reserved).saturating_add(2).saturating_add(table);
                draft.space.take(start.0..start.0.saturating_add(len));
            }
        }
        draft.space.by_clusters(draft.sb.cluster);
        Self { draft, files: Vec::new(), pieces: Vec::new(), goal: 0, is_counting, kept: Vec::new() }
    }

    /// Allocates places for all files of `other`, in its order, and keeps those of `tree`. For errors see
    /// [`Receive::place`](obento_driver::Receive::place).
    pub fn receive_again(&mut self, other: &Self, tree: &Tree) -> Result<(), BuildError> {
        for (at, (data, _)) in other.files.iter().enumerate() {
            let blocks =
                |piece: &Piece| u64::from(piece.at)..u64::from(piece.at).saturating_add(piece.len.into());
            let mut ranges: Vec<Range<u64>> = Vec::new();
            for range in other.pieces_at(at).iter().map(blocks) {
                match ranges.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => ranges.push(range),
                }
            }
            self.place_blocks(*data, ranges)?;
        }
        self.keep(tree, &mut |_| {})
    }

    /// Allocates places for a file with these blocks. Returns the index of its first piece.
    pub(super) fn place_blocks(
        &mut self,
        data: DataId,
        ranges: Vec<Range<u64>>,
    ) -> Result<usize, BuildError> {
        let first = self.pieces.len();
        let number = u32::try_from(first).map_err(|_| Error::NoMemory)?;
        self.files.try_reserve(1).map_err(Error::from)?;
        self.files.push((data, number));
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let run = self.take(range.end.saturating_sub(at).min(map::longest(&self.draft.sb)))?;
                self.pieces.try_reserve(1).map_err(Error::from)?;
                self.pieces.push(map::piece(at, &run));
                at = at.saturating_add(run.end.saturating_sub(run.start).max(1));
            }
        }
        Ok(first)
    }

    /// Allocates up to `len` contiguous blocks after all previous ones. Fails with `TooSmall`.
    fn take(&mut self, len: u64) -> Result<Range<u64>, FormatError> {
        let volume = self.draft.sb.blocks_count;
        let run = if self.goal < volume {
            self.draft.space.allocate_run(map::goal(&self.draft, self.goal, len), len).ok()
        } else {
            None
        };
        let run = match run {
            Some(run) if run.start >= self.goal => run,
            // Not from the beginning again: the space left there is for other structures.
            _ if self.is_counting => {
                let start = self.goal.max(volume);
                start..start.saturating_add(len)
            }
            _ => {
                return Err(FormatError::TooSmall {
                    what: "the received files",
                    len: self.draft.sb.volume_len(),
                });
            }
        };
        self.goal = run.end;
        Ok(run)
    }

    fn pieces_at(&self, at: usize) -> &[Piece] {
        let start = self.files.get(at).map_or(0, |file| to_usize(file.1.into()));
        let next = self.files.get(at.saturating_add(1));
        let end = next.map_or(self.pieces.len(), |file| to_usize(file.1.into()));
        self.pieces.get(start..end).unwrap_or_default()
    }

    fn find(&self, node: &Node) -> Option<usize> {
        let Body::File { data: Some(data), .. } = node.body else { return None };
        self.files.binary_search_by_key(&data.0, |file| file.0.0).ok()
    }

    /// Returns the pieces of a received file.
    pub fn pieces_of(&self, node: &Node) -> Option<&[Piece]> {
        self.find(node).map(|at| self.pieces_at(at))
    }

    /// Returns the first block after all files of the tree.
    pub fn end(&self) -> u64 {
        self.kept.last().map_or(0, |run| run.end)
    }

    /// Returns the same as a byte offset.
    pub fn volume_end(&self) -> u64 {
        self.end().saturating_mul(self.draft.sb.block_size.into())
    }

    /// Returns the clusters of a piece.
    fn run_of(&self, piece: &Piece) -> Range<u64> {
        piece.block..piece.block.saturating_add(self.draft.sb.cluster.round_up(piece.len.into()))
    }

    /// Allocates the files in `draft`, a volume without other contents. Fails with `TooSmall` if they do not fit.
    pub fn take_from(&self, draft: &mut Draft) -> Result<(), FormatError> {
        let len = draft.sb.volume_len();
        let max = self.draft.sb.volume_len();
        if len > max {
            return Err(FormatError::TooLarge { len, max });
        }
        let is_same = draft.sb.blocks_per_group == self.draft.sb.blocks_per_group;
        for run in &self.kept {
            if !is_same || run.end > draft.sb.blocks_count || draft.space.count_in(run.clone()) > 0 {
                return Err(FormatError::TooSmall { what: "the received files", len });
            }
            draft.space.take(run.clone());
            draft.note_run(run);
        }
        Ok(())
    }

    /// Keeps the files of `tree`. Fails with `NoMemory`, or with `Invalid` if two files have the same data.
    pub(super) fn keep(&mut self, tree: &Tree, gone: &mut dyn FnMut(Range<u64>)) -> Result<(), BuildError> {
        let mut is_kept = Vec::new();
        is_kept.try_reserve_exact(self.files.len()).map_err(Error::from)?;
        is_kept.resize(self.files.len(), false);
        for at in tree.nodes().filter_map(|(_, node)| self.find(node)) {
            match is_kept.get_mut(at) {
                Some(kept) if !*kept => *kept = true,
                _ => return Err(Error::Invalid.into()),
            }
        }
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (at, is_kept) in is_kept.into_iter().enumerate() {
            for piece in self.pieces_at(at) {
                let run = self.run_of(piece);
                match runs.last_mut() {
                    _ if !is_kept => {
                        let byte = |block: u64| block.saturating_mul(self.draft.sb.block_size.into());
                        gone(byte(run.start)..byte(run.end));
                    }
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => runs.push(run),
                }
            }
        }
        self.kept = runs;
        Ok(())
    }
}
