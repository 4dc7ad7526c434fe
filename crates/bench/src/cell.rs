//! One run of one workload on one target, in a process of its own.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::age::age;
use crate::machine::{self, Processors, Traffic};
use crate::target::{TargetSetup, TestBed};
use crate::workload::{Cache, Phase, Settings, Workload, WorkloadContext, find};
use crate::{BenchError, Result, Target};

/// A run with a larger share of stolen time is unreliable.
const STOLEN: f64 = 0.02;

/// The parameters of a run, which the measuring process receives.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Cell {
    /// The target, as written on the command line.
    pub target: String,
    /// The name of the workload.
    pub workload: String,
    /// The settings of the run.
    pub settings: Settings,
}

/// The result of one run.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Sample {
    /// The number of the rotation over the targets, from 0.
    #[serde(default)]
    pub rotation: usize,
    /// The measurements of each phase.
    pub phases: Vec<Phase>,
    /// The seconds from the start of the work until all written data was on stable storage.
    pub durable_seconds: f64,
    /// The processor time of all processes and of the kernel during the run, in seconds.
    pub processor_seconds: f64,
    /// The largest amount of memory of the measuring process and the servers, in bytes.
    pub peak_memory: u64,
    /// The device traffic, if it is counted.
    pub traffic: Option<Traffic>,
    /// The reason why the figures are unreliable.
    pub disturbed: Option<String>,
}

/// The end of a run.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The run succeeded.
    Measured(Sample),
    /// The run is not possible on this machine, for this reason.
    Absent(String),
    /// The run failed with this error.
    Failed(String),
    /// The run was stopped after this many seconds.
    NotFinished(f64),
}

/// Runs a cell in this process.
pub fn outcome(cell: &Cell, setup: &TargetSetup) -> Outcome {
    match measure(cell, setup) {
        Ok(sample) => Outcome::Measured(sample),
        Err(BenchError::Absent(why)) => Outcome::Absent(why),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

impl Cell {
    /// Returns whether a run only reads existing files, so that it leaves nothing.
    pub fn reads_existing_files(&self) -> bool {
        let has_files = self.target.parse::<Target>().is_ok_and(|target| target.has_files());
        has_files && find(&self.workload, &self.settings).is_ok_and(|load| load.only_reads())
    }
}

/// Measures a cell once. Fails with `Absent` if the cell cannot be measured on this machine, or with the error of the
/// run.
pub fn measure(cell: &Cell, setup: &TargetSetup) -> Result<Sample> {
    let target: Target = cell.target.parse()?;
    let load = find(&cell.workload, &cell.settings)?;
    let mut bed = opened(&target, &*load, cell, setup)?;
    let context = |bed: &TestBed| -> Result<WorkloadContext> {
        Ok(WorkloadContext { files: bed.files()?, path: bed.path(), settings: cell.settings.clone() })
    };
    if bed.is_fresh() {
        if cell.settings.age > 0 {
            age(&context(&bed)?, cell.settings.age, setup.size)?;
        }
        load.prepare(&context(&bed)?)?;
    }
    load.survey(&context(&bed)?)?;
    match load.cache() {
        Cache::Dropped => bed.cool()?,
        Cache::Warm => bed.sync()?,
    }
    let context = context(&bed)?;
    let company = machine::company();
    let (traffic, processors, begin) = (Traffic::of(&bed), Processors::now(), Instant::now());
    let phases = load.run(&context)?;
    bed.sync()?;
    let (durable, after) = (begin.elapsed(), Processors::now());
    let traffic = Traffic::of(&bed).zip(traffic).map(|(now, then)| now.since(&then));
    let own = [std::process::id()];
    let peak_memory = own.iter().chain(bed.servers()).map(|pid| machine::peak_memory(*pid)).sum();
    drop(context);
    bed.close()?;
    let stolen = after.stolen_since(&processors);
    let stolen = (stolen > STOLEN).then(|| format!("the host took {:.0} % of the time", stolen * 100.0));
    Ok(Sample {
        rotation: 0,
        phases,
        durable_seconds: durable.as_secs_f64(),
        processor_seconds: after.busy_since(&processors),
        peak_memory,
        traffic,
        disturbed: company.or(stolen),
    })
}

/// Opens the existing files of `target` for a workload that only reads, or creates a file system for another one.
fn opened(target: &Target, load: &dyn Workload, cell: &Cell, setup: &TargetSetup) -> Result<TestBed> {
    let workload = &cell.workload;
    match (target, cell.reads_existing_files()) {
        (_, true) if cell.settings.age > 0 => Err(BenchError::Absent(format!(
            "`--age` creates files, and {workload} only reads the files of this target"
        ))),
        (_, true) => TestBed::existing(target, setup),
        (Target::Stored(_), false) => Err(BenchError::Absent(format!(
            "{workload} creates files, and an existing image is only read; use the suite 'read', or a type instead of \
             an image"
        ))),
        _ => {
            expect_space(load, cell, setup)?;
            TestBed::fresh(target, setup)
        }
    }
}

/// Fails with `Absent` if a fresh file system has no space for the files of the workload.
fn expect_space(load: &dyn Workload, cell: &Cell, setup: &TargetSetup) -> Result<()> {
    let needs = load.needs(&cell.settings);
    if needs <= setup.size / 100 * u64::from(90_u8.saturating_sub(cell.settings.age)) {
        return Ok(());
    }
    let has = obento::text::human_size(setup.size);
    Err(BenchError::Absent(format!(
        "requires {}, but the file system has {has}; increase `--size`, or reduce `--scale` or `--file-size`",
        obento::text::human_size(needs)
    )))
}
