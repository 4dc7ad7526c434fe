//! qcow2 images of version 2 and 3.
//!
//! The file is the header, the L1 table, L2 tables and clusters in the order of the disk, and at the end the
//! reference counts. An L2 table gets its place when the first cluster that it locates is placed.
//! Source: qemu `docs/interop/qcow2.rst`.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};

use super::{Content, Packing, Patch, TooLarge, Writer, at_most, units};

/// The version of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// Version 2, which qemu before 1.1 (2012) reads.
    V2,
    /// Version 3.
    #[default]
    V3,
}

/// The backing file of a new image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backing<'a> {
    /// The path, which is absolute or relative to the folder of the new image: at most [`BACKING_NAME_MAX`] bytes.
    pub name: &'a [u8],
    /// The format: `qcow2` or `raw`.
    pub format: &'static str,
}

/// The most bytes of the name of a backing file.
pub const BACKING_NAME_MAX: usize = 1023;

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Entries of an L2 table, of 8 bytes.
const ENTRIES: u64 = CLUSTER / 8;
/// Counts of a block of reference counts, of 2 bytes.
const COUNTS: u64 = CLUSTER / 2;
/// qemu accepts an L1 table of at most 32 MiB.
const MAX: u64 = (32 << 20) / 8 * ENTRIES * CLUSTER;
/// The flag of entries whose cluster has a reference count of 1.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// The position of the number of further sectors in the entry of a compressed cluster.
const SECTORS_SHIFT: u32 = 62 - (CLUSTER_BITS - 8);
const SECTOR: u64 = 512;
/// The binary logarithm of the bits of a reference count.
const REFCOUNT_ORDER: u32 = 4;
const HEADER_2: usize = 72;
/// The position of the place and the length of the name of the backing file.
const BACKING_AT: usize = 8;
const HEADER_3: u32 = 104;
/// The header extension with the format of the backing file.
const BACKING_FORMAT: u32 = 0xe279_2aca;

pub(super) struct Qcow2Writer {
    version: Version,
    is_compressed: bool,
    len: u64,
    /// The number of units placed so far.
    placed: u64,
    /// The next free byte. Compressed clusters follow each other without alignment.
    next: u64,
    l1: Vec<u64>,
    /// The place and the entries of the present L2 table.
    table: Option<(u64, Vec<u64>)>,
    /// The reference counts of clusters that are not 1.
    counts: Vec<u16>,
}

impl Qcow2Writer {
    pub fn new(version: Version, is_compressed: bool, len: u64) -> Result<Self, TooLarge> {
        let len = at_most(len, MAX)?.next_multiple_of(SECTOR);
        let l1 = units(len, ENTRIES.saturating_mul(CLUSTER));
        let next = CLUSTER.saturating_add(l1.saturating_mul(8).next_multiple_of(CLUSTER));
        let l1 = vec![0; to_usize(l1)];
        let mut this =
            Self { version, is_compressed, len, placed: 0, next, l1, table: None, counts: Vec::new() };
        this.count(0, next);
        Ok(this)
    }

    /// Adds a reference to each cluster of the bytes from `at` on.
    fn count(&mut self, at: u64, len: u64) {
        let (first, end) = (at >> CLUSTER_BITS, units(at.saturating_add(len), CLUSTER));
        if to_u64(self.counts.len()) < end {
            self.counts.resize(to_usize(end), 0);
        }
        let touched = self.counts.get_mut(to_usize(first)..to_usize(end)).unwrap_or_default();
        touched.iter_mut().for_each(|count| *count = count.saturating_add(1));
    }

    /// Allocates `len` bytes at a multiple of the cluster size.
    fn allocate(&mut self, len: u64) -> u64 {
        let at = self.next.next_multiple_of(CLUSTER);
        self.next = at.saturating_add(len);
        self.count(at, len);
        at
    }

    /// Allocates `len` bytes for a compressed cluster. Returns their place and the entry that locates them.
    fn allocate_packed(&mut self, len: u64) -> (u64, u64) {
        let at = self.next;
        self.next = at.saturating_add(len);
        self.count(at, len);
        let sectors = (at % SECTOR).saturating_add(len).saturating_sub(1) / SECTOR;
        (at, COMPRESSED | sectors << SECTORS_SHIFT | at)
    }

    fn close_table(&mut self, patches: &mut Vec<Patch>) {
        if let Some((at, entries)) = self.table.take() {
            patches.push(Patch { at, bytes: bytes(&entries) });
        }
    }

    /// Stores the entry of the next unit.
    fn set_entry(&mut self, entry: u64) {
        let (row, column) = (to_usize(self.placed / ENTRIES), to_usize(self.placed % ENTRIES));
        if self.table.is_none() {
            let at = self.allocate(CLUSTER);
            if let Some(l1) = self.l1.get_mut(row) {
                *l1 = at | COPIED;
            }
            self.table = Some((at, vec![0; to_usize(ENTRIES)]));
        }
        let entries = self.table.as_mut().map(|(_, entries)| entries.as_mut_slice()).unwrap_or_default();
        if let Some(place) = entries.get_mut(column) {
            *place = entry;
        }
    }

