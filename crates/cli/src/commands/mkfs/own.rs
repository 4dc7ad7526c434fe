//! Creating types that only the kernel engine opens: by their own programs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use obento::block::BlockDevice as _;
use obento::build::EmptyMaker;
use obento::driver::{Contents, Probe, erase_signatures};
use obento::engine::tools::Maker;
use obento::engine::types::Type;
use obento::host::path_of_open;
use obento::image::{FormatTarget, ImageFile};
use obento::text::{human_size, uuid_text};
use rustix::fs::FileType;

use super::target::{Target, cannot_create, place};
use super::{Args, needs_size};
use crate::cause::Cause;
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::own::{Program, UnnamedFile};
use crate::report::{Report, printable};

/// The maximum number of lines that are kept of the output of a program.
const KEPT: usize = 64;
/// The maximum number of lines that are printed of the output of a failed program.
const LINES: usize = 6;

/// Creates a volume of `kind`.
pub fn run(args: &Args, kind: &Type, context: &Context) -> Outcome {
    let Some((shown, probe, program)) = make(args, kind, context)? else { return Ok(()) };
    let mut out = Output::stdout();
    let uuid = probe.uuid.map(uuid_text);
    if context.json() {
        let line =
            Line::new("made").bytes("path", &shown).field("made", true).field("file_system", probe.fs_type);
        let line = line.field("uuid", uuid).bytes("label", &probe.label).field("size", probe.len);
        line.field("program", program.name()).write(&mut out)?;
    } else if !args.quiet {
        out.write_name(&shown)?;
        write!(out, ": {}", probe.fs_type)?;
        if !probe.label.is_empty() {
            write!(out, " '{}'", printable(&probe.label))?;
        }
        writeln!(out, ", {}, created by {}", human_size(probe.len), program.name())?;
        if let Some(uuid) = uuid {
            writeln!(out, "  UUID      {uuid}")?;
        }
    }
    out.finish()
}

type Made = (Vec<u8>, Probe, Program);

/// Creates the volume, or nothing for a dry run.
fn make(args: &Args, kind: &Type, context: &Context) -> Result<Option<Made>, Report> {
    let name = kind.names.first().copied().unwrap_or_default();
    let maker = kind.maker.ok_or_else(|| {
        let what = format!("cannot create a file system of type '{name}'");
        Report::new(what, "obento supports no program that creates this type")
            .help(super::created_types(context.registry()))
    })?;
    refuse(args, &maker)?;
    let target = Target::parse(args)?;
    let program = program(&maker, args.label.as_ref(), "cannot create a file system on", &target.shown)?;
    if args.dry_run {
        context.note(&target.shown, format!("would run `{}`", program.line(&args.image)));
        return Ok(None);
    }
    context.expect_changes_allowed(&target.shown)?;
    let len = args.len()?;
    let needed = len.filter(|_| target.part.is_none());
    if needed.is_none() && !target.path.exists() {
        return Err(needs_size(&target.shown));
    }
    let format_target =
        FormatTarget::open(&target.path, needed).map_err(|error| cannot_create(&target.path, error))?;
    let (device, _) = place(&format_target, &target, &super::args::HostOptions::default(), args, context)?;
    if let Some(len) = len.filter(|len| *len != device.len()) {
        let cause = format!("{name} uses all {} bytes, but the size is {len}", device.len());
        let report = Report::on("cannot create a file system on", &target.shown, cause);
        return Err(report.help("omit SIZE, or change the length of the image first: truncate -s SIZE IMAGE"));
    }
    let failed = |error: &dyn Cause| Report::on("cannot create a file system on", &target.shown, error);
    let note = |place: &str| {
        context.note(&target.shown, format!("running '{}'{place}", program.line(&args.image)));
    };
    if device.len() < maker.least {
        // The previous contents stay.
        let least = human_size(maker.least);
        return Err(failed(&format!(
            "{name} requires at least {least}, but the size is {}",
            human_size(device.len())
        )));
    }
    // obento holds a block device exclusively, as some of these programs do.
    let is_file = |file: &OwnedFd| {
        rustix::fs::fstat(file)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    };
    let can_open = target.part.is_none() && !maker.locks && !maker.asks_name;
    match ImageFile::file_of(&*device).ok().filter(|file| can_open && is_file(file)) {
        Some(file) => {
            note("");
            erase_signatures(&*device, device.len(), Contents::Unknown).map_err(|error| failed(&error))?;
            // The path of the target can lead to another file by now.
            on(&program, &path_of_open(&file)).map_err(|cause| failed(&cause))?;
            device.flush().map_err(|error| failed(&error))?;
        }
        None => {
            note(", on a copy that is written back");
            let copy = made(&program, &maker, device.len()).map_err(|cause| failed(&cause))?;
            copy.put_whole(&*device).map_err(|error| failed(&error))?;
        }
    }
    let driver = context.registry().find(name);
    let probe = driver.map_or(Ok(None), |driver| driver.probe(&*device)).map_err(|error| failed(&error))?;
    let probe = probe.ok_or_else(|| failed(&format!("{} did not create {name}", program.name())))?;
    drop(device);
    format_target.keep();
    Ok(Some((target.shown, probe, program)))
}

