//! Workloads by the names that the field knows.
//!
//! A workload prepares its files, lets the laboratory bring the caches to the state that it wants, and runs; what it answers
//! is a figure for each of its phases. Sources of the parameters stand with each.

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
pub use team::Team;

/// What all workloads of a run share.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Settings {
    /// Threads of those workloads that are named with `T=N`.
    pub threads: usize,
    /// Bytes of a large file. To see the disk it must be larger than the memory.
    pub file_size: u64,
    /// How long workloads run that have no end of their own.
    pub run_time: Duration,
    /// By what numbers of files and operations are divided; 1 is as the original has it.
    pub scale: u64,
    /// Where random numbers start.
    pub seed: u64,
    /// Hundredths of the file system that a history of files fills before anything is measured.
    #[serde(default)]
    pub age: u8,
}

impl Default for Settings {
    /// As many threads as processors, 1 GiB, 10 seconds, everything in its size.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, file_size: 1 << 30, run_time: Duration::from_secs(10), scale: 1, seed: 1, age: 0 }
    }
}

/// The parameters of a study.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    threads: usize,
    file_size: u64,
}

/// Those that are known.
pub const PRESETS: &[Preset] = &[
    // S. Miller et al., "High Velocity Kernel File Systems with Bento", FAST 2021: 1 and 40 threads, 4 GiB.
    Preset { name: "bento", threads: 40, file_size: 4 << 30 },
    // Its reproduction, on a machine of 18 threads.
    Preset { name: "reproduction", threads: 18, file_size: 4 << 30 },
    // Filebench's own.
    Preset { name: "filebench", threads: 1, file_size: 1 << 30 },
];

impl Preset {
    /// Its settings; what has no end of its own runs for a minute.
    pub fn settings(&self) -> Settings {
        let (threads, file_size) = (self.threads, self.file_size);
        Settings { threads, file_size, run_time: Duration::from_secs(60), ..Settings::default() }
    }
}

impl Settings {
    /// A number of files or operations in the scale of this run, at least 1.
    pub fn scaled(&self, count: u64) -> u64 {
        (count / self.scale.max(1)).max(1)
    }
}

/// What a workload runs in.
pub struct Scene {
    /// The files of the file system under test.
    pub files: Arc<dyn Files>,
    /// The folder at which programs find them, if there is one.
    pub path: Option<PathBuf>,
    /// The settings of the run.
    pub settings: Settings,
}

impl Scene {
    /// Random numbers for the thread `index`.
    pub fn rng(&self, index: usize) -> Rng {
        Rng::with_seed(self.settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index as u64))
    }

    /// The folder, for workloads that are programs. Errors: Absent.
    pub fn folder(&self) -> Result<&PathBuf> {
        self.path.as_ref().ok_or_else(|| {
            BenchError::Absent("programs need a path, which a driver in process has not".into())
        })
    }
}

/// The state of the caches when a workload begins.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cache {
    /// As preparing left it.
    Kept,
    /// Nothing of the file system is in memory.
    Dropped,
}

/// What the figure of a phase is.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Mebibytes a second (the MB of Filebench, Bonnie and IOzone: 2^20).
    Throughput,
    /// Operations a second.
    Rate,
    /// Seconds.
    Time,
    /// Microseconds that half of the operations stay below.
    Latency,
}

impl Measure {
    /// Whether a larger figure is the better one.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Throughput | Self::Rate)
    }

    /// The unit, as a table says it.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "MB/s",
            Self::Rate => "ops/s",
            Self::Time => "s",
            Self::Latency => "us",
        }
    }
}

/// What was measured of one phase of a workload.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Phase {
    /// Its name among the phases; empty if the workload is one.
    pub name: String,
    /// What its figure is.
    pub measure: Measure,
    /// How long it took, by a clock of nanoseconds.
    pub seconds: f64,
    /// What was done, as the original counts it.
    pub operations: u64,
    /// Bytes that were read and written.
    pub bytes: u64,
    /// Microseconds below which so many of a hundred operations stayed: `"50"`, `"99.9"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub percentiles: BTreeMap<String, f64>,
}

impl Phase {
    /// The figure, in the unit of its measure.
    pub fn figure(&self) -> f64 {
        match self.measure {
            Measure::Throughput => self.bytes as f64 / f64::from(1 << 20) / self.seconds,
            Measure::Rate => self.operations as f64 / self.seconds,
            Measure::Time => self.seconds,
            Measure::Latency => self.percentiles.get("50").copied().unwrap_or(f64::NAN),
        }
    }
}

/// A workload. What it needs of the settings it takes from the [`Scene`].
pub trait Load: Send + Sync {
    /// The state of the caches in which it begins.
    fn cache(&self) -> Cache;

    /// Makes the files that it works on; is not measured.
    fn prepare(&self, scene: &Scene) -> Result<()>;

    /// Does the work. What [`prepare`](Self::prepare) knew is found anew: the file system was opened again in between.
    fn run(&self, scene: &Scene) -> Result<Vec<Phase>>;

    /// Bytes that must be free, so that a run that cannot end is refused before it begins.
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
    fn every_workload_runs_in_process_or_says_what_it_lacks() {
        for (name, _) in all() {
            let files = Arc::new(ImageFiles::new(obento::Volume::in_memory()));
            let scene = Scene { files, path: None, settings: small() };
            let load = find(name, &scene.settings).unwrap();
            let run = load.prepare(&scene).and_then(|()| load.run(&scene));
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
