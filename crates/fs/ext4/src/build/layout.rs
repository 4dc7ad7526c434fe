//! The layout of a tree in a volume: numbers of inodes, blocks of files.
//!
//! Invariant: inodes are numbered consecutively from the first free one on. The inode tables of all groups before the
//! last used group are therefore full; bitmaps and descriptors rely on this.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks and inodes")]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Error;
use obento_base::wire::to_usize;
use obento_driver::tree::Body;
use obento_driver::{FormatError, NodeId, Tree};

use super::map::{self, PlannedMap, index};
use super::needs::{Needs, body_blocks, data_blocks};
use super::received::Received;
use crate::format::{Draft, FIRST_INO, Piece, ROOT_INO};
use crate::size::BlockSize;
use crate::xattr::USERS_MAX;

/// The layout of a tree.
#[derive(Default)]
pub(super) struct Layout {
    /// The first inode of the tree, except nodes with fixed numbers.
    first_ino: u32,
    lost_and_found: Option<NodeId>,
    /// The first block of each node whose blocks form one run; 0 for other nodes.
    starts: Vec<u64>,
    maps: BTreeMap<NodeId, PlannedMap>,
    /// The blocks of attributes by their set.
    attributes: Vec<Vec<u64>>,
    /// The first inode of a value, after those of the tree.
    first_value: u32,
    /// The maps of values.
    values: Vec<PlannedMap>,
    goal: u64,
}

impl Layout {
    /// Lays out `tree` in the free space of `draft`, in which the blocks of the `received` files are already
    /// allocated. Fails with `TooSmall`, and then leaves the draft unusable.
    pub fn new(
        tree: &Tree,
        needs: &Needs,
        received: Option<&Received>,
        draft: &mut Draft,
    ) -> Result<Self, FormatError> {
        let last = draft.inodes.keys().next_back().copied().unwrap_or(0).max(FIRST_INO);
        let mut this = Self { first_ino: last + 1, lost_and_found: needs.lost_and_found, ..Self::default() };
        let count = to_usize(tree.len().into());
        this.starts.try_reserve_exact(count).map_err(Error::from)?;
        this.starts.resize(count, 0);
        for (id, node) in tree.nodes() {
            draft.take_inode(this.ino(id), node.body == Body::Directory);
            this.first_value = this.first_value.max(this.ino(id) + 1);
        }
        this.first_value = this.first_value.max(this.first_ino);
        this.place_directories(tree, needs, draft)?;
        this.place_values(needs, draft)?;
        this.place_files(tree, received, draft)?;
        draft.count_free();
        Ok(this)
    }

    /// Returns the first inode of the tree that is not an inode of every volume.
    pub fn first_ino(&self) -> u32 {
        self.first_ino
    }

    /// Returns the number of a node's inode.
    pub fn ino(&self, id: NodeId) -> u32 {
        if id == NodeId::ROOT {
            return ROOT_INO;
        }
        let before = id.0 - 1;
        let number = self.first_ino + before;
        match self.lost_and_found {
            Some(lost) if lost == id => FIRST_INO,
            Some(lost) if lost < id => number - 1,
            _ => number,
        }
    }

    /// Places directories, and data that does not fit into inodes, first, since these are read most often.
    fn place_directories(
        &mut self,
        tree: &Tree,
        needs: &Needs,
        draft: &mut Draft,
    ) -> Result<(), FormatError> {
        for (id, node) in tree.nodes() {
            match node.body {
                Body::Directory => {
                    let whole = 0..needs.directory_blocks(id).into();
                    self.place(draft, id, whole.end, core::slice::from_ref(&whole))?;
                }
                Body::Symlink if tree.target(node).len() >= super::needs::FAST_TARGET => {
                    self.place(draft, id, 1, core::slice::from_ref(&(0..1)))?;
                }
                _ => {}
            }
        }
        for (set, users) in &needs.attributes {
            let mut blocks = Vec::new();
            if set.block.is_some() {
                for _ in 0..users.div_ceil(USERS_MAX) {
                    let run = self.take(draft, 1)?;
                    blocks.push(run.start);
                }
            }
            self.attributes.push(blocks);
        }
        Ok(())
    }

    fn place_values(&mut self, needs: &Needs, draft: &mut Draft) -> Result<(), FormatError> {
        for at in 0..needs.values.len() {
            let ino = self.value_ino(at);
            draft.take_inode(ino, false);
            let whole = 0..needs.value_blocks(&draft.sb, at);
            let map = self.place_pieces(draft, ino, core::slice::from_ref(&whole), None)?;
            self.values.push(map);
        }
        Ok(())
    }

