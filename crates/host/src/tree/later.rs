//! Writes the bytes of small files later, in a thread, while the caller creates the next files.
//!
//! The order of creation matters: it decides which of two equal names is used, and which files a limit on
//! bytes allows. So files are created by the caller. The thread writes the bytes, sets the metadata and
//! closes the file. Bytes of host files are copied within the kernel at that time; other bytes are read when
//! the file is created. A caller that finds many waiting batches writes one itself, so that both processors
//! stay busy.
//! Invariant: at most [`BATCHES`] batches wait, each with at most [`ROW`] bytes and [`FILES`] open files.
//! Invariant: a file that cannot be written is removed. A file that cannot be read has zeros in place of the
//! rest. [`PendingFiles::errors`] returns the reasons, at the latest after [`PendingFiles::settle`].

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Mode, NameBuf};
use obento_block::Backing;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::apply::{Applier, CreatedTarget, CreationState, Permissions};
use super::dir::{Dir, OwnedMetadata};
use super::links::remove_incomplete;
use super::{Keep, Report, Shared};
use crate::{HostError, HostFile};

/// The longest file that is written later.
pub(super) const SMALL: usize = 64 << 10;
/// Shorter ranges of a host file are read and written: setting up a copy within the kernel costs more.
pub(super) const SEND_MIN: u64 = 4 << 10;
/// Bytes of a batch.
const ROW: usize = 512 << 10;
const FILES: usize = 32;
const BATCHES: usize = 4;
/// Some processors copy several times more slowly to memory that is not aligned to a cache line.
const ALIGN: usize = 64;

/// Files that wait to be written.
pub(super) struct PendingFiles {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    row: Vec<u8>,
    used: usize,
    files: Vec<PendingFile>,
    thread: Option<JoinHandle<()>>,
}

/// The waiting batches, and the results of the written ones.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// Signals a new batch, the last written batch, or the end.
    changed: Condvar,
}

/// An existing empty file, and its bytes.
pub(super) struct PendingFile {
    pub file: OwnedFd,
    pub dir: Arc<Dir>,
    pub name: NameBuf,
    /// The path for messages.
    pub path: PathBuf,
    pub meta: OwnedMetadata,
    pub made: CreationState,
    pub mode: Mode,
    /// The part of `meta` to set.
    pub keep: Keep,
    pub pieces: Vec<PendingPiece>,
}

/// Bytes, and their position in the file.
pub(super) struct PendingPiece {
    pub position: u64,
    pub bytes: PendingBytes,
}

pub(super) enum PendingBytes {
    /// Bytes of the batch's row.
    Row(Range<usize>),
    /// Bytes of a host file.
    Host(Backing),
}

struct Batch {
    row: Vec<u8>,
    files: Vec<PendingFile>,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Batch>,
    /// The number of batches that were handed over and are not written.
    waiting: usize,
    ends: bool,
    report: Report,
    errors: Vec<HostError>,
    rows: Vec<Vec<u8>>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the first batch, if there is one. Returns whether there was one.
    fn write_front<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        shared: &Shared,
    ) -> (MutexGuard<'s, State>, bool) {
        let Some(batch) = state.batches.pop_front() else { return (state, false) };
        drop(state);
        let first = batch.files.first().map(|file| file.path.clone()).unwrap_or_default();
        let in_progress = InProgress { queue: self, first };
        let (row, report, mut errors) = finish(batch, shared);
        let mut state = self.lock();
        state.report.merge(report);
        state.errors.append(&mut errors);
        state.rows.push(row);
        drop(state);
        drop(in_progress);
        (self.lock(), true)
    }

    /// The loop of the thread.
    fn work(&self, shared: &Shared) {
        let mut state = self.lock();
        loop {
            let (after, wrote) = self.write_front(state, shared);
            state = match (wrote, after.ends) {
                (true, _) => after,
                (false, true) => return,
                (false, false) => self.wait(after),
            };
        }
    }
}

