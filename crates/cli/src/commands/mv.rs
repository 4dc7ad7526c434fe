//! `obento mv`: renames files within an image, and moves files between the host and images.
//!
//! A move within an image is one rename, which a crash leaves done or not done. Any other move is a copy, after which the source is
//! removed.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;

use clap::ValueEnum;
use obento::address::FileSelector;
use obento::base::{FileKind, NameBuf};
use obento::copy::{Backup, Shortage};
use obento::driver::{Cookie, RenameFlags};
use obento::host::{interrupt, take_place};
use obento::vfs::{Caller, Symlinks};
use obento::{Error, Node};

use super::cp::across::{self, Moves, Replace};
use crate::cause::Cause;
use crate::change::backup::BackupArgs;
use crate::change::consent::agrees;
use crate::change::place::{NameInDirectory, trimmed};
use crate::change::{Done, Verbose, immutable};
use crate::context::Context;
use crate::help::page::{BACKUP, Page};
use crate::open::{Found, Location, open_for_change};
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The page of `mv`.
pub const PAGE: Page = Page::new(&[
    ("obento mv disk.img:/a disk.img:/b", "Rename a file"),
    ("obento mv disk.img:/var/log/old.log .", "Move a file to the host"),
])
.environment(BACKUP)
.see_also(&["mv(1)", "rename(2)"]);

/// Move and rename files
///
/// Between the host and an image, or between images, everything is copied first, to a name that starts with .obento-unfinished- beside
/// the target. The complete copy is renamed to the target, and then the source is removed.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento mv [OPTIONS] <SOURCE>... <TARGET>\n       obento mv [OPTIONS] -t <IMAGE:DIR> <SOURCE>..."
)]
pub struct Args {
    /// Replace existing files (the default), and also a disk image that is the target: disk.img without ':/'
    #[arg(short, long, overrides_with_all = ["interactive", "no_clobber"])]
    force: bool,
    /// Ask before replacing a file
    #[arg(short, long, overrides_with_all = ["force", "no_clobber"])]
    interactive: bool,
    /// Do not replace files
    #[arg(short, long, overrides_with_all = ["force", "interactive"], conflicts_with_all = ["backup", "existing"])]
    no_clobber: bool,
    /// Select which files are replaced; -u is --update=older
    #[arg(short, long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "older")]
    update: Option<Update>,
    /// Exchange source and target
    #[arg(long, conflicts_with_all = ["no_clobber", "update"])]
    exchange: bool,
    #[command(flatten)]
    backup: BackupArgs,
    /// Print each moved file
    #[arg(short, long)]
    verbose: bool,
    /// Treat the last operand as the new name, even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Move all sources into DIR
    #[arg(short = 't', long, value_name = "IMAGE:DIR")]
    target_directory: Option<OsString>,
    /// Remove trailing slashes from sources
    #[arg(long)]
    strip_trailing_slashes: bool,
    /// Ignored, for compatibility: a move within an image never copies
    #[arg(long, hide = true)]
    no_copy: bool,
    /// The sources and the target: addresses (IMAGE:PATH) or host paths
    #[arg(required = true, value_name = "PATH")]
    operands: Vec<OsString>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Update {
    /// All files
    All,
    /// No files
    None,
    /// No files, and an existing file is an error
    NoneFail,
    /// Files that are older than the source
    Older,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let (sources, last) = match (&args.target_directory, args.operands.split_last()) {
        (Some(dir), _) => (args.operands.as_slice(), dir),
        (None, Some((last, sources))) if !sources.is_empty() => (sources, last),
        (None, _) => {
            let report = Report::new("cannot move", "missing target");
            return Err(report.help("usage: obento mv IMAGE:SOURCE IMAGE:TARGET").into());
        }
    };
    if args.no_target_directory && sources.len() > 1 {
        return Err(Report::new("cannot move", "-T requires exactly one source and one target").into());
    }
    if across::concerns(sources, last, context) {
        return move_across(args, sources, last, context);
    }
    let mut mover = Mover {
        args,
        context,
        backup: args.backup.backup()?,
        verbose: Verbose::new(args.verbose),
        moved: Vec::new(),
    };
    if let Err(report) = mover.all(sources, last) {
        context.warn(&report);
    }
    mover.verbose.finish()
}

fn move_across(args: &Args, sources: &[OsString], target: &OsStr, context: &Context) -> Outcome {
    if args.exchange || args.no_copy {
        let what = if args.exchange { "--exchange" } else { "--no-copy" };
        return Err(Report::new(
            "cannot move",
            format!("{what} requires that source and target are in one image"),
        )
        .into());
    }
    let replace = match args.update {
        _ if args.no_clobber => Replace::Never,
        Some(Update::None | Update::NoneFail) => Replace::Never,
        Some(Update::Older) => Replace::Older,
        _ if args.interactive => Replace::Ask,
        _ => Replace::Always,
    };
    let (is_copy, into) = (args.no_target_directory, args.target_directory.is_some());
    let moves = Moves { replace, is_copy, into, backup: args.backup.backup()?, may_lose_image: args.force };
    let mut verbose = Verbose::new(args.verbose);
    if let Err(report) = across::run(sources, target, &moves, &mut verbose, context) {
        context.warn(&report);
    }
    verbose.finish()
}

/// The reason why a second source with the same name is not moved.
pub const JUST_MOVED: &str = "this command has already moved another source there";

/// Returns whether the directory has an entry with exactly this name.
fn is_listed(spot: &NameInDirectory) -> Result<bool, Error> {
    let mut is_listed = false;
    spot.dir.read_dir(Cookie::START, &mut |entry| {
        is_listed |= entry.is_ok_and(|entry| *entry.name == *spot.name);
        if is_listed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(is_listed)
}

/// Returns whether the path of `to` leads through the directory `source`.
fn is_inside(to: &Location, source: &Found) -> bool {
    let FileSelector::Path(path) = &to.place else { return false };
    let mut ends = path.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0);
    let above = |at: usize| to.volume.resolve(&FileSelector::Path(path[..at].to_vec()), Symlinks::Follow);
    ends.any(|(at, _)| above(at).is_ok_and(|node| node == source.node))
}

struct Mover<'a> {
    args: &'a Args,
    context: &'a Context,
    /// The treatment of files that are replaced.
    backup: Backup,
    verbose: Verbose,
    /// The files that were moved, which another source must not replace.
    moved: Vec<Node>,
}

impl Mover<'_> {
    fn all(&mut self, sources: &[OsString], last: &OsStr) -> Done {
        if across::is_on_host(sources, last, self.context) {
            let cause = "source and target are both on the host";
            return Err(Report::on("cannot move to", last.as_encoded_bytes(), cause)
                .help("use mv(1); a path in an image has the form disk.img:/PATH"));
        }
        let last_word = last.to_owned();
        let operands = sources.iter().chain([&last_word]);
        crate::open::seal_before_decoding(
            operands,
            crate::open::BareOperand::HostFile,
            obento::driver::Access::ReadWrite,
            self.context,
        );
        let target = open_for_change(last, self.context)?;
        let opened: Vec<_> = sources.iter().map(|source| open_for_change(source, self.context)).collect();
        self.context.seal();
        let mut found = Vec::new();
        for location in opened {
            match location.and_then(|location| self.find(location)) {
                Ok(files) => found.extend(files),
                Err(report) => self.context.warn(&report),
            }
        }
        let target_node = target.volume.resolve(&target.place, Symlinks::Follow);
        let is_dir = target_node.as_ref().is_ok_and(|node| node.kind() == Ok(FileKind::Directory));
        let must = self.args.target_directory.is_some() || sources.len() > 1 || found.len() > 1;
        if must && !is_dir {
            return Err(match target_node.err() {
                Some(Error::NotFound) => across::no_directory(&target.shown(), true),
                cause => Report::on("cannot move into", target.shown(), cause.unwrap_or(Error::NotDirectory)),
            });
        }
        let into = must || is_dir && !self.args.no_target_directory;
        for source in found {
            let to = if into { target.child(source.location.base_name()) } else { target.clone() };
            if let Err(report) = self.one(&source, &to) {
                self.context.warn(&report);
            }
            if interrupt::is_requested() {
                break;
            }
        }
        Ok(())
    }

