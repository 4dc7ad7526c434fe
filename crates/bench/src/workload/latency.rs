//! How long single operations take: one thread, one request at a time, past the caches of the host.
//!
//! As `fio --ioengine=psync --iodepth=1 --direct=1 --bs=BS --rw=RW --time_based`, with the whole curve of percentiles. A
//! driver in process reads and writes its image as it does otherwise: it keeps no cache of data.

use std::io;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::Result;
use crate::error::During as _;
use crate::files::{How, OpenFile, write_span};
use crate::workload::{Cache, Load, Measure, Phase, Scene, Settings};
use crate::{BenchError, random::Rng};

const FILE: &str = "latency.0.0";
/// What buffers are aligned to, and the file is written by.
const PAGE: usize = 4096;
/// Of a hundred operations so many stay below.
const PERCENTILES: [f64; 17] =
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
}

impl Load for Latency {
    fn cache(&self) -> Cache {
        Cache::Dropped
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
        let file = match scene.files.open(FILE, How::Direct) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                return Err(BenchError::Absent("this file system has no direct I/O".into()));
            }
            opened => opened.during("open", FILE)?,
        };
        // Up to a minute, to a thousandth.
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
            .map_err(|error| BenchError::Absent(error.to_string()))?;
        let begin = Instant::now();
        self.time(&*file, scene, &mut histogram).during("work in", FILE)?;
        let percentiles = PERCENTILES
            .iter()
            .map(|at| (at.to_string(), histogram.value_at_percentile(*at) as f64 / 1000.0))
            .collect();
        Ok(vec![Phase {
            name: String::new(),
            measure: Measure::Latency,
            seconds: begin.elapsed().as_secs_f64(),
            operations: histogram.len(),
            bytes: histogram.len() * self.io_size as u64,
            percentiles,
        }])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size
    }
}

impl Latency {
    fn time(&self, file: &dyn OpenFile, scene: &Scene, histogram: &mut Histogram<u64>) -> io::Result<()> {
        let calls = (scene.settings.file_size / self.io_size as u64).max(1);
        let mut rng: Rng = scene.rng(0);
        let mut memory = vec![0x55; self.io_size + PAGE];
        let aligned = memory.as_ptr().align_offset(PAGE);
        let buf = memory.get_mut(aligned..aligned + self.io_size).ok_or(io::ErrorKind::OutOfMemory)?;
        let end = Instant::now() + scene.settings.run_time;
        let mut last = Instant::now();
        for at in 0.. {
            if last >= end && at > 0 {
                break;
            }
            let call = if self.random { rng.u64(0..calls) } else { at % calls };
            let begin = Instant::now();
            if self.write {
                file.write_at(buf, call * self.io_size as u64)?;
            } else if file.read_at(buf, call * self.io_size as u64)? != buf.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            last = Instant::now();
            let nanoseconds = u64::try_from((last - begin).as_nanos()).unwrap_or(u64::MAX);
            histogram.saturating_record(nanoseconds);
        }
        Ok(())
    }
}
