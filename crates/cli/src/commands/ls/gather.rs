//! Collecting the entries of a listing: those of a directory, or the operands that are not directories.
//!
//! A directory is read completely before the inodes of its entries, and the names share one buffer. A listing of
//! thousands of entries therefore costs few allocations.
//!
//! Invariant: the memory for one directory, with its output, stays within [`BUDGET`]. Of a larger directory the first entries are
//! listed, and the rest is reported.

use std::ops::ControlFlow;

use obento::base::{Attr, FileKind, Ino, Name};
use obento::driver::{Cookie, DirEntry};
use obento::vfs::{Caller, Symlinks};
use obento::{Error, Node, Result, Volume};

use super::settings::{Dereference, Hide, Indicator, Settings};
use super::sort;
use crate::context::Context;
use crate::format::colors::{ColorTarget, Painter};
use crate::open::{Found, join};
use crate::report::Report;

/// The memory for one directory in bytes: enough for more than 200,000 entries with short names.
pub const BUDGET: usize = 72 << 20;
/// The output of an entry without its name.
const TEXT: usize = 100;

/// An entry of the listing.
pub struct ListedEntry {
    start: usize,
    len: usize,
    pub ino: Ino,
    /// The type according to the directory.
    kind: Option<FileKind>,
    /// `None` if no attribute is shown, or if the inode cannot be read.
    pub attr: Option<Attr>,
    /// The target of a symbolic link, and its state.
    pub target: Option<Vec<u8>>,
    pub at_target: AtTarget,
    /// The character after the mode: `+` for an access control list, `.` for a security context.
    pub mark: u8,
    /// Whether this is `.` or `..`.
    pub is_dots: bool,
}

/// The target of a symbolic link, boxed because few entries need it.
pub enum AtTarget {
    NotAsked,
    Missing,
    File(Box<Attr>),
}

impl ListedEntry {
    /// Returns the type: that of the inode if it was read.
    pub fn kind(&self) -> Option<FileKind> {
        self.attr.map(|attr| attr.kind).or(self.kind)
    }

    /// Returns the facts that determine the colour of the name.
    pub fn look(&self, links_as_targets: bool) -> Option<ColorTarget> {
        match (&self.at_target, self.attr) {
            (AtTarget::Missing, _) => Some(ColorTarget::Orphan),
            (AtTarget::File(target), _) if links_as_targets => Some(look(target)),
            (_, Some(attr)) => Some(look(&attr)),
            _ => None,
        }
    }

    /// Returns the facts that determine the colour of the target's name.
    pub fn target_look(&self) -> Option<ColorTarget> {
        match &self.at_target {
            AtTarget::NotAsked => None,
            AtTarget::Missing => Some(ColorTarget::Missing),
            AtTarget::File(target) => Some(look(target)),
        }
    }
}

fn look(attr: &Attr) -> ColorTarget {
    ColorTarget::File { kind: attr.kind, mode: attr.mode, nlink: attr.nlink }
}

/// Entries that are listed together.
pub struct Listing {
    names: Vec<u8>,
    pub entries: Vec<ListedEntry>,
    /// Whether these are the entries of one directory.
    pub is_directory: bool,
    /// The address of the directory.
    pub path: Vec<u8>,
    directory: Option<Node>,
}

