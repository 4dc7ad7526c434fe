//! `obento ln`: creates hard links and symbolic links.
//!
//! The target of a symbolic link is stored as it is given; an address in the same image becomes its path. A link that replaces a file
//! is created under another name and renamed, so that the name always exists.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use obento::address::{FileSelector, Operand};
use obento::base::{FileKind, Mode};
use obento::copy::Backup;
use obento::driver::{NewNode, StoredProperties};
use obento::host::take_place;
use obento::vfs::{Caller, Symlinks};
use obento::{Error, Node};

use crate::change::backup::BackupArgs;
use crate::change::consent::agrees;
use crate::change::place::{NameInDirectory, last_component, new_node};
use crate::change::{Done, Verbose, immutable};
use crate::context::Context;
use crate::help::page::{BACKUP, Page};
use crate::open::{Location, components, open_for_change, operand};
use crate::output::Outcome;
use crate::report::{Report, printable, subject};

/// The page of `ln`.
pub const PAGE: Page = Page::new(&[
    ("obento ln -s ../usr/bin disk.img:/bin", "Create a symbolic link"),
    ("obento ln disk.img:/a disk.img:/b", "Create a hard link"),
])
.environment(BACKUP)
.see_also(&["ln(1)", "link(2)", "symlink(2)"]);

/// Create links
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento ln [OPTIONS] <TARGET>... <IMAGE:LINK>\n       obento ln [OPTIONS] -t <IMAGE:DIR> <TARGET>..."
)]
pub struct Args {
    /// Create symbolic links instead of hard links
    #[arg(short, long)]
    symbolic: bool,
    /// Replace existing files
    #[arg(short, long, overrides_with = "interactive")]
    force: bool,
    /// Ask before replacing a file
    #[arg(short, long, overrides_with = "force")]
    interactive: bool,
    /// Treat LINK as a file if it is a symbolic link to a directory
    #[arg(short, long)]
    no_dereference: bool,
    /// With -s: make the target relative to the directory of the link
    #[arg(short, long, requires = "symbolic")]
    relative: bool,
    /// Link to the targets of symbolic links
    #[arg(short = 'L', long, overrides_with = "physical")]
    logical: bool,
    /// Link to symbolic links themselves (default)
    #[arg(short = 'P', long, overrides_with = "logical")]
    physical: bool,
    /// Treat the last operand as the link, even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Create the links in DIR
    #[arg(short = 't', long, value_name = "IMAGE:DIR")]
    target_directory: Option<OsString>,
    #[command(flatten)]
    backup: BackupArgs,
    /// Print each link
    #[arg(short, long)]
    verbose: bool,
    /// The targets, and the link or its directory. A target is an address (IMAGE:PATH), or with -s the text of the link
    #[arg(required = true, value_name = "PATH")]
    operands: Vec<OsString>,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let (targets, last) = match (&args.target_directory, args.operands.split_last()) {
        (Some(dir), _) => (args.operands.as_slice(), dir),
        (None, Some((last, targets))) if !targets.is_empty() => (targets, last),
        (None, _) => {
            let report = Report::new("cannot link", "missing operand for the link");
            return Err(report.help("usage: obento ln TARGET IMAGE:LINK").into());
        }
    };
    if args.no_target_directory && targets.len() > 1 {
        return Err(Report::new("cannot link", "-T requires exactly one target and one link").into());
    }
    let mut linker = Linker { args, backup: args.backup.backup()?, verbose: Verbose::new(args.verbose) };
    if let Err(report) = linker.all(targets, last, context) {
        context.warn(&report);
    }
    linker.verbose.finish()
}

/// Opens the target of a hard link.
fn open_target(target: &OsStr, context: &Context) -> Result<Location, Report> {
    match operand(target, context)? {
        Operand::Image(_) => open_for_change(target, context),
        Operand::Host(_) | Operand::Stdio => {
            let cause = "the target of a hard link must be a file in the image";
            Err(Report::on("cannot link to", target.as_bytes(), cause)
                .help("write IMAGE:/PATH, or use -s to create a symbolic link with this text"))
        }
    }
}

struct Linker<'a> {
    args: &'a Args,
    /// The treatment of files that are replaced.
    backup: Backup,
    verbose: Verbose,
}

