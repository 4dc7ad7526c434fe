//! Writing a tree into an image.
//!
//! Invariant: a file that replaces another is written under a name of its own and renamed when it is whole, so that
//! whoever looks, also after a crash, finds the old file or the new one. What is left of a copy that was killed is one
//! file whose name says for whom it was ([`crate::unfinished`]); the next copy to that file removes it.
//! Invariant: nothing below a directory that was made here is looked up before it is made: it starts empty.
//! Invariant: metadata is set in the order owner and mode, extended attributes, times, because each resets one that follows.
//!
//! What the format cannot hold (an attribute, a link, a name) is counted in the [`Report`], and nobody is told of each.

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
use obento_driver::{Keeps, Limits};
use obento_host::tree::{Existing, Report, TreeOptions};
use obento_host::{HostError, Metadata, Xattr};
use obento_vfs::{Caller, Node, Vfs};

use super::options::join;
use super::{CopyError, Trouble};
use bundle::Bundle;
use links::InodeLinks;
pub use place::{ImageTarget, Place as TargetPlace};
pub(super) use sink::CHUNK;
use slot::Created;
pub(crate) use slot::Over;

/// Writes below one directory of an image: it stands in a directory and makes entries there.
pub(crate) struct ImageWriter {
    vfs: Vfs,
    options: TreeOptions,
    /// What the format can hold.
    limits: Limits,
    umask: u16,
    /// The address of the root, for messages.
    prefix: Vec<u8>,
    /// The directories from the root to where it stands; never empty.
    levels: Vec<Level>,
    links: InodeLinks,
    report: Report,
    /// Where bytes of a device pass through.
    buffer: Vec<u8>,
    /// Files that are made with those that follow.
    bundle: Bundle,
    replaces: Replaces,
    over: Over,
    created: Created,
}

/// A directory in which things are made.
struct Level {
    node: Node,
    name: Option<NameBuf>,
    /// What to set when it is left.
    meta: Option<Owned>,
    /// Access and modification times to put back when it is left.
    restored: Option<(Timestamp, Timestamp)>,
    /// Whether it was made here, and what was since, if it was not.
    names: Names,
    /// Names of `names` whose inodes are not known yet.
    unseen: Vec<NameBuf>,
    /// Whether the volume may take two names in this directory for one.
    folds: bool,
    inherits: Inherits,
}

/// What may take the place of what has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replaces {
    /// As in cp(1): a directory and anything else never replace each other, and a name is written once.
    SameKind,
    /// As in tar(1): everything replaces everything but a directory that has entries, and a later member an earlier one.
    Any,
}

/// What becomes of the times of a directory that is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Times {
    /// They change with what is made in it.
    Change,
    /// They are put back.
    Restore,
}

enum Names {
    /// Made here: nobody else put anything into it.
    Fresh,
    /// There before; these were written since.
    Merged(HashSet<NameBuf>),
}

/// What new entries of a directory get from it.
#[derive(Clone, Copy, Default)]
struct Inherits {
    /// Its group, and as directories its set-group-ID bit.
    group: bool,
    /// Its default access control list.
    acl: bool,
}

