//! Listing a directory: in hash order if Linux does so (`is_dx_dir` in fs/ext4/dir.c), otherwise from front to back.
//!
//! Invariant: memory contains one block of entries at a time and one slot for each entry. Blocks that share a hash are
//! the exception: these few blocks are sorted as one. If more blocks share it, equal keys are increased in their order.
//! Invariant: keys never decrease. An entry in a leaf to which its hash does not belong is listed at the edge of that
//! leaf, and reported.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Structure};
use obento_block::Block;
use obento_driver::{Cookie, DirEntry, EntrySink};

use super::block::BlockStore;
use super::cookie::{Key, Offsets, Resume};
use super::fold::Folder;
use super::hash::{CONTINUED, Hasher, NameHash};
use super::index::{DirIndex, IndexLeaf};
use super::record::{Record, Records, file_kind};
use super::shape::DirShape;

/// The hashes of a leaf that is the only one.
const ALL_HASHES: (u32, u32) = (0, u32::MAX);
/// Maximum number of leaves that share a hash and are sorted as one. Linux sorts all of them; names with more
/// collisions are made only on purpose.
const SHARED: usize = 4;

/// The state of one listing of a directory.
pub(super) struct Listing<'a, 's> {
    shape: &'a DirShape,
    sink: &'a mut EntrySink<'s>,
    slots: Vec<Slot>,
    /// The lowest key that is not used.
    free: Key,
    folder: Folder,
}

/// An entry that was read but not yet passed on. All slots of a block of 4 KiB fit 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Slot {
    hash: NameHash,
    place: SlotPlace,
}

/// The number of a run, and the offset of a record in it.
///
/// Invariant: an offset is a multiple of 4 below 2^18, and the numbers of runs are at most [`SHARED`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct SlotPlace(u32);

impl SlotPlace {
    const OFFSET: u32 = (1 << 18) - 1;

    fn new(run: usize, offset: u32) -> Self {
        let run = u32::try_from(run).unwrap_or(u32::MAX).min(u32::MAX >> 18);
        Self(run << 18 | offset & Self::OFFSET)
    }

    fn run(self) -> usize {
        to_usize((self.0 >> 18).into())
    }

    fn offset(self) -> u32 {
        self.0 & Self::OFFSET
    }
}

impl<'a, 's> Listing<'a, 's> {
    pub(super) fn new(shape: &'a DirShape, sink: &'a mut EntrySink<'s>) -> Self {
        Self { shape, sink, slots: Vec::new(), free: Key::default(), folder: Folder::default() }
    }

