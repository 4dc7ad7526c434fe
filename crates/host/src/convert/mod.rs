//! Writes a disk to a file in another format.
//!
//! Several threads read parts of the disk and compress them. They place the parts in the order of the disk, one
//! at a time, so that the file does not depend on timing. Then they write the data at its place.
//!
//! Locking: `claim::Claims`, the `Line` and the file have one lock each, of which a thread holds one at a time.

mod claim;
mod compare;
mod pack;
mod pieces;

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use obento_base::Error;
use obento_base::wire::to_usize;
use obento_block::BlockDevice;
pub use obento_containers::write::{
    BACKING_NAME_MAX, Backing, Identity, Output, Stream, TooLarge, Version, writer,
};
use obento_containers::write::{Packing, Patch, Writer, overlay};
use parking_lot::{Condvar, Mutex};

use crate::HostError;
use crate::compressed::UnpackError;
use claim::{Claims, DiskPart, ZeroParts};
pub use compare::{compare, compare_packed};
use pack::Packer;
use pieces::Pieces;

/// Bytes that a thread reads at once. A multiple of the unit of every format.
const CHUNK: u64 = 1 << 20;
/// The most threads.
const THREADS: usize = 16;
/// The time between two reports of progress.
const REPORT: Duration = Duration::from_millis(100);

/// The reason why a disk could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The disk cannot be read.
    #[error("{0}")]
    Read(Error),
    /// The file cannot be written.
    #[error(transparent)]
    Write(HostError),
    /// The disk is too large for the format.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The disk has more data than the limit.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The observer stopped the work.
    #[error("stopped")]
    Stopped,
}

/// Receives the bytes of the disk in order, for a checksum.
pub type Hash<'a> = dyn FnMut(&[u8]) + Send + 'a;

/// Receives the number of bytes that are done. Can end the work.
pub type Watch<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

/// What happens to the bytes of the disk after they were copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterCopy {
    /// They stay.
    Keep,
    /// They are freed, if the disk can free them, so that no second copy takes space.
    Discard,
}

/// The disk that is converted.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The bytes.
    pub disk: &'a Arc<dyn BlockDevice>,
    /// What happens to them.
    pub after: AfterCopy,
    /// The most bytes of data. A small image can describe a disk that would fill any file system, or that would be read
    /// for days: 64 bytes of zeros and patterns that are read count as a byte of data, and so do 1024 zeros that are
    /// compressed without a read.
    pub limit: Option<u64>,
}

/// Writes all of the disk to `file`, which is empty, by `writer`. Returns the length of the file. `path` appears in
/// messages.
///
/// # Errors
///
/// [`ConvertError`]. The contents of the file are then unspecified.
pub fn convert(
    source: Source<'_>,
    file: impl AsFd,
    path: &Path,
    writer: Box<dyn Writer>,
    hash: Option<Box<Hash<'_>>>,
    watch: &mut Watch<'_>,
) -> Result<u64, ConvertError> {
    let file = file.as_fd().try_clone_to_owned();
    let file = File::from(file.map_err(|error| write_error(path, &error))?);
    // Compression and the checksum process zeros, too.
    let zero_parts = match writer.packing() {
        Packing::Stream(_) => ZeroParts::Usual,
        _ if hash.is_some() => ZeroParts::Usual,
        _ => ZeroParts::Whole,
    };
    let Source { disk, after, limit } = source;
    let work = Work {
        disk,
        after,
        left: AtomicU64::new(limit.unwrap_or(u64::MAX)),
        limit: limit.unwrap_or(u64::MAX),
        file: &file,
        writing: Mutex::new(()),
        path,
        unit: to_usize(writer.unit()),
        packing: writer.packing(),
        patterns: writer.stores_patterns(),
        claims: Claims::new(disk, CHUNK, zero_parts),
        line: Mutex::new(Line { turn: 0, writer, hash, failure: None, running: 0 }),
        moved: Condvar::new(),
        done: AtomicU64::new(0),
        is_stopped: AtomicBool::new(false),
    };
    work.run(watch);
    let mut line = work.line.into_inner();
    if let Some(failure) = line.failure.take() {
        return Err(failure);
    }
    let mut patches = Vec::new();
    let len = line.writer.finish(&mut patches)?;
    finish(&file, path, &patches, len)
}

/// Sets the length of `file` before any byte is written, so that a disk that is too large for the file system is an
/// error at once.
///
/// # Errors
///
/// `Write`.
pub fn set_len(file: impl AsFd, path: &Path, len: u64) -> Result<(), ConvertError> {
    rustix::fs::ftruncate(file, len)
        .map_err(|errno| ConvertError::Write(HostError::system("set the size of", path, errno)))
}

/// Writes a qcow2 image of `len` bytes to `file`, which is empty. All bytes of the image are those of `backing`.
/// Returns the length of the file. `path` appears in messages.
///
/// # Errors
///
/// - `TooLarge`.
/// - `Write`.
pub fn write_overlay(
    file: impl AsFd,
    path: &Path,
    version: Version,
    len: u64,
    backing: &Backing<'_>,
) -> Result<u64, ConvertError> {
    let file = file.as_fd().try_clone_to_owned();
    let file = File::from(file.map_err(|error| write_error(path, &error))?);
    let (patches, len) = overlay(version, len, backing)?;
    finish(&file, path, &patches, len)
}

