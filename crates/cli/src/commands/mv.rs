//! `obento mv`: gives files other names within an image, and moves them between the host and images.
//!
//! A move within an image is one rename: it is there wholly or not at all, also after a crash. Any other is a copy, after
//! which the source goes.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;

use clap::ValueEnum;
use obento::{Backup, Caller, Cookie, Error, FileKind, NameBuf, Node, RenameFlags, Symlinks, take_place};

use super::cp::across::{self, Moves, Replace};
use crate::change::backup::BackupArgs;
use crate::change::consent::agrees;
use crate::change::place::{Spot, trimmed};
use crate::change::{Done, Tell};
use crate::context::Context;
use crate::open::{Found, Location, open_for_change};
use crate::output::Outcome;
use crate::report::{Report, subject};

/// Move and rename files
///
/// Between the host and an image, and from one image to another, all is copied first, under a name that starts with
/// .obento-unfinished- beside the target, which it takes the place of once it is whole; only then the source goes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Replace what is there, which is the default
    #[arg(short, long, overrides_with_all = ["interactive", "no_clobber"])]
    force: bool,
    /// Ask before something is replaced
    #[arg(short, long, overrides_with_all = ["force", "no_clobber"])]
    interactive: bool,
    /// Replace nothing
    #[arg(short, long, overrides_with_all = ["force", "interactive"], conflicts_with_all = ["backup", "existing"])]
    no_clobber: bool,
    /// What to replace; -u is --update=older
    #[arg(short, long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "older")]
    update: Option<Update>,
    /// Let the two change places
    #[arg(long, conflicts_with_all = ["no_clobber", "update"])]
    exchange: bool,
    #[command(flatten)]
    backup: BackupArgs,
    /// Name each file that is moved
    #[arg(short, long)]
    verbose: bool,
    /// The last operand is a file or directory of this very name, and not a directory to move into
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Move everything into DIR
    #[arg(short = 't', long, value_name = "IMAGE:DIR")]
    target_directory: Option<OsString>,
    /// Take slashes off the ends of sources
    #[arg(long)]
    strip_trailing_slashes: bool,
    /// Accepted and ignored: within an image nothing is copied
    #[arg(long, hide = true)]
    no_copy: bool,
    /// What to move, and where to
    #[arg(required = true, value_name = "IMAGE:SOURCE... IMAGE:TARGET")]
    operands: Vec<OsString>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Update {
    /// Everything
    All,
    /// Nothing
    None,
    /// Nothing, and it is an error
    NoneFail,
    /// What is older than the source
    Older,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let (sources, last) = match (&args.target_directory, args.operands.split_last()) {
        (Some(dir), _) => (args.operands.as_slice(), dir),
        (None, Some((last, sources))) if !sources.is_empty() => (sources, last),
        (None, _) => {
            let report = Report::new("cannot move", "it is not said where to");
            return Err(report.help("obento mv IMAGE:SOURCE IMAGE:TARGET").into());
        }
    };
    if args.no_target_directory && sources.len() > 1 {
        return Err(Report::new("cannot move", "with -T there is one source and one target").into());
    }
    if across::concerns(sources, last, context) {
        return move_across(args, sources, last, context);
    }
    let mut mover = Mover {
        args,
        context,
        backup: args.backup.backup()?,
        tell: Tell::new(args.verbose),
        moved: Vec::new(),
    };
    if let Err(report) = mover.all(sources, last) {
        context.warn(&report);
    }
    mover.tell.finish()
}

fn move_across(args: &Args, sources: &[OsString], target: &OsStr, context: &Context) -> Outcome {
    if args.exchange || args.no_copy {
        let what = if args.exchange { "change places" } else { "be moved without a copy" };
        return Err(Report::new("cannot move", format!("only what is in one image can {what}")).into());
    }
    let replace = match args.update {
        _ if args.no_clobber => Replace::Never,
        Some(Update::None | Update::NoneFail) => Replace::Never,
        Some(Update::Older) => Replace::Older,
        _ if args.interactive => Replace::Ask,
        _ => Replace::Always,
    };
    let (is_copy, into) = (args.no_target_directory, args.target_directory.is_some());
    let moves = Moves { replace, is_copy, into, backup: args.backup.backup()? };
    let mut tell = Tell::new(args.verbose);
    if let Err(report) = across::run(sources, target, &moves, &mut tell, context) {
        context.warn(&report);
    }
    tell.finish()
}

/// Why a second source of one name stays where it is.
pub const JUST_MOVED: &str = "this command has just moved another source there";

