//! Line counters for some crates only.
//!
//! With `RUSTFLAGS` cargo would compile every crate of other projects a second time, and the counters in checksums and
//! decompression would make the tests slow. Here cargo calls this program in place of the compiler, for the crates of
//! the workspace, and it adds the flag for the measured ones.

use std::collections::BTreeSet;
use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Result;
use xshell::{PushEnv, Shell};

/// The compiler flag that adds counters.
pub const FLAG: &str = "-Cinstrument-coverage";

/// The names of the packages to compile with counters, separated by spaces. If it is set, cargo has started this
/// program as the wrapper of the compiler.
const PACKAGES: &str = "OBENTO_COUNTED_PACKAGES";

/// Makes the following builds add counters to `packages`.
pub fn push<'a>(shell: &'a Shell, packages: &BTreeSet<String>) -> Result<[PushEnv<'a>; 2]> {
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    Ok([
        shell.push_env("RUSTC_WORKSPACE_WRAPPER", env::current_exe()?),
        shell.push_env(PACKAGES, packages.join(" ")),
    ])
}

/// Becomes the compiler, if cargo has started this program as its wrapper. Otherwise returns nothing.
pub fn compile() -> Option<ExitCode> {
    let packages = env::var(PACKAGES).ok()?;
    let mut words = env::args_os().skip(1);
    let mut compiler = Command::new(words.next()?);
    compiler.args(words);
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    compiler.args(packages.split(' ').any(|name| name == package).then_some(FLAG));
    let error = compiler.exec();
    eprintln!("error: cannot run the compiler: {error}");
    Some(ExitCode::FAILURE)
}
