//! Parallel requests of one file, each with its own buffer, for measurements of queue depth.
//!
//! Invariant: a buffer that the kernel may access is neither read nor freed: dropping the queue waits for all
//! requests.
//! Source: io_uring_enter(2).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::uring::is_passing;

/// The alignment of buffers, for files that are open without the page cache.
const PAGE: usize = 4096;

/// A file and its requests in progress.
pub struct Queue {
    ring: IoUring,
    file: File,
    /// The memory of all buffers, and the position of the first one.
    memory: Vec<u8>,
    first: usize,
    /// Bytes of a request.
    len: usize,
    under_way: usize,
}

impl Queue {
    /// Creates a queue of up to `depth` requests of `len` bytes each. Fails with the errors of io_uring_setup(2). A
    /// kernel may not support io_uring, or forbid it.
    pub fn new(file: File, depth: u32, len: usize) -> io::Result<Self> {
        let ring = IoUring::new(depth)?;
        let each = len.next_multiple_of(PAGE);
        let memory = vec![0x55; each * depth as usize + PAGE];
        let first = memory.as_ptr().align_offset(PAGE);
        Ok(Self { ring, file, memory, first, len, under_way: 0 })
    }

    /// Starts to read the bytes from `offset` on into the buffer `slot`, which has no request in progress.
    pub fn read(&mut self, slot: usize, offset: u64) -> io::Result<()> {
        let (fd, buffer) = self.buffer(slot);
        self.begin(
            &opcode::Read::new(fd, buffer, self.len as u32).offset(offset).build().user_data(slot as u64),
        )
    }

    /// Starts to write the buffer `slot`, which has no request in progress, at `offset`.
    pub fn write(&mut self, slot: usize, offset: u64) -> io::Result<()> {
        let (fd, buffer) = self.buffer(slot);
        self.begin(
            &opcode::Write::new(fd, buffer, self.len as u32).offset(offset).build().user_data(slot as u64),
        )
    }

    fn buffer(&mut self, slot: usize) -> (types::Fd, *mut u8) {
        let start = self.first + slot * self.len.next_multiple_of(PAGE);
        let buffer = &mut self.memory[start..start + self.len];
        (types::Fd(self.file.as_raw_fd()), buffer.as_mut_ptr())
    }

    fn begin(&mut self, entry: &io_uring::squeue::Entry) -> io::Result<()> {
        // SAFETY: the descriptor and the memory live as long as the queue, which waits for all requests when
        // it is dropped. The memory never moves, and nothing reads it.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| io::ErrorKind::WouldBlock)?;
        self.under_way += 1;
        self.ring.submit().map(drop)
    }

    /// Waits until requests have ended, and passes the slot and the number of bytes of each to `ended`.
    /// Fails with the first error of a request.
    pub fn wait(&mut self, mut ended: impl FnMut(usize, usize)) -> io::Result<()> {
        while let Err(error) = self.ring.submit_and_wait(1) {
            if !is_passing(&error) {
                return Err(error);
            }
        }
        let mut failed = Ok(());
        for done in self.ring.completion() {
            self.under_way -= 1;
            match usize::try_from(done.result()) {
                Ok(moved) => ended(done.user_data() as usize, moved),
                Err(_) if failed.is_ok() => failed = Err(io::Error::from_raw_os_error(-done.result())),
                Err(_) => {}
            }
        }
        failed
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        while self.under_way > 0 {
            let before = self.under_way;
            if self.wait(|_, _| {}).is_err() && self.under_way == before {
                // The kernel may still access the memory, so it is never freed.
                std::mem::forget(std::mem::take(&mut self.memory));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_return_their_lengths_and_the_file_has_the_written_bytes() {
        let file = tempfile::tempfile().unwrap();
        let Ok(mut queue) = Queue::new(file.try_clone().unwrap(), 4, 1000) else {
            // Containers forbid io_uring.
            return;
        };
        (0..4).for_each(|slot| queue.write(slot, slot as u64 * 1000).unwrap());
        let mut moved = [0; 4];
        while moved.contains(&0) {
            queue.wait(|slot, bytes| moved[slot] = bytes).unwrap();
        }
        assert_eq!(moved, [1000; 4]);
        assert_eq!(file.metadata().unwrap().len(), 4000);
        // A read past the end returns no bytes, and dropping a queue waits for requests in progress.
        queue.read(1, 3500).unwrap();
        queue.wait(|slot, bytes| assert_eq!((slot, bytes), (1, 500))).unwrap();
        queue.read(2, 0).unwrap();
    }
}
