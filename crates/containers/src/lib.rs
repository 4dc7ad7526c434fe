//! Decoders of disk image formats: VHD, VHDX, VMDK, VDI and Android sparse images.
//!
//! [`detect`] recognises a format by the first and the last sector of a file, and [`open`] returns the disk in
//! the file as a [`BlockDevice`]. A disk is read-only, except for a fixed VHD, whose bytes are those of the file.
//!
//! Each format is a `layout::Layout`: it maps a range of the disk to zeros, a pattern, a range of the file,
//! or compressed data. `disk::Disk` reads such a layout. Formats whose table has one entry per block share
//! `blocks::Blocks`.
//!
//! Invariant: no decoder opens another file. A disk whose data is in several files is rejected.
//! Invariant: the memory for a table is at most the size of the table in the file, and at most `TABLE_MAX`.
#![no_std]
#![cfg_attr(
    not(test),
    warn(
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod android;
mod blocks;
mod checksum;
mod disk;
mod error;
mod layout;
pub mod qcow2;
mod vdi;
mod vhd;
mod vhdx;
mod vmdk;
pub mod write;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use obento_base::wire::{FromBytes, Immutable, KnownLayout, Unaligned, to_u64, to_usize};
use obento_block::{BlockDevice, check_range};

pub use error::OpenFailure;
use error::Opening;

/// The number of bytes at each end of a file that [`detect`] needs.
pub const SECTOR: usize = 512;

/// The largest table that is read into memory, in bytes: enough for a VDI of 16 TiB.
const TABLE_MAX: u64 = 64 << 20;

/// A disk image format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// Virtual Hard Disk of Virtual PC, Hyper-V and Azure: fixed or dynamic.
    Vhd,
    /// Virtual Hard Disk, version 2, of Hyper-V.
    Vhdx,
    /// Virtual Machine Disk of VMware: one sparse or stream-optimised file.
    Vmdk,
    /// Virtual Disk Image of VirtualBox.
    Vdi,
    /// Android sparse image (`img2simg`).
    AndroidSparse,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Vhd, Self::Vhdx, Self::Vmdk, Self::Vdi, Self::AndroidSparse];

    /// Returns the name of the format: `vhd`, `vhdx`, `vmdk`, `vdi` or `android-sparse`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vhd => "vhd",
            Self::Vhdx => "vhdx",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::AndroidSparse => "android-sparse",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Decompresses a zlib stream into the buffer. Returns the number of bytes that the stream contains, at most
/// the length of the buffer, or `None` if the stream is damaged.
pub type Inflate = fn(stream: &[u8], buf: &mut [u8]) -> Option<usize>;

/// Returns the format of a file of `len` bytes. `start` is its first bytes and `end` its last bytes, of at most
/// [`SECTOR`] bytes each. A format is recognised by its magic number. A fixed VHD has no signature at its start. Its
/// last sector must be a footer with a correct checksum that fits the length of the file.
pub fn detect(start: &[u8], end: &[u8], len: u64) -> Option<Format> {
    if vhdx::is_vhdx(start) {
        Some(Format::Vhdx)
    } else if vmdk::is_vmdk(start) {
        Some(Format::Vmdk)
    } else if vdi::is_vdi(start) {
        Some(Format::Vdi)
    } else if android::is_android_sparse(start) {
        Some(Format::AndroidSparse)
    } else if vhd::is_dynamic(start) || vhd::is_fixed(end, len) {
        Some(Format::Vhd)
    } else {
        None
    }
}

/// Reads both ends of `file` and calls [`detect`].
///
/// # Errors
///
/// Those of the device.
pub fn detect_on(file: &dyn BlockDevice) -> obento_base::Result<Option<Format>> {
    let (mut start, mut end) = ([0; SECTOR], [0; SECTOR]);
    let len = to_usize(file.len()).min(SECTOR);
    let (Some(start), Some(end)) = (start.get_mut(..len), end.get_mut(..len)) else { return Ok(None) };
    file.read_at(0, start)?;
    file.read_at(file.len().saturating_sub(to_u64(len)), end)?;
    Ok(detect(start, end, file.len()))
}

/// Opens the disk of `format` in `file`.
///
/// # Errors
///
/// - `Damaged`: a structure violates the format.
/// - `Unsupported`: a differencing disk, encryption, data in other files and similar.
/// - `Device`: a read failed.
pub fn open(
    format: Format,
    file: Arc<dyn BlockDevice>,
    inflate: Inflate,
) -> Result<Arc<dyn BlockDevice>, OpenFailure> {
    let opened = match format {
        Format::Vhd => vhd::open(file),
        Format::Vhdx => vhdx::open(file),
        Format::Vmdk => vmdk::open(file, inflate),
        Format::Vdi => vdi::open(file),
        Format::AndroidSparse => android::open(file),
    };
    opened.map_err(|error| error.of(format))
}

/// Returns whether `file` contains a checksum of the whole disk that is wrong. Only Android sparse images may contain one;
/// it costs a read of all data.
///
/// # Errors
///
/// - `Damaged`: a structure violates the format.
/// - `Device`: a read failed.
pub fn has_wrong_checksum(format: Format, file: &dyn BlockDevice) -> Result<bool, OpenFailure> {
    match format {
        Format::AndroidSparse => android::has_wrong_checksum(file).map_err(|error| error.of(format)),
        Format::Vhd | Format::Vhdx | Format::Vmdk | Format::Vdi => Ok(false),
    }
}

/// Reads a structure that mirrors the bytes at `offset`.
fn read_raw<T: FromBytes + KnownLayout + Immutable + Unaligned + Clone>(
    file: &dyn BlockDevice,
    offset: u64,
    structure: &'static str,
) -> Result<T, Opening> {
    let bytes = read_bytes(file, offset, to_u64(size_of::<T>()), structure)?;
    T::read_from_bytes(&bytes).map_err(|_| Opening::damaged(structure, "too short"))
}

/// Reads the table of `len` bytes at `offset`.
///
/// # Errors
///
/// Unsupported if the table has more than [`TABLE_MAX`] bytes; Damaged if it is not within the file.
fn read_bytes(
    file: &dyn BlockDevice,
    offset: u64,
    len: u64,
    structure: &'static str,
) -> Result<Vec<u8>, Opening> {
    if len > TABLE_MAX {
        return Err(Opening::Unsupported("a table of more than 64 MiB"));
    }
    if check_range(file.len(), offset, len).is_err() {
        return Err(Opening::damaged(structure, "past the end of the file; the file may be truncated"));
    }
    let mut bytes = zeros(to_usize(len)).ok_or(Opening::Unsupported("a table larger than the memory"))?;
    file.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

fn zeros(len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).ok()?;
    bytes.resize(len, 0);
    Some(bytes)
}