    fn find(&self, mut location: Location) -> Result<Vec<Found>, Report> {
        if let FileSelector::Path(path) = &mut location.place
            && self.args.strip_trailing_slashes
        {
            path.truncate(trimmed(path).len().max(1));
        }
        location.find(Symlinks::Keep, "cannot access")
    }

    fn one(&mut self, source: &Found, to: &Location) -> Done {
        let failed = |cause: &dyn Cause| {
            let what = format!("cannot move {} to", subject(source.shown()));
            Report::on(&what, to.shown(), cause)
        };
        if source.location.volume.vfs().root() != to.volume.vfs().root() {
            return Err(failed(&Error::CrossDevice)
                .help("use 'obento cp -a' and then 'obento rm -r' to move a file to another image"));
        }
        let from = source.location.spot().map_err(|error| match error == Error::Invalid {
            true if source.node.is_root() => failed(&"the root directory cannot be moved"),
            true => failed(&"the path must end with a name, not with . or .."),
            false => failed(&error),
        })?;
        let spot = to.spot().map_err(|error| match error == Error::Invalid {
            true => failed(&Error::Exists),
            false => to.in_missing_directory(failed(&error), error),
        })?;
        let is_dir = source.node.kind() == Ok(FileKind::Directory);
        if spot.slash && !is_dir {
            return Err(failed(&Error::NotDirectory));
        }
        if from.slash && from.occupant().is_ok_and(|link| link.is_some_and(|link| link != source.node)) {
            return Err(failed(&Error::NotDirectory).help("omit the trailing slash to move the link itself"));
        }
        let occupant = spot.occupant().map_err(|error| to.with_cause(failed(&error), error))?;
        if let Some(occupant) = &occupant
            && !self.may_replace(source, &from, occupant, to, &spot)?
        {
            return Ok(());
        }
        let kept = self.rename(source, &from, occupant.as_ref(), &spot).map_err(|error| {
            // An invalid name has the same error.
            let is_loop = is_dir && error == Error::Invalid && is_inside(to, source);
            if let Some(advice) = to.name_advice(error).filter(|_| !is_loop) {
                return failed(&"invalid name").help(advice);
            }
            // A rename needs no inode.
            let is_full = |shortage: &Shortage| *shortage == Shortage::Entries;
            if let Some(shortage) = Shortage::find(to.volume.vfs(), error).filter(is_full) {
                return failed(&shortage);
            }
            if error == Error::Invalid && self.args.exchange {
                let what = format!("cannot exchange {} and", subject(source.shown()));
                return Report::on(&what, to.shown(), "one path contains the other");
            }
            match (error == Error::Invalid && is_dir, error == Error::NotEmpty) {
                (true, _) => failed(&"a directory cannot be moved into itself"),
                (_, true) => failed(&error).help("use 'obento rm -r' to remove the target first"),
                _ => immutable(failed(&error), error, source.shown()),
            }
        })?;
        self.moved.push(source.node.clone());
        self.verbose.say(|| {
            let verb = if self.args.exchange { ("exchanged", "<->") } else { ("renamed", "->") };
            let backup = kept.map_or_else(String::new, |kept| {
                format!(" (backup: {})", subject(to.sibling(kept.as_bytes()).shown()))
            });
            format!("{} {} {} {}{backup}", verb.0, subject(source.shown()), verb.1, subject(to.shown()))
        });
        Ok(())
    }

