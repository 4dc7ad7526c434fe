//! Writes the changes of tables in an order that survives a power cut.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_u64;

use super::GrowingFile;
use super::header::Header;
use super::state::{SECTOR_ENTRIES, State};

const SECTOR: u64 = 512;

impl State {
    /// Makes all changes durable. Fails with the errors of the file. The changes then stay in memory.
    pub fn commit(&mut self, file: &dyn GrowingFile, header: &Header) -> Result<()> {
        // 1. New clusters are written. Now what has to exist before anything refers to them.
        self.write_new_tables(file)?;
        self.write_counts(file)?;
        file.flush()?;
        // 2. A block is complete before the table refers to it.
        if self.counts.is_table_dirty {
            file.write_at(self.counts.table_at, &bytes(&self.counts.table))?;
            file.flush()?;
            self.counts.is_table_dirty = false;
        }
        // 3. References to new clusters and tables.
        if self.write_entries(file)? {
            file.flush()?;
        }
        self.tables.values_mut().for_each(|table| {
            table.is_new = false;
            table.dirty.clear();
        });
        self.l1_dirty.clear();
        // 4. Nothing refers to these any more. If a cut loses this, they stay counted.
        for (at, len) in core::mem::take(&mut self.freed) {
            self.counts.release(header, at, len);
        }
        self.write_counts(file)
    }

    fn write_new_tables(&mut self, file: &dyn GrowingFile) -> Result<()> {
        let mut new = self.tables.values().filter(|table| table.is_new);
        new.try_for_each(|table| file.write_at(table.at, &bytes(&table.entries)))
    }

    fn write_counts(&mut self, file: &dyn GrowingFile) -> Result<()> {
        for block in self.counts.blocks.values_mut().filter(|block| block.is_dirty) {
            let bytes: Vec<u8> = block.counts.iter().flat_map(|count| count.to_be_bytes()).collect();
            file.write_at(block.at, &bytes)?;
            block.is_dirty = false;
        }
        Ok(())
    }

    /// Writes the changed sectors of old tables. Returns whether there were any.
    fn write_entries(&self, file: &dyn GrowingFile) -> Result<bool> {
        let mut any = false;
        for table in self.tables.values().filter(|table| !table.is_new) {
            any |= write_sectors(file, table.at, &table.entries, &table.dirty)?;
        }
        any |= write_sectors(file, self.l1_at, &self.l1, &self.l1_dirty)?;
        Ok(any)
    }
}

/// Writes the `sectors` of the table `entries` at `at`. Returns whether there were any.
fn write_sectors(
    file: &dyn GrowingFile,
    at: u64,
    entries: &[u64],
    sectors: &BTreeSet<usize>,
) -> Result<bool> {
    for &sector in sectors {
        if let Some(part) = entries.chunks(SECTOR_ENTRIES).nth(sector) {
            file.write_at(at.saturating_add(to_u64(sector).saturating_mul(SECTOR)), &bytes(part))?;
        }
    }
    Ok(!sectors.is_empty())
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
