//! The state of the passes: blocks in use, and blocks claimed twice; for each inode its type, links and names; the
//! directories and their blocks.
//!
//! Invariant: memory depends on what is in use: a bitmap is allocated when the first block of its group is claimed,
//! and the table of a group's inodes is as long as the part that the group marks as used.
//! Locking: one leaf lock per group for its bitmaps; the names of an inode are counted without a lock.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use obento_base::Result;
use obento_base::wire::to_usize;
use obento_env::sync::Mutex;

use super::budget::Budget;
use super::view::View;
use crate::size::ClusterSize;
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

bitflags::bitflags! {
    /// Properties of an inode other than its type.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct Marks: u8 {
        /// It is damaged.
        const BAD = 1;
        /// It contains an attribute value.
        const VALUE = 2;
        /// It belongs to the format itself.
        const OWN = 4;
        /// It is a directory with encrypted names.
        const ENCRYPTED = 8;
        /// It has the flag of attribute values, but no attribute confirms it.
        const FLAGGED = 16;
    }
}

/// An inode that may be in use.
#[derive(Debug, Default)]
pub(super) struct InodeSlot {
    /// `file_type` as in entries; 0 if it is not in use or has no type.
    pub(super) kind: u8,
    pub(super) marks: Marks,
    /// The stored link count; 0 if it is not in use.
    pub(super) links: u16,
    /// Number of names that were found.
    names: AtomicU32,
}

impl InodeSlot {
    pub(super) fn new(kind: u8, marks: Marks, links: u16) -> Self {
        Self { kind, marks, links, names: AtomicU32::new(0) }
    }

    /// Returns whether it is in use.
    pub(super) fn is_used(&self) -> bool {
        self.links != 0 || self.marks.contains(Marks::OWN)
    }

    /// Counts a name.
    pub(super) fn add_name(&self) {
        self.names.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of names that were counted so far.
    pub(super) fn names(&self) -> u32 {
        self.names.load(Ordering::Relaxed)
    }
}

/// Contiguous blocks of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DirRun {
    /// First file block.
    pub(super) at: u64,
    pub(super) start: VolBlock,
    pub(super) len: u32,
    /// Whether some of them had already been claimed.
    pub(super) is_shared: bool,
}

/// A directory.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) ino: u32,
    /// The seed of the checksums of its blocks.
    pub(super) seed: u32,
    /// `i_flags`.
    pub(super) flags: u32,
    /// Its size in bytes.
    pub(super) size: u64,
    /// Its blocks, in order.
    pub(super) runs: Vec<DirRun>,
    /// The directory that contains it; 0 if none was found yet.
    parent: AtomicU32,
    /// The inode of its `..`.
    dot_dot: AtomicU32,
    /// Whether it has more than one name.
    twice: AtomicBool,
}

impl Dir {
    pub(super) fn new(ino: u32, seed: u32, flags: u32, size: u64, runs: Vec<DirRun>) -> Self {
        Self {
            ino,
            seed,
            flags,
            size,
            runs,
            parent: AtomicU32::new(0),
            dot_dot: AtomicU32::new(0),
            twice: AtomicBool::new(false),
        }
    }

    /// Returns the directory that contains it.
    pub(super) fn parent(&self) -> u32 {
        self.parent.load(Ordering::Relaxed)
    }

    /// Sets the directory that contains it. Of several the lowest number wins, whatever the order.
    pub(super) fn set_parent(&self, parent: u32) {
        let lower = |old| if old == 0 || parent < old { Some(parent) } else { None };
        let old = match self.parent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower) {
            Ok(old) | Err(old) => old,
        };
        if old != 0 {
            self.twice.store(true, Ordering::Relaxed);
        }
    }

    /// Sets the directory that contains it, when all names are known.
    pub(super) fn choose_parent(&self, parent: u32) {
        self.parent.store(parent, Ordering::Relaxed);
    }

    /// Returns whether it has more than one name.
    pub(super) fn is_twice(&self) -> bool {
        self.twice.load(Ordering::Relaxed)
    }

    /// Returns the inode of its `..`.
    pub(super) fn dot_dot(&self) -> u32 {
        self.dot_dot.load(Ordering::Relaxed)
    }

    pub(super) fn set_dot_dot(&self, ino: u32) {
        self.dot_dot.store(ino, Ordering::Relaxed);
    }
}

/// The bitmaps of a group, in clusters.
#[derive(Default)]
struct Bits {
    used: Option<Box<[u64]>>,
    twice: Option<Box<[u64]>>,
}

