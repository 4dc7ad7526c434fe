//! The block map of ext2 and ext3.
//!
//! On disk: fifteen block numbers in `i_block`: twelve of data, then the roots of trees of one, two and three levels
//! of indirect blocks. 0 is a hole at any level.
//! Invariant: a walk reads at most three blocks.
//! Source: Linux `Documentation/filesystems/ext4/blockmap.rst`, `fs/ext4/indirect.c` `ext4_block_to_path`.
#![allow(clippy::arithmetic_side_effects, reason = "a block number has 32 bits, a block 2^14 numbers")]

use obento_base::wire::le::U32;
use obento_base::wire::{FromBytes, to_u64, to_usize};
use obento_base::{Corrupt, Result, Structure};

use super::blocks::{Blocks, MappedRun};
use crate::inode::Inode;
use crate::unit::{FileBlock, VolBlock};
use crate::volume::Volume;

/// `EXT4_NDIR_BLOCKS`.
pub(super) const DIRECT: u64 = 12;

/// The path from a number of `i_block` to a block.
pub(super) struct PointerPath {
    /// Position in `i_block`.
    pub root: usize,
    /// Levels of indirect blocks below it.
    pub levels: u32,
    /// Position among the blocks below `root`.
    pub inside: u64,
}

/// Returns the data blocks in `i_block` without holes, or `None` if it refers to indirect blocks.
pub(super) fn direct(i_block: &[u8]) -> Option<impl Iterator<Item = u32> + use<'_>> {
    let (direct, trees) = numbers(i_block).split_at_checked(to_usize(DIRECT))?;
    let is_small = trees.iter().all(|number| number.get() == 0);
    is_small.then(|| direct.iter().map(|number| number.get()).filter(|&number| number != 0))
}

impl Volume {
    /// Returns the run that starts at file block `at`.
    pub(super) fn map_indirect(&self, inode: &Inode, at: FileBlock) -> Result<MappedRun> {
        let per_block = u64::from(self.super_block().block_size.pointers());
        let Some(path) = find_path(at, per_block) else {
            // Blocks past the reach of three levels cannot be mapped.
            return Ok(MappedRun { len: (u32::MAX - at.0).max(1), place: Blocks::Hole });
        };
        let roots = numbers(inode.i_block());
        if path.levels == 0 {
            let direct = roots.get(..to_usize(DIRECT)).unwrap_or_default();
            return Ok(run_of(direct.get(path.root..).unwrap_or_default()));
        }
        let mut number = roots.get(path.root).map_or(0, |number| number.get());
        let (mut inside, mut span) = (path.inside, per_block.pow(path.levels));
        for level in (0..path.levels).rev() {
            if number == 0 {
                return Ok(MappedRun {
                    len: u32::try_from(span - inside).unwrap_or(u32::MAX),
                    place: Blocks::Hole,
                });
            }
            let block = self.indirect_block(inode, at, number)?;
            // A plain division by a variable contains a call that panics.
            span = span.checked_div(per_block).unwrap_or(1).max(1);
            let slot = to_usize(inside.checked_div(span).unwrap_or(0));
            inside = inside.checked_rem(span).unwrap_or(0);
            let entries = numbers(&block).get(slot..).unwrap_or_default();
            if level == 0 {
                return Ok(run_of(entries));
            }
            number = entries.first().map_or(0, |number| number.get());
        }
        Ok(MappedRun { len: 1, place: Blocks::Hole })
    }

    pub(crate) fn indirect_block(
        &self,
        inode: &Inode,
        at: FileBlock,
        number: u32,
    ) -> Result<obento_block::Block> {
        let start = VolBlock(number.into());
        if !self.is_data(start, 1) {
            let structure = Structure::IndirectBlock(inode.ino());
            return Err(Corrupt::BlockRange { structure, at: at.0.into(), start: start.0, len: 1 }.into());
        }
        self.cache().get(start.0)
    }
}

/// Returns the path to a block, or `None` past the end of the three-level tree.
pub(super) fn find_path(at: FileBlock, per_block: u64) -> Option<PointerPath> {
    let mut inside = u64::from(at.0);
    if inside < DIRECT {
        return Some(PointerPath { root: to_usize(inside), levels: 0, inside: 0 });
    }
    inside -= DIRECT;
    for (levels, root) in (1..=3_u32).zip(12..) {
        let span = per_block.pow(levels);
        if inside < span {
            return Some(PointerPath { root, levels, inside });
        }
        inside -= span;
    }
    None
}

/// Returns the block numbers in `bytes`.
pub(crate) fn numbers(bytes: &[u8]) -> &[U32] {
    <[U32]>::ref_from_prefix_with_elems(bytes, bytes.len() / 4).map_or(&[], |(numbers, _)| numbers)
}

/// Returns the run at the start of `entries`: a hole, or consecutive blocks.
fn run_of(entries: &[U32]) -> MappedRun {
    let first = entries.first().map_or(0, |number| number.get());
    let step = u64::from(first != 0);
    let follows = |(n, number): (usize, &U32)| u64::from(number.get()) == u64::from(first) + to_u64(n) * step;
    let len = entries.iter().enumerate().take_while(|&(n, number)| follows((n, number))).count().max(1);
    let place = if first == 0 { Blocks::Hole } else { Blocks::Mapped(VolBlock(first.into())) };
    MappedRun { len: u32::try_from(len).unwrap_or(u32::MAX), place }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_through_one_two_and_three_levels() {
        let path = |at: u32| find_path(FileBlock(at), 256).map(|p| (p.root, p.levels, p.inside));
        assert_eq!(path(11), Some((11, 0, 0)));
        assert_eq!(path(12), Some((12, 1, 0)));
        assert_eq!(path(12 + 256), Some((13, 2, 0)));
        assert_eq!(path(12 + 256 + 65536), Some((14, 3, 0)));
        assert_eq!(path(12 + 256 + 65536 + (1 << 24) - 1), Some((14, 3, (1 << 24) - 1)));
        assert_eq!(path(12 + 256 + 65536 + (1 << 24)), None);
    }

    #[test]
    fn a_run_ends_where_the_numbers_stop_counting_up() {
        let run = |list: &[u32]| run_of(&list.iter().map(|&n| U32::new(n)).collect::<std::vec::Vec<_>>());
        assert_eq!(run(&[7, 8, 9, 11]), MappedRun { len: 3, place: Blocks::Mapped(VolBlock(7)) });
        assert_eq!(run(&[0, 0, 1]), MappedRun { len: 2, place: Blocks::Hole });
        assert_eq!(run(&[]), MappedRun { len: 1, place: Blocks::Hole });
    }
}
