//! Clusters with zstd compression, which `imago` does not support.
//!
//! Layout, big-endian: an entry of the L1 table (8 bytes) contains the offset of an L2 table in bits 9 to 55.
//! An entry of that table is compressed if bit 62 is set. Then, with x = 62 - (cluster bits - 8), bits 0 to x-1 are the
//! offset of the data. Bits x to 61 are the number of further sectors of 512 bytes that may contain data.
//! Invariant: the output is at most one cluster, and the input at most two (the most sectors that the field can hold).
//! No window is larger than [`WINDOW_MAX`].
//! Source: qemu `docs/interop/qcow2.txt`, "Cluster mapping" and the header's "compression_type".

use std::io::{self, Read};
use std::sync::Arc;

use obento_base::wire::to_usize;
use obento_block::BlockDevice;
use ruzstd::decoding::StreamingDecoder;

use crate::guard::guard;

use super::header::{ClusterCompression, Qcow2Header};

/// The largest window of the zstd levels up to 19. A window of one cluster would be sufficient.
pub(super) const WINDOW_MAX: u64 = 8 << 20;

const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const SECTOR: u64 = 512;

/// The tables of one image of a chain that locate its compressed clusters.
pub(super) struct Tables {
    device: Arc<dyn BlockDevice>,
    cluster_bits: u32,
    l1_offset: u64,
    l1_entries: u64,
    compression: ClusterCompression,
}

impl Tables {
    pub fn new(device: Arc<dyn BlockDevice>, header: &Qcow2Header) -> Self {
        Self {
            device,
            cluster_bits: header.cluster_size.trailing_zeros(),
            l1_offset: header.l1_offset,
            l1_entries: header.l1_entries,
            compression: header.compression,
        }
    }

    pub fn compression(&self) -> ClusterCompression {
        self.compression
    }

    /// Returns the L2 entry of the cluster around `offset`, or 0 if it has none.
    fn entry(&self, offset: u64) -> io::Result<u64> {
        let cluster = offset >> self.cluster_bits;
        let l2_bits = self.cluster_bits.saturating_sub(3);
        let (row, column) = (cluster >> l2_bits, cluster & ((1 << l2_bits) - 1));
        if row >= self.l1_entries {
            return Ok(0);
        }
        match self.word(self.l1_offset, row)? & OFFSET_MASK {
            0 => Ok(0),
            table => self.word(table, column),
        }
    }

    fn word(&self, table: u64, index: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let at = index.checked_mul(8).and_then(|at| at.checked_add(table));
        let at = at.ok_or(io::ErrorKind::InvalidData)?;
        self.device.read_at(at, &mut bytes).map_err(io::Error::other)?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// Decompresses the cluster of `entry`.
    fn decompress(&self, entry: u64) -> io::Result<Vec<u8>> {
        let x = 62_u32.saturating_sub(self.cluster_bits.saturating_sub(8));
        let start = entry & ((1 << x) - 1);
        let sectors = ((entry & !(3 << 62)) >> x) + 1;
        let len = (sectors * SECTOR).saturating_sub(start % SECTOR);
        // The last sectors may be truncated with the file.
        let mut packed = zeros(len.min(self.device.len().saturating_sub(start)))?;
        self.device.read_at(start, &mut packed).map_err(io::Error::other)?;
        let mut cluster = zeros(1 << self.cluster_bits)?;
        guard(|| {
            let decoder = StreamingDecoder::new_with_max_window_size(packed.as_slice(), WINDOW_MAX);
            decoder.map_err(io::Error::other)?.read_exact(&mut cluster)
        })?;
        Ok(cluster)
    }
}

fn zeros(len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(to_usize(len)).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.resize(to_usize(len), 0);
    Ok(bytes)
}

/// Decompresses the cluster around `offset` of the first image of `chain`, from the top, that contains it.
/// Returns its start and its bytes, or `None` if that image does not use zstd.
pub(super) fn read(chain: &[Tables], offset: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
    for tables in chain {
        let entry = tables.entry(offset)?;
        if entry == 0 {
            continue;
        }
        if entry & COMPRESSED == 0 || tables.compression != ClusterCompression::Zstd {
            return Ok(None);
        }
        let start = offset - offset % (1 << tables.cluster_bits);
        return tables.decompress(entry).map(|cluster| Some((start, cluster)));
    }
    Ok(None)
}
