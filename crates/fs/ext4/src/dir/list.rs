//! Listing a directory: in hash order where Linux does so (`is_dx_dir` in fs/ext4/dir.c), otherwise from front to
//! back.
//!
//! Invariant: memory holds one block of entries at a time, and one slot for each of them.
//! Invariant: keys never fall. An entry that the index puts where its hash does not belong is listed, and told, at
//! the edge of that leaf; equal keys are counted up in the order of the blocks.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::{Corrupt, Error, Result, Structure};
use obento_driver::{Cookie, DirEntry, EntrySink};

use super::Shape;
use super::block::Store;
use super::cookie::{Key, Offsets, Resume};
use super::fold::Folder;
use super::hash::{Hasher, NameHash};
use super::index::{Index, Leaf};
use super::record::{Record, Records, file_kind};

/// What may be in a leaf that is the only one.
pub(super) const ALL_HASHES: (u32, u32) = (0, u32::MAX);

/// One listing of a directory.
pub(super) struct Listing<'a, 's> {
    shape: &'a Shape,
    sink: &'a mut EntrySink<'s>,
    slots: Vec<Slot>,
    /// The lowest key that is not taken.
    free: Key,
    folder: Folder,
}

/// An entry that waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Slot {
    hash: NameHash,
    run: usize,
    offset: u32,
}

impl<'a, 's> Listing<'a, 's> {
    pub(super) fn new(shape: &'a Shape, sink: &'a mut EntrySink<'s>) -> Self {
        Self { shape, sink, slots: Vec::new(), free: Key::default(), folder: Folder::default() }
    }

    /// Lists all blocks from `from` on in the order of the index. A damaged index is told, once, and the listing is
    /// from front to back then.
    pub(super) fn indexed(&mut self, store: Store<'_>, from: Cookie) -> ControlFlow<()> {
        let key = match Resume::from(from) {
            Resume::Offset(offset) => return self.linear(store, offset, Offsets::Marked),
            Resume::Hash(key) => key,
        };
        // Nodes are few, and only before the first entry can the order still be chosen.
        let index = Index::open(store)
            .and_then(|index| if from == Cookie::START { index.check().map(|()| index) } else { Ok(index) });
        match index {
            Ok(index) => self.leaves(store, &index, key),
            Err(error) => {
                (self.sink)(Err(error))?;
                if from == Cookie::START {
                    self.linear(store, 0, Offsets::Marked)
                } else {
                    ControlFlow::Break(())
                }
            }
        }
    }

    fn leaves(&mut self, store: Store<'_>, index: &Index<'_>, from: Key) -> ControlFlow<()> {
        let mut path = index.path((from != Key::default()).then(|| from.major()));
        let mut reached = path.descend().map(|()| true);
        for _ in 0..self.shape.blocks {
            match (reached, path.leaf()) {
                (Err(error), _) => (self.sink)(Err(error))?,
                (Ok(true), Some(leaf)) => self.leaf(store, index, leaf, from)?,
                _ => return ControlFlow::Continue(()),
            }
            reached = path.advance();
        }
        match reached {
            Ok(false) => ControlFlow::Continue(()),
            _ => (self.sink)(Err(path.bad_entry())),
        }
    }

    fn leaf(&mut self, store: Store<'_>, index: &Index<'_>, leaf: Leaf, from: Key) -> ControlFlow<()> {
        match store.leaf(leaf.at) {
            Ok(block) => self.sorted(&[store.records(leaf.at, &block)], &index.hasher, leaf.range(), from),
            Err(error) => (self.sink)(Err(error)),
        }
    }

    /// Lists a directory of one block in hash order.
    pub(super) fn single(&mut self, store: Store<'_>, hasher: &Hasher, from: Cookie) -> ControlFlow<()> {
        match (store.leaf(0), Resume::from(from)) {
            (Ok(block), Resume::Hash(key)) => {
                self.sorted(&[store.records(0, &block)], hasher, ALL_HASHES, key)
            }
            (Err(error), _) => (self.sink)(Err(error)),
            // A cookie that no listing of this directory gave.
            (_, Resume::Offset(_)) => ControlFlow::Continue(()),
        }
    }

