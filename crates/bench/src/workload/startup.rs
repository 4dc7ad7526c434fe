//! The time that a program takes to start while other threads read and write large files in sequence.
//!
//! Source: P. Valente's start-up times for I/O schedulers. The program is on the file system under test and not in the
//! cache.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hdrhistogram::Histogram;

use super::latency::percentiles;
use crate::error::IoContext as _;
use crate::files::{OpenMode, write_span};
use crate::workload::{Cache, Measure, Phase, Settings, Workload, WorkloadContext};
use crate::{BenchError, Result};

const PROGRAM: &str = "program";
const READ: &str = "behind.read";
const WRITTEN: &str = "behind.written";
const CALL: usize = 1 << 20;
/// The least number of starts.
const STARTS: usize = 5;

/// A program that starts while other threads use the disk.
#[derive(Clone, Copy, Debug)]
pub struct Startup;

impl Workload for Startup {
    fn cache(&self) -> Cache {
        Cache::Dropped
    }

    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        let program = context.folder()?.join(PROGRAM);
        let own = std::env::current_exe().during("find", "the program itself")?;
        fs::copy(&own, &program).during("copy to", &program)?;
        let file = context.files.open(READ, OpenMode::Create).during("create", READ)?;
        write_span(&*file, 0, context.settings.file_size, &vec![0x55; CALL]).during("write", READ)
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let over = AtomicBool::new(false);
        let strange = |error: &dyn std::fmt::Display| BenchError::Absent(error.to_string());
        let mut times =
            Histogram::<u64>::new_with_bounds(1, 600_000_000_000, 3).map_err(|error| strange(&error))?;
        let begin = Instant::now();
        let started = std::thread::scope(|scope| {
            let behind = [scope.spawn(|| read(context, &over)), scope.spawn(|| write(context, &over))];
            let mut started = Ok(());
            while started.is_ok()
                && (times.len() < STARTS as u64 || begin.elapsed() < context.settings.run_time)
            {
                started = start(context, &mut times);
            }
            over.store(true, Ordering::Relaxed);
            for thread in behind {
                let done = thread.join().unwrap_or(Err(std::io::ErrorKind::Other.into()));
                started = started.and(done.during("work in", "the files behind"));
            }
            started
        });
        started?;
        Ok(vec![Phase {
            name: String::new(),
            measure: Measure::Latency,
            seconds: begin.elapsed().as_secs_f64(),
            operations: times.len(),
            bytes: 0,
            percentiles: percentiles(&times),
        }])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size * 2 + (128 << 20)
    }
}

/// Starts the program once. It prints its version and exits.
fn start(context: &WorkloadContext, times: &mut Histogram<u64>) -> Result<()> {
    let program = context.folder()?.join(PROGRAM);
    let file = File::open(&program).during("open", &program)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .during("drop the cached pages of", &program)?;
    drop(file);
    let begin = Instant::now();
    let ended =
        Command::new(&program).arg("--version").stdout(Stdio::null()).status().during("start", &program)?;
    let time = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    times.saturating_record(time);
    match ended.success() {
        true => Ok(()),
        false => Err(BenchError::Program { program: PROGRAM.into(), message: ended.to_string() }),
    }
}

fn read(context: &WorkloadContext, over: &AtomicBool) -> std::io::Result<()> {
    let (file, mut buf) = (context.files.open(READ, OpenMode::Read)?, vec![0; CALL]);
    let mut at = 0;
    while !over.load(Ordering::Relaxed) {
        match file.read_at(&mut buf, at)? {
            0 => at = 0,
            count => at += count as u64,
        }
    }
    Ok(())
}

fn write(context: &WorkloadContext, over: &AtomicBool) -> std::io::Result<()> {
    let (file, data) = (context.files.open(WRITTEN, OpenMode::Create)?, vec![0xaa; CALL]);
    let calls = (context.settings.file_size / CALL as u64).max(1);
    for call in (0..calls).cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        file.write_at(&data, call * CALL as u64)?;
    }
    Ok(())
}
