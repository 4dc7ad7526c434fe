//! Checks of format, plain English, type names, import circles, clippy and documentation, with warnings as errors.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{circles, type_names, words};

/// Runs all checks.
pub fn run(shell: &Shell) -> Result<()> {
    cmd!(shell, "cargo fmt --all --check").run()?;
    words::check(&shell.current_dir())?;
    type_names::check(&shell.current_dir())?;
    circles::check(&shell.current_dir())?;
    cmd!(shell, "cargo clippy --workspace --all-targets --locked -- -D warnings").run()?;
    let _flags = shell.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(shell, "cargo doc --workspace --no-deps --locked --document-private-items").run()?;
    Ok(())
}
