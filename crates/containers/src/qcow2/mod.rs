//! qcow2 images that are changed in place.
//!
//! Layout, big-endian: a header (`header`), an L1 table with the places of L2 tables, and a table with the places of
//! blocks of reference counts (`counts`). The entries of L2 tables are the places of clusters.
//!
//! Changes of tables stay in memory until [`Qcow2::flush`], which writes them in an order that survives a power
//! cut at any write (`commit`):
//!
//! 1. new clusters with all their bytes, new tables, and increased reference counts;
//! 2. the places of new blocks of reference counts;
//! 3. the entries of L1 and L2 tables that refer to new clusters;
//! 4. decreased reference counts.
//!
//! A flush of the file separates the steps. After a cut, a cluster that a table refers to has a reference count. It has
//! all the bytes that it had when the table first referred to it. At worst, clusters are counted that nothing refers
//! to.
//!
//! Invariant: a cluster is changed in place only if its entry has the flag `table::COPIED`, so that no snapshot
//! refers to it.
//! Invariant: a freed cluster is not used again before the entry that referred to it has been overwritten on disk.
//! Locking: one lock for all tables. Data is read and overwritten under the shared lock; an allocation takes the
//! exclusive lock.
//! Source: qemu `docs/interop/qcow2.rst`.

mod commit;
mod counts;
mod header;
mod read;
mod snapshots;
mod state;
mod table;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Result};
use obento_block::{BlockDevice, check_range};
use obento_env::sync::RwLock;

use crate::error::{OpenFailure, Opening};
use header::Header;
pub use header::{BackingFile, Compression};
pub use snapshots::{Snapshot, find};
use state::State;

/// A file whose length can grow.
pub trait GrowingFile: BlockDevice {
    /// Makes the file at least `len` bytes long. New bytes read as zeros.
    ///
    /// # Errors
    ///
    /// The medium failed or is full.
    fn grow(&self, len: u64) -> Result<()>;
}

/// Decompresses a cluster into the buffer, which it fills. Returns `None` if the data is damaged.
pub type Unpack = fn(method: Compression, stream: &[u8], cluster: &mut [u8]) -> Option<()>;

/// The part of a qcow2 image that shows its contents now, or at a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum View {
    /// The present contents.
    Active,
    /// The contents at this snapshot.
    Snapshot(Snapshot),
}

/// An open qcow2 image.
pub struct Qcow2 {
    file: Arc<dyn GrowingFile>,
    header: Header,
    backing: Option<Arc<dyn BlockDevice>>,
    unpack: Unpack,
    read_only: bool,
    len: u64,
    state: RwLock<State>,
}

impl Qcow2 {
    /// Opens the image in `file`. `backing` contains the bytes of clusters without data.
    ///
    /// # Errors
    ///
    /// - `Damaged`: a structure violates the format.
    /// - `Unsupported`: encryption, subclusters, or an external data file. For change also: an image that is
    ///   marked as dirty or corrupt, and reference counts of other than 16 bits.
    /// - `Device`: a read failed.
    pub fn open(
        file: Arc<dyn GrowingFile>,
        backing: Option<Arc<dyn BlockDevice>>,
        view: &View,
        unpack: Unpack,
    ) -> Result<Self, OpenFailure> {
        Self::try_open(file, backing, view, unpack).map_err(|error| error.of_qcow2())
    }

    fn try_open(
        file: Arc<dyn GrowingFile>,
        backing: Option<Arc<dyn BlockDevice>>,
        view: &View,
        unpack: Unpack,
    ) -> Result<Self, Opening> {
        let header = Header::read(&*file)?;
        let read_only = file.is_read_only() || *view != View::Active;
        let (l1_at, l1_len, len) = match view {
            View::Active => (header.l1_at, header.l1_len, header.len),
            View::Snapshot(at) => (at.l1_at, at.l1_len, at.disk_len.unwrap_or(header.len)),
        };
        if !read_only {
            header.expect_writable()?;
        }
        let state = State::read(&*file, &header, (l1_at, l1_len), !read_only)?;
        if u64::from(l1_len).saturating_mul(header.bytes_per_table()) < len {
            return Err(Opening::damaged("L1 table", "it is too short for the disk"));
        }
        Ok(Self { file, header, backing, unpack, read_only, len, state: RwLock::new(state) })
    }

    /// Returns the snapshots in the image.
    ///
    /// # Errors
    ///
    /// As for [`Qcow2::open`].
    pub fn snapshots(file: &dyn BlockDevice) -> Result<Vec<Snapshot>, OpenFailure> {
        let header = Header::read(file).map_err(|error| error.of_qcow2())?;
        snapshots::read(file, &header).map_err(|error| error.of_qcow2())
    }

    /// Returns the backing file that the image names.
    ///
    /// # Errors
    ///
    /// As for [`Qcow2::open`].
    pub fn backing_name(file: &dyn BlockDevice) -> Result<Option<BackingFile>, OpenFailure> {
        let header = Header::read(file).map_err(|error| error.of_qcow2())?;
        header.backing(file).map_err(|error| error.of_qcow2())
    }

