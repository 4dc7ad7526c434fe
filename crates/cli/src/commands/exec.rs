//! `obento exec` and `obento edit`: run a program of the host on a file of an image.
//!
//! The image stays open and locked while the program runs, so that no other process changes the file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use obento::host::interrupt::Deferred;

use crate::change::replace::{Borrowed, IfMissing};
use crate::context::Context;
use crate::help::page::Page;
use crate::open::open_for_change;
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The default editor.
const EDITOR: &str = "vi";
/// The exit statuses of a shell that cannot start a program. Source: POSIX, Shell Command Language, 2.8.2.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;
/// The exit code of a program that a signal ended is this plus the number of the signal, as in sh.
const SIGNALLED: i32 = 128;

/// The page of `exec`.
pub const PAGE: Page = Page::new(&[
    ("obento exec disk.img:/etc/fstab -- sed -i s/sda/vda/ {}", "Change a file with a program of the host"),
    ("obento exec disk.img:/var/lib/app.db -- sqlite3 {} vacuum", "Run a database tool on a file"),
])
.exit(&[
    ("N", "The exit status of PROGRAM, or 128 plus the number of the signal that ended PROGRAM."),
    ("1", "The changes could not be written back."),
    ("2", "Wrong usage, or PROGRAM was not started."),
]);

/// The page of `edit`.
pub const EDIT_PAGE: Page = Page::new(&[
    ("obento edit disk.img:/etc/fstab", "Edit a file"),
    (
        "obento edit disk.qcow2@2:/etc/fstab",
        "Edit a file in partition 2; 'obento info disk.qcow2' lists the partitions",
    ),
])
.environment(&[
    ("VISUAL", "The editor, with its arguments."),
    ("EDITOR", "The editor if VISUAL is not set; the default is vi."),
])
.see_also(&["sudoedit(8)"]);

/// Run a program on a copy of a file, and copy changes back
///
/// Other users cannot read the copy, which is removed when this command ends. PROGRAM gets the path of the copy in place of {}, or as
/// its last argument.
///
/// Changes are copied back even if PROGRAM fails. The owner, the mode, the attributes and the hard links of the file
/// are preserved. A file with one name is replaced atomically: a crash leaves the old or the new contents. A file with several names
/// is overwritten in place.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A file in an image
    #[arg(value_name = "IMAGE:PATH")]
    path: OsString,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Edit a file with $VISUAL or $EDITOR
///
/// The editor is the program in $VISUAL, or in $EDITOR if VISUAL is not set, or else vi.
#[derive(clap::Args, Debug)]
pub struct EditArgs {
    /// A file in an image; created if it does not exist
    #[arg(value_name = "IMAGE:PATH")]
    path: OsString,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    on_copy(&args.path, IfMissing::Fail, context, |copy| {
        let holds = args.program.iter().any(|word| contains(word.as_bytes()));
        let mut words: Vec<OsString> = args.program.iter().map(|word| with_copy(word, copy)).collect();
        if !holds {
            words.push(copy.to_owned());
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    })
}

pub fn run_edit(args: &EditArgs, context: &Context) -> Outcome {
    let named = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| EDITOR.into());
    // The value may contain arguments: EDITOR='emacs -nw'.
    let mut script = editor.clone();
    script.push(" \"$@\"");
    if !is_script(&script) {
        let report = Report::on("cannot start", editor.as_bytes(), "not a command of sh");
        return Err(report.help("set VISUAL or EDITOR to the name of an editor").into());
    }
    let status = run_on_copy(&args.path, IfMissing::Make, context, |copy| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg("editor").arg(copy);
        command
    })?;
    let cause = match status.code() {
        Some(NOT_FOUND) => "the program was not found",
        Some(NOT_EXECUTABLE) => "the program cannot be executed",
        _ if status.success() => return Ok(()),
        _ => {
            // The status is that of the editor, which may have printed no reason.
            let end = match status.signal() {
                Some(signal) => format!("was ended by signal {signal}"),
                None => format!("ended with status {}", exit_code(status)),
            };
            let report = Report::plain(format!("the editor {} {end}", subject(editor.as_bytes())));
            context.fail_with(&report, exit_code(status));
            return Ok(());
        }
    };
    let report = Report::on("cannot start", editor.as_bytes(), cause);
    Err(report.help("set VISUAL or EDITOR to the name of an editor").into())
}

/// Returns whether `sh` can parse `script`. Without `sh`, the program that starts the script reports the reason.
fn is_script(script: &OsStr) -> bool {
    let mut command = Command::new("sh");
    command.arg("-n").arg("-c").arg(script).stdin(Stdio::null()).stderr(Stdio::null());
    !matches!(command.status(), Ok(status) if !status.success())
}

fn on_copy(
    path: &OsStr,
    missing: IfMissing,
    context: &Context,
    command: impl FnOnce(&OsStr) -> Command,
) -> Outcome {
    let status = run_on_copy(path, missing, context, command)?;
    context.raise(exit_code(status));
    Ok(())
}

/// Fails if the program was not started. Warns if the changes cannot be written back.
fn run_on_copy(
    path: &OsStr,
    missing: IfMissing,
    context: &Context,
    command: impl FnOnce(&OsStr) -> Command,
) -> Result<ExitStatus, Report> {
    let location = open_for_change(path, context)?;
    let borrowed = Borrowed::new(&location, missing, context.options().unpack())?;
    let mut command = command(borrowed.path().as_os_str());
    // In a shell, a failure stops the line.
    let deferred = context.inside().is_none().then(Deferred::new);
    let status = command.status().map_err(|error| {
        let report = Report::on("cannot start", command.get_program().as_bytes(), &error);
        match error.kind() {
            io::ErrorKind::NotFound => report.help("check the name of the program, and PATH"),
            _ => report,
        }
    })?;
    drop(deferred);
    if let Err(report) = borrowed.give_back() {
        context.warn(&report);
    }
    Ok(status)
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn contains(word: &[u8]) -> bool {
    word.windows(2).any(|pair| pair == b"{}")
}

/// Returns `word` with the path of the copy in place of `{}`.
fn with_copy(word: &OsStr, copy: &OsStr) -> OsString {
    let mut out = OsString::new();
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(2).position(|pair| pair == b"{}") {
        out.push(OsStr::from_bytes(&rest[..at]));
        out.push(copy);
        rest = &rest[at + 2..];
    }
    out.push(OsStr::from_bytes(rest));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_copy_replaces_braces() {
        let word = |text: &str| with_copy(OsStr::new(text), OsStr::new("/tmp/x"));
        assert_eq!(word("--in={}:{}"), OsStr::new("--in=/tmp/x:/tmp/x"));
        assert_eq!(word("{"), OsStr::new("{"));
    }
}
