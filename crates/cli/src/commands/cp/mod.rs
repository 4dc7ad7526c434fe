//! `obento cp`: copies files between images and the host. It copies out of images to a directory of the host, standard
//! output, a device or FIFO. It copies from the host, standard input and images into images.

pub mod across;
mod args;
mod end;
mod into;
mod losses;
mod stream;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use obento::address::{Address, Operand};
use obento::base::FileKind;
use obento::copy::{
    Backup, CopyError, CopyOptions, CopySource, Existing, HostTarget, TargetIs, TreeOptions, copy_out_to,
};
use obento::driver::Access;
use obento::host::HostError;
use obento::host::sandbox::Rights;
use obento::{Error, OpenError};
use rustix::io::Errno;

pub use self::args::Args;
pub use self::into::open_target;
pub use self::losses::report_losses;
use self::losses::report_losses_of_copy;
use self::watch::CopyDisplay;
use crate::change::place::trimmed;
use crate::context::Context;
use crate::help::page::{BACKUP, Page};
use crate::limit::DataLimit;
use crate::open::{self, Found, Location};
use crate::output::{Outcome, Output, Stop};
use crate::replaced::OldFile;
use crate::report::{Report, shell_word};

/// The target of copies.
enum Target {
    Stdout,
    /// A device or FIFO of the host, and its path.
    Stream(File, PathBuf),
    Host(PathBuf),
    /// A place on the host, or the error of following its path.
    Place(Result<HostTarget, CopyError>),
    Image(Address),
}

/// The page of `cp`.
pub const PAGE: Page = Page::new(&[
    ("obento cp -a disk.img:/etc backup", "Copy a directory out of an image"),
    ("obento cp -a site disk.img:/srv/", "Copy a directory into an image"),
    ("obento cp --untrusted -a disk.img:/home .", "Copy without special bits or device nodes"),
])
.environment(BACKUP)
.see_also(&["cp(1)"]);

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let (sources, target) = operands(args, context)?;
    if args.insists_on_sharing() {
        let cause = "--reflink=always is not supported: obento cannot share blocks between files";
        return Err(Report::new("cannot copy", cause).help("use --reflink=auto to copy the data").into());
    }
    let target = match target {
        Target::Image(target) => return into::run(sources, &target, args, context),
        target => target,
    };
    // Only sources in images are copied here; others are reported, which reads the host.
    let are_images =
        sources.iter().all(|source| matches!(open::operand(source, context), Ok(Operand::Image(_))));
    let can_wait =
        are_images && open::prepare(sources, open::BareOperand::HostFile, Access::ReadOnly, context);
    let mut opened = Vec::new();
    if !can_wait {
        let host = match &target {
            Target::Host(path) => Some(path.as_path()),
            _ => None,
        };
        opened.extend(sources.iter().map(|source| open_source(source, host, context)));
    }
    let spared = context.host_files();
    // Opened here, since the rights are given up before it is decoded.
    let old = match &target {
        Target::Host(path) if !args.may_lose_image() => OldFile::open(path),
        _ => None,
    };
    let target = match target {
        Target::Host(path) => {
            let place = HostTarget::open(&path);
            let stream = match &place {
                Ok(place) if sources.len() == 1 => stream::open(place, &spared)?,
                _ => None,
            };
            stream.map_or(Target::Place(place), |file| Target::Stream(file, path))
        }
        target => target,
    };
    let options = CopyOptions { spared, ..args.options()? };
    match &target {
        Target::Stdout | Target::Stream(..) => context.seal(),
        Target::Place(Ok(place)) => {
            if let Some(directory) = place.write_root(options.target) {
                context.confine(Rights::WriteBeneath(&[directory.as_fd()]));
            }
        }
        // The copy reports why the target cannot be opened.
        Target::Place(Err(_)) => context.seal(),
        Target::Host(_) | Target::Image(_) => {}
    }
    if can_wait {
        opened.extend(sources.iter().map(|source| open_source(source, None, context)));
    }
    // Backing files that only decoding finds.
    let options = CopyOptions { spared: context.host_files(), ..options };
    let mut found = Vec::new();
    for location in opened {
        match location.and_then(|location| location.find(args.named_symlinks(), "cannot copy")) {
            Ok(files) => found.extend(files),
            Err(report) => context.warn(&report),
        }
    }
    match target {
        _ if found.is_empty() => Ok(()),
        Target::Stdout => stream::write(&found, (Output::stdout(), None), &options, context),
        Target::Stream(..) if options.tree.existing == Existing::Keep => Ok(()),
        Target::Stream(file, path) => {
            stream::write(&found, (BufWriter::new(file), Some(&path)), &options, context)
        }
        Target::Place(place) => {
            let options = limited(options, &found, args, context);
            let place = place.map_err(no_directory)?;
            if let Some(old) = old.filter(|_| loses_old(&found, place.path(), &options.tree)) {
                let shown = place.path().as_os_str().as_bytes();
                old.expect_no_image("cannot copy to", shown, "--force to replace the image", context)?;
            }
            to_host(found, &place, (args, &options), context)
        }
        Target::Host(_) | Target::Image(_) => Ok(()),
    }
}

