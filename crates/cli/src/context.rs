//! The state of a running subcommand: options, open images, diagnostics, and the exit code that follows from them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use obento::address::{Address, HostEntry};
use obento::driver::Access;
use obento::host::interrupt::{self, SignalGuard};
use obento::host::sandbox::{self, Rights};
use obento::host::{AccessLimit, FileId, FreshFile, HostError};
use obento::{Image, OpenError, Registry, Volume};

use crate::help::page::Groups;
use crate::messages::Messages;
use crate::open::inside::ShellImage;
use crate::open::opener::{Opener, Opening};
use crate::options::{GlobalOptions, TerminalUse};
use crate::output::Outcome;
use crate::report::Report;

/// The environment variable that forbids changes.
const READ_ONLY: &str = "OBENTO_READONLY";

/// The whole command line, for the subcommands that describe or run others. They do not import the table that lists them.
#[derive(Clone, Copy)]
pub struct CommandTable {
    /// The visible subcommands with their pages, in the groups and the order of the overview.
    pub groups: Groups,
    /// Returns the subcommands as the parser and the help use them.
    pub commands: fn() -> clap::Command,
    /// Returns the subcommands for manual pages, without the examples.
    pub commands_for_man: fn() -> clap::Command,
    /// Parses a command line, whose first word is the program. The error can be a request for help.
    pub parse: fn(Vec<OsString>) -> Result<CommandLine, clap::Error>,
}

/// A command line that was parsed.
pub struct CommandLine {
    pub options: GlobalOptions,
    /// The exit code of the subcommand if standard output cannot be written.
    pub unwritten: u8,
    /// Runs the subcommand.
    pub run: Box<dyn FnOnce(&Context) -> Outcome>,
}

/// The environment of a subcommand.
pub struct Context {
    options: GlobalOptions,
    /// The drivers.
    registry: Registry,
    table: CommandTable,
    messages: Messages,
    /// The type of the file at each host path that was looked up.
    entries: RefCell<HashMap<PathBuf, HostEntry>>,
    /// Whether the process has given up its rights.
    is_confined: Cell<bool>,
    opener: Rc<RefCell<Opener>>,
    /// In a shell, the image that paths refer to.
    inside: Option<Rc<ShellImage>>,
    /// Catches the signals that end the process, while a command has an incomplete file or changes an image.
    caught: Rc<RefCell<Option<SignalGuard>>>,
}

impl Context {
    pub fn new(options: GlobalOptions, registry: Registry, table: CommandTable) -> Self {
        Self {
            messages: Messages::new(&options),
            options,
            registry,
            table,
            entries: RefCell::default(),
            is_confined: Cell::new(false),
            opener: Rc::default(),
            inside: None,
            caught: Rc::default(),
        }
    }

