//! A value in clusters.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result, Structure};
use obento_block::BlockDevice;

use crate::attribute::runs::{Run, RunError, Runs};
use crate::attribute::{Attribute, Body, COMPRESSION, Sizes, offset_in};
use crate::layout::boot::Geometry;
use crate::layout::bytes::min_len;
use crate::mft::Record;

/// Largest size of a value.
pub const SIZE_MAX: u64 = 1 << 62;

/// The location of a value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stream {
    /// The file, for errors.
    pub number: u64,
    /// Flags of the attribute.
    pub flags: u16,
    /// Logarithm of the clusters of a compression unit.
    pub unit_bits: u8,
    /// Sizes in bytes.
    pub sizes: Sizes,
    /// Clusters.
    pub runs: Runs,
}

impl Stream {
    /// Appends the part of the value that `attribute` describes.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the part does not follow the parts before, or leaves the volume.
    pub fn append(&mut self, record: &Record, attribute: &Attribute<'_>, geometry: &Geometry) -> Result<()> {
        let at = attribute.offset;
        let Body::NonResident(part) = attribute.body else {
            return Err(record.field("FormCode", at.saturating_add(8), 0));
        };
        if part.lowest != self.runs.end() {
            return Err(record.field("LowestVcn", at.saturating_add(16), part.lowest));
        }
        if part.lowest == 0 {
            if part.sizes.size > SIZE_MAX {
                return Err(record.field("DataSize", at.saturating_add(48), part.sizes.size));
            }
            self.number = record.number;
            self.flags = attribute.flags;
            self.unit_bits = if attribute.flags & COMPRESSION == 0 { 0 } else { part.unit_bits };
            self.sizes = part.sizes;
        }
        self.runs.append(part.runs, geometry.clusters).map_err(|error| match error {
            RunError::Encoding(inside) => {
                let start = offset_in(record.bytes(), part.runs);
                record.field("MappingPairs", to_usize(start).saturating_add(inside), to_u64(inside))
            }
            RunError::Outside { vcn, lcn, len } => {
                let structure = Structure::Inode(Ino(record.number));
                Corrupt::BlockRange { structure, at: vcn, start: lcn, len }.into()
            }
        })?;
        // Some writers leave the last cluster at 0 for a value without clusters.
        let is_empty = self.runs.end() == 0 && part.highest == 0;
        if part.highest.wrapping_add(1) != self.runs.end() && !is_empty {
            return Err(record.field("HighestVcn", at.saturating_add(24), part.highest));
        }
        Ok(())
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.sizes.size
    }

    /// Returns the number of bytes that were written.
    pub fn initialized(&self) -> u64 {
        self.sizes.initialized.min(self.sizes.size)
    }

    /// Returns whether the value is compressed in units.
    pub fn is_compressed(&self) -> bool {
        self.flags & COMPRESSION != 0 && self.unit_bits != 0
    }

    /// Returns the error for a cluster of the value that no run describes.
    pub fn missing(&self, vcn: u64) -> Error {
        let structure = Structure::Inode(Ino(self.number));
        Corrupt::BlockRange { structure, at: vcn, start: 0, len: 0 }.into()
    }

    /// Returns the run that contains byte `offset`. The result is the run's byte offset on the volume, or `None` for a
    /// hole, and the number of bytes from there to its end.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: no run contains the byte.
    pub fn place(&self, offset: u64, geometry: &Geometry) -> Result<(Option<u64>, u64)> {
        let size = u64::from(geometry.cluster_size);
        let (vcn, inside) = (offset.checked_div(size).unwrap_or(0), offset.checked_rem(size).unwrap_or(0));
        let Run { len, lcn, .. } = self.runs.at(vcn).ok_or_else(|| self.missing(vcn))?;
        let start = lcn.map(|lcn| lcn.saturating_mul(size).saturating_add(inside));
        Ok((start, len.saturating_mul(size).saturating_sub(inside)))
    }

    /// Returns the byte offset on the volume of byte `offset`, if it is not in a hole.
    pub fn offset_of(&self, offset: u64, geometry: &Geometry) -> Option<u64> {
        self.place(offset, geometry).ok().and_then(|(start, _)| start)
    }

    /// Fills `buf` from byte `offset` of the clusters, without regard to compression and to the written size.
    pub fn read_raw(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (start, len) = self.place(at, geometry)?;
            let (now, later) = rest.split_at_mut(min_len(rest.len(), len));
            match start {
                Some(start) => device.read_at(start, now)?,
                None => now.fill(0),
            }
            at = at.saturating_add(to_u64(now.len()));
            rest = later;
        }
        Ok(())
    }

    /// Fills `buf` from byte `offset` of a value that is not compressed.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: no run contains a byte of the range.
    pub fn read(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let written = self.initialized().saturating_sub(offset);
        let (data, zeros) = buf.split_at_mut(min_len(buf.len(), written));
        zeros.fill(0);
        self.read_raw(device, geometry, offset, data)
    }

    /// Returns a whole value of at most `max` bytes.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the value is longer.
    pub fn read_all(&self, device: &dyn BlockDevice, geometry: &Geometry, max: u64) -> Result<Vec<u8>> {
        if self.size() > max || self.is_compressed() {
            let structure = Structure::Inode(Ino(self.number));
            return Err(Corrupt::Truncated { structure, block: 0, offset: 0, len: self.size() }.into());
        }
        let mut bytes = vec![0; to_usize(self.size())];
        self.read(device, geometry, 0, &mut bytes)?;
        Ok(bytes)
    }
}
