//! Writes a tree into an image.
//!
//! Invariant: a replacing file is written under a temporary name and renamed when it is complete. Other
//! processes find the old file or the new file, even after a crash. A copy that was killed leaves one file,
//! whose name identifies its target ([`crate::unfinished`]). The next copy to that target removes the file. Exception:
//! with `OverwritePolicy::Contents`, a file with several names is overwritten in place.
//! Invariant: in a directory that this run created, the writer does not look up a name before it creates the entry,
//! because the directory starts empty.
//! Invariant: metadata is set in the order owner and mode, extended attributes, times, because each step
//! resets a later one.
//!
//! An attribute, a link or a name that the format cannot store is a loss. Losses are counted in the [`Report`] and
//! not reported one by one.

mod attributes;
mod bundle;
mod links;
mod make;
mod place;
mod sink;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use obento_base::{Error, FileFlags, FileKind, Mode, Name, NameBuf, Timestamp};
use obento_driver::{Limits, StoredProperties};
use obento_host::tree::{Existing, LinkKey, Loss, Report, TreeOptions, Written};
use obento_host::{HostError, Metadata, Xattr};
use obento_vfs::{Caller, Node, Vfs};

use super::options::join;
use super::tree_sink::{FileError, NewEntry, TreeSink};
use super::{CopyError, Problem, ProblemReason};
use bundle::Bundle;
use links::InodeLinks;
pub use place::{ImageTarget, ResolvedTarget as TargetPlace};
pub(super) use sink::CHUNK;
use slot::Created;
pub(crate) use slot::OverwritePolicy;

/// Writes below one directory of an image. It has a current directory and creates entries there.
pub(crate) struct ImageWriter {
    vfs: Vfs,
    options: TreeOptions,
    /// The limits of the format.
    limits: Limits,
    umask: u16,
    /// The address of the root, for messages.
    prefix: Vec<u8>,
    /// The directories from the root to the current one. Never empty.
    levels: Vec<Level>,
    links: InodeLinks,
    report: Report,
    /// The entries so far, for [`TreeOptions::max_files`].
    entries: u64,
    /// The bytes of extended attributes so far, for [`TreeOptions::max_bytes`].
    xattr_bytes: u64,
    /// A buffer for copies from devices.
    buffer: Vec<u8>,
    /// Files that wait to be created in a batch.
    bundle: Bundle,
    replaces: Replaces,
    over: OverwritePolicy,
    created: Created,
}

/// A directory in which entries are created.
struct Level {
    node: Node,
    name: Option<NameBuf>,
    /// The metadata to set when the writer leaves it.
    meta: Option<Owned>,
    /// The times of access and modification to restore when the writer leaves it.
    restored: Option<(Timestamp, Timestamp)>,
    /// Whether this run created it, and if not, the names that this run wrote.
    names: Names,
    /// Names of `names` whose inodes are not known yet.
    unseen: Vec<NameBuf>,
    /// Whether the volume may treat two different names in this directory as the same.
    folds: bool,
    inherits: Inherits,
}

/// The rule that decides which entry may replace an existing entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replaces {
    /// As in cp(1): a directory and a file of another kind never replace each other, and each name is written
    /// once.
    SameKind,
    /// As in tar(1): every entry replaces every other entry, except a directory with entries. A later member
    /// replaces an earlier one.
    Any,
}

/// The treatment of the times of a directory that the writer enters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Times {
    /// The times change when entries are created in the directory.
    Change,
    /// The writer restores the times when it leaves the directory.
    Restore,
}

enum Names {
    /// This run created the directory, and no other process adds entries.
    Fresh,
    /// The directory existed before. This run wrote these names.
    Merged(HashSet<NameBuf>),
}

/// The properties that new entries inherit from a directory.
#[derive(Clone, Copy, Default)]
struct Inherits {
    /// The group, and for directories the set-group-ID bit.
    group: bool,
    /// The default access control list.
    acl: bool,
}

/// Metadata to set later.
struct Owned {
    /// All metadata except the extended attributes.
    meta: Metadata<'static>,
    xattrs: Vec<Xattr>,
}

impl Owned {
    fn new(meta: &Metadata<'_>) -> Self {
        let Metadata { mode, uid, gid, atime, mtime, ctime, xattrs } = *meta;
        Self { meta: Metadata { mode, uid, gid, atime, mtime, ctime, xattrs: &[] }, xattrs: xattrs.into() }
    }
}

