//! The bytes on stable storage, with a hash that can be updated quickly.

use std::collections::BTreeMap;
use std::ops::Range;

use obento_block::BlockDevice;

use crate::crash::choice::{Choice, Part};
use crate::crash::window::{Piece, SECTOR, Window};

const LEN: usize = SECTOR as usize;

/// A disk. Its hash is the sum of the hashes of its sectors, so that updating a sector is cheap.
pub(super) struct Disk {
    bytes: Vec<u8>,
    hash: u128,
    whole: Range<u64>,
}

/// Sectors that differ from a disk.
pub(super) struct Changed(BTreeMap<u64, Vec<u8>>);

impl Changed {
    /// Writes the sectors to a device.
    pub fn put_on(&self, device: &dyn BlockDevice) {
        for (sector, bytes) in &self.0 {
            device.write_at(sector * SECTOR, bytes).expect("memory can be written");
        }
    }

    /// Copies the sectors to the bytes of a disk.
    pub fn put_in(&self, disk: &mut [u8]) {
        for (sector, bytes) in &self.0 {
            let start = *sector as usize * LEN;
            disk[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Disk {
    /// Returns a disk that writes bytes in `whole` completely or not at all.
    pub fn new(bytes: &[u8], whole: Range<u64>) -> Self {
        let mut disk = Self { bytes: bytes.to_vec(), hash: 0, whole };
        disk.hash = (0_u64..)
            .zip(bytes.chunks(LEN))
            .map(|(at, sector)| sector_hash(at, sector))
            .fold(0, u128::wrapping_add);
        disk
    }

    fn sector(&self, sector: u64) -> &[u8] {
        let start = sector as usize * LEN;
        &self.bytes[start..(start + LEN).min(self.bytes.len())]
    }

    /// Returns the sectors that a choice changes.
    pub fn changed(&self, window: &Window, choice: &Choice) -> Changed {
        let mut changed = Changed(BTreeMap::new());
        for (write, part) in window.writes.iter().zip(&choice.0) {
            match part {
                Part::Lost => {}
                Part::Done => write.pieces(&self.whole).for_each(|piece| self.put(&mut changed, piece)),
                Part::Torn(pattern) => {
                    let kept = write.pieces(&self.whole).zip(pattern).filter(|(_, kept)| **kept);
                    kept.for_each(|(piece, _)| self.put(&mut changed, piece));
                }
            }
        }
        changed
    }

    fn put(&self, changed: &mut Changed, piece: Piece<'_>) {
        let (mut offset, mut rest) = (piece.offset, piece.bytes);
        while !rest.is_empty() {
            let (sector, start) = (offset / SECTOR, (offset % SECTOR) as usize);
            let bytes = changed.0.entry(sector).or_insert_with(|| self.sector(sector).to_vec());
            let (now, later) = rest.split_at(rest.len().min(LEN - start));
            bytes[start..start + now.len()].copy_from_slice(now);
            (offset, rest) = (offset + now.len() as u64, later);
        }
    }

    /// Returns the hash of this disk with these sectors.
    pub fn hash_with(&self, changed: &Changed) -> u128 {
        changed.0.iter().fold(self.hash, |hash, (&sector, bytes)| {
            let before = sector_hash(sector, self.sector(sector));
            hash.wrapping_sub(before).wrapping_add(sector_hash(sector, bytes))
        })
    }

    /// Applies the whole window. Returns the changed sectors.
    pub fn apply(&mut self, window: &Window) -> Changed {
        let all = Choice(vec![Part::Done; window.writes.len()]);
        let changed = self.changed(window, &all);
        self.hash = self.hash_with(&changed);
        changed.put_in(&mut self.bytes);
        changed
    }
}

/// Distinguishes sectors; it need not resist forgery. Two lanes of multiply and rotate, as in fast string hashes.
fn sector_hash(at: u64, bytes: &[u8]) -> u128 {
    const K: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];
    let mut lanes = [at ^ K[0], at.rotate_left(32) ^ K[1]];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for word in words.iter().chain((!rest.is_empty()).then_some(&last)) {
        let word = u64::from_le_bytes(*word);
        lanes[0] = (lanes[0] ^ word).wrapping_mul(K[0]).rotate_left(29);
        lanes[1] = (lanes[1].wrapping_add(word)).wrapping_mul(K[1]).rotate_left(37) ^ word;
    }
    let end = |lane: u64| {
        let lane = (lane ^ lane >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        lane ^ lane >> 29
    };
    u128::from(end(lanes[0])) << 64 | u128::from(end(lanes[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::window::windows;
    use crate::record::Event;

    #[test]
    fn the_hash_of_a_changed_disk_is_that_of_a_disk_with_those_bytes() {
        let base: Vec<u8> = (0..4096_u32).map(|n| n as u8).collect();
        let events = [
            Event::Write { offset: 100, bytes: vec![9; 1000].into() },
            Event::Write { offset: 600, bytes: vec![8; 10].into() },
        ];
        let window = windows(&events).remove(0);
        let mut disk = Disk::new(&base, 0..0);
        let changed = disk.changed(&window, &Choice(vec![Part::Done, Part::Done]));
        let mut expected = base.clone();
        expected[100..1100].fill(9);
        expected[600..610].fill(8);
        assert_eq!(disk.hash_with(&changed), Disk::new(&expected, 0..0).hash);
        disk.apply(&window);
        assert!(disk.bytes == expected && disk.hash == Disk::new(&expected, 0..0).hash);
        let torn = Choice(vec![Part::Torn(vec![false, true, false]), Part::Lost]);
        let torn = disk.changed(&window, &torn);
        assert_eq!(torn.0.keys().collect::<Vec<_>>(), [&1]);
    }
}
