//! One part of the cache: a clock with a second chance for the blocks that are as on the device, and a place of their
//! own for the changed ones.
//!
//! Invariant: `Place::Clean(i)` and `slots[i]` name each other; a pinned block has no slot, so that the clock never
//! meets it.

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

/// A block that is not as on the device, or about to be.
struct Pin {
    block: Block,
    /// Who changed it last; `None` until the first change is published.
    mark: Option<u32>,
    /// Somebody makes the next version.
    editing: bool,
}

/// What a shard answers to a wish to change a block.
pub(super) enum Start {
    /// Somebody else is at it.
    Wait,
    /// Go on from this version.
    From(Block),
    /// The same; the block was not pinned before.
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

    /// How many blocks the clock holds.
    #[cfg(test)]
    pub(super) fn clean(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn find(&mut self, number: u64) -> Option<Block> {
        match self.index.get(&number)? {
            Place::Pinned(pin) => Some(pin.block.clone()),
            Place::Clean(at) => {
                let slot = self.slots.get_mut(*at)?;
                slot.used = true;
                Some(slot.block.clone())
            }
        }
    }

    /// Keeps `block`, or answers the copy that is already here.
    pub(super) fn keep(&mut self, block: Block) -> Block {
        if let Some(present) = self.find(block.number()) {
            return present;
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

    /// Puts `block` in the place of whatever is here under its number, and answers that; a pin stays a pin.
    pub(super) fn replace(&mut self, block: Block) -> Option<Block> {
        let place = match self.index.get_mut(&block.number()) {
            Some(Place::Pinned(pin)) => Some(&mut pin.block),
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

    /// Drops the block. Answers whether it was pinned.
    pub(super) fn forget(&mut self, number: u64) -> bool {
        match self.index.remove(&number) {
            Some(Place::Clean(at)) => {
                self.vacate(at);
                false
            }
            Some(Place::Pinned(_)) => true,
            None => false,
        }
    }

    /// Begins a change of the block that was last seen as `base`.
    pub(super) fn start(&mut self, base: &Block) -> Start {
        let number = base.number();
        let (at, block) = match self.index.entry(number) {
            Entry::Vacant(vacant) => {
                // Whoever evicted it found it as on the device, and so it is what the caller holds.
                let block = base.clone();
                vacant.insert(Place::Pinned(Pin { block: block.clone(), mark: None, editing: true }));
                return Start::Pinned(block);
            }
            Entry::Occupied(mut place) => match place.get_mut() {
                Place::Pinned(pin) if pin.editing => return Start::Wait,
                Place::Pinned(pin) => {
                    pin.editing = true;
                    return Start::From(pin.block.clone());
                }
                Place::Clean(at) => {
                    let at = *at;
                    let slot = self.slots.get(at).map(|slot| slot.block.clone());
                    let block = slot.unwrap_or_else(|| base.clone());
                    place.insert(Place::Pinned(Pin { block: block.clone(), mark: None, editing: true }));
                    (at, block)
                }
            },
        };
        self.vacate(at);
        Start::Pinned(block)
    }

    /// Ends a change. Answers whether `mark` had not changed the block before.
    pub(super) fn publish(&mut self, block: Block, mark: u32) -> (Changed, Option<Block>) {
        let number = block.number();
        let fresh = Pin { block, mark: Some(mark), editing: false };
        match self.index.insert(number, Place::Pinned(fresh)) {
            Some(Place::Pinned(old)) if old.mark == Some(mark) => (Changed::Again, Some(old.block)),
            Some(Place::Pinned(old)) => (Changed::First, Some(old.block)),
            // It was forgotten under the editor's hands; the number is in use again.
            _ => (Changed::First, None),
        }
    }

    /// Ends a change that was not made. Answers whether the block is no longer pinned.
    pub(super) fn cancel(&mut self, number: u64) -> bool {
        if let Some(Place::Pinned(pin)) = self.index.get_mut(&number) {
            pin.editing = false;
            if pin.mark.is_none() {
                return self.release(number);
            }
        }
        false
    }

    /// The pinned block, if `mark` changed it last.
    pub(super) fn changed_by(&self, number: u64, mark: u32) -> Option<Block> {
        match self.index.get(&number)? {
            Place::Pinned(pin) if pin.mark == Some(mark) => Some(pin.block.clone()),
            _ => None,
        }
    }

    /// The block is on the device as `mark` left it. Answers whether it is no longer pinned: it stays so if somebody
    /// else changed it since or is about to.
    pub(super) fn unpin(&mut self, number: u64, mark: u32) -> bool {
        match self.index.get(&number) {
            Some(Place::Pinned(pin)) if pin.mark == Some(mark) && !pin.editing => self.release(number),
            _ => false,
        }
    }

    fn release(&mut self, number: u64) -> bool {
        match self.index.remove(&number) {
            Some(Place::Pinned(pin)) => {
                self.keep(pin.block);
                true
            }
            _ => false,
        }
    }

    /// Takes a slot out of the clock; the last one moves into its place.
    fn vacate(&mut self, at: usize) {
        if at < self.slots.len() {
            self.slots.swap_remove(at);
        }
        if let Some(moved) = self.slots.get(at) {
            self.index.insert(moved.block.number(), Place::Clean(at));
        }
    }

    /// The next slot that was not used since the hand last came by; ends after two rounds at the latest.
    fn victim(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = place.checked_add(1).filter(|&next| next < self.slots.len()).unwrap_or(0);
            match self.slots.get_mut(place) {
                Some(slot) if slot.used => slot.used = false,
                Some(_) => return place,
                // Slots were taken out behind the hand, which starts anew. A full clock has slots.
                None => {}
            }
        }
    }
}

/// Whether a change is the first of its mark to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// The mark had not changed the block before, or somebody else did in between.
    First,
    /// It had.
    Again,
}
