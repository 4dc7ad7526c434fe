//! `obento man [DIR]`: the manual pages, made from the same definitions as `--help`.

use std::path::PathBuf;

use clap_mangen::Man;

use crate::output::{Outcome, Output};
use crate::report::Report;

/// Write the manual page, or all of them into a directory
///
/// obento man | man -l -      shows the main page
/// obento man ~/.local/share/man/man1      installs all pages
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Where to write a page for obento and for each subcommand; without it the main page goes to standard output
    dir: Option<PathBuf>,
}

pub fn run(args: &Args) -> Outcome {
    let Some(dir) = &args.dir else {
        let mut out = Output::stdout();
        Man::new(crate::cli::command()).render(&mut out)?;
        return out.finish();
    };
    clap_mangen::generate_to(crate::cli::command(), dir).map_err(|error| {
        let help = "the directory must exist and be writable";
        Report::on("cannot write pages into", dir.as_os_str().as_encoded_bytes(), error).help(help)
    })?;
    Ok(())
}