    /// Splits the bytes from `offset` on at the ends of clusters.
    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
        let cluster = self.header.cluster();
        let mut done = 0_usize;
        core::iter::from_fn(move || {
            let at = offset.checked_add(to_u64(done))?;
            let room = cluster.saturating_sub(at.checked_rem(cluster)?);
            let end = done.saturating_add(to_usize(room)).min(len);
            let piece = (done < end).then_some((at, done..end));
            done = end;
            piece
        })
    }

    fn expect_writable(&self) -> Result<()> {
        if self.read_only { Err(DeviceError::ReadOnly.into()) } else { Ok(()) }
    }

    /// Writes bytes within one cluster.
    fn write_piece(&self, offset: u64, buf: &[u8]) -> Result<()> {
        {
            let state = self.state.read();
            if let Some(at) = state.known_entry(&self.header, offset).and_then(table::in_place) {
                let inside = self.header.inside(offset);
                return self.file.write_at(at.saturating_add(inside), buf);
            }
        }
        let mut state = self.state.write();
        let entry = state.entry(&*self.file, &self.header, offset)?;
        let inside = self.header.inside(offset);
        // Another thread may have allocated the cluster.
        if let Some(at) = table::in_place(entry) {
            return self.file.write_at(at.saturating_add(inside), buf);
        }
        let cluster = self.header.cluster();
        let start = offset.saturating_sub(inside);
        let mut bytes = crate::zeros(to_usize(cluster)).ok_or(obento_base::Refusal::NoMemory)?;
        if to_u64(buf.len()) < cluster {
            self.read_entry(entry, start, &mut bytes)?;
        }
        let from = to_usize(inside);
        bytes.get_mut(from..from.saturating_add(buf.len())).unwrap_or_default().copy_from_slice(buf);
        state.prepare(&*self.file, &self.header)?;
        let at = state.allocate(&*self.file, &self.header)?;
        let written = self.file.write_at(at, &bytes);
        let stored =
            written.and_then(|()| state.set_entry(&*self.file, &self.header, offset, at | table::COPIED));
        if stored.is_err() {
            state.give_back(&self.header, at);
        }
        stored
    }

    /// Makes `len` bytes within one cluster read as zeros.
    fn zero_piece(&self, offset: u64, len: usize) -> Result<bool> {
        let end = offset.saturating_add(to_u64(len));
        if self.known_zeros(offset..end) < to_u64(len) {
            let zeros = crate::zeros(len).ok_or(obento_base::Refusal::NoMemory)?;
            self.write_piece(offset, &zeros)?;
        }
        Ok(true)
    }

    /// Makes a cluster read as zeros.
    fn clear_cluster(&self, state: &mut State, offset: u64) -> Result<bool> {
        let entry = state.entry(&*self.file, &self.header, offset)?;
        let zero = match (&self.backing, self.header.has_zero_flag()) {
            (None, _) => 0,
            (Some(_), true) => table::ZERO,
            // Version 2 cannot hide a cluster of the backing file.
            (Some(_), false) => return Ok(false),
        };
        if entry != zero {
            state.prepare(&*self.file, &self.header)?;
            state.set_entry(&*self.file, &self.header, offset, zero)?;
        }
        Ok(true)
    }
}

impl BlockDevice for Qcow2 {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self.len, offset, to_u64(buf.len()))?;
        for (at, range) in self.pieces(offset, buf.len()) {
            let part = buf.get_mut(range).unwrap_or_default();
            self.read_piece(at, part)?;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.expect_writable()?;
        check_range(self.len, offset, to_u64(buf.len()))?;
        for (at, range) in self.pieces(offset, buf.len()) {
            self.write_piece(at, buf.get(range).unwrap_or_default())?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.state.write().commit(&*self.file, &self.header)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.punch(range).map(drop)
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.expect_writable()?;
        let len = range.end.saturating_sub(range.start);
        check_range(self.len, range.start, len)?;
        let mut all = true;
        for (at, part) in self.pieces(range.start, to_usize(len)) {
            let len = to_u64(part.len());
            // The last cluster may end after the disk.
            let is_whole = len == self.header.cluster() || at.saturating_add(len) == self.len;
            all &= if is_whole && self.header.inside(at) == 0 {
                self.clear_cluster(&mut self.state.write(), at)?
            } else {
                self.zero_piece(at, to_usize(len))?
            };
        }
        Ok(all)
    }

    fn known_zeros(&self, range: Range<u64>) -> u64 {
        let cluster = self.header.cluster();
        let mut at = range.start;
        while at < range.end.min(self.len) {
            let (entry, step) = {
                let state = self.state.read();
                // Without a table, no cluster of its range has data.
                let step =
                    if state.has_table(&self.header, at) { cluster } else { self.header.bytes_per_table() };
                (state.known_entry(&self.header, at), step)
            };
            let entry = match entry {
                Some(entry) => Ok(entry),
                None => self.state.write().entry(&*self.file, &self.header, at),
            };
            match entry {
                Ok(entry) if table::is_zero(entry, self.backing.is_some()) => {}
                _ => break,
            }
            at = at.saturating_sub(at.checked_rem(step).unwrap_or(0)).saturating_add(step);
        }
        at.min(range.end).saturating_sub(range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    impl GrowingFile for MemDevice {
        fn grow(&self, _len: u64) -> Result<()> {
            Err(DeviceError::ReadOnly.into())
        }
    }

    #[test]
    fn a_search_for_data_passes_the_range_of_a_missing_table_in_one_step() {
        // 2^56 bytes in clusters of 2 MiB: 2^35 clusters, 2^17 tables.
        let mut file = alloc::vec![0; 1 << 20 | 4096];
        let words: [(usize, u32); 8] =
            [(0, 0x5146_49fb), (4, 2), (20, 21), (24, 1 << 24), (36, 1 << 17), (44, 4096), (48, 0), (56, 0)];
        for (at, word) in words {
            file[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        let file = Arc::new(MemDevice::read_only(file));
        let disk = Qcow2::open(file, None, &View::Active, |_, _, _| None).unwrap();
        assert_eq!(disk.known_zeros(5..disk.len()), (1 << 56) - 5);
    }
}
