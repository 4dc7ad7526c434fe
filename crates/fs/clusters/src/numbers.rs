//! Inode numbers that outlive a change of place.
//!
//! The number of a file is the place of its entry when the volume first met it. An entry that moves keeps its number, and
//! what is made at a place whose number is taken gets one that no place has.
//! Invariant: `places` and `inos` are inverse to each other and hold those alone whose number is not their place.
//! Invariant: numbers of a deleted file come back with another generation.

use hashbrown::HashMap;
use obento_base::{Error, Generation, Ino, Result};

use crate::unit::Slot;

/// Numbers from here on are no place: no volume has as many bytes.
const FIRST_FREE: u64 = 1 << 61;

/// What is known of numbers besides places; `E` is what a volume says of a file where its name is.
pub struct Numbers<E> {
    places: HashMap<Ino, Slot>,
    inos: HashMap<Slot, Ino>,
    /// How many files a number had before.
    lives: HashMap<Ino, u32>,
    /// What has no name and is in use: its entry, and the directory that it lay in.
    orphans: HashMap<Ino, (E, Ino)>,
    /// Numbers that are no place which were given.
    given: u64,
}

impl<E> Default for Numbers<E> {
    fn default() -> Self {
        Self {
            places: HashMap::new(),
            inos: HashMap::new(),
            lives: HashMap::new(),
            orphans: HashMap::new(),
            given: 0,
        }
    }
}

impl<E: Clone> Numbers<E> {
    /// The number of what has its entry at `slot`.
    pub fn ino_at(&self, slot: Slot) -> Ino {
        self.inos.get(&slot).copied().unwrap_or_else(|| slot.ino())
    }

    /// Returns where the entry of `ino` is, if that has one.
    pub fn slot_of(&self, ino: Ino) -> Option<Slot> {
        match self.places.get(&ino) {
            Some(&slot) => Some(slot),
            None if ino.0 >= FIRST_FREE || self.orphans.contains_key(&ino) => None,
            None => Some(Slot(ino.0)),
        }
    }

    /// Returns which life of the number it is.
    pub fn generation(&self, ino: Ino) -> Generation {
        Generation(self.lives.get(&ino).copied().unwrap_or(0))
    }

    /// The entry of what has no name.
    pub fn orphan(&self, ino: Ino) -> Option<(E, Ino)> {
        self.orphans.get(&ino).cloned()
    }

    /// Changes the entry of what has no name; answers whether it has none.
    pub fn set_orphan(&mut self, ino: Ino, raw: E) -> bool {
        self.orphans.get_mut(&ino).map(|orphan| orphan.0 = raw).is_some()
    }

    /// Room for what the next call may note. Fails with `NoMemory`.
    pub fn reserve(&mut self) -> Result<()> {
        self.places.try_reserve(2).map_err(|_| Error::NoMemory)?;
        self.inos.try_reserve(2).map_err(|_| Error::NoMemory)?;
        self.lives.try_reserve(1).map_err(|_| Error::NoMemory)?;
        self.orphans.try_reserve(1).map_err(|_| Error::NoMemory)
    }

    /// A new file has its entry at `slot`: answers its number.
    pub fn create(&mut self, slot: Slot) -> Ino {
        let own = slot.ino();
        if !self.places.contains_key(&own) && !self.orphans.contains_key(&own) {
            self.inos.remove(&slot);
            return own;
        }
        let ino = Ino(FIRST_FREE.saturating_add(self.given));
        self.given = self.given.saturating_add(1);
        self.inos.insert(slot, ino);
        self.places.insert(ino, slot);
        ino
    }

    /// `ino` has its entry at `to` now.
    pub fn move_to(&mut self, ino: Ino, to: Slot) {
        self.unplace(ino);
        if to.ino() == ino {
            return;
        }
        self.inos.insert(to, ino);
        self.places.insert(ino, to);
    }

    /// `ino` lost its name in `dir`; `raw` was its entry.
    pub fn orphan_of(&mut self, ino: Ino, raw: E, dir: Ino) {
        self.unplace(ino);
        self.orphans.insert(ino, (raw, dir));
    }

    /// What has no name is gone; answers its entry.
    pub fn forget(&mut self, ino: Ino) -> Option<E> {
        let (raw, _) = self.orphans.remove(&ino)?;
        let lives = self.lives.entry(ino).or_insert(0);
        *lives = lives.wrapping_add(1);
        Some(raw)
    }

    /// All that has no name.
    pub fn orphans(&self) -> alloc::vec::Vec<Ino> {
        self.orphans.keys().copied().collect()
    }

    fn unplace(&mut self, ino: Ino) {
        if let Some(slot) = self.places.remove(&ino)
            && self.inos.get(&slot) == Some(&ino)
        {
            self.inos.remove(&slot);
        }
    }
}
