//! Memory that another process shares through a file, and that the other process controls.
//!
//! Invariant: the other process may change the memory at any time, so bytes are copied and never borrowed.
//! Invariant: an access never ends this process. The other process can shorten the file, or leave holes in a file
//! system that is full. `fault` turns the signal into a mark, and after the mark every access fails.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::fs::{fstat, fstatfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::fault::{Substitute, Watch};

/// `HUGETLBFS_MAGIC` of `linux/magic.h`. A single page of such a mapping cannot be replaced after a fault.
const HUGE_PAGES: u64 = 0x9584_58f6;

/// A mapping of a file that another process controls.
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    watch: Watch,
}

// SAFETY: the mapping belongs to this value, is only copied from and to, and belongs to no thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps the first `len` bytes of `file` for reading and writing.
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: `len` is 0, the file is shorter, or its file system has huge pages
    /// - `OutOfMemory`: too many mappings are watched
    /// - errors of `mmap`
    pub fn new(file: impl AsFd, len: u64) -> io::Result<Self> {
        let file_len = fstat(&file)?.st_size.cast_unsigned();
        let is_huge = u64::try_from(fstatfs(&file)?.f_type) == Ok(HUGE_PAGES);
        let len = usize::try_from(len).ok().filter(|_| len > 0 && len <= file_len && !is_huge);
        let len = len.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice, given back when the value is dropped.
        let base =
            unsafe { mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)? };
        let watch = Watch::new(base as usize, len, Substitute::Writable);
        match NonNull::new(base.cast()).zip(watch) {
            Some((base, watch)) => Ok(Self { base, len, watch }),
            None => {
                // SAFETY: mapped above with this length, and not used.
                let _ = unsafe { munmap(base, len) };
                Err(io::ErrorKind::OutOfMemory.into())
            }
        }
    }

    /// Copies `into.len()` bytes from `offset` on. Returns `None` if the range exceeds the mapping, or if a byte of the
    /// mapping could not be accessed, now or earlier.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let from = self.find(offset, into.len())?;
        // SAFETY: `find` checks the same number of bytes; the other side belongs to this process alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        self.expect_intact()
    }

    /// Copies `bytes` to `offset`. Returns `None` as [`read`](Self::read) does.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Option<()> {
        let to = self.find(offset, bytes.len())?;
        // SAFETY: `find` checks the same number of bytes; the other side belongs to this process alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        self.expect_intact()
    }

    /// Returns whether a byte could not be accessed. From then on all accesses fail.
    pub fn is_broken(&self) -> bool {
        self.watch.has_faulted()
    }

    fn expect_intact(&self) -> Option<()> {
        (!self.is_broken()).then_some(())
    }

    fn find(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        self.expect_intact()?;
        let offset = usize::try_from(offset).ok()?;
        offset.checked_add(len).filter(|end| *end <= self.len)?;
        // SAFETY: the offset is within the mapping.
        Some(unsafe { self.base.add(offset) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // Ends before unmapping: other mappings may reuse the addresses.
        self.watch.end();
        // SAFETY: mapped by `new` with this length, and no pointer into the mapping is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn shared_memory_is_read_and_written_within_its_length() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * PAGE).unwrap();
        let memory = SharedMemory::new(&file, PAGE + 10).unwrap();
        let mut bytes = [1; 4];
        assert_eq!(memory.write(PAGE + 6, b"abcd"), Some(()));
        assert_eq!(memory.read(PAGE + 6, &mut bytes), Some(()));
        assert_eq!(&bytes, b"abcd");
        for outside in [PAGE + 7, u64::MAX - 1] {
            assert_eq!(memory.read(outside, &mut bytes), None);
            assert_eq!(memory.write(outside, &bytes), None);
        }
        for len in [0, 2 * PAGE + 1, u64::MAX] {
            assert!(SharedMemory::new(&file, len).is_err(), "{len}");
        }
    }

    #[test]
    fn accesses_fail_after_the_other_process_has_shortened_the_file() {
        for is_read in [true, false] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(4 * PAGE).unwrap();
            let memory = SharedMemory::new(&file, 4 * PAGE).unwrap();
            file.set_len(PAGE).unwrap();
            assert_eq!(memory.write(0, b"x"), Some(()));
            // Over several pages that do not exist any more.
            let mut bytes = vec![1; 2 * 4096];
            let accessed = match is_read {
                true => memory.read(PAGE + 10, &mut bytes),
                false => memory.write(PAGE + 10, &bytes),
            };
            assert_eq!(accessed, None);
            assert!(memory.is_broken());
            assert_eq!(memory.read(0, &mut [0]), None, "the memory is not used any more");
        }
    }
}
