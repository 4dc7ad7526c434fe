//! What chmod, chown and chgrp are told alike: how far they reach, and what they say.

use crate::change::Done;
use crate::open::Found;
use crate::report::Report;

/// The options that they share.
#[derive(clap::Args, Debug)]
pub struct Scope {
    /// Also what is in directories
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Name each file
    #[arg(short, long)]
    pub verbose: bool,
    /// Name each file that changes
    #[arg(short, long)]
    pub changes: bool,
    /// Say nothing of what fails
    #[arg(short = 'f', long, visible_alias = "quiet")]
    pub silent: bool,
    /// Refuse to change the whole volume
    #[arg(long, overrides_with = "no_preserve_root")]
    preserve_root: bool,
    /// Do not refuse it, which is the default
    #[arg(long, overrides_with = "preserve_root")]
    no_preserve_root: bool,
}

impl Scope {
    /// Errors: `found` is the root, which is to be spared.
    pub fn expect_no_root(&self, found: &Found) -> Done {
        if self.preserve_root && found.node.is_root() {
            let report = Report::on("cannot change all of", found.shown(), "this is the root directory");
            return Err(report.help("--no-preserve-root does it"));
        }
        Ok(())
    }
}
