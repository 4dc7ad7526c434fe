//! How long a program takes to start while large files are read and written in order behind it: what a person at a machine that
//! copies files feels.
//!
//! As P. Valente's start-up figures for I/O schedulers have it: the program is on the file system under test and out of the cache.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hdrhistogram::Histogram;

use super::latency::percentiles;
use crate::error::During as _;
use crate::files::{How, write_span};
use crate::workload::{Cache, Load, Measure, Phase, Scene, Settings};
use crate::{BenchError, Result};

const PROGRAM: &str = "program";
const READ: &str = "behind.read";
const WRITTEN: &str = "behind.written";
const CALL: usize = 1 << 20;
/// How often it is started at least.
const STARTS: usize = 5;

/// A program that starts in company.
#[derive(Clone, Copy, Debug)]
pub struct Startup;

impl Load for Startup {
    fn cache(&self) -> Cache {
        Cache::Dropped
    }

    fn prepare(&self, scene: &Scene) -> Result<()> {
        let program = scene.folder()?.join(PROGRAM);
        let own = std::env::current_exe().during("find", "the program itself")?;
        fs::copy(&own, &program).during("copy to", &program)?;
        let file = scene.files.open(READ, How::Create).during("create", READ)?;
        write_span(&*file, 0, scene.settings.file_size, &vec![0x55; CALL]).during("write", READ)
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let over = AtomicBool::new(false);
        let strange = |error: &dyn std::fmt::Display| BenchError::Absent(error.to_string());
        let mut times =
            Histogram::<u64>::new_with_bounds(1, 600_000_000_000, 3).map_err(|error| strange(&error))?;
        let begin = Instant::now();
        let started = std::thread::scope(|scope| {
            let behind = [scope.spawn(|| read(scene, &over)), scope.spawn(|| write(scene, &over))];
            let mut started = Ok(());
            while started.is_ok()
                && (times.len() < STARTS as u64 || begin.elapsed() < scene.settings.run_time)
            {
                started = start(scene, &mut times);
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

/// Starts the program once, which says its version and ends.
fn start(scene: &Scene, times: &mut Histogram<u64>) -> Result<()> {
    let program = scene.folder()?.join(PROGRAM);
    let file = File::open(&program).during("open", &program)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).during("let go of", &program)?;
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

fn read(scene: &Scene, over: &AtomicBool) -> std::io::Result<()> {
    let (file, mut buf) = (scene.files.open(READ, How::Read)?, vec![0; CALL]);
    let mut at = 0;
    while !over.load(Ordering::Relaxed) {
        match file.read_at(&mut buf, at)? {
            0 => at = 0,
            count => at += count as u64,
        }
    }
    Ok(())
}

fn write(scene: &Scene, over: &AtomicBool) -> std::io::Result<()> {
    let (file, data) = (scene.files.open(WRITTEN, How::Create)?, vec![0xaa; CALL]);
    let calls = (scene.settings.file_size / CALL as u64).max(1);
    for call in (0..calls).cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        file.write_at(&data, call * CALL as u64)?;
    }
    Ok(())
}