/// The state of the passes.
pub(super) struct CheckState {
    per_group: u64,
    cluster: ClusterSize,
    first: u64,
    words: usize,
    bits: Vec<Mutex<Bits>>,
    /// Whether any block was claimed twice.
    any_twice: AtomicU32,
    pub(super) budget: Budget,
    /// The inodes of each group, as far as they may be in use.
    pub(super) inodes: Vec<Box<[InodeSlot]>>,
    inodes_per_group: u32,
    /// The directories, by number.
    pub(super) dirs: Vec<Dir>,
}

impl CheckState {
    /// Creates a state with nothing in use. Fails with `NoMemory`.
    pub(super) fn new(view: &View) -> Result<Self> {
        let sb = &view.sb;
        let mut bits = Vec::new();
        bits.try_reserve_exact(to_usize(sb.groups.into()))?;
        bits.extend((0..sb.groups).map(|_| Mutex::new(Bits::default())));
        let clusters = u64::from(sb.clusters_per_group());
        let there = view.device.len().checked_div(sb.block_size.into()).unwrap_or(0);
        Ok(Self {
            per_group: sb.blocks_per_group.into(),
            cluster: sb.cluster,
            first: sb.first_data_block.into(),
            words: to_usize(clusters.div_ceil(64)),
            bits,
            any_twice: AtomicU32::new(0),
            budget: Budget::new(there),
            inodes: Vec::new(),
            inodes_per_group: sb.inodes_per_group,
            dirs: Vec::new(),
        })
    }

    /// Moves the contents out of a state to which other references exist.
    pub(super) fn emptied(&self) -> Self {
        let moved = |bits: &Mutex<Bits>| Mutex::new(core::mem::take(&mut *bits.lock()));
        Self {
            bits: self.bits.iter().map(moved).collect(),
            any_twice: AtomicU32::new(self.any_twice.load(Ordering::SeqCst)),
            budget: self.budget.renewed(),
            inodes: Vec::new(),
            dirs: Vec::new(),
            ..*self
        }
    }

    /// Returns whether any block was claimed twice.
    pub(super) fn has_twice(&self) -> bool {
        self.any_twice.load(Ordering::SeqCst) != 0
    }

    /// Claims the clusters of `len` blocks from `start` on, which are on the volume. Returns whether some had already
    /// been claimed.
    pub(super) fn claim(&self, start: VolBlock, len: u64) -> bool {
        let mut any = false;
        self.each_word(start, len, |bits, word, mask, words| {
            let used = bits.used.get_or_insert_with(|| blank(words));
            let Some(place) = used.get_mut(word) else { return };
            let again = *place & mask;
            *place |= mask;
            if again != 0 {
                let twice = bits.twice.get_or_insert_with(|| blank(words));
                if let Some(place) = twice.get_mut(word) {
                    *place |= again;
                }
                any = true;
            }
        });
        // Hostile images claim millions of blocks twice.
        if any && !self.has_twice() {
            self.any_twice.store(1, Ordering::SeqCst);
        }
        any
    }

    /// Marks blocks of the volume itself. Several structures may share a cluster.
    pub(super) fn take(&self, start: VolBlock, len: u64) {
        self.each_word(start, len, |bits, word, mask, words| {
            let used = bits.used.get_or_insert_with(|| blank(words));
            if let Some(place) = used.get_mut(word) {
                *place |= mask;
            }
        });
    }

    /// Returns whether any of `len` blocks from `start` on was claimed twice.
    pub(super) fn is_twice(&self, start: VolBlock, len: u64) -> bool {
        let mut found = false;
        self.each_word(start, len, |bits, word, mask, _| {
            let place = bits.twice.as_ref().and_then(|twice| twice.get(word));
            found |= place.is_some_and(|place| place & mask != 0);
        });
        found
    }

