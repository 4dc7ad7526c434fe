//! Pass 5: comparing bitmaps and counts with what was found in use.
//!
//! Source: e2fsprogs `e2fsck/pass5.c` `check_block_bitmaps`, `check_inode_bitmaps`, `check_inode_end`,
//! `check_block_end`.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits groups and their bits")]

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::Bitmap;
use obento_base::wire::{to_u64, to_usize};

use super::events::EventSink;
use super::issue::Issue;
use super::parallel::each_part;
use super::state::{CheckState, InodeSlot, count};
use super::view::View;
use crate::allocator::{BitmapKind, bitmap_checksum, compare_sum, fresh_block_bitmap};
use crate::group::GroupFlags;
use crate::unit::VolBlock;

/// Number of groups that a thread takes at a time, since the bitmaps of a flex group are contiguous.
const SHARE: u32 = 16;
/// Maximum number of runs of wrong bits of a bitmap that are reported. The number of the others is reported, too.
const MAX_RUNS: usize = 16;

/// The results of some groups.
#[derive(Default)]
struct CountedGroups {
    issues: Vec<Issue>,
    free_blocks: u64,
    free_inodes: u64,
    directories: u64,
}

/// Checks all groups, and the counts of the super block.
pub(super) fn check(view: &Arc<View>, state: &Arc<CheckState>, threads: u32, reported: &mut EventSink<'_>) {
    let groups = view.sb.groups;
    let shares = groups.div_ceil(SHARE);
    let work = {
        let (view, state) = (Arc::clone(view), Arc::clone(state));
        Arc::new(move |share: u32| {
            let first = share * SHARE;
            Share { view: &view, state: &state, part: CountedGroups::default() }
                .all(first, first.saturating_add(SHARE).min(groups))
        })
    };
    let (mut free_blocks, mut free_inodes, mut directories) = (0_u64, 0_u64, 0_u64);
    each_part(threads, shares, &work, |share, part: CountedGroups| {
        part.issues.into_iter().for_each(|issue| reported.found(issue));
        free_blocks += part.free_blocks;
        free_inodes += part.free_inodes;
        directories += part.directories;
        reported.progress("bitmaps", (share + 1).into(), shares.into());
    });
    let sb = &view.sb;
    let expected = free_blocks.saturating_mul(sb.cluster_blocks().into());
    if sb.free_blocks() != expected {
        reported.found(Issue::FreeBlocks { found: sb.free_blocks(), expected });
    }
    let found = u64::from(sb.raw.s_free_inodes_count.get());
    if found != free_inodes {
        reported.found(Issue::FreeInodes { found, expected: free_inodes });
    }
    reported.report.blocks = (sb.blocks_count.saturating_sub(expected), sb.blocks_count);
    reported.report.inodes = (u64::from(sb.inodes_count).saturating_sub(free_inodes), sb.inodes_count.into());
    reported.report.directories = directories;
}

struct Share<'a> {
    view: &'a View,
    state: &'a CheckState,
    part: CountedGroups,
}

