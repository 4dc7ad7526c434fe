//! Standard output.
//!
//! A terminal gets each line at once, so that lines appear in order with the errors between them. Other outputs get 64
//! KiB at a time. A closed pipe ends the command quietly, as [`Stop::Output`].

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, LineWriter, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use obento::host::{FileId, HostError, interrupt, open_output};
use rustix::io::Errno;

use crate::cause::Complete;
use crate::escape::{NameStyle, escape};
use crate::open::needs_image;
use crate::pager::Pager;
use crate::report::{Report, shell_word};

const BUFFER: usize = 64 << 10;
/// The buffer before a pager, which shows the first page early.
const PAGE: usize = 4 << 10;

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
/// The file cannot be written, a symbolic link of another user leads to it, or it is a FIFO of another user.
pub fn create_output(path: &Path) -> Result<File, Report> {
    open_output(path, 0o666).map_err(|error| not_written(path, error))
}

/// Returns the report of an output that cannot be opened.
pub fn not_written(path: &Path, error: HostError) -> Report {
    let shown = path.as_os_str().as_bytes();
    match error {
        HostError::System { errno, .. } => {
            of_output(Report::on("cannot write to", shown, io::Error::from(errno)), path, errno)
        }
        HostError::ForeignLink { .. } => {
            Report::on("cannot write to", shown, "its path contains a symbolic link of another user")
        }
        error => Report::plain(error),
    }
}

/// Returns the report of the new file `path` that cannot be created, as `error` describes.
pub fn not_created(path: &Path, error: HostError) -> Report {
    let report = Report::plain(&error);
    match error {
        HostError::System { .. } if obento::address::server_of(path).is_some() => needs_image(path),
        HostError::System { errno, .. } => of_output(report, path, errno),
        _ => report,
    }
}

/// Returns `report` of the output `path`, whose creation failed with `errno`, with what to do about its directory.
pub fn of_output(report: Report, path: &Path, errno: Errno) -> Report {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = shell_word(directory.as_os_str().as_bytes());
    match errno {
        Errno::NOENT if !directory.exists() => {
            report.help(format!("create the directory first: mkdir -p {shown}"))
        }
        Errno::ACCESS | Errno::PERM if !path.exists() => report.help(format!(
            "choose a directory that you can write to: 'ls -ld {}' shows its owner and mode",
            shell_word(visible(directory).as_os_str().as_bytes())
        )),
        _ => report,
    }
}

/// Returns `directory`, or the lowest directory above it that the user can see.
fn visible(directory: &Path) -> &Path {
    let mut above = directory.ancestors().filter(|path| !path.as_os_str().is_empty());
    above.find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("."))
}

/// Fails if the open file at `path` is one of `spared`, from which images are read.
pub fn expect_no_source(file: &File, path: &Path, spared: &[FileId]) -> Result<(), Report> {
    if spared.contains(&FileId::of_file(file, path).map_err(Report::plain)?) {
        return Err(Report::plain(HostError::IsSource { path: path.into() }));
    }
    Ok(())
}

/// Truncates the open file at `path`.
///
/// # Errors
///
/// The file cannot be written, or it is one of `spared`, from which images are read.
pub fn emptied(file: File, path: &Path, spared: &[FileId]) -> Result<File, Report> {
    let failed = |error| Report::on("cannot write to", path.as_os_str().as_bytes(), error);
    expect_no_source(&file, path, spared)?;
    if file.metadata().map_err(failed)?.is_file() {
        file.set_len(0).map_err(failed)?;
    }
    Ok(file)
}

/// Marks a point between two steps of long work. Fails if Ctrl-C was pressed in a shell.
pub fn go_on() -> Outcome {
    if interrupt::is_requested() { Err(Stop::Interrupted) } else { Ok(()) }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl<E: Complete> From<E> for Stop {
    fn from(error: E) -> Self {
        Report::from(error).into()
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
    /// A terminal with a pager for long output.
    Paged(BufWriter<Pager>),
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

    /// Returns standard output through `pager`, if the caller has one.
    pub fn paged(pager: Option<Pager>) -> Self {
        match pager {
            Some(pager) => Self::Paged(BufWriter::with_capacity(PAGE, pager)),
            None => Self::stdout(),
        }
    }

    /// Returns whether this is a terminal.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_) | Self::Paged(_))
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

    /// Flushes the buffer, and waits for the end of the pager.
    pub fn finish(mut self) -> Outcome {
        self.flush()?;
        match self {
            Self::Terminal(_) | Self::Other(_) => Ok(()),
            Self::Paged(paged) => Ok(paged.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?),
        }
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if interrupt::is_requested() {
            return Err(interrupt::stopped());
        }
        match self {
            Self::Terminal(w) => w.write(buf),
            Self::Other(w) => w.write(buf),
            Self::Paged(w) => w.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Terminal(w) => w.flush(),
            Self::Other(w) => w.flush(),
            Self::Paged(w) => w.flush(),
        }
    }
}
