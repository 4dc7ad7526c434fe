//! Pass 1, the blocks of an inode: extent trees and block maps, walked to their ends despite errors.
//!
//! Invariant: a walk ends: entries of a tree must advance through the file, and repeated reads of a node are limited
//! ([`super::budget`]).
//! Source: e2fsprogs `e2fsck/pass1.c` `scan_extent_node`, `process_block`; `lib/ext2fs/extent.c`
//! `ext2fs_extent_header_verify`.

use alloc::vec::Vec;

use obento_base::FileKind;
use obento_base::wire::{FromBytes, to_u64};

use super::claims::is_own;
use super::inode_check::{InodeCheck, Owned, RESIZE_INO};
use super::issue::Issue;
use super::reason::HeaderField;
use crate::checksum::Crc;
use crate::feature::Incompat;
use crate::inode::InodeFlags;
use crate::map::check::{MAGIC, MAX_DEPTH, extent_len, extent_start, index_leaf, numbers};
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex, RawExtentTail};
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

/// Size of a header, and of an entry.
const ENTRY: usize = 12;
/// A node of the walk.
struct Frame {
    bytes: Vec<u8>,
    block: u64,
    depth: u16,
    entries: u16,
    next: u16,
    /// The first possible file block of the next entry.
    start: u64,
    /// The end of the possible file blocks.
    end: Option<u64>,
    sum: Option<(u32, u32)>,
    /// The blocks of the nodes above and of this node.
    path: Vec<u64>,
}

/// Returns whether the `len` blocks from `start` on are on the volume.
pub(super) fn on_volume(sb: &SuperBlock, start: u64, len: u64) -> bool {
    start != 0
        && start >= sb.first_data_block.into()
        && start.checked_add(len).is_some_and(|end| end <= sb.blocks_count)
}

/// Checks a tree's header: magic number, and the number of entries for which there is space. Returns the wrong field.
fn bad_header(header: &RawExtentHeader, len: usize) -> Option<(HeaderField, u64)> {
    let room = len.saturating_sub(ENTRY) / ENTRY;
    let (max, entries) = (usize::from(header.eh_max.get()), header.eh_entries.get());
    if header.eh_magic.get() != MAGIC {
        return Some((HeaderField::Magic, header.eh_magic.get().into()));
    }
    // A checksum takes the space of an entry, and old trees left space for two more.
    if max > room || max < room.saturating_sub(2) {
        return Some((HeaderField::Max, header.eh_max.get().into()));
    }
    (usize::from(entries) > max).then_some((HeaderField::Entries, entries.into()))
}

/// Returns whether a map begins as an extent tree.
pub(super) fn is_tree(map: &[u8]) -> bool {
    RawExtentHeader::ref_from_prefix(map).is_ok_and(|(header, _)| bad_header(header, map.len()).is_none())
}

