//! Finding a name in a directory, and space for a name that does not exist. An intact index is used if the directory
//! has one; otherwise the search runs from front to back.
//!
//! Invariant: a block is read once, whether a name, space or both are searched.
//! Source: Linux fs/ext4/namei.c, `__ext4_find_entry`, `ext4_dx_find_entry`, `ext4_match`, `ext4_find_dest_de`.

use core::ops::ControlFlow;

use alloc::vec::Vec;

use obento_base::{Error, Ino, Result};
use obento_block::Block;

use super::block::BlockStore;
use super::fold::{Folder, same};
use super::grow::Growth;
use super::hash::Hasher;
use super::index::{DirIndex, IndexPath};
use super::leaf::{EntryPosition, FreeSlot, needed};
use super::record::{Record, Records};
use super::shape::DirShape;

/// The place of entries.
#[derive(Clone, Debug)]
pub(crate) enum EntriesLocation {
    Block(Block),
    /// The first (0) or the second (1) part of an inline directory.
    Inline(usize),
}

/// A name that was found.
#[derive(Clone, Debug)]
pub(crate) struct FoundName {
    pub(crate) home: EntriesLocation,
    pub(crate) spot: EntryPosition,
    pub(crate) ino: Ino,
    /// The damage of the block, if damaged blocks are shown.
    pub(crate) damage: Option<Error>,
}

/// The place for a new name.
#[derive(Debug)]
pub(crate) enum EntrySpace {
    Slot(EntriesLocation, FreeSlot),
    /// The directory must grow before it has space.
    Grow(Growth),
}

/// The search for a name.
pub(super) struct NameSearch<'a> {
    shape: &'a DirShape,
    name: &'a [u8],
    /// In a case-insensitive directory: the folded name, if it can be folded.
    folded: Option<Vec<u8>>,
    folder: Folder,
}

impl<'a> NameSearch<'a> {
    pub(super) fn new(shape: &'a DirShape, name: &'a [u8]) -> Result<Self> {
        let mut folder = Folder::default();
        let mut folded = None;
        if let Some(bytes) = shape.fold.and_then(|_| folder.fold(name)) {
            let mut own = Vec::new();
            own.try_reserve_exact(bytes.len())?;
            own.extend_from_slice(bytes);
            folded = Some(own);
        }
        Ok(Self { shape, name, folded, folder })
    }

    /// Searches with the index. An index that is damaged, or that may use another folding, is not relied on.
    pub(super) fn indexed(&mut self, store: BlockStore<'_>) -> Result<FoundName> {
        match self.by_index(store) {
            Err(Error::NotFound) if self.shape.fold.is_none_or(|fold| !fold.scan) => Err(Error::NotFound),
            Err(Error::NotFound | Error::Corrupt(_) | Error::Unsupported(_) | Error::Device(_)) => {
                self.linear(store)
            }
            result => result,
        }
    }

    fn by_index(&mut self, store: BlockStore<'_>) -> Result<FoundName> {
        let index = DirIndex::open(store)?;
        let hash = self.hash(&index.hasher);
        let mut path = index.path(Some(hash));
        path.descend()?;
        self.leaves(store, &mut path, hash)?.ok_or(Error::NotFound)
    }

    /// Searches the leaf at the end of `path` and the following ones that continue with `hash`.
    fn leaves(
        &mut self,
        store: BlockStore<'_>,
        path: &mut IndexPath<'_>,
        hash: u32,
    ) -> Result<Option<FoundName>> {
        for _ in 0..self.shape.blocks {
            let Some(leaf) = path.leaf() else { break };
            let (block, damage) = store.leaf_to_show(leaf.at)?;
            if let Some(found) = self.look(&store.records(leaf.at, &block), |_| {})? {
                return Ok(Some(hit(EntriesLocation::Block(block), found, damage)));
            }
            if let Some(damage) = damage {
                return Err(damage);
            }
            if !leaf.continues(hash) || !path.advance()? {
                break;
            }
        }
        Ok(None)
    }

    fn hash(&self, hasher: &Hasher) -> u32 {
        hasher.hash(self.folded.as_deref().unwrap_or(self.name)).major
    }

    /// Searches all blocks. If one could not be read, fails with its error and not with `NotFound`, since the name
    /// may be there.
    pub(super) fn linear(&mut self, store: BlockStore<'_>) -> Result<FoundName> {
        self.scan(store, |_, _, _| {})
    }

