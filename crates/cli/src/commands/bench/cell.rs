//! `obento bench cell`: one run in a process of its own. Not for people: `obento bench` starts it.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use obento_bench::cell::{Cell, outcome};
use obento_bench::target::Ground;

use crate::context::Context;
use crate::output::{Outcome, Output, Stop};
use crate::report::Report;

/// Run a cell that is given as JSON on standard input, and answer how it ended on standard output
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub struct Args {
    /// The folder of the images
    #[arg(long)]
    folder: PathBuf,
    /// Bytes of each file system
    #[arg(long)]
    size: u64,
    /// Whether images are disks of zram
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
        .map_err(|error| Stop::Failed(Report::new("cannot find obento itself", error)))?;
    let (folder, registry) = (args.folder.clone(), context.registry().clone());
    let ground = Ground { folder, size: args.size, obento, registry, zram: args.zram };
    let answer = serde_json::to_vec(&outcome(&cell, &ground))
        .map_err(|error| Stop::Failed(Report::new("cannot say how the cell ended", error)))?;
    let mut out = Output::stdout();
    out.write_all(&answer)?;
    out.finish()
}
