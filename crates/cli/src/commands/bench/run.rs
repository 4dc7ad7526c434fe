//! Running suites and workloads.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use obento::Registry;
use obento::host::interrupt::{self, SignalGuard};
use obento::host::{HostDir, HostError};
use obento_bench::cell;
use obento_bench::lab::{self, Processes, RunPlan};
use obento_bench::machine::{self, Machine};
use obento_bench::report::{Table, text};
use obento_bench::results::{CellResult, Results, ResultsFile};
use obento_bench::statistics::StopRule;
use obento_bench::suite::Suite;
use obento_bench::target::{Mount, TargetSetup};
use obento_bench::workload::{PRESETS, Settings, find};
use obento_bench::{BenchError, Target};

use super::report::expect_measured;
use super::watch::RunDisplay;
use crate::context::Context;
use crate::output::{Outcome, Output, Stop};
use crate::parse::size::positive_size;
use crate::report::{Report, subject};

/// The workloads, the targets and the limits of a run.
#[derive(clap::Args, Debug)]
#[group(id = "measure")]
pub struct Args {
    /// Suites, or names of workloads
    #[arg(required = true, value_name = "SUITE|WORKLOAD")]
    names: Vec<String>,
    /// A file system to measure; can be repeated. The default is the targets of the suite, or kernel:ext4,
    /// image:ext4 and fuse:ext4. The list below has the forms of a target
    #[arg(short = 'T', long = "target", value_name = "TARGET")]
    targets: Vec<String>,
    /// Compare with this target in the table at the end
    #[arg(long, value_name = "TARGET")]
    baseline: Option<String>,
    /// Store the results in FILE, after each run
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Continue with the results in the file of --output
    #[arg(long, requires = "output")]
    resume: bool,
    /// Create a directory in DIR for the images
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The size of each file system
    #[arg(long, value_parser = positive_size)]
    size: Option<u64>,
    /// The size of large files; to measure the disk, it must exceed the size of the memory
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    file_size: Option<u64>,
    /// The number of threads of workloads whose name contains T=N
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// The time of workloads that do not end by themselves
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    run_time: Option<f64>,
    /// Divide the numbers of files and operations by N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    scale: Option<u64>,
    /// The seed of random numbers
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Use the threads, sizes and times of a study: bento, reproduction or filebench
    #[arg(long, value_name = "STUDY", value_parser = parse_preset)]
    preset: Option<Settings>,
    /// Age each file system first: fill PERCENT of it with a history of files
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=80))]
    age: Option<u8>,
    /// Use disks of compressed memory (zram; requires root)
    #[arg(long)]
    zram: bool,
    /// The minimum number of repetitions
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    repeat: Option<usize>,
    /// The maximum number of repetitions
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    repeat_most: Option<usize>,
    /// The time limit of a run
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0, value_parser = positive)]
    limit: f64,
}

