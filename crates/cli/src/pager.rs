//! A pager such as less(1), for output that is longer than the terminal.
//!
//! No program can be started after an image is decoded. A shell is therefore started before, and waits for a line. After
//! the line it runs the pager, which receives the rest of its input. If the output fits on the terminal, or the command
//! fails, the shell reads no line and ends. Source: POSIX, `read`: the shell does not read past the line.
//!
//! Invariant: the command waits until the pager ends, since both would otherwise use the terminal at the same time.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};

use obento::host::interrupt::Deferred;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::context::Context;
use crate::terminal;

/// The variable that names the pager, as a command of the shell.
const PAGER: &str = "PAGER";
const DEFAULT: &str = "less";
/// The options of less(1) if the user sets none: colours are shown.
const LESS: (&str, &str) = ("LESS", "R");
/// Shows the output without a pager if the shell does not find the program (status 127).
const WAIT_THEN_RUN: &str = r#"IFS= read -r line || exit; eval "$1" || { [ $? -ne 127 ] || exec cat; }"#;

/// A pager that has not started yet, or runs.
#[derive(Debug)]
pub struct Pager {
    /// `None` at the end of the output.
    input: Option<ChildStdin>,
    process: OwnedFd,
    /// Output that is held back until it is longer than the terminal; `None` when the pager runs.
    held: Option<Vec<u8>>,
    /// Rows of the terminal that the output uses.
    rows: usize,
    /// Characters in the current row.
    column: usize,
    size: (usize, usize),
    /// Leaves the keys of the terminal to the pager while it runs.
    deferred: Option<Deferred>,
}

impl Pager {
    /// Prepares the pager that `PAGER` names. Returns `None` in these cases: output is JSON or not for a terminal, the
    /// terminal has no cursor, `PAGER` is empty or `cat`, the default does not exist, or the shell cannot be started.
    pub fn prepare(context: &Context) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if context.json() || is_dumb || !io::stdout().is_terminal() {
            return None;
        }
        Self::start(&command()?).ok()
    }

    fn start(pager: &OsStr) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WAIT_THEN_RUN, "sh"]).arg(pager).stdin(Stdio::piped());
        if std::env::var_os(LESS.0).is_none() {
            command.env(LESS.0, LESS.1);
        }
        let mut child = command.spawn()?;
        let process = identify(&child).inspect_err(|_| {
            // Without its input, the shell ends.
            drop(child.stdin.take());
            let _ = child.wait();
        })?;
        let (input, held, size) = (child.stdin.take(), Some(Vec::new()), terminal::size());
        Ok(Self { input, process, held, rows: 0, column: 0, size, deferred: None })
    }

    /// Adds the rows of `text`. A sequence that selects a colour counts as text, so a line may count as longer than it is.
    fn measure(&mut self, text: &[u8]) {
        let (columns, _) = self.size;
        for &byte in text {
            let is_first_of_character = byte & 0xc0 != 0x80;
            if byte == b'\n' {
                (self.rows, self.column) = (self.rows + 1, 0);
            } else if is_first_of_character && self.column == columns {
                (self.rows, self.column) = (self.rows + 1, 1);
            } else {
                self.column += usize::from(is_first_of_character);
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.input.as_mut().map_or(Ok(()), |input| input.write_all(bytes))
    }

    /// Writes the output that is held back to the terminal.
    fn release(&mut self) -> io::Result<()> {
        let held = self.held.take().unwrap_or_default();
        let mut out = io::stdout().lock();
        out.write_all(&held)?;
        out.flush()
    }

    /// Ends the output, and waits for the end of the pager.
    pub fn finish(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(input) = self.input.take() else { return Ok(()) };
        drop(input);
        let mut ends = [PollFd::new(&self.process, PollFlags::IN)];
        while poll(&mut ends, None) == Err(Errno::INTR) {}
        self.deferred = None;
        self.release()
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(held) = &mut self.held else {
            self.send(bytes)?;
            return Ok(bytes.len());
        };
        held.extend_from_slice(bytes);
        self.measure(bytes);
        // The last row is that of the prompt.
        if self.rows >= self.size.1 {
            let held = self.held.take().unwrap_or_default();
            self.deferred = Some(Deferred::new());
            self.send(b"\n")?;
            self.send(&held)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // The command ends with an error of its own.
        let _ = self.end();
    }
}

/// Returns the command that `PAGER` names, or the default if it exists.
fn command() -> Option<OsString> {
    match std::env::var_os(PAGER) {
        Some(pager) => Some(pager).filter(|pager| !pager.is_empty() && pager != "cat"),
        None => {
            let path = std::env::var_os("PATH")?;
            let exists = std::env::split_paths(&path).any(|folder| folder.join(DEFAULT).is_file());
            exists.then(|| DEFAULT.into())
        }
    }
}

/// Opens a descriptor that becomes readable when the process ends. The process cannot wait for another one later.
fn identify(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(pidfd_open(pid.ok_or(io::ErrorKind::InvalidInput)?, PidfdFlags::empty())?)
}