    /// Lists `runs` as one leaf in the order of their hashes. What is wrong with the records as a whole comes after
    /// them, so that a listing in several calls tells it once.
    pub(super) fn sorted(
        &mut self,
        runs: &[Records<'_>],
        hasher: &Hasher,
        (low, high): (u32, u32),
        from: Key,
    ) -> ControlFlow<()> {
        let mut damage = self.collect(runs, hasher);
        self.slots.sort_unstable();
        let mut misplaced = None;
        // The slots are lent out while the sink is called.
        let slots = core::mem::take(&mut self.slots);
        let done = slots.iter().try_for_each(|slot| {
            let Some(run) = runs.get(slot.run) else { return ControlFlow::Continue(()) };
            let major = slot.hash.major.clamp(low, high);
            if major != slot.hash.major {
                misplaced.get_or_insert(self.misplaced(run, slot));
            }
            let key = Key::new(NameHash { major, ..slot.hash }).max(self.free);
            self.free = key.next();
            match run.at(slot.offset) {
                Ok(record) if key >= from => self.emit(run, &record, key.cookie()),
                _ => ControlFlow::Continue(()),
            }
        });
        self.slots = slots;
        done?;
        for error in damage.iter_mut().filter_map(Option::take).chain(misplaced) {
            (self.sink)(Err(error))?;
        }
        ControlFlow::Continue(())
    }

    /// Fills the slots from `runs` and answers what stopped the walk through each.
    fn collect(&mut self, runs: &[Records<'_>], hasher: &Hasher) -> [Option<Error>; 2] {
        let mut damage = [None, None];
        self.slots.clear();
        for ((number, run), damage) in runs.iter().enumerate().zip(&mut damage) {
            if let Err(error) = self.collect_run(number, run, hasher) {
                *damage = Some(error);
            }
        }
        damage
    }

    fn collect_run(&mut self, number: usize, run: &Records<'_>, hasher: &Hasher) -> Result<()> {
        let most = run.bytes.len() / 12;
        self.slots.try_reserve(most)?;
        for (position, record) in run.walk().enumerate() {
            let record = record?;
            if record.inode == 0 || run.is_dots(position, &record) {
                continue;
            }
            let hash = self.shape.hash(hasher, &mut self.folder, record.name);
            self.slots.push(Slot { hash, run: number, offset: record.offset });
        }
        Ok(())
    }

    fn misplaced(&self, run: &Records<'_>, slot: &Slot) -> Error {
        let structure = Structure::DirectoryIndex(self.shape.dir);
        let (field, found) = ("hash", slot.hash.major.into());
        Corrupt::Field { structure, field, block: run.block, offset: slot.offset, found }.into()
    }

    /// Lists all blocks from byte `from` on, from front to back.
    pub(super) fn linear(&mut self, store: Store<'_>, from: u64, offsets: Offsets) -> ControlFlow<()> {
        let size = u64::from(self.shape.block_size);
        let first = u32::try_from(from.checked_div(size).unwrap_or(0)).unwrap_or(u32::MAX);
        store.scan(first, |at, block| match block {
            Ok(block) => {
                let start = u64::from(at).saturating_mul(size);
                self.run(&store.records(at, block), start, from, offsets)
            }
            Err(error) => (self.sink)(Err(error)),
        })
    }

    /// Lists the records of `run`, whose first byte counts as `start`, from byte `from` on.
    pub(super) fn run(
        &mut self,
        run: &Records<'_>,
        start: u64,
        from: u64,
        offsets: Offsets,
    ) -> ControlFlow<()> {
        for (position, record) in run.walk().enumerate() {
            let record = match record {
                Ok(record) => record,
                Err(error) => return (self.sink)(Err(error)),
            };
            let offset = start.saturating_add(record.offset.into());
            if record.inode != 0 && offset >= from && !run.is_dots(position, &record) {
                self.emit(run, &record, offsets.cookie(offset.saturating_add(record.len.into())))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn emit(&mut self, run: &Records<'_>, record: &Record<'_>, next: Cookie) -> ControlFlow<()> {
        let kind = if self.shape.file_types { file_kind(record.file_type) } else { None };
        let entry = run.entry(record, self.shape.max_ino);
        (self.sink)(entry.map(|(name, ino)| DirEntry { name, ino, kind, next }))
    }
}
