//! `obento bench`: the laboratory. Without a subcommand it runs suites or workloads.

mod cell;
mod list;
mod report;
mod run;
mod watch;

use crate::context::Context;
use crate::output::Outcome;

/// Measure file systems with known workloads
///
/// A suite is `quick`, `bento`, `phoronix`, `bonnie`, `iozone`, `rump` or `full`; `obento bench list` names them and every workload. Targets
/// take turns, each run on a fresh file system, until the standard error of the figures is under 3 % or a limit is reached. Exit status: 0
/// if it came to its end, 1 if not.
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
  path:DIR                     whatever is mounted at DIR
  image:TYPE                   a driver of obento, in process
  fuse:TYPE[,OPTION...]        a driver of obento, mounted
  kernel:TYPE[,OPTION...]      a file system of the kernel on a loop device (root)
  fuse2fs                      ext4 mounted by fuse2fs of e2fsprogs
  mount-cmd:COMMAND            what a shell command mounts at \"$1\", with files of its own in \"$2\"

Examples:
  obento bench quick --output r.json
  obento bench varmail createfiles,T=1 --target kernel:xfs --target path:/srv
  obento bench report r.json --format html --output r.html
  obento bench compare before.json after.json";

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
