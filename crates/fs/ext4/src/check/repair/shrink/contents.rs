//! Copying the contents of files to their new blocks.
//!
//! Several threads copy. Every target is free, and no source changes before a map refers to its copy, so that the order of
//! the copies does not matter.
#![allow(clippy::arithmetic_side_effects, reason = "the blocks are in the volume")]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;
use obento_driver::{ResizeObserver, ResizeResult};
use obento_env::sync::Mutex;

use super::Shrinking;
use super::plan::BlockMove;
use crate::check::parallel::each_part;
use crate::size::BlockSize;

/// Number of bytes that are read and written at once.
const CHUNK: u64 = 256 << 10;
/// Number of bytes that a thread copies before it takes more. A part that is smaller is copied by one thread.
const PART: u64 = 16 << 20;

impl Shrinking<'_> {
    /// Copies blocks on the device, durably. The changes in memory do not concern these blocks.
    pub(super) fn copy_contents(
        &self,
        moves: &[BlockMove],
        observer: ResizeObserver<'_>,
    ) -> ResizeResult<()> {
        let size = self.edits.view.sb.block_size;
        let total: u64 = moves.iter().map(|moved| moved.len).sum();
        let parts = parts(moves, size);
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let (device, is_stopped) = (Arc::clone(self.device), AtomicBool::new(false));
        // A file is written by one thread at a time: others would use processor time while they wait in the kernel.
        let writing = Mutex::new(());
        let work = Arc::new(move |part: u32| {
            let moves = parts.get(to_usize(part.into())).map(Vec::as_slice).unwrap_or_default();
            if is_stopped.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let copied = copy(&*device, moves, size, &writing);
            is_stopped.fetch_or(copied.is_err(), Ordering::Relaxed);
            copied
        });
        let (mut done, mut first) = (0_u64, Ok(()));
        each_part(self.options.threads, count, &work, |_, copied: obento_base::Result<u64>| match copied {
            Ok(blocks) => {
                done += blocks;
                observer(done, total);
            }
            Err(error) => first = first.and(Err(error)),
        });
        first?;
        Ok(self.device.flush()?)
    }
}

/// Sorts moves by their sources, joins contiguous ones, and divides them into parts for threads.
fn parts(moves: &[BlockMove], size: BlockSize) -> Vec<Vec<BlockMove>> {
    let mut sorted = moves.to_vec();
    sorted.sort_unstable_by_key(|moved| moved.from);
    let (chunk, mut parts) = (size.whole(CHUNK), Vec::new());
    let (mut part, mut blocks) = (Vec::<BlockMove>::new(), 0_u64);
    for mut rest in sorted {
        while rest.len > 0 {
            let before = part.last_mut().filter(|last| follows(last, &rest) && last.len < chunk);
            let len = rest.len.min(chunk - before.as_ref().map_or(0, |last| last.len));
            match before {
                Some(last) => last.len += len,
                None => part.push(BlockMove { len, ..rest }),
            }
            rest.from += len;
            rest.to += len;
            rest.len -= len;
            blocks += len;
        }
        if size.len(blocks) >= PART {
            parts.push(core::mem::take(&mut part));
            blocks = 0;
        }
    }
    parts.push(part);
    parts
}

fn follows(last: &BlockMove, next: &BlockMove) -> bool {
    let end = |start: u64| start + last.len;
    end(last.from) == next.from && end(last.to) == next.to
}

/// Copies blocks. Returns their number.
fn copy(
    device: &dyn BlockDevice,
    moves: &[BlockMove],
    size: BlockSize,
    writing: &Mutex<()>,
) -> obento_base::Result<u64> {
    let longest = moves.iter().map(|moved| moved.len).max().unwrap_or(0);
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(to_usize(size.len(longest)))?;
    buffer.resize(to_usize(size.len(longest)), 0);
    let mut blocks = 0_u64;
    for moved in moves {
        let bytes = buffer.get_mut(..to_usize(size.len(moved.len))).unwrap_or_default();
        device.read_at(size.len(moved.from), bytes)?;
        let held = writing.lock();
        device.write_at(size.len(moved.to), bytes)?;
        drop(held);
        blocks += size.whole(to_u64(bytes.len()));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn each_block(moves: &[BlockMove]) -> Vec<(u64, u64)> {
        let blocks = |moved: &BlockMove| {
            let (from, to) = (moved.from, moved.to);
            (0..moved.len).map(move |n| (from + n, to + n)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = moves.iter().flat_map(blocks).collect();
        all.sort_unstable();
        all
    }

    proptest! {
        #[test]
        fn parts_copy_the_same_blocks_in_long_runs(
            lens in prop::collection::vec((1_u64..9_000, any::<bool>()), 0..40)
        ) {
            let (mut from, mut to) = (100_000_000, 1_000);
            let mut moves = Vec::new();
            for (len, is_apart) in lens {
                (from, to) = if is_apart { (from + 3, to + 7) } else { (from, to) };
                moves.insert(moves.len() / 2, BlockMove { from, to, len });
                (from, to) = (from + len, to + len);
            }
            let size = BlockSize::USUAL;
            let parts = parts(&moves, size);
            prop_assert_eq!(each_block(&parts.concat()), each_block(&moves));
            for part in &parts {
                prop_assert!(part.iter().all(|moved| size.len(moved.len) <= CHUNK && moved.len > 0));
                let mut pairs = part.iter().zip(part.iter().skip(1));
                prop_assert!(pairs.all(|(one, next)| !follows(one, next) || size.len(one.len) == CHUNK));
            }
        }
    }
}
