//! Writing the bytes of small files a little later, in a thread, while the caller makes the next ones.
//!
//! Order matters where a file is made: which of two equal names wins, what a limit on bytes still lets through. That stays where it
//! is, and so does reading; what comes later are the bytes, the metadata and the closing of a file that is already there.
//! Invariant: at most [`BATCHES`] batches wait, each of [`ROW`] bytes and [`FILES`] open files.
//! Invariant: a file that cannot be written is removed, and why is told by [`Later::errors`], at the latest after [`Later::settle`].

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use obento_base::{Mode, NameBuf};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::apply::{Applier, Made, Permissions, Target};
use super::dir::{Dir, OwnedMetadata};
use super::{Report, Shared};
use crate::HostError;

/// Longer files are written at once.
pub(super) const SMALL: usize = 64 << 10;
/// Bytes of a batch.
const ROW: usize = 512 << 10;
const FILES: usize = 32;
const BATCHES: usize = 4;
/// Some processors copy several times as slowly to memory that begins a few bytes into a line of the cache.
const ALIGN: usize = 64;

/// Files that wait to be written.
pub(super) struct Later {
    shared: Arc<Shared>,
    done: Arc<(Mutex<Done>, Condvar)>,
    row: Vec<u8>,
    used: usize,
    files: Vec<File>,
    thread: Option<(SyncSender<Batch>, JoinHandle<()>)>,
}

/// A file that is there and empty, and what belongs in it.
pub(super) struct File {
    pub file: OwnedFd,
    pub dir: Arc<Dir>,
    pub name: NameBuf,
    /// For messages.
    pub path: PathBuf,
    pub meta: OwnedMetadata,
    pub made: Made,
    pub mode: Mode,
    pub pieces: Vec<Piece>,
}

/// Bytes of the row of a batch, and where in the file they belong.
pub(super) struct Piece {
    pub position: u64,
    pub bytes: Range<usize>,
}

struct Batch {
    row: Vec<u8>,
    files: Vec<File>,
}

#[derive(Default)]
struct Done {
    waiting: usize,
    report: Report,
    errors: Vec<HostError>,
    rows: Vec<Vec<u8>>,
}

impl Later {
    pub fn new(shared: Arc<Shared>) -> Self {
        let done = Arc::default();
        Self { shared, done, row: Vec::new(), used: 0, files: Vec::new(), thread: None }
    }

    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for one more small file; what of it is used is told by [`push`](Self::push).
    pub fn room(&mut self) -> (&mut [u8], usize) {
        if self.used + SMALL + ALIGN > self.row.len() {
            self.hand_over();
        }
        if self.row.is_empty() {
            let spare = self.done().rows.pop();
            self.row = spare.unwrap_or_else(|| vec![0; ROW]);
            self.used = 0;
        }
        let rest = self.row.get(self.used..).unwrap_or_default();
        self.used += rest.as_ptr().align_offset(ALIGN).min(rest.len());
        let start = self.used;
        (self.row.get_mut(start..start + SMALL).unwrap_or_default(), start)
    }

    /// Takes over a file, of which `used` bytes of that room are to be written.
    pub fn push(&mut self, file: File, used: usize) {
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
        self.done().waiting += 1;
        if self.thread.is_none() {
            let (sender, batches) = sync_channel(BATCHES);
            let (shared, done) = (self.shared.clone(), self.done.clone());
            let work = move || work(&batches, &shared, &done);
            let thread = Builder::new().name("copy-writer".into()).spawn(work).ok();
            self.thread = thread.map(|thread| (sender, thread));
        }
        let refused = match &self.thread {
            Some((sender, _)) => sender.send(batch).err().map(|refused| refused.0),
            None => Some(batch),
        };
        if let Some(batch) = refused {
            finish(batch, &self.shared, &self.done);
        }
    }

    /// Returns once all files are written that were taken over.
    pub fn settle(&mut self) {
        self.hand_over();
        let mut done = self.done();
        while done.waiting > 0 {
            done = self.done.1.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Why files were not written, as far as is known and was not told.
    pub fn errors(&self) -> Vec<HostError> {
        std::mem::take(&mut self.done().errors)
    }

    /// What was done since it was last asked for.
    pub fn report(&self) -> Report {
        std::mem::take(&mut self.done().report)
    }
}

#[cfg(test)]
impl super::TreeWriter {
    /// Makes the file that waits last one that cannot be written.
    pub(super) fn break_last(&mut self) {
        let file = self.later.as_mut().and_then(|later| later.files.last_mut()).unwrap();
        let flags = rustix::fs::OFlags::RDONLY;
        file.file =
            rustix::fs::openat(&*file.dir, file.name.as_bytes(), flags, rustix::fs::Mode::empty()).unwrap();
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.settle();
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

fn work(batches: &Receiver<Batch>, shared: &Shared, done: &(Mutex<Done>, Condvar)) {
    while let Ok(batch) = batches.recv() {
        finish(batch, shared, done);
    }
}

fn finish(batch: Batch, shared: &Shared, done: &(Mutex<Done>, Condvar)) {
    let (mut report, mut errors) = (Report::default(), Vec::new());
    for file in batch.files {
        match write(&file, &batch.row) {
            Ok(()) => {
                let path = || file.path.clone();
                let mut applier = Applier { shared, report: &mut report, path: &path };
                let target = Target::File(file.file.as_fd());
                applier.apply(target, file.made, &file.meta.get(), file.mode, Permissions::Own);
                report.files += 1;
            }
            Err(errno) => {
                // Half a file looks like a whole one. Where it cannot be removed, the error still tells.
                let _ = rustix::fs::unlinkat(&*file.dir, file.name.as_bytes(), AtFlags::empty());
                errors.push(HostError::system("write to", file.path, errno));
            }
        }
    }
    let mut done_now = done.0.lock().unwrap_or_else(PoisonError::into_inner);
    done_now.report.merge(report);
    done_now.errors.append(&mut errors);
    done_now.rows.push(batch.row);
    done_now.waiting -= 1;
    if done_now.waiting == 0 {
        done.1.notify_all();
    }
}

fn write(file: &File, row: &[u8]) -> Result<(), Errno> {
    for piece in &file.pieces {
        let mut bytes = row.get(piece.bytes.clone()).unwrap_or_default();
        let mut position = piece.position;
        while !bytes.is_empty() {
            match rustix::io::pwrite(&file.file, bytes, position) {
                Ok(0) => return Err(Errno::IO),
                Ok(len) => {
                    position = position.saturating_add(len as u64);
                    bytes = bytes.get(len..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}
