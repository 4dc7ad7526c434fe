//! `obento shell`: a prompt for one open image, with the commands of the command line.
//!
//! Lines are parsed by the same definitions and run by the same functions. Only operands differ: a path is in the
//! image, relative to the current directory. At a prompt, the changes of a command are on stable storage before the
//! next prompt. A script writes its changes at its end, like any command.
//!
//! At a prompt, Ctrl-C ends the running command and not the shell, which would leave the journal to be replayed. A long
//! operation therefore checks between two steps whether to continue. A script ends with Ctrl-C, like any command.

pub mod complete;
mod history;
pub mod words;

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use clap::error::ErrorKind;
use obento::Volume;
use obento::address::FileSelector;
use obento::base::FileKind;
use obento::driver::Access;
use obento::host::interrupt;
use obento::vfs::Symlinks;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use crate::context::{CommandLine, CommandTable, Context};
use crate::help::page::Page;
use crate::messages::print_error;
use crate::open::inside::ShellImage;
use crate::open::{Location, address, components};
use crate::output::{Outcome, Stop};
use crate::report::{Report, printable, subject};
use crate::usage;
use complete::Completion;
use words::{BadLine, RunCondition, Statement};

/// The number of lines in the history.
const HISTORY: usize = 1000;
/// The exit code of a command that Ctrl-C ended, as in sh.
const INTERRUPTED: u8 = 130;
/// Commands of the shell alone.
const BUILT_IN: [&str; 6] = ["cd", "exit", "help", "lcd", "pwd", "quit"];

/// The page of `shell`.
pub const PAGE: Page = Page::new(&[
    ("obento shell disk.img", "Start a shell on an image"),
    ("obento shell disk.img -c 'cd /etc; ls; cat fstab'", "Run commands on an image that is opened once"),
])
.exit(&[("N", "The exit status of the last command.")])
.environment(&[("XDG_STATE_HOME", "The directory of obento/history; the default is ~/.local/state.")]);

/// Run commands on one open image
///
/// Paths are in the image; host:PATH is a host path, and image:ADDRESS a path in another image, as in 'cp -a
/// etc image:other.img@2:/'. Further commands: cd, pwd, lcd (change the current directory of the host), help,
/// exit. Quotes work as in sh. The operators ;, && and || join commands.
///
/// At a prompt, Tab completes commands, options and names in the image. The history is in ~/.local/state/obento/history
/// ($XDG_STATE_HOME), if no other user can replace this file. Ctrl-C ends the running command, Ctrl-D the shell. Without a terminal,
/// the lines of standard input are the commands, and the exit status is that of the last command.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, and the directory to start in
    #[arg(value_name = "IMAGE[:PATH]")]
    image: OsString,
    /// Run these commands, separated by ; or newlines, and exit
    #[arg(short = 'c', value_name = "COMMANDS")]
    commands: Option<OsString>,
    /// Open the image read-only
    #[arg(short, long)]
    read_only: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    if context.inside().is_some() {
        return Err(Report::new("cannot start a shell", "already in a shell").into());
    }
    let shell = Shell::open(args, context)?;
    let status = match &args.commands {
        Some(commands) => shell.script(&mut commands.as_bytes()),
        None if io::stdin().is_terminal() && io::stdout().is_terminal() => shell.prompt(),
        None => shell.standard_input(),
    };
    context.raise(status);
    Ok(())
}

struct Shell<'a> {
    context: &'a Context,
    inside: Rc<ShellImage>,
    volume: Rc<Volume>,
    /// `disk.img@2:`.
    prefix: Rc<[u8]>,
    status: std::cell::Cell<u8>,
    /// Whether `exit` was run.
    is_over: std::cell::Cell<bool>,
}

impl<'a> Shell<'a> {
    fn open(args: &Args, context: &'a Context) -> Result<Self, Report> {
        let address = address(&args.image, context)?;
        let shown = address.image.as_os_str().as_bytes().to_vec();
        let wanted = if args.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let for_change = match wanted {
            Access::ReadWrite => Some(context.volume_for_change(&address)),
            Access::ReadOnly => None,
        };
        let (volume, access) = match for_change {
            Some(Ok(volume)) => (volume, Access::ReadWrite),
            not_for_change => {
                let volume = context.volume(&address)?;
                if let Some(Err(report)) = not_for_change {
                    let text = report.to_string();
                    let what = format!("cannot change {}: ", subject(&shown));
                    let cause = text.strip_prefix(&what).unwrap_or(&text);
                    context.note(&shown, format_args!("opened read-only: {cause}"));
                }
                (volume, Access::ReadOnly)
            }
        };
        context.report_damage(|report| context.warn(report));
        let directory = match &address.place {
            Some(FileSelector::Path(path)) => normal(path),
            _ => b"/".to_vec(),
        };
        let start = Location::within(volume.clone(), &address, FileSelector::Path(directory.clone()));
        let found = volume.resolve(&start.place, Symlinks::Follow).and_then(|node| node.kind());
        if found != Ok(FileKind::Directory) {
            let cause = found.err().unwrap_or(obento::Error::NotDirectory);
            return Err(Report::on("cannot start in", start.shown(), cause));
        }
        let root = obento::address::Address { place: None, ..address };
        let inside = ShellImage { root, access, directory: RefCell::new(directory) };
        let prefix = start.prefix.clone();
        Ok(Self {
            context,
            inside: Rc::new(inside),
            volume,
            prefix,
            status: Default::default(),
            is_over: Default::default(),
        })
    }

