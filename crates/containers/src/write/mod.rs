//! Writers of disk image formats.
//!
//! A [`Writer`] receives the units of a disk in ascending order and assigns locations in the file. It performs no I/O
//! itself, so that a caller can read, compress and write in several threads. Metadata is returned as [`Patch`]es, in
//! any order.
//!
//! Invariant: the file consists of the data at the returned locations, the patches, and zeros.

mod android;
mod packed;
mod qcow2;
mod raw;
mod vdi;
mod vmdk;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use packed::Stream;
pub use qcow2::{BACKING_NAME_MAX, Backing, Version, overlay};

/// The contents of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Zeros.
    Zeros,
    /// A repeated pattern, if [`Writer::stores_patterns`].
    Fill([u8; 4]),
    /// The bytes of the unit.
    Data,
    /// The compressed bytes of the unit; their number.
    Packed(u32),
}

/// Bytes of metadata and their location in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patch {
    /// The offset in the file.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The disk is too large for the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the disk is larger than {max} bytes, the maximum of this format")]
pub struct TooLarge {
    /// The largest size in bytes.
    pub max: u64,
}

/// How a writer wants units to be compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// Units are stored as they are.
    Stored,
    /// Deflate without a header and with a window of 4 KiB (qcow2). A unit that does not become smaller is stored.
    Deflate,
    /// A zlib stream per unit (VMDK).
    Zlib,
    /// An independent stream per unit, also for zeros.
    Stream(Stream),
}

/// Assigns locations to the units of a disk.
pub trait Writer: Send {
    /// Returns the size of a unit in bytes. The last unit of a disk is padded with zeros.
    fn unit(&self) -> u64;

    /// Returns how units are compressed.
    fn packing(&self) -> Packing {
        Packing::Stored
    }

    /// Returns whether a unit that repeats 4 bytes may be passed as [`Content::Fill`].
    fn stores_patterns(&self) -> bool {
        false
    }

    /// Places `count` units with the same contents, which follow the units placed so far. `count` is 1 for data.
    /// Returns the location of the data in the file, and appends metadata to `patches`.
    ///
    /// # Errors
    ///
    /// The file becomes too large for the format.
    fn place(&mut self, content: Content, count: u64, patches: &mut Vec<Patch>) -> Result<u64, TooLarge>;

    /// Completes the file: appends the remaining metadata to `patches` and returns the length of the file.
    ///
    /// # Errors
    ///
    /// The file becomes too large for the format.
    fn finish(&mut self, patches: &mut Vec<Patch>) -> Result<u64, TooLarge>;
}

/// The identity of a new image, for formats that store one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Random bytes.
    pub id: [u8; 16],
    /// Seconds since 1970.
    pub time: u64,
}

/// A format that can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// The bytes of the disk.
    Raw,
    /// qcow2 of a version, with compressed clusters or without.
    Qcow2 {
        /// The version of the format.
        version: Version,
        /// Whether clusters are compressed.
        is_compressed: bool,
    },
    /// A fixed VHD, padded to whole MiB, as Azure requires.
    Vhd,
    /// A stream-optimised VMDK.
    Vmdk,
    /// A dynamic VDI.
    Vdi,
    /// An Android sparse image.
    AndroidSparse,
    /// A raw disk, compressed.
    Packed(Stream),
}

/// Returns the writer of a disk of `len` bytes.
///
/// # Errors
///
/// The disk is too large for the format.
pub fn writer(output: Output, len: u64, identity: Identity) -> Result<Box<dyn Writer>, TooLarge> {
    Ok(match output {
        Output::Raw => Box::new(raw::Raw::new(len)),
        Output::Qcow2 { version, is_compressed } => {
            Box::new(qcow2::Qcow2Writer::new(version, is_compressed, len)?)
        }
        Output::Vhd => Box::new(raw::FixedVhd::new(len, identity)?),
        Output::Vmdk => Box::new(vmdk::Vmdk::new(len, identity)?),
        Output::Vdi => Box::new(vdi::Vdi::new(len, identity)?),
        Output::AndroidSparse => Box::new(android::Sparse::new(len)?),
        Output::Packed(stream) => Box::new(packed::Packed::new(stream)),
    })
}

/// Returns `len` in units of `unit` bytes, rounded up.
fn units(len: u64, unit: u64) -> u64 {
    len.div_ceil(unit)
}

/// Fails with `TooLarge` unless `len` is at most `max`.
fn at_most(len: u64, max: u64) -> Result<u64, TooLarge> {
    if len <= max { Ok(len) } else { Err(TooLarge { max }) }
}