/// A batch that is being written, until this is dropped.
struct InProgress<'q> {
    queue: &'q Queue,
    /// The path of its first file.
    first: PathBuf,
}

impl Drop for InProgress<'_> {
    /// Ends the wait for the batch. If a panic interrupted it, its files may be incomplete, which is an error.
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        if std::thread::panicking() {
            let first = std::mem::take(&mut self.first);
            state.errors.push(HostError::system(
                "write the group of files that starts with",
                first,
                Errno::IO,
            ));
        }
        state.waiting -= 1;
        if state.waiting == 0 {
            self.queue.changed.notify_all();
        }
    }
}

impl PendingFiles {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, queue: Arc::default(), row: Vec::new(), used: 0, files: Vec::new(), thread: None }
    }

    /// Returns memory for one more small file. [`push`](Self::push) receives how much of it was used.
    pub fn room(&mut self) -> (&mut [u8], usize) {
        if self.used + SMALL + ALIGN > self.row.len() {
            self.hand_over();
        }
        if self.row.is_empty() {
            let spare = self.queue.lock().rows.pop();
            self.row = spare.unwrap_or_else(|| vec![0; ROW]);
            self.used = 0;
        }
        let rest = self.row.get(self.used..).unwrap_or_default();
        self.used += rest.as_ptr().align_offset(ALIGN).min(rest.len());
        let start = self.used;
        (self.row.get_mut(start..start + SMALL).unwrap_or_default(), start)
    }

    /// Takes over a file, with `used` bytes in that memory.
    pub fn push(&mut self, file: PendingFile, used: usize) {
        self.used += used;
        self.files.push(file);
        if self.files.len() >= FILES {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let batch = Batch { row: std::mem::take(&mut self.row), files: std::mem::take(&mut self.files) };
        if self.thread.is_none() {
            let (shared, queue) = (self.shared.clone(), self.queue.clone());
            self.thread = Builder::new().name("copy-writer".into()).spawn(move || queue.work(&shared)).ok();
        }
        let most = if self.thread.is_some() { BATCHES } else { 0 };
        let mut state = self.queue.lock();
        state.batches.push_back(batch);
        state.waiting += 1;
        self.queue.changed.notify_one();
        while state.batches.len() > most {
            (state, _) = self.queue.write_front(state, &self.shared);
        }
    }

    /// Waits until all files are written.
    pub fn settle(&mut self) {
        self.hand_over();
        let mut state = self.queue.lock();
        while state.waiting > 0 {
            let (after, wrote) = self.queue.write_front(state, &self.shared);
            state = if wrote || after.waiting == 0 { after } else { self.queue.wait(after) };
        }
    }

    /// Returns the errors of files that were not returned before.
    pub fn errors(&self) -> Vec<HostError> {
        std::mem::take(&mut self.queue.lock().errors)
    }

    /// Returns the report of the work since the previous call.
    pub fn report(&self) -> Report {
        std::mem::take(&mut self.queue.lock().report)
    }
}

#[cfg(test)]
impl super::TreeWriter {
    /// Makes the last waiting file one that cannot be written.
    pub(super) fn break_last(&mut self) {
        let file = self.later.as_mut().and_then(|later| later.files.last_mut()).unwrap();
        let flags = rustix::fs::OFlags::RDONLY;
        file.file =
            rustix::fs::openat(&*file.dir, file.name.as_bytes(), flags, rustix::fs::Mode::empty()).unwrap();
    }
}

