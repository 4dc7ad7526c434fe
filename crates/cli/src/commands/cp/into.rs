//! Copies into an image.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento::Error;
use obento::address::{Address, Operand};
use obento::copy::{
    CopyError, CopyFrom, CopyOptions, CopyReport, ImageTarget, TargetIs, copy_from_reader, copy_in,
};
use obento::driver::Access;
use obento::host::HostError;
use obento::host::sandbox::Rights;
use obento::vfs::Symlinks;
use rustix::fs::{Mode, OFlags};

use super::losses::report_losses_of_copy;
use super::watch::{CopyDisplay, Names};
use super::{Args, incomplete, source};
use crate::change::lacking::not_directory;
use crate::change::place::trimmed;
use crate::context::Context;
use crate::open::{self, Location};
use crate::output::{Outcome, Stop};
use crate::report::{Report, shell_word, subject};

/// A source, its image opened.
enum Source {
    Host(PathBuf),
    Image(Location),
}

/// Copies `sources` to `target`.
pub fn run(sources: &[OsString], target: &Address, args: &Args, context: &Context) -> Outcome {
    let from_stdin_only = sources.iter().any(|source| source == "-");
    let (hosts, options) = (hosts(sources, context), args.options()?);
    if prepare_images(&target.image, sources, context) {
        match from_stdin_only {
            true => context.seal(),
            false => confine(&hosts, &options, context),
        }
    }
    let target = open_target(target, context)?;
    if sources.iter().any(|source| source == "-") {
        return from_stdin(sources, &target, args, context);
    }
    let mut opened = Vec::new();
    for source in sources {
        match open_source(source, context) {
            Ok(source) => opened.push(source),
            Err(report) => context.warn(&report),
        }
    }
    let options = CopyOptions { spared: context.host_files(), ..options };
    confine(&hosts, &options, context);
    let mut from = Vec::new();
    for source in opened {
        match find(source, options.named_symlinks) {
            Ok(found) => from.extend(found),
            Err(report) => context.warn(&report),
        }
    }
    if from.is_empty() {
        return Ok(());
    }
    expect_directory(&target, &from, options.named_symlinks)?;
    copy(&from, &target, &options, (args.verbose, args.is_untrusted()), context).map(drop)
}

/// Opens the image of the target for change.
pub fn open_target(target: &Address, context: &Context) -> Result<ImageTarget, Report> {
    let volume = open::volume_for_change(target, target.image.as_os_str().as_bytes(), context)?;
    let location = Location::of(volume, target);
    Ok(ImageTarget {
        volume: (*location.volume).clone(),
        place: location.place,
        prefix: location.prefix.to_vec(),
    })
}

fn open_source(source: &OsString, context: &Context) -> Result<Source, Report> {
    match open::operand(source, context)? {
        Operand::Host(path) => Ok(Source::Host(path)),
        _ => open::open(source, context).map(Source::Image),
    }
}

fn find(source: Source, symlinks: Symlinks) -> Result<Vec<CopyFrom>, Report> {
    match source {
        Source::Host(path) => Ok(vec![CopyFrom::Host(path.into_os_string().into_encoded_bytes())]),
        Source::Image(location) => {
            let found = location.find(symlinks, "cannot copy")?;
            Ok(found.into_iter().map(|found| CopyFrom::Image(self::source(found))).collect())
        }
    }
}

/// The sources that are on the host.
fn hosts(sources: &[OsString], context: &Context) -> Vec<PathBuf> {
    let host = |source: &OsString| match open::operand(source, context) {
        Ok(Operand::Host(path)) => Some(path),
        _ => None,
    };
    sources.iter().filter_map(host).collect()
}

/// Opens the files of the image that is changed, and then of those that are read. Returns whether they can be decoded without rights.
fn prepare_images(target: &Path, sources: &[OsString], context: &Context) -> bool {
    if context.expect_changes_allowed(b"").is_err()
        || !open::prepare([], open::BareOperand::HostFile, Access::ReadWrite, context)
    {
        return false;
    }
    context.prepare(target, Access::ReadWrite);
    let is_image = |source: &&OsString| matches!(open::operand(source, context), Ok(Operand::Image(_)));
    open::prepare(sources.iter().filter(is_image), open::BareOperand::HostFile, Access::ReadOnly, context)
}

/// Gives up all rights except reading below the sources. Links that are followed may lead anywhere. A source that cannot be opened is
/// reported by the copy.
fn confine(hosts: &[PathBuf], options: &CopyOptions, context: &Context) {
    if hosts.is_empty() {
        return context.seal();
    }
    if options.symlinks == Symlinks::Follow && options.recursive {
        return;
    }
    let folders: Vec<OwnedFd> = hosts.iter().flat_map(|path| folders(path, options.named_symlinks)).collect();
    let trees: Vec<OwnedFd> = match options.recursive {
        true => hosts.iter().filter_map(|path| open_folder(path, options.named_symlinks)).collect(),
        false => Vec::new(),
    };
    let folders: Vec<_> = folders.iter().map(AsFd::as_fd).collect();
    let trees: Vec<_> = trees.iter().map(AsFd::as_fd).collect();
    context.confine(Rights::ReadBeneath { folders: &folders, trees: &trees });
}

