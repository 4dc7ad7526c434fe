//! The command line: the options of every command, the tree of subcommands, and the exit code of the process.
//!
//! Exit codes follow coreutils: 0 if everything succeeded, 1 if a part failed and the rest was done, 2 for wrong usage. `ls` also
//! returns 2 for an operand that cannot be accessed, and `check` has the codes of fsck(8).

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{FromArgMatches, Parser};

use obento::Registry;
use obento::image::JournalUse;

use crate::commands::{Command, GROUPS};
use crate::context::{CommandLine, CommandTable, Context};
use crate::messages::print_error;
use crate::options::GlobalOptions;
use crate::output::Stop;
use crate::report::{HELP, Report};
use crate::shown::PresentationOptions;
use crate::usage;
use crate::words;

/// Lists, reads, copies, changes, creates and checks file systems in disk images, without root and without mounting.
#[derive(Parser, Debug)]
#[command(
    name = "obento",
    version,
    args_override_self = true,
    disable_help_flag = true,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub struct Cli {
    /// The short form of --fs-type, before the subcommand
    #[arg(short = 't', value_name = "TYPE", hide = true)]
    short_fs_type: Option<String>,
    /// The short form of --mount-options, before the subcommand
    #[arg(short = 'o', value_name = "WORDS", hide = true)]
    short_shown: Option<PresentationOptions>,
    #[command(flatten)]
    pub global: GlobalOptions,
    #[command(subcommand)]
    pub command: Command,
}

/// This command line, for the subcommands that describe or run others.
pub const TABLE: CommandTable = CommandTable {
    groups: GROUPS,
    commands: crate::help::command,
    commands_for_man: crate::help::command_for_man,
    parse: |words| parse(words).map(Cli::into_line),
};

impl Cli {
    /// Returns the options, given before or after the subcommand, and the subcommand.
    fn into_line(self) -> CommandLine {
        let mut options = self.global;
        options.fs_type = options.fs_type.or(self.short_fs_type);
        options.shown = options.shown.or(self.short_shown);
        let command = self.command;
        options.reads_all = matches!(
            command,
            Command::Check(_) | Command::Convert(_) | Command::Export(_) | Command::Recover(_)
        );
        let unwritten = command.unwritten();
        CommandLine { options, unwritten, run: Box::new(|context| command.run(context)) }
    }
}

/// Parses a command line, whose first word is the program.
///
/// # Errors
///
/// The arguments are wrong, or request help or the version.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = crate::help::command();
    let arguments = words::rewritten(&command, arguments);
    let matches = command.try_get_matches_from_mut(arguments)?;
    if let Some(name) =
        matches.subcommand_name().filter(|name| matches.get_flag("json") && !JSON.contains(name))
    {
        let cause = format!("'{name}' has no JSON output{HELP}omit --json");
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, cause));
    }
    let name = matches.subcommand_name().unwrap_or_default();
    if matches.contains_id("journal") && NO_VOLUME.contains(&name) {
        let cause =
            format!("--journal cannot be used with '{name}', which opens no volume{HELP}omit --journal");
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, cause));
    }
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if TWO_IMAGES.contains(&name) {
        cli.global.journal_use = JournalUse::Optional;
    }
    Ok(cli)
}

/// The commands that open no volume. `build` and `mkfs` refuse an external journal themselves.
const NO_VOLUME: &[&str] = &["bench", "completions", "convert", "help", "man", "part", "types", "umount"];

/// The commands with two images, of which only one may have an external journal.
const TWO_IMAGES: &[&str] = &["cmp", "cp", "diff", "mv"];

/// The commands with JSON output.
const JSON: &[&str] = &[
    "b3sum",
    "build",
    "check",
    "cmp",
    "convert",
    "df",
    "diff",
    "du",
    "file",
    "find",
    "getfattr",
    "grep",
    "info",
    "inspect",
    "ls",
    "lsattr",
    "md5sum",
    "mkfs",
    "mkfs.exfat",
    "mkfs.fat",
    "mount",
    "part",
    "prov",
    "recover",
    "resize",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "stat",
    "tree",
    "types",
    "undelete",
    "wc",
];

/// Parses the arguments, runs the subcommand with the drivers of `registry`, and returns the exit code of the process.
///
/// This is the complete program of a driver that is developed outside of obento:
///
/// ```no_run
/// # fn program(my_driver: impl obento::driver::Driver + 'static) -> std::process::ExitCode {
/// obento_cli::main(obento::Registry::default().with(my_driver))
/// # }
/// ```
pub fn main(registry: Registry) -> ExitCode {
    let as_helper = |words| run(words, registry.clone());
    if let Some(code) = crate::helper::main(as_helper) {
        return code;
    }
    run(std::env::args_os().collect(), registry).into()
}

/// Runs the subcommand that `arguments` name, and returns the exit code. The first argument is the program.
pub fn run(arguments: Vec<OsString>, registry: Registry) -> u8 {
    let cli = match parse(arguments.clone()) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            print_error(shown(&error, &arguments));
            return if is_check() { crate::commands::CHECK_USAGE } else { 2 };
        }
        Err(help) => {
            return match help.print() {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => unwritten(),
                // The reader of the help closed its pipe, which is not an error.
                _ => 0,
            };
        }
    };
    let CommandLine { options, unwritten, run } = cli.into_line();
    let registry = options.engine_of(registry);
    let context = Context::new(options, registry, TABLE);
    let stop = run(&context).err();
    context.close();
    if let Some(Stop::Failed(report)) = &stop {
        context.fail(report);
    }
    if let Some(Stop::Output(error)) = stop
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        context.fail_with(&Report::standard_output(error), unwritten);
    }
    context.end_by_signal();
    context.status()
}

/// Returns the text of an error: a report, or the help if a command without arguments prints its help.
fn shown(error: &clap::Error, arguments: &[OsString]) -> String {
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.render().to_string(),
        _ => format!("obento: {}\n", usage::report(error, "obento help", arguments)),
    }
}

/// Returns the name of the subcommand in the arguments.
fn subcommand() -> Option<String> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    words::subcommand(&crate::help::command(), &arguments).map(|(_, found)| found.get_name().to_owned())
}

/// Returns whether the arguments are those of `check`, which has its own exit codes.
fn is_check() -> bool {
    subcommand().is_some_and(|name| name == "check")
}

/// Returns the exit code of the subcommand in the arguments if its help cannot be written.
fn unwritten() -> u8 {
    let name = subcommand().unwrap_or_default();
    let pages = crate::commands::GROUPS.iter().flat_map(|(_, pages)| *pages);
    pages.into_iter().find(|(known, _)| *known == name).map_or(1, |(_, page)| page.unwritten)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_json_output_or_refuses_json() {
        let refuses = [
            "bench",
            "cat",
            "chattr",
            "chgrp",
            "chmod",
            "chown",
            "complete",
            "completions",
            "cp",
            "edit",
            "exec",
            "export",
            "fallocate",
            "getfacl",
            "head",
            "help",
            "hexdump",
            "import",
            "ln",
            "man",
            "mkdir",
            "mkfifo",
            "mknod",
            "mv",
            "readlink",
            "rm",
            "rmdir",
            "setfacl",
            "setfattr",
            "shell",
            "sync",
            "tail",
            "touch",
            "trim",
            "truncate",
            "tune",
            "umount",
            "write",
        ];
        let mut known: Vec<&str> = JSON.iter().copied().chain(refuses).collect();
        let command = crate::help::command();
        let mut names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        known.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn the_command_tree_is_consistent() {
        crate::help::command().debug_assert();
    }
}
