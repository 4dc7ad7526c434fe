//! The errors of measurements.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use obento::address::AddressError;
use obento::engine::tools::find_program;
use obento::host::HostError;

/// The reason why a measurement failed.
#[derive(thiserror::Error, Debug)]
pub enum BenchError {
    /// A call to the host or to the file system under test failed.
    #[error("cannot {action} '{}': {source}", path.display())]
    Io {
        /// The action, such as `create`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A workload that has only one phase failed.
    #[error("the workload failed: {0}")]
    Workload(io::Error),
    /// A program failed.
    #[error("'{program}' failed: {message}")]
    Program {
        /// The program, with its arguments.
        program: String,
        /// The standard error of the program, or its exit status.
        message: String,
    },
    /// The text is not a target.
    #[error("invalid target '{0}'")]
    NoTarget(String),
    /// The name of an image is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An existing image cannot be used. The text is the whole message.
    #[error("{0}")]
    Image(String),
    /// No workload or suite has this name.
    #[error("unknown workload or suite '{0}'")]
    NoWorkload(String),
    /// A file of the host cannot be used.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The cell cannot be measured on this machine.
    #[error("{0}")]
    Absent(String),
    /// A results file cannot be read.
    #[error("cannot use '{}': not a file of results of 'obento bench': {why}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Adds the action and the file to an error.
pub(crate) trait IoContext<T> {
    /// Adds the action, such as `create`, and the file.
    fn during(self, action: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn during(self, action: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| BenchError::Io { action, path: path.as_ref().to_owned(), source: error.into() })
    }
}

/// Returns a command that runs `name`. Also searches the administrator's folders, which may be missing in the user's
/// path.
pub(crate) fn command_of(name: impl AsRef<Path>) -> Command {
    Command::new(find_program(&name).unwrap_or_else(|| name.as_ref().to_owned()))
}

/// Runs a program and returns its standard output. Fails with `Absent` if the program does not exist, and with
/// `Program` if it fails.
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
