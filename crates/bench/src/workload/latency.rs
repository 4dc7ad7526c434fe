//! How long single operations take: one thread, past the caches of the host, one request at a time or 16.
//!
//! As `fio --ioengine=psync --iodepth=1 --direct=1 --bs=BS --rw=RW --time_based`, or with `--ioengine=io_uring --iodepth=16`, with
//! the whole curve of percentiles; and where fio is installed the same by it beside (`fio.rs`). A driver in process reads
//! and writes its image as it does otherwise: it keeps no cache of data.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Instant;

use hdrhistogram::Histogram;
use obento_host::io::Queue;

use crate::Result;
use crate::error::During as _;
use crate::files::{How, write_span};
use crate::workload::{Cache, Load, Measure, Phase, Scene, Settings};
use crate::{BenchError, random::Rng};

const FILE: &str = "latency.0.0";
/// What buffers are aligned to, and the file is written by.
const PAGE: usize = 4096;
/// Of a hundred operations so many stay below.
pub(super) const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// What is timed.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Whether it writes.
    pub write: bool,
    /// Whether offsets are random; otherwise they follow one another.
    pub random: bool,
    /// Bytes of an operation, whole sectors.
    pub io_size: usize,
    /// How many are under way at once.
    pub depth: u32,
}

/// The curve of what was recorded in nanoseconds, in microseconds.
pub(super) fn percentiles(histogram: &Histogram<u64>) -> BTreeMap<String, f64> {
    let value = |at: &f64| histogram.value_at_percentile(*at) as f64 / 1000.0;
    PERCENTILES.iter().map(|at| (at.to_string(), value(at))).collect()
}

impl Load for Latency {
    fn cache(&self) -> Cache {
        // What a loop device stands on would be cold at first, and warm for whoever measures next.
        Cache::Kept
    }

    fn prepare(&self, scene: &Scene) -> Result<()> {
        let write = || -> io::Result<()> {
            let file = scene.files.open(FILE, How::Create)?;
            write_span(&*file, 0, scene.settings.file_size, &vec![0x55; 1 << 20])?;
            file.sync()
        };
        write().during("create", FILE)
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        if self.depth > 1 {
            scene.folder()?;
        }
        // Up to a minute, to a thousandth.
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
            .map_err(|error| BenchError::Absent(error.to_string()))?;
        let begin = Instant::now();
        let timed = match self.depth {
            1 => self.alone(scene, &mut histogram),
            _ => self.many(scene, &mut histogram),
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
        let path = scene.path.as_ref().map(|folder| folder.join(FILE));
        let beside = path.map_or(Ok(None), |path| super::fio::beside(self, &path, &scene.settings))?;
        Ok([own].into_iter().chain(beside).collect())
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size
    }
}

/// The offsets of operations, one after another.
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
    fn offsets(&self, scene: &Scene) -> Offsets {
        let calls = (scene.settings.file_size / self.io_size as u64).max(1);
        Offsets { rng: self.random.then(|| scene.rng(0)), calls, at: 0 }
    }

    /// One request at a time.
    fn alone(&self, scene: &Scene, histogram: &mut Histogram<u64>) -> io::Result<()> {
        let file = scene.files.open(FILE, How::Direct)?;
        let mut offsets = self.offsets(scene);
        let mut memory = vec![0x55; self.io_size + PAGE];
        let aligned = memory.as_ptr().align_offset(PAGE);
        let buf = memory.get_mut(aligned..aligned + self.io_size).ok_or(io::ErrorKind::OutOfMemory)?;
        let end = Instant::now() + scene.settings.run_time;
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

    /// As many requests at a time as the depth says: when one ends, the next begins.
    fn many(&self, scene: &Scene, histogram: &mut Histogram<u64>) -> io::Result<()> {
        let folder = scene.folder().map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        options.read(true).write(self.write).custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
        let mut queue = Queue::new(options.open(folder.join(FILE))?, self.depth, self.io_size)?;
        let mut offsets = self.offsets(scene);
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
        let end = Instant::now() + scene.settings.run_time;
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
                // The clock runs until this thread turns to a request and can begin the next: fio takes one at a time.
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

/// A kernel may be without io_uring, and a container forbids it.
fn has_no_rings(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errnos = [Errno::NOSYS, Errno::PERM].map(|errno| Some(errno.raw_os_error()));
    errnos.contains(&error.raw_os_error())
}

fn nanoseconds(begin: Instant, end: Instant) -> u64 {
    u64::try_from((end - begin).as_nanos()).unwrap_or(u64::MAX)
}
