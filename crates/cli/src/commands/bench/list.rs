//! `obento bench list`.

use std::io::Write as _;

use obento_bench::suite::SUITES;
use obento_bench::workload::all;

use crate::output::{Outcome, Output};

/// List the suites and workloads
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_: &Args) -> Outcome {
    let mut out = Output::stdout();
    writeln!(out, "Suites:")?;
    for suite in SUITES {
        writeln!(out, "  {:<12} {} ({} workloads)", suite.name, suite.about, suite.workloads().len())?;
    }
    writeln!(out, "\nWorkloads (--threads sets the N of T=N):")?;
    for (name, _) in all() {
        writeln!(out, "  {name}")?;
    }
    out.finish()
}
