//! Writing back begins while the rest is still being copied, so that the disk works all the time and the sync at the end has
//! little left to wait for.
//!
//! On ext4 blocks are asked for before they are written: that takes one search a range, where delayed allocation keeps a record of each
//! block, and twice the processor's time. Elsewhere it is not done: other file systems share blocks, or fill what is asked for.
//! All of it are hints: what fails here is told by the write or by the sync.
//! Source: sync_file_range(2), `SYNC_FILE_RANGE_WRITE`; fallocate(2); statfs(2), `EXT4_SUPER_MAGIC`.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::FallocateFlags;

use crate::HostFile;

/// Bytes that are handed to the disk at once: enough that the file system lays them out in one piece.
const ENOUGH: u64 = 8 << 20;
/// More pieces than this are not waited for.
const MANY: usize = 64;
/// What is shorter is not asked for.
const LEAST: u64 = 64 << 10;
const EXT4: u64 = 0xef53;

/// A thread that lets the kernel write back what was written.
#[derive(Debug)]
pub struct Writeback {
    written: Option<Sender<Range<u64>>>,
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    copying: Mutex<()>,
    /// The file, where it helps to ask for blocks.
    asked: Option<Arc<HostFile>>,
}

impl Writeback {
    /// For `file`. Where there is no thread, nothing is written back before the sync.
    pub fn new(file: Arc<HostFile>) -> Self {
        let (written, ranges) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let is_ext4 = rustix::fs::fstatfs(&*file).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(EXT4));
        let asked = is_ext4.then(|| file.clone());
        let work = move || write_back(&file, &ranges, &over);
        let thread = std::thread::Builder::new().name("writeback".into()).spawn(work).ok();
        Self { written: thread.is_some().then_some(written), thread, is_over, copying: Mutex::new(()), asked }
    }

    /// `range` is going to be written.
    pub fn will_write(&self, range: Range<u64>) {
        let len = range.end.saturating_sub(range.start);
        if let Some(file) = self.asked.as_ref().filter(|_| len >= LEAST) {
            let _ = rustix::fs::fallocate(&**file, FallocateFlags::KEEP_SIZE, range.start, len);
        }
    }

    /// Does what writes much, one thread at a time: the kernel lets no more write to one file, and those that it lets wait keep their
    /// processors busy, which writing back has a use for.
    pub(super) fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _turn = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// `range` was written.
    pub fn wrote(&self, range: Range<u64>) {
        if let Some(written) = &self.written {
            // The thread goes only after this.
            let _ = written.send(range);
        }
    }
}

impl Drop for Writeback {
    /// What was not handed over is left to the sync.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.written = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_back(file: &HostFile, written: &Receiver<Range<u64>>, is_over: &AtomicBool) {
    // What lies side by side waits until it is enough; threads write in several places at once.
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
    // SAFETY: the call touches no memory of the process, and the descriptor is open as long as `file` is.
    let _ =
        unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), start, len, libc::SYNC_FILE_RANGE_WRITE) };
}
