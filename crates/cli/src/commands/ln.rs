//! `obento ln`: gives files further names, and makes symbolic links.
//!
//! What a symbolic link says is text, and taken as it is; written as an address of the same image it is that address's
//! path. A link that replaces a file takes its place by a rename, so that the name is never missing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use obento::{Backup, Caller, Error, FileKind, Keeps, Mode, NewNode, Node, Place, Symlinks, take_place};

use crate::change::backup::BackupArgs;
use crate::change::consent::agrees;
use crate::change::place::{Spot, last_component, new_node};
use crate::change::{Done, Tell};
use crate::context::Context;
use crate::open::{Location, open_for_change};
use crate::output::Outcome;
use crate::report::{Report, printable, subject};

/// Make links: ln -s TARGET disk.img:/LINK
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Make symbolic links, in place of further names
    #[arg(short, long)]
    symbolic: bool,
    /// Replace what is there
    #[arg(short, long, overrides_with = "interactive")]
    force: bool,
    /// Ask before something is replaced
    #[arg(short, long, overrides_with = "force")]
    interactive: bool,
    /// Take a symbolic link to a directory for a file of that name
    #[arg(short, long)]
    no_dereference: bool,
    /// With -s: write the target relative to where the link lies
    #[arg(short, long, requires = "symbolic")]
    relative: bool,
    /// Link to what a symbolic link leads to
    #[arg(short = 'L', long, overrides_with = "physical")]
    logical: bool,
    /// Link to symbolic links themselves, which is the default
    #[arg(short = 'P', long, overrides_with = "logical")]
    physical: bool,
    /// The last operand is a link of this very name, and not a directory to put links into
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Make the links in DIR
    #[arg(short = 't', long, value_name = "IMAGE:DIR")]
    target_directory: Option<OsString>,
    #[command(flatten)]
    backup: BackupArgs,
    /// Name each link
    #[arg(short, long)]
    verbose: bool,
    /// What to link to, and where the links are to be
    #[arg(required = true, value_name = "TARGET... IMAGE:LINK")]
    operands: Vec<OsString>,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let (targets, last) = match (&args.target_directory, args.operands.split_last()) {
        (Some(dir), _) => (args.operands.as_slice(), dir),
        (None, Some((last, targets))) if !targets.is_empty() => (targets, last),
        (None, _) => {
            let report = Report::new("cannot link", "it is not said where the link is to be");
            return Err(report.help("obento ln TARGET IMAGE:LINK").into());
        }
    };
    if args.no_target_directory && targets.len() > 1 {
        return Err(Report::new("cannot link", "with -T there is one target and one link").into());
    }
    let mut linker = Linker { args, backup: args.backup.backup()?, tell: Tell::new(args.verbose) };
    if let Err(report) = linker.all(targets, last, context) {
        context.warn(&report);
    }
    linker.tell.finish()
}

struct Linker<'a> {
    args: &'a Args,
    /// What becomes of what is replaced.
    backup: Backup,
    tell: Tell,
}

