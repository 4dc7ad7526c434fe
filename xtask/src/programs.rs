//! Runs several test programs at the same time.
//!
//! `cargo test` runs one after the other, so that often one long test runs alone at the end. Here several programs
//! run at a time, one more than there are processors, because tests also wait. The longest programs start first.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::timed::Taken;

/// The programs that take minutes, the longest first. The other programs follow in the order in which they were built.
const LONG: [&str; 18] = [
    "mount",
    "engine",
    "types",
    "matrix",
    "text",
    "new_driver",
    "damaged",
    "check_corpus",
    "build",
    "convert",
    "sources",
    "faults",
    "large_volume",
    "crash",
    "format",
    "conformance",
    "kernel",
    "names",
];

/// The greatest number of programs at a time. Some start kernels and some have volumes in memory.
const MOST: usize = 4;

/// The number of lines of a failed program that the summary repeats.
const LAST_LINES: usize = 200;

/// A test program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The name of the test: that of a file in `tests`, or of a crate.
    pub name: String,
    /// The path of the program.
    pub file: PathBuf,
    /// The folder of the package, in which the program runs.
    folder: PathBuf,
}

impl Program {
    /// Returns the programs that cargo has built (`--no-run --message-format=json`).
    pub fn built(messages: &str) -> Result<Vec<Self>> {
        let messages = messages.lines().map(serde_json::from_str::<Value>);
        let programs = messages.map(|message| Ok(Self::of(&message?)));
        let programs = programs.collect::<Result<Vec<_>, serde_json::Error>>();
        Ok(programs.context("cargo printed no list of programs")?.into_iter().flatten().collect())
    }

    fn of(message: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        message["profile"]["test"].as_bool().filter(|is_test| *is_test)?;
        let manifest = PathBuf::from(text(&message["manifest_path"])?);
        Some(Self {
            name: text(&message["target"]["name"])?,
            file: text(&message["executable"])?.into(),
            folder: manifest.parent()?.to_owned(),
        })
    }

    /// Returns the name of the package's folder, such as `ext4`.
    pub fn package(&self) -> Option<&str> {
        self.folder.file_name()?.to_str()
    }

    /// Returns the name with that of the package, because two packages may have tests with the same name: `ext4
    /// engine`.
    fn full_name(&self) -> String {
        format!("{} {}", self.package().unwrap_or_default(), self.name)
    }

    /// Returns a command that runs the program as cargo does, except that tests run one after the other unless
    /// `arguments` request otherwise.
    fn command(&self, shell: &Shell, arguments: &[String]) -> Command {
        let file = &self.file;
        let is_said = arguments.iter().any(|argument| argument.starts_with("--test-threads"));
        let alone = (!is_said).then_some("--test-threads=1");
        let mut command = Command::from(cmd!(shell, "{file} {alone...} {arguments...}"));
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        // cargo has built the examples together with the program.
        command.env("OBENTO_EXAMPLES", "built");
        command
    }
}

/// Runs all `programs`, prints the output of each when it ends, and records the times. Fails at the end if some failed,
/// with their names and the end of their output.
pub fn run(shell: &Shell, mut programs: Vec<Program>, arguments: &[String], taken: &mut Taken) -> Result<()> {
    let place = |program: &Program| LONG.iter().position(|name| *name == program.name).unwrap_or(LONG.len());
    programs.sort_by_key(place);
    let commands = programs.into_iter().map(|program| (program.command(shell, arguments), program));
    let (queue, taken) = (Mutex::new(commands.collect::<VecDeque<_>>()), Mutex::new(taken));
    let failed = Mutex::new(Vec::new());
    let work = || {
        while let Some((mut command, program)) = next(&queue) {
            eprintln!("    Starting {} ({})", program.name, program.file.display());
            if let Err(why) = report(&program, command.output(), &mut lock(&taken)) {
                lock(&failed).push((program.full_name(), why));
            }
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..(processors + 1).min(MOST)).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failed.is_empty(), "{}", summary(&failed));
    Ok(())
}

/// Returns the names of the failed programs, and then the reason for each.
fn summary(failed: &[(String, String)]) -> String {
    let names: Vec<_> = failed.iter().map(|(name, _)| name.as_str()).collect();
    let reasons: String = failed.iter().map(|(name, why)| format!("\n\n{name}: {why}")).collect();
    format!("these tests failed: {}{reasons}", names.join(", "))
}

fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    lock(queue).pop_front()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints the output of a program in cargo's format. Fails if the program failed.
fn report(program: &Program, ended: io::Result<Output>, taken: &mut Taken) -> Result<(), String> {
    taken.show(&format!("     Running {} ({})", program.name, program.file.display()));
    taken.begin(program.full_name());
    let output = ended.map_err(|error| format!("it cannot be run: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    said.lines().for_each(|line| taken.show(line));
    if output.status.success() {
        return Ok(());
    }
    Err(format!("it ended with {}\n{}", output.status, failures(&said)))
}

/// Returns the part of a program's output about failed tests, at most the last lines.
fn failures(said: &str) -> String {
    let lines: Vec<_> = said.lines().collect();
    let first = lines.iter().position(|line| *line == "failures:").unwrap_or_default();
    lines[first.max(lines.len().saturating_sub(LAST_LINES))..].join("\n")
}

/// Returns the program of this name of a package.
pub fn find<'p>(programs: &'p [Program], package: &str, name: &str) -> Option<&'p Path> {
    let is_meant = |program: &&Program| program.package() == Some(package) && program.name == name;
    programs.iter().find(is_meant).map(|program| program.file.as_path())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn programs_of_tests_are_found_in_the_output_of_cargo() {
        let said = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/fs/fat/Cargo.toml","target":{"name":"crash"},"profile":{"test":true},"executable":"/t/crash-1"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml","target":{"name":"obento"},"profile":{"test":false},"executable":"/t/obento"}
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"a"},"profile":{"test":true},"executable":null}
{"reason":"build-finished","success":true}"#;
        let programs = Program::built(said).unwrap();
        let expected =
            Program { name: "crash".into(), file: "/t/crash-1".into(), folder: "/w/crates/fs/fat".into() };
        assert_eq!(programs, [expected]);
        assert_eq!(find(&programs, "fat", "crash"), Some(Path::new("/t/crash-1")));
        assert_eq!(find(&programs, "ext4", "crash"), None);
        assert!(Program::built("no message").is_err());
    }

    #[test]
    fn programs_run_in_the_folder_of_their_package_and_failures_are_named_last() {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, script: &str| {
            let file = folder.path().join(format!("{name}-1"));
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            Program { name: name.into(), file, folder: folder.path().into() }
        };
        let programs = vec![
            program("a", "echo \"$1 $2\" > a; echo 'test result: ok; finished in 2s'"),
            program("b", "echo before; echo failures:; echo '    of_b'; exit 1"),
            program("c", "touch c"),
        ];
        let mut taken = Taken::default();
        let failed = run(&Shell::new().unwrap(), programs, &["word".into()], &mut taken).unwrap_err();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        let expected = format!(
            "these tests failed: {name} b\n\n{name} b: it ended with exit status: 1\nfailures:\n    of_b"
        );
        assert_eq!(failed.to_string(), expected);
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "--test-threads=1 word\n");
        assert!(folder.path().join("c").exists());
        assert_eq!(taken.seconds_of(&format!("{name} a")), Some(2.0));
    }
}
