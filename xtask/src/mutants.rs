//! Whether the tests notice when the code is wrong: cargo-mutants changes one expression at a time, and what no test fails for is
//! a hole in them, or does no harm.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

/// What to change.
#[derive(clap::Args)]
pub struct Options {
    /// Packages, whose own tests are to notice.
    #[arg(default_values = ["obento-block", "obento-journal"])]
    packages: Vec<String>,
    /// Only these files: `crates/journal/src/txn/**`.
    #[arg(long)]
    file: Vec<String>,
    /// Every N-th change alone, the first of them counted from 0: `0/10`.
    #[arg(long)]
    shard: Option<String>,
    /// How long it goes on.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Fail where fewer changes in a hundred are noticed.
    #[arg(long, default_value_t = 80)]
    least: usize,
    /// Further arguments for `cargo test`: `--lib --test conformance`, where the others are known to be slow. What they would notice is
    /// missed then.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// What timeout(1) answers when it ended the program.
const ENDED: i32 = 124;

/// Changes the code in a copy of the workspace, runs the tests after each change, and prints what share of them was noticed.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    if cmd!(shell, "cargo mutants --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        cmd!(shell, "cargo install --locked cargo-mutants").run()?;
    }
    let output = shell.current_dir().join("target/mutants");
    shell.create_dir(&output)?;
    let told = output.join("mutants.out");
    shell.remove_path(&told)?;
    let packages = options.packages.iter().flat_map(|name| ["--package", name, "--test-package", name]);
    let files = options.file.iter().flat_map(|file| ["--file", file]);
    let shard = options.shard.iter().flat_map(|shard| ["--sharding", "round-robin", "--shard", shard]);
    let seconds = (options.minutes * 60).to_string();
    let (dashes, arguments) = ((!options.arguments.is_empty()).then_some("--"), &options.arguments);
    // One at a time, with cargo's own threads.
    let run = cmd!(
        shell,
        "timeout --signal=INT {seconds} cargo mutants --colors never --jobs 1 --output {output} {packages...} {files...} {shard...} {dashes...} {arguments...}"
    );
    // Which changes were missed is told by the lists.
    let ended = std::process::Command::from(run).status()?.code();
    let counted = Counted::read(&told)?;
    println!("{}{}", counted.line(), if ended == Some(ENDED) { ", until the time was up" } else { "" });
    counted.missed.lines().for_each(|change| println!("missed: {change}"));
    ensure!(
        counted.share() >= options.least,
        "fewer than {} changes in a hundred are noticed",
        options.least
    );
    Ok(())
}

/// What came of the changes.
struct Counted {
    noticed: usize,
    missed: String,
    /// Those that do not compile.
    unviable: usize,
}

impl Counted {
    /// Reads the lists that cargo-mutants keeps. A test that hangs has noticed.
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

    /// In a hundred.
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
    fn what_is_noticed_is_a_share_of_what_compiles_and_none_is_no_share() {
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
