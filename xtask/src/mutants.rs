//! Mutation tests: cargo-mutants changes one expression at a time. A change for which no test fails is a gap in the
//! tests, or harmless.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

/// The options of a run.
#[derive(clap::Args)]
pub struct Options {
    /// Packages to change; their own tests must detect the changes.
    #[arg(default_values = ["obento-block", "obento-journal"])]
    packages: Vec<String>,
    /// Change only these files: `crates/journal/src/txn/**`.
    #[arg(long)]
    file: Vec<String>,
    /// Make only every N-th change, starting from a number that counts from 0: `0/10`.
    #[arg(long)]
    shard: Option<String>,
    /// Time limit in minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Fail if a smaller percentage of changes is detected.
    #[arg(long, default_value_t = 80)]
    least: usize,
    /// Further arguments for `cargo test`, such as `--lib --test conformance` to skip slow tests. Changes that only
    /// these detect count as missed.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The exit status of timeout(1) after the time limit.
const ENDED: i32 = 124;

/// Changes the code in a copy of the workspace, runs the tests after each change, and prints the share of detected
/// changes.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    if cmd!(shell, "cargo mutants --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        cmd!(shell, "cargo install --locked cargo-mutants").run()?;
    }
    let output = shell.current_dir().join("target/mutants");
    shell.create_dir(&output)?;
    let reported = output.join("mutants.out");
    shell.remove_path(&reported)?;
    let packages = options.packages.iter().flat_map(|name| ["--package", name, "--test-package", name]);
    let files = options.file.iter().flat_map(|file| ["--file", file]);
    let shard = options.shard.iter().flat_map(|shard| ["--sharding", "round-robin", "--shard", shard]);
    let seconds = (options.minutes * 60).to_string();
    let (dashes, arguments) = ((!options.arguments.is_empty()).then_some("--"), &options.arguments);
    // One change is tested at a time; cargo uses several threads.
    let run = cmd!(
        shell,
        "timeout --signal=INT {seconds} cargo mutants --colors never --jobs 1 --output {output} {packages...} {files...} {shard...} {dashes...} {arguments...}"
    );
    // The lists of cargo-mutants contain the missed changes.
    let ended = std::process::Command::from(run).status()?.code();
    let counted = Counted::read(&reported)?;
    println!("{}{}", counted.line(), if ended == Some(ENDED) { ", until the time was up" } else { "" });
    counted.missed.lines().for_each(|change| println!("missed: {change}"));
    ensure!(counted.share() >= options.least, "less than {} % of the changes are detected", options.least);
    Ok(())
}

/// The number of changes by result.
struct Counted {
    noticed: usize,
    missed: String,
    /// Changes that do not compile.
    unviable: usize,
}

impl Counted {
    /// Reads the lists that cargo-mutants writes. A test that hangs has detected the change.
    fn read(folder: &Path) -> Result<Self> {
        let list = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let count = |name: &str| list(name).lines().count();
        let noticed = count("caught.txt") + count("timeout.txt");
        let counted = Self { noticed, missed: list("missed.txt"), unviable: count("unviable.txt") };
        ensure!(counted.tried() > 0, "no change was tried: {} has none", folder.display());
        Ok(counted)
    }

    fn tried(&self) -> usize {
        self.noticed + self.missed.lines().count()
    }

    /// Returns the percentage of detected changes.
    fn share(&self) -> usize {
        self.noticed * 100 / self.tried()
    }

    fn line(&self) -> String {
        let share = self.noticed as f64 * 100.0 / self.tried() as f64;
        let (noticed, tried, unviable) = (self.noticed, self.tried(), self.unviable);
        format!("{noticed} of {tried} changes noticed, {share:.1} %; {unviable} do not compile")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_detected_mutants_is_relative_to_those_that_compile() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Counted::read(folder.path()).is_err());
        for (name, text) in
            [("caught.txt", "a\nb\n"), ("timeout.txt", "c\n"), ("missed.txt", "d\n"), ("unviable.txt", "e\n")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let counted = Counted::read(folder.path()).unwrap();
        assert_eq!(counted.line(), "3 of 4 changes noticed, 75.0 %; 1 do not compile");
        assert_eq!((counted.share(), counted.missed.as_str()), (75, "d\n"));
    }
}
