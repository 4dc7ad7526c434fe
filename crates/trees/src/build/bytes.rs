//! Copies the bytes of all files to the image, in several threads.
//!
//! Each thread takes the next few files in the order of their positions in the image. The threads together therefore
//! write the image from front to back. A large file is copied in parts.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use obento_driver::tree::Body;
use obento_driver::{BuildPlan, NodeId, Tree};
use obento_host::HostError;
use obento_host::build::{FreshFile, Job, Mover, Supply, Writeback};

use super::BuildFailure;
use super::source::Read;
use crate::copy::{Observer, Progress};

/// Maximum numbers of bytes and of files that a thread takes at once.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_FILES: usize = 512;
/// Maximum number of bytes of a large file in one job.
const PART: u64 = 8 << 20;

/// The files that are still to be moved.
struct Queue<'a> {
    tree: &'a Tree,
    supply: &'a Supply,
    plan: &'a dyn BuildPlan,
    /// The first byte of the volume in the image.
    start: u64,
    next: u32,
    /// The remaining parts of a large file.
    rest: Vec<Job>,
}

impl Queue<'_> {
    /// Appends the next jobs to `jobs`. Appends nothing if no jobs are left.
    fn take(&mut self, jobs: &mut Vec<Job>) {
        jobs.clear();
        let mut bytes = 0;
        while bytes < BATCH_BYTES && jobs.len() < BATCH_FILES {
            let Some(job) = self.next_job() else { return };
            bytes += job.range.end - job.range.start;
            jobs.push(job);
        }
    }

    fn next_job(&mut self) -> Option<Job> {
        loop {
            if let Some(job) = self.rest.pop() {
                return Some(job);
            }
            let id = NodeId(self.next);
            let node = self.tree.node(id)?;
            self.next += 1;
            let Body::File { size, data: Some(data) } = node.body else { continue };
            if self.supply.is_moved(data.0) {
                continue;
            }
            let (rest, volume) = (&mut self.rest, self.start);
            self.plan.places(id, &mut |range, offset| {
                let mut start = range.start;
                while start < range.end {
                    let end = range.end.min(start.saturating_add(PART));
                    let offset = volume + offset + (start - range.start);
                    rest.push(Job { data: data.0, size, range: start..end, offset, is_last: false });
                    start = end;
                }
            });
            if let Some(last) = rest.last_mut() {
                last.is_last = true;
            }
            rest.reverse();
        }
    }
}

/// The state that the threads share.
struct Common<'a> {
    queue: Mutex<Queue<'a>>,
    failure: Mutex<Option<HostError>>,
    is_over: AtomicBool,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Common<'_> {
    fn fail(&self, error: HostError) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(error);
        }
    }

    /// Moves files until no file remains or a thread fails.
    fn work(&self, mover: &mut Mover<'_>, mut reported: impl FnMut() -> bool) -> Result<(), HostError> {
        let mut jobs = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            match self.queue.lock() {
                Ok(mut queue) => queue.take(&mut jobs),
                Err(_) => return Ok(()),
            }
            if jobs.is_empty() {
                break;
            }
            for job in &jobs {
                mover.put(job)?;
                self.bytes.fetch_add(job.range.end - job.range.start, Ordering::Relaxed);
            }
            let ended = jobs.iter().filter(|job| job.is_last).count();
            self.files.fetch_add(ended as u64, Ordering::Relaxed);
            if reported() {
                return Err(HostError::Stopped);
            }
        }
        mover.flush()
    }
}

/// Returns the number of files to move, and the number of their bytes.
fn total(tree: &Tree, supply: &Supply) -> (u64, u64) {
    let lens = tree.nodes().filter_map(|(id, node)| match node.body {
        Body::File { size, data: Some(data) } if !supply.is_moved(data.0) => {
            let ranges = tree.data_ranges(id);
            Some(ranges.map_or(size, |ranges| ranges.iter().map(|range| range.end - range.start).sum()))
        }
        _ => None,
    });
    lens.fold((0, 0), |(files, bytes), len| (files + 1, bytes + len))
}

/// The image and the position of the volume in it.
#[derive(Clone, Copy)]
pub(super) struct VolumeInImage<'a> {
    /// The image.
    pub fresh: &'a FreshFile,
    /// The first byte of the volume in the image.
    pub start: u64,
}

/// Moves the bytes of all files to their positions in `plan`, in the given number of threads. Returns the number of
/// bytes. Fails with `Host`.
pub(super) fn move_all(
    read: &Read,
    plan: &dyn BuildPlan,
    position: VolumeInImage<'_>,
    threads: usize,
    observer: &mut dyn Observer,
) -> Result<u64, BuildFailure> {
    let (tree, supply, VolumeInImage { fresh, start }) = (&read.tree, &read.supply, position);
    let queue = Queue { tree, supply, plan, start, next: 0, rest: Vec::new() };
    let common = Common {
        queue: Mutex::new(queue),
        failure: Mutex::new(None),
        is_over: AtomicBool::new(false),
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    let (files, bytes) = total(tree, supply);
    observer.total(files, bytes);
    let device = fresh.device();
    let block = plan.formatted().block_size.into();
    let writeback = Writeback::new(device.host_file().clone());
    let mover = || Mover::new(supply, (device.host_file(), device.path()), &writeback, block);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let helper = || {
                if let Err(error) = common.work(&mut mover(), || false) {
                    common.fail(error);
                }
            };
            // If no thread can be started, the calling thread does all the work.
            let _ = std::thread::Builder::new().name("mover".into()).spawn_scoped(scope, helper);
        }
        let reported = || {
            let (files, bytes) = (common.files.load(Ordering::Relaxed), common.bytes.load(Ordering::Relaxed));
            observer.progress(&Progress { files, bytes, path: b"" });
            observer.is_stopped()
        };
        if let Err(error) = common.work(&mut mover(), reported) {
            common.fail(error);
        }
    });
    let failure = common.failure.into_inner().ok().flatten();
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(common.bytes.into_inner()),
    }
}
