//! `obento rm`: removes files, and with `-r` directory trees.
//!
//! As in coreutils, a file that cannot be removed is reported once, and not again for each parent directory.

use std::ffi::OsString;

use clap::ValueEnum;
use obento::Error;
use obento::base::{FileKind, Quantity};
use obento::host::interrupt;
use obento::remove::{Removal, RemoveObserver, remove_children, remove_tree};
use obento::vfs::{Caller, Symlinks};

use crate::cause::Cause;
use crate::change::consent::agrees;
use crate::change::{Done, Verbose, each_place, immutable};
use crate::context::Context;
use crate::format::mode::kind_name;
use crate::help::page::Page;
use crate::open::{Found, Location, join};
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The page of `rm`.
pub const PAGE: Page =
    Page::new(&[("obento rm -r disk.img:/var/cache", "Remove a directory and its contents")])
        .see_also(&["rm(1)"]);

/// Remove files
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files in images
    #[arg(value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Remove directories and their contents recursively
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Ignore missing files, and never ask
    #[arg(short, long, overrides_with_all = ["ask", "ask_once", "interactive"])]
    force: bool,
    /// Remove empty directories too
    #[arg(short, long)]
    dir: bool,
    /// Ask before each removal
    #[arg(short = 'i', overrides_with_all = ["force", "ask_once", "interactive"])]
    ask: bool,
    /// Ask once before removing more than three files, or recursively
    #[arg(short = 'I', overrides_with_all = ["force", "ask", "interactive"])]
    ask_once: bool,
    /// Set when to ask
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always",
        overrides_with_all = ["force", "ask", "ask_once"]
    )]
    interactive: Option<Interactive>,
    /// Print each removed file
    #[arg(short, long)]
    verbose: bool,
    /// Allow the removal of all files of the root directory
    #[arg(long, overrides_with = "preserve_root")]
    no_preserve_root: bool,
    /// Refuse to remove the files of the root directory (default)
    #[arg(long, overrides_with = "no_preserve_root")]
    preserve_root: bool,
    /// Ignored, for compatibility: an image has one file system
    #[arg(long)]
    one_file_system: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Interactive {
    #[value(alias = "no", alias = "none")]
    Never,
    Once,
    #[value(alias = "yes")]
    Always,
}

impl Args {
    fn interactive(&self) -> Interactive {
        match self.interactive {
            Some(when) => when,
            None if self.ask => Interactive::Always,
            None if self.ask_once => Interactive::Once,
            None => Interactive::Never,
        }
    }
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    if args.paths.is_empty() {
        let report =
            Report::new("cannot remove files", "missing operand").help("usage: obento rm IMAGE:PATH");
        return if args.force { Ok(()) } else { Err(report.into()) };
    }
    if args.interactive() == Interactive::Once && !agrees_once(args) {
        return Ok(());
    }
    let mut remover = Remover { args, context, verbose: Verbose::new(args.verbose), shown: Vec::new() };
    each_place(&args.paths, context, |location| remover.operand(location));
    remover.verbose.finish()
}

fn agrees_once(args: &Args) -> bool {
    let count = args.paths.len();
    match args.recursive {
        true => agrees(&format!("remove {} recursively?", Quantity::new(count as u64, "argument"))),
        false if count > 3 => agrees(&format!("remove {count} arguments?")),
        false => true,
    }
}

struct Remover<'a> {
    args: &'a Args,
    context: &'a Context,
    verbose: Verbose,
    /// The operand, for messages.
    shown: Vec<u8>,
}

impl Remover<'_> {
    fn operand(&mut self, location: &Location) -> Done {
        let found = match location.clone().find(Symlinks::Keep, "cannot remove") {
            Err(_) if self.args.force && is_missing(location) => return Ok(()),
            found => found?,
        };
        for found in found {
            if interrupt::is_requested() {
                break;
            }
            if let Err(report) = self.remove(&found) {
                self.context.warn(&report);
            }
        }
        Ok(())
    }

    fn remove(&mut self, found: &Found) -> Done {
        self.shown = found.shown();
        let failed = |cause: &dyn Cause| Report::on("cannot remove", found.shown(), cause);
        let kind = found.node.kind().map_err(|error| failed(&error))?;
        if found.node.is_root() {
            return self.remove_root(found);
        }
        let spot = match found.location.spot() {
            Err(error) if error == Error::Invalid => {
                return Err(
                    failed(&"the path does not end with a name").help("use a path without a final . or ..")
                );
            }
            spot => spot.map_err(|error| failed(&error))?,
        };
        if kind == FileKind::Directory && !self.args.recursive {
            if !self.args.dir {
                return Err(failed(&Error::IsDirectory).help("use -r to remove it with its contents"));
            }
            if !self.asks("remove directory", b"", None) {
                return Ok(());
            }
            let vfs = spot.dir.vfs();
            vfs.rmdir(&Caller::Owner, &spot.dir, &spot.name).map_err(|error| failed(&error))?;
            self.removed(b"", kind);
            return Ok(());
        }
        remove_tree(&spot.dir, &spot.name, self);
        Ok(())
    }

    fn remove_root(&mut self, found: &Found) -> Done {
        let failed = |cause: &str| Report::on("cannot remove", found.shown(), cause);
        if !self.args.recursive {
            return Err(failed("this is the root directory of the volume"));
        }
        if !self.args.no_preserve_root {
            return Err(failed("this is the root directory of the volume")
                .help("use --no-preserve-root to remove its contents"));
        }
        remove_children(&found.node, self);
        Err(failed("the root directory itself cannot be removed"))
    }

    fn name(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() { self.shown.clone() } else { join(&self.shown, path) }
    }

    /// Returns whether the user agrees, or is not asked.
    fn asks(&self, action: &str, path: &[u8], kind: Option<FileKind>) -> bool {
        if self.args.interactive() != Interactive::Always {
            return true;
        }
        let kind = kind.map(|kind| format!(" {}", kind_name(kind, 1))).unwrap_or_default();
        agrees(&format!("{action}{kind} {}?", subject(self.name(path))))
    }
}

impl RemoveObserver for Remover<'_> {
    fn wants(&mut self, what: Removal, path: &[u8], kind: FileKind) -> bool {
        if interrupt::is_requested() {
            return false;
        }
        match what {
            Removal::Enter => self.asks("descend into directory", path, None),
            Removal::Remove => self.asks("remove", path, Some(kind)),
        }
    }

    fn removed(&mut self, path: &[u8], kind: FileKind) {
        let name = &self.shown;
        self.verbose.say(|| {
            let what = if kind == FileKind::Directory { "removed directory" } else { "removed" };
            let name = if path.is_empty() { name.clone() } else { join(name, path) };
            format!("{what} {}", subject(name))
        });
    }

    fn failed(&mut self, path: &[u8], error: Error) {
        let name = self.name(path);
        let report = Report::on("cannot remove", &name, error);
        self.context.warn(&immutable(report, error, &name));
    }
}

fn is_missing(location: &Location) -> bool {
    location.volume.resolve(&location.place, Symlinks::Keep).is_err_and(crate::change::is_missing)
}