impl Drop for PendingFiles {
    fn drop(&mut self) {
        self.settle();
        self.queue.lock().ends = true;
        self.queue.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Writes the files of a batch. Returns its row, the report and the errors.
fn finish(batch: Batch, shared: &Shared) -> (Vec<u8>, Report, Vec<HostError>) {
    let (mut report, mut errors) = (Report::default(), Vec::new());
    for file in batch.files {
        match write(&file, &batch.row) {
            Ok(()) => {}
            Err(Broken::Source(errno)) => {
                errors.push(HostError::system("read the complete data of", file.path.clone(), errno));
            }
            Err(Broken::Target(errno)) => {
                remove_incomplete(&*file.dir, &file.name, &file.file);
                errors.push(HostError::system("write to", file.path, errno));
                continue;
            }
        }
        let path = || file.path.clone();
        let mut applier = Applier::new(shared, &mut report, &path);
        applier.keep = file.keep;
        let target = CreatedTarget::File(file.file.as_fd());
        applier.apply(target, file.made, &file.meta.get(), file.mode, Permissions::Own);
        report.files += 1;
    }
    (batch.row, report, errors)
}

/// The reason why bytes were not copied.
pub(super) enum Broken {
    Source(Errno),
    Target(Errno),
}

fn write(file: &PendingFile, row: &[u8]) -> Result<(), Broken> {
    // The kernel's position in the file, where sendfile(2) writes.
    let mut at = 0;
    let mut read = Ok(());
    for piece in &file.pieces {
        match &piece.bytes {
            PendingBytes::Row(range) => {
                put(&file.file, row.get(range.clone()).unwrap_or_default(), piece.position)
                    .map_err(Broken::Target)?
            }
            PendingBytes::Host(backing) => match send(&file.file, backing, piece.position, &mut at) {
                // Unreadable bytes become zeros, and the rest is copied.
                Err(Broken::Source(errno)) => {
                    let end = piece.position.saturating_add(backing.len);
                    rustix::fs::ftruncate(&file.file, end).map_err(Broken::Target)?;
                    read = Err(Broken::Source(errno));
                }
                sent => sent?,
            },
        }
    }
    read
}

/// Copies bytes of a host file to `position` of `file`. `at` is the kernel's position in `file`.
pub(super) fn send(file: &OwnedFd, backing: &Backing, position: u64, at: &mut u64) -> Result<(), Broken> {
    let source = HostFile::of(backing).ok_or(Broken::Source(Errno::BADF))?;
    let end = backing.offset.saturating_add(backing.len);
    let (mut from, mut to) = (backing.offset, position);
    if *at != position {
        *at = rustix::fs::seek(file, SeekFrom::Start(position)).map_err(Broken::Target)?;
    }
    while from < end {
        let len = to_usize(end - from);
        match rustix::fs::sendfile(file, source, Some(&mut from), len) {
            // The fallback to read and write reports the reason.
            Ok(0) => break,
            Err(Errno::INTR) => {}
            Err(_) => break,
            Ok(len) => to += to_u64(len),
        }
        *at = to;
    }
    if from == end {
        return Ok(());
    }
    let mut bytes = vec![0; to_usize(end - from)];
    let mut rest = &mut bytes[..];
    while !rest.is_empty() {
        match rustix::io::pread(source, &mut *rest, from) {
            Ok(0) => return Err(Broken::Source(Errno::IO)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Broken::Source(errno)),
            Ok(len) => {
                from += to_u64(len);
                rest = rest.get_mut(len..).unwrap_or_default();
            }
        }
    }
    put(file, &bytes, to).map_err(Broken::Target)
}

/// Writes bytes at `position`.
pub(super) fn put(file: &OwnedFd, mut bytes: &[u8], mut position: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, position) {
            Ok(0) => return Err(Errno::IO),
            Ok(len) => {
                position = position.saturating_add(to_u64(len));
                bytes = bytes.get(len..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_group_that_a_panic_interrupts_is_an_error_and_does_not_delay_the_end() {
        let queue = Queue::default();
        queue.lock().waiting = 1;
        let interrupted = catch_unwind(AssertUnwindSafe(|| {
            let _in_progress = InProgress { queue: &queue, first: PathBuf::from("dir/f") };
            panic!("injected");
        }));
        assert!(interrupted.is_err());
        let state = queue.lock();
        assert_eq!(state.waiting, 0);
        let error = state.errors[0].to_string();
        assert!(error.starts_with("cannot write the group of files that starts with 'dir/f'"), "{error}");
    }
}
