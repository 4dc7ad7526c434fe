//! A queue of requests in the guest's memory.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, 2.7 "Split Virtqueues".
//!
//! Invariant: a chain of descriptors is followed for at most as many links as the queue has entries.

use super::memory::Memory;

/// `VIRTQ_DESC_F_NEXT`, `_WRITE`, `_INDIRECT`.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;
/// The most descriptors of a queue or a table: the limit of the specification for a queue.
const DESCRIPTORS_MAX: u32 = 32768;

/// The location of a queue.
#[derive(Clone, Copy, Default, Debug)]
pub struct Queue {
    /// Length, a power of two.
    pub len: u32,
    /// Address of the descriptors.
    pub descriptors: u64,
    /// Address of the available ring.
    pub available: u64,
    /// Address of the used ring.
    pub used: u64,
    /// The number of chains that were taken.
    pub taken: u16,
    /// The number of chains that were returned.
    pub given: u16,
}

/// A range of the guest's memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRange {
    /// Address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Whether the device writes to the range.
    pub is_output: bool,
}

/// A request: the head that identifies it, and its ranges of memory.
#[derive(Debug)]
pub struct Chain {
    head: u16,
    /// The ranges; those to be written are last.
    pub ranges: Vec<MemoryRange>,
}

impl Queue {
    /// Returns the next chain; `None` if the queue is empty or invalid.
    pub fn next(&mut self, memory: &Memory) -> Option<Chain> {
        if !self.len.is_power_of_two() || self.len > DESCRIPTORS_MAX {
            return None;
        }
        let offered = u16::from_le_bytes(memory.number(self.available.checked_add(2)?)?);
        if offered == self.taken {
            return None;
        }
        // The slot was written before the count, which was read first.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        let slot = u64::from(u32::from(self.taken) % self.len);
        let head = u16::from_le_bytes(memory.number(self.available.checked_add(4 + 2 * slot)?)?);
        self.taken = self.taken.wrapping_add(1);
        let mut ranges = Vec::new();
        self.follow(memory, head, &mut ranges)?;
        Some(Chain { head, ranges })
    }

    /// Returns `chain`, of which `written` bytes were written. The result is whether the guest requests a notification.
    pub fn give_back(&mut self, memory: &Memory, chain: &Chain, written: u32) -> Option<bool> {
        let slot = u64::from(u32::from(self.given) % self.len);
        let element = [u32::from(chain.head).to_le_bytes(), written.to_le_bytes()].concat();
        memory.write(self.used.checked_add(4 + 8 * slot)?, &element)?;
        self.given = self.given.wrapping_add(1);
        // The element is written before the count, or the guest would read an element that does not exist yet.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        memory.write(self.used.checked_add(2)?, &self.given.to_le_bytes())?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let flags = u16::from_le_bytes(memory.number(self.available)?);
        Some(flags & NO_INTERRUPT == 0)
    }

    fn follow(&self, memory: &Memory, head: u16, ranges: &mut Vec<MemoryRange>) -> Option<()> {
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
            ranges.push(MemoryRange { address, len: size, is_output: flags & WRITE != 0 });
            if flags & NEXT == 0 {
                return Some(());
            }
            index = u32::from(next);
        }
        None
    }
}
