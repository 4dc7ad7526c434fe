//! What can go wrong in the laboratory.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use obento::engine::tools::find_program;

/// Why a measurement could not be taken.
#[derive(thiserror::Error, Debug)]
pub enum BenchError {
    /// A call to the host or to the file system under test failed.
    #[error("cannot {action} '{}': {source}", path.display())]
    Io {
        /// What was to be done, as `create`.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("'{program}' failed: {message}")]
    Program {
        /// The program, with its arguments.
        program: String,
        /// What it printed to standard error, or how it ended.
        message: String,
    },
    /// No target is written so.
    #[error(
        "'{0}' is no target: path:DIR, image:TYPE, fuse:TYPE, kernel:TYPE[,OPTION...], fuse2fs, mount-cmd:COMMAND"
    )]
    NoTarget(String),
    /// No workload or suite has this name.
    #[error("no workload or suite is called '{0}': `obento bench list` names them")]
    NoWorkload(String),
    /// The cell cannot be measured here.
    #[error("{0}")]
    Absent(String),
    /// A file of results cannot be read.
    #[error("'{}' is no file of results: {why}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// What the laboratory answers.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Says what was done to which file when it failed.
pub(crate) trait During<T> {
    /// Names the action, as `create`, and the file.
    fn during(self, action: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> During<T> for std::result::Result<T, E> {
    fn during(self, action: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| BenchError::Io { action, path: path.as_ref().to_owned(), source: error.into() })
    }
}

/// Returns a command that runs `name`, which may be in a folder of the administrator's that is not in the user's path.
pub(crate) fn command_of(name: impl AsRef<Path>) -> Command {
    Command::new(find_program(&name).unwrap_or_else(|| name.as_ref().to_owned()))
}

/// Runs a program to its end and answers what it printed. Errors: Absent if there is no such program; Program.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}").replace('"', "");
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            BenchError::Absent(format!("{} is not installed", command.get_program().display()))
        }
        _ => BenchError::Program { program: shown.clone(), message: error.to_string() },
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let message = if said.is_empty() { output.status.to_string() } else { said };
    Err(BenchError::Program { program: shown, message })
}
