//! fio, if it is installed: it runs the same job on the same file, so that its results can be compared with ours.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::latency::{Latency, PERCENTILES};
use super::{Measure, Phase, Settings};
use crate::error::{command_of, run};
use crate::{BenchError, Result};

/// Runs the job `latency` with fio on `file`. Returns `None` if fio is not installed.
pub fn beside(latency: &Latency, file: &Path, settings: &Settings) -> Result<Option<Phase>> {
    let rw = match (latency.random, latency.write) {
        (false, false) => "read",
        (false, true) => "write",
        (true, false) => "randread",
        (true, true) => "randwrite",
    };
    let engine = if latency.depth > 1 { "io_uring" } else { "psync" };
    let percentiles = PERCENTILES.map(|at| at.to_string()).join(":");
    let mut command = command_of("fio");
    command.args([
        "--name=latency",
        "--direct=1",
        "--time_based",
        "--norandommap",
        "--thread",
        "--overwrite=1",
    ]);
    command.args(["--output-format=json", "--clat_percentiles=0", "--lat_percentiles=1", "--eta=never"]);
    command.arg(format!("--percentile_list={percentiles}"));
    command.arg(format!("--filename={}", file.display()));
    command.args([format!("--rw={rw}"), format!("--bs={}", latency.io_size), format!("--ioengine={engine}")]);
    command.args([format!("--iodepth={}", latency.depth), format!("--size={}", settings.file_size)]);
    command.args([
        format!("--runtime={}ms", settings.run_time.as_millis()),
        format!("--randseed={}", settings.seed),
    ]);
    let said = match run(&mut command) {
        Err(BenchError::Absent(_)) => return Ok(None),
        said => said?,
    };
    let strange =
        || BenchError::Program { program: "fio".into(), message: "it printed unexpected output".into() };
    phase(&said, latency.write).map(Some).ok_or_else(strange)
}

/// Reads the figures from fio's JSON.
fn phase(said: &str, write: bool) -> Option<Phase> {
    // Messages may precede the JSON.
    let report: Value = serde_json::from_str(said.get(said.find('{')?..)?).ok()?;
    let done = report.get("jobs")?.get(0)?.get(if write { "write" } else { "read" })?;
    let count = |name: &str| done.get(name)?.as_u64();
    let mut percentiles = BTreeMap::new();
    for (at, nanoseconds) in done.get("lat_ns")?.get("percentile")?.as_object()? {
        let at: f64 = at.parse().ok()?;
        percentiles.insert(at.to_string(), nanoseconds.as_f64()? / 1000.0);
    }
    Some(Phase {
        name: "fio".into(),
        measure: Measure::Latency,
        seconds: count("runtime")? as f64 / 1000.0,
        operations: count("total_ios")?,
        bytes: count("io_bytes")?,
        percentiles,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_fio_becomes_a_phase() {
        let said = r#"note: something
            {"jobs": [{"read": {"runtime": 2000, "total_ios": 10, "io_bytes": 40960,
             "lat_ns": {"percentile": {"50.000000": 12345, "99.900000": 99999}}}}]}"#;
        let phase = phase(said, false).unwrap();
        assert_eq!((phase.figure(), phase.seconds, phase.operations, phase.bytes), (12.345, 2.0, 10, 40_960));
        assert_eq!(phase.percentiles.get("99.9"), Some(&99.999));
        assert!(super::phase(said, true).is_none() && super::phase("fio: no such engine", false).is_none());
    }
}