impl Linker<'_> {
    fn all(&mut self, targets: &[OsString], last: &OsStr, context: &Context) -> Done {
        let linked = if self.args.symbolic { &[][..] } else { targets };
        let last_word = last.to_owned();
        crate::open::seal_before_decoding(
            linked.iter().chain([&last_word]),
            crate::open::Bare::HostFile,
            obento::Access::ReadWrite,
            context,
        );
        let at = open_for_change(last, context)?;
        let existing = match self.args.symbolic {
            true => Vec::new(),
            false => targets.iter().map(|target| open_for_change(target, context)).collect(),
        };
        context.seal();
        let symlinks = if self.args.no_dereference { Symlinks::Keep } else { Symlinks::Follow };
        let found = at.volume.resolve(&at.place, symlinks);
        let is_dir = found.as_ref().is_ok_and(|node| node.kind() == Ok(FileKind::Directory));
        let into = self.args.target_directory.is_some() || targets.len() > 1;
        if into && !is_dir {
            let cause = found.err().map_or(Error::NotDirectory, |error| error);
            return Err(Report::on("cannot link into", at.shown(), cause));
        }
        let into = into || is_dir && !self.args.no_target_directory;
        let place = |name: &[u8]| if into { at.child(name) } else { at.clone() };
        let mut existing = existing.into_iter();
        for target in targets {
            let done = match existing.next() {
                None => {
                    let text = target.as_bytes();
                    let text = text.strip_prefix(&*at.prefix).unwrap_or(text);
                    self.symlink(text, &place(last_component(text)))
                }
                Some(Err(report)) => Err(report),
                Some(Ok(target)) => self.hard_link(&target, &place(target.base_name())),
            };
            if let Err(report) = done {
                context.warn(&report);
            }
        }
        Ok(())
    }

    fn symlink(&mut self, target: &[u8], link: &Location) -> Done {
        let failed = |error: Error| {
            let report = Report::on("cannot create symbolic link", link.shown(), error);
            link.without(Keeps::SYMLINKS, report, "the file system has no links: obento cp makes a copy")
        };
        let target =
            if self.args.relative { relative(target, link).map_err(failed)? } else { target.to_vec() };
        let make = |spot: &Spot| {
            let new = NewNode { target: &target, ..new_node(FileKind::Symlink, Mode::new(0o777)) };
            spot.create(&new).map(drop)
        };
        if self.put(link, None, make).map_err(failed)? {
            self.tell.say(|| format!("{} -> '{}'", subject(link.shown()), printable(&target)));
        }
        Ok(())
    }

    fn hard_link(&mut self, target: &Location, link: &Location) -> Done {
        let failed = |error: Error| {
            let what = format!("cannot create hard link {} to", subject(link.shown()));
            let report = Report::on(&what, target.shown(), error);
            match (error == Error::NotPermitted, error == Error::TooManyLinks) {
                (true, _) => report.help("a directory has one name; -s makes a symbolic link"),
                (_, true) => {
                    link.without(Keeps::SYMLINKS, report, "files there have one name: obento cp makes a copy")
                }
                _ => report,
            }
        };
        if target.volume.vfs().root() != link.volume.vfs().root() {
            return Err(failed(Error::CrossDevice));
        }
        let symlinks = if self.args.logical { Symlinks::Follow } else { Symlinks::Keep };
        let node = target
            .volume
            .resolve(&target.place, symlinks)
            .map_err(|error| Report::on("cannot access", target.shown(), error))?;
        let make = |spot: &Spot| node.vfs().link(&Caller::Owner, &node, &spot.dir, &spot.name);
        if self.put(link, Some(&node), make).map_err(failed)? {
            self.tell.say(|| format!("{} => {}", subject(link.shown()), subject(target.shown())));
        }
        Ok(())
    }

    /// Makes a link at `link`, in place of what is there if that is wanted. Answers whether it did.
    fn put(
        &self,
        link: &Location,
        target: Option<&Node>,
        make: impl Fn(&Spot) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let spot = link.spot()?;
        match make(&spot) {
            Err(error) if error == Error::Exists => {}
            made => return made.map(|()| true),
        }
        let occupant = spot.occupant()?;
        if occupant.is_some() && occupant.as_ref() == target {
            // It is this file already, and a rename between two names of a file would leave both.
            return if self.args.force { Ok(false) } else { Err(Error::Exists) };
        }
        let agreed = match self.args.interactive {
            true if agrees(&format!("replace {}?", subject(link.shown()))) => true,
            true => return Ok(false),
            false => self.args.force || self.backup != Backup::None,
        };
        if !agreed {
            return Err(Error::Exists);
        }
        if occupant.is_some_and(|node| node.kind() == Ok(FileKind::Directory)) {
            return Err(Error::IsDirectory);
        }
        let temporary = spot.temporary()?;
        make(&temporary)?;
        let vfs = spot.dir.vfs();
        let from = (&temporary.dir, &*temporary.name);
        let renamed = take_place(from, (&spot.dir, &spot.name), &self.backup, |_| false);
        if renamed.is_err() {
            // The first error is the one to tell.
            let _ = vfs.unlink(&Caller::Owner, &temporary.dir, &temporary.name);
        }
        renamed.map(|_| true)
    }
}

/// `target`, a path in the image, as it is to be written into a link at `link`.
fn relative(target: &[u8], link: &Location) -> Result<Vec<u8>, Error> {
    let Place::Path(at) = &link.place else { return Err(Error::Invalid) };
    let (at, target) = (components(at), components(target));
    let above = &at[..at.len().saturating_sub(1)];
    let common = above.iter().zip(&target).take_while(|(a, b)| a == b).count();
    let mut parts: Vec<&[u8]> = vec![b".."; above.len() - common];
    parts.extend(&target[common..]);
    if parts.is_empty() {
        parts.push(b".");
    }
    Ok(parts.join(&b'/'))
}

/// The components of a path, `.` and `..` resolved as far as words can.
fn components(path: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}
