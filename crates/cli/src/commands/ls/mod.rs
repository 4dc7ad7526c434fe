//! `obento ls`: lists the contents of an image as GNU `ls` does.
//!
//! `settings` combines the options, `gather` reads a directory, `sort` sorts it, `long` and `short` write it.
//!
//! Intended differences from GNU: names are sorted by their bytes in every locale. Names of owners are from the passwd
//! and group files of the image.

mod args;
mod gather;
mod long;
mod settings;
mod short;
mod sort;
mod version;

use std::collections::HashSet;
use std::io::Write;

use obento::Node;
use obento::base::{FileKind, Ino};
use obento::vfs::Symlinks;
use obento::volume::Owners;

pub use args::Args;

use crate::context::Context;
use crate::escape::escape;
use crate::format::colors::{Colors, Painter};
use crate::format::time::Clock;
use crate::help::page::{LS_COLORS, Page, TZ};
use crate::open::{Found, Location, damaged, find_all, join};
use crate::output::{Outcome, Output, Stop};
use crate::report::Report;
use gather::Listing;
use settings::{Dereference, Settings, Shape};

/// The state of a listing.
struct Lister<'c> {
    context: &'c Context,
    settings: Settings,
    clock: Clock,
    painter: Option<Painter>,
    out: Output,
    /// Whether a listing was written; an empty line separates the next one.
    begun: bool,
    /// The output of one directory; the buffer is reused.
    text: Vec<u8>,
}

/// The page of `ls`.
pub const PAGE: Page = Page::new(&[
    ("obento ls disk.img", "List the root directory"),
    ("obento ls -l disk.img@2:/etc", "List /etc in partition 2 with all attributes"),
    ("obento ls 'disk.img:/etc/*.conf'", "List the files that match a pattern inside the image"),
])
.exit(&[
    ("0", "Everything was listed."),
    ("1", "A file below an operand cannot be accessed."),
    ("2", "Wrong usage, an operand cannot be accessed, or the output could not be written."),
])
.unwritten(2)
.environment(&[
    TZ,
    LS_COLORS,
    ("TIME_STYLE", "The format of times if --time-style is absent."),
    ("QUOTING_STYLE", "The quoting of names if --quoting-style is absent."),
    ("COLUMNS", "The width of the output."),
])
.see_also(&["ls(1)", "dircolors(1)"]);

pub fn run(args: &Args, context: &Context) -> Outcome {
    let settings = Settings::new(args, context)?;
    let clock = Clock::system();
    let painter = context.colors().then(|| Painter::new(Colors::from_env()));
    let symlinks = match settings.dereference {
        Dereference::Always | Dereference::Operands => Symlinks::Follow,
        _ => Symlinks::Keep,
    };
    let found = find_all(&args.paths, symlinks, context, |report| context.fail(report));
    let text = Vec::with_capacity(64 << 10);
    let mut lister = Lister { context, settings, clock, painter, out: Output::stdout(), begun: false, text };
    lister.operands(found, args.paths.len())?;
    lister.out.finish()
}

/// A directory that is not listed yet.
struct Pending {
    at: Location,
    path: Vec<u8>,
    node: Node,
    /// Whether it is an operand.
    is_operand: bool,
}

/// The memory for directories that are not listed yet, in bytes.
const WAITING: usize = 32 << 20;
/// The directories that were listed, so that a cycle of directories ends.
const LISTED: usize = 1 << 20;

impl Pending {
    /// Returns the memory that it uses, with its node.
    fn cost(&self) -> usize {
        256 + self.path.len()
    }
}