impl Share<'_> {
    fn all(mut self, first: u32, end: u32) -> CountedGroups {
        let place = |kind| {
            move |group: &crate::group::GroupDescriptor| match kind {
                BitmapKind::Blocks => group.block_bitmap,
                BitmapKind::Inodes => group.inode_bitmap,
            }
        };
        let blocks = self.bitmaps(first, end, GroupFlags::BLOCK_UNINIT, place(BitmapKind::Blocks));
        let inodes = self.bitmaps(first, end, GroupFlags::INODE_UNINIT, place(BitmapKind::Inodes));
        for ((group, blocks), inodes) in (first..end).zip(blocks).zip(inodes) {
            self.blocks(group, blocks);
            self.inodes(group, inodes);
        }
        self.part
    }

    /// Returns the bitmaps of the groups from `first` to before `end`, reading contiguous ones together; `None` for a
    /// group without a bitmap.
    fn bitmaps(
        &mut self,
        first: u32,
        end: u32,
        uninit: GroupFlags,
        place: impl Fn(&crate::group::GroupDescriptor) -> VolBlock,
    ) -> Vec<Option<Vec<u8>>> {
        let view = self.view;
        let size = to_usize(view.sb.block_size.into());
        let wanted = |group: u32| {
            let descriptor = view.group(group);
            let is_made = !view.has_descriptor_sums() || !descriptor.flags.contains(uninit);
            let block = place(descriptor);
            (is_made && block.0 != 0).then_some(block)
        };
        let mut all: Vec<Option<Vec<u8>>> = Vec::new();
        let mut group = first;
        while group < end {
            let Some(start) = wanted(group) else {
                all.push(None);
                group += 1;
                continue;
            };
            let follows = |&(n, group): &(u64, u32)| wanted(group) == start.checked_add(n);
            let more = (1_u64..).zip(group + 1..end).take_while(follows).count();
            let len = to_u64(more) + 1;
            let bytes = view.read(start, len);
            if let Err(why) = &bytes {
                self.part.issues.push(Issue::BitmapUnreadable { group, why: *why });
            }
            for n in 0..=more {
                let from = n * size;
                let one = bytes.as_ref().ok().and_then(|bytes| bytes.get(from..from + size));
                all.push(one.map(<[u8]>::to_vec));
            }
            group += u32::try_from(len).unwrap_or(u32::MAX);
        }
        all
    }

    fn is_uninit(&self, group: u32, flag: GroupFlags) -> bool {
        self.view.has_descriptor_sums() && self.view.group(group).flags.contains(flag)
    }

    fn blocks(&mut self, group: u32, bitmap: Option<Vec<u8>>) {
        let (view, sb) = (self.view, &self.view.sb);
        let clusters = sb.group_clusters(group);
        let uninit = self.is_uninit(group, GroupFlags::BLOCK_UNINIT);
        let used = self.state.with_used(group, |used| used.map_or(0, count));
        let free = u64::from(clusters).saturating_sub(used);
        self.part.free_blocks += free;
        let descriptor = view.group(group);
        if let Some(bitmap) = &bitmap {
            self.checksum(group, BitmapKind::Blocks, bitmap);
        }
        let bitmap = match (bitmap, uninit) {
            (None, true) => fresh_block_bitmap(sb, group, descriptor).ok(),
            (bitmap, _) => bitmap,
        };
        if let Some(bitmap) = bitmap {
            let mut wrong =
                self.state.with_used(group, |used| differences(&bitmap, used.unwrap_or_default(), clusters));
            let start = sb.group_start(group).0;
            let block = |bit: u64| start + sb.cluster.len(bit);
            if uninit && !wrong.runs.is_empty() {
                self.part.issues.push(Issue::GroupUninit { group, what: "blocks" });
                wrong = WrongRuns::default();
            }
            for WrongBits { first, len, stored } in wrong.runs {
                let len = sb.cluster.len(len);
                self.part.issues.push(Issue::BlockBitmap { group, block: block(first), len, stored });
            }
            if wrong.others > 0 {
                self.part.issues.push(Issue::BlockBitmapOthers { group, runs: wrong.others });
            }
            if !is_padded(&bitmap, clusters) {
                self.part.issues.push(Issue::BlockBitmapPadding { group });
            }
            if uninit && group + 1 == sb.groups {
                self.part.issues.push(Issue::LastGroupUninit { group });
            }
        }
        let found = u64::from(descriptor.free_blocks);
        if found != free {
            self.part.issues.push(Issue::GroupFreeBlocks { group, found, expected: free });
        }
    }

    fn inodes(&mut self, group: u32, bitmap: Option<Vec<u8>>) {
        let (view, sb) = (self.view, &self.view.sb);
        let slots = self.state.inodes.get(to_usize(group.into())).map(|slots| &**slots).unwrap_or_default();
        let first = group * sb.inodes_per_group + 1;
        let used = (first..).zip(slots).filter(|&(ino, slot)| is_used(view, ino, slot)).count();
        // Inodes of the format itself after the known slots are in use, too.
        let free = u64::from(sb.inodes_per_group).saturating_sub(to_u64(used));
        let directories = to_u64(slots.iter().filter(|slot| slot.kind == 2 && slot.is_used()).count());
        self.part.free_inodes += free;
        self.part.directories += directories;
        if let Some(bitmap) = &bitmap {
            self.checksum(group, BitmapKind::Inodes, bitmap);
            let wrong = differences(bitmap, &used_inodes(view, self.state, group), sb.inodes_per_group);
            for WrongBits { first: bit, len, stored } in wrong.runs {
                let ino = first + u32::try_from(bit).unwrap_or(0);
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                self.part.issues.push(Issue::InodeBitmap { group, ino, len, stored });
            }
            if wrong.others > 0 {
                self.part.issues.push(Issue::InodeBitmapOthers { group, runs: wrong.others });
            }
            if !is_padded(bitmap, sb.inodes_per_group) {
                self.part.issues.push(Issue::InodeBitmapPadding { group });
            }
        } else if used > 0 && self.is_uninit(group, GroupFlags::INODE_UNINIT) {
            self.part.issues.push(Issue::GroupUninit { group, what: "inodes" });
        }
        let descriptor = view.group(group);
        let found = u64::from(descriptor.free_inodes);
        if found != free {
            self.part.issues.push(Issue::GroupFreeInodes { group, found, expected: free });
        }
        let found = u64::from(descriptor.used_dirs);
        if found != directories {
            self.part.issues.push(Issue::GroupDirectories { group, found, expected: directories });
        }
    }

    fn checksum(&mut self, group: u32, kind: BitmapKind, bitmap: &[u8]) {
        let Some(expected) = bitmap_checksum(&self.view.sb, kind, bitmap) else { return };
        let descriptor = self.view.descriptor_bytes(group);
        let Some((found, expected)) = compare_sum(kind, descriptor, expected) else { return };
        if found != expected {
            self.part.issues.push(match kind {
                BitmapKind::Blocks => Issue::BlockBitmapChecksum { group, found, expected },
                BitmapKind::Inodes => Issue::InodeBitmapChecksum { group, found, expected },
            });
        }
    }
}

