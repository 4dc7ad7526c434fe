//! The report of what a copy could not keep: entries that the target cannot store, and attributes.

use std::os::unix::ffi::OsStrExt as _;

use obento::copy::{Loss, WriteReport};
use rustix::io::Errno;

use crate::context::Context;
use crate::report::{Report, subject};

/// Reports the attributes that were not preserved, and the entries that are missing. Only missing entries and access
/// control lists are errors.
pub fn report_losses(report: &WriteReport, target: &[u8], is_untrusted: bool, context: &Context) {
    report_with(report, target, is_untrusted, &|_, _| None, context);
}

/// Reports the losses of `cp`, which can follow symbolic links, and lists all entries with `-v`.
pub fn report_losses_of_copy(
    report: &WriteReport,
    target: &[u8],
    (is_verbose, is_untrusted): (bool, bool),
    context: &Context,
) {
    let hint = |loss, count| hint(loss, count, is_verbose);
    report_with(report, target, is_untrusted, &hint, context);
}

/// Returns the hint for `count` entries that `cp` cannot create.
fn hint(loss: Loss, count: u64, is_verbose: bool) -> Option<&'static str> {
    let can_list = count > 1 && !is_verbose;
    match (loss, can_list) {
        (Loss::Symlink, true) => Some("use -L to copy the files instead, or -v to list the links"),
        (Loss::Symlink, false) => Some("use -L to copy the files instead"),
        (_, true) => Some("use -v to list them"),
        (_, false) => None,
    }
}

/// Reports losses. `hint` returns the hint for entries that cannot be created, by their number.
fn report_with(
    report: &WriteReport,
    target: &[u8],
    is_untrusted: bool,
    hint: &dyn Fn(Loss, u64) -> Option<&'static str>,
    context: &Context,
) {
    for (loss, lost) in &report.lost {
        let reason = lost.examples.iter().find_map(|(_, errno)| *errno);
        let because = match reason {
            Some(_) if matches!(loss, Loss::Flags | Loss::Project) => "use chattr to set them".to_owned(),
            Some(_) if *loss == Loss::Name => crate::change::lacking::NAMES.to_owned(),
            Some(Errno::NOSPC) => "too large for the inode".to_owned(),
            Some(Errno::EXIST) => "in a directory that other users can change".to_owned(),
            // Everybody may create these files, if the file system supports their type.
            Some(Errno::PERM) if matches!(loss, Loss::Symlink | Loss::Special) => {
                "the file system does not support this type".to_owned()
            }
            Some(Errno::OPNOTSUPP) if *loss == Loss::HardLink => {
                "the file system does not support hard links".to_owned()
            }
            Some(Errno::OPNOTSUPP) if *loss == Loss::Mode => {
                "the file system does not store permissions".to_owned()
            }
            Some(Errno::RANGE) if *loss == Loss::Times => {
                "the file system cannot store these times".to_owned()
            }
            Some(errno) => crate::report::words(std::io::Error::from(errno)),
            None if is_untrusted => "--untrusted".to_owned(),
            None => "the owner differs".to_owned(),
        };
        let count = lost.count;
        let such_as = if count == 1 { ": " } else { ", such as " };
        let example = lost.examples.first().map_or_else(String::new, |(path, _)| {
            format!("{such_as}{}", subject(path.as_os_str().as_bytes()))
        });
        let what = words(*loss, count);
        if loss.is_entry() && reason.is_some() {
            let first = lost.examples.first().map(|(path, _)| path.as_os_str().as_bytes());
            let report = if first == Some(target) && count == 1 {
                Report::on("cannot create", target, because)
            } else {
                let example = example.strip_prefix(": ").map_or(example.clone(), |one| format!(", {one}"));
                Report::on(&format!("cannot create {count} {what}{example}, in"), target, because)
            };
            context.warn(&match hint(*loss, count) {
                Some(help) => report.help(help),
                None => report,
            });
            continue;
        }
        let not = if loss.is_entry() { " not created" } else { "" };
        context.note(target, format!("{count} {what}{not} ({because}){example}"));
        if *loss == Loss::Acl && reason.is_some() {
            context.raise(1);
        }
    }
}

/// Returns the words for `count` losses.
fn words(loss: Loss, count: u64) -> &'static str {
    let (one, many) = match loss {
        Loss::Owner => ("owner not preserved", "owners not preserved"),
        Loss::SpecialBits => (
            "file without its set-user-ID or set-group-ID bit",
            "files without their set-user-ID or set-group-ID bits",
        ),
        Loss::Mode => {
            ("file whose permissions are not preserved", "files whose permissions are not preserved")
        }
        Loss::Xattr => ("extended attribute not preserved", "extended attributes not preserved"),
        Loss::Acl => ("access control list not preserved", "access control lists not preserved"),
        Loss::Flags => ("file without its attribute flags", "files without their attribute flags"),
        Loss::Project => ("file without its project", "files without their projects"),
        Loss::Times => ("file whose times are not preserved", "files whose times are not preserved"),
        Loss::HardLink => ("hard link copied as a separate file", "hard links copied as separate files"),
        Loss::Device => ("device node", "device nodes"),
        Loss::Special => ("FIFO or socket", "FIFOs and sockets"),
        Loss::Symlink => ("symbolic link", "symbolic links"),
        Loss::Name => ("entry with an unsupported name", "entries with unsupported names"),
        _ => ("attribute not preserved", "attributes not preserved"),
    };
    if count == 1 { one } else { many }
}
