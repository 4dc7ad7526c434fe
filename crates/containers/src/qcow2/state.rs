//! The tables of an open image in memory.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{DeviceError, Result};
use obento_block::BlockDevice;

use super::GrowingFile;
use super::counts::Counts;
use super::header::Header;
use super::table::{COPIED, OFFSET, extent};
use crate::error::Opening;
use crate::read_bytes;

/// The bytes of L2 tables to keep: enough for 512 GiB of a disk with clusters of 64 KiB.
const TABLES: u64 = 64 << 20;
/// The granularity at which tables are written.
pub(super) const SECTOR_ENTRIES: usize = 64;

/// An L2 table.
#[derive(Debug)]
pub(super) struct Table {
    pub at: u64,
    pub entries: Vec<u64>,
    /// The sectors that differ from the file.
    pub dirty: BTreeSet<usize>,
    /// The table is not in the file.
    pub is_new: bool,
}

impl Table {
    fn is_clean(&self) -> bool {
        !self.is_new && self.dirty.is_empty()
    }
}

/// All tables.
#[derive(Debug)]
pub(super) struct State {
    pub l1: Vec<u64>,
    pub l1_at: u64,
    /// The sectors of the L1 table that differ from the file.
    pub l1_dirty: BTreeSet<usize>,
    pub tables: BTreeMap<u64, Table>,
    pub counts: Counts,
    /// Bytes of the file that lost a reference since the last commit.
    pub freed: Vec<(u64, u64)>,
    is_prepared: bool,
    tables_max: usize,
}

impl State {
    pub fn read(
        file: &dyn BlockDevice,
        header: &Header,
        (l1_at, l1_len): (u64, u32),
        is_writable: bool,
    ) -> Result<Self, Opening> {
        let bytes = read_bytes(file, l1_at, u64::from(l1_len).saturating_mul(8), "L1 table")?;
        let l1 = words(&bytes);
        let counts = if is_writable { Counts::read(file, header)? } else { Counts::default() };
        let tables_max = to_usize(TABLES.checked_div(header.cluster()).unwrap_or(1)).max(16);
        Ok(Self {
            l1,
            l1_at,
            l1_dirty: BTreeSet::new(),
            tables: BTreeMap::new(),
            counts,
            freed: Vec::new(),
            is_prepared: header.autoclear_at().is_none(),
            tables_max,
        })
    }

    /// Makes the image ready for its first change.
    pub fn prepare(&mut self, file: &dyn GrowingFile, header: &Header) -> Result<()> {
        if let Some(at) = header.autoclear_at().filter(|_| !self.is_prepared) {
            file.write_at(at, &[0; 8])?;
            file.flush()?;
        }
        self.is_prepared = true;
        Ok(())
    }

    /// Returns whether an L2 table locates the cluster around `offset`.
    pub fn has_table(&self, header: &Header, offset: u64) -> bool {
        let (row, _) = header.place(offset);
        self.l1.get(to_usize(row)).copied().unwrap_or(0) & OFFSET != 0
    }

    /// Returns the entry of the cluster around `offset`, if its table is in memory.
    pub fn known_entry(&self, header: &Header, offset: u64) -> Option<u64> {
        if !self.has_table(header, offset) {
            return Some(0);
        }
        let (row, column) = header.place(offset);
        self.tables.get(&row).map(|table| table.entries.get(column).copied().unwrap_or(0))
    }

    /// Returns the entry of the cluster around `offset`.
    pub fn entry(&mut self, file: &dyn GrowingFile, header: &Header, offset: u64) -> Result<u64> {
        if let Some(entry) = self.known_entry(header, offset) {
            return Ok(entry);
        }
        let (row, column) = header.place(offset);
        self.make_room(file, header)?;
        let at = self.l1.get(to_usize(row)).copied().unwrap_or(0) & OFFSET;
        let table = Self::load(file, header, at)?;
        let entry = table.entries.get(column).copied().unwrap_or(0);
        self.tables.insert(row, table);
        Ok(entry)
    }