    fn place_files(
        &mut self,
        tree: &Tree,
        received: Option<&Received>,
        draft: &mut Draft,
    ) -> Result<(), FormatError> {
        for (id, node) in tree.nodes() {
            let Body::File { size, data } = node.body else { continue };
            let len = body_blocks(&draft.sb, size);
            if let Some(pieces) = received.and_then(|received| received.pieces_of(node)) {
                self.keep(draft, id, len, pieces)?;
                continue;
            }
            match (data, tree.data_ranges(id)) {
                // The most frequent case, which needs no list.
                (Some(_), None) if size > 0 => {
                    self.place(draft, id, len, core::slice::from_ref(&(0..len)))?;
                }
                _ => {
                    let ranges = data_blocks(tree, &draft.sb, id, node);
                    if !ranges.is_empty() {
                        self.place(draft, id, len, &ranges)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Maps a file of `whole` blocks whose blocks are already allocated.
    fn keep(
        &mut self,
        draft: &mut Draft,
        id: NodeId,
        whole: u64,
        pieces: &[Piece],
    ) -> Result<(), FormatError> {
        if let [Piece { at: 0, block, len }] = pieces
            && u64::from(*len) == whole
            && map::is_simple(&draft.sb, whole)
        {
            if let Some(start) = self.starts.get_mut(index(id)) {
                *start = *block;
            }
            return Ok(());
        }
        let owned = pieces.iter().map(|piece| draft.sb.cluster.round_up(piece.len.into())).sum();
        let map = map::map(draft, self.ino(id), self.goal, pieces.to_vec(), owned)?;
        self.maps.insert(id, map);
        Ok(())
    }

    /// Allocates blocks for `ranges` of a node of `whole` blocks. All other blocks of the node are holes.
    fn place(
        &mut self,
        draft: &mut Draft,
        id: NodeId,
        whole: u64,
        ranges: &[Range<u64>],
    ) -> Result<(), FormatError> {
        let mut taken = None;
        if let [Range { start: 0, end }] = ranges
            && *end == whole
            && map::is_simple(&draft.sb, whole)
        {
            let run = self.take(draft, *end)?;
            if run.end - run.start == *end {
                if let Some(start) = self.starts.get_mut(index(id)) {
                    *start = run.start;
                }
                return Ok(());
            }
            taken = Some(run);
        }
        let map = self.place_pieces(draft, self.ino(id), ranges, taken)?;
        self.maps.insert(id, map);
        Ok(())
    }

    /// Allocates blocks for inode `ino` that may be several pieces. `taken` is the first piece, if it is already
    /// allocated.
    fn place_pieces(
        &mut self,
        draft: &mut Draft,
        ino: u32,
        ranges: &[Range<u64>],
        mut taken: Option<Range<u64>>,
    ) -> Result<PlannedMap, FormatError> {
        let cluster = draft.sb.cluster;
        let mut pieces = Vec::new();
        let mut owned = 0_u64;
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let left = (range.end - at).min(map::longest(&draft.sb));
                let run = match taken.take() {
                    Some(run) => run,
                    None => self.take(draft, left)?,
                };
                let len = run.end - run.start;
                owned += cluster.round_up(len);
                pieces.push(map::piece(at, &run));
                at += len.max(1);
            }
        }
        map::map(draft, ino, self.goal, pieces, owned)
    }

    /// Allocates up to `len` contiguous blocks after the previous ones.
    fn take(&mut self, draft: &mut Draft, len: u64) -> Result<Range<u64>, FormatError> {
        let run = draft.space.allocate_run(map::goal(draft, self.goal, len), len)?;
        draft.note_run(&run);
        self.goal = run.end;
        Ok(run)
    }

    /// Returns the first block of a node that is one piece.
    pub fn start(&self, id: NodeId) -> Option<u64> {
        self.starts.get(index(id)).copied().filter(|&start| start != 0)
    }

    /// Returns the map of a node in several pieces.
    pub fn map(&self, id: NodeId) -> Option<&PlannedMap> {
        self.maps.get(&id)
    }

    /// Returns the block of attributes for user number `user` of the set at index `set`.
    pub fn attribute_block(&self, set: usize, user: u32) -> Option<u64> {
        let at = to_usize((user / USERS_MAX).into());
        self.attributes.get(set).and_then(|blocks| blocks.get(at)).copied()
    }

    /// Returns the inode of the value at index `at`.
    pub fn value_ino(&self, at: usize) -> u32 {
        self.first_value + u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Returns the map of the value at index `at`.
    pub fn value_map(&self, at: usize) -> Option<&PlannedMap> {
        self.values.get(at)
    }

    /// See [`obento_driver::BuildPlan::places`].
    pub fn places(
        &self,
        tree: &Tree,
        block_size: BlockSize,
        id: NodeId,
        sink: &mut dyn FnMut(Range<u64>, u64),
    ) {
        let Some(Body::File { size, .. }) = tree.node(id).map(|node| node.body) else { return };
        if let Some(start) = self.start(id) {
            return sink(0..size, block_size.len(start));
        }
        let Some(map) = self.maps.get(&id) else { return };
        for (range, offset) in map::runs(&map.pieces, block_size) {
            sink(range.start..range.end.min(size), offset);
        }
    }
}