    /// Renames the file, and returns the name of the backup.
    fn rename(
        &self,
        source: &Found,
        from: &NameInDirectory,
        occupant: Option<&Node>,
        to: &NameInDirectory,
    ) -> Result<Option<NameBuf>, Error> {
        let vfs = source.node.vfs();
        let ends = ((&from.dir, &*from.name), (&to.dir, &*to.name));
        if occupant == Some(&source.node) && !self.args.exchange {
            // If the volume treats both names as equal, the name changes. Between two names of a file, a rename would keep both.
            if from.dir == to.dir && !(is_listed(from)? && is_listed(to)?) {
                return vfs.rename(&Caller::Owner, ends.0, ends.1, RenameFlags::empty()).map(|()| None);
            }
            return vfs.unlink(&Caller::Owner, &from.dir, &from.name).map(|()| None);
        }
        if self.args.exchange {
            return vfs.rename(&Caller::Owner, ends.0, ends.1, RenameFlags::EXCHANGE).map(|()| None);
        }
        take_place(ends.0, ends.1, &self.backup, |_| false)
    }

    /// Returns whether the target may be replaced. Fails if it must not be replaced.
    fn may_replace(
        &self,
        source: &Found,
        from: &NameInDirectory,
        occupant: &Node,
        to: &Location,
        spot: &NameInDirectory,
    ) -> Result<bool, Report> {
        let (shown, target) = (subject(source.shown()), subject(to.shown()));
        if from.dir == spot.dir && from.name == spot.name {
            return Err(Report::new("cannot move", format!("{shown} and {target} are the same file")));
        }
        if self.args.exchange {
            return Ok(true);
        }
        let is_dir = |node: &Node| node.kind() == Ok(FileKind::Directory);
        match self.args.update {
            _ if self.args.no_clobber => return Ok(false),
            Some(Update::None) => return Ok(false),
            Some(Update::NoneFail) => {
                return Err(Report::new(format!("cannot replace {target}"), Error::Exists));
            }
            Some(Update::Older) if !is_dir(occupant) => {
                let mtime = |node: &Node| node.attr().map(|attr| attr.mtime);
                let is_older = mtime(occupant).and_then(|old| mtime(&source.node).map(|new| old < new));
                if !is_older.map_err(|error| Report::new(format!("cannot access {target}"), error))? {
                    return Ok(false);
                }
            }
            _ => {}
        }
        if self.moved.contains(occupant) && *occupant != source.node && self.backup != Backup::Numbered {
            return Err(Report::new(format!("cannot replace {target} with {shown}"), JUST_MOVED));
        }
        if is_dir(&source.node) != is_dir(occupant) && self.backup == Backup::None {
            let cause = if is_dir(occupant) {
                "the target is a directory, but the source is not"
            } else {
                "the source is a directory, but the target is not"
            };
            return Err(Report::new(format!("cannot replace {target} with {shown}"), cause));
        }
        Ok(!self.args.interactive || agrees(&format!("replace {target}?")))
    }
}
