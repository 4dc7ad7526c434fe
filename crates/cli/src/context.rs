//! The state of a running subcommand: options, open images, diagnostics, and the exit code that follows from them.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::HashMap;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use indicatif::ProgressBar;

use obento::interrupt;
use obento::sandbox::{self, Rights};
use obento::{Access, Address, HostEntry, Registry};

use crate::cli::{GlobalOptions, TerminalUse};
use crate::open::{Opener, ShellImage};
use crate::report::{Report, printable};

/// The environment variable that forbids changes.
const READ_ONLY: &str = "OBENTO_READONLY";

/// The environment of a subcommand.
pub struct Context {
    options: GlobalOptions,
    /// The drivers.
    registry: Registry,
    status: Cell<u8>,
    /// The type of the file at each host path that was looked up.
    entries: RefCell<HashMap<PathBuf, HostEntry>>,
    /// Whether the process has given up its rights.
    is_confined: Cell<bool>,
    opener: Rc<RefCell<Opener>>,
    /// In a shell, the image that paths refer to.
    inside: Option<Rc<ShellImage>>,
    /// The progress bar that is hidden while a message is printed.
    bar: RefCell<Option<ProgressBar>>,
}

impl Context {
    pub fn new(options: GlobalOptions, registry: Registry) -> Self {
        let status = Cell::new(0);
        Self {
            options,
            registry,
            status,
            entries: RefCell::default(),
            is_confined: Cell::new(false),
            opener: Rc::default(),
            inside: None,
            bar: RefCell::default(),
        }
    }

    /// Creates the context of one command of a shell. It shares the open images, resolves paths in the image of the
    /// shell, and has its own status.
    pub fn of_line(&self, options: GlobalOptions, inside: Rc<ShellImage>) -> Self {
        Self {
            opener: self.opener.clone(),
            inside: Some(inside),
            ..Self::new(options, self.registry.clone())
        }
    }

    /// Returns the image that paths refer to, in a shell.
    pub fn inside(&self) -> Option<&ShellImage> {
        self.inside.as_deref()
    }

    /// Returns the type of the host file at `path`. The host is asked once per path, so that an argument keeps its meaning after the process
    /// gave up its rights.
    pub fn look_up(&self, path: &Path) -> HostEntry {
        if self.inside.is_some() {
            return HostEntry::look_up(path);
        }
        *self.entries.borrow_mut().entry(path.to_owned()).or_insert_with(|| HostEntry::look_up(path))
    }

    /// Returns the options of every subcommand.
    pub fn options(&self) -> &GlobalOptions {
        &self.options
    }

    /// Returns the drivers that open, create and check images.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the open images.
    pub fn opener(&self) -> RefMut<'_, Opener> {
        self.opener.borrow_mut()
    }

    /// Ends the changes of all images. The main function calls this after every command; with exit code 0 all changes are on stable storage.
    pub fn close(&self) {
        self.opener().report_hidden_attributes(|report| self.warn(report));
        self.opener().report_damage(self, |report| self.warn(report));
        self.opener().close(|report| self.warn(report));
    }

    /// # Errors
    ///
    /// `OBENTO_READONLY` forbids changes of `subject`.
    pub fn expect_changes_allowed(&self, subject: &[u8]) -> Result<(), Report> {
        let forbids = std::env::var_os(READ_ONLY).is_some_and(|value| !value.is_empty() && value != "0");
        if forbids {
            let cause = format!("{READ_ONLY} is set, which forbids all changes");
            return Err(Report::on("cannot change", subject, cause).help(format!("unset {READ_ONLY}")));
        }
        Ok(())
    }

    /// # Errors
    ///
    /// This is a shell that opened the image of `address`, written as `shown`, read-only.
    pub fn expect_open_for_change(&self, address: &Address, shown: &[u8]) -> Result<(), Report> {
        let is_shut =
            |inside: &ShellImage| inside.access == Access::ReadOnly && inside.root.image == address.image;
        match self.inside().is_some_and(is_shut) {
            true => Err(Report::on("cannot change", shown, "the image is open read-only")),
            false => Ok(()),
        }
    }

    /// Gives up the rights that a command no longer needs after everything is open, for reading and for changing. A bug
    /// in a decoder is then of little use to an attacker. Files that are open for writing stay writable. If the kernel
    /// cannot restrict the process, the command continues.
    pub fn seal(&self) {
        self.confine(Rights::Read);
    }

    /// Gives up all rights except `rights`, once. Does nothing in a shell, whose next command may need them.
    pub fn confine(&self, rights: Rights<'_>) {
        if self.gives_up_rights() && !self.is_confined.replace(true) {
            sandbox::enter(rights);
        }
    }

    /// Returns whether rights are given up: the programs that a shell runs inherit its rights, so a shell keeps them.
    pub fn gives_up_rights(&self) -> bool {
        self.inside.is_none()
    }

    /// Returns whether output is JSON.
    pub fn json(&self) -> bool {
        self.options.json
    }

    /// Returns whether standard output has colours.
    pub fn colors(&self) -> bool {
        match self.options.color {
            TerminalUse::Always => true,
            TerminalUse::Never => false,
            TerminalUse::Auto => {
                io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                    && std::env::var_os("TERM").is_none_or(|v| v != "dumb")
            }
        }
    }

    /// Returns whether standard error shows a progress bar.
    pub fn progress_wanted(&self) -> bool {
        !self.options.no_progress && !self.options.json && io::stderr().is_terminal()
    }

    /// Reports that a part of the work failed: exit code 1.
    pub fn warn(&self, report: &Report) {
        self.print(report, 1);
    }

    /// Reports that all of the work failed: exit code 2.
    pub fn fail(&self, report: &Report) {
        self.print(report, 2);
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
        if interrupt::is_requested() {
            // The user who interrupted the command knows that it is incomplete; the shell reports it once.
            return;
        }
        self.print_line(&report.to_string());
    }

    fn print_line(&self, text: &str) {
        let emit = || {
            // If standard error is closed, the message cannot be shown.
            let _ = writeln!(io::stderr().lock(), "obento: {text}");
        };
        match &*self.bar.borrow() {
            Some(bar) => bar.suspend(emit),
            None => emit(),
        }
    }
}
