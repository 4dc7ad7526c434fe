//! Tests under Miri and ThreadSanitizer. Both require a component of the nightly toolchain, and report if it cannot be
//! installed.
//!
//! The tests run in memory only: no host program verifies them, and nothing is mounted. The crates below the hosts
//! contain hardly any `unsafe` code for Miri to check. Miri also detects data races, deadlocks, leaks and errors of
//! dependencies, such as the locks of `spin`, `hashbrown`, and the conversions of `zerocopy`.

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

/// The options of a run.
#[derive(clap::Args)]
pub struct Options {
    /// Run only tests whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

/// Tests that one run of cargo can include: packages, and their test targets.
type Part = (&'static [&'static str], &'static [&'static str]);

/// A test of a second takes minutes under Miri. The unit tests of the crates run, and tests of whole trees only in
/// memory.
const UNDER_MIRI: [Part; 2] = [
    (&["-p", "obento-base", "-p", "obento-block", "-p", "obento-journal", "-p", "obento-vfs"], &["--lib"]),
    (&["-p", "obento-tmpfs"], &["--lib", "--tests"]),
];

/// Tests with several threads.
const UNDER_TSAN: [Part; 3] = [
    (&["-p", "obento-block", "-p", "obento-env"], &["--lib"]),
    (&["-p", "obento-journal", "-p", "obento-vfs"], &["--lib", "--tests"]),
    (&["-p", "obento-xv6"], &["--test", "conformance"]),
];

/// Runs the tests that Miri supports. Property tests use few values.
pub fn miri(shell: &Shell, options: &Options) -> Result<()> {
    have(shell, "Miri", "miri")?;
    let _environment = [
        shell.push_env("CARGO_TARGET_DIR", shell.current_dir().join("target/miri")),
        shell.push_env("MIRIFLAGS", "-Zmiri-disable-isolation"),
        shell.push_env("PROPTEST_CASES", "4"),
    ];
    let only = options.only.as_deref();
    for (packages, tests) in UNDER_MIRI {
        cmd!(shell, "cargo +nightly miri test --locked {packages...} {tests...} -- {only...}").run()?;
    }
    Ok(())
}

/// Runs multithreaded tests. The standard library is built with the sanitizer, too, so that its locks are visible to
/// it.
pub fn tsan(shell: &Shell, options: &Options) -> Result<()> {
    have(shell, "ThreadSanitizer", "rust-src")?;
    let _environment = [
        shell.push_env("CARGO_TARGET_DIR", shell.current_dir().join("target/tsan")),
        shell.push_env("RUSTFLAGS", "-Zsanitizer=thread"),
        shell.push_env("TSAN_OPTIONS", "halt_on_error=1"),
    ];
    let target = ["-Zbuild-std", "--target", "x86_64-unknown-linux-gnu"];
    let only = options.only.as_deref();
    for (packages, tests) in UNDER_TSAN {
        cmd!(shell, "cargo +nightly test --locked {target...} {packages...} {tests...} -- {only...}")
            .run()?;
    }
    Ok(())
}

/// Installs a component of nightly if it is missing.
fn have(shell: &Shell, who: &str, component: &str) -> Result<()> {
    let known = |command: xshell::Cmd<'_>| command.quiet().ignore_stderr().read().unwrap_or_default();
    let installed = || known(cmd!(shell, "rustup +nightly component list --installed"));
    let is_there = |list: &str| list.lines().any(|line| line.starts_with(component));
    if is_there(&installed()) {
        return Ok(());
    }
    known(cmd!(shell, "rustup component add --toolchain nightly {component}"));
    if !is_there(&installed()) {
        bail!("{who} cannot run here: rustup component add --toolchain nightly {component}");
    }
    Ok(())
}
