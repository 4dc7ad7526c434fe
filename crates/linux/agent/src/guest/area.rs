//! The memory that is shared with the host, as the guest uses it, and the notifications.
//!
//! Invariant: the area is accessed only from the host's request until the answer is sent.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use obento_linux_wire::{AREA, DATA_AT, DATA_MAX, MAGIC, REPLY_AT, REPLY_MAX, REQUEST_AT, REQUEST_MAX, Word};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::termios::{OptionalActions, QueueSelector, tcflush, tcgetattr, tcsetattr};

/// The most bytes that wait on the serial line. The host's end holds some hundreds.
const UNTAKEN_MAX: u32 = 64;

/// The shared memory and the serial line.
pub struct Area {
    base: NonNull<u8>,
    bell: File,
    /// Requests since the last read of the line.
    untaken: u32,
}

impl Area {
    /// Maps the memory that the kernel received as `iomem`, and opens the serial line in raw mode.
    pub fn map() -> io::Result<Self> {
        let memory = OpenOptions::new().read(true).write(true).open("/dev/mmapper")?;
        // SAFETY: a new mapping, at an address of the kernel's choice; it is never unmapped.
        let base = unsafe {
            mmap(null_mut(), AREA, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &memory, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        let bell = OpenOptions::new().read(true).write(true).open("/dev/ttyS0")?;
        let mut line = tcgetattr(&bell)?;
        line.make_raw();
        tcsetattr(&bell, OptionalActions::Now, &line)?;
        let area = Self { base, bell, untaken: 0 };
        match area.word(Word::Magic).load(Ordering::Acquire) {
            MAGIC => Ok(area),
            other => {
                Err(io::Error::other(format!("the host uses protocol {other:#x}, and the guest {MAGIC:#x}")))
            }
        }
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        // SAFETY: the offset is in the control page, is a multiple of four in a page-aligned mapping that is never unmapped,
        // and both sides only touch it atomically.
        unsafe { self.base.add(word.at()).cast().as_ref() }
    }

    /// Returns the next request as soon as it exists. A request that is visible before its byte on the line does not
    /// wait for the byte. But unread bytes would fill the line in the end, and then each side would wait for the other.
    pub fn request(&mut self) -> io::Result<Vec<u8>> {
        let mut waited = false;
        while self.word(Word::Asked).load(Ordering::Acquire)
            == self.word(Word::Answered).load(Ordering::Relaxed)
        {
            waited = true;
            if self.bell.read(&mut [0; 64])? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.untaken = if waited { 0 } else { self.untaken + 1 };
        if self.untaken == UNTAKEN_MAX {
            self.untaken = 0;
            // The host sends no request before it has its answer, so no byte is lost that is needed later.
            tcflush(&self.bell, QueueSelector::IFlush)?;
        }
        let len = self.word(Word::RequestLen).load(Ordering::Relaxed);
        let len = usize::try_from(len).unwrap_or(REQUEST_MAX).min(REQUEST_MAX);
        Ok(self.part(REQUEST_AT, len).to_vec())
    }

    /// The data of the request or the reply.
    pub fn data(&mut self) -> &mut [u8] {
        self.part(DATA_AT, DATA_MAX)
    }

    /// Sends the answer to the last request, completely or not at all.
    pub fn reply(&mut self, bytes: &[u8]) -> io::Result<()> {
        let len = if bytes.len() <= REPLY_MAX { bytes.len() } else { 0 };
        self.part(REPLY_AT, len).copy_from_slice(&bytes[..len]);
        self.word(Word::ReplyLen).store(u32::try_from(len).unwrap_or(0), Ordering::Relaxed);
        let asked = self.word(Word::Asked).load(Ordering::Relaxed);
        self.word(Word::Answered).store(asked, Ordering::Release);
        self.bell.write_all(b".")
    }

    /// Bytes of the area. `at + len` is within it by the constants that callers pass.
    fn part(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at + len <= AREA, "the parts of the area are constants");
        // SAFETY: within the mapping by the line above; the host does not use it during the guest's turn, and `&mut self`
        // excludes other code of the guest.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(at).as_ptr(), len) }
    }
}