impl Listing {
    /// Reads the entries of a directory in its own order, up to `budget` bytes. Damage is reported, and costs only the damaged entries.
    pub fn read(
        node: &Node,
        path: &[u8],
        settings: &Settings,
        context: &Context,
        budget: usize,
    ) -> Result<Self> {
        let mut listing = Self {
            names: Vec::new(),
            entries: Vec::new(),
            is_directory: true,
            path: path.to_vec(),
            directory: Some(node.clone()),
        };
        if settings.hide == Hide::Nothing {
            if !settings.ignores(b".") {
                listing.add(b".", node.ino(), Some(FileKind::Directory));
            }
            if !settings.ignores(b"..") {
                let parent = node.parent().map_or(node.ino(), |parent| parent.ino());
                listing.add(b"..", parent, Some(FileKind::Directory));
            }
            listing.entries.iter_mut().for_each(|entry| entry.is_dots = true);
        }
        let (mut held, mut is_cut) = (0_usize, false);
        node.read_dir(Cookie::START, &mut |entry: Result<DirEntry<'_>>| {
            if held > budget {
                is_cut = true;
                return ControlFlow::Break(());
            }
            match entry {
                Ok(entry) if settings.hide == Hide::Dotted && entry.name.as_bytes().starts_with(b".") => {}
                Ok(entry) if settings.ignores(entry.name.as_bytes()) => {}
                Ok(entry) => {
                    held += size_of::<ListedEntry>() + TEXT + 2 * entry.name.as_bytes().len();
                    listing.add(entry.name.as_bytes(), entry.ino, entry.kind);
                }
                Err(error) => context.warn(&damaged(path, error)),
            }
            ControlFlow::Continue(())
        })?;
        if is_cut {
            context.warn(&too_large(path, listing.entries.len()));
        }
        Ok(listing)
    }

    /// Creates a listing of operands.
    pub fn of_operands(operands: &[Found], context: &Context) -> Self {
        let mut listing = Self {
            names: Vec::new(),
            entries: Vec::new(),
            is_directory: false,
            path: Vec::new(),
            directory: None,
        };
        for operand in operands {
            match operand.node.attr() {
                Ok(attr) => {
                    listing.add(&operand.shown(), attr.ino, Some(attr.kind));
                    if let Some(entry) = listing.entries.last_mut() {
                        entry.attr = Some(attr);
                    }
                }
                Err(error) => context.fail(&operand.location.not_found("cannot access", error)),
            }
        }
        listing
    }

    fn add(&mut self, name: &[u8], ino: Ino, kind: Option<FileKind>) {
        self.entries.push(ListedEntry {
            start: self.names.len(),
            len: name.len(),
            ino,
            kind,
            attr: None,
            target: None,
            at_target: AtTarget::NotAsked,
            mark: b' ',
            is_dots: false,
        });
        self.names.extend_from_slice(name);
    }

    /// Returns the name of an entry.
    pub fn name(&self, entry: &ListedEntry) -> &[u8] {
        &self.names[entry.start..entry.start + entry.len]
    }

    /// Returns the space that the entries use.
    pub fn total_bytes(&self) -> u64 {
        let blocks = self.entries.iter().filter_map(|entry| entry.attr).map(|attr| attr.blocks);
        blocks.fold(0, u64::saturating_add).saturating_mul(512)
    }

    /// Adds the attributes that the settings require to each entry, and sorts the entries.
    pub fn finish(
        &mut self,
        volume: &Volume,
        settings: &Settings,
        painter: &Option<Painter>,
        context: &Context,
    ) {
        if settings.wants_attr(painter.is_some()) {
            self.read_attrs(volume, settings, context);
        }
        if settings.targets {
            self.read_targets(volume, settings, context);
        }
        let colors = painter.as_ref().is_some_and(|painter| painter.colors.wants_targets());
        let marks = matches!(settings.indicator, Indicator::All | Indicator::Type);
        if colors || marks && settings.targets {
            self.look_at_targets();
        }
        if settings.targets {
            self.read_marks(volume, settings);
        }
        sort::sort(self, settings);
    }

    fn read_attrs(&mut self, volume: &Volume, settings: &Settings, context: &Context) {
        for at in 0..self.entries.len() {
            let entry = &self.entries[at];
            if entry.attr.is_some() {
                continue;
            }
            match self.node_of(entry, volume, settings).and_then(|node| node.attr()) {
                Ok(attr) => {
                    self.entries[at].attr = Some(attr);
                    self.entries[at].ino = attr.ino;
                }
                Err(error) => context.warn(&Report::on("cannot access", self.path_of(entry), error)),
            }
        }
    }

    /// Returns the file of an entry, or the file to which a link refers that is followed. The driver may have forgotten
    /// the number of a file that is not in use. The file is then found by its name.
    fn node_of(&self, entry: &ListedEntry, volume: &Volume, settings: &Settings) -> Result<Node> {
        let directory = self.directory.as_ref().filter(|_| !entry.is_dots);
        let Some((directory, name)) = directory.zip(Name::new(self.name(entry)).ok()) else {
            return volume.vfs().node(entry.ino);
        };
        if settings.dereference == Dereference::Always && entry.kind != Some(FileKind::Directory) {
            return follow_link(directory, name.as_bytes());
        }
        directory.child(&DirEntry { name, ino: entry.ino, kind: entry.kind, next: Cookie::START })
    }

    fn read_targets(&mut self, volume: &Volume, settings: &Settings, context: &Context) {
        for at in 0..self.entries.len() {
            let entry = &self.entries[at];
            if entry.attr.is_none_or(|attr| attr.kind != FileKind::Symlink) {
                continue;
            }
            match self.node_of(entry, volume, settings).and_then(|node| node.read_link()) {
                Ok(target) => self.entries[at].target = Some(target),
                Err(error) => {
                    context.warn(&Report::on("cannot read symbolic link", self.path_of(entry), error))
                }
            }
        }
    }

    fn look_at_targets(&mut self) {
        let Some(directory) = self.directory.clone() else { return };
        for at in 0..self.entries.len() {
            let entry = &self.entries[at];
            if entry.kind() == Some(FileKind::Symlink) {
                let target = follow_link(&directory, self.name(entry)).and_then(|node| node.attr());
                self.entries[at].at_target =
                    target.map_or(AtTarget::Missing, |attr| AtTarget::File(Box::new(attr)));
            }
        }
    }

    /// Marks entries as GNU `ls` does: for an access control list beyond the mode, or for a security context alone.
    fn read_marks(&mut self, volume: &Volume, settings: &Settings) {
        let fs = volume.vfs().flushed_file_system().clone();
        let Some(xattrs) = fs.xattrs() else { return };
        for at in 0..self.entries.len() {
            let entry = &self.entries[at];
            if entry.kind() == Some(FileKind::Symlink) {
                continue;
            }
            let mut mark = b' ';
            // Attributes that cannot be read leave no mark; getfattr reports the error.
            let Ok(node) = self.node_of(entry, volume, settings) else { continue };
            let _ = xattrs.list_xattrs(node.ino(), &mut |name| match name {
                b"system.posix_acl_access" | b"system.posix_acl_default" => mark = b'+',
                b"security.selinux" if mark == b' ' => mark = b'.',
                _ => {}
            });
            self.entries[at].mark = mark;
        }
    }

    fn path_of(&self, entry: &ListedEntry) -> Vec<u8> {
        match self.is_directory {
            true => join(&self.path, self.name(entry)),
            false => self.name(entry).to_vec(),
        }
    }
}