    /// Places the reference counts at the end of the file. Returns the place and the clusters of their table.
    fn finish_counts(&mut self, patches: &mut Vec<Patch>) -> (u64, u64) {
        let used = units(self.next, CLUSTER);
        // The blocks and their table are counted, too: repeat until the number does not change.
        let (mut blocks, mut table) = (0, 0);
        loop {
            let all = used.saturating_add(blocks).saturating_add(table);
            let (next_blocks, next_table) = (units(all, COUNTS), units(units(all, COUNTS), ENTRIES));
            if (next_blocks, next_table) == (blocks, table) {
                break;
            }
            (blocks, table) = (next_blocks, next_table);
        }
        let table_at = self.allocate(table.saturating_mul(CLUSTER));
        let blocks_at = self.allocate(blocks.saturating_mul(CLUSTER));
        let entries: Vec<u64> =
            (0..blocks).map(|block| blocks_at.saturating_add(block.saturating_mul(CLUSTER))).collect();
        patches.push(Patch { at: table_at, bytes: bytes(&entries) });
        let counts = self.counts.iter().flat_map(|count| count.to_be_bytes()).collect();
        patches.push(Patch { at: blocks_at, bytes: counts });
        (table_at, table)
    }

    fn header(&self, counts_at: u64, counts_clusters: u64) -> Vec<u8> {
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes();
        let mut header = Vec::new();
        header.extend_from_slice(b"QFI\xfb");
        header.extend_from_slice(&if self.version == Version::V2 { 2_u32 } else { 3 }.to_be_bytes());
        // The backing file, if any: see `add_backing`.
        header.extend_from_slice(&[0; 12]);
        header.extend_from_slice(&CLUSTER_BITS.to_be_bytes());
        header.extend_from_slice(&self.len.to_be_bytes());
        // No encryption.
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&narrow(to_u64(self.l1.len())));
        header.extend_from_slice(&CLUSTER.to_be_bytes());
        header.extend_from_slice(&counts_at.to_be_bytes());
        header.extend_from_slice(&narrow(counts_clusters));
        // No snapshots.
        header.extend_from_slice(&[0; 12]);
        debug_assert_eq!(header.len(), HEADER_2);
        if self.version == Version::V3 {
            // No features.
            header.extend_from_slice(&[0; 24]);
            header.extend_from_slice(&REFCOUNT_ORDER.to_be_bytes());
            header.extend_from_slice(&HEADER_3.to_be_bytes());
        }
        header
    }
}

/// Returns the metadata and the length of an image of `len` bytes without data of its own: all bytes are those of
/// `backing`.
///
/// # Errors
///
/// The disk is too large for the format.
pub fn overlay(version: Version, len: u64, backing: &Backing<'_>) -> Result<(Vec<Patch>, u64), TooLarge> {
    let mut writer = Qcow2Writer::new(version, false, len)?;
    let mut patches = Vec::new();
    let len = writer.finish(&mut patches)?;
    for header in patches.iter_mut().filter(|patch| patch.at == 0) {
        add_backing(&mut header.bytes, backing);
    }
    Ok((patches, len))
}

/// Adds the extension with the format of a backing file and its name to a header, which refers to the name.
fn add_backing(header: &mut Vec<u8>, backing: &Backing<'_>) {
    let narrow = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    header.extend_from_slice(&BACKING_FORMAT.to_be_bytes());
    header.extend_from_slice(&narrow(backing.format.len()));
    header.extend_from_slice(backing.format.as_bytes());
    header.resize(header.len().next_multiple_of(8), 0);
    // The end of the extensions.
    header.extend_from_slice(&[0; 8]);
    let place = to_u64(header.len()).to_be_bytes().into_iter().chain(narrow(backing.name.len()));
    header.iter_mut().skip(BACKING_AT).zip(place).for_each(|(to, from)| *to = from);
    header.extend_from_slice(backing.name);
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

impl Writer for Qcow2Writer {
    fn unit(&self) -> u64 {
        CLUSTER
    }

    fn packing(&self) -> Packing {
        if self.is_compressed { Packing::Deflate } else { Packing::Stored }
    }

    fn place(&mut self, content: Content, count: u64, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        let mut location = 0;
        match content {
            Content::Zeros | Content::Fill(_) => {}
            Content::Data => {
                // The table comes before the first cluster that it locates.
                self.set_entry(0);
                location = self.allocate(CLUSTER);
                self.set_entry(location | COPIED);
            }
            Content::Packed(len) => {
                self.set_entry(0);
                let (at, entry) = self.allocate_packed(len.into());
                location = at;
                self.set_entry(entry);
            }
        }
        let before = self.placed / ENTRIES;
        self.placed = self.placed.saturating_add(count);
        if self.placed / ENTRIES != before {
            self.close_table(patches);
        }
        Ok(location)
    }

    fn finish(&mut self, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        self.close_table(patches);
        let (at, clusters) = self.finish_counts(patches);
        patches.push(Patch { at: 0, bytes: self.header(at, clusters) });
        patches.push(Patch { at: CLUSTER, bytes: bytes(&self.l1) });
        Ok(self.next.next_multiple_of(CLUSTER))
    }
}
