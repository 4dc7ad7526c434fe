//! The parts that commands which change an image share: operands, the places of new names, modes, owners, questions, and the output of
//! `-v`.
//!
//! Invariant: a command opens everything that it changes, gives up rights, and only then reads anything inside an image. A failure is
//! reported, the rest is done, and the exit code is 1.

pub mod acl;
pub mod backup;
pub mod consent;
pub mod data_ranges;
pub mod lacking;
pub mod mode;
pub mod owner;
pub mod place;
pub mod replace;
pub mod scope;

use std::ffi::OsString;
use std::io::{self, Write};

use obento::Error;
use obento::address::Operand;
use obento::driver::Access;
use obento::host::interrupt;
use obento::vfs::Symlinks;
use obento::walk::{Damage, Entry, Step, Walk};

use crate::context::Context;
use crate::open::{
    BareOperand, Found, Location, join, open, open_for_change, open_volume_for_change, operand, prepare,
    seal_before_decoding,
};
use crate::output::Output;
use crate::report::{Report, shell_word};

/// The result of a command for one operand or file.
pub type Done = Result<(), Report>;

/// Passes the place that each of `arguments` names to `act`, whether or not a file exists there. Patterns are not expanded.
pub fn each_place(arguments: &[OsString], context: &Context, act: impl FnMut(&Location) -> Done) {
    each_place_by(arguments, None, context, act);
}

/// Passes places like [`each_place`]. Opens `reference` before rights are given up, so that `act` can read it.
pub fn each_place_by(
    arguments: &[OsString],
    reference: Option<&OsString>,
    context: &Context,
    act: impl FnMut(&Location) -> Done,
) {
    if context.expect_changes_allowed(b"").is_ok() {
        let needs_no_rights = prepare(arguments, BareOperand::HostFile, Access::ReadWrite, context);
        if prepare(reference, BareOperand::Image, Access::ReadOnly, context) && needs_no_rights {
            context.seal();
        }
    }
    let opened = arguments.iter().map(|argument| open_for_change(argument, context)).collect();
    match reference.map_or(Ok(()), |reference| open_reference(reference, context)) {
        Ok(()) => each_opened(opened, context, act),
        Err(report) => context.warn(&report),
    }
}

/// Opens the image of the file that `--reference` names.
fn open_reference(reference: &OsString, context: &Context) -> Done {
    let report = match open(reference, context) {
        Ok(_) => return Ok(()),
        Err(report) => report,
    };
    Err(match operand(reference, context) {
        Ok(Operand::Host(_)) => {
            report.help("--reference names a file in an image, such as disk.img:/etc/passwd")
        }
        _ => report,
    })
}

/// Passes the volume that each of `arguments` names to `act`; the path inside is optional.
pub fn each_volume(arguments: &[OsString], context: &Context, mut act: impl FnMut(&Location) -> Done) {
    // If changes are forbidden, the files are not opened at all.
    if context.expect_changes_allowed(b"").is_ok() {
        seal_before_decoding(arguments, BareOperand::Image, Access::ReadWrite, context);
    }
    let opened = arguments.iter().map(|argument| open_volume_for_change(argument, context)).collect();
    each_opened(opened, context, |location| {
        location.expect_present()?;
        act(location)
    });
}

fn each_opened(
    opened: Vec<Result<Location, Report>>,
    context: &Context,
    mut act: impl FnMut(&Location) -> Done,
) {
    context.seal();
    for location in opened {
        if interrupt::is_requested() {
            break;
        }
        if let Err(report) = location.and_then(|location| act(&location)) {
            context.warn(&report);
        }
    }
}

/// Passes each file that `arguments` name, with patterns expanded, to `act`. `action`, such as `cannot remove`, starts the message for
/// a missing file.
pub fn each_file(
    arguments: &[OsString],
    symlinks: Symlinks,
    action: &str,
    context: &Context,
    act: impl FnMut(&Found) -> Done,
) {
    each_file_by(arguments, None, symlinks, action, context, act);
}

/// Passes files like [`each_file`]. Opens `reference` before rights are given up, so that `act` can read it.
pub fn each_file_by(
    arguments: &[OsString],
    reference: Option<&OsString>,
    symlinks: Symlinks,
    action: &str,
    context: &Context,
    mut act: impl FnMut(&Found) -> Done,
) {
    each_place_by(arguments, reference, context, |location| {
        for found in location.clone().find(symlinks, action)? {
            if interrupt::is_requested() {
                break;
            }
            if let Err(report) = act(&found) {
                context.warn(&report);
            }
        }
        Ok(())
    });
}

/// Walks the tree below `found` and passes each file with its displayed path to `act`, a directory before its entries. Failures are
/// reported.
pub fn each_below(walk: Walk, found: &Found, context: &Context, mut act: impl FnMut(&Entry, &[u8]) -> Done) {
    let top = found.shown();
    let name = |path: &[u8]| if path.is_empty() { top.clone() } else { join(&top, path) };
    for step in walk.take_while(|_| !interrupt::is_requested()) {
        let done = match step {
            Ok(entry) if entry.step == Step::Leave => continue,
            Ok(entry) => act(&entry, &name(&entry.path)),
            Err(Damage { path, error, .. }) => Err(Report::on("cannot read", name(&path), error)),
        };
        if let Err(report) = done {
            context.warn(&report);
        }
    }
}

/// Returns the umask of the process.
pub fn umask() -> u16 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    u16::try_from(mask.bits()).unwrap_or(0) & 0o777
}

/// The output of `-v` on standard output.
pub struct Verbose {
    out: Output,
    wanted: bool,
}

impl Verbose {
    pub fn new(wanted: bool) -> Self {
        Self { out: Output::stdout(), wanted }
    }

    /// Writes a line if `-v` was given. A closed pipe does not interrupt a change.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if self.wanted {
            let _ = writeln!(self.out, "{}", line());
        }
    }

    pub fn finish(self) -> crate::output::Outcome {
        match self.out.finish() {
            Err(crate::output::Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            done => done,
        }
    }
}

/// Returns `report` of `error` on the file `shown`, with a hint about flags if the error is `NotPermitted`: only flags
/// forbid the change to the owner of the volume.
pub fn immutable(report: Report, error: Error, shown: impl AsRef<[u8]>) -> Report {
    if error != Error::NotPermitted {
        return report;
    }
    let shown = shown.as_ref();
    let file = shell_word(shown);
    let Some(directory) = directory_of(shown).map(shell_word) else {
        return report.help(format!(
            "the file may be immutable or append-only: 'obento lsattr -d {file}' shows the flags, and 'obento chattr \
             -ia {file}' removes them"
        ));
    };
    report.help(format!(
        "the file or its directory may be immutable or append-only: 'obento lsattr -d {file} {directory}' shows the \
         flags, and 'obento chattr -ia' removes them from the file or the directory"
    ))
}

/// Returns the address of the directory of the file with the address `shown`, or `None` for a root or an inode number.
fn directory_of(shown: &[u8]) -> Option<&[u8]> {
    let root = shown.windows(2).position(|pair| pair == b":/")? + 1;
    let path = shown[root..].trim_ascii_end();
    let end = path.iter().rposition(|&byte| byte != b'/')?;
    let slash = path[..end].iter().rposition(|&byte| byte == b'/')?;
    Some(&shown[..root + slash.max(1)])
}

/// Returns whether `error` is that a file does not exist.
pub fn is_missing(error: Error) -> bool {
    error == Error::NotFound || error == Error::NotDirectory
}