impl ImageWriter {
    /// Creates a writer below the directory `root`. Fails with `NotDirectory` or `ReadOnly`.
    pub fn open(root: Node, prefix: Vec<u8>, options: TreeOptions) -> Result<Self, Error> {
        let vfs = root.vfs().clone();
        if root.kind()? != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        if vfs.flushed_file_system().writable().is_none() {
            return Err(Error::ReadOnly);
        }
        let limits = vfs.limits();
        let level = Level::merged(root, None, limits)?;
        Ok(Self {
            limits,
            vfs,
            options,
            umask: obento_host::tree::umask(),
            prefix,
            levels: vec![level],
            links: InodeLinks::default(),
            report: Report::default(),
            entries: 0,
            xattr_bytes: 0,
            buffer: Vec::new(),
            bundle: Bundle::default(),
            replaces: Replaces::SameKind,
            over: OverwritePolicy::Entry,
            created: Created::default(),
        })
    }

    /// Returns the current directory.
    pub fn directory(&self) -> &Node {
        &self.top().node
    }

    /// Returns the number of directories between the root and the current directory.
    pub fn depth(&self) -> usize {
        self.levels.len() - 1
    }

    fn top(&self) -> &Level {
        self.levels.last().expect("the root is never left")
    }

    fn top_mut(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the root is never left")
    }

    /// Returns the address of `name` in the current directory, or of the directory itself.
    fn path(&self, name: Option<&Name>) -> Vec<u8> {
        let mut path = self.prefix.clone();
        for name in self.levels.iter().filter_map(|level| level.name.as_deref()).chain(name) {
            path = join(&path, name.as_bytes());
        }
        path
    }

    fn host_path(&self, name: Option<&Name>) -> PathBuf {
        std::ffi::OsString::from_vec(self.path(name)).into()
    }

    fn failed(&self, name: Option<&Name>, error: Error) -> ProblemReason {
        ProblemReason::Target { path: self.path(name), error }
    }

    /// Enters the existing directory `name` without changing its metadata. `Times::Restore` restores its
    /// times as well.
    pub fn enter_existing(&mut self, name: &Name, times: Times) -> Result<(), ProblemReason> {
        self.make_waiting();
        let failed = |this: &Self, error| this.failed(Some(name), error);
        let node = self.find(name)?.ok_or_else(|| failed(self, Error::NotFound))?;
        let attr = node.attr().map_err(|error| failed(self, error))?;
        let mut level =
            Level::merged(node, Some(name.to_buf()), self.limits).map_err(|error| failed(self, error))?;
        if times == Times::Restore {
            level.restored = Some((attr.atime, attr.mtime));
        }
        self.levels.push(level);
        Ok(())
    }

    /// Sets which entry may replace an existing entry.
    pub fn set_replaces(&mut self, replaces: Replaces) {
        self.replaces = replaces;
        self.created.returns |= replaces == Replaces::Any && self.top().folds;
    }

    fn is_directory(&self, name: &Name, node: &Node) -> Result<bool, ProblemReason> {
        let kind = node.kind().map_err(|error| self.failed(Some(name), error))?;
        Ok(kind == FileKind::Directory)
    }

    /// Removes `node`, an entry with the `name` of a directory that will be created.
    fn remove_for_directory(&self, name: &Name, node: &Node) -> Result<(), ProblemReason> {
        if self.replaces == Replaces::SameKind || self.options.existing != Existing::Replace {
            return Err(ProblemReason::Host(HostError::NotDirectory { path: self.host_path(Some(name)) }));
        }
        let attr = node.attr().map_err(|error| self.failed(Some(name), error))?;
        if attr.flags.intersects(FROZEN) {
            return Err(self.failed(Some(name), Error::NotPermitted));
        }
        self.vfs.unlink(OWNER, &self.top().node, name).map_err(|error| self.failed(Some(name), error))
    }

    /// Sets how existing files are treated.
    pub fn over(&mut self, over: OverwritePolicy) {
        self.over = over;
    }

    /// Allows that a directory that this run created is entered again, for another source.
    pub fn may_return(&mut self) {
        self.created.returns = true;
    }

    /// Returns the names from the root to the current directory.
    pub fn names(&self) -> impl Iterator<Item = &NameBuf> {
        self.levels.iter().filter_map(|level| level.name.as_ref())
    }

    /// Returns the bits that a new entry does not get.
    pub fn umask(&self) -> u16 {
        self.umask
    }

    /// Returns the entry `name` of the current directory.
    pub fn find(&self, name: &Name) -> Result<Option<Node>, ProblemReason> {
        match self.top().node.lookup(name) {
            Ok(node) => Ok(Some(node)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(self.failed(Some(name), error)),
        }
    }

    /// Returns the properties that entries inherit from a directory that was just created. These are the
    /// properties that the directory itself has inherited.
    fn inherited(&self, node: &Node) -> Result<Inherits, Error> {
        let above = self.top().inherits;
        if !above.group && !above.acl { Ok(Inherits::default()) } else { Inherits::of(node) }
    }

    /// Returns whether the current directory may contain a name.
    fn may_hold_names(&self) -> bool {
        self.replaces == Replaces::Any || matches!(self.top().names, Names::Merged(_))
    }
}

impl TreeSink for ImageWriter {
    fn set_root(&mut self, meta: &Metadata<'_>) {
        if self.options.existing != Existing::Keep
            && let Some(root) = self.levels.first_mut()
        {
            root.meta = Some(Owned::new(meta));
        }
    }

