//! The subcommands, a file each: `Args` is what clap parses, `run` does it.

mod completions;
mod man;

use clap::Subcommand;

use crate::context::Context;
use crate::output::Outcome;

/// The subcommands in the order in which help lists them.
#[derive(Subcommand, Debug)]
pub enum Command {
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Outcome {
        match self {
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
        }
    }
}