/// Wrong bits, and their stored value.
struct WrongBits {
    first: u64,
    len: u64,
    stored: u8,
}

/// The runs of wrong bits of a bitmap.
#[derive(Default)]
struct WrongRuns {
    /// The first runs, up to the maximum.
    runs: Vec<WrongBits>,
    /// Number of the other runs.
    others: u64,
}

impl WrongRuns {
    fn add(&mut self, run: WrongBits) {
        if self.runs.len() < MAX_RUNS { self.runs.push(run) } else { self.others += 1 }
    }
}

/// Finds the runs in the first `bits` bits in which `stored` differs from `expected`.
fn differences(stored: &[u8], expected: &[u64], bits: u32) -> WrongRuns {
    let (mut found, mut last) = (WrongRuns::default(), None::<WrongBits>);
    let mut words = expected.iter().copied().chain(core::iter::repeat(0));
    for (base, bytes) in (0_u32..).step_by(64).zip(stored.chunks(8)).take_while(|(base, _)| *base < bits) {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let (word, right) = (u64::from_le_bytes(word), words.next().unwrap_or(0));
        let left = bits - base;
        let mask = if left >= 64 { u64::MAX } else { !(u64::MAX << left) };
        let mut wrong = (word ^ right) & mask;
        while wrong != 0 {
            let bit = wrong.trailing_zeros();
            wrong &= wrong.wrapping_sub(1);
            let at = u64::from(base + bit);
            let stored = u8::from(word >> bit & 1 == 1);
            match &mut last {
                Some(run) if run.first + run.len == at && run.stored == stored => run.len += 1,
                _ => {
                    let run = WrongBits { first: at, len: 1, stored };
                    last.replace(run).into_iter().for_each(|run| found.add(run));
                }
            }
        }
    }
    last.into_iter().for_each(|run| found.add(run));
    found
}

/// Returns whether inode `ino` is in use. Inodes of the format itself always are.
fn is_used(view: &View, ino: u32, slot: &InodeSlot) -> bool {
    slot.is_used() || view.is_own(ino)
}

/// Returns the words of the right inode bitmap of `group`.
pub(super) fn used_inodes(view: &View, state: &CheckState, group: u32) -> Vec<u64> {
    let count = view.sb.inodes_per_group;
    let slots = state.inodes.get(to_usize(group.into())).map(|slots| &**slots).unwrap_or_default();
    let used = (group * count + 1..).zip(slots).map(|(ino, slot)| is_used(view, ino, slot));
    words_of(used, count)
}

/// Returns whether the bits from `bits` on to the end of the block are set.
fn is_padded(bitmap: &[u8], bits: u32) -> bool {
    let all = u32::try_from(bitmap.len() * 8).unwrap_or(u32::MAX);
    let bitmap = Bitmap::new(bitmap);
    bitmap.count_ones(all).saturating_sub(bitmap.count_ones(bits)) == all.saturating_sub(bits)
}

/// Returns the words of a bitmap with these bits, and zeros up to `bits`.
fn words_of(set: impl Iterator<Item = bool>, bits: u32) -> Vec<u64> {
    let mut words = vec![0_u64; to_usize(u64::from(bits).div_ceil(64))];
    for at in (0_u32..).zip(set).filter_map(|(at, is_set)| is_set.then_some(at)) {
        if let Some(word) = words.get_mut(to_usize(u64::from(at / 64))) {
            *word |= 1 << (at % 64);
        }
    }
    words
}