/// Parses a time that is not 0.
fn positive(text: &str) -> Result<f64, &'static str> {
    let time = text.parse().ok().filter(|time: &f64| time.is_finite() && *time > 0.0);
    time.ok_or("not a time above 0, such as 10 or 0.5")
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let caught = SignalGuard::new();
    let (suite, workloads) = chosen(args)?;
    let output = args.output.as_deref().map(ResultsFile::new).transpose();
    let output = output.map_err(|error| fail(Report::plain(error)))?;
    let mut results = begin(args, output.as_ref(), suite)?;
    let targets = targets(args, suite, context.registry())?;
    let measured = targets.iter().map(String::as_str).chain(results.targets()).collect();
    expect_measured(args.baseline.as_deref(), measured).map_err(fail)?;
    // The folder is used by its path, which no other user may change.
    let place = HostDir::open_trusted(&args.dir).map_err(|error| fail(unusable(&args.dir, error)))?;
    // Database servers run as other users, and must be able to enter the folder.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let folder = tempfile::Builder::new().prefix("obento-bench-").permissions(open).tempdir_in(place.path());
    let folder = folder.map_err(|error| {
        // The error of the system, without the name of the new folder.
        fail(no_folder(&args.dir, io::Error::from(error.kind())))
    })?;
    let path = folder
        .path()
        .canonicalize()
        .map_err(|error| fail(Report::new("cannot find the directory of the images", error)))?;
    results.machine = Machine::this(&path);
    let obento = std::env::current_exe()
        .map_err(|error| fail(Report::new("cannot find the program of obento", error)))?;
    let registry = context.registry().clone();
    let setup = TargetSetup { folder: path, size: results.size, obento, registry, zram: args.zram };
    let size = results.size.to_string();
    let mut arguments = vec![
        "bench".into(),
        "cell".into(),
        "--folder".into(),
        setup.folder.clone().into_os_string(),
        "--size".into(),
        size.into(),
    ];
    if args.zram {
        results.machine.setup = "zram".into();
        arguments.push("--zram".into());
    }
    let stop = Box::new(interrupt::is_requested);
    let processes = Processes { program: setup.obento.clone(), arguments, setup, stop };
    let plan = RunPlan {
        targets,
        workloads,
        limit: Duration::try_from_secs_f64(args.limit * 60.0).unwrap_or(Duration::MAX),
    };
    let mut watch = RunDisplay::new(context, &plan);
    let only_reads = |name: &String| find(name, &results.settings).is_ok_and(|load| load.only_reads());
    if results.settings.file_size < machine::memory() && !plan.workloads.iter().all(only_reads) {
        context.note(b"bench", "large files fit in memory, so reads come from the cache; use a larger --file-size to measure the disk");
    }
    let mut save = |results: &Results| output.as_ref().map_or(Ok(()), |file| file.save(results));
    let whole = lab::run(&plan, &processes, &mut results, &mut watch, &mut save)
        .map_err(|error| fail(Report::plain(error)))?;
    drop((watch, folder, caught));
    if !all_measured(&results, &plan) {
        context.raise(1);
    }
    let mut out = Output::stdout();
    out.write_all(text(&Table::of(&results, args.baseline.as_deref())).as_bytes())?;
    out.finish()?;
    if !whole {
        let help = match &args.output {
            Some(path) => format!("add --resume to the command to continue with {}", path.display()),
            None => "use --output FILE to be able to continue".to_owned(),
        };
        context.warn(&Report::plain("interrupted: the table shows the completed runs").help(help));
    }
    Ok(())
}

/// Returns whether every run of `plan` that is possible on this machine has finished, now or before a resumption, and
/// whether at least one did.
fn all_measured(results: &Results, plan: &RunPlan) -> bool {
    let is_of_plan =
        |cell: &&CellResult| plan.targets.contains(&cell.target) && plan.workloads.contains(&cell.workload);
    let mut cells = results.cells.iter().filter(is_of_plan);
    let has_failed = |cell: &CellResult| {
        matches!(cell.ended, Some(cell::Outcome::Failed(_) | cell::Outcome::NotFinished(_)))
    };
    let is_any_measured = cells.clone().any(|cell| !cell.samples.is_empty());
    is_any_measured && !cells.any(has_failed)
}

fn unusable(directory: &Path, error: HostError) -> Report {
    match error.errno() {
        Some(errno) => no_folder(directory, errno.into()),
        None => Report::plain(error),
    }
}

fn no_folder(directory: &Path, reason: io::Error) -> Report {
    Report::on("cannot create a directory in", directory.as_os_str().as_encoded_bytes(), reason)
}

fn fail(report: Report) -> Stop {
    Stop::Failed(report)
}

fn parse_preset(name: &str) -> Result<Settings, String> {
    let found = PRESETS.iter().find(|preset| preset.name == name);
    let names = || PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
    found.map(|preset| preset.settings()).ok_or_else(|| format!("not one of {}", names()))
}

/// The first suite that is named, and all workloads in the order in which they are named.
fn chosen(args: &Args) -> Result<(Option<&'static Suite>, Vec<String>), Stop> {
    let mut first = None;
    let mut workloads: Vec<String> = Vec::new();
    for name in &args.names {
        let new = match Suite::find(name) {
            Some(suite) => {
                first.get_or_insert(suite);
                suite.workloads()
            }
            None => {
                let help = "run 'obento bench list' to list the workloads and suites";
                find(name, &Settings::default()).map_err(|error| fail(Report::plain(error).help(help)))?;
                vec![name.clone()]
            }
        };
        new.into_iter().for_each(|name| {
            if !workloads.contains(&name) {
                workloads.push(name)
            }
        });
    }
    Ok((first, workloads))
}

