//! Orders of threads, by the scheduler that `obento_env` takes its locks from for this.

use anyhow::Result;
use xshell::{Shell, cmd};

/// How many, and which.
#[derive(clap::Args)]
pub struct Options {
    /// Schedules of each test.
    #[arg(long, default_value_t = 1000)]
    schedules: u64,
    /// What they are drawn by.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The schedule that a failure printed, alone, for the test that it is of.
    #[arg(long, requires = "only")]
    replay: Option<String>,
    /// Only tests that have this in their name.
    #[arg(long)]
    only: Option<String>,
}

/// Runs `crates/schedules` with locks that a scheduler decides about. What is built for that lies apart.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    let _environment = [
        shell.push_env("RUSTFLAGS", "--cfg obento_env=\"shuttle\""),
        shell.push_env("CARGO_TARGET_DIR", shell.current_dir().join("target/schedules")),
        shell.push_env("OBENTO_SCHEDULES", options.schedules.to_string()),
        shell.push_env("OBENTO_SCHEDULE_SEED", options.seed.to_string()),
    ];
    let _replay = options.replay.as_ref().map(|schedule| shell.push_env("OBENTO_SCHEDULE", schedule));
    let only = options.only.as_deref();
    cmd!(shell, "cargo test --locked -p obento-schedules -- {only...}").run()?;
    Ok(())
}