    /// Searches like [`Self::linear`], and passes every other record to `pass`, with its block and the block's place.
    fn scan(
        &mut self,
        store: BlockStore<'_>,
        mut pass: impl FnMut(u32, &Block, &Record<'_>),
    ) -> Result<FoundName> {
        let mut answer = Err(Error::NotFound);
        let _ = store.scan(0, |at, block| {
            let found = block.and_then(|(block, damage)| {
                let found = self.look(&store.records(at, block), |record| pass(at, block, record))?;
                match (found, damage) {
                    (None, Some(damage)) => Err(damage),
                    (found, damage) => {
                        Ok(found.map(|found| hit(EntriesLocation::Block(block.clone()), found, damage)))
                    }
                }
            });
            match found {
                Ok(None) => return ControlFlow::Continue(()),
                Ok(Some(found)) => answer = Ok(found),
                Err(error) => {
                    if matches!(answer, Err(Error::NotFound)) {
                        answer = Err(error);
                    }
                    return ControlFlow::Continue(());
                }
            }
            ControlFlow::Break(())
        });
        answer
    }

    /// Searches one run of records, and passes the other records to `pass`.
    pub(super) fn look(
        &mut self,
        run: &Records<'_>,
        mut pass: impl FnMut(&Record<'_>),
    ) -> Result<Option<(EntryPosition, Ino)>> {
        let mut before = None;
        for record in run.walk() {
            let record = record?;
            if record.inode != 0 && self.matches(record.name) {
                let ino = run.inode(&record, self.shape.max_ino)?;
                return Ok(Some((EntryPosition { offset: record.offset, before }, ino)));
            }
            pass(&record);
            before = Some(record.offset);
        }
        Ok(None)
    }

    fn matches(&mut self, name: &[u8]) -> bool {
        match self.shape.fold {
            Some(fold) => same(fold, self.name, self.folded.as_deref(), name, &mut self.folder),
            // Most names that begin alike differ in the last byte.
            None => self.name.last() == name.last() && self.name == name,
        }
    }

    /// Returns the place for the name in an indexed directory. Fails with `Exists`, `Corrupt`, or with `NoSpace` if
    /// the index is full.
    pub(super) fn room_in_index(&mut self, store: BlockStore<'_>) -> Result<EntrySpace> {
        let index = DirIndex::open(store)?;
        let hash = self.hash(&index.hasher);
        let mut path = index.path(Some(hash));
        path.descend()?;
        let leaf = path.leaf().ok_or_else(|| path.bad_entry())?;
        let block = store.leaf(leaf.at)?;
        let mut wanted = Wanted::new(self.name, self.shape.records_end());
        if self.look(&store.records(leaf.at, &block), |record| wanted.see(record, false))?.is_some() {
            return Err(Error::Exists);
        }
        let room = match wanted.slot {
            Some(slot) => Ok(EntrySpace::Slot(EntriesLocation::Block(block), slot)),
            None => path.growth(block).map(EntrySpace::Grow),
        };
        if leaf.continues(hash) && path.advance()? && self.leaves(store, &mut path, hash)?.is_some() {
            return Err(Error::Exists);
        }
        if self.shape.fold.is_some_and(|fold| fold.scan) {
            absent(self.linear(store))?;
        }
        room
    }

    /// Returns the place for the name in a directory without an index. Fails with `Exists`, or with `Corrupt` if a
    /// block that may contain the name cannot be read.
    pub(super) fn room_in_blocks(&mut self, store: BlockStore<'_>) -> Result<EntrySpace> {
        let mut wanted = Wanted::new(self.name, self.shape.records_end());
        let mut home = None;
        absent(self.scan(store, |at, block, record| {
            wanted.see(record, at == 0 && record.offset == 0);
            if wanted.slot.is_some() && home.is_none() {
                home = Some(block.clone());
            }
        }))?;
        Ok(match (home, wanted.slot, self.shape.new_index) {
            (Some(block), Some(slot), _) => EntrySpace::Slot(EntriesLocation::Block(block), slot),
            (_, _, Some(version)) if self.shape.blocks == 1 => {
                EntrySpace::Grow(Growth::Index { first: store.leaf(0)?, version })
            }
            _ => EntrySpace::Grow(Growth::Append),
        })
    }

    /// Returns the place for the name in the two parts of an inline directory, or `None` if it must grow. Fails with
    /// `Exists`.
    pub(super) fn room_inline(&mut self, runs: &[Records<'_>; 2]) -> Result<Option<EntrySpace>> {
        let mut room = None;
        for (part, run) in runs.iter().enumerate() {
            let end = u32::try_from(run.bytes.len()).unwrap_or(u32::MAX);
            let mut wanted = Wanted::new(self.name, end);
            if self.look(run, |record| wanted.see(record, false))?.is_some() {
                return Err(Error::Exists);
            }
            room = room.or(wanted.slot.map(|slot| EntrySpace::Slot(EntriesLocation::Inline(part), slot)));
        }
        Ok(room)
    }
}

fn hit(home: EntriesLocation, (spot, ino): (EntryPosition, Ino), damage: Option<Error>) -> FoundName {
    FoundName { home, spot, ino, damage }
}

/// Fails with `Exists` if the name was found.
fn absent(found: Result<FoundName>) -> Result<()> {
    match found {
        Ok(_) => Err(Error::Exists),
        Err(Error::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The first record with enough space.
struct Wanted {
    need: u32,
    /// The end of the run for records. A checksum after it looks like a record.
    end: u32,
    slot: Option<FreeSlot>,
}

impl Wanted {
    fn new(name: &[u8], end: u32) -> Self {
        Self { need: needed(name.len()), end, slot: None }
    }

    /// Examines `record`. No record may be inserted between `.` and `..`.
    fn see(&mut self, record: &Record<'_>, is_dot: bool) {
        if self.slot.is_some() || is_dot {
            return;
        }
        // Most records are exactly as long as their names need, so this test excludes them.
        if record.inode != 0 && record.len < self.need.saturating_add(needed(1)) {
            return;
        }
        let used = if record.inode == 0 { 0 } else { needed(record.name.len()) };
        let fits = record.len.checked_sub(used).is_some_and(|left| left >= self.need);
        if fits && record.offset.saturating_add(record.len) <= self.end {
            self.slot = Some(FreeSlot { offset: record.offset, len: record.len, used });
        }
    }
}