impl Linker<'_> {
    fn all(&mut self, targets: &[OsString], last: &OsStr, context: &Context) -> Done {
        let linked = if self.args.symbolic { &[][..] } else { targets };
        let last_word = last.to_owned();
        crate::open::seal_before_decoding(
            linked.iter().chain([&last_word]),
            crate::open::BareOperand::HostFile,
            obento::driver::Access::ReadWrite,
            context,
        );
        let at = open_for_change(last, context)?;
        let existing = match self.args.symbolic {
            true => Vec::new(),
            false => targets.iter().map(|target| open_target(target, context)).collect(),
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
        let most = link.volume.vfs().limits().symlink_max;
        let is_long = u32::try_from(target.len()).is_ok_and(|len| len > most);
        let failed = |error: Error| {
            if error == Error::NameTooLong && is_long {
                let report =
                    Report::on("cannot create symbolic link", link.shown(), "the target is too long");
                return report.help(format!("a target on this volume has at most {most} bytes"));
            }
            let report = link.not_created("cannot create symbolic link", error);
            link.without(
                StoredProperties::SYMLINKS,
                report,
                "the file system has no symbolic links; use 'obento cp' to create a copy",
            )
        };
        let target =
            if self.args.relative { relative(target, link).map_err(failed)? } else { target.to_vec() };
        let make = |spot: &NameInDirectory| {
            let new = NewNode { target: &target, ..new_node(FileKind::Symlink, Mode::new(0o777)) };
            spot.create(&new).map(drop)
        };
        if self.put(link, None, make).map_err(failed)? {
            self.verbose.say(|| format!("{} -> '{}'", subject(link.shown()), printable(&target)));
        }
        Ok(())
    }

    fn hard_link(&mut self, target: &Location, link: &Location) -> Done {
        let symlinks = if self.args.logical { Symlinks::Follow } else { Symlinks::Keep };
        let found = || target.volume.resolve(&target.place, symlinks);
        let is_directory = || found().and_then(|node| node.kind()) == Ok(FileKind::Directory);
        let failed = |error: Error| {
            let what = format!("cannot create hard link {} to", subject(link.shown()));
            let report = Report::on(&what, target.shown(), error);
            match error {
                Error::NotPermitted if is_directory() => {
                    report.help("a directory cannot have several names; use -s to create a symbolic link")
                }
                Error::NotPermitted => immutable(report, error, target.shown()),
                Error::TooManyLinks => link.without(
                    StoredProperties::SYMLINKS,
                    report,
                    "the file system has no hard links; use 'obento cp' to create a copy",
                ),
                Error::CrossDevice => report.help("use 'obento cp' to create a copy"),
                _ => report,
            }
        };
        if target.volume.vfs().root() != link.volume.vfs().root() {
            return Err(failed(Error::CrossDevice));
        }
        let node = found().map_err(|error| target.not_found("cannot access", error))?;
        let make = |spot: &NameInDirectory| node.vfs().link(&Caller::Owner, &node, &spot.dir, &spot.name);
        if self.put(link, Some(&node), make).map_err(failed)? {
            self.verbose.say(|| format!("{} => {}", subject(link.shown()), subject(target.shown())));
        }
        Ok(())
    }

    /// Creates a link at `link`, replacing a file if requested. Returns whether the link was created.
    fn put(
        &self,
        link: &Location,
        target: Option<&Node>,
        make: impl Fn(&NameInDirectory) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let spot = link.spot()?;
        match make(&spot) {
            Err(error) if error == Error::Exists => {}
            made => return made.map(|()| true),
        }
        let occupant = spot.occupant()?;
        if occupant.is_some() && occupant.as_ref() == target {
            // The target already has this name, and a rename between two names of a file would keep both.
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
            // Return the first error.
            let _ = vfs.unlink(&Caller::Owner, &temporary.dir, &temporary.name);
        }
        renamed.map(|_| true)
    }
}

/// Returns `target`, a path in the image, relative to the directory of `link`.
fn relative(target: &[u8], link: &Location) -> Result<Vec<u8>, Error> {
    let FileSelector::Path(at) = &link.place else { return Err(Error::Invalid) };
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
