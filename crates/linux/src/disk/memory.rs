//! The memory of the guest, as the disk uses it.
//!
//! Invariant: shared memory may change at any time, so it is copied and never borrowed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

use obento_base::wire::to_usize;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

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

struct Region {
    part: MemoryPart,
    base: NonNull<u8>,
    /// The mapped bytes, from the start of the file.
    mapped: usize,
}

/// The memory of a guest.
#[derive(Default)]
pub struct Memory(Vec<Region>);

// SAFETY: the mappings belong to this value alone, and are only copied from and to.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps a further part from its file. Fails if the file is too short, so that an access would end this process.
    pub fn add(&mut self, part: MemoryPart, file: OwnedFd) -> io::Result<()> {
        let file = File::from(file);
        let end = part
            .offset
            .checked_add(part.len)
            .filter(|end| *end <= rustix::fs::fstat(&file).map_or(0, |stat| stat.st_size.cast_unsigned()));
        let end = end.filter(|_| part.len > 0 && part.start.checked_add(part.len).is_some());
        let mapped = to_usize(end.ok_or(io::ErrorKind::InvalidInput)?);
        // SAFETY: a new mapping at an address of the kernel's choice, given back when the region is dropped.
        let base = unsafe {
            mmap(null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        self.0.push(Region { part, base, mapped });
        Ok(())
    }

    /// Copies `into.len()` bytes from `address` on; `None` if they are not all in one part.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let from = self.find(address, into.len())?;
        // SAFETY: `find` checks the same number of bytes; the other side belongs to this process alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        Some(())
    }

    /// Copies `bytes` to `address`; `None` if they do not all fit into one part.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        let to = self.find(address, bytes.len())?;
        // SAFETY: `find` checks the same number of bytes; the other side belongs to this process alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Some(())
    }

    /// Returns the little-endian number at `address`.
    pub fn number<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes).map(|()| bytes)
    }

    fn find(&self, address: u64, len: usize) -> Option<NonNull<u8>> {
        let region = self.0.iter().find(|region| {
            let skip = address.checked_sub(region.part.start);
            let end = skip.and_then(|skip| skip.checked_add(u64::try_from(len).ok()?));
            end.is_some_and(|end| end <= region.part.len)
        })?;
        let at = to_usize(region.part.offset.checked_add(address.checked_sub(region.part.start)?)?);
        // SAFETY: offset and length of the part were within the mapping when it was made, and the address is within the part.
        Some(unsafe { region.base.add(at) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `add` with this length, and no pointer into the mapping is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}