    fn enter(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<(), ProblemReason> {
        self.make_waiting();
        self.take_entry(name)?;
        self.take_xattrs(name, meta)?;
        let there = if self.may_hold_names() { self.find(name)? } else { None };
        let there = match there {
            Some(node) if !self.is_directory(name, &node)? => {
                self.remove_for_directory(name, &node)?;
                None
            }
            there => there,
        };
        let (level, fresh) = match there {
            Some(node) => {
                self.expect_same_name(name, &node)?;
                let level = Level::merged(node, Some(name.to_buf()), self.limits);
                (level.map_err(|error| self.failed(Some(name), error))?, false)
            }
            None => {
                let node = self.make_directory(name, meta)?;
                self.report.directories += 1;
                // The default list of the source is set when the writer leaves the directory.
                let inherits = self.inherited(&node).map_err(|error| self.failed(Some(name), error))?;
                self.note_written(name, Some(node.ino()));
                let level = Level {
                    folds: self.top().folds,
                    node,
                    name: Some(name.to_buf()),
                    meta: None,
                    restored: None,
                    names: Names::Fresh,
                    unseen: Vec::new(),
                    inherits,
                };
                (level, true)
            }
        };
        self.levels.push(level);
        if fresh || self.options.existing != Existing::Keep {
            self.top_mut().meta = Some(Owned::new(meta));
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ProblemReason> {
        self.make_waiting();
        if self.levels.len() == 1 {
            return Ok(());
        }
        let done = self.complete();
        self.levels.pop();
        done
    }

    fn create_or_drop(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        entry: NewEntry<'_>,
    ) -> Result<Written, FileError> {
        match entry {
            NewEntry::File(fill) => self.file(name, meta, fill).map(|()| Written::Created),
            NewEntry::Symlink(target) => Ok(self.symlink(name, meta, target)?),
            NewEntry::Node(kind, rdev) => Ok(self.node(name, meta, kind, rdev)?),
        }
    }

    fn create_later(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        bytes: &[u8],
    ) -> Result<bool, ProblemReason> {
        self.add_to_bundle(name, meta, bytes)
    }

    fn lose(&mut self, loss: Loss, name: &Name) {
        let path = self.host_path(Some(name));
        self.report.refused(loss, Error::NotSupported, || path);
    }

    fn remember(&mut self, key: LinkKey, name: &Name, more: u32) -> Result<(), ProblemReason> {
        self.remember_inode(key, name, more)
    }

    fn link(&mut self, name: &Name, meta: &Metadata<'_>, key: LinkKey) -> Result<bool, ProblemReason> {
        self.link_recorded(name, meta, key)
    }

    fn late_problems(&mut self) -> Vec<Problem> {
        self.bundle.late_problems()
    }

    fn settle(&mut self) {
        self.make_waiting();
    }

    fn finish(mut self) -> Result<Report, CopyError> {
        self.make_waiting();
        let mut first = Ok(());
        loop {
            first = first.and(self.complete());
            if self.levels.len() == 1 {
                break;
            }
            self.levels.pop();
        }
        match first {
            Ok(()) => Ok(self.report),
            Err(ProblemReason::Target { path, error }) => Err(CopyError::Target { path, error }),
            Err(trouble) => Err(CopyError::Problem(trouble)),
        }
    }
}

impl Level {
    fn merged(node: Node, name: Option<NameBuf>, limits: Limits) -> Result<Self, Error> {
        let inherits = Inherits::of(&node)?;
        let folds = !limits.keeps.contains(StoredProperties::NAMES)
            || node.attr()?.flags.contains(FileFlags::CASEFOLD);
        let (names, unseen) = (Names::Merged(HashSet::new()), Vec::new());
        Ok(Self { node, name, meta: None, restored: None, names, unseen, folds, inherits })
    }
}

impl Inherits {
    fn of(node: &Node) -> Result<Self, Error> {
        let attr = node.attr()?;
        let acl = match node.get_xattr(attributes::DEFAULT_ACL) {
            Ok(_) => true,
            Err(Error::NoData | Error::NotSupported) => false,
            Err(error) => return Err(error),
        };
        Ok(Self { group: attr.mode.contains(Mode::SET_GID), acl })
    }
}

/// The caller of all operations: the owner of the image.
const OWNER: &Caller = &Caller::Owner;
/// Flags of a file that cannot be replaced.
const FROZEN: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);