/// Whether the directory has an entry of exactly this name.
fn is_listed(spot: &Spot) -> Result<bool, Error> {
    let mut is_listed = false;
    spot.dir.read_dir(Cookie::START, &mut |entry| {
        is_listed |= entry.is_ok_and(|entry| *entry.name == *spot.name);
        if is_listed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(is_listed)
}

struct Mover<'a> {
    args: &'a Args,
    context: &'a Context,
    /// What becomes of what is replaced.
    backup: Backup,
    tell: Tell,
    /// What was moved, and is not replaced by another source.
    moved: Vec<Node>,
}

impl Mover<'_> {
    fn all(&mut self, sources: &[OsString], last: &OsStr) -> Done {
        let last_word = last.to_owned();
        let operands = sources.iter().chain([&last_word]);
        crate::open::seal_before_decoding(
            operands,
            crate::open::Bare::HostFile,
            obento::Access::ReadWrite,
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
            let cause = target_node.err().unwrap_or(Error::NotDirectory);
            return Err(Report::on("cannot move into", target.shown(), cause));
        }
        let into = must || is_dir && !self.args.no_target_directory;
        for source in found {
            let to = if into { target.child(source.location.base_name()) } else { target.clone() };
            if let Err(report) = self.one(&source, &to) {
                self.context.warn(&report);
            }
        }
        Ok(())
    }

    fn find(&self, mut location: Location) -> Result<Vec<Found>, Report> {
        if let obento::Place::Path(path) = &mut location.place
            && self.args.strip_trailing_slashes
        {
            path.truncate(trimmed(path).len().max(1));
        }
        location.find(Symlinks::Keep, "cannot access")
    }

    fn one(&mut self, source: &Found, to: &Location) -> Done {
        let failed = |cause: &dyn std::fmt::Display| {
            let what = format!("cannot move {} to", subject(source.shown()));
            Report::on(&what, to.shown(), cause)
        };
        if source.location.volume.vfs().root() != to.volume.vfs().root() {
            return Err(failed(&Error::CrossDevice)
                .help("obento cp -a and then obento rm -r move from one image to another"));
        }
        let from = source.location.spot().map_err(|error| match error == Error::Invalid {
            true => failed(&"it has no name of its own: name it by its path, without . or .. at the end"),
            false => failed(&error),
        })?;
        let spot = to.spot().map_err(|error| match error == Error::Invalid {
            true => failed(&Error::Exists),
            false => failed(&error),
        })?;
        let is_dir = source.node.kind() == Ok(FileKind::Directory);
        if spot.slash && !is_dir {
            return Err(failed(&Error::NotDirectory));
        }
        if from.slash && from.occupant().is_ok_and(|link| link.is_some_and(|link| link != source.node)) {
            return Err(
                failed(&Error::NotDirectory).help("without the slash at its end the link itself is moved")
            );
        }
        let occupant = spot.occupant().map_err(|error| failed(&error))?;
        if let Some(occupant) = &occupant
            && !self.may_replace(source, &from, occupant, to, &spot)?
        {
            return Ok(());
        }
        let kept = self.rename(source, &from, occupant.as_ref(), &spot).map_err(|error| {
            if let Some(advice) = to.name_advice(error) {
                return failed(&error).help(advice);
            }
            match (error == Error::Invalid && is_dir, error == Error::NotEmpty) {
                (true, _) => failed(&"a directory cannot come to lie below itself"),
                (_, true) => failed(&error).help("obento rm -r removes what is in the way"),
                _ => failed(&error),
            }
        })?;
        self.moved.push(source.node.clone());
        self.tell.say(|| {
            let verb = if self.args.exchange { ("exchanged", "<->") } else { ("renamed", "->") };
            let backup = kept.map_or_else(String::new, |kept| {
                format!(" (backup: {})", subject(to.sibling(kept.as_bytes()).shown()))
            });
            format!("{} {} {} {}{backup}", verb.0, subject(source.shown()), verb.1, subject(to.shown()))
        });
        Ok(())
    }

    /// Answers under which name what was there is kept.
    fn rename(
        &self,
        source: &Found,
        from: &Spot,
        occupant: Option<&Node>,
        to: &Spot,
    ) -> Result<Option<NameBuf>, Error> {
        let vfs = source.node.vfs();
        let ends = ((&from.dir, &*from.name), (&to.dir, &*to.name));
        if occupant == Some(&source.node) && !self.args.exchange {
            // Where the volume takes both names for one, that name changes. Of two names a rename would leave both.
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

    /// Whether what is at the target may go. Errors: it must not.
    fn may_replace(
        &self,
        source: &Found,
        from: &Spot,
        occupant: &Node,
        to: &Location,
        spot: &Spot,
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
                "it is a directory, and the source is none"
            } else {
                "it is no directory, and the source is one"
            };
            return Err(Report::new(format!("cannot replace {target} with {shown}"), cause));
        }
        Ok(!self.args.interactive || agrees(&format!("replace {target}?")))
    }
}
