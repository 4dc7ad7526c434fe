//! The topics of `obento help` that are no subcommands.

use clap::{Args as _, Command};

use crate::options::GlobalOptions;

/// The layout format of `obento build --disk`.
pub const LAYOUT: &str = include_str!("layout.txt");

const OPTIONS: &str = "\
These options exist for every command, before or after the name of the command. Before the name, -t TYPE is \
short for --fs-type TYPE, and -o WORDS for --mount-options WORDS.";

/// Returns a command with the options of every command and no others.
pub fn options() -> Command {
    GlobalOptions::augment_args(Command::new("obento"))
        .disable_help_flag(true)
        .max_term_width(100)
        .about(OPTIONS)
        .help_template("{about}\n\n{all-args}")
}
