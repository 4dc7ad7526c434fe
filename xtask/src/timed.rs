//! The run times of test programs.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;

use anyhow::{Result, ensure};

/// The programs that search for counterexamples (`docs/proof.md`). The others test that features work.
const PROOFS: &[&str] = &[
    "alternate",
    "check_bounds",
    "check_corpus",
    "check_crash",
    "check_damage",
    "check_mutants",
    "check_twice",
    "conformance",
    "conformance_ext4",
    "consistency",
    "corpus",
    "crash",
    "cuts",
    "damage",
    "damaged",
    "engine",
    "faults",
    "hosts",
    "kernel",
    "life",
    "model",
    "mutants",
    "new_driver",
    "null",
    "ours",
    "real",
    "seeds",
    "toy",
    "types",
];

/// The number of programs that the report names.
const NAMED: usize = 30;

/// The seconds of each program by name.
#[derive(Debug, Default)]
pub struct Taken {
    seconds: BTreeMap<String, f64>,
    running: Option<String>,
}

impl Taken {
    /// Runs a command of cargo, prints its output as it arrives, and records the times of test programs. Fails if the
    /// command fails.
    pub fn run(&mut self, command: impl Into<Command>) -> Result<()> {
        let mut command = command.into();
        // Both streams use one pipe, so that lines stay in order.
        let (reader, writer) = std::io::pipe()?;
        let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
        // The command's ends of the pipe are closed here, because the reader would never see the end otherwise.
        drop(command);
        let mut line = Vec::new();
        let mut lines = BufReader::new(reader);
        while lines.read_until(b'\n', &mut line)? > 0 {
            std::io::stdout().write_all(&line)?;
            self.note(&String::from_utf8_lossy(&line));
            line.clear();
        }
        let status = child.wait()?;
        ensure!(status.success(), "the tests ended with {status}");
        Ok(())
    }

    /// Prints and parses a line of cargo or of a program.
    pub fn show(&mut self, line: &str) {
        println!("{line}");
        self.note(line);
    }

    /// Records the following time for this program, instead of the one that cargo names.
    pub fn begin(&mut self, name: String) {
        self.running = Some(name);
    }

    /// Parses a line of cargo or of a program.
    fn note(&mut self, line: &str) {
        let line = line.trim();
        let program = line.strip_prefix("Running ").and_then(|rest| rest.split_once('('));
        if let Some((_, path)) = program {
            let file = path.rsplit('/').next().unwrap_or(path).trim_end_matches(')');
            // The part after the last dash is a hash.
            self.running = file.rsplit_once('-').map(|(name, _)| name.to_owned());
        } else if let Some(name) = line.strip_prefix("Doc-tests ") {
            self.running = Some(format!("examples of {name}"));
        } else if let Some((_, rest)) = line.split_once("; finished in ")
            && line.starts_with("test result: ")
        {
            let seconds = rest.trim_end_matches('s').parse().unwrap_or(0.0);
            *self.seconds.entry(self.running.clone().unwrap_or_default()).or_default() += seconds;
        }
    }

    /// Returns the time of the programs with this name.
    #[cfg(test)]
    pub fn seconds_of(&self, name: &str) -> Option<f64> {
        self.seconds.get(name).copied()
    }

    /// Prints the longest programs, sorted, and the share of the proofs.
    pub fn report(&self) {
        let mut longest: Vec<_> = self.seconds.iter().collect();
        longest.sort_by(|one, other| other.1.total_cmp(one.1));
        let all: f64 = self.seconds.values().sum();
        let proofs: f64 =
            longest.iter().filter(|(name, _)| is_proof(name)).map(|(_, seconds)| **seconds).sum();
        for (name, seconds) in longest.into_iter().take(NAMED) {
            println!("{seconds:8.1} s  {name}");
        }
        println!("tests ran for {all:.0} s, of which proofs took {proofs:.0} s");
    }
}

/// Returns whether a program searches for counterexamples. Its name may follow that of its package.
fn is_proof(name: &str) -> bool {
    PROOFS.contains(&name.rsplit(' ').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_programs_are_read_from_the_output_of_cargo_and_added_by_name() {
        let mut taken = Taken::default();
        for line in [
            "     Running tests/crash.rs (target/debug/deps/crash-0123abcd)",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s",
            "     Running unittests src/lib.rs (/t/deps/obento_ext4-0123abcd)",
            "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.25s",
            "     Running tests/crash.rs (target/debug/deps/crash-4567abcd)",
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s",
            "   Doc-tests obento",
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 3.00s",
        ] {
            taken.note(line);
        }
        let expected = [("crash", 1.75), ("examples of obento", 3.0), ("obento_ext4", 2.25)];
        assert!(taken.seconds.iter().map(|(name, seconds)| (name.as_str(), *seconds)).eq(expected));
        assert!(is_proof("crash") && is_proof("ext4 crash") && !is_proof("obento_ext4"));
    }

    #[test]
    fn the_output_of_a_failing_command_is_recorded_before_the_error() {
        let mut taken = Taken::default();
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'Running a (x/a-1)' >&2; echo 'test result: ok; finished in 4s'; exit 3"]);
        assert!(taken.run(command).is_err());
        assert_eq!(taken.seconds["a"], 4.0);
    }
}
