//! Formatting, clippy and documentation, warnings denied.

use anyhow::Result;
use xshell::{Shell, cmd};

/// Runs all three.
pub fn run(shell: &Shell) -> Result<()> {
    cmd!(shell, "cargo fmt --all --check").run()?;
    cmd!(shell, "cargo clippy --workspace --all-targets --locked -- -D warnings").run()?;
    let _flags = shell.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(shell, "cargo doc --workspace --no-deps --locked --document-private-items").run()?;
    Ok(())
}
