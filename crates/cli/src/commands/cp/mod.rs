//! `obento cp`: files out of images (into a directory of the host, to standard output, into a device or FIFO), and from
//! the host, standard input and images into images.

pub mod across;
mod args;
mod end;
mod into;
mod stream;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento::sandbox::Rights;
use obento::{
    Access, Address, CopyError, CopyOptions, CopySource, Existing, FileKind, HostError, HostTarget, Loss,
    OpenError, Operand, TargetIs, WriteReport, copy_out_to,
};

pub use self::args::Args;
pub use self::into::open_target;
use self::watch::Watch;
pub use self::watch::with_remedy;
use crate::context::Context;
use crate::open::{self, Found, Location};
use crate::output::{Outcome, Output, Stop};
use crate::report::{Report, printable, subject};

/// Where the copies go.
enum Target {
    Stdout,
    /// A device or FIFO of the host.
    Stream(File),
    Host(PathBuf),
    /// A place of the host, followed once, or why it cannot be.
    Place(Result<HostTarget, CopyError>),
    Image(Address),
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let (sources, target) = operands(args, context)?;
    if args.insists_on_sharing() {
        let cause = "blocks cannot be shared with an image, and ext4 shares none between its files";
        return Err(Report::new("cannot copy", cause).help("--reflink=auto copies them").into());
    }
    let target = match target {
        Target::Image(target) => return into::run(sources, &target, args, context),
        target => target,
    };
    // Only sources in images can be copied from here; others are told, which takes a look at the host.
    let are_images =
        sources.iter().all(|source| matches!(open::operand(source, context), Ok(Operand::Image(_))));
    let can_wait = are_images && open::prepare(sources, open::Bare::HostFile, Access::ReadOnly, context);
    let mut opened = Vec::new();
    if !can_wait {
        opened.extend(sources.iter().map(|source| open_source(source, context)));
    }
    let spared = context.opener().host_files();
    let target = match target {
        Target::Host(path) => {
            let place = HostTarget::open(&path);
            let stream = match &place {
                Ok(place) if sources.len() == 1 => stream::open(place, &spared)?,
                _ => None,
            };
            stream.map_or(Target::Place(place), Target::Stream)
        }
        target => target,
    };
    let options = CopyOptions { spared, ..args.options()? };
    match &target {
        Target::Stdout | Target::Stream(_) => context.seal(),
        Target::Place(Ok(place)) => {
            if let Some(ground) = place.ground(options.target) {
                context.confine(Rights::WriteBeneath(&[ground.as_fd()]));
            }
        }
        // The copy reports why the target cannot be opened.
        Target::Place(Err(_)) => context.seal(),
        Target::Host(_) | Target::Image(_) => {}
    }
    if can_wait {
        opened.extend(sources.iter().map(|source| open_source(source, context)));
    }
    // Backing files that only decoding finds.
    let options = CopyOptions { spared: context.opener().host_files(), ..options };
    let mut found = Vec::new();
    for location in opened {
        match location.and_then(|location| location.find(args.named_symlinks(), "cannot copy")) {
            Ok(files) => found.extend(files),
            Err(report) => context.warn(&report),
        }
    }
    match target {
        _ if found.is_empty() => Ok(()),
        Target::Stdout => stream::write(&found, Output::stdout(), &options, context),
        Target::Stream(_) if options.tree.existing == Existing::Keep => Ok(()),
        Target::Stream(file) => stream::write(&found, BufWriter::new(file), &options, context),
        Target::Place(place) => to_host(found, &place.map_err(Report::plain)?, (args, &options), context),
        Target::Host(_) | Target::Image(_) => Ok(()),
    }
}

