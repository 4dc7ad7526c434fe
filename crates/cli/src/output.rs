//! Standard output.
//!
//! A terminal gets lines as they come, so that they stand in order with the errors among them; anything else gets
//! 64 KiB at a time. A closed pipe ends the command quietly: it travels up as [`Stop::Output`].

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, LineWriter, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use obento::{interrupt, open_output};

use crate::escape::{Style, escape};
use crate::report::Report;

const BUFFER: usize = 64 << 10;

/// Why a command ended before its end.
#[derive(Debug)]
pub enum Stop {
    /// Standard output cannot be written; with `BrokenPipe` nobody wants more.
    Output(io::Error),
    /// Ctrl-C in a shell.
    Interrupted,
    /// Nothing more can be done.
    Failed(Report),
}

/// What a subcommand answers. Trouble that costs a single operand or file is told to
/// [`Context`](crate::context::Context) as it happens, and is no `Err`.
pub type Outcome = Result<(), Stop>;

/// Opens the file of the host `path` to write to, or creates it. What is there keeps its bytes: the caller empties it once nothing speaks
/// against it. Errors: it cannot be written, or is behind a symbolic link of another user.
pub fn create_output(path: &Path) -> Result<File, Report> {
    open_output(path, 0o666).map_err(|error| {
        let shown = path.as_os_str().as_bytes();
        match error.errno() {
            Some(errno) => Report::on("cannot write to", shown, io::Error::from(errno)),
            None => Report::on("cannot write to", shown, "a symbolic link of another user leads to it"),
        }
    })
}

/// Opens the file of the host `path` to write to, emptied or new. Errors: as [`create_output`].
pub fn empty_output(path: &Path) -> Result<File, Report> {
    let file = create_output(path)?;
    let failed = |error| Report::on("cannot write to", path.as_os_str().as_bytes(), error);
    if file.metadata().map_err(failed)?.is_file() {
        file.set_len(0).map_err(failed)?;
    }
    Ok(file)
}

/// A place between two steps of long work. Errors: Ctrl-C was pressed in a shell.
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

/// Standard output, buffered as its kind asks for. Call [`Output::finish`] at the end, or a full disk goes unnoticed.
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

    /// Whether a person reads it.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// A name or path as it is written: its bytes, or on a terminal what cannot act on it.
    pub fn shown<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        escape(name, if self.is_terminal() { Style::Backslash } else { Style::Literal })
    }

    /// Writes a name or path as [`shown`](Self::shown) has it.
    pub fn write_name(&mut self, name: &[u8]) -> io::Result<()> {
        let shown = self.shown(name);
        self.write_all(&shown)
    }

    /// Writes out what is buffered.
    pub fn finish(mut self) -> Outcome {
        Ok(self.flush()?)
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if interrupt::is_requested() {
            // No `Interrupted`, which means to try again.
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
