//! Starts writing back while the rest is still being copied, so that the disk is always busy and the sync at
//! the end is short.
//!
//! On ext4, blocks are allocated before they are written. That takes one search for each range, while delayed
//! allocation keeps a record of each block and needs twice the processor time. On other file systems nothing
//! is allocated in advance, because they share blocks or fill the allocated range. All these calls are hints:
//! the write or the sync reports errors.
//! Source: sync_file_range(2), `SYNC_FILE_RANGE_WRITE`; fallocate(2); statfs(2), `EXT4_SUPER_MAGIC`.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::FallocateFlags;

use crate::HostFile;
use crate::owner::system_of;

/// Bytes that are handed to the disk at once. The file system lays out this many bytes contiguously.
const ENOUGH: u64 = 8 << 20;
/// The most pieces that wait for their neighbours.
const MANY: usize = 64;
/// The shortest range that is allocated in advance.
const LEAST: u64 = 64 << 10;
const EXT4: u64 = 0xef53;

/// A thread that asks the kernel to write back written ranges.
#[derive(Debug)]
pub struct Writeback {
    written: Option<Sender<Range<u64>>>,
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    copying: Mutex<()>,
    /// The file, if allocating blocks in advance is useful.
    asked: Option<Arc<HostFile>>,
}

impl Writeback {
    /// Starts the thread for `file`. If the thread cannot start, nothing is written back before the sync.
    pub fn new(file: Arc<HostFile>) -> Self {
        let (written, ranges) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let is_ext4 = system_of(&*file) == Some(EXT4);
        let asked = is_ext4.then(|| file.clone());
        let work = move || write_back(&file, &ranges, &over);
        let thread = std::thread::Builder::new().name("writeback".into()).spawn(work).ok();
        Self { written: thread.is_some().then_some(written), thread, is_over, copying: Mutex::new(()), asked }
    }

    /// Announces that `range` will be written.
    pub fn will_write(&self, range: Range<u64>) {
        let len = range.end.saturating_sub(range.start);
        if let Some(file) = self.asked.as_ref().filter(|_| len >= LEAST) {
            let _ = rustix::fs::fallocate(&**file, FallocateFlags::KEEP_SIZE, range.start, len);
        }
    }

    /// Runs work that writes much, in one thread at a time. The kernel lets only one thread write to a file,
    /// and waiting threads would occupy processors that writing back needs.
    pub(super) fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _turn = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// Announces that `range` was written.
    pub fn wrote(&self, range: Range<u64>) {
        if let Some(written) = &self.written {
            // The thread ends only after this value is dropped.
            let _ = written.send(range);
        }
    }
}

impl Drop for Writeback {
    /// The sync writes the rest.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.written = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_back(file: &HostFile, written: &Receiver<Range<u64>>, is_over: &AtomicBool) {
    // Adjacent ranges wait until they are long enough. Threads write in several places at once.
    let mut waiting: Vec<Range<u64>> = Vec::new();
    while let Ok(range) = written.recv() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        match waiting.iter_mut().find(|held| held.end == range.start || range.end == held.start) {
            Some(held) => *held = held.start.min(range.start)..held.end.max(range.end),
            None => waiting.push(range),
        }
        let are_many = waiting.len() > MANY;
        waiting.retain(|held| {
            let is_enough = are_many || held.end - held.start >= ENOUGH;
            if is_enough {
                start(file, held);
            }
            !is_enough
        });
    }
}

fn start(file: &HostFile, range: &Range<u64>) {
    let (Ok(start), Ok(len)) = (i64::try_from(range.start), i64::try_from(range.end - range.start)) else {
        return;
    };
    // SAFETY: the call touches no memory of the process, and the descriptor is open while `file` exists.
    let _ =
        unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), start, len, libc::SYNC_FILE_RANGE_WRITE) };
}