    /// Lists all blocks from `from` on in the order of the index. A damaged index is reported once, and the directory
    /// is then listed from front to back.
    pub(super) fn indexed(&mut self, store: BlockStore<'_>, from: Cookie) -> ControlFlow<()> {
        let key = match Resume::from(from) {
            Resume::Offset(offset) => return self.linear(store, offset, Offsets::Marked),
            Resume::Hash(key) => key,
        };
        // Nodes are few, and the order can be chosen only before the first entry.
        let index = DirIndex::open(store)
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

    fn leaves(&mut self, store: BlockStore<'_>, index: &DirIndex<'_>, from: Key) -> ControlFlow<()> {
        let mut path = index.path((from != Key::default()).then(|| from.major()));
        let mut reached = path.descend().map(|()| true);
        let mut held = Vec::new();
        for _ in 0..self.shape.blocks {
            match (reached, path.leaf()) {
                (Err(error), _) => (self.sink)(Err(error))?,
                (Ok(true), Some(leaf)) => self.leaf(store, &index.hasher, leaf, from, &mut held)?,
                _ => return self.give(store, &mut held, None, from),
            }
            reached = path.advance();
        }
        self.give(store, &mut held, None, from)?;
        match reached {
            Ok(false) => ControlFlow::Continue(()),
            _ => (self.sink)(Err(path.bad_entry())),
        }
    }

    /// Lists one leaf except the entries with the first hash of the next leaf, which stay in `held`.
    fn leaf(
        &mut self,
        store: BlockStore<'_>,
        hasher: &Hasher,
        leaf: IndexLeaf,
        from: Key,
        held: &mut Vec<(u32, Block)>,
    ) -> ControlFlow<()> {
        let (block, unproved) = match store.leaf_to_show(leaf.at) {
            Ok(block) => block,
            Err(error) => return (self.sink)(Err(error)),
        };
        let (damage, misplaced) =
            self.collect(held.len(), &store.records(leaf.at, &block), hasher, leaf.range());
        held.push((leaf.at, block));
        let shared = leaf.next.filter(|next| next & CONTINUED != 0).map(|next| next & !CONTINUED);
        self.give(store, held, shared, from)?;
        if held.len() >= SHARED {
            self.give(store, held, None, from)?;
        }
        // A wrong checksum explains misplaced entries, so these are not reported, too.
        let damage = unproved.or(damage).into_iter().chain(misplaced.filter(|_| unproved.is_none()));
        damage.into_iter().try_for_each(|error| (self.sink)(Err(error)))
    }

    /// Lists the entries of `held` below the hash `shared`, and releases the blocks that are done.
    fn give(
        &mut self,
        store: BlockStore<'_>,
        held: &mut Vec<(u32, Block)>,
        shared: Option<u32>,
        from: Key,
    ) -> ControlFlow<()> {
        let run = |number: usize| held.get(number).map(|(at, block)| store.records(*at, block));
        self.emit_below(shared, run, from)?;
        let done = self.slots.iter().map(|slot| slot.place.run()).min().unwrap_or(held.len());
        held.drain(..done.min(held.len()));
        for slot in &mut self.slots {
            slot.place = SlotPlace::new(slot.place.run().saturating_sub(done), slot.place.offset());
        }
        ControlFlow::Continue(())
    }

    /// Lists a directory of one block in hash order.
    pub(super) fn single(&mut self, store: BlockStore<'_>, hasher: &Hasher, from: Cookie) -> ControlFlow<()> {
        match (store.leaf_to_show(0), Resume::from(from)) {
            (Ok((block, damage)), Resume::Hash(key)) => {
                self.sorted(&[store.records(0, &block)], hasher, key)?;
                damage.into_iter().try_for_each(|error| (self.sink)(Err(error)))
            }
            (Err(error), _) => (self.sink)(Err(error)),
            // No listing of this directory has returned this cookie.
            (_, Resume::Offset(_)) => ControlFlow::Continue(()),
        }
    }

    /// Lists `runs` as one leaf in the order of their hashes. Errors of the whole run follow its entries, so that a
    /// listing in several calls reports them once.
    pub(super) fn sorted(&mut self, runs: &[Records<'_>], hasher: &Hasher, from: Key) -> ControlFlow<()> {
        let mut damage = [None, None];
        for ((number, run), damage) in runs.iter().enumerate().zip(&mut damage) {
            *damage = self.collect(number, run, hasher, ALL_HASHES).0;
        }
        self.emit_below(None, |number| runs.get(number).copied(), from)?;
        damage.into_iter().flatten().try_for_each(|error| (self.sink)(Err(error)))
    }

    /// Fills slots from a run whose hashes belong to `range`. Returns the error that ended the walk through it, and
    /// the first misplaced entry.
    fn collect(
        &mut self,
        number: usize,
        run: &Records<'_>,
        hasher: &Hasher,
        (low, high): (u32, u32),
    ) -> (Option<Error>, Option<Error>) {
        let mut misplaced = None;
        if let Err(error) = self.slots.try_reserve(run.bytes.len() / 12) {
            return (Some(error.into()), None);
        }
        for (position, record) in run.walk().enumerate() {
            let record = match record {
                Ok(record) => record,
                Err(error) => return (Some(error), misplaced),
            };
            if record.inode == 0 || run.is_dots(position, &record) {
                continue;
            }
            let found = self.shape.hash(hasher, &mut self.folder, record.name);
            let hash = NameHash { major: found.major.clamp(low, high), ..found };
            if hash != found {
                misplaced.get_or_insert_with(|| self.misplaced(run, record.offset, found.major));
            }
            self.slots.push(Slot { hash, place: SlotPlace::new(number, record.offset) });
        }
        (None, misplaced)
    }

    /// Passes on the entries of the slots below the hash `shared`, in their order, and removes these slots.
    fn emit_below<'r>(
        &mut self,
        shared: Option<u32>,
        run: impl Fn(usize) -> Option<Records<'r>>,
        from: Key,
    ) -> ControlFlow<()> {
        self.slots.sort_unstable();
        // The sink may not borrow the slots.
        let mut slots = core::mem::take(&mut self.slots);
        let below = shared.map_or(slots.len(), |hash| slots.partition_point(|slot| slot.hash.major < hash));
        let done = slots.drain(..below).try_for_each(|slot| {
            let Some(run) = run(slot.place.run()) else { return ControlFlow::Continue(()) };
            let key = Key::new(slot.hash).max(self.free);
            self.free = key.next();
            match run.at(slot.place.offset()) {
                Ok(record) if key >= from => self.emit(&run, &record, key.cookie()),
                _ => ControlFlow::Continue(()),
            }
        });
        self.slots = slots;
        done
    }

    fn misplaced(&self, run: &Records<'_>, offset: u32, hash: u32) -> Error {
        let structure = Structure::DirectoryIndex(self.shape.dir);
        Corrupt::Field { structure, field: "hash", block: run.block, offset, found: hash.into() }.into()
    }

    /// Lists all blocks from byte `from` on, from front to back.
    pub(super) fn linear(&mut self, store: BlockStore<'_>, from: u64, offsets: Offsets) -> ControlFlow<()> {
        let size = u64::from(self.shape.block_size);
        let first = u32::try_from(from.checked_div(size).unwrap_or(0)).unwrap_or(u32::MAX);
        store.scan(first, |at, block| match block {
            Ok((block, damage)) => {
                let start = u64::from(at).saturating_mul(size);
                self.run(&store.records(at, block), start, from, offsets)?;
                damage.into_iter().try_for_each(|error| (self.sink)(Err(error)))
            }
            Err(error) => (self.sink)(Err(error)),
        })
    }

    /// Lists the records of `run` from byte `from` on. `start` is the offset of its first byte.
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
