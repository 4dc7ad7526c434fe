//! The place of a new entry: a free name, or a file that the entry replaces.
//!
//! Invariant: an entry that this run created is not replaced by another source, even if the volume treats two
//! different names as the same.
//! Source: GNU coreutils manual, "cp invocation"; `copy_internal` of coreutils 9 for details that the manual
//! omits.

use std::collections::HashSet;
use std::ops::ControlFlow;

use obento_base::{Attr, Error, FileKind, Ino, Name, NameBuf};
use obento_driver::Cookie;
use obento_host::tree::{Backup, Existing};
use obento_host::{HostError, Metadata};
use obento_vfs::{Node, Symlinks};

use super::{FROZEN, ImageWriter, Names, OWNER, Replaces};
use crate::copy::ProblemReason;

/// The place of an entry.
pub(super) enum Slot {
    /// No entry has the name.
    Free,
    /// This file has the name and is replaced.
    Taken(ReplacedFile),
    /// This file has the name and other names. The new bytes are written into it, so that all its names have
    /// them.
    Shared(Node),
    /// The existing entry stays.
    Skipped,
}

/// A replaced file, and its directory and name. If a symbolic link has the requested name, it is the target
/// of the link.
pub(super) struct ReplacedFile {
    pub dir: Node,
    pub name: NameBuf,
    pub node: Node,
    pub attr: Attr,
    /// Whether the copy takes over its mode, owner and attributes if those of the source are not kept.
    pub is_model: bool,
}

/// The treatment of an existing regular file that has the name of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OverwritePolicy {
    /// Replaces any entry, as tar(1) and mv(1) do.
    Entry,
    /// Follows a symbolic link and replaces its target: `cp --preserve=links`.
    File,
    /// As `File`, but writes into a file that has several names: cp(1).
    Contents,
    /// As `Contents`, but never writes into a file, because the file may be the source by another name.
    Apart,
}

/// The inodes that this run created, to distinguish them from existing ones.
#[derive(Default)]
pub(super) struct Created {
    inodes: HashSet<Ino>,
    /// Whether a directory that this run created may be entered again, so that its entries must be recorded
    /// as well.
    pub returns: bool,
}

/// The origin of the entry that a name refers to.
enum Maker {
    /// It existed before this run.
    Other,
    /// This run created it, under this name.
    Run,
    /// This run created it, under a name that the volume treats as the same.
    RunByOtherName,
}

impl ImageWriter {
    /// Returns the place of `name`, for an entry of `kind`. Removes an existing empty directory if any entry
    /// may be replaced.
    pub(super) fn slot(
        &mut self,
        name: &Name,
        kind: FileKind,
        meta: &Metadata<'_>,
    ) -> Result<Slot, ProblemReason> {
        if !self.may_hold_names() {
            return Ok(Slot::Free);
        }
        let Some(there) = self.find(name)? else { return Ok(Slot::Free) };
        let maker = self.maker(name, &there)?;
        if matches!(maker, Maker::RunByOtherName) {
            return Err(self.made_here(name));
        }
        let taken = self.taken(name, there, kind)?;
        match self.options.existing {
            Existing::Fail => {
                return Err(ProblemReason::Host(HostError::Exists { path: self.host_path(Some(name)) }));
            }
            Existing::Keep => return Ok(Slot::Skipped),
            Existing::Update if taken.attr.mtime >= meta.mtime => return Ok(Slot::Skipped),
            Existing::Update | Existing::Replace => {}
        }
        if taken.attr.kind == FileKind::Directory && self.replaces == Replaces::SameKind {
            return Err(ProblemReason::Host(HostError::IsDirectory { path: self.host_path(Some(name)) }));
        }
        let is_made = matches!(maker, Maker::Run) || self.created.inodes.contains(&taken.node.ino());
        if is_made && self.replaces == Replaces::SameKind && self.options.backup != Backup::Numbered {
            return Err(self.made_here(name));
        }
        if taken.attr.flags.intersects(FROZEN) {
            return Err(self.failed(Some(name), Error::NotPermitted));
        }
        if taken.attr.kind == FileKind::Directory {
            // A rename cannot replace a directory with another file.
            let removed = self.vfs.rmdir(OWNER, &taken.dir, &taken.name);
            removed.map_err(|error| self.failed(Some(name), error))?;
            return Ok(Slot::Free);
        }
        let is_shared = taken.attr.kind == FileKind::Regular && taken.attr.nlink > 1;
        if is_shared
            && kind == FileKind::Regular
            && self.over == OverwritePolicy::Contents
            && !self.makes_backups()
        {
            return Ok(Slot::Shared(taken.node));
        }
        Ok(Slot::Taken(taken))
    }

    /// Returns the replaced file if `there` has the name: a symbolic link to a file, or its target.
    fn taken(&self, name: &Name, there: Node, kind: FileKind) -> Result<ReplacedFile, ProblemReason> {
        let mut taken = self.end(name, there, kind)?;
        let is_unlinked = self.over == OverwritePolicy::File && taken.attr.nlink > 1;
        taken.is_model = kind == FileKind::Regular
            && taken.attr.kind == FileKind::Regular
            && !is_unlinked
            && !self.makes_backups();
        Ok(taken)
    }

