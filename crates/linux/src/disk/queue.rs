//! A queue of requests in the guest's memory.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, 2.7 "Split Virtqueues".
//!
//! Invariant: a chain of descriptors is never followed further than the queue is long, wherever its links lead.

use super::memory::Memory;

/// `VIRTQ_DESC_F_NEXT`, `_WRITE`, `_INDIRECT`.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;
/// The most descriptors of a queue or a table: the specification's limit of a queue.
const DESCRIPTORS_MAX: u32 = 32768;

/// Where a queue lies.
#[derive(Clone, Copy, Default, Debug)]
pub struct Queue {
    /// Length, a power of two.
    pub len: u32,
    /// Address of the descriptors.
    pub descriptors: u64,
    /// Address of what the guest offers.
    pub available: u64,
    /// Address of what is done.
    pub used: u64,
    /// How many chains were taken.
    pub taken: u16,
    /// How many were given back.
    pub given: u16,
}

/// A stretch of the guest's memory.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Whether it is to be written.
    pub is_output: bool,
}

/// A request: its head, by which it is given back, and its stretches.
#[derive(Debug)]
pub struct Chain {
    head: u16,
    /// They, those to be written last.
    pub stretches: Vec<Stretch>,
}

impl Queue {
    /// The next chain; `None` if there is none, or the queue makes no sense.
    pub fn next(&mut self, memory: &Memory) -> Option<Chain> {
        if !self.len.is_power_of_two() || self.len > DESCRIPTORS_MAX {
            return None;
        }
        let offered = u16::from_le_bytes(memory.number(self.available.checked_add(2)?)?);
        if offered == self.taken {
            return None;
        }
        // What is in the slot was written before the count, which was read first.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        let slot = u64::from(u32::from(self.taken) % self.len);
        let head = u16::from_le_bytes(memory.number(self.available.checked_add(4 + 2 * slot)?)?);
        self.taken = self.taken.wrapping_add(1);
        let mut stretches = Vec::new();
        self.follow(memory, head, &mut stretches)?;
        Some(Chain { head, stretches })
    }

    /// Gives `chain` back, `written` bytes of it written. Answers whether the guest wants to be told.
    pub fn give_back(&mut self, memory: &Memory, chain: &Chain, written: u32) -> Option<bool> {
        let slot = u64::from(u32::from(self.given) % self.len);
        let element = [u32::from(chain.head).to_le_bytes(), written.to_le_bytes()].concat();
        memory.write(self.used.checked_add(4 + 8 * slot)?, &element)?;
        self.given = self.given.wrapping_add(1);
        // The element before the count, or the guest reads what is not there yet.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        memory.write(self.used.checked_add(2)?, &self.given.to_le_bytes())?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let flags = u16::from_le_bytes(memory.number(self.available)?);
        Some(flags & NO_INTERRUPT == 0)
    }

    fn follow(&self, memory: &Memory, head: u16, stretches: &mut Vec<Stretch>) -> Option<()> {
        let (mut table, mut len, mut index) = (self.descriptors, self.len, u32::from(head));
        let mut is_indirect = false;
        for _ in 0..=DESCRIPTORS_MAX {
            if index >= len {
                return None;
            }
            let raw: [u8; 16] = memory.number(table.checked_add(u64::from(index) * DESCRIPTOR)?)?;
            let [a @ .., _, _, _, _, _, _, _, _] = raw;
            let [_, _, _, _, _, _, _, _, l0, l1, l2, l3, f0, f1, n0, n1] = raw;
            let (address, size) = (u64::from_le_bytes(a), u32::from_le_bytes([l0, l1, l2, l3]));
            let (flags, next) = (u16::from_le_bytes([f0, f1]), u16::from_le_bytes([n0, n1]));
            if flags & INDIRECT != 0 {
                if is_indirect {
                    return None;
                }
                (table, len, index, is_indirect) = (address, size / 16, 0, true);
                continue;
            }
            stretches.push(Stretch { address, len: size, is_output: flags & WRITE != 0 });
            if flags & NEXT == 0 {
                return Some(());
            }
            index = u32::from(next);
        }
        None
    }
}
