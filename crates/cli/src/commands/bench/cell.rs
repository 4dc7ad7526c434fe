//! `obento bench cell`: one run in its own process, started by `obento bench`.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use obento_bench::cell::{Cell, outcome};
use obento_bench::target::TargetSetup;

use crate::context::Context;
use crate::output::{Outcome, Output, Stop};
use crate::report::Report;

/// Run a cell that standard input describes as JSON, and write its result to standard output
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub struct Args {
    /// The folder of the images
    #[arg(long)]
    folder: PathBuf,
    /// The size of each file system
    #[arg(long)]
    size: u64,
    /// Whether images are zram disks
    #[arg(long)]
    zram: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut question = Vec::new();
    std::io::stdin()
        .read_to_end(&mut question)
        .map_err(|error| Stop::Failed(Report::new("cannot read the cell", error)))?;
    let cell: Cell = serde_json::from_slice(&question)
        .map_err(|error| Stop::Failed(Report::new("cannot read the cell", error)))?;
    let obento = std::env::current_exe()
        .map_err(|error| Stop::Failed(Report::new("cannot find the program of obento", error)))?;
    let (folder, registry) = (args.folder.clone(), context.registry().clone());
    let setup = TargetSetup { folder, size: args.size, obento, registry, zram: args.zram };
    let answer = serde_json::to_vec(&outcome(&cell, &setup))
        .map_err(|error| Stop::Failed(Report::new("cannot write the result of the cell", error)))?;
    let mut out = Output::stdout();
    out.write_all(&answer)?;
    out.finish()
}