/// Returns the report of a directory that can be read only in part, with the command that copies the readable files.
fn damaged(path: &[u8], error: Error) -> Report {
    crate::open::damaged(Report::on("cannot read all of directory", path, error), error)
}

/// Returns the report that a directory has more than the `shown` entries that fit in memory.
fn too_large(path: &[u8], shown: usize) -> Report {
    let cause = format!("too many entries for the memory limit; the first {shown} are shown");
    let help = format!("to list all entries: obento find {} -maxdepth 1", crate::report::subject(path));
    Report::on("cannot list all of directory", path, cause).help(help)
}

fn follow_link(directory: &Node, name: &[u8]) -> Result<Node> {
    directory.vfs().resolve(directory, name, Symlinks::Follow, &Caller::Owner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use obento::base::Mode;
    use obento::driver::{FileSystem as _, NewNode, WritableFileSystem as _};
    use obento::env::SystemClock;
    use obento::tmpfs::{self, Tmpfs};
    use obento_testkit::forgetful::Forgetful;

    use super::*;
    use crate::cli::Cli;
    use crate::commands::Command;

    #[test]
    fn a_directory_that_is_too_large_is_truncated_and_reported() {
        let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
        for number in 0..500 {
            let name = format!("file{number}");
            let name = obento::base::Name::new(name.as_bytes()).unwrap();
            let mode = obento::base::Mode::new(0o644);
            let (uid, gid, rdev) = (0, 0, Default::default());
            let new = obento::driver::NewNode { kind: FileKind::Regular, mode, uid, gid, rdev, target: b"" };
            volume.vfs().create(&Caller::Owner, &volume.root(), name, &new).unwrap();
        }
        let Cli { global, command: Command::Ls(args), .. } = Cli::parse_from(["obento", "ls", "x"]) else {
            panic!("not ls")
        };
        let context = Context::new(global, obento::Registry::default(), crate::cli::TABLE);
        let settings = Settings::new(&args, &context).unwrap();
        let read = |budget| Listing::read(&volume.root(), b"x:/", &settings, &context, budget).unwrap();
        assert_eq!((read(BUDGET).entries.len(), context.status()), (500, 0));
        let cut = read(20_000).entries.len();
        assert!((20..200).contains(&cut), "{cut}");
        assert_eq!(context.status(), 1);
    }

    #[test]
    fn a_file_that_the_driver_forgot_after_the_listing_is_found_by_its_name() {
        let fs = Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)));
        let mode = Mode::new(0o644);
        let (kind, uid, gid, rdev) = (FileKind::Symlink, 0, 0, Default::default());
        let new = NewNode { kind, mode, uid, gid, rdev, target: b"target" };
        fs.create(fs.root(), Name::new(b"link").unwrap(), &new).unwrap();
        let volume = Volume::new(Arc::new(Forgetful::new(fs, 1)));
        let Cli { global, command: Command::Ls(args), .. } = Cli::parse_from(["obento", "ls", "-l", "x"])
        else {
            panic!("not ls")
        };
        let context = Context::new(global, obento::Registry::default(), crate::cli::TABLE);
        let settings = Settings::new(&args, &context).unwrap();
        let mut listing = Listing::read(&volume.root(), b"x:/", &settings, &context, BUDGET).unwrap();
        listing.finish(&volume, &settings, &None, &context);
        let targets: Vec<_> = listing.entries.iter().map(|entry| entry.target.as_deref()).collect();
        assert_eq!((targets, context.status()), (vec![Some(&b"target"[..])], 0));
    }
}
