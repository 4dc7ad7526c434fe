//! The memory of the guest, as the disk uses it.
//!
//! Invariant: shared memory may change at any time, so it is copied and never borrowed. After a part of it could not be
//! accessed, all accesses fail.

use std::io;
use std::os::fd::OwnedFd;

use obento_host::io::SharedMemory;

/// A part of the memory: addresses `start..start + len`.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPart {
    /// Address in the guest.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The position in the file of this part.
    pub offset: u64,
}

/// The memory of a guest.
#[derive(Default)]
pub struct Memory(Vec<(MemoryPart, SharedMemory)>);

impl Memory {
    /// Maps a further part from its file. Fails if the file is too short.
    pub fn add(&mut self, part: MemoryPart, file: OwnedFd) -> io::Result<()> {
        let end = part.offset.checked_add(part.len);
        let end = end.filter(|_| part.len > 0 && part.start.checked_add(part.len).is_some());
        let shared = SharedMemory::new(file, end.ok_or(io::ErrorKind::InvalidInput)?)?;
        self.0.push((part, shared));
        Ok(())
    }

    /// Copies `into.len()` bytes from `address` on; `None` if they are not all in one part, or cannot be accessed.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let (shared, offset) = self.find(address, into.len())?;
        shared.read(offset, into)
    }

    /// Copies `bytes` to `address`; `None` if they do not all fit into one part, or the part cannot be accessed.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        let (shared, offset) = self.find(address, bytes.len())?;
        shared.write(offset, bytes)
    }

    /// Returns the little-endian number at `address`.
    pub fn number<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes).map(|()| bytes)
    }

    /// Returns whether a part could not be accessed: the guest shortened its file, or the file has holes that cannot be
    /// filled.
    pub fn is_broken(&self) -> bool {
        self.0.iter().any(|(_, shared)| shared.is_broken())
    }

    /// Returns the part that contains the range, and the position of the range in the part's file.
    fn find(&self, address: u64, len: usize) -> Option<(&SharedMemory, u64)> {
        let (part, shared) = self.0.iter().find(|(part, _)| {
            let skip = address.checked_sub(part.start);
            let end = skip.and_then(|skip| skip.checked_add(u64::try_from(len).ok()?));
            end.is_some_and(|end| end <= part.len)
        })?;
        Some((shared, part.offset.checked_add(address.checked_sub(part.start)?)?))
    }
}
