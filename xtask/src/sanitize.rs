//! Miri and ThreadSanitizer, on what they can run: both need the nightly toolchain and a component of it, and say so where they
//! cannot have it.
//!
//! What runs under them is what runs in memory: no program of the host judges, and nothing is mounted. There is hardly any
//! `unsafe` below the hosts for Miri to judge; it also refuses data races, deadlocks, leaks and what a dependency does wrong. The
//! locks of `spin` and `hashbrown`, and the bytes that `zerocopy` reads as structures, are such dependencies.

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// Only tests that have this in their name.
    #[arg(long)]
    only: Option<String>,
}

/// The tests that one run of cargo can have: packages, and which tests of theirs.
type Part = (&'static [&'static str], &'static [&'static str]);

/// A test of a second takes Miri minutes: those of the crates themselves, and of whole trees what is in memory alone.
const UNDER_MIRI: [Part; 2] = [
    (&["-p", "obento-base", "-p", "obento-block", "-p", "obento-journal", "-p", "obento-vfs"], &["--lib"]),
    (&["-p", "obento-tmpfs"], &["--lib", "--tests"]),
];

/// What several threads are in at once.
const UNDER_TSAN: [Part; 3] = [
    (&["-p", "obento-block", "-p", "obento-env"], &["--lib"]),
    (&["-p", "obento-journal", "-p", "obento-vfs"], &["--lib", "--tests"]),
    (&["-p", "obento-xv6"], &["--test", "conformance"]),
];

/// Runs what Miri can run. Properties are tried with few values.
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

/// Runs what has threads, the standard library built with the sanitizer too, whose locks it would not see otherwise.
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

/// Sees to it that nightly has a component.
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