impl Lister<'_> {
    /// Lists the operands that are not directories together, and then each directory.
    fn operands(&mut self, found: Vec<Found>, arguments: usize) -> Outcome {
        let mut files = Vec::new();
        let mut directories = Vec::new();
        let several = arguments > 1 || found.len() > 1;
        for mut operand in found {
            self.follow_to_directory(&mut operand);
            match operand.node.kind() {
                Ok(FileKind::Directory) if !self.settings.directories_as_files => directories.push(operand),
                Ok(_) => files.push(operand),
                Err(error) => self.context.fail(&operand.location.not_found("cannot access", error)),
            }
        }
        self.files(files)?;
        directories.sort_by(|a, b| sort::compare_operands(a, b, &self.settings));
        let headers = several || self.settings.recursive;
        for directory in directories {
            self.tree(directory, headers)?;
        }
        Ok(())
    }

    /// Follows a symbolic link to a directory that is an operand, if only names are shown.
    fn follow_to_directory(&self, operand: &mut Found) {
        if self.settings.dereference != Dereference::OperandsToDirectories
            || operand.node.kind() != Ok(FileKind::Symlink)
        {
            return;
        }
        let location = &operand.location;
        if let Ok(target) = location.volume.resolve(&location.place, Symlinks::Follow)
            && target.kind() == Ok(FileKind::Directory)
        {
            operand.node = target;
        }
    }

    /// Lists the operands that are not directories, grouped by volume.
    fn files(&mut self, files: Vec<Found>) -> Outcome {
        let mut rest = files.as_slice();
        while let Some(first) = rest.first() {
            let same = |f: &&Found| std::rc::Rc::ptr_eq(&f.location.volume, &first.location.volume);
            let count = rest.iter().take_while(same).count();
            let owners = first.location.volume.owners();
            let mut listing = Listing::of_operands(&rest[..count], self.context);
            listing.finish(&first.location.volume, &self.settings, &self.painter, self.context);
            self.write(&listing, owners, None)?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Lists a directory, with `-R` recursively. A directory is listed once: a damaged volume may contain cycles.
    fn tree(&mut self, top: Found, headers: bool) -> Outcome {
        let volume = top.location.volume.clone();
        let owners = volume.owners();
        let path = top.shown();
        let mut pending = vec![Pending { at: top.location, path, node: top.node, is_operand: true }];
        let mut listed: HashSet<Ino> = HashSet::new();
        let mut held = 0_usize;
        while let Some(directory) = pending.pop() {
            if self.settings.recursive && !listed.insert(directory.node.ino()) {
                let cause = "already listed: the directories form a cycle";
                self.context.fail(&Report::on("cannot list", &directory.path, cause));
                continue;
            }
            let below = self.directory(&directory, headers, owners)?;
            held = held.saturating_sub(directory.cost());
            let cost: usize = below.iter().map(Pending::cost).sum();
            if held + cost > WAITING || listed.len() > LISTED {
                let cause = "too many directories";
                self.context.warn(&Report::on("cannot list the directories below", &directory.path, cause));
                continue;
            }
            held += cost;
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Lists one directory. Returns its subdirectories, if they are to be listed too.
    fn directory(
        &mut self,
        directory: &Pending,
        header: bool,
        owners: &Owners,
    ) -> Result<Vec<Pending>, Stop> {
        let (node, path) = (&directory.node, &directory.path);
        let mut listing = match Listing::read(node, path, &self.settings, self.context, gather::BUDGET) {
            Ok(listing) => listing,
            Err(error) => {
                let report = damaged(Report::on("cannot read directory", &directory.path, error), error);
                match directory.is_operand {
                    true => self.context.fail(&report),
                    false => self.context.warn(&report),
                }
                return Ok(Vec::new());
            }
        };
        let volume = &directory.at.volume;
        listing.finish(volume, &self.settings, &self.painter, self.context);
        self.write(&listing, owners, header.then_some(directory.path.as_slice()))?;
        if !self.settings.recursive {
            return Ok(Vec::new());
        }
        let entries = listing.entries.iter().filter(|e| e.kind() == Some(FileKind::Directory) && !e.is_dots);
        let below = entries.filter_map(|entry| {
            let path = join(&directory.path, listing.name(entry));
            match volume.vfs().node(entry.ino) {
                Ok(node) => Some(Pending { at: directory.at.clone(), path, node, is_operand: false }),
                Err(error) => {
                    self.context.warn(&Report::on("cannot access", path, error));
                    None
                }
            }
        });
        Ok(below.collect())
    }

    /// Writes a listing, below its header if it has one.
    fn write(&mut self, listing: &Listing, owners: &Owners, header: Option<&[u8]>) -> Outcome {
        self.text.clear();
        if self.settings.shape == Shape::Json {
            return self.write_json(listing, owners);
        }
        let begun = std::mem::replace(&mut self.begun, true);
        if let Some(path) = header {
            if begun {
                self.text.push(b'\n');
            }
            self.text.extend_from_slice(&escape(path, self.settings.quoting));
            self.text.extend_from_slice(b":\n");
        } else if begun && listing.is_directory {
            self.text.push(b'\n');
        }
        if listing.is_directory && (self.settings.shape == Shape::Long || self.settings.blocks) {
            self.text.extend_from_slice(b"total ");
            self.text.extend_from_slice(self.settings.block_unit.text(listing.total_bytes()).as_bytes());
            self.text.push(b'\n');
        }
        match self.settings.shape {
            Shape::Long => long::write(
                &mut self.text,
                listing,
                &self.settings,
                owners,
                &mut self.clock,
                &mut self.painter,
            ),
            _ => short::write(&mut self.text, listing, &self.settings, &mut self.painter),
        }
        Ok(self.out.write_all(&self.text)?)
    }

    fn write_json(&mut self, listing: &Listing, owners: &Owners) -> Outcome {
        for entry in &listing.entries {
            let name = listing.name(entry);
            let path = if listing.is_directory { join(&listing.path, name) } else { name.to_vec() };
            let line = crate::json::Line::new("entry").bytes("path", &path).bytes("name", name);
            let line = match &entry.attr {
                Some(attr) => line.attr(attr, owners),
                None => line.field("ino", entry.ino.0),
            };
            match &entry.target {
                Some(target) => line.bytes("target", target),
                None => line,
            }
            .write(&mut self.out)?;
        }
        Ok(())
    }
}