    /// Runs the lines that a user types.
    fn prompt(&self) -> u8 {
        let config = Config::builder().completion_type(CompletionType::List).max_history_size(HISTORY);
        let config = config.map(|config| config.auto_add_history(true).build());
        let editor = config.and_then(Editor::<Completion, FileHistory>::with_config);
        let Ok(mut editor) = editor else { return self.standard_input() };
        let definition = (self.context.table().commands)();
        let mut commands: Vec<_> = definition
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name().to_owned())
            .collect();
        commands.extend(BUILT_IN.map(str::to_owned));
        commands.sort();
        let (inside, volume) = (self.inside.clone(), self.volume.clone());
        editor.set_helper(Some(Completion { inside, volume, commands, definition }));
        let history = history::file();
        if let Some(file) = &history {
            // The history does not exist at first.
            let _ = editor.load_history(file);
        }
        while !self.is_over.get() {
            let directory = self.inside.directory.borrow().clone();
            let prompt = format!("{}{}> ", printable(&self.prefix), printable(&directory));
            match editor.readline(&prompt) {
                Ok(line) => {
                    if let Some(file) = &history {
                        // An error of the history is ignored.
                        let _ = editor.append_history(file);
                    }
                    let _caught = interrupt::SignalGuard::new();
                    self.line(line.as_bytes());
                    self.settle();
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => break,
                Err(error) => {
                    self.fail(&Report::new("cannot read from the terminal", error));
                    break;
                }
            }
        }
        self.status.get()
    }

    /// Writes the changes of the line to stable storage.
    fn settle(&self) {
        self.context.sync(|report| self.fail(report));
    }

    /// Runs the lines of standard input. Each is read alone, so that a command reads the following lines.
    fn standard_input(&self) -> u8 {
        let mut line = Vec::new();
        while !self.is_over.get() {
            line.clear();
            // Release the lock: the command may read on.
            let read = interrupt::read_line(io::stdin().lock(), &mut line);
            match read {
                Ok(0) => break,
                Err(_) if interrupt::is_requested() => break,
                Ok(_) => self.line(&line),
                Err(error) => {
                    self.fail(&Report::new("cannot read standard input", error));
                    break;
                }
            }
        }
        self.status.get()
    }

    fn script(&self, commands: &mut dyn BufRead) -> u8 {
        for line in commands.split(b'\n').map_while(io::Result::ok) {
            if self.is_over.get() {
                break;
            }
            self.line(&line);
        }
        self.status.get()
    }

    fn line(&self, line: &[u8]) {
        let statements = match words::parse(line) {
            Ok(statements) => statements,
            Err(error) => {
                let report = Report::on("cannot read the line", line.trim_ascii(), error);
                let help = "use 'obento COMMAND IMAGE:PATH' in a shell of the host";
                return self.fail(&if error == BadLine::Pipe { report.help(help) } else { report });
            }
        };
        for Statement { when, words } in statements {
            let runs = match when {
                RunCondition::Always => true,
                RunCondition::AfterSuccess => self.status.get() == 0,
                RunCondition::AfterFailure => self.status.get() != 0,
            };
            if runs && !self.is_over.get() && !interrupt::is_requested() {
                self.status.set(self.command(&words));
            }
        }
        if interrupt::is_requested() {
            self.status.set(INTERRUPTED);
            if self.is_over.get() {
                // The process ends by the signal, and reports it then.
                return;
            }
            print_error("obento: interrupted; completed changes stay\n");
        }
    }

    fn fail(&self, report: &Report) {
        let line = self.context.of_line(Default::default(), self.inside.clone());
        line.fail(report);
        self.status.set(line.status());
    }

