//! `obento mkdir`: creates directories.

use std::ffi::OsString;

use obento::address::FileSelector;
use obento::base::{FileKind, Mode};
use obento::driver::SetAttr;
use obento::vfs::Symlinks;
use obento::{Error, Node};

use crate::change::lacking::expect_stored;
use crate::change::mode::ModeChange;
use crate::change::place::{creation_mode, new_node, trimmed};
use crate::change::{Done, Verbose, each_place, umask};
use crate::context::Context;
use crate::help::page::Page;
use crate::open::Location;
use crate::output::Outcome;
use crate::parse::mode::mode as parse_mode;
use crate::report::{Report, subject};

/// The page of `mkdir`.
pub const PAGE: Page =
    Page::new(&[("obento mkdir -p disk.img:/srv/www", "Create a directory and its parents")])
        .see_also(&["mkdir(1)"]);

/// Create directories
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directories in images
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Create missing parents too, and accept existing directories
    #[arg(short, long)]
    parents: bool,
    /// The mode, as in chmod
    #[arg(short, long, value_parser = parse_mode)]
    mode: Option<ModeChange>,
    /// Print each created directory
    #[arg(short, long)]
    verbose: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut maker = Maker { args, context, verbose: Verbose::new(args.verbose) };
    each_place(&args.paths, context, |location| maker.make(location));
    maker.verbose.finish()
}

struct Maker<'a> {
    args: &'a Args,
    context: &'a Context,
    verbose: Verbose,
}

impl Maker<'_> {
    fn make(&mut self, location: &Location) -> Done {
        if self.args.parents {
            return self.make_all(location);
        }
        self.make_one(location, self.args.mode.as_ref()).map(drop).map_err(|error| failed(location, error))
    }

    fn make_one(&mut self, location: &Location, mode: Option<&ModeChange>) -> Result<Node, Error> {
        let spot = match location.spot() {
            // The root, and paths that end with `.` or `..`.
            Err(error) if error == Error::Invalid => return Err(Error::Exists),
            spot => spot?,
        };
        let node = spot.create(&new_node(FileKind::Directory, creation_mode(&spot.dir, 0o777)))?;
        self.verbose.say(|| format!("mkdir: created directory {}", subject(location.shown())));
        if let Some(change) = mode {
            let made = node.attr()?.mode;
            let asked = change.apply(Mode::new(0o777), true, umask());
            // The mode does not affect the set-group-ID bit that the parent passed on.
            let mode = Mode::new(asked.bits() | made.bits() & Mode::SET_GID.bits());
            let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
            let after = node.vfs().set_attr(&obento::vfs::Caller::Owner, &node, &change)?;
            if let Err(report) = expect_stored(mode, &after, &location.shown()) {
                // The directory was created.
                self.context.warn(&report);
            }
        }
        Ok(node)
    }

    /// `-p`.
    fn make_all(&mut self, location: &Location) -> Done {
        let FileSelector::Path(path) = &location.place else { return Err(failed(location, Error::Invalid)) };
        let path = trimmed(path);
        let ends = path.iter().enumerate().filter(|(at, b)| **b == b'/' && *at > 0).map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let part = &path[..end];
            if part.last().is_none_or(|b| *b == b'/') {
                continue;
            }
            let at = Location { place: FileSelector::Path(part.to_vec()), ..location.clone() };
            match at.volume.resolve(&at.place, Symlinks::Follow) {
                Ok(node) if node.kind() == Ok(FileKind::Directory) => continue,
                Ok(_) if end == path.len() => return Err(failed(&at, Error::Exists)),
                Ok(_) => return Err(failed(&at, Error::NotDirectory)),
                Err(error) if error == Error::NotFound => {}
                Err(error) => return Err(failed(&at, error)),
            }
            let mode = self.args.mode.as_ref().filter(|_| end == path.len());
            let made = self.make_one(&at, mode);
            made.map_err(|error| failed(&at, error))?;
        }
        Ok(())
    }
}

fn failed(location: &Location, error: Error) -> Report {
    let report = location.failed("cannot create directory", error);
    if error == Error::NotFound { report.help("use -p to create the parent directories too") } else { report }
}
