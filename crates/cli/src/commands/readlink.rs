//! `obento readlink`: prints the targets of symbolic links, and paths without symbolic links.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::Write;

use obento::address::FileSelector;
use obento::base::{FileKind, Name, NameBuf};
use obento::vfs::Symlinks;
use obento::{Error, Node};

use crate::context::Context;
use crate::help::page::Page;
use crate::open::{Location, open};
use crate::output::{Outcome, Output};
use crate::report::Report;

/// As Linux (include/linux/namei.h, MAXSYMLINKS).
const MAX_LINKS: usize = 40;

/// The page of `readlink`.
pub const PAGE: Page =
    Page::new(&[("obento readlink -f disk.img:/bin/sh", "Print the path without symbolic links")])
        .see_also(&["readlink(1)"]);

/// Print the targets of symbolic links, or canonical paths
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Symbolic links; with -f, -e and -m any paths
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Print the path without symbolic links; all but its last component must exist
    #[arg(short = 'f', long, overrides_with_all = ["canonicalize_existing", "canonicalize_missing"])]
    canonicalize: bool,
    /// Print the path without symbolic links; all components must exist
    #[arg(short = 'e', long, overrides_with_all = ["canonicalize", "canonicalize_missing"])]
    canonicalize_existing: bool,
    /// Print the path without symbolic links; no component need exist
    #[arg(short = 'm', long, overrides_with_all = ["canonicalize", "canonicalize_existing"])]
    canonicalize_missing: bool,
    /// Omit the newline at the end, if there is one operand
    #[arg(short, long)]
    no_newline: bool,
    /// End each line with NUL instead of a newline
    #[arg(short, long)]
    zero: bool,
    /// Do not print error messages
    #[arg(short, long, visible_short_alias = 's', visible_alias = "silent")]
    quiet: bool,
}

/// Which components of a path must exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MustExist {
    AllButLast,
    All,
    Nothing,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    crate::open::seal_before_decoding(
        &args.paths,
        crate::open::BareOperand::Image,
        obento::driver::Access::ReadOnly,
        context,
    );
    let opened: Vec<_> = args.paths.iter().map(|path| open(path, context)).collect();
    context.seal();
    let must_exist = match (args.canonicalize, args.canonicalize_existing, args.canonicalize_missing) {
        (true, ..) => Some(MustExist::AllButLast),
        (_, true, _) => Some(MustExist::All),
        (.., true) => Some(MustExist::Nothing),
        _ => None,
    };
    let end: &[u8] = match () {
        () if args.zero => b"\0",
        () if args.no_newline && args.paths.len() == 1 => b"",
        () => b"\n",
    };
    let mut out = Output::stdout();
    for location in opened {
        let text = location.and_then(|location| match must_exist {
            None => target(&location),
            Some(must_exist) => canonical(&location, must_exist),
        });
        match text {
            Ok(text) => {
                out.write_name(&text)?;
                out.write_all(end)?;
            }
            Err(_) if args.quiet => context.raise(1),
            Err(report) => context.warn(&report),
        }
    }
    out.finish()
}

fn target(location: &Location) -> Result<Vec<u8>, Report> {
    let failed = |error| match error {
        Error::Invalid => Report::on("cannot read link", location.shown(), "not a symbolic link"),
        error => Report::on("cannot read link", location.shown(), error),
    };
    location.volume.resolve(&location.place, Symlinks::Keep).and_then(|node| node.read_link()).map_err(failed)
}

fn canonical(location: &Location, must_exist: MustExist) -> Result<Vec<u8>, Report> {
    let FileSelector::Path(path) = &location.place else {
        return Err(Report::on("cannot resolve", location.shown(), "an inode number has no path"));
    };
    let path = canonicalize(location.volume.root(), path, must_exist)
        .map_err(|error| Report::on("cannot resolve", location.shown(), error))?;
    Ok([&location.prefix, path.as_slice()].concat())
}

/// Returns the canonical form of `path`. Fails with `NotFound`, `NotDirectory`, `Loop` or the errors of the volume.
fn canonicalize(root: Node, path: &[u8], must_exist: MustExist) -> Result<Vec<u8>, Error> {
    let mut ahead: VecDeque<Vec<u8>> = components(path).collect();
    let must_be_directory = path.ends_with(b"/");
    // Below the first component that does not exist, names have no nodes.
    let mut way: Vec<(NameBuf, Option<Node>)> = Vec::new();
    let mut links = 0;
    while let Some(component) = ahead.pop_front() {
        let here = way.last().map_or(Some(&root), |(_, node)| node.as_ref());
        if component == b".." {
            way.pop();
            continue;
        }
        let name = Name::new(&component).map_err(|_| Error::NameTooLong)?;
        match look_up(here, name) {
            Ok(node) if node.kind()? == FileKind::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Error::Loop);
                }
                let target = node.read_link()?;
                if target.starts_with(b"/") {
                    way.clear();
                }
                let before: Vec<_> = components(&target).collect();
                before.into_iter().rev().for_each(|component| ahead.push_front(component));
            }
            Ok(node) => {
                let is_last = ahead.is_empty() && !must_be_directory;
                if !is_last && must_exist != MustExist::Nothing && node.kind()? != FileKind::Directory {
                    return Err(Error::NotDirectory);
                }
                way.push((name.to_buf(), Some(node)));
            }
            Err(Error::NotFound | Error::NotDirectory) if must_exist == MustExist::Nothing => {
                way.push((name.to_buf(), None));
            }
            Err(Error::NotFound) if must_exist == MustExist::AllButLast && ahead.is_empty() => {
                way.push((name.to_buf(), None));
            }
            Err(error) => return Err(error),
        }
    }
    let mut path: Vec<u8> = way.iter().flat_map(|(name, _)| [b"/", name.as_bytes()].concat()).collect();
    if path.is_empty() {
        path.push(b'/');
    }
    Ok(path)
}

fn look_up(directory: Option<&Node>, name: &Name) -> Result<Node, Error> {
    directory.ok_or(Error::NotFound)?.lookup(name)
}

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    path.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec)
}
