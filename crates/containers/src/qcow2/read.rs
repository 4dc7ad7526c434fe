//! Reads clusters.

use alloc::sync::Arc;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Refusal, Result};
use obento_block::BlockDevice;

use super::Qcow2;
use super::table::{Entry, decode};

impl Qcow2 {
    /// Reads bytes within one cluster.
    pub(super) fn read_piece(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        loop {
            {
                let state = self.state.read();
                if let Some(entry) = state.known_entry(&self.header, offset) {
                    return self.read_entry(entry, offset, buf);
                }
            }
            self.state.write().entry(&*self.file, &self.header, offset)?;
        }
    }

    /// Reads bytes from `offset` on, within the cluster of `entry`.
    pub(super) fn read_entry(&self, entry: u64, offset: u64, buf: &mut [u8]) -> Result<()> {
        let inside = self.header.inside(offset);
        match decode(entry, self.header.cluster_bits()) {
            Entry::Unallocated => match &self.backing {
                Some(backing) => read_padded(&**backing, offset, buf),
                None => {
                    buf.fill(0);
                    Ok(())
                }
            },
            Entry::Zeros => {
                buf.fill(0);
                Ok(())
            }
            // The last cluster of the file may be incomplete.
            Entry::Data(at) if at < self.file.len() => {
                read_padded(&*self.file, at.saturating_add(inside), buf)
            }
            Entry::Data(_) => Err(DeviceError::Read { offset, len: to_u64(buf.len()), errno: 0 }.into()),
            Entry::Packed { at, len } => {
                let cluster = self.unpack(at, len)?;
                let there = cluster.get(to_usize(inside)..).unwrap_or_default();
                buf.iter_mut().zip(there).for_each(|(to, &from)| *to = from);
                Ok(())
            }
        }
    }

    /// Returns the cluster whose compressed bytes are the first of `len` bytes at `at`.
    fn unpack(&self, at: u64, len: u64) -> Result<Arc<[u8]>> {
        let failed = DeviceError::Read { offset: at, len, errno: 0 };
        let there = len.min(self.file.len().saturating_sub(at));
        let mut packed = crate::zeros(to_usize(there)).ok_or(Refusal::NoMemory)?;
        self.file.read_at(at, &mut packed)?;
        let mut cluster = crate::zeros(to_usize(self.header.cluster())).ok_or(Refusal::NoMemory)?;
        (self.unpack)(self.header.compression, &packed, &mut cluster).ok_or(failed)?;
        Ok(cluster.into())
    }
}

/// Reads from a device; bytes past its end are zeros.
fn read_padded(device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> Result<()> {
    let there = device.len().saturating_sub(offset).min(to_u64(buf.len()));
    let (part, rest) = buf.split_at_mut_checked(to_usize(there)).unwrap_or_default();
    rest.fill(0);
    if part.is_empty() { Ok(()) } else { device.read_at(offset, part) }
}