    /// Returns the file that `there` is or leads to, with its directory and name.
    fn end(&self, name: &Name, there: Node, kind: FileKind) -> Result<ReplacedFile, ProblemReason> {
        let failed = |error| self.failed(Some(name), error);
        let attr = there.attr().map_err(failed)?;
        let dir = self.top().node.clone();
        let is_followed = attr.kind == FileKind::Symlink
            && kind == FileKind::Regular
            && self.over != OverwritePolicy::Entry
            && !self.makes_backups();
        if !is_followed {
            return Ok(ReplacedFile { dir, name: name.to_buf(), node: there, attr, is_model: false });
        }
        if self.created.inodes.contains(&attr.ino) {
            return Err(self.made_here(name));
        }
        let target = match self.vfs.resolve(&dir, name.as_bytes(), Symlinks::Follow, OWNER) {
            Err(Error::NotFound) => return Err(ProblemReason::Dangling(self.path(Some(name)))),
            found => found.map_err(failed)?,
        };
        let attr = target.attr().map_err(failed)?;
        if !matches!(attr.kind, FileKind::Regular | FileKind::Directory) {
            return Ok(ReplacedFile {
                dir,
                name: name.to_buf(),
                attr: there.attr().map_err(failed)?,
                node: there,
                is_model: false,
            });
        }
        let (dir, name) = self.end_of_link(dir, name).map_err(failed)?;
        Ok(ReplacedFile { dir, name, node: target, attr, is_model: false })
    }

    /// Returns the directory and name at the end of the chain of links that starts with `name` in `dir`.
    fn end_of_link(&self, mut dir: Node, name: &Name) -> Result<(Node, NameBuf), Error> {
        /// `MAXSYMLINKS` of Linux.
        const MAX_SYMLINKS: u32 = 40;
        let mut name = name.to_buf();
        for _ in 0..MAX_SYMLINKS {
            let node = dir.lookup(&name)?;
            if node.kind()? != FileKind::Symlink {
                return Ok((dir, name));
            }
            let last = self.vfs.resolve_parent(&dir, &node.read_link()?, OWNER)?;
            (dir, name) = (last.dir, last.name);
        }
        Err(Error::Loop)
    }

    fn makes_backups(&self) -> bool {
        self.options.backup != Backup::None
    }

    /// Returns the origin of `there`, which the volume finds by `name`.
    fn maker(&mut self, name: &Name, there: &Node) -> Result<Maker, ProblemReason> {
        if self.wrote(name) {
            return Ok(Maker::Run);
        }
        self.learn_inodes()?;
        if !self.created.inodes.contains(&there.ino()) {
            return Ok(Maker::Other);
        }
        let is_listed = self.lists(name).map_err(|error| self.failed(Some(name), error))?;
        Ok(if is_listed { Maker::Run } else { Maker::RunByOtherName })
    }

    /// Returns whether the directory has an entry with exactly this name.
    fn lists(&self, name: &Name) -> Result<bool, Error> {
        let mut is_listed = false;
        self.top().node.read_dir(Cookie::START, &mut |entry| {
            is_listed |= entry.is_ok_and(|entry| entry.name == name);
            if is_listed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(is_listed)
    }

    /// Fails if this run created the directory `there` under another name that the volume treats as `name`.
    pub(super) fn expect_same_name(&mut self, name: &Name, there: &Node) -> Result<(), ProblemReason> {
        match self.maker(name, there)? {
            Maker::RunByOtherName => Err(self.made_here(name)),
            Maker::Other | Maker::Run => Ok(()),
        }
    }

    fn made_here(&self, name: &Name) -> ProblemReason {
        ProblemReason::Host(HostError::Duplicate { path: self.host_path(Some(name)) })
    }

    /// Returns whether this run wrote `name` in a directory that existed before.
    pub(super) fn wrote(&self, name: &Name) -> bool {
        matches!(&self.top().names, Names::Merged(written) if written.contains(name))
    }

    /// Records that `name` was written here, and the inode if this run created it.
    pub(super) fn note_written(&mut self, name: &Name, made: Option<Ino>) {
        let returns = self.created.returns;
        let is_merged = matches!(self.top().names, Names::Merged(_));
        if let Names::Merged(names) = &mut self.top_mut().names {
            names.insert(name.to_buf());
        }
        self.created.inodes.extend(made.filter(|_| is_merged || returns));
    }

    /// Records that `name` will be written here in a batch.
    pub(super) fn note_name(&mut self, name: &Name) {
        if let Names::Merged(names) = &mut self.top_mut().names {
            names.insert(name.to_buf());
            self.top_mut().unseen.push(name.to_buf());
        }
    }

    /// Looks up the inodes of files that were created in a batch.
    fn learn_inodes(&mut self) -> Result<(), ProblemReason> {
        for name in std::mem::take(&mut self.top_mut().unseen) {
            if let Some(node) = self.find(&name)? {
                self.created.inodes.insert(node.ino());
            }
        }
        Ok(())
    }
}
