//! `obento bench`: measures file systems. Without a subcommand it runs suites or workloads.

mod cell;
mod list;
mod report;
mod run;
mod watch;

use crate::context::Context;
use crate::output::Outcome;

/// Measure file systems with workloads
///
/// A suite is quick, bento, phoronix, bonnie, iozone, rump or full; 'obento bench list' lists the suites and workloads.
/// Targets take turns, and each run uses a fresh file system. Runs are repeated until the standard error of the results
/// is under 3 % or a limit is reached.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    run: run::Args,
    #[command(subcommand)]
    command: Option<Sub>,
}

const AFTER_HELP: &str = "\
Targets:
  path:DIR                     the file system that is mounted at DIR
  image:TYPE                   a driver of obento, in process
  fuse:TYPE[,OPTION...]        a driver of obento, mounted
  kernel:TYPE[,OPTION...]      a file system of the kernel on a loop device (root)
  fuse2fs                      ext4 mounted by fuse2fs of e2fsprogs
  mount-cmd:COMMAND            a file system that a shell command mounts at\n                               \"$1\", with its files in \"$2\"";

#[derive(clap::Subcommand, Debug)]
enum Sub {
    List(list::Args),
    Report(report::Args),
    Compare(report::CompareArgs),
    Cell(cell::Args),
}

/// Runs the subcommand.
pub fn run(args: Args, context: &Context) -> Outcome {
    match args.command {
        None => run::run(&args.run, context),
        Some(Sub::List(args)) => list::run(&args),
        Some(Sub::Report(args)) => report::run(&args, context),
        Some(Sub::Compare(args)) => report::compare(&args, context),
        Some(Sub::Cell(args)) => cell::run(&args, context),
    }
}