fn targets(args: &Args, suite: Option<&Suite>, registry: &Registry) -> Result<Vec<String>, Stop> {
    let usual = || suite.map_or(["kernel:ext4", "image:ext4", "fuse:ext4"].as_slice(), |suite| suite.targets);
    let named = match args.targets.as_slice() {
        [] => usual().iter().map(|target| (*target).to_owned()).collect(),
        named => named.to_vec(),
    };
    for target in &named {
        let parsed = target.parse::<Target>().map_err(|error: BenchError| {
            fail(Report::plain(error).help("'obento help bench' lists the forms of targets"))
        })?;
        expect_usable(target, &parsed, registry)?;
    }
    Ok(named)
}

/// Fails for a target that no run can use.
fn expect_usable(text: &str, target: &Target, registry: &Registry) -> Result<(), Stop> {
    let report = |cause: &str| Report::on("cannot measure", text.as_bytes(), cause);
    match target {
        Target::Image(Mount { kind, .. }) | Target::Fuse(Mount { kind, .. })
            if registry.find(kind).is_none() && registry.engine_type(kind).is_none() =>
        {
            let report = report(&format!("unknown file system type {}", subject(kind)));
            Err(fail(match Path::new(kind).exists() {
                true => report.help(format!("to read the existing image, write ./{kind}")),
                false => report.help("run 'obento types' to list the types"),
            }))
        }
        // The command line of a server would run the file as a program.
        Target::Export(address)
            if address.strip_prefix("fuse:").is_some_and(|command| Path::new(command).exists()) =>
        {
            let report = report("this is the name of a file, not the command line of a FUSE server");
            Err(fail(report.help("use a symbolic link without a blank in its name")))
        }
        Target::Path(path) if !path.is_dir() => Err(fail(report("this is not a directory of the host"))),
        Target::Stored(stored) => match stored.address() {
            Ok(_) => Ok(()),
            Err(BenchError::Address(error)) => Err(fail(error.into())),
            Err(error) => Err(fail(Report::plain(error))),
        },
        _ => Ok(()),
    }
}

/// Empty results, or those of before.
fn begin(args: &Args, output: Option<&ResultsFile>, suite: Option<&'static Suite>) -> Result<Results, Stop> {
    // Of several things, none gives the whole its name.
    let name = match suite.filter(|_| args.names.len() == 1) {
        Some(suite) => suite.name.to_owned(),
        None => args.names.join(" "),
    };
    let usual = || suite.map_or_else(Settings::default, |suite| (suite.settings)());
    let mut settings = args.preset.clone().unwrap_or_else(usual);
    settings.age = args.age.unwrap_or(settings.age);
    settings.file_size = args.file_size.unwrap_or(settings.file_size);
    settings.threads = args.threads.unwrap_or(settings.threads).max(1);
    settings.scale = args.scale.unwrap_or(settings.scale).max(1);
    settings.seed = args.seed.unwrap_or(settings.seed);
    if let Some(seconds) = args.run_time {
        settings.run_time = Duration::try_from_secs_f64(seconds)
            .map_err(|_| fail(Report::plain(format!("invalid --run-time '{seconds}'"))))?;
    }
    let mut enough = suite.map_or_else(StopRule::default, |suite| suite.enough);
    enough.least = args.repeat.unwrap_or(enough.least).max(1);
    enough.most = args.repeat_most.unwrap_or(enough.most).max(enough.least);
    let size = args.size.or(suite.map(|suite| suite.size)).unwrap_or(8 << 30);
    let fresh = Results::new(&name, Machine::default(), settings, size, enough);
    let existing = match output {
        Some(file) if file.exists().map_err(|error| fail(Report::plain(error)))? => Some(file),
        _ => None,
    };
    match existing {
        Some(file) if args.resume => {
            let known = file.load().map_err(|error| fail(Report::plain(error)))?;
            if (&known.settings, known.size) != (&fresh.settings, fresh.size) {
                let report =
                    Report::plain(format!("'{}' was measured with other settings", file.path().display()));
                return Err(fail(report.help("use the same options, or another file for --output")));
            }
            Ok(Results { enough, ..known })
        }
        Some(file) => {
            let name = file.path().as_os_str().as_encoded_bytes();
            let report = Report::on("cannot store the results in", name, "file exists");
            Err(fail(report.help("use --resume to continue with it, or name another file")))
        }
        None => Ok(fresh),
    }
}
