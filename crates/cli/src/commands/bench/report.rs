//! `obento bench report` and `obento bench compare`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::slice;

use obento_bench::report::{Changed, Table, Verdict, compare as changes, csv, html, markdown, text};
use obento_bench::results::Results;

use crate::context::Context;
use crate::output::{Outcome, Output, Stop};
use crate::replaced::OutputFile;
use crate::report::Report;

/// Print a table or page of results
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files of results
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Write to FILE; the ending .html, .md or .csv selects the format
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare with this target
    #[arg(long, value_name = "TARGET")]
    baseline: Option<String>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// A table for a terminal
    Text,
    /// A table for documentation
    Markdown,
    /// One sample per line
    Csv,
    /// A self-contained page
    Html,
}

/// # Errors
///
/// `baseline` is not one of the targets.
pub fn expect_measured(baseline: Option<&str>, mut targets: Vec<&str>) -> Result<(), Report> {
    let Some(baseline) = baseline.filter(|baseline| !targets.contains(baseline)) else { return Ok(()) };
    targets.sort_unstable();
    targets.dedup();
    let report = Report::on("cannot compare with", baseline.as_bytes(), "this target is not measured");
    Err(report.help(format!("use one of these targets: {}", targets.join(", "))))
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let all: Vec<Results> = args.files.iter().map(|path| load(path)).collect::<Result<_, _>>()?;
    expect_measured(args.baseline.as_deref(), all.iter().flat_map(Results::targets).collect())?;
    let table = |results: &Results| Table::of(results, args.baseline.as_deref());
    let format = match args.output.as_ref().and_then(|path| path.extension()).and_then(|end| end.to_str()) {
        Some("html") => Format::Html,
        Some("md") => Format::Markdown,
        Some("csv") => Format::Csv,
        _ => args.format,
    };
    let made = match format {
        Format::Text => all.iter().map(|results| text(&table(results))).collect::<Vec<_>>().join("\n"),
        Format::Markdown => {
            all.iter().map(|results| markdown(results, &table(results))).collect::<Vec<_>>().join("\n")
        }
        Format::Csv => all.iter().map(csv).collect(),
        Format::Html => {
            html(&all.into_iter().map(|results| (results.clone(), table(&results))).collect::<Vec<_>>())
        }
    };
    if let Some(path) = &args.output {
        let output = OutputFile::open(path)?;
        OutputFile::seal(slice::from_ref(&output), context);
        return output.emptied(&[], context)?.write_all(made.as_bytes()).map_err(|error| {
            Stop::Failed(Report::on("cannot write", path.as_os_str().as_encoded_bytes(), error))
        });
    }
    let mut out = Output::stdout();
    out.write_all(made.as_bytes())?;
    out.finish()
}

/// Compare two runs
///
/// Only changes beyond the noise are reported.
#[derive(clap::Args, Debug)]
pub struct CompareArgs {
    /// The earlier results
    base: PathBuf,
    /// The later results
    new: PathBuf,
    /// Ignore changes of less than N percent
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    least: f64,
    /// List workloads without a change too
    #[arg(short, long)]
    all: bool,
}

pub fn compare(args: &CompareArgs, context: &Context) -> Outcome {
    let (base, new) = (load(&args.base)?, load(&args.new)?);
    let found = changes(&base, &new, args.least / 100.0);
    if found.iter().any(|change| matches!(change.verdict, Verdict::Slower | Verdict::Lost)) {
        context.raise(1);
    }
    print_changes(args, &found)
}

fn print_changes(args: &CompareArgs, changes: &[Changed]) -> Outcome {
    let mut out = Output::stdout();
    let (mut slower, mut faster, mut same) = (0, 0, 0);
    for change in changes {
        let (name, target) = (&change.name, &change.target);
        let word = match change.verdict {
            Verdict::Faster => {
                faster += 1;
                "faster"
            }
            Verdict::Slower => {
                slower += 1;
                "SLOWER"
            }
            Verdict::Lost => {
                slower += 1;
                "LOST"
            }
            Verdict::Same => {
                same += 1;
                if !args.all {
                    continue;
                }
                "same"
            }
        };
        match &change.speed {
            Some(speed) => writeln!(
                out,
                "{word:<7} {name} on {target}: {:.2}x ({:.2} to {:.2})",
                speed.value, speed.low, speed.high
            )?,
            None => writeln!(out, "{word:<7} {name} on {target}: no result")?,
        }
    }
    writeln!(
        out,
        "{slower} slower, {faster} faster, {same} unchanged (noise, or less than {} %)",
        args.least
    )?;
    out.finish()
}

fn load(path: &Path) -> Result<Results, Stop> {
    Results::load(path).map_err(|error| Stop::Failed(Report::plain(error)))
}
