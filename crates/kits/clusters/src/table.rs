//! A file allocation table in memory. Only the parts that are not zero use memory.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::BlockDevice;

use crate::portions::Portions;
use crate::sectors;

/// Size of a page.
const PAGE: u64 = 4 << 10;
/// Maximum number of bytes that are written at once.
const WRITE: u64 = 1 << 20;

/// The bytes of a table, and the parts of it that are not written yet.
pub struct SparseTable {
    len: u64,
    sector_size: u64,
    /// Pages by number; all other pages are zero.
    pages: BTreeMap<u64, Box<[u8]>>,
    /// Sectors that changed.
    changed: BTreeSet<u64>,
    /// Whole sectors to zero before the changed sectors are written.
    zeroed: Option<Range<u64>>,
}

impl SparseTable {
    /// Creates a table of zeros, all of which will be written.
    pub fn zeros(len: u64, sector_size: u32) -> Self {
        let sector_size = u64::from(sector_size).max(1);
        let (pages, changed) = (BTreeMap::new(), BTreeSet::new());
        Self { len, sector_size, pages, changed, zeroed: Some(0..len) }
    }

    /// Reads `len` bytes at `start`. Fails with `NoMemory`, or if the device fails.
    pub fn read(device: &dyn BlockDevice, start: u64, len: u64, sector_size: u32) -> Result<Self> {
        let mut this = Self { zeroed: None, ..Self::zeros(len, sector_size) };
        let mut portions = Portions::new(device, start..start.saturating_add(len));
        while let Some((range, bytes)) = portions.next_portion() {
            let first = range.start.saturating_sub(start) / PAGE;
            for (number, page) in (first..).zip(bytes?.chunks(to_usize(PAGE))) {
                if page.iter().any(|&byte| byte != 0) {
                    this.page(number)?.iter_mut().zip(page).for_each(|(to, from)| *to = *from);
                }
            }
        }
        Ok(this)
    }

    /// Returns a table with the same bytes. No sector counts as changed. Fails with `NoMemory`.
    pub fn copy(&self) -> Result<Self> {
        let mut copy = Self { zeroed: None, ..Self::zeros(self.len, 1) };
        copy.sector_size = self.sector_size;
        for (&number, page) in &self.pages {
            copy.page(number)?.iter_mut().zip(page).for_each(|(to, from)| *to = *from);
        }
        Ok(copy)
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the `N` bytes at offset `at`. Bytes past the end are zeros.
    pub fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let page = self.pages.get(&(at / PAGE)).map_or(&[][..], |page| &**page);
        let found = page.get(to_usize(at % PAGE)..).unwrap_or_default();
        bytes.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
        let count = to_usize(PAGE.saturating_sub(at % PAGE));
        if let Some(rest) = bytes.get_mut(count..).filter(|rest| !rest.is_empty()) {
            let next = self.pages.get(&(at / PAGE).saturating_add(1)).map_or(&[][..], |page| &**page);
            rest.iter_mut().zip(next).for_each(|(to, from)| *to = *from);
        }
        bytes
    }