/// Writes metadata and sets the length of the file, which is returned.
fn finish(file: &File, path: &Path, patches: &[Patch], len: u64) -> Result<u64, ConvertError> {
    patches.iter().try_for_each(|patch| write(file, path, patch.at, &patch.bytes))?;
    set_len(file, path, len)?;
    Ok(len)
}

/// The work that all threads share.
struct Work<'a> {
    disk: &'a Arc<dyn BlockDevice>,
    after: AfterCopy,
    file: &'a File,
    /// Held while the file is written. The kernel lets one thread write at a time, and the others would use processor time
    /// while they wait there.
    writing: Mutex<()>,
    path: &'a Path,
    unit: usize,
    packing: Packing,
    patterns: bool,
    claims: Claims<'a>,
    /// The bytes that the disk may contain, and those of them that were not read yet.
    limit: u64,
    left: AtomicU64,
    line: Mutex<Line<'a>>,
    /// A part was placed, or a thread ended.
    moved: Condvar,
    done: AtomicU64,
    is_stopped: AtomicBool,
}

/// The state that the threads use one after the other.
struct Line<'a> {
    /// The number of the part that is placed next.
    turn: u64,
    writer: Box<dyn Writer>,
    hash: Option<Box<Hash<'a>>>,
    failure: Option<ConvertError>,
    running: usize,
}

/// Marks the end of a thread, also by a panic.
struct Ending<'a, 'b>(&'a Work<'b>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        let mut line = self.0.line.lock();
        line.running = line.running.saturating_sub(1);
        if std::thread::panicking() {
            self.0.is_stopped.store(true, Ordering::Relaxed);
        }
        self.0.moved.notify_all();
    }
}

fn write(file: &File, path: &Path, at: u64, bytes: &[u8]) -> Result<(), ConvertError> {
    file.write_all_at(bytes, at).map_err(|error| write_error(path, &error))
}

fn write_error(path: &Path, error: &std::io::Error) -> ConvertError {
    ConvertError::Write(HostError::io("write", path, error))
}

impl Work<'_> {
    /// Runs the threads and reports progress until they end.
    fn run(&self, watch: &mut Watch<'_>) {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // Half as many more threads work while others wait for their turn to place a part.
        let threads = processors.saturating_add(processors / 2).min(THREADS);
        let parts = self.disk.len().div_ceil(CHUNK);
        let threads = threads.min(to_usize(parts)).max(1);
        self.line.lock().running = threads;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let ending = Ending(self);
                    if let Err(failure) = self.work() {
                        self.line.lock().failure.get_or_insert(failure);
                        self.is_stopped.store(true, Ordering::Relaxed);
                    }
                    drop(ending);
                });
            }
            let mut line = self.line.lock();
            while line.running > 0 {
                self.moved.wait_for(&mut line, REPORT);
                let done = self.done.load(Ordering::Relaxed);
                if watch(done).is_break() {
                    self.is_stopped.store(true, Ordering::Relaxed);
                    line.failure.get_or_insert(ConvertError::Stopped);
                    self.moved.notify_all();
                }
            }
        });
    }

    /// Reads, places and writes parts until none is left.
    fn work(&self) -> Result<(), ConvertError> {
        let mut pieces = Pieces::new(to_usize(CHUNK), self.unit, self.patterns, Packer::new(self.packing));
        while let Some(part) = self.claims.next() {
            if self.is_stopped.load(Ordering::Relaxed) {
                break;
            }
            if part.is_zero {
                pieces.set_zeros(part.len);
            } else {
                pieces.read(&**self.disk, part.start, part.len).map_err(ConvertError::Read)?;
            }
            pieces.split(part.len).map_err(|error| write_error(self.path, &error))?;
            let cost = pieces.cost(part.len);
            let take = |left: u64| left.checked_sub(cost);
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
                return Err(UnpackError::Bytes { limit: self.limit }.into());
            }
            let Some(patches) = self.place(&part, &mut pieces)? else { break };
            let writing = self.writing.lock();
            for patch in &patches {
                write(self.file, self.path, patch.at, &patch.bytes)?;
            }
            pieces.runs(|at, bytes| write(self.file, self.path, at, bytes))?;
            drop(writing);
            if self.after == AfterCopy::Discard && !part.is_zero {
                // The bytes are copied. A disk that cannot free them only takes more space.
                let _ = self.disk.punch(part.start..part.start + part.len);
            }
            self.done.fetch_add(part.len, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits for the turn of `part` and places its pieces. Returns `None` if the work was stopped.
    fn place(&self, part: &DiskPart, pieces: &mut Pieces) -> Result<Option<Vec<Patch>>, ConvertError> {
        let mut line = self.line.lock();
        while line.turn != part.number {
            if self.is_stopped.load(Ordering::Relaxed) {
                return Ok(None);
            }
            self.moved.wait(&mut line);
        }
        let mut patches = Vec::new();
        for piece in pieces.iter_mut() {
            piece.at = line.writer.place(piece.content, piece.units, &mut patches)?;
        }
        if let Some(hash) = &mut line.hash {
            pieces.bytes(part.len, hash);
        }
        line.turn += 1;
        self.moved.notify_all();
        Ok(Some(patches))
    }
}

/// Returns whether `bytes` are zeros.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<256>();
    let is_block_zero = |block: &[u8; 256]| {
        let words = block.as_chunks::<8>().0;
        words.iter().fold(0, |all, &word| all | u64::from_ne_bytes(word)) == 0
    };
    blocks.iter().all(is_block_zero) && rest.iter().all(|&byte| byte == 0)
}
