//! Workloads under their usual names.
//!
//! A workload prepares its files and states which caches it requires. The benchmark brings the caches to that state,
//! and runs the workload. The result is a figure for each phase. Each workload names the source of its parameters.

pub mod applications;
pub mod bonnie;
pub mod catalogue;
pub mod compilebench;
pub mod database;
pub mod file_set;
pub mod filebench;
mod fio;
pub mod fs_mark;
pub mod iozone;
pub mod latency;
pub mod mdtest;
pub mod reading;
pub mod rump;
pub mod startup;
mod team;
pub mod tiobench;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::files::Files;
use crate::random::Rng;
use crate::{BenchError, Result};

pub use catalogue::{all, find};
pub use team::ThreadGroup;

/// The settings that all workloads of a run share.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Settings {
    /// The number of threads of the workloads named with `T=N`.
    pub threads: usize,
    /// The size of a large file in bytes. To measure the disk, it must be larger than the memory.
    pub file_size: u64,
    /// The run time of workloads without an end of their own.
    pub run_time: Duration,
    /// The divisor of numbers of files and operations; 1 gives the numbers of the original.
    pub scale: u64,
    /// The seed of random numbers.
    pub seed: u64,
    /// The percentage of the file system that is filled and aged before the measurement.
    #[serde(default)]
    pub age: u8,
}

impl Default for Settings {
    /// Returns as many threads as processors, 1 GiB, 10 seconds, and the numbers of the original.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, file_size: 1 << 30, run_time: Duration::from_secs(10), scale: 1, seed: 1, age: 0 }
    }
}

/// The parameters of a study.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    threads: usize,
    file_size: u64,
}

/// The supported studies.
pub const PRESETS: &[Preset] = &[
    // S. Miller et al., "High Velocity Kernel File Systems with Bento", FAST 2021: 1 and 40 threads, 4 GiB.
    Preset { name: "bento", threads: 40, file_size: 4 << 30 },
    // Its reproduction, on a machine of 18 threads.
    Preset { name: "reproduction", threads: 18, file_size: 4 << 30 },
    // Filebench's own.
    Preset { name: "filebench", threads: 1, file_size: 1 << 30 },
];

impl Preset {
    /// Returns the settings. Workloads without an end of their own run for a minute.
    pub fn settings(&self) -> Settings {
        let (threads, file_size) = (self.threads, self.file_size);
        Settings { threads, file_size, run_time: Duration::from_secs(60), ..Settings::default() }
    }
}

impl Settings {
    /// Returns a number of files or operations, divided by the scale, and at least 1.
    pub fn scaled(&self, count: u64) -> u64 {
        (count / self.scale.max(1)).max(1)
    }
}

/// The environment of a workload.
pub struct WorkloadContext {
    /// The files of the file system under test.
    pub files: Arc<dyn Files>,
    /// The folder in which programs find the files, if there is one.
    pub path: Option<PathBuf>,
    /// The settings of the run.
    pub settings: Settings,
}

impl WorkloadContext {
    /// Returns random numbers for the thread `index`.
    pub fn rng(&self, index: usize) -> Rng {
        Rng::with_seed(self.settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index as u64))
    }

    /// Returns the folder, for workloads that run programs. Fails with `Absent`.
    pub fn folder(&self) -> Result<&PathBuf> {
        self.path.as_ref().ok_or_else(|| {
            BenchError::Absent("programs require a path, and a driver in this process has none".into())
        })
    }
}

/// The state of the caches at the start of a workload.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cache {
    /// As after the preparation.
    Warm,
    /// No cached data of the file system.
    Dropped,
}

/// The meaning of a phase's figure.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Mebibytes a second (the "MB" of Filebench, Bonnie and IOzone is 2^20 bytes).
    Throughput,
    /// Operations a second.
    Rate,
    /// Seconds.
    Time,
    /// The median latency in microseconds.
    Latency,
}

impl Measure {
    /// Returns whether a larger figure is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Throughput | Self::Rate)
    }

    /// Returns the unit for tables.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "MB/s",
            Self::Rate => "ops/s",
            Self::Time => "s",
            Self::Latency => "us",
        }
    }
}

/// The measurement of one phase.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Phase {
    /// The name of the phase; empty if the workload has only one.
    pub name: String,
    /// The meaning of the figure.
    pub measure: Measure,
    /// The duration, from a clock with nanoseconds.
    pub seconds: f64,
    /// The number of operations, counted as the original does.
    pub operations: u64,
    /// The bytes read and written.
    pub bytes: u64,
    /// Microseconds below which so many of a hundred operations stayed: `"50"`, `"99.9"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub percentiles: BTreeMap<String, f64>,
}

impl Phase {
    /// Returns the figure, in the unit of its measure.
    pub fn figure(&self) -> f64 {
        match self.measure {
            Measure::Throughput => self.bytes as f64 / f64::from(1 << 20) / self.seconds,
            Measure::Rate => self.operations as f64 / self.seconds,
            Measure::Time => self.seconds,
            Measure::Latency => self.percentiles.get("50").copied().unwrap_or(f64::NAN),
        }
    }
}

/// A workload. It reads its settings from the [`WorkloadContext`].
pub trait Workload: Send + Sync {
    /// Returns the required state of the caches. By default, they are warm.
    fn cache(&self) -> Cache {
        Cache::Warm
    }

    /// Returns whether the workload only reads. It then uses the existing files of a target that has files, and
    /// [`prepare`](Self::prepare) is not called there.
    fn only_reads(&self) -> bool {
        false
    }

    /// Creates the files of the workload. This is not measured. By default, a workload needs no files.
    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Chooses the files that the workload reads, after [`prepare`](Self::prepare). This is not measured. By default, a
    /// workload chooses none.
    fn survey(&self, context: &WorkloadContext) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Runs the workload. The file system was opened again after [`prepare`](Self::prepare), so the workload must look
    /// up its files again.
    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>>;

    /// Returns the number of bytes that must be free, so that a run without enough space is refused early.
    fn needs(&self, settings: &Settings) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::ImageFiles;

    pub(crate) fn small() -> Settings {
        let run_time = Duration::from_millis(20);
        Settings { threads: 2, file_size: 1 << 20, run_time, scale: 500, ..Settings::default() }
    }

    #[test]
    fn every_workload_runs_in_process_or_reports_a_missing_requirement() {
        for (name, _) in all() {
            let files = Arc::new(ImageFiles::new(obento::Volume::in_memory()));
            let context = WorkloadContext { files, path: None, settings: small() };
            let load = find(name, &context.settings).unwrap();
            let run =
                load.prepare(&context).and_then(|()| load.survey(&context)).and_then(|()| load.run(&context));
            match run {
                Ok(phases) => {
                    assert!(!phases.is_empty(), "{name}");
                    for phase in phases {
                        assert!(phase.figure().is_finite() && phase.operations > 0, "{name}: {phase:?}");
                    }
                }
                Err(BenchError::Absent(_)) => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}