    fn load(file: &dyn GrowingFile, header: &Header, at: u64) -> Result<Table> {
        let len = to_usize(header.cluster());
        let failed = DeviceError::Read { offset: at, len: header.cluster(), errno: 0 };
        if header.inside(at) != 0 {
            return Err(failed.into());
        }
        let mut bytes = crate::zeros(len).ok_or(failed)?;
        file.read_at(at, &mut bytes)?;
        Ok(Table { at, entries: words(&bytes), dirty: BTreeSet::new(), is_new: false })
    }

    /// Removes a table from memory, if many are there.
    fn make_room(&mut self, file: &dyn GrowingFile, header: &Header) -> Result<()> {
        if self.tables.len() < self.tables_max {
            return Ok(());
        }
        if self.tables.values().all(|table| !table.is_clean()) {
            self.commit(file, header)?;
        }
        let clean = self.tables.iter().find(|(_, table)| table.is_clean()).map(|(&row, _)| row);
        if let Some(row) = clean {
            self.tables.remove(&row);
        }
        Ok(())
    }

    /// Allocates a cluster. Returns its place. After an error, no cluster is counted.
    pub fn allocate(&mut self, file: &dyn GrowingFile, header: &Header) -> Result<u64> {
        // First, since a full medium must not leave a counted cluster after the end of the file.
        let end = self.counts.end_of_next(header).saturating_mul(header.cluster());
        if end > file.len() {
            file.grow(end)?;
        }
        Ok(self.counts.allocate(header)?.saturating_mul(header.cluster()))
    }

    /// Frees the cluster at `at`, which [`Self::allocate`] returned, and which no entry has ever referred to.
    pub fn give_back(&mut self, header: &Header, at: u64) {
        self.counts.release(header, at, header.cluster());
    }

    /// Stores the entry of the cluster around `offset`. The bytes that the old entry refers to are freed with
    /// the next commit.
    pub fn set_entry(
        &mut self,
        file: &dyn GrowingFile,
        header: &Header,
        offset: u64,
        entry: u64,
    ) -> Result<()> {
        let (row, column) = header.place(offset);
        self.own_table(file, header, row, offset)?;
        let Some(table) = self.tables.get_mut(&row) else {
            return Err(DeviceError::Write { offset, len: header.cluster(), errno: 0 }.into());
        };
        if let Some(place) = table.entries.get_mut(column) {
            let old = core::mem::replace(place, entry);
            table.dirty.insert(column / SECTOR_ENTRIES);
            self.freed.extend(extent(old, header.cluster_bits()));
        }
        Ok(())
    }

    /// Ensures that table `row` exists, is in memory, and belongs to no snapshot.
    fn own_table(&mut self, file: &dyn GrowingFile, header: &Header, row: u64, offset: u64) -> Result<()> {
        let old = self.l1.get(to_usize(row)).copied().unwrap_or(0);
        if old & OFFSET != 0 {
            self.entry(file, header, offset)?;
            if old & COPIED != 0 {
                return Ok(());
            }
        } else {
            self.make_room(file, header)?;
        }
        let at = self.allocate(file, header)?;
        let entries = match self.tables.remove(&row) {
            Some(shared) => shared.entries,
            None => vec![0; to_usize(header.entries())],
        };
        if old & OFFSET != 0 {
            self.freed.push((old & OFFSET, header.cluster()));
        }
        self.tables.insert(row, Table { at, entries, dirty: BTreeSet::new(), is_new: true });
        if let Some(place) = self.l1.get_mut(to_usize(row)) {
            *place = at | COPIED;
            self.l1_dirty.insert(to_usize(row) / SECTOR_ENTRIES);
        }
        Ok(())
    }
}

pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|&bytes| u64::from_be_bytes(bytes)).collect()
}