/// Metadata to be set later.
struct Owned {
    /// All but the extended attributes.
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
    /// Writes below the directory `root`. Errors: NotDirectory; ReadOnly.
    pub fn open(root: Node, prefix: Vec<u8>, options: TreeOptions) -> Result<Self, Error> {
        let vfs = root.vfs().clone();
        if root.kind()? != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        if vfs.file_system().writable().is_none() {
            return Err(Error::ReadOnly);
        }
        let limits = vfs.file_system().limits();
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
            buffer: Vec::new(),
            bundle: Bundle::default(),
            replaces: Replaces::SameKind,
            over: Over::Entry,
            created: Created::default(),
        })
    }

    /// The directory in which it stands.
    pub fn directory(&self) -> &Node {
        &self.top().node
    }

    /// How many directories lie between the root and where it stands.
    pub fn depth(&self) -> usize {
        self.levels.len() - 1
    }

    fn top(&self) -> &Level {
        self.levels.last().expect("the root is never left")
    }

    fn top_mut(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the root is never left")
    }

    /// The address of `name` here, or of the directory itself.
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

    fn failed(&self, name: Option<&Name>, error: Error) -> Trouble {
        Trouble::Target { path: self.path(name), error }
    }

    /// The root gets this metadata at the end.
    pub fn set_root(&mut self, meta: &Metadata<'_>) {
        if self.options.existing != Existing::Keep
            && let Some(root) = self.levels.first_mut()
        {
            root.meta = Some(Owned::new(meta));
        }
    }

    /// Steps into the directory `name`, and makes it if it is not there. Its metadata is set when it is left.
    pub fn enter(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<(), Trouble> {
        self.make_waiting();
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
                // Its default list, if it is to have one, is set when it is left.
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

    /// Steps into the directory `name`, which is there, and leaves it as it is; with `Times::Restore`, also its times.
    pub fn enter_existing(&mut self, name: &Name, times: Times) -> Result<(), Trouble> {
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

    /// Sets what may take the place of what has a name.
    pub fn set_replaces(&mut self, replaces: Replaces) {
        self.replaces = replaces;
        self.created.returns |= replaces == Replaces::Any && self.top().folds;
    }

    fn is_directory(&self, name: &Name, node: &Node) -> Result<bool, Trouble> {
        let kind = node.kind().map_err(|error| self.failed(Some(name), error))?;
        Ok(kind == FileKind::Directory)
    }

    /// Removes `node`, which has the `name` of a directory that is to be made.
    fn remove_for_directory(&self, name: &Name, node: &Node) -> Result<(), Trouble> {
        if self.replaces == Replaces::SameKind || self.options.existing != Existing::Replace {
            return Err(Trouble::Host(HostError::NotDirectory { path: self.host_path(Some(name)) }));
        }
        let attr = node.attr().map_err(|error| self.failed(Some(name), error))?;
        if attr.flags.intersects(FROZEN) {
            return Err(self.failed(Some(name), Error::NotPermitted));
        }
        self.vfs.unlink(OWNER, &self.top().node, name).map_err(|error| self.failed(Some(name), error))
    }

    /// How files that exist are treated.
    pub fn over(&mut self, over: Over) {
        self.over = over;
    }

    /// From now on a directory that was made and left may be entered again, for another source.
    pub fn may_return(&mut self) {
        self.created.returns = true;
    }

    /// The names that lead from the root to where it stands.
    pub fn names(&self) -> impl Iterator<Item = &NameBuf> {
        self.levels.iter().filter_map(|level| level.name.as_ref())
    }

    /// The bits that a new entry does not get.
    pub fn umask(&self) -> u16 {
        self.umask
    }

    /// What `name` leads to here.
    pub fn find(&self, name: &Name) -> Result<Option<Node>, Trouble> {
        match self.top().node.lookup(name) {
            Ok(node) => Ok(Some(node)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(self.failed(Some(name), error)),
        }
    }

    /// Sets the metadata of the directory it stands in and steps out of it; at the root it does nothing.
    pub fn leave(&mut self) -> Result<(), Trouble> {
        self.make_waiting();
        if self.levels.len() == 1 {
            return Ok(());
        }
        let done = self.complete();
        self.levels.pop();
        done
    }

    /// Leaves all directories and answers what was written.
    pub fn finish(mut self) -> Result<Report, CopyError> {
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
            Err(Trouble::Target { path, error }) => Err(CopyError::Target { path, error }),
            Err(trouble) => Err(CopyError::Problem(trouble)),
        }
    }

    /// What a directory that was just made gives to its entries: only what it inherited itself.
    fn inherited(&self, node: &Node) -> Result<Inherits, Error> {
        let above = self.top().inherits;
        if !above.group && !above.acl { Ok(Inherits::default()) } else { Inherits::of(node) }
    }

    /// Whether a name may be taken here.
    fn may_hold_names(&self) -> bool {
        self.replaces == Replaces::Any || matches!(self.top().names, Names::Merged(_))
    }
}

impl Level {
    fn merged(node: Node, name: Option<NameBuf>, limits: Limits) -> Result<Self, Error> {
        let inherits = Inherits::of(&node)?;
        let folds = !limits.keeps.contains(Keeps::NAMES) || node.attr()?.flags.contains(FileFlags::CASEFOLD);
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

/// For whom everything is done: the image's owner.
const OWNER: &Caller = &Caller::Owner;
/// Flags of a file that nothing may replace.
const FROZEN: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);