    /// Runs one command and returns its exit code.
    fn command(&self, words: &[OsString]) -> u8 {
        let (name, rest) = words.split_first().map_or((OsStr::new(""), words), |(name, rest)| (name, rest));
        let built_in = match (name.as_bytes(), rest) {
            (b"exit" | b"quit", code) => self.exit(code),
            (b"cd", [] | [_]) => {
                self.change_directory(rest.first().map_or(OsStr::new("/"), OsString::as_os_str))
            }
            (b"lcd", [directory]) => change_host_directory(directory),
            (b"pwd", []) => self.print_directory(),
            (b"cd" | b"lcd" | b"pwd", _) => {
                Err(Report::on("cannot run", name.as_bytes(), "wrong number of operands")
                    .help("usage: cd [DIR], lcd DIR, pwd"))
            }
            _ => return self.parsed(words.iter().cloned()),
        };
        match built_in {
            Ok(status) => status,
            Err(report) => {
                self.fail(&report);
                self.status.get().min(1)
            }
        }
    }

    /// Runs a command of the command line.
    fn parsed(&self, words: impl Iterator<Item = OsString>) -> u8 {
        let words: Vec<OsString> = [OsString::from("obento")].into_iter().chain(words).collect();
        let CommandLine { options, unwritten, run } = match parse_here(words.clone(), self.context.table()) {
            Ok(line) => line,
            Err(error)
                if error.use_stderr()
                    && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
            {
                self.fail(&usage::report(&error, "help", &words));
                return 2;
            }
            Err(error) => {
                // Help on a closed pipe is not an error.
                let _ = error.print();
                return u8::from(error.use_stderr()) * 2;
            }
        };
        let line = self.context.of_line(options, self.inside.clone());
        let stop = run(&line);
        if line.stop_at_once() {
            self.is_over.set(true);
        }
        if interrupt::is_requested() {
            return INTERRUPTED;
        }
        match stop {
            Err(Stop::Failed(report)) => line.fail(&report),
            Err(Stop::Output(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
                line.fail_with(&Report::standard_output(error), unwritten);
            }
            Err(Stop::Output(_)) => self.is_over.set(true),
            Err(Stop::Interrupted) | Ok(()) => {}
        }
        line.status()
    }

    fn exit(&self, code: &[OsString]) -> Result<u8, Report> {
        let status = match code {
            [] => self.status.get(),
            [code, ..] => {
                let number = code.to_str().and_then(|code| code.parse().ok());
                number.ok_or_else(|| {
                    Report::on("invalid exit status", code.as_bytes(), "not a number from 0 to 255")
                })?
            }
        };
        self.is_over.set(true);
        Ok(status)
    }

    fn change_directory(&self, to: &OsStr) -> Result<u8, Report> {
        let path = normal(&self.inside.path(to.as_bytes()));
        let found = self
            .volume
            .resolve(&FileSelector::Path(path.clone()), Symlinks::Follow)
            .and_then(|node| node.kind());
        match found {
            Ok(FileKind::Directory) => {
                self.inside.directory.replace(path);
                Ok(0)
            }
            Ok(_) => Err(Report::on("cannot change to", path, obento::Error::NotDirectory)),
            Err(error) => Err(Report::on("cannot change to", path, error)),
        }
    }

    fn print_directory(&self) -> Result<u8, Report> {
        let directory = self.inside.directory.borrow();
        let text =
            if io::stdout().is_terminal() { printable(&directory).into_bytes() } else { directory.clone() };
        let mut out = io::stdout().lock();
        let written = out.write_all(&text).and_then(|()| out.write_all(b"\n"));
        written.map(|()| 0).map_err(Report::standard_output)
    }
}

/// Parses the words of a command. A command that lists, without an operand, lists the current directory.
fn parse_here(mut words: Vec<OsString>, table: CommandTable) -> Result<CommandLine, clap::Error> {
    let name = words.get(1).map_or_else(Vec::new, |name| name.as_bytes().to_vec());
    let starts_with_test = |word: &OsString| matches!(word.as_bytes(), [b'-' | b'(' | b'!', ..]);
    if name == b"find" && words.get(2).is_none_or(starts_with_test) {
        words.insert(2, OsString::from("."));
    }
    let lists = matches!(&*name, b"ls" | b"tree" | b"du" | b"df" | b"lsattr");
    match (table.parse)(words.clone()) {
        Err(error) if lists && error.kind() == ErrorKind::MissingRequiredArgument => {
            words.push(OsString::from("."));
            (table.parse)(words)
        }
        parsed => parsed,
    }
}

fn change_host_directory(to: &OsStr) -> Result<u8, Report> {
    let moved = std::env::set_current_dir(to);
    moved.map(|()| 0).map_err(|error| {
        Report::new(format!("cannot change to {} on the host", subject(to.as_bytes())), error)
    })
}

/// Returns an absolute path without `.`, `..` and double slashes.
fn normal(path: &[u8]) -> Vec<u8> {
    [b"/".as_slice(), &components(path).join(&b'/')].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_path_has_no_dots_and_double_slashes() {
        for (path, expected) in [("/", "/"), ("/a//b/./c/..", "/a/b"), ("/..", "/"), ("a", "/a")] {
            assert_eq!(normal(path.as_bytes()), expected.as_bytes());
        }
    }
}
