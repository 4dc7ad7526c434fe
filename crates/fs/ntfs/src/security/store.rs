//! The security descriptors of the volume: `$Secure` stores each once, and files refer to them by number.
//!
//! Layout: the stream `$SDS` contains descriptors after headers of 20 bytes; the index `$SII` orders the headers by
//! their numbers.
//! Source: linux-ntfs documentation, "$Secure"; libfsntfs documentation, "Security descriptors".

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Ino, Result};

use crate::driver::volume::Volume;
use crate::index::Index;
use crate::layout::bytes::{slice, u32_at, u64_at};
use crate::layout::raw::{kind, record};
use crate::mft::Value;

/// Name of the index, in UTF-16.
const SII: &[u8] = b"$\0S\0I\0I\0";
/// Name of the stream, in UTF-16.
const SDS: &[u8] = b"$\0S\0D\0S\0";
/// Largest descriptor, with its header.
const LEN_MAX: u32 = (64 << 10) + 20;
/// Length of the header of a descriptor.
const HEADER: usize = 20;
/// No tree of descriptors is deeper.
const DEPTH_MAX: u32 = 16;

/// The open `$Secure`.
#[derive(Debug)]
pub struct Store {
    index: Index,
    stream: Value,
}

impl Store {
    /// Opens the store; a volume before version 3.0 has none.
    pub fn open(volume: &Volume) -> Result<Self> {
        let file = volume.mft().file(Ino(record::SECURE))?;
        let index = Index::open(volume, &file, SII)?;
        let stream = file.value(volume.mft(), kind::DATA, SDS)?;
        Ok(Self { index, stream: stream.ok_or(Error::NotFound)? })
    }

    /// Returns the descriptor with this number.
    ///
    /// # Errors
    ///
    /// - `NotFound`: no descriptor has this number.
    /// - `Corrupt`: the store is damaged.
    pub fn get(&self, volume: &Volume, id: u32) -> Result<Vec<u8>> {
        let (offset, len) = self.locate(volume, id)?;
        let Value::Stream(stream) = &self.stream else { return Err(Error::NotFound) };
        if !(HEADER..=to_usize(LEN_MAX.into())).contains(&len)
            || offset.saturating_add(to_u64(len)) > stream.size()
        {
            return Err(Error::NotFound);
        }
        let mut bytes = vec![0; len];
        stream.read(volume.device_ref(), volume.geometry(), offset, &mut bytes)?;
        if u32_at(&bytes, 4) != Some(id) {
            return Err(Error::NotFound);
        }
        Ok(bytes.get(HEADER..).unwrap_or_default().to_vec())
    }

    /// Returns offset and length of a descriptor with its header.
    fn locate(&self, volume: &Volume, id: u32) -> Result<(u64, usize)> {
        let mut node = self.index.root.clone();
        for _ in 0..DEPTH_MAX {
            let mut child = None;
            for entry in node.entries() {
                let entry = entry.map_err(|_| Error::NotFound)?;
                let key = u32_at(entry.key, 0).unwrap_or(u32::MAX);
                if !entry.is_last() && key < id {
                    continue;
                }
                if !entry.is_last() && key == id {
                    return place(entry.bytes).ok_or(Error::NotFound);
                }
                child = entry.child;
                break;
            }
            let block = child.and_then(|vcn| self.index.block_of(volume, vcn)).ok_or(Error::NotFound)?;
            node = self.index.node(volume, block)?;
        }
        Err(Error::NotFound)
    }
}

/// Returns offset and length in the data of an entry: hash, number, offset, length.
fn place(entry: &[u8]) -> Option<(u64, usize)> {
    let start = usize::from(crate::layout::bytes::u16_at(entry, 0)?);
    let data = slice(entry, start, HEADER)?;
    Some((u64_at(data, 8)?, to_usize(u32_at(data, 16)?.into())))
}