/// Returns the program that creates a volume with this label. If the program is not installed,
/// fails with a message that starts with `action`.
pub(in crate::commands) fn program(
    maker: &Maker,
    label: Option<&OsString>,
    action: &str,
    shown: &[u8],
) -> Result<Program, Report> {
    let program = Program::find(maker.tool, action, shown)?;
    let program = program.with(maker.arguments.iter().copied());
    let label = label.zip(maker.label);
    Ok(program.with(label.into_iter().flat_map(|(label, letter)| [OsString::from(letter), label.clone()])))
}

/// Runs the program. Fails with the error output of the program.
pub(in crate::commands) fn on(program: &Program, path: &Path) -> Result<(), String> {
    let (mut lines, mut is_over) = (Vec::new(), false);
    let code = program.run(path, |line| {
        // The usage line does not explain the failure.
        is_over |= line.starts_with(b"Usage:") || lines.len() == KEPT;
        let line = printable(line.trim_ascii());
        if !line.is_empty() && !is_over {
            lines.push(line);
        }
    });
    let name = program.name();
    match code {
        Ok(Some(0)) => Ok(()),
        Ok(code) => {
            let code = code.map_or("a signal".to_owned(), |code| format!("exit status {code}"));
            let lines = explanation(&lines);
            let reason = if lines.is_empty() { String::new() } else { format!(": {}", lines.join("; ")) };
            Err(format!("{name} ended with {code}{reason}"))
        }
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Returns the lines of a failed program that explain the failure: those from the first error on. Some programs first
/// describe the device.
fn explanation(lines: &[String]) -> &[String] {
    let is_error = |line: &String| line.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    let start = lines.iter().position(is_error).unwrap_or(0);
    &lines[start..lines.len().min(start + LINES)]
}

/// Returns an empty volume of this program with a length of `len` bytes.
fn made(program: &Program, maker: &Maker, len: u64) -> Result<UnnamedFile, String> {
    if maker.asks_name {
        return UnnamedFile::made_by(len, |path| on(program, path));
    }
    let image = UnnamedFile::blank(len).map_err(|error| error.to_string())?;
    on(program, &image.path())?;
    Ok(image)
}

/// Returns the command that creates a volume in an open file of zeros.
pub(in crate::commands) fn maker(program: Program, maker: &Maker) -> EmptyMaker {
    let (maker, least) = (*maker, maker.least);
    let make = move |image: BorrowedFd<'_>| {
        if !maker.asks_name {
            return on(&program, &path_of_open(image));
        }
        let put = || {
            let image = File::from(image.try_clone_to_owned()?);
            let made = made(&program, &maker, image.metadata()?.len()).map_err(io::Error::other)?;
            made.put_over_zeros(|at, bytes| image.write_all_at(bytes, at))
        };
        put().map_err(|error| error.to_string())
    };
    EmptyMaker { make: Arc::new(make), least }
}

/// Fails for an option that the program does not support.
fn refuse(args: &Args, maker: &Maker) -> Result<(), Report> {
    let options = [
        (args.label.is_some() && maker.label.is_none(), "-L"),
        (args.block_size.is_some(), "-b"),
        (!args.features.is_empty(), "-O"),
        (!args.extended.is_empty(), "-E"),
        (args.uuid.is_some(), "-U"),
        (args.cluster_size.is_some(), "-C"),
        (args.blocks_per_group.is_some(), "-g"),
        (args.flex_bg_size.is_some(), "-G"),
        (args.inode_ratio.is_some(), "-i"),
        (args.inode_size.is_some(), "-I"),
        (args.inodes.is_some(), "-N"),
        (args.reserved_percent.is_some(), "-m"),
        (args.last_mounted.is_some(), "-M"),
        (args.usage.is_some(), "-T"),
        (args.revision.is_some(), "-r"),
        (args.errors.is_some(), "-e"),
        (args.creator_os.is_some(), "-o"),
        (args.with_journal, "-j"),
        (!args.journal_options.is_empty(), "-J"),
    ];
    if let Some((_, option)) = options.iter().find(|(given, _)| *given) {
        let name = args.fs_type.to_uppercase();
        return Err(Report::plain(format!("{option} is not available for {name}"))
            .help(format!("use {} itself, which has its own options", maker.tool.program)));
    }
    args.refuse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_program_is_printed_and_not_what_it_wrote_before() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let f2fs = lines(
            "Info: Debug level = 0\nInfo: Trim is enabled\nError: Device size is not sufficient\nError: failed",
        );
        assert_eq!(explanation(&f2fs), lines("Error: Device size is not sufficient\nError: failed"));
        let long = lines("1\n2\n3\n4\n5\n6\n7");
        assert_eq!(explanation(&long), &long[..LINES]);
        assert_eq!(explanation(&[]), &[] as &[String]);
    }
}