impl InodeCheck<'_> {
    /// Walks the extent tree in `i_block`.
    pub(super) fn extents(&mut self, owned: &mut Owned) {
        let Some(root) = self.node(self.raw.i_block.to_vec(), 0, None) else { return };
        if root.depth > MAX_DEPTH {
            // Linux refuses it, but its blocks are nevertheless in use.
            let found = root.depth.into();
            self.emit(Issue::ExtentHeader { ino: self.ino, block: 0, field: HeaderField::Depth, found });
        }
        let mut stack = Vec::from([root]);
        while let Some(frame) = stack.last_mut() {
            if frame.next >= frame.entries {
                if let Some((found, expected)) = frame.sum {
                    let block = frame.block;
                    self.emit(Issue::ExtentChecksum { ino: self.ino, block, found, expected });
                }
                stack.pop();
                continue;
            }
            let index = frame.next;
            frame.next = frame.next.saturating_add(1);
            if frame.depth == 0 {
                self.extent(frame, index, owned);
            } else if let Some(child) = self.index(frame, index, owned) {
                stack.push(child);
            }
        }
    }

    /// Creates the frame of the node in `bytes`, if its header is valid. `depth` is the depth that its parent
    /// requires.
    fn node(&mut self, bytes: Vec<u8>, block: u64, depth: Option<u16>) -> Option<Frame> {
        let (header, _) = RawExtentHeader::ref_from_prefix(&bytes).ok()?;
        let header = *header;
        let entries = header.eh_entries.get();
        let mut bad = bad_header(&header, bytes.len());
        if depth.is_some() && entries == 0 {
            bad = bad.or(Some((HeaderField::Entries, 0)));
        }
        if let Some((field, found)) = bad {
            self.emit(Issue::ExtentHeader { ino: self.ino, block, field, found });
            return None;
        }
        let sum = depth.and_then(|_| self.bad_sum(&bytes, header.eh_max.get()));
        let said = header.eh_depth.get();
        let depth = depth.unwrap_or(said);
        if said != depth {
            // Linux refuses it. e2fsck uses only the levels of the tree.
            self.emit(Issue::ExtentHeader {
                ino: self.ino,
                block,
                field: HeaderField::Depth,
                found: said.into(),
            });
        }
        Some(Frame {
            bytes,
            block,
            depth,
            entries,
            next: 0,
            start: 0,
            end: None,
            sum,
            path: Vec::from([block]),
        })
    }

    /// Returns the stored and the computed checksum of a node in a block, if they differ.
    fn bad_sum(&self, bytes: &[u8], max: u16) -> Option<(u32, u32)> {
        if !self.view.sb.has_metadata_csum() {
            return None;
        }
        let at = usize::from(max).saturating_mul(ENTRY).saturating_add(ENTRY);
        let (node, rest) = bytes.split_at_checked(at)?;
        let (tail, _) = RawExtentTail::ref_from_prefix(rest).ok()?;
        let (found, expected) = (tail.et_checksum.get(), Crc::new(self.seed).add(node).get());
        (found != expected).then_some((found, expected))
    }

    /// Checks an entry of a leaf.
    fn extent(&mut self, frame: &mut Frame, index: u16, owned: &mut Owned) {
        let at = usize::from(index).saturating_mul(ENTRY).saturating_add(ENTRY);
        let entry = frame.bytes.get(at..).and_then(|bytes| RawExtent::ref_from_prefix(bytes).ok());
        let Some((entry, _)) = entry else { return };
        let (sb, ino) = (&self.view.sb, self.ino);
        let (len, written) = extent_len(entry);
        let (at, start, len) = (u64::from(entry.ee_block.get()), extent_start(entry).0, u64::from(len));
        let end = at.saturating_add(len);
        let eof = self.size().div_ceil(sb.block_size.into());
        let may_pass_eof = !written || self.has(InodeFlags::VERITY);
        let past = frame.end.is_some_and(|most| end > most) && !(end > eof && may_pass_eof);
        if !on_volume(sb, start, len) || len == 0 {
            return self.emit(Issue::BadExtent { ino, at, block: start, len });
        }
        if at < frame.start || at < owned.end || past {
            return self.emit(Issue::ExtentOrder { ino, block: frame.block, index, at });
        }
        if self.is_dir() && end > self.most_dir_blocks() {
            return self.emit(Issue::BadExtent { ino, at, block: start, len });
        }
        if self.is_dir() && !written {
            self.emit(Issue::ExtentUnwritten { ino, at });
        }
        frame.start = end;
        self.own(owned, at, start, len);
        if written {
            owned.last_written = end.checked_sub(1);
        }
    }

    /// Checks an entry of an inner node. Returns the node below, if it can be walked.
    fn index(&mut self, frame: &mut Frame, index: u16, owned: &mut Owned) -> Option<Frame> {
        let place = |index: u16| usize::from(index).saturating_mul(ENTRY).saturating_add(ENTRY);
        let entry_at = |index: u16| {
            let bytes = frame.bytes.get(place(index)..)?;
            Some(*RawExtentIndex::ref_from_prefix(bytes).ok()?.0)
        };
        let entry = entry_at(index)?;
        let next = index.checked_add(1).filter(|&next| next < frame.entries).and_then(entry_at);
        let at = u64::from(entry.ei_block.get());
        let end = next.map_or(frame.end, |next| Some(next.ei_block.get().into()));
        let (ino, block) = (self.ino, index_leaf(&entry).0);
        if !on_volume(&self.view.sb, block, 1) {
            self.emit(Issue::IllegalBlock { ino, at, block });
            return None;
        }
        let past = end.is_some_and(|end| end <= at) || frame.end.is_some_and(|most| at >= most);
        if at < frame.start || past {
            self.emit(Issue::ExtentOrder { ino, block: frame.block, index, at });
            return None;
        }
        if frame.path.contains(&block) {
            self.emit(Issue::ExtentCircle { ino, block: frame.block, below: block });
            return None;
        }
        frame.start = at.saturating_add(1);
        let is_new = self.own_node(owned, at, block);
        let bytes = self.read_node(block, at, is_new)?;
        let mut child = self.node(bytes, block, frame.depth.checked_sub(1))?;
        // Entries of both kinds begin with their first file block.
        let first = child.bytes.get(ENTRY..).and_then(|bytes| bytes.first_chunk().copied());
        let first = u64::from(u32::from_le_bytes(first.unwrap_or_default()));
        if first != at {
            self.emit(Issue::ExtentStart { ino, block, found: first, expected: at });
        }
        (child.start, child.end) = (first, end);
        child.path.extend_from_slice(&frame.path);
        Some(child)
    }

    /// Reads a block of a tree. Returns `None` if it cannot be read, belongs to the volume itself, or is read too
    /// often.
    fn read_node(&mut self, block: u64, at: u64, is_new: bool) -> Option<Vec<u8>> {
        if self.view.zones.overlap(VolBlock(block), 1) {
            return None;
        }
        if !is_new && !self.allowance.node(&self.state.budget) {
            self.emit(Issue::TooManyIllegal { ino: self.ino });
            return None;
        }
        match self.view.read(VolBlock(block), 1) {
            Ok(bytes) => Some(bytes),
            Err(_) => {
                self.emit(Issue::IllegalBlock { ino: self.ino, at, block });
                None
            }
        }
    }

    /// Walks the block map in `i_block`.
    pub(super) fn pointers(&mut self, owned: &mut Owned) {
        owned.is_resize = self.ino == RESIZE_INO;
        let per_block = u64::from(self.view.sb.block_size.pointers());
        let map: Vec<u32> = numbers(&self.raw.i_block).iter().map(|number| number.get()).collect();
        if self.kind() == Some(FileKind::Symlink) && !self.view.is_own(self.ino) {
            return self.block_of_target(&map, owned);
        }
        self.direct(map.get(..12).unwrap_or_default(), 0, owned);
        let mut at = 12_u64;
        for (level, root) in (1_u32..=3).zip(map.iter().skip(12)) {
            self.indirect(u64::from(*root), level, at, owned);
            at = at.saturating_add(per_block.saturating_pow(level));
        }
        owned.last_written = owned.end.checked_sub(1);
    }

    /// Checks the blocks of a symbolic link: it has one block, and other numbers in its map are ignored, as by e2fsck
    /// (`PR_1_TOOBIG_SYMLINK`).
    fn block_of_target(&mut self, map: &[u32], owned: &mut Owned) {
        self.direct(map.get(..1).unwrap_or_default(), 0, owned);
        for (at, &block) in (0_u64..).zip(map).skip(1).filter(|(_, block)| **block != 0) {
            self.illegal(at, block.into(), owned);
        }
    }

    /// Walks a tree of `level` levels below block `root`, whose first file block is `at`.
    fn indirect(&mut self, root: u64, level: u32, at: u64, owned: &mut Owned) {
        let per_block = u64::from(self.view.sb.block_size.pointers());
        let mut waiting = Vec::from([(root, level, at)]);
        while let Some((block, level, at)) = waiting.pop() {
            if block == 0 {
                continue;
            }
            if !on_volume(&self.view.sb, block, 1) {
                self.illegal(at, block, owned);
                continue;
            }
            if !owned.is_resize && is_own(self.view, block) && !self.is_table(block) {
                self.illegal(at, block, owned);
                continue;
            }
            let is_new = self.own_node(owned, at, block);
            let Some(bytes) = self.read_node(block, at, is_new) else { continue };
            let list: Vec<u32> = numbers(&bytes).iter().map(|number| number.get()).collect();
            if level == 1 {
                self.direct(&list, at, owned);
                continue;
            }
            let span = per_block.saturating_pow(level.saturating_sub(1));
            let below = (0_u64..).zip(list.iter()).filter(|(_, block)| **block != 0);
            let place = |n: u64| at.saturating_add(n.saturating_mul(span));
            let older = waiting.len();
            waiting.extend(below.map(|(n, block)| (u64::from(*block), level.saturating_sub(1), place(n))));
            // The first one is processed next.
            waiting.get_mut(older..).unwrap_or_default().reverse();
        }
    }

    /// Returns whether a metadata block may be a table of a file, because the location of the metadata is damaged: the block
    /// contains pointers, and all of them refer to blocks of the volume.
    fn is_table(&self, block: u64) -> bool {
        let Ok(bytes) = self.view.read(VolBlock(block), 1) else { return false };
        let list = numbers(&bytes);
        let mut pointers =
            list.iter().map(|number| u64::from(number.get())).filter(|&number| number != 0).peekable();
        pointers.peek().is_some() && pointers.all(|number| on_volume(&self.view.sb, number, 1))
    }

    /// Checks block numbers of data, the first of which is for file block `at`.
    fn direct(&mut self, list: &[u32], at: u64, owned: &mut Owned) {
        let mut rest = list;
        let mut at = at;
        while let Some((&first, others)) = rest.split_first() {
            let follows = |(n, number): &(u64, &u32)| {
                first != 0 && u64::from(**number) == u64::from(first).saturating_add(*n)
            };
            let more = (1_u64..).zip(others).take_while(follows).count();
            let len = to_u64(more).saturating_add(1);
            let start = u64::from(first);
            if first != 0 {
                let may_be_there = !self.is_dir() || at.saturating_add(len) <= self.most_dir_blocks();
                if on_volume(&self.view.sb, start, len) && may_be_there {
                    self.own(owned, at, start, len);
                } else {
                    for block in start..start.saturating_add(len) {
                        self.illegal(at, block, owned);
                    }
                }
            }
            at = at.saturating_add(len);
            rest = others.get(more..).unwrap_or_default();
        }
    }

    /// Reports an illegal block, up to a limit.
    fn illegal(&mut self, at: u64, block: u64, owned: &mut Owned) {
        /// After this number e2fsck asks to clear the inode.
        const MANY: u32 = 12;
        owned.illegal = owned.illegal.saturating_add(1);
        match owned.illegal {
            MANY => self.emit(Issue::TooManyIllegal { ino: self.ino }),
            few if few < MANY => self.emit(Issue::IllegalBlock { ino: self.ino, at, block }),
            _ => {}
        }
    }

    /// Returns the maximum number of blocks of a directory.
    fn most_dir_blocks(&self) -> u64 {
        if self.view.sb.incompat.contains(Incompat::LARGE_DIR) {
            return u64::MAX;
        }
        1_u64.checked_shl(21_u32.saturating_sub(self.view.sb.raw.s_log_block_size.get())).unwrap_or(u64::MAX)
    }
}