fn open_folder(path: &Path, symlinks: Symlinks) -> Option<OwnedFd> {
    let links = if symlinks == Symlinks::Follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags | links, Mode::empty()).ok()
}

/// The directories that a copy of `path` reads. These are the directory that contains the last name, and the directory
/// of a link's target if the link is followed. A directory that cannot be opened is left out: the copy then reports
/// why.
fn folders(path: &Path, symlinks: Symlinks) -> impl Iterator<Item = OwnedFd> {
    let bytes = path.as_os_str().as_bytes();
    let is_name = path.file_name().is_some() && !bytes.ends_with(b"/") && !bytes.ends_with(b"/.");
    let is_link = is_name && std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = is_name.then(|| parent.to_owned());
    let followed =
        (!is_name || is_link && symlinks == Symlinks::Follow).then(|| path.canonicalize().ok()).flatten();
    let target =
        followed.and_then(|path| if path.is_dir() { Some(path) } else { path.parent().map(Path::to_owned) });
    let open = |directory: PathBuf| open_folder(&directory, Symlinks::Follow);
    named.into_iter().chain(target).filter_map(open)
}

/// Fails if the target ends in a slash, and is no directory and cannot become one.
fn expect_directory(target: &ImageTarget, sources: &[CopyFrom], symlinks: Symlinks) -> Result<(), Report> {
    let shown = target.shown();
    if !shown.ends_with(b"/") || target.directory().is_some() {
        return Ok(());
    }
    let is_directory = |source: &CopyFrom| match source {
        CopyFrom::Host(path) => {
            let path = Path::new(std::ffi::OsStr::from_bytes(path));
            let found = match symlinks {
                Symlinks::Follow => path.metadata(),
                Symlinks::Keep => path.symlink_metadata(),
            };
            found.is_ok_and(|found| found.is_dir())
        }
        CopyFrom::HostEntry(dir, name, _) => dir.enter(name).is_ok(),
        CopyFrom::Image(source) => source.node.kind() == Ok(obento::base::FileKind::Directory),
    };
    if sources.iter().all(is_directory) {
        return Ok(());
    }
    let report = Report::on("cannot copy to", &shown, "no such directory");
    Err(report.help(format!("create the directory first: obento mkdir -p {}", shell_word(trimmed(&shown)))))
}

/// Copies the sources. Returns the result, or `None` if the copy ended early, which was reported.
pub fn copy(
    from: &[CopyFrom],
    target: &ImageTarget,
    options: &CopyOptions,
    (verbose, is_untrusted): (bool, bool),
    context: &Context,
) -> Result<Option<CopyReport>, Stop> {
    let shown = target.shown();
    let into = options.target != TargetIs::Copy && target.directory().is_some();
    let names =
        verbose.then(|| Names::new(from.iter().map(|source| (source.shown(), source.name())), &shown, into));
    let mut watch = CopyDisplay::new(context, None, names).into_volume(&target.volume);
    let copied = copy_in(from, target, options, &mut watch);
    watch.finish()?;
    match copied {
        Ok(report) => {
            report_losses_of_copy(&report.written, &shown, (verbose, is_untrusted), context);
            Ok(Some(report))
        }
        Err(CopyError::Host(error @ (HostError::Limit { .. } | HostError::FileLimit { .. }))) => {
            context.warn(&incomplete(error));
            Ok(None)
        }
        Err(CopyError::Target { error: Error::NotDirectory, path }) => Err(below_file(&path, target)
            .unwrap_or_else(|| {
                super::failed("cannot copy", CopyError::Target { error: Error::NotDirectory, path })
            })
            .into()),
        Err(error) => Err(super::failed("cannot copy", error).into()),
    }
}

/// Returns the report of a copy with the address `path`, if a part of this path is not a directory.
fn below_file(path: &[u8], target: &ImageTarget) -> Option<Report> {
    let file = not_directory(&target.volume, path.strip_prefix(&*target.prefix)?)?;
    let file = subject([&*target.prefix, file].concat());
    Some(Report::on("cannot write", path, format!("{file} is not a directory")))
}

/// Writes standard input to a file of the image.
fn from_stdin(sources: &[OsString], target: &ImageTarget, args: &Args, context: &Context) -> Outcome {
    if sources.len() > 1 {
        let cause = "standard input cannot be combined with other sources";
        return Err(Report::new("cannot copy", cause)
            .help("copy the other sources with another command")
            .into());
    }
    context.seal();
    let mut watch = CopyDisplay::new(context, None, None);
    let copied = copy_from_reader(&mut io::stdin().lock(), target, &args.options()?, &mut watch);
    watch.finish()?;
    match copied {
        Ok(_) => Ok(()),
        Err(CopyError::Input(error)) => Err(Report::new("cannot read standard input", error).into()),
        Err(error) => Err(Report::new("cannot copy standard input", error).into()),
    }
}
