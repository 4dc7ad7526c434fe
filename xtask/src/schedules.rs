//! Tests of thread schedules, with a scheduler that replaces the locks of `obento_env`.

use anyhow::Result;
use xshell::{Shell, cmd};

/// The number and selection of schedules.
#[derive(clap::Args)]
pub struct Options {
    /// Number of schedules for each test.
    #[arg(long, default_value_t = 1000)]
    schedules: u64,
    /// Seed of the schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only the schedule that a failure printed, in its test.
    #[arg(long, requires = "only")]
    replay: Option<String>,
    /// Run only tests whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

/// Runs `crates/schedules` with locks that a scheduler controls. The build uses a separate folder.
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