/// Tells the sources from the target.
fn operands<'a>(args: &'a Args, context: &Context) -> Result<(&'a [OsString], Target), Stop> {
    let missing = |what: &str| Report::new("cannot copy", format!("{what} is missing"));
    let (sources, target) = match &args.target_directory {
        Some(target) => (args.operands.as_slice(), target),
        None => match args.operands.split_last() {
            Some((target, sources)) if !sources.is_empty() => (sources, target),
            _ => {
                return Err(missing("the target")
                    .help("cp SOURCE TARGET; `.` is the directory you are in")
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

/// Opens the image of a source.
fn open_source(source: &OsStr, context: &Context) -> Result<Location, Report> {
    let failed = |cause: &str| Report::on("cannot copy", source.as_bytes(), cause);
    match open::operand(source, context)? {
        Operand::Image(_) => open::open(source, context),
        Operand::Stdio => Err(failed("standard input can only go into an image")
            .help("name a file of one as the target: cp - disk.img:/FILE")),
        Operand::Host(path) if is_image(&path, context)? => {
            let path = format!("{}:/", printable(source.as_bytes()));
            Err(failed("this names no file in an image").help(format!("all of the image is {path}")))
        }
        Operand::Host(_) => Err(failed("source and target are both on the host").help("cp(1) copies those")),
    }
}

/// Whether a source without a path is an image, opened as the options say. Errors: it is one in a container that
/// cannot be opened so.
pub fn is_image(path: &Path, context: &Context) -> Result<bool, Report> {
    if path.is_dir() {
        return Ok(false);
    }
    match context.opener().quiet_image(path, context) {
        Ok(image) => {
            let volume = image.volume(None);
            Ok(matches!(volume, Ok(_) | Err(OpenError::SeveralFileSystems { .. })))
        }
        Err(
            error @ OpenError::Host(
                HostError::Reference { .. } | HostError::Unsupported { .. } | HostError::Damaged { .. },
            ),
        ) => Err(open::cannot_open(error)),
        Err(_) => Ok(false),
    }
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
        return Err(Report::on("cannot copy to", shown, "there is no such directory").into());
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
    let mut watch = Watch::new(context, total, names);
    let copied = copy_out_to(&sources, target, options, &mut watch);
    watch.finish()?;
    match copied {
        Ok(report) => tell_losses(&report.written, shown, args.is_untrusted(), context),
        Err(CopyError::Host(error @ HostError::Limit { .. })) => {
            context.warn(&incomplete(error));
        }
        Err(error) => return Err(Report::plain(error).into()),
    }
    Ok(())
}

/// What is told where the limit ended the copy.
pub fn incomplete(error: HostError) -> Report {
    Report::new("the copy is not complete", error)
        .help("--max-bytes sets the limit; what is there is what came before it")
}

fn source(found: Found) -> CopySource {
    let Found { location, node } = found;
    let prefix = location.prefix.to_vec();
    let path = location.shown().split_off(prefix.len());
    CopySource { node, path, prefix }
}

/// The bytes that there are to copy, where that is known without a walk.
fn total(found: &[Found]) -> Option<u64> {
    found.iter().try_fold(0_u64, |total, found| {
        let attr = found.node.attr().ok().filter(|attr| attr.kind == FileKind::Regular)?;
        total.checked_add(attr.size)
    })
}

/// Says what could not be kept. Entries that are missing make the exit code 1; what only differs is told.
pub fn tell_losses(report: &WriteReport, target: &[u8], is_untrusted: bool, context: &Context) {
    for (loss, lost) in &report.lost {
        let reason = lost.examples.iter().find_map(|(_, errno)| *errno);
        let because = match reason {
            Some(_) if matches!(loss, Loss::Flags | Loss::Project) => "chattr sets them".to_owned(),
            Some(_) if *loss == Loss::Name => crate::change::lacking::NAMES.to_owned(),
            Some(errno) => crate::report::words(std::io::Error::from(errno)),
            None if is_untrusted => "--untrusted".to_owned(),
            None => "the owner is another one".to_owned(),
        };
        let example = lost.examples.first().map_or_else(String::new, |(path, _)| {
            format!(", such as {}", subject(path.as_os_str().as_bytes()))
        });
        let count = lost.count;
        context.note(target, format!("{count} {} ({because}){example}", words(*loss, count)));
        if (loss.is_entry() || *loss == Loss::Acl) && reason.is_some() {
            context.raise(1);
        }
    }
}

/// What was lost so many times.
fn words(loss: Loss, count: u64) -> &'static str {
    let (one, many) = match loss {
        Loss::Owner => ("owner not kept", "owners not kept"),
        Loss::SpecialBits => (
            "file without its set-user-ID or set-group-ID bit",
            "files without their set-user-ID or set-group-ID bits",
        ),
        Loss::Mode => ("file with other permissions", "files with other permissions"),
        Loss::Xattr => ("extended attribute not kept", "extended attributes not kept"),
        Loss::Acl => ("access control list not kept", "access control lists not kept"),
        Loss::Flags => ("file without its attribute flags", "files without their attribute flags"),
        Loss::Project => ("file without its project", "files without their projects"),
        Loss::Times => ("file with other times", "files with other times"),
        Loss::HardLink => ("hard link made as a file of its own", "hard links made as files of their own"),
        Loss::Device => ("device node not made", "device nodes not made"),
        Loss::Special => ("FIFO or socket not made", "FIFOs and sockets not made"),
        Loss::Symlink => ("symbolic link not made", "symbolic links not made"),
        Loss::Name => {
            ("entry whose name cannot be there not made", "entries whose names cannot be there not made")
        }
        _ => ("thing not kept", "things not kept"),
    };
    if count == 1 { one } else { many }
}
