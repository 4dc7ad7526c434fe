//! The slots of nodes: one record for each inode that the kernel has not forgotten.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use super::{LOG, read_all, write_all};

/// Offset of the number of slots that were ever in use.
const COUNT: u64 = 4096;
/// Offset of the first slot.
const SLOTS: u64 = 1 << 20;
/// Size of a slot. It divides the page size, so that the kernel does not divide a write.
const SIZE: u64 = 32;
/// Maximum number of slots.
const MOST: u64 = (LOG - SLOTS) / SIZE;

/// The contents of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeSlot {
    pub id: u64,
    /// The lookups that FORGET has not undone; 0 in a free slot.
    pub lookups: u64,
    pub is_regular: bool,
}

impl NodeSlot {
    pub fn record(&self) -> [u64; 3] {
        [self.id, self.lookups, self.is_regular.into()]
    }

    pub fn of([id, lookups, regular]: [u64; 3]) -> Self {
        Self { id, lookups, is_regular: regular != 0 }
    }

    fn bytes(&self) -> [u8; SIZE as usize] {
        let mut bytes = [0; SIZE as usize];
        for (to, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.record()) {
            *to = number.to_le_bytes();
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; SIZE as usize]) -> Self {
        let (numbers, _) = bytes.as_chunks::<8>();
        let number = |at: usize| numbers.get(at).copied().map_or(0, u64::from_le_bytes);
        Self::of([number(0), number(1), number(2)])
    }
}

/// The slots of a ledger.
#[derive(Debug, Default)]
pub(super) struct Slots {
    used: HashMap<u64, (u64, NodeSlot)>,
    free: Vec<u64>,
    count: u64,
}

impl Slots {
    /// Reads all slots. Fails with the errors of reading, and with `InvalidData`.
    pub fn read(file: &OwnedFd) -> io::Result<Self> {
        let mut count = [0; 8];
        read_all(file, COUNT, &mut count)?;
        let count = u64::from_le_bytes(count);
        if count > MOST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the ledger is damaged"));
        }
        let len = usize::try_from(count * SIZE).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut bytes = vec![0; len];
        read_all(file, SLOTS, &mut bytes)?;
        let mut this = Self { count, ..Self::default() };
        for (place, bytes) in (0..).zip(bytes.as_chunks().0) {
            match NodeSlot::from_bytes(bytes) {
                NodeSlot { lookups: 0, .. } => this.free.push(place),
                slot => drop(this.used.insert(slot.id, (place, slot))),
            }
        }
        Ok(this)
    }

    /// Returns the slots in use.
    pub fn all(&self) -> impl Iterator<Item = NodeSlot> {
        self.used.values().map(|&(_, slot)| slot)
    }

    /// Records `slot`. Frees the slot of the node if it has no lookups.
    pub fn set(&mut self, file: &OwnedFd, slot: NodeSlot) -> io::Result<()> {
        let place = match (self.used.get(&slot.id), slot.lookups) {
            (Some(&(place, _)), _) => place,
            (None, 0) => return Ok(()),
            (None, _) => self.take(file)?,
        };
        write_all(file, SLOTS + place * SIZE, &slot.bytes())?;
        if slot.lookups == 0 {
            self.used.remove(&slot.id);
            self.free.push(place);
        } else {
            self.used.insert(slot.id, (place, slot));
        }
        Ok(())
    }

    fn take(&mut self, file: &OwnedFd) -> io::Result<u64> {
        if let Some(place) = self.free.pop() {
            return Ok(place);
        }
        if self.count == MOST {
            return Err(io::Error::other("the ledger is full"));
        }
        let place = self.count;
        write_all(file, COUNT, &(place + 1).to_le_bytes())?;
        self.count = place + 1;
        Ok(place)
    }
}
