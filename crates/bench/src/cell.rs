//! One run of one workload on one target, in a process that does nothing else.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::age::age;
use crate::error::During as _;
use crate::machine::{self, Processors, Traffic};
use crate::target::{Bed, Ground};
use crate::workload::{Cache, Phase, Scene, Settings, find};
use crate::{BenchError, Result, Target};

/// Above this share of stolen time a run counts as disturbed.
const STOLEN: f64 = 0.02;

/// What is run, as it is told to the process that runs it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Cell {
    /// The target, as it is written on the command line.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// The settings of the run.
    pub settings: Settings,
}

/// What one run showed.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Sample {
    /// In which rotation over the targets it was run.
    #[serde(default)]
    pub rotation: usize,
    /// What was measured, phase by phase.
    pub phases: Vec<Phase>,
    /// Seconds until all that was written had reached stable storage, the work included.
    pub durable_seconds: f64,
    /// Seconds of work of all processors meanwhile, the kernel's included.
    pub processor_seconds: f64,
    /// Bytes of memory that the measuring process and the servers had at most.
    pub peak_memory: u64,
    /// What went to the device, where it is counted.
    pub traffic: Option<Traffic>,
    /// Why the figures may be wrong.
    pub disturbed: Option<String>,
}

/// How a run ended.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With figures.
    Measured(Sample),
    /// It cannot be run here, and this is why.
    Absent(String),
    /// With an error.
    Failed(String),
    /// It was stopped after so many seconds.
    NotFinished(f64),
}

/// Runs a cell in this process.
pub fn outcome(cell: &Cell, ground: &Ground) -> Outcome {
    match measure(cell, ground) {
        Ok(sample) => Outcome::Measured(sample),
        Err(BenchError::Absent(why)) => Outcome::Absent(why),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// Measures a cell once. Errors: Absent if that is not possible on this machine; whatever fails.
pub fn measure(cell: &Cell, ground: &Ground) -> Result<Sample> {
    let target: Target = cell.target.parse()?;
    let load = find(&cell.workload, &cell.settings)?;
    let needs = load.needs(&cell.settings);
    if needs > ground.size / 100 * u64::from(90_u8.saturating_sub(cell.settings.age)) {
        let has = obento::human_size(ground.size);
        return Err(BenchError::Absent(format!(
            "needs {} of a file system of {has}: `--size` makes it larger, `--scale` and `--file-size` need less",
            obento::human_size(needs)
        )));
    }
    let mut bed = Bed::fresh(&target, ground)?;
    let scene = |bed: &Bed| -> Result<Scene> {
        Ok(Scene { files: bed.files()?, path: bed.path(), settings: cell.settings.clone() })
    };
    if cell.settings.age > 0 {
        age(&scene(&bed)?, cell.settings.age, ground.size)?;
    }
    load.prepare(&scene(&bed)?)?;
    match load.cache() {
        Cache::Dropped => bed.cool()?,
        Cache::Kept => bed.files()?.sync().during("sync", &cell.target)?,
    }
    let scene = scene(&bed)?;
    let company = machine::company();
    let (traffic, processors, begin) = (Traffic::of(&bed), Processors::now(), Instant::now());
    let phases = load.run(&scene)?;
    scene.files.sync().during("sync", &cell.target)?;
    let (durable, after) = (begin.elapsed(), Processors::now());
    let traffic = Traffic::of(&bed).zip(traffic).map(|(now, then)| now.since(&then));
    let own = [std::process::id()];
    let peak_memory = own.iter().chain(bed.servers()).map(|pid| machine::peak_memory(*pid)).sum();
    drop(scene);
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
