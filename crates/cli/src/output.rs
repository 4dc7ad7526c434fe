//! Standard output.
//!
//! A terminal gets each line at once, so that lines appear in order with the errors between them. Other outputs get 64
//! KiB at a time. A closed pipe ends the command quietly, as [`Stop::Output`].

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, LineWriter, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use obento::{interrupt, open_output};

use crate::escape::{NameStyle, escape};
use crate::report::Report;

const BUFFER: usize = 64 << 10;

/// The reason why a command ended early.
#[derive(Debug)]
pub enum Stop {
    /// Standard output cannot be written; with `BrokenPipe` the reader has closed it.
    Output(io::Error),
    /// Ctrl-C in a shell.
    Interrupted,
    /// An error that ends the command.
    Failed(Report),
}

/// The result of a subcommand. A problem with a single operand or file is reported to
/// [`Context`](crate::context::Context) when it happens, and is not an `Err`.
pub type Outcome = Result<(), Stop>;

/// Opens the host file `path` for writing, or creates it. An existing file keeps its contents: the caller truncates it after its checks.
///
/// # Errors
///
/// The file cannot be written, or a symbolic link of another user leads to it.
pub fn create_output(path: &Path) -> Result<File, Report> {
    open_output(path, 0o666).map_err(|error| {
        let shown = path.as_os_str().as_bytes();
        match error.errno() {
            Some(errno) => Report::on("cannot write to", shown, io::Error::from(errno)),
            None => Report::on("cannot write to", shown, "its path contains a symbolic link of another user"),
        }
    })
}

/// Opens the host file `path` for writing, and truncates or creates it. Errors: as [`create_output`].
pub fn empty_output(path: &Path) -> Result<File, Report> {
    let file = create_output(path)?;
    let failed = |error| Report::on("cannot write to", path.as_os_str().as_bytes(), error);
    if file.metadata().map_err(failed)?.is_file() {
        file.set_len(0).map_err(failed)?;
    }
    Ok(file)
}

/// Marks a point between two steps of long work. Errors: Ctrl-C was pressed in a shell.
pub fn go_on() -> Outcome {
    if interrupt::is_requested() { Err(Stop::Interrupted) } else { Ok(()) }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Report> for Stop {
    fn from(report: Report) -> Self {
        Self::Failed(report)
    }
}

/// Standard output, buffered by its type. Call [`Output::finish`] at the end, or an error of the last write is lost.
pub enum Output {
    Terminal(LineWriter<StdoutLock<'static>>),
    Other(BufWriter<StdoutLock<'static>>),
}

impl Output {
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        if stdout.is_terminal() {
            Self::Terminal(LineWriter::with_capacity(BUFFER, stdout.lock()))
        } else {
            Self::Other(BufWriter::with_capacity(BUFFER, stdout.lock()))
        }
    }

    /// Returns whether this is a terminal.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Returns a name or path as it is written: unchanged, or escaped for a terminal.
    pub fn shown<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        escape(name, if self.is_terminal() { NameStyle::Backslash } else { NameStyle::Literal })
    }

    /// Returns a name whose backslashes and line ends are escaped already, with the remaining control characters escaped for a terminal.
    pub fn shown_escaped<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        match self.is_terminal() {
            true => {
                let parts = name.split(|&byte| byte == b'\\').map(|part| escape(part, NameStyle::Backslash));
                Cow::Owned(parts.collect::<Vec<_>>().join(&b'\\'))
            }
            false => Cow::Borrowed(name),
        }
    }

    /// Writes a name or path as [`shown`](Self::shown) returns it.
    pub fn write_name(&mut self, name: &[u8]) -> io::Result<()> {
        let shown = self.shown(name);
        self.write_all(&shown)
    }

    /// Flushes the buffer.
    pub fn finish(mut self) -> Outcome {
        Ok(self.flush()?)
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if interrupt::is_requested() {
            // Not `Interrupted`, which would mean to try again.
            return Err(io::Error::other("stopped"));
        }
        match self {
            Self::Terminal(w) => w.write(buf),
            Self::Other(w) => w.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Terminal(w) => w.flush(),
            Self::Other(w) => w.flush(),
        }
    }
}
