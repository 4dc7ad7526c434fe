//! `obento completions SHELL`.

use std::io::Write;

use clap_complete::Shell;

use crate::output::{Outcome, Output};

/// Write a completion script for a shell
///
/// For bash: obento completions bash > ~/.local/share/bash-completion/completions/obento
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Which shell
    shell: Shell,
}

pub fn run(args: &Args) -> Outcome {
    // Through a buffer, because the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::cli::command(), "obento", &mut script);
    let mut out = Output::stdout();
    out.write_all(&script)?;
    out.finish()
}
