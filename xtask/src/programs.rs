//! Programs of tests, several at once.
//!
//! `cargo test` runs one after the other, and of many a long test is the last, alone. Here each of up to four processors has one test at a time, and
//! the longest programs come first.

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

/// Those that take minutes, the longest first. What is not named comes after them, in the order in which it was built.
const LONG: [&str; 12] = [
    "types",
    "matrix",
    "engine",
    "new_driver",
    "crash",
    "large_volume",
    "format",
    "check_corpus",
    "faults",
    "conformance",
    "kernel",
    "names",
];

/// How many run at once at most: some start kernels, which have their memory, and some have volumes in theirs.
const MOST: usize = 4;

/// How many lines of one that failed are told again.
const LAST_LINES: usize = 200;

/// A program of tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The tests' name: that of a file in `tests`, or of a crate.
    pub name: String,
    /// What was built.
    pub file: PathBuf,
    /// The folder of its package, where it runs.
    folder: PathBuf,
}

impl Program {
    /// Those that cargo tells to have built (`--no-run --message-format=json`).
    pub fn built(messages: &str) -> Result<Vec<Self>> {
        let messages = messages.lines().map(serde_json::from_str::<Value>);
        let programs = messages.map(|message| Ok(Self::of(&message?)));
        let programs = programs.collect::<Result<Vec<_>, serde_json::Error>>();
        Ok(programs.context("cargo tells what it built")?.into_iter().flatten().collect())
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

    /// The name of its package's folder: `ext4`.
    pub fn package(&self) -> Option<&str> {
        self.folder.file_name()?.to_str()
    }

    /// With that of its package, as two packages may have tests of one name: `ext4 engine`.
    fn full_name(&self) -> String {
        format!("{} {}", self.package().unwrap_or_default(), self.name)
    }

    /// What runs it as cargo would, but for one test after the other unless `arguments` say otherwise.
    fn command(&self, shell: &Shell, arguments: &[String]) -> Command {
        let file = &self.file;
        let is_said = arguments.iter().any(|argument| argument.starts_with("--test-threads"));
        let alone = (!is_said).then_some("--test-threads=1");
        let mut command = Command::from(cmd!(shell, "{file} {alone...} {arguments...}"));
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        // Cargo has built the examples with it.
        command.env("OBENTO_EXAMPLES", "built");
        command
    }
}

/// Runs all `programs`, shows what each printed when it ended, and notes what it took. Errors: those that failed, after all others, with what
/// they say of it: of much that is printed the end is read first.
pub fn run(shell: &Shell, mut programs: Vec<Program>, arguments: &[String], taken: &mut Taken) -> Result<()> {
    let place = |program: &Program| LONG.iter().position(|name| *name == program.name).unwrap_or(LONG.len());
    programs.sort_by_key(place);
    let commands = programs.into_iter().map(|program| (program.command(shell, arguments), program));
    let (queue, taken) = (Mutex::new(commands.collect::<VecDeque<_>>()), Mutex::new(taken));
    let failed = Mutex::new(Vec::new());
    let work = || {
        while let Some((mut command, program)) = next(&queue) {
            eprintln!("    Starting {} ({})", program.name, program.file.display());
            if let Err(why) = tell(&program, command.output(), &mut lock(&taken)) {
                lock(&failed).push((program.full_name(), why));
            }
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..processors.min(MOST)).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failed.is_empty(), "{}", summary(&failed));
    Ok(())
}

/// The names of those that failed, then why each did.
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

/// Prints what a program said, in the form of cargo's. Errors: why it did not end well.
fn tell(program: &Program, ended: io::Result<Output>, taken: &mut Taken) -> Result<(), String> {
    taken.show(&format!("     Running {} ({})", program.name, program.file.display()));
    let output = ended.map_err(|error| format!("it cannot be run: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    said.lines().for_each(|line| taken.show(line));
    if output.status.success() {
        return Ok(());
    }
    Err(format!("it ended with {}\n{}", output.status, failures(&said)))
}

/// What a program of tests says of those that failed, at most the last lines of it.
fn failures(said: &str) -> String {
    let lines: Vec<_> = said.lines().collect();
    let first = lines.iter().position(|line| *line == "failures:").unwrap_or_default();
    lines[first.max(lines.len().saturating_sub(LAST_LINES))..].join("\n")
}

/// The program of a package's tests of this name.
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
    fn programs_of_tests_are_found_in_what_cargo_says() {
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
    fn all_are_run_where_their_package_is_and_one_that_fails_is_named_after_the_others() {
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
        assert_eq!(taken.seconds_of("a"), Some(2.0));
    }
}
