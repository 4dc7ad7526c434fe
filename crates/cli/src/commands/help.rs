//! `obento help [TOPIC]`.

use std::ffi::OsString;
use std::io::Write;

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
    let words: Vec<_> = args.topic.iter().filter_map(|word| word.to_str()).collect();
    match words.as_slice() {
        ["options"] => write!(out, "{}", topics::options().render_long_help())?,
        ["layout"] => out.write_all(topics::LAYOUT.as_bytes())?,
        words => return command(words, context.table()),
    }
    out.finish()
}

/// Prints the help of the subcommand `words`, or the overview.
fn command(words: &[&str], table: CommandTable) -> Outcome {
    // The parser ignores operands beside --help.
    let overview = (table.commands)();
    let is_known = words.iter().try_fold(&overview, |command, word| command.find_subcommand(word)).is_some();
    let line = ["obento"].iter().chain(words).chain(&["--help"]).map(OsString::from);
    match (table.parse)(line.collect()) {
        Err(help) if is_known && help.kind() == ErrorKind::DisplayHelp => Ok(help.print()?),
        _ => {
            let report = Report::on("cannot show help on", words.join(" "), "unknown command or topic");
            Err(report.help("run 'obento help' to list the commands and topics").into())
        }
    }
}