/// Returns whether the copy replaces the file `target` by a file with another name. An image may be copied again over
/// its last copy, which has the same name.
fn loses_old(found: &[Found], target: &Path, tree: &TreeOptions) -> bool {
    // With `--update`, the user expects that the target exists.
    let is_kept = matches!(tree.existing, Existing::Keep | Existing::Update) || tree.backup != Backup::None;
    let name = target.file_name().map(OsStr::as_bytes);
    !is_kept && found.iter().any(|found| Some(found.location.base_name()) != name)
}

/// Separates the sources from the target.
fn operands<'a>(args: &'a Args, context: &Context) -> Result<(&'a [OsString], Target), Stop> {
    let missing = |what: &str| Report::new("cannot copy", format!("missing {what}"));
    let (sources, target) = match &args.target_directory {
        Some(target) => (args.operands.as_slice(), target),
        None => match args.operands.split_last() {
            Some((target, sources)) if !sources.is_empty() => (sources, target),
            _ => {
                return Err(missing("target")
                    .help("usage: obento cp SOURCE... TARGET; . is the current directory")
                    .into());
            }
        },
    };
    let target = match open::operand(target, context)? {
        Operand::Stdio => Target::Stdout,
        Operand::Host(path) => Target::Host(path),
        Operand::Image(address) => Target::Image(address),
    };
    Ok((sources, target))
}

/// Opens the image of a source. The help for a source on the host depends on the host path of the target.
fn open_source(source: &OsStr, target: Option<&Path>, context: &Context) -> Result<Location, Report> {
    let failed = |cause: &str| Report::on("cannot copy", source.as_bytes(), cause);
    match open::operand(source, context)? {
        Operand::Image(_) => open::open(source, context),
        Operand::Stdio => Err(failed("standard input can only be copied into an image")
            .help("name a file in an image as the target: obento cp - disk.img:/FILE")),
        Operand::Host(path) if is_image(&path, context)? => {
            let path = shell_word([source.as_bytes(), b":/"].concat());
            let help = format!("use {path} for the root directory of the image");
            let copy = target.map_or("", |_| ", or cp(1) to copy the image itself");
            Err(failed("not a path inside an image").help(help + copy))
        }
        Operand::Host(_) => {
            let report = failed("source and target are both on the host");
            let image = target.filter(|path| path.is_file() && is_image(path, context).unwrap_or(false));
            Err(match image.map(|path| path.as_os_str().as_bytes()) {
                Some(image) => {
                    let root = shell_word([image, b":/"].concat());
                    report.help(format!(
                        "{} is an image; use {root} for its root directory",
                        crate::report::subject(image)
                    ))
                }
                None => match target.and_then(|path| open::partition_hint(path.as_os_str().as_bytes())) {
                    Some(_) => {
                        let place = target.map_or(&b""[..], |path| path.as_os_str().as_bytes());
                        let root = shell_word([place, b":/"].concat());
                        report.help(format!("use {root} for the root directory of the partition"))
                    }
                    None => report.help("use cp(1); a path in an image has the form disk.img:/PATH"),
                },
            })
        }
    }
}

/// Returns whether a source without a path is an image that the options can open. Fails if it is one, but its
/// container cannot be opened with these options.
pub fn is_image(path: &Path, context: &Context) -> Result<bool, Report> {
    if path.is_dir() {
        return Ok(false);
    }
    match context.examined_image(path) {
        Ok(image) => {
            let volume = image.volume(None);
            Ok(matches!(volume, Ok(_) | Err(OpenError::SeveralFileSystems { .. })))
        }
        Err(
            error @ OpenError::Host(
                HostError::Reference { .. }
                | HostError::Unsupported { .. }
                | HostError::WrongCounts { .. }
                | HostError::Damaged { .. },
            ),
        ) => Err(open::cannot_open(error)),
        Err(_) => Ok(false),
    }
}

