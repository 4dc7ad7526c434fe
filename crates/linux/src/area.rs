//! The memory that is shared with the guest, as the host uses it.
//!
//! Invariant: the guest is not trusted and may write at any time. Everything is copied once before it is checked, with
//! lengths that the host chose. The file is sealed, so that it cannot be shortened under the mapping.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use obento_base::wire::{to_u64, to_usize};
use obento_linux_wire::{AREA, DATA_AT, DATA_MAX, MAGIC, REPLY_AT, REPLY_MAX, REQUEST_AT, REQUEST_MAX, Word};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The shared memory.
pub struct Area {
    base: NonNull<u8>,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to this value, and is only copied from and to, or touched atomically.
unsafe impl Send for Area {}

impl Area {
    /// Creates shared memory that contains the magic number and otherwise zeros.
    pub fn new() -> io::Result<Self> {
        let area = Self::of(sealed(c"obento-area", to_u64(AREA))?)?;
        area.word(Word::Magic).store(MAGIC, Ordering::Release);
        Ok(area)
    }

    /// Maps `file`, whose length is final.
    pub fn of(file: OwnedFd) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice, given back by `drop`.
        let base = unsafe {
            mmap(null_mut(), AREA, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { base, file })
    }

    /// Returns the file for the guest.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Stores a request and, beside it, `data`. Returns the number of the request; `None` if the request does not fit.
    pub fn ask(&mut self, request: &[u8], data: &[u8]) -> Option<u32> {
        if request.len() > REQUEST_MAX || data.len() > DATA_MAX {
            return None;
        }
        self.write(DATA_AT, data);
        self.write(REQUEST_AT, request);
        let len = u32::try_from(request.len()).ok()?;
        self.word(Word::RequestLen).store(len, Ordering::Relaxed);
        let number = self.word(Word::Answered).load(Ordering::Relaxed).wrapping_add(1);
        self.word(Word::Asked).store(number, Ordering::Release);
        Some(number)
    }

    /// Returns the answer to request `number`, if it is present.
    pub fn reply(&self, number: u32) -> Option<Vec<u8>> {
        if self.word(Word::Answered).load(Ordering::Acquire) != number {
            return None;
        }
        let len = to_usize(self.word(Word::ReplyLen).load(Ordering::Relaxed).into()).min(REPLY_MAX);
        let mut bytes = vec![0; len];
        self.read(REPLY_AT, &mut bytes);
        Some(bytes)
    }

    /// Copies the data from byte `skip` on, at most as much as exists.
    pub fn data(&self, skip: usize, into: &mut [u8]) {
        let len = into.len().min(DATA_MAX.saturating_sub(skip));
        self.read(DATA_AT + skip.min(DATA_MAX), into.get_mut(..len).unwrap_or_default());
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        // SAFETY: the offset is in the control page and is a multiple of four; the page-aligned mapping lives as long as this
        // value, and both sides only touch it atomically.
        unsafe { self.base.add(word.at()).cast().as_ref() }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= AREA, "callers compare with the length of their part");
        // SAFETY: within the mapping by the line above; the other side is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at).as_ptr(), bytes.len()) };
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at + into.len() <= AREA, "callers compare with the length of their part");
        // SAFETY: within the mapping by the line above; the other side is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at).as_ptr(), into.as_mut_ptr(), into.len()) };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no pointer into the mapping is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), AREA) };
    }
}

/// Creates a file in memory whose length cannot change.
fn sealed(name: &CStr, len: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, len)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}
