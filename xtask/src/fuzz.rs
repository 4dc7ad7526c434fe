//! Fuzzing of every decoder.

use anyhow::Result;
use xshell::{Shell, cmd};

/// How long to fuzz.
#[derive(clap::Args)]
pub struct Options {
    /// Minutes for each target.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// One target alone.
    #[arg(long)]
    target: Option<String>,
}

/// Runs each target of `fuzz/` in turn; the first finding stops the run.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    if cmd!(shell, "cargo fuzz --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        cmd!(shell, "cargo install --locked cargo-fuzz").run()?;
    }
    let targets = match &options.target {
        Some(target) => target.clone(),
        None => cmd!(shell, "cargo +nightly fuzz list").quiet().read()?,
    };
    let seconds = (options.minutes * 60).to_string();
    for target in targets.lines() {
        cmd!(
            shell,
            "cargo +nightly fuzz run {target} -- -max_total_time={seconds} -timeout=20 -rss_limit_mb=1024 -print_final_stats=1"
        )
        .run()?;
    }
    Ok(())
}
