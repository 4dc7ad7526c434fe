//! The log of a server.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use obento::host::open_output;
use rustix::fs::OFlags;

use tracing_subscriber::fmt;

/// The variable of the log level.
const LEVEL: &str = "OBENTO_LOG";

/// The file of the log. Another server that takes a mount gets it.
static LOG: OnceLock<OwnedFd> = OnceLock::new();

/// Returns the file of the log, if there is one.
pub fn descriptor() -> Option<BorrowedFd<'static>> {
    LOG.get().map(|file| file.as_fd())
}

/// Appends the log to `file`, or writes it to standard error. Fails if the file cannot be opened.
pub fn start(file: Option<&Path>) -> std::io::Result<()> {
    let open = |path| {
        open_output(path, 0o666).map_err(|error| match error.errno() {
            Some(errno) => errno.into(),
            None => std::io::Error::other(error),
        })
    };
    start_in(file.map(open).transpose()?)
}

/// Appends the log to the open file of another server, or writes it to standard error.
pub fn start_in(file: Option<File>) -> std::io::Result<()> {
    let level = std::env::var(LEVEL).ok().and_then(|level| level.parse().ok());
    let lines = fmt()
        .with_max_level(level.unwrap_or(tracing_subscriber::filter::LevelFilter::WARN))
        .with_target(false)
        // A message about a closed standard error would panic.
        .log_internal_errors(false);
    // A process that serves twice has started the log already.
    let _ = match file {
        Some(file) => {
            let _ = LOG.set(file.try_clone()?.into());
            rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
            lines.with_ansi(false).with_writer(Mutex::new(file)).try_init()
        }
        None => lines.with_ansi(false).with_writer(std::io::stderr).try_init(),
    };
    Ok(())
}