/// Returns `options` with the usual limit of bytes, if the images are not trusted and no other limit is given.
fn limited(mut options: CopyOptions, found: &[Found], args: &Args, context: &Context) -> CopyOptions {
    if args.is_untrusted() && options.tree.max_bytes == u64::MAX {
        let mut volumes: Vec<_> = found.iter().map(|found| &found.location.volume).collect();
        volumes.sort_unstable_by_key(|volume| Rc::as_ptr(volume));
        volumes.dedup_by_key(|volume| Rc::as_ptr(volume));
        let limits = volumes.iter().map(|volume| DataLimit::of(volume, context.options().unpack()).bytes());
        options.tree.max_bytes = limits.fold(0, u64::saturating_add);
    }
    options
}

fn to_host(
    found: Vec<Found>,
    target: &HostTarget,
    (args, options): (&Args, &CopyOptions),
    context: &Context,
) -> Outcome {
    let total = total(&found);
    let shown = target.path().as_os_str().as_bytes();
    let needs_directory = shown.ends_with(b"/") && !target.is_directory();
    if needs_directory && found.iter().any(|found| found.node.kind() != Ok(FileKind::Directory)) {
        let report = Report::on("cannot copy to", shown, "no such directory");
        let directory = shell_word(trimmed(shown));
        return Err(report.help(format!("create the directory first: mkdir -p {directory}")).into());
    }
    let sources: Vec<_> = found.into_iter().map(source).collect();
    let into = match options.target {
        TargetIs::Directory => true,
        TargetIs::Copy => false,
        TargetIs::Either => target.is_directory(),
    };
    let names = args.verbose.then(|| {
        let sources = sources.iter().map(|s| ([&s.prefix[..], &s.path].concat(), s.name()));
        watch::Names::new(sources, shown, into)
    });
    let mut watch = CopyDisplay::new(context, total, names);
    context.stop_between_steps();
    let copied = copy_out_to(&sources, target, options, &mut watch);
    watch.finish()?;
    match copied {
        Ok(report) => {
            report_losses_of_copy(&report.written, shown, (args.verbose, args.is_untrusted()), context)
        }
        Err(CopyError::Host(error @ (HostError::Limit { .. } | HostError::FileLimit { .. }))) => {
            context.warn(&incomplete(error));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Returns the report that the directory of the target cannot be opened.
fn no_directory(error: CopyError) -> Report {
    let report = Report::from(&error);
    match error {
        CopyError::Host(HostError::System { path, errno: Errno::NOENT, .. }) => {
            let directory = shell_word(path.as_os_str().as_bytes());
            report.help(format!("create the directory first: mkdir -p {directory}"))
        }
        _ => report,
    }
}

/// Returns the report of an error that ended `action`.
pub fn failed(action: &str, error: CopyError) -> Report {
    match error {
        CopyError::Target { error: Error::NotFound, ref path } => {
            let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(path.len());
            let directory = shell_word(&path[..end]);
            Report::plain(error).help(format!("create the directory first: obento mkdir -p {directory}"))
        }
        CopyError::NotDirectory { ref target, exists: false } => {
            let directory = shell_word(target.as_os_str().as_bytes());
            Report::plain(error).help(format!("create the directory first: obento mkdir -p {directory}"))
        }
        CopyError::Volume(_) | CopyError::Problem(_) => Report::new(action, error),
        error => error.into(),
    }
}

/// Returns the report that the limit ended the copy.
pub fn incomplete(error: HostError) -> Report {
    let option = if matches!(error, HostError::FileLimit { .. }) { "--max-files" } else { "--max-bytes" };
    Report::new("the copy is incomplete", error)
        .help(format!("{option} sets this limit; the files that were copied before remain"))
}

fn source(found: Found) -> CopySource {
    let Found { location, node } = found;
    let prefix = location.prefix.to_vec();
    let path = location.shown().split_off(prefix.len());
    CopySource { node, path, prefix }
}

/// Returns the bytes to copy, if they are known without a walk.
fn total(found: &[Found]) -> Option<u64> {
    found.iter().try_fold(0_u64, |total, found| {
        let attr = found.node.attr().ok().filter(|attr| attr.kind == FileKind::Regular)?;
        total.checked_add(attr.size)
    })
}
