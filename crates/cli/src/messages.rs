//! What a command prints beside its output: reports and notes on standard error, and the exit code that follows from them.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use indicatif::ProgressBar;
use obento::host::interrupt;

use crate::cause::Cause as _;
use crate::options::GlobalOptions;
use crate::report::{Report, printable};

/// Writes `text` to standard error. A closed standard error is ignored, because no message can be shown there; the macros
/// of the standard library panic.
pub fn print_error(text: impl Display) {
    // One write, so that the messages of several processes do not mix.
    let text = text.to_string();
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The messages of one command.
#[derive(Default)]
pub struct Messages {
    status: Cell<u8>,
    /// Whether standard error shows a progress bar.
    has_progress: bool,
    /// The progress bar that is hidden while a message is printed.
    bar: RefCell<Option<ProgressBar>>,
    /// Whether the images are being closed, so that a failure is reported even after a signal.
    is_closing: Cell<bool>,
}

impl Messages {
    pub fn new(options: &GlobalOptions) -> Self {
        let has_progress = !options.no_progress && !options.json && io::stderr().is_terminal();
        Self { has_progress, ..Self::default() }
    }

    /// Returns whether standard error shows a progress bar.
    pub fn has_progress(&self) -> bool {
        self.has_progress
    }

    /// Sets whether the images are being closed.
    pub fn set_closing(&self, is_closing: bool) {
        self.is_closing.set(is_closing);
    }

    /// Reports that a part of the work failed: exit code 1.
    pub fn warn(&self, report: &Report) {
        self.print(report, 1);
    }

    /// Reports that all of the work failed: exit code 2.
    pub fn fail(&self, report: &Report) {
        self.print(report, 2);
    }

    /// Reports a failure that has its own exit code.
    pub fn fail_with(&self, report: &Report, code: u8) {
        self.print(report, code);
    }

    /// Raises the exit code to at least `code`, for a problem that was reported in another way.
    pub fn raise(&self, code: u8) {
        self.status.set(self.status.get().max(code));
    }

    /// Sets the exit code, for a command with its own exit codes.
    pub fn set_status(&self, code: u8) {
        self.status.set(code);
    }

    /// Returns the exit code so far.
    pub fn status(&self) -> u8 {
        self.status.get()
    }

    /// Returns the exit code so far, and starts again with 0: `check` combines the codes of several volumes.
    pub fn take_status(&self) -> u8 {
        self.status.replace(0)
    }

    /// Prints a note about an image that was opened successfully.
    pub fn note(&self, image: &[u8], note: impl Display) {
        self.print_line(&format!("{}: note: {note}", printable(image)));
    }

    /// Sets the progress bar that is on the terminal.
    pub fn set_bar(&self, bar: Option<ProgressBar>) {
        self.bar.replace(bar);
    }

    fn print(&self, report: &Report, code: u8) {
        self.raise(code);
        if interrupt::is_requested() && !self.is_closing.get() && report.is_stop() {
            // The user who interrupted the command knows that it is incomplete; the shell reports it once.
            return;
        }
        self.print_line(&report.to_string());
    }

    /// Prints a line that is no report.
    pub fn print_line(&self, text: &str) {
        let emit = || {
            print_error(format_args!("obento: {text}\n"));
        };
        match &*self.bar.borrow() {
            Some(bar) => bar.suspend(emit),
            None => emit(),
        }
    }
}
