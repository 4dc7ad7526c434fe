//! The subcommands, a file each: `Args` is what clap parses, `run` does it.

mod cat;
mod completions;
mod du;
mod ls;
mod man;
mod readlink;

use clap::Subcommand;

use crate::context::Context;
use crate::output::Outcome;

/// The subcommands in the order in which help lists them.
#[derive(Subcommand, Debug)]
pub enum Command {
    Ls(ls::Args),
    Cat(cat::Args),
    Du(du::Args),
    Readlink(readlink::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Outcome {
        match self {
            Self::Ls(args) => ls::run(args, context),
            Self::Cat(args) => cat::run(&args, context),
            Self::Du(args) => du::run(&args, context),
            Self::Readlink(args) => readlink::run(&args, context),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
        }
    }
}