    /// Passes the words that contain the bits of a run to `act`: bitmaps, index of the word, its bits of the run.
    fn each_word(&self, start: VolBlock, len: u64, mut act: impl FnMut(&mut Bits, usize, u64, usize)) {
        let Some(mut at) = start.0.checked_sub(self.first) else { return };
        let end = at.saturating_add(len);
        while at < end {
            let group = at.checked_div(self.per_group).unwrap_or(0);
            let group_start = group.saturating_mul(self.per_group);
            let group_end = group_start.saturating_add(self.per_group).min(end);
            let Some(bits) = self.bits.get(to_usize(group)) else { return };
            let mut bits = bits.lock();
            let bit = |block: u64| self.cluster.whole(block.saturating_sub(group_start));
            let (first, last) = (bit(at), bit(group_end.saturating_sub(1)));
            for word in first / 64..=last / 64 {
                let from = first.saturating_sub(word.saturating_mul(64)).min(63);
                let to = last.saturating_sub(word.saturating_mul(64)).min(63);
                let low = u64::MAX.checked_shl(u32::try_from(from).unwrap_or(0)).unwrap_or(0);
                let above = u32::try_from(63_u64.saturating_sub(to)).unwrap_or(0);
                let high = u64::MAX.checked_shr(above).unwrap_or(0);
                act(&mut bits, to_usize(word), low & high, self.words);
            }
            at = group_end;
        }
    }

    /// Passes the words of the bitmap of used blocks of `group` to `look`, or `None` if nothing there is in use.
    pub(super) fn with_used<T>(&self, group: u32, look: impl FnOnce(Option<&[u64]>) -> T) -> T {
        match self.bits.get(to_usize(group.into())) {
            Some(bits) => look(bits.lock().used.as_deref()),
            None => look(None),
        }
    }

    /// Returns inode `ino`, if that part of its group's table was examined.
    pub(super) fn slot(&self, ino: u32) -> Option<&InodeSlot> {
        let index = ino.checked_sub(1)?;
        let group = index.checked_div(self.inodes_per_group)?;
        let inside = index.checked_rem(self.inodes_per_group)?;
        self.inodes.get(to_usize(group.into()))?.get(to_usize(inside.into()))
    }

    /// Records that no attribute confirms inode `ino`, which has the flag of values.
    pub(super) fn doubt_value(&mut self, ino: u32) {
        let Some(index) = ino.checked_sub(1) else { return };
        let group = to_usize(index.checked_div(self.inodes_per_group).unwrap_or(0).into());
        let inside = to_usize(index.checked_rem(self.inodes_per_group).unwrap_or(0).into());
        if let Some(slot) = self.inodes.get_mut(group).and_then(|slots| slots.get_mut(inside)) {
            slot.marks.remove(Marks::VALUE);
            slot.marks.insert(Marks::FLAGGED);
        }
    }

    /// Returns directory `ino`.
    pub(super) fn dir(&self, ino: u32) -> Option<&Dir> {
        let at = self.dirs.binary_search_by_key(&ino, |dir| dir.ino).ok()?;
        self.dirs.get(at)
    }

    /// Marks the volume's own metadata as in use.
    pub(super) fn take_metadata(&self, view: &View) {
        let sb = &view.sb;
        let table = u64::from(sb.inode_table_blocks());
        for group in 0..sb.groups {
            let (start, len) = own_copies(sb, group);
            if len > 0 {
                self.take(start, len);
            }
            let descriptor = view.group(group);
            for (start, len) in
                [(descriptor.block_bitmap, 1), (descriptor.inode_bitmap, 1), (descriptor.inode_table, table)]
            {
                if start.0 != 0 {
                    self.take(start, len);
                }
            }
        }
        let mmp = VolBlock(sb.raw.s_mmp_block.get());
        if sb.incompat.contains(crate::feature::Incompat::MMP) && sb.holds_blocks(mmp, 1) {
            self.take(mmp, 1);
        }
    }
}

/// Returns the backups of super block and descriptors in `group`, including reserved descriptor blocks.
pub(super) fn own_copies(sb: &SuperBlock, group: u32) -> (VolBlock, u64) {
    let (start, len) = sb.copy_blocks(group);
    let meta = sb.incompat.contains(crate::feature::Incompat::META_BG);
    let grows = !meta && len > 0 && sb.has_copy(group) && sb.has_plain_copies(group);
    let reserved = if grows { u64::from(sb.raw.s_reserved_gdt_blocks.get()) } else { 0 };
    let end = start.0.saturating_add(len).saturating_add(reserved).min(sb.blocks_count);
    let start = start.0.max(sb.first_data_block.into());
    (VolBlock(start), end.saturating_sub(start))
}

/// Returns a bitmap of zeros.
fn blank(words: usize) -> Box<[u64]> {
    let mut bits = Vec::new();
    // At most 64 KiB per group. Without memory for that, nothing is marked, and the bitmap is reported as wrong.
    if bits.try_reserve_exact(words).is_ok() {
        bits.resize(words, 0);
    }
    bits.into_boxed_slice()
}

/// Returns the number of set bits of `words`.
pub(super) fn count(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).fold(0, u64::saturating_add)
}
