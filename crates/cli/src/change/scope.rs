//! The common options of chmod, chown and chgrp.

use crate::change::Done;
use crate::open::Found;
use crate::report::{Report, subject};

/// The common options.
#[derive(clap::Args, Debug)]
pub struct Scope {
    /// Also change the files below directories
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Print each file
    #[arg(short, long)]
    pub verbose: bool,
    /// Print each file that changes
    #[arg(short, long)]
    pub changes: bool,
    /// Do not report existing files that cannot be changed
    #[arg(short = 'f', long, visible_alias = "quiet")]
    pub silent: bool,
    /// Refuse to change the root directory recursively
    #[arg(long, overrides_with = "no_preserve_root")]
    preserve_root: bool,
    /// Change the root directory recursively too (default)
    #[arg(long, overrides_with = "preserve_root")]
    no_preserve_root: bool,
}

impl Scope {
    /// Fails if `found` is the root directory, and --preserve-root was given.
    pub fn expect_no_root(&self, found: &Found) -> Done {
        if self.preserve_root && found.node.is_root() {
            let what = format!("cannot change {} recursively", subject(found.shown()));
            let report = Report::new(what, "it is the root directory");
            return Err(report.help("use --no-preserve-root to change all files of the volume"));
        }
        Ok(())
    }
}
