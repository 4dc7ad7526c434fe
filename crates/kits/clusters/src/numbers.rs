//! Inode numbers that survive a move of the directory entry.
//!
//! The number of a file is the place of its entry when the volume first saw it. An entry that moves keeps its number.
//! A file whose place is already used as a number gets a number that is not a place.
//! Invariant: `places` and `inos` are inverse to each other, and contain only numbers that differ from the place of
//! their entry.
//! Invariant: the number of a deleted file is reused only with another generation.

use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::{Error, Generation, Ino, Result};

use crate::unit::Slot;

/// Numbers from here on are not places: no volume has as many bytes.
const FIRST_FREE: u64 = 1 << 61;

/// Numbers that differ from places. `E` is the attributes of a directory entry.
pub struct Numbers<E> {
    places: HashMap<Ino, Slot>,
    inos: HashMap<Slot, Ino>,
    /// Number of files that had the inode number before.
    lives: HashMap<Ino, u32>,
    /// Files without a name that are in use: their attributes, and the directory that contained them.
    orphans: HashMap<Ino, (E, Ino)>,
    /// Number of assigned numbers that are not places.
    given: u64,
}

/// The contents of [`Numbers`], which another process continues to use.
pub(crate) struct NumberLists<E> {
    pub places: Vec<(Ino, Slot)>,
    pub lives: Vec<(Ino, u32)>,
    pub orphans: Vec<(Ino, E, Ino)>,
    pub given: u64,
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
    /// Returns the inode number of the file whose entry is at `slot`.
    pub fn ino_at(&self, slot: Slot) -> Ino {
        self.inos.get(&slot).copied().unwrap_or_else(|| slot.ino())
    }

    /// Returns the place of the entry of `ino`, if it has one.
    pub fn slot_of(&self, ino: Ino) -> Option<Slot> {
        match self.places.get(&ino) {
            Some(&slot) => Some(slot),
            None if ino.0 >= FIRST_FREE || self.orphans.contains_key(&ino) => None,
            None => Some(Slot(ino.0)),
        }
    }

    /// Returns the generation of the number.
    pub fn generation(&self, ino: Ino) -> Generation {
        Generation(self.lives.get(&ino).copied().unwrap_or(0))
    }

    /// Returns the attributes and the former directory of a file without a name.
    pub fn orphan(&self, ino: Ino) -> Option<(E, Ino)> {
        self.orphans.get(&ino).cloned()
    }

    /// Changes the attributes of a file without a name. Returns false if `ino` is not such a file.
    pub fn set_orphan(&mut self, ino: Ino, raw: E) -> bool {
        self.orphans.get_mut(&ino).map(|orphan| orphan.0 = raw).is_some()
    }

    /// Reserves memory for the next call that records a number. Fails with `NoMemory`.
    pub fn reserve(&mut self) -> Result<()> {
        self.places.try_reserve(2).map_err(|_| Error::NoMemory)?;
        self.inos.try_reserve(2).map_err(|_| Error::NoMemory)?;
        self.lives.try_reserve(1).map_err(|_| Error::NoMemory)?;
        self.orphans.try_reserve(1).map_err(|_| Error::NoMemory)
    }

    /// Assigns a number to a new file whose entry is at `slot`, and returns it.
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

    /// Records that the entry of `ino` is now at `to`.
    pub fn move_to(&mut self, ino: Ino, to: Slot) {
        self.unplace(ino);
        if to.ino() == ino {
            return;
        }
        self.inos.insert(to, ino);
        self.places.insert(ino, to);
    }

    /// Records that `ino` lost its name in `dir`; `raw` was its entry.
    pub fn orphan_of(&mut self, ino: Ino, raw: E, dir: Ino) {
        self.unplace(ino);
        self.orphans.insert(ino, (raw, dir));
    }

    /// Removes a file without a name. Returns its attributes.
    pub fn forget(&mut self, ino: Ino) -> Option<E> {
        let (raw, _) = self.orphans.remove(&ino)?;
        let lives = self.lives.entry(ino).or_insert(0);
        *lives = lives.wrapping_add(1);
        Some(raw)
    }

    /// Returns all files without a name.
    pub fn orphans(&self) -> Vec<Ino> {
        self.orphans.keys().copied().collect()
    }

    /// Returns all contents.
    pub(crate) fn export(&self) -> NumberLists<E> {
        NumberLists {
            places: self.places.iter().map(|(&ino, &slot)| (ino, slot)).collect(),
            lives: self.lives.iter().map(|(&ino, &lives)| (ino, lives)).collect(),
            orphans: self.orphans.iter().map(|(&ino, (raw, dir))| (ino, raw.clone(), *dir)).collect(),
            given: self.given,
        }
    }

    /// Replaces all contents. Fails with `NoMemory`.
    pub(crate) fn import(&mut self, lists: NumberLists<E>) -> Result<()> {
        let NumberLists { places, lives, orphans, given } = lists;
        *self = Self { given, ..Self::default() };
        self.places.try_reserve(places.len()).map_err(|_| Error::NoMemory)?;
        self.inos.try_reserve(places.len()).map_err(|_| Error::NoMemory)?;
        self.lives.try_reserve(lives.len()).map_err(|_| Error::NoMemory)?;
        self.orphans.try_reserve(orphans.len()).map_err(|_| Error::NoMemory)?;
        self.inos.extend(places.iter().map(|&(ino, slot)| (slot, ino)));
        self.places.extend(places);
        self.lives.extend(lives);
        self.orphans.extend(orphans.into_iter().map(|(ino, raw, dir)| (ino, (raw, dir))));
        Ok(())
    }

    fn unplace(&mut self, ino: Ino) {
        if let Some(slot) = self.places.remove(&ino)
            && self.inos.get(&slot) == Some(&ino)
        {
            self.inos.remove(&slot);
        }
    }
}
