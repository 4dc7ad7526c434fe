//! A shard of the cache: a second-chance clock for unchanged blocks, and a separate map for changed blocks.
//!
//! Invariant: `Place::Clean(i)` and `slots[i]` refer to each other. A pinned block has no slot, so that the
//! clock never selects it.
//! Invariant: a block that an edit changes is pinned until the edit ends, even if the block is dropped meanwhile.

use alloc::vec::Vec;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::Block;

pub(super) struct Shard {
    capacity: usize,
    index: HashMap<u64, Place>,
    slots: Vec<Slot>,
    hand: usize,
}

enum Place {
    Clean(usize),
    Pinned(Pin),
}

struct Slot {
    block: Block,
    used: bool,
}

/// A block that differs from the device, or that an edit is about to change.
struct Pin {
    /// The newest version; `None` if it was dropped during the edit that is in progress.
    block: Option<Block>,
    /// Mark of the newest version; `None` if no published change is waiting to be written.
    mark: Option<u32>,
    /// Whether an edit is in progress.
    editing: bool,
}

/// The result of a request to change a block.
pub(super) enum Start {
    /// Another thread is editing the block.
    Wait,
    /// The edit starts from this version.
    From(Block),
    /// The edit starts from this version, and the block was not pinned before.
    Pinned(Block),
}

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, index: HashMap::new(), slots: Vec::new(), hand: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.index.retain(|_, place| matches!(place, Place::Pinned(_)));
        self.slots.clear();
        self.hand = 0;
    }

    /// Returns the maximum number of blocks in the clock.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of blocks in the clock.
    pub(super) fn clean(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn find(&mut self, number: u64) -> Option<Block> {
        match self.index.get(&number)? {
            Place::Pinned(pin) => pin.block.clone(),
            Place::Clean(at) => {
                let slot = self.slots.get_mut(*at)?;
                slot.used = true;
                Some(slot.block.clone())
            }
        }
    }

    /// Caches `block`, or returns the cached version if one exists.
    pub(super) fn keep(&mut self, block: Block) -> Block {
        if let Some(present) = self.find(block.number()) {
            return present;
        }
        if let Some(Place::Pinned(pin)) = self.index.get_mut(&block.number()) {
            pin.block = Some(block.clone());
            return block;
        }
        let fresh = Slot { block: block.clone(), used: false };
        let place = if self.slots.len() < self.capacity {
            self.slots.push(fresh);
            self.slots.len().saturating_sub(1)
        } else {
            let place = self.victim();
            if let Some(slot) = self.slots.get_mut(place) {
                self.index.remove(&slot.block.number());
                *slot = fresh;
            }
            place
        };
        self.index.insert(block.number(), Place::Clean(place));
        block
    }

    /// Replaces the cached version of `block` and returns the old version. A pinned block stays pinned.
    pub(super) fn replace(&mut self, block: Block) -> Option<Block> {
        let place = match self.index.get_mut(&block.number()) {
            Some(Place::Pinned(pin)) => return pin.block.replace(block),
            Some(Place::Clean(at)) => self.slots.get_mut(*at).map(|slot| &mut slot.block),
            None => None,
        };
        match place {
            Some(old) => Some(core::mem::replace(old, block)),
            None => {
                self.keep(block);
                None
            }
        }
    }

    /// Drops the block. Returns whether the block is no longer pinned. An edit that is in progress pins the block until
    /// the edit ends. Another edit therefore waits, and each pin is counted once.
    pub(super) fn forget(&mut self, number: u64) -> bool {
        if let Some(Place::Pinned(pin)) = self.index.get_mut(&number)
            && pin.editing
        {
            (pin.block, pin.mark) = (None, None);
            return false;
        }
        match self.index.remove(&number) {
            Some(Place::Clean(at)) => {
                self.vacate(at);
                false
            }
            Some(Place::Pinned(_)) => true,
            None => false,
        }
    }

    /// Starts an edit of the block, which the caller last read as `base`.
    pub(super) fn start(&mut self, base: &Block) -> Start {
        let number = base.number();
        let (at, block) = match self.index.entry(number) {
            Entry::Vacant(vacant) => {
                // Only unchanged blocks are evicted, so the version of the caller is current.
                let block = base.clone();
                vacant.insert(Place::Pinned(Pin { block: Some(block.clone()), mark: None, editing: true }));
                return Start::Pinned(block);
            }
            Entry::Occupied(mut place) => match place.get_mut() {
                Place::Pinned(pin) if pin.editing => return Start::Wait,
                Place::Pinned(pin) => {
                    pin.editing = true;
                    return Start::From(pin.block.get_or_insert_with(|| base.clone()).clone());
                }
                Place::Clean(at) => {
                    let at = *at;
                    let slot = self.slots.get(at).map(|slot| slot.block.clone());
                    let block = slot.unwrap_or_else(|| base.clone());
                    place.insert(Place::Pinned(Pin {
                        block: Some(block.clone()),
                        mark: None,
                        editing: true,
                    }));
                    (at, block)
                }
            },
        };
        self.vacate(at);
        Start::Pinned(block)
    }

    /// Finishes an edit. Returns whether this is the first change by `mark`, and the old version.
    pub(super) fn publish(&mut self, block: Block, mark: u32) -> (Changed, Option<Block>) {
        let number = block.number();
        let fresh = Pin { block: Some(block), mark: Some(mark), editing: false };
        match self.index.insert(number, Place::Pinned(fresh)) {
            Some(Place::Pinned(old)) if old.mark == Some(mark) => (Changed::Again, old.block),
            Some(Place::Pinned(old)) => (Changed::First, old.block),
            // The edit pins the block, so this does not occur.
            _ => (Changed::First, None),
        }
    }

    /// Replaces the block by `block`, a change by `mark`, whether the cache contains the block or not. Returns `block`
    /// as the error while an edit is in progress.
    pub(super) fn overwrite(&mut self, block: Block, mark: u32) -> Result<Overwritten, Block> {
        let number = block.number();
        if matches!(self.index.get(&number), Some(Place::Pinned(pin)) if pin.editing) {
            return Err(block);
        }
        let fresh = Place::Pinned(Pin { block: Some(block), mark: Some(mark), editing: false });
        let (changed, was_pinned, old) = match self.index.insert(number, fresh) {
            Some(Place::Pinned(old)) if old.mark == Some(mark) => (Changed::Again, true, old.block),
            Some(Place::Pinned(old)) => (Changed::First, true, old.block),
            Some(Place::Clean(at)) => {
                let old = self.slots.get(at).map(|slot| slot.block.clone());
                self.vacate(at);
                (Changed::First, false, old)
            }
            None => (Changed::First, false, None),
        };
        Ok(Overwritten { changed, was_pinned, old })
    }

    /// Returns whether the block is pinned.
    pub(super) fn is_pinned(&self, number: u64) -> bool {
        matches!(self.index.get(&number), Some(Place::Pinned(_)))
    }

    /// Cancels an edit. Returns whether the block is no longer pinned.
    pub(super) fn cancel(&mut self, number: u64) -> bool {
        if let Some(Place::Pinned(pin)) = self.index.get_mut(&number) {
            pin.editing = false;
            if pin.mark.is_none() {
                return self.release(number);
            }
        }
        false
    }

    /// Returns the pinned block if `mark` changed it last.
    pub(super) fn changed_by(&self, number: u64, mark: u32) -> Option<Block> {
        match self.index.get(&number)? {
            Place::Pinned(pin) if pin.mark == Some(mark) => pin.block.clone(),
            _ => None,
        }
    }

    /// Records that the device contains the version of the block with the mark `mark`. Returns whether the block is no
    /// longer pinned. The block stays pinned if a later version exists, and while an edit of the block exists.
    pub(super) fn unpin(&mut self, number: u64, mark: u32) -> bool {
        match self.index.get_mut(&number) {
            Some(Place::Pinned(pin)) if pin.mark == Some(mark) => {
                // An edit that is cancelled finds no mark, and releases the block.
                pin.mark = None;
                !pin.editing && self.release(number)
            }
            _ => false,
        }
    }

    fn release(&mut self, number: u64) -> bool {
        match self.index.remove(&number) {
            Some(Place::Pinned(pin)) => {
                if let Some(block) = pin.block {
                    self.keep(block);
                }
                true
            }
            _ => false,
        }
    }

    /// Removes a slot from the clock. The last slot moves to the position of the removed slot.
    fn vacate(&mut self, at: usize) {
        if at < self.slots.len() {
            self.slots.swap_remove(at);
        }
        if let Some(moved) = self.slots.get(at) {
            self.index.insert(moved.block.number(), Place::Clean(at));
        }
    }

    /// Returns the next slot that was not used since the hand last passed it. Terminates after at most two
    /// rounds.
    fn victim(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = place.checked_add(1).filter(|&next| next < self.slots.len()).unwrap_or(0);
            match self.slots.get_mut(place) {
                Some(slot) if slot.used => slot.used = false,
                Some(_) => return place,
                // Slots behind the hand were removed: restart at 0. A full clock has slots.
                None => {}
            }
        }
    }
}

/// The result of [`Shard::overwrite`].
pub(super) struct Overwritten {
    pub(super) changed: Changed,
    pub(super) was_pinned: bool,
    /// The old version.
    pub(super) old: Option<Block>,
}

/// Whether a change is the first change of a block with its mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// The previous version has another mark, or is not a changed version.
    First,
    /// The previous version has the same mark.
    Again,
}