    /// Creates the context of one command of a shell. It shares the open images, resolves paths in the image of the
    /// shell, and has its own status.
    pub fn of_line(&self, options: GlobalOptions, inside: Rc<ShellImage>) -> Self {
        Self {
            opener: self.opener.clone(),
            caught: self.caught.clone(),
            inside: Some(inside),
            ..Self::new(options, self.registry.clone(), self.table)
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

    /// Returns the command line of this program.
    pub fn table(&self) -> CommandTable {
        self.table
    }

    fn opening(&self) -> Opening<'_> {
        Opening { options: &self.options, registry: &self.registry, messages: &self.messages }
    }

    /// Returns the image at `path`, which is opened once, and prints its notices.
    pub fn image(&self, path: &Path) -> Result<Rc<Image>, Report> {
        self.opener.borrow_mut().image(path, self.opening())
    }

    /// Returns the image at `path` without printing its notices, for a command that shows them in another way. Damage
    /// is reported as for each image.
    pub fn quiet_image(&self, path: &Path) -> Result<Rc<Image>, OpenError> {
        self.opener.borrow_mut().quiet_image(path, self.opening())
    }

    /// Returns the image at `path` without printing its notices, for a command that only examines whether the file is an
    /// image.
    pub fn examined_image(&self, path: &Path) -> Result<Rc<Image>, OpenError> {
        self.opener.borrow_mut().examined_image(path, self.opening())
    }

    /// Opens the files of the image at `path` without decoding them, unless it is open already.
    pub fn prepare(&self, path: &Path, access: Access) {
        self.opener.borrow_mut().prepare(path, access, self.opening());
    }

    /// Returns the limit that the image at `path`, which is open, sets to the permissions of a copy of its bytes.
    pub fn access_limit(&self, path: &Path) -> AccessLimit {
        self.opener.borrow().access_limit(path)
    }

    /// Unpacks the image at `path` to `new` if its files are open and not decoded yet, and contain compressed raw
    /// data. Fails with the errors of `new`.
    pub fn unpack_to(
        &self,
        path: &Path,
        new: impl FnOnce() -> Result<FreshFile, HostError>,
    ) -> Result<Option<FreshFile>, HostError> {
        let mut opener = self.opener.borrow_mut();
        let Some(file) = opener.prepared_mut(path).filter(|file| file.may_unpack()) else { return Ok(None) };
        let fresh = new()?;
        file.unpack_to(fresh.to_room()?);
        Ok(Some(fresh))
    }

    /// Returns the volume that `address` names, for reading; a volume that is open for change already is reused.
    pub fn volume(&self, address: &Address) -> Result<Rc<Volume>, Report> {
        self.opener.borrow_mut().volume(address, self.opening())
    }

    /// Returns the volume that `address` names, for change. Open volumes for change before those for reading, since an image is opened
    /// once. [`Context::close`] ends the changes. Also fails if changes are forbidden.
    pub fn volume_for_change(&self, address: &Address) -> Result<Rc<Volume>, Report> {
        self.expect_changes_allowed(address.image.as_os_str().as_bytes())?;
        self.opener.borrow_mut().volume_for_change(address, self.opening())
    }

    /// Returns the host files that all open images are read from.
    pub fn host_files(&self) -> Vec<FileId> {
        self.opener.borrow().host_files()
    }

    /// Writes the changes of all volumes to stable storage, and passes each failure to `failed`.
    pub fn sync(&self, failed: impl Fn(&Report)) {
        self.opener.borrow().sync(failed);
    }

    /// Reports damage that was found since the images were opened, once per problem.
    pub fn report_damage(&self, failed: impl Fn(&Report)) {
        self.opener.borrow_mut().report_damage(&self.registry, failed);
    }

    /// Reports the attributes that this command requested and a volume hides, once per volume.
    pub fn report_hidden_attributes(&self, failed: impl Fn(&Report)) {
        self.opener.borrow_mut().report_hidden_attributes(failed);
    }

    /// Ends the changes of all images. The main function calls this after every command; with exit code 0 all changes are on stable storage.
    pub fn close(&self) {
        self.messages.set_closing(true);
        self.report_hidden_attributes(|report| self.warn(report));
        self.report_damage(|report| self.warn(report));
        self.opener.borrow().close(|report| self.warn(report));
        self.messages.set_closing(false);
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
        // A server held them back until here.
        obento::env::thread::release();
    }

    /// Returns whether rights are given up: the programs that a shell runs inherit its rights, so a shell keeps them.
    pub fn gives_up_rights(&self) -> bool {
        self.inside.is_none()
    }

    /// From now on, a signal that ends the process stops the command between two steps, so that it removes an incomplete
    /// file and closes the images that it changes. [`Context::end_by_signal`] then ends the process. At a prompt, the
    /// shell catches the signals.
    pub fn stop_between_steps(&self) {
        if !interrupt::is_caught() {
            self.caught.replace(Some(SignalGuard::of_process()));
        }
    }

    /// Lets signals end the process at once again, unless one was caught or an image is open for change. Returns
    /// whether one was caught, so that the command ends.
    #[must_use]
    pub fn stop_at_once(&self) -> bool {
        match self.opener.borrow().is_changing() {
            true => self.is_stopped(),
            // A signal that arrives only now ends the process here.
            false => self.is_stopped() || self.release(),
        }
    }

    /// Returns whether a signal that ends the process was caught.
    fn is_stopped(&self) -> bool {
        self.caught.borrow().is_some() && interrupt::is_requested()
    }

    /// Ends the process by the signal that stopped the command, if there was one. If the process survives the signal,
    /// the exit code is that of a shell: 128 and the signal. The images are closed.
    pub fn end_by_signal(&self) {
        if self.is_stopped() {
            self.messages
                .print_line("interrupted: the command did not finish; files that it completed before remain");
        }
        self.release();
    }

    /// Restores the handlers, and ends the process by the signal that was caught. Returns whether the process survived
    /// one.
    fn release(&self) -> bool {
        let Some(signal) = self.caught.take().and_then(SignalGuard::end_process) else { return false };
        self.raise(u8::try_from(signal).map_or(u8::MAX, |signal| signal.saturating_add(128)));
        true
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

    /// Returns what this command prints beside its output.
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Reports that a part of the work failed: exit code 1.
    pub fn warn(&self, report: &Report) {
        self.messages.warn(report);
    }

    /// Reports that all of the work failed: exit code 2.
    pub fn fail(&self, report: &Report) {
        self.messages.fail(report);
    }

    /// Reports a failure that has its own exit code.
    pub fn fail_with(&self, report: &Report, code: u8) {
        self.messages.fail_with(report, code);
    }

    /// Raises the exit code to at least `code`, for a problem that was reported in another way.
    pub fn raise(&self, code: u8) {
        self.messages.raise(code);
    }

    /// Sets the exit code, for a command with its own exit codes.
    pub fn set_status(&self, code: u8) {
        self.messages.set_status(code);
    }

    /// Returns the exit code so far.
    pub fn status(&self) -> u8 {
        self.messages.status()
    }

    /// Returns the exit code so far, and starts again with 0: `check` combines the codes of several volumes.
    pub fn take_status(&self) -> u8 {
        self.messages.take_status()
    }

    /// Prints a note about an image that was opened successfully.
    pub fn note(&self, image: &[u8], note: impl Display) {
        self.messages.note(image, note);
    }
}
