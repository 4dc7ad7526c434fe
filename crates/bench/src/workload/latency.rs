//! The latency of single operations that bypass the caches of the host, with one or 16 requests at a time.
//!
//! The jobs are those of `fio --ioengine=psync --iodepth=1 --direct=1 --bs=BS --rw=RW --time_based`, or with
//! `--ioengine=io_uring --iodepth=16`, with all percentiles. If fio is installed, it runs the same job for comparison
//! (`fio.rs`). A driver in this process accesses its image in the usual way, because it has no data cache.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Instant;

use hdrhistogram::Histogram;
use obento_host::io::Queue;

use crate::Result;
use crate::error::IoContext as _;
use crate::files::{OpenMode, write_span};
use crate::workload::{Cache, Measure, Phase, Settings, Workload, WorkloadContext};
use crate::{BenchError, random::Rng};

const FILE: &str = "latency.0.0";
/// The alignment of buffers, and the size of the writes that create the file.
const PAGE: usize = 4096;
/// The percentiles to report.
pub(super) const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// A kind of operation.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Whether to write; otherwise, read.
    pub write: bool,
    /// Whether offsets are random; otherwise, they are sequential.
    pub random: bool,
    /// The number of bytes of an operation, a multiple of a sector.
    pub io_size: usize,
    /// The number of requests at a time.
    pub depth: u32,
}

/// Returns the percentiles, in microseconds, of times recorded in nanoseconds.
pub(super) fn percentiles(histogram: &Histogram<u64>) -> BTreeMap<String, f64> {
    let value = |at: &f64| histogram.value_at_percentile(*at) as f64 / 1000.0;
    PERCENTILES.iter().map(|at| (at.to_string(), value(at))).collect()
}

impl Workload for Latency {
    fn cache(&self) -> Cache {
        // With dropped caches, the file below a loop device would be cold for the first measurement and warm for the
        // next.
        Cache::Warm
    }

    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        let write = || -> io::Result<()> {
            let file = context.files.open(FILE, OpenMode::Create)?;
            write_span(&*file, 0, context.settings.file_size, &vec![0x55; 1 << 20])?;
            file.sync()
        };
        write().during("create", FILE)
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        if self.depth > 1 {
            context.folder()?;
        }
        // Times up to a minute are recorded with three digits.
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
            .map_err(|error| BenchError::Absent(error.to_string()))?;
        let begin = Instant::now();
        let timed = match self.depth {
            1 => self.alone(context, &mut histogram),
            _ => self.many(context, &mut histogram),
        };
        match timed {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                return Err(BenchError::Absent("this file system has no direct I/O".into()));
            }
            Err(error) if self.depth > 1 && has_no_rings(&error) => {
                return Err(BenchError::Absent(format!("io_uring cannot be used here: {error}")));
            }
            timed => timed.during("work in", FILE)?,
        }
        let own = Phase {
            name: String::new(),
            measure: Measure::Latency,
            seconds: begin.elapsed().as_secs_f64(),
            operations: histogram.len(),
            bytes: histogram.len() * self.io_size as u64,
            percentiles: percentiles(&histogram),
        };
        let path = context.path.as_ref().map(|folder| folder.join(FILE));
        let beside = path.map_or(Ok(None), |path| super::fio::beside(self, &path, &context.settings))?;
        Ok([own].into_iter().chain(beside).collect())
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size
    }
}

/// The offsets of operations.
struct Offsets {
    rng: Option<Rng>,
    calls: u64,
    at: u64,
}

impl Offsets {
    fn next(&mut self, io_size: usize) -> u64 {
        let call = match &mut self.rng {
            Some(rng) => rng.u64(0..self.calls),
            None => self.at % self.calls,
        };
        self.at += 1;
        call * io_size as u64
    }
}

impl Latency {
    fn offsets(&self, context: &WorkloadContext) -> Offsets {
        let calls = (context.settings.file_size / self.io_size as u64).max(1);
        Offsets { rng: self.random.then(|| context.rng(0)), calls, at: 0 }
    }

    /// Runs one request at a time.
    fn alone(&self, context: &WorkloadContext, histogram: &mut Histogram<u64>) -> io::Result<()> {
        let file = context.files.open(FILE, OpenMode::Direct)?;
        let mut offsets = self.offsets(context);
        let mut memory = vec![0x55; self.io_size + PAGE];
        let aligned = memory.as_ptr().align_offset(PAGE);
        let buf = memory.get_mut(aligned..aligned + self.io_size).ok_or(io::ErrorKind::OutOfMemory)?;
        let end = Instant::now() + context.settings.run_time;
        loop {
            let (offset, begin) = (offsets.next(self.io_size), Instant::now());
            if self.write {
                file.write_at(buf, offset)?;
            } else if file.read_at(buf, offset)? != buf.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let last = Instant::now();
            histogram.saturating_record(nanoseconds(begin, last));
            if last >= end {
                return Ok(());
            }
        }
    }

    /// Runs `depth` requests at a time. When one ends, the next begins.
    fn many(&self, context: &WorkloadContext, histogram: &mut Histogram<u64>) -> io::Result<()> {
        let folder = context.folder().map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        options.read(true).write(self.write).custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
        let mut queue = Queue::new(options.open(folder.join(FILE))?, self.depth, self.io_size)?;
        let mut offsets = self.offsets(context);
        let mut begin = |queue: &mut Queue, slot| {
            let offset = offsets.next(self.io_size);
            let now = Instant::now();
            if self.write {
                queue.write(slot, offset)?
            } else {
                queue.read(slot, offset)?
            }
            io::Result::Ok(now)
        };
        let end = Instant::now() + context.settings.run_time;
        let mut begun = Vec::new();
        for slot in 0..self.depth as usize {
            begun.push(begin(&mut queue, slot)?);
        }
        let mut ended = Vec::new();
        let mut under_way = begun.len();
        while under_way > 0 {
            queue.wait(|slot, moved| ended.push((slot, moved)))?;
            under_way -= ended.len();
            for (slot, moved) in ended.drain(..) {
                // The time ends when this thread handles the completion and can start the next request. fio handles one
                // at a time, too.
                let now = Instant::now();
                if moved != self.io_size {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if let Some(begun) = begun.get_mut(slot) {
                    histogram.saturating_record(nanoseconds(*begun, now));
                    if now < end {
                        *begun = begin(&mut queue, slot)?;
                        under_way += 1;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns whether io_uring is unavailable, because the kernel lacks it or a container forbids it.
fn has_no_rings(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errnos = [Errno::NOSYS, Errno::PERM].map(|errno| Some(errno.raw_os_error()));
    errnos.contains(&error.raw_os_error())
}

fn nanoseconds(begin: Instant, end: Instant) -> u64 {
    u64::try_from((end - begin).as_nanos()).unwrap_or(u64::MAX)
}