    /// Changes the bytes at `at`, and marks their sectors as changed. Bytes past the end are ignored. Fails with
    /// `NoMemory`.
    pub fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        for (at, &byte) in (at..self.len).zip(bytes) {
            let is_zero = byte == 0 && !self.pages.contains_key(&(at / PAGE));
            if !is_zero && let Some(to) = self.page(at / PAGE)?.get_mut(to_usize(at % PAGE)) {
                *to = byte;
            }
            self.changed.insert(at.checked_div(self.sector_size).unwrap_or(0));
        }
        Ok(())
    }

    /// Zeroes the sectors from `start` to the end in memory and, with the next write, on the device. `start` must be
    /// a multiple of the sector size.
    pub fn zero_from(&mut self, start: u64) {
        self.pages.retain(|&number, page| {
            let first = number.saturating_mul(PAGE);
            let kept = to_usize(start.saturating_sub(first).min(PAGE));
            page.get_mut(kept..).unwrap_or_default().fill(0);
            first < start
        });
        self.zeroed = Some(start..self.len);
    }

    /// Returns the parts of the table that may contain other bytes than zeros: their offsets, and their bytes.
    pub fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().map(|(&number, page)| (number.saturating_mul(PAGE), &**page))
    }

    /// Writes the changed parts to each copy of the table, and flushes the device after each copy. `copies`
    /// are the byte offsets of the copies on the device. Fails with `NoMemory`, or if the device fails.
    pub fn write(&mut self, device: &dyn BlockDevice, copies: impl Iterator<Item = u64>) -> Result<()> {
        for start in copies {
            if let Some(zeroed) = &self.zeroed {
                let range = start.saturating_add(zeroed.start)..start.saturating_add(zeroed.end);
                sectors::clear(device, range)?;
            }
            self.write_changed(device, start)?;
            device.flush()?;
        }
        self.changed.clear();
        self.zeroed = None;
        Ok(())
    }

    fn write_changed(&self, device: &dyn BlockDevice, start: u64) -> Result<()> {
        let most = WRITE.checked_div(self.sector_size).unwrap_or(0).max(1);
        let mut sectors = self.changed.iter().copied().peekable();
        while let Some(first) = sectors.next() {
            let mut end = first.saturating_add(1);
            while end.saturating_sub(first) < most && sectors.next_if_eq(&end).is_some() {
                end = end.saturating_add(1);
            }
            let bytes =
                self.bytes(first.saturating_mul(self.sector_size)..end.saturating_mul(self.sector_size));
            device.write_at(start.saturating_add(first.saturating_mul(self.sector_size)), &bytes)?;
        }
        Ok(())
    }

    /// Returns the bytes of `range`, or up to the end.
    fn bytes(&self, range: Range<u64>) -> Vec<u8> {
        let end = range.end.min(self.len);
        let mut bytes = vec![0; to_usize(end.saturating_sub(range.start))];
        let pages = self.pages.range(range.start / PAGE..end.div_ceil(PAGE));
        for (&number, page) in pages {
            let first = number.saturating_mul(PAGE);
            let skipped = to_usize(range.start.saturating_sub(first));
            let at = to_usize(first.saturating_sub(range.start));
            let to = bytes.get_mut(at..).unwrap_or_default();
            to.iter_mut().zip(page.iter().skip(skipped)).for_each(|(to, from)| *to = *from);
        }
        bytes
    }

    /// Returns a page for a change. Fails with `NoMemory`.
    fn page(&mut self, number: u64) -> Result<&mut [u8]> {
        use alloc::collections::btree_map::Entry;
        Ok(match self.pages.entry(number) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => {
                let mut page = Vec::new();
                page.try_reserve_exact(to_usize(PAGE)).map_err(|_| Error::NoMemory)?;
                page.resize(to_usize(PAGE), 0);
                free.insert(page.into_boxed_slice())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    fn bytes_of(device: &MemDevice) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(device.len())];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_table_is_written_as_it_was_changed() {
        let device = MemDevice::new((0..40_000_u32).map(|at| (at / 9_000) as u8).collect::<Vec<_>>());
        let mut table = SparseTable::read(&device, 1000, 30_000, 500).unwrap();
        let mut expected = bytes_of(&device);
        assert_eq!(table.parts().count(), 7, "a page of zeros takes no memory");
        assert_eq!(table.get::<4>(7_998), [0, 0, 1, 1]);
        table.put(4095, &[1, 2, 3]).unwrap();
        assert_eq!((table.get::<3>(4095), table.get::<4>(29_999)), ([1, 2, 3], [3, 0, 0, 0]));
        table.put(29_999, &[9, 9]).unwrap();
        assert_eq!(table.copy().unwrap().get::<3>(4095), [1, 2, 3]);
        table.write(&device, [1000].into_iter()).unwrap();
        expected[5095..5098].copy_from_slice(&[1, 2, 3]);
        expected[30_999] = 9;
        assert!(bytes_of(&device) == expected);
        table.zero_from(20_500);
        table.put(20_600, &[5]).unwrap();
        table.write(&device, [1000].into_iter()).unwrap();
        expected[21_500..31_000].fill(0);
        expected[21_600] = 5;
        assert!(bytes_of(&device) == expected);
        let mut zeros = SparseTable::zeros(100, 50);
        zeros.put(0, &[1]).unwrap();
        zeros.write(&device, [0, 39_900].into_iter()).unwrap();
        expected[..100].fill(0);
        expected[39_900..].fill(0);
        (expected[0], expected[39_900]) = (1, 1);
        assert!(bytes_of(&device) == expected);
    }
}
