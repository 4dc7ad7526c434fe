//! What every subcommand shares: the options, the colours' and the progress bar's permission, and the diagnostics with
//! the exit code that follows from them.

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

use crate::cli::{GlobalOptions, When};
use crate::open::{Inside, Opener};
use crate::report::{Report, printable};

/// The environment variable that forbids changes.
const READ_ONLY: &str = "OBENTO_READONLY";

/// What a subcommand runs in.
pub struct Context {
    options: GlobalOptions,
    /// The drivers.
    registry: Registry,
    status: Cell<u8>,
    /// What the host has at the paths of arguments.
    entries: RefCell<HashMap<PathBuf, HostEntry>>,
    /// Whether rights were given up.
    is_confined: Cell<bool>,
    opener: Rc<RefCell<Opener>>,
    /// The image that paths are in, in a shell.
    inside: Option<Rc<Inside>>,
    /// What is to be out of the way while something is told.
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

    /// What one command of a shell runs in: the images of this context, paths in the image of the shell, and a status of
    /// its own.
    pub fn of_line(&self, options: GlobalOptions, inside: Rc<Inside>) -> Self {
        Self {
            opener: self.opener.clone(),
            inside: Some(inside),
            ..Self::new(options, self.registry.clone())
        }
    }

    /// The image that paths are in, in a shell.
    pub fn inside(&self) -> Option<&Inside> {
        self.inside.as_deref()
    }

    /// What the host has at `path`. It is asked once: an argument means the same after rights were given up.
    pub fn look_up(&self, path: &Path) -> HostEntry {
        if self.inside.is_some() {
            return HostEntry::look_up(path);
        }
        *self.entries.borrow_mut().entry(path.to_owned()).or_insert_with(|| HostEntry::look_up(path))
    }

    /// The options of every subcommand.
    pub fn options(&self) -> &GlobalOptions {
        &self.options
    }

    /// The drivers that images are opened, made and checked with.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The images that are open.
    pub fn opener(&self) -> RefMut<'_, Opener> {
        self.opener.borrow_mut()
    }

    /// Ends the changes of all images: main does it after every command, and with exit code 0 they are on stable storage.
    pub fn close(&self) {
        self.opener().tell_losses(|report| self.warn(report));
        self.opener().report_damage(self, |report| self.warn(report));
        self.opener().close(|report| self.warn(report));
    }

    /// Errors: `OBENTO_READONLY` forbids to change `subject`, or anything else.
    pub fn expect_changes_allowed(&self, subject: &[u8]) -> Result<(), Report> {
        let forbids = std::env::var_os(READ_ONLY).is_some_and(|value| !value.is_empty() && value != "0");
        if forbids {
            let cause = format!("{READ_ONLY} is set, which forbids every change");
            return Err(Report::on("cannot change", subject, cause).help(format!("unset {READ_ONLY}")));
        }
        Ok(())
    }

    /// Errors: this is a shell that opened the image of `address`, written as `shown`, for reading only.
    pub fn expect_open_for_change(&self, address: &Address, shown: &[u8]) -> Result<(), Report> {
        let is_shut =
            |inside: &Inside| inside.access == Access::ReadOnly && inside.root.image == address.image;
        match self.inside().is_some_and(is_shut) {
            true => Err(Report::on("cannot change", shown, "the image is open for reading only")),
            false => Ok(()),
        }
    }

    /// Gives up what a command has no more use for once everything is open, be it for reading or for change: a bug in a
    /// decoder is then of little use to whoever made the image. What is open stays as writable as it is. A kernel that
    /// cannot do it is no reason to refuse the work.
    pub fn seal(&self) {
        self.confine(Rights::Read);
    }

    /// Gives up all rights but these, unless that was done before. In a shell nothing: its next line may need them.
    pub fn confine(&self, rights: Rights<'_>) {
        if self.gives_up_rights() && !self.is_confined.replace(true) {
            sandbox::enter(rights);
        }
    }

    /// Whether rights are given up: what a shell runs is to leave it its own.
    pub fn gives_up_rights(&self) -> bool {
        self.inside.is_none()
    }

    /// Whether lists are to be JSON.
    pub fn json(&self) -> bool {
        self.options.json
    }

    /// Whether standard output takes colours.
    pub fn colors(&self) -> bool {
        match self.options.color {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                    && std::env::var_os("TERM").is_none_or(|v| v != "dumb")
            }
        }
    }

    /// Whether standard error takes a progress bar.
    pub fn progress_wanted(&self) -> bool {
        !self.options.no_progress && !self.options.json && io::stderr().is_terminal()
    }

    /// Tells of trouble that costs a part of what was asked: exit code 1.
    pub fn warn(&self, report: &Report) {
        self.print(report, 1);
    }

    /// Tells of trouble that costs all of it: exit code 2.
    pub fn fail(&self, report: &Report) {
        self.print(report, 2);
    }

    /// Makes the exit code at least `code`, for trouble that is told in another way.
    pub fn raise(&self, code: u8) {
        self.status.set(self.status.get().max(code));
    }

    /// Sets the exit code, for a command that has codes of its own.
    pub fn set_status(&self, code: u8) {
        self.status.set(code);
    }

    /// The exit code so far.
    pub fn status(&self) -> u8 {
        self.status.get()
    }

    /// Tells what a person should know about an image although it could be opened.
    pub fn note(&self, image: &[u8], note: impl Display) {
        self.tell(&format!("{}: note: {note}", printable(image)));
    }

    /// Names the progress bar that is on the terminal.
    pub fn set_bar(&self, bar: Option<ProgressBar>) {
        self.bar.replace(bar);
    }

    fn print(&self, report: &Report, code: u8) {
        self.raise(code);
        if interrupt::is_requested() {
            // Whoever stopped a command knows that it did not do all; the shell says so once.
            return;
        }
        self.tell(&report.to_string());
    }

    fn tell(&self, text: &str) {
        let tell = || {
            // With standard error closed there is nobody left to tell.
            let _ = writeln!(io::stderr().lock(), "obento: {text}");
        };
        match &*self.bar.borrow() {
            Some(bar) => bar.suspend(tell),
            None => tell(),
        }
    }
}
