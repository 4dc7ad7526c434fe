//! `obento help [TOPIC]`.

use std::ffi::OsString;
use std::io::Write;

use clap::error::ErrorKind;

use crate::output::{Outcome, Output};
use crate::report::Report;

/// Show the help of a command or topic
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A command, such as `cp` or `bench report`; `options` for the options of every command; `layout` for the layout format of
    /// `obento build --disk`
    #[arg(value_name = "COMMAND|TOPIC")]
    topic: Vec<OsString>,
}

pub fn run(args: &Args) -> Outcome {
    let mut out = Output::stdout();
    let words: Vec<_> = args.topic.iter().filter_map(|word| word.to_str()).collect();
    match words.as_slice() {
        ["options"] => write!(out, "{}", crate::help::options().render_long_help())?,
        ["layout"] => out.write_all(crate::help::LAYOUT.as_bytes())?,
        words => return command(words),
    }
    out.finish()
}

/// Prints the help of the subcommand `words`, or the overview.
fn command(words: &[&str]) -> Outcome {
    let line = ["obento"].iter().chain(words).chain(&["--help"]).map(OsString::from);
    match crate::cli::parse(line) {
        Err(help) if help.kind() == ErrorKind::DisplayHelp => Ok(help.print()?),
        _ => {
            let report = Report::on("cannot show help on", words.join(" "), "unknown command or topic");
            Err(report.help("run 'obento help' to list the commands and topics").into())
        }
    }
}
