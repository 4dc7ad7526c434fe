//! `obento bench`: measures file systems. Without a subcommand it runs suites or workloads.

mod cell;
mod list;
mod report;
mod run;
mod watch;

use crate::context::Context;
use crate::help::page::Page;
use crate::output::Outcome;

/// The page of `bench`.
pub const PAGE: Page = Page::new(&[
    ("obento bench quick --output r.json", "Run the suite 'quick' and store the results"),
    (
        "obento bench varmail createfiles,T=1 --target kernel:xfs --target path:/srv",
        "Run two workloads on two targets",
    ),
    (
        "obento bench read -T image:win.ntfs -T 'mount-cmd:ntfs-3g -o ro win.ntfs $1'",
        "Read the files of an existing image in two ways",
    ),
    ("obento bench report r.json --format html --output r.html", "Write a page of the results"),
    ("obento bench compare before.json after.json", "Compare two runs"),
])
.exit(&[
    ("0", "All runs that are possible on this machine finished."),
    ("1", "A run failed, was interrupted or reached its time limit, or nothing was measured."),
    ("2", "Wrong usage, or the output could not be written."),
])
.unwritten(2)
.see_also(&["fio(1)"])
.subcommands(&[
    (
        "compare",
        Page::new(&[("obento bench compare before.json after.json", "Show what became slower or faster")])
            .exit(&[
                ("0", "Nothing became slower, and no result is missing."),
                ("1", "A result became slower or is missing."),
                ("2", "Wrong usage, a file could not be read, or the output could not be written."),
            ]),
    ),
    (
        "report",
        Page::new(&[("obento bench report r.json --format markdown", "Print a table of the results")]),
    ),
    ("list", Page::new(&[("obento bench list", "List the suites and workloads")])),
]);

/// Measure file systems with workloads
///
/// A suite is quick, bento, phoronix, bonnie, iozone, rump, provenance, read or full; 'obento bench list' lists the
/// suites and workloads. Targets take turns, and each run uses a fresh file system. The workloads of the suite 'read'
/// only read: they use the files of an existing image, directory, export or server, and create nothing there. Runs are
/// repeated until the standard error of the results is under 3 % or a limit is reached.
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
  image:TYPE                   a driver of obento, without a mount
  fuse:TYPE[,OPTION...]        a driver of obento, mounted
  kernel:TYPE[,OPTION...]      a file system of the kernel on a loop device (root)
  fuse2fs                      ext4 mounted by fuse2fs of e2fsprogs
  nfs://HOST/EXPORT            a directory of an NFS export, without a mount
  'fuse:SERVER ARGUMENT...'    a directory of a FUSE server, without a mount
  mount-cmd:COMMAND            a file system that a shell command mounts at
                               \"$1\", with its files in \"$2\"

Existing images, for the suite 'read'. They are opened or mounted read-only:
  image:IMAGE[@PART]           a driver of obento, without a mount
  fuse:IMAGE[@PART][,OPTION...]
                               a driver of obento, mounted
  kernel:IMAGE[@PART][,OPTION...]
                               the kernel, with a read-only loop device (root);
                               fstype=TYPE sets the type
The name of an IMAGE contains '/', '.', '@' or '%'. Write ./NAME for a file NAME.";

#[derive(clap::Subcommand, Debug)]
enum Sub {
    List(list::Args),
    Report(report::Args),
    Compare(report::CompareArgs),
    Cell(cell::Args),
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    match &args.command {
        None => run::run(&args.run, context),
        Some(Sub::List(args)) => list::run(args),
        Some(Sub::Report(args)) => report::run(args, context),
        Some(Sub::Compare(args)) => report::compare(args, context),
        Some(Sub::Cell(args)) => cell::run(args, context),
    }
}
