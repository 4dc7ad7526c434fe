//! Values that are compressed in units of clusters, usually 16.
//!
//! Invariant: a unit with all its clusters is not compressed; one without clusters is zeros; any other is
//! compressed, in the clusters at its start.
//! Source: linux-ntfs documentation, "Compression"; libfsntfs documentation, "Compressed data".

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Feature, Ino, Result, Structure};
use obento_block::BlockDevice;

use super::lznt1;
use super::stream::Stream;
use crate::layout::boot::Geometry;

/// Largest unit. Windows compresses on volumes with clusters of at most 4096 bytes, 16 of them at once.
const UNIT_MAX: u64 = 1 << 20;
/// The compression method of LZNT1.
const LZNT1: u16 = 1;

/// The storage of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Zeros, without clusters.
    Hole,
    /// As it is.
    Plain,
    /// Compressed in so many clusters.
    Packed(u64),
}

/// Returns the size of a unit in bytes.
///
/// # Errors
///
/// - `Unsupported`: the method is unknown, or the unit is larger than any that Windows writes.
pub fn unit_size(stream: &Stream, geometry: &Geometry) -> Result<u64> {
    if stream.flags & crate::attribute::COMPRESSION != LZNT1 {
        return Err(Error::Unsupported(Feature::Named("a compression method other than LZNT1")));
    }
    let size = u64::from(geometry.cluster_size).checked_shl(stream.unit_bits.into());
    let size = size.filter(|&size| size <= UNIT_MAX && stream.unit_bits < 16);
    size.ok_or(Error::Unsupported(Feature::Named("a compression unit of more than 1 MiB")))
}

/// Returns the storage of the unit that starts at byte `start`.
pub fn unit(stream: &Stream, geometry: &Geometry, start: u64) -> Result<Unit> {
    let cluster = u64::from(geometry.cluster_size);
    let size = unit_size(stream, geometry)?;
    let first = start.checked_div(cluster).unwrap_or(0);
    let count = size.checked_div(cluster).unwrap_or(1);
    let end = first.saturating_add(count);
    let (mut at, mut mapped) = (first, 0_u64);
    while at < end {
        let Some(run) = stream.runs.at(at) else { break };
        let len = run.len.min(end.saturating_sub(at));
        if run.lcn.is_none() {
            break;
        }
        mapped = mapped.saturating_add(len);
        at = at.saturating_add(len);
    }
    // A last unit may end with the data instead of a hole.
    let needed = stream.size().saturating_sub(start).min(size).div_ceil(cluster);
    let ends_here = stream.runs.end() == at;
    Ok(match mapped {
        _ if mapped == count || (ends_here && mapped >= needed && mapped > 0) => Unit::Plain,
        0 if ends_here => return Err(stream.missing(at)),
        0 => Unit::Hole,
        _ => Unit::Packed(mapped),
    })
}

/// Reads and decompresses the unit that starts at byte `start`.
///
/// # Errors
///
/// - `Corrupt`: the unit does not decompress.
pub fn read_unit(
    stream: &Stream,
    device: &dyn BlockDevice,
    geometry: &Geometry,
    start: u64,
) -> Result<Vec<u8>> {
    let size = unit_size(stream, geometry)?;
    let len = to_usize(stream.size().saturating_sub(start).min(size));
    let mut bytes = vec![0; len];
    match unit(stream, geometry, start)? {
        Unit::Hole => {}
        Unit::Plain => stream.read_raw(device, geometry, start, &mut bytes)?,
        Unit::Packed(clusters) => {
            let mut packed = vec![0; to_usize(clusters.saturating_mul(geometry.cluster_size.into()))];
            stream.read_raw(device, geometry, start, &mut packed)?;
            lznt1::decompress(&packed, &mut bytes).ok_or_else(|| broken(stream.number, start, size))?;
        }
    }
    let written = to_usize(stream.initialized().saturating_sub(start));
    if let Some(rest) = bytes.get_mut(written..) {
        rest.fill(0);
    }
    Ok(bytes)
}

/// Returns the error for data that does not decompress.
pub fn broken(number: u64, start: u64, size: u64) -> Error {
    let at = start.checked_div(size.max(1)).unwrap_or(0);
    Corrupt::Field {
        structure: Structure::Inode(Ino(number)),
        field: "CompressedUnit",
        block: 0,
        offset: 0,
        found: at,
    }
    .into()
}
