//! `obento help [TOPIC]`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::error::ErrorKind;

use crate::context::{CommandTable, Context};
use crate::help::page::Page;
use crate::help::topics;
use crate::output::{Outcome, Output};
use crate::report::Report;

/// The page of `help`.
pub const PAGE: Page = Page::new(&[
    ("obento help cp", "Show the options of a command"),
    ("obento help options", "Show the options of every command"),
    ("obento help layout", "Show the layout format of 'obento build --disk'"),
]);

/// Show the help of a command or topic
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A command, such as `cp` or `bench report`; `options` for the options of every command; `layout` for the layout format of
    /// `obento build --disk`
    #[arg(value_name = "COMMAND|TOPIC")]
    topic: Vec<OsString>,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut out = Output::stdout();
    let words: Option<Vec<_>> = args.topic.iter().map(|word| word.to_str()).collect();
    match words.ok_or_else(|| unknown(&args.topic))?.as_slice() {
        ["options"] => write!(out, "{}", topics::options().render_long_help())?,
        ["layout"] => out.write_all(topics::LAYOUT.as_bytes())?,
        words => return command(words, &args.topic, context.table()),
    }
    out.finish()
}

/// Prints the help of the subcommand `words`, or the overview.
fn command(words: &[&str], topic: &[OsString], table: CommandTable) -> Outcome {
    // The parser ignores operands beside --help.
    let overview = (table.commands)();
    let is_known = words.iter().try_fold(&overview, |command, word| command.find_subcommand(word)).is_some();
    let line = ["obento"].iter().chain(words).chain(&["--help"]).map(OsString::from);
    match (table.parse)(line.collect()) {
        Err(help) if is_known && help.kind() == ErrorKind::DisplayHelp => Ok(help.print()?),
        _ => Err(unknown(topic).into()),
    }
}

/// Returns the report of a topic that does not exist.
fn unknown(topic: &[OsString]) -> Report {
    let report =
        Report::on("cannot show help on", topic.join(OsStr::new(" ")).as_bytes(), "unknown command or topic");
    report.help("run 'obento help' to list the commands and topics")
}
