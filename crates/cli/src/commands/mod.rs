//! The subcommands, a file each: `Args` is what clap parses, `run` does it.

mod cat;
mod completions;
mod cp;
mod df;
mod diff;
mod du;
mod export;
mod find;
mod getfattr;
mod info;
mod inspect;
mod ls;
mod man;
mod readlink;
mod stat;
mod tree;

use clap::Subcommand;

use crate::context::Context;
use crate::output::Outcome;

/// The subcommands in the order in which help lists them.
#[derive(Subcommand, Debug)]
pub enum Command {
    Ls(ls::Args),
    Cat(cat::Args),
    Stat(stat::Args),
    Tree(tree::Args),
    Cp(cp::Args),
    Find(find::Args),
    Du(du::Args),
    Df(df::Args),
    Readlink(readlink::Args),
    Getfattr(getfattr::Args),
    Diff(diff::Args),
    Export(export::Args),
    Info(info::Args),
    Inspect(inspect::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Outcome {
        match self {
            Self::Ls(args) => ls::run(args, context),
            Self::Cat(args) => cat::run(&args, context),
            Self::Stat(args) => stat::run(&args, context),
            Self::Tree(args) => tree::run(&args, context),
            Self::Cp(args) => cp::run(&args, context),
            Self::Find(args) => find::run(&args, context),
            Self::Du(args) => du::run(&args, context),
            Self::Df(args) => df::run(&args, context),
            Self::Readlink(args) => readlink::run(&args, context),
            Self::Getfattr(args) => getfattr::run(&args, context),
            Self::Diff(args) => diff::run(&args, context),
            Self::Export(args) => export::run(&args, context),
            Self::Info(args) => info::run(&args, context),
            Self::Inspect(args) => inspect::run(&args, context),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
        }
    }
}
