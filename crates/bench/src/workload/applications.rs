//! Common programs on a tree of sources: tar, untar, grep, `git clone`, `cp -a`, `rm -rf`, SQLite.
//!
//! They require a path. The tree depends only on the seed of the settings. It has the shape of a tree of C sources: 20
//! directories with 10 directories each. The sizes of files have a gamma distribution with a mean of 14 KiB. The lines
//! consist of words, and some contain the word that grep searches for.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::error::{IoContext as _, command_of, run};
use crate::random::{Rng, gamma};
use crate::workload::{Cache, Measure, Phase, Settings, Workload, WorkloadContext};

const FILES: u64 = 5000;
const MEAN: f64 = 14_336.0;
/// The text that the Bento study searches in a tree of the kernel.
const NEEDLE: &str = "jbd2_journal_start";

/// A program that uses the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Application {
    /// `tar -cf` of the tree to a file next to it.
    Tar,
    /// `tar -xf` next to the tree.
    Untar,
    /// `grep -r` for a word that occurs in some files.
    Grep,
    /// `git clone` of a repository to a directory next to it.
    GitClone,
    /// `cp -a` of the tree to a directory next to it.
    CopyTree,
    /// `rm -rf` of the tree.
    RemoveTree,
    /// 1,000 insertions into an SQLite table, each in a transaction.
    Sqlite,
}

impl Application {
    fn program(self) -> &'static str {
        match self {
            Self::Tar | Self::Untar => "tar",
            Self::Grep => "grep",
            Self::GitClone => "git",
            Self::CopyTree => "cp",
            Self::RemoveTree => "rm",
            Self::Sqlite => "sqlite3",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Tar => &["-cf", "made.tar", "tree"],
            Self::Untar => &["-xf", "tree.tar", "--one-top-level=out"],
            Self::Grep => &["-rc", NEEDLE, "tree", "--include=*.c", "-m1"],
            Self::GitClone => &["clone", "-q", "--no-hardlinks", "repository.git", "clone"],
            Self::CopyTree => &["-a", "tree", "copy"],
            Self::RemoveTree => &["-rf", "tree"],
            Self::Sqlite => &["-bail", "table.db"],
        }
    }
}

impl Workload for Application {
    fn cache(&self) -> Cache {
        Cache::Dropped
    }

    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        let folder = context.folder()?;
        run(command_of(self.program()).arg("--version"))?;
        if *self == Self::Sqlite {
            return Ok(());
        }
        tree(&folder.join("tree"), context)?;
        match self {
            Self::Untar => {
                run(command_of("tar").current_dir(folder).args(["-cf", "tree.tar", "tree"]))?;
            }
            Self::GitClone => repository(folder)?,
            _ => {}
        }
        Ok(())
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let folder = context.folder()?;
        let mut command = command_of(self.program());
        command.current_dir(folder).args(self.arguments());
        let begin = Instant::now();
        match self {
            Self::Sqlite => insertions(&mut command, context.settings.scaled(1000))?,
            _ => drop(run(&mut command)?),
        }
        let seconds = begin.elapsed().as_secs_f64();
        let (name, measure) = (String::new(), Measure::Time);
        Ok(vec![Phase { name, measure, seconds, operations: 1, bytes: 0, percentiles: Default::default() }])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.scaled(FILES) * (MEAN as u64 + 4096) * 3
    }
}

fn tree(at: &Path, context: &WorkloadContext) -> Result<()> {
    let mut rng = context.rng(0);
    for number in 0..context.settings.scaled(FILES) {
        let folder = at.join(format!("part{}/unit{}", number % 20, number / 20 % 10));
        fs::create_dir_all(&folder).during("create", &folder)?;
        let file = folder.join(format!("file{number}.c"));
        fs::write(&file, source(&mut rng)).during("write", &file)?;
    }
    Ok(())
}

/// Returns lines that resemble source code, of random length.
fn source(rng: &mut Rng) -> String {
    const WORDS: [&str; 12] = [
        "static",
        "int",
        "struct",
        "inode",
        "return",
        "handle",
        "if",
        "error",
        "super_block",
        "goto",
        "buffer",
        "u32",
    ];
    let len = gamma(rng, 1.5, MEAN) as usize;
    let mut text = String::with_capacity(len + 80);
    while text.len() < len {
        for _ in 0..rng.usize(1..10) {
            text.push_str(rng.choice(WORDS).unwrap_or("int"));
            text.push(' ');
        }
        if rng.u16(0..2000) == 0 {
            text.push_str(NEEDLE);
        }
        text.push('\n');
    }
    text
}

fn repository(folder: &Path) -> Result<()> {
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"];
        run(command_of("git").current_dir(folder.join("tree")).args(identity).args(arguments)).map(drop)
    };
    git(&["init", "-q", "."])?;
    git(&["add", "-A"])?;
    git(&["commit", "-qm", "tree"])?;
    git(&["clone", "-q", "--bare", ".", "../repository.git"])
}

fn insertions(command: &mut Command, count: u64) -> Result<()> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().during("start", "sqlite3")?;
    let mut feed = || -> std::io::Result<()> {
        let mut input = child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        writeln!(input, "CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT);")?;
        for row in 0..count {
            writeln!(
                input,
                "INSERT INTO t VALUES({row}, {}, 'row number {row}');",
                row.wrapping_mul(7919) % 1000
            )?;
        }
        drop(input);
        match child.wait()?.success() {
            true => Ok(()),
            false => Err(std::io::Error::other("it ended with an error")),
        }
    };
    feed().during("insert with", "sqlite3")
}
