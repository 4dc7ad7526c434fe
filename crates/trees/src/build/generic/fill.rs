//! Writes a tree through the interface of a driver. Only the space for the bytes of files is allocated; the bytes are
//! not written.

use std::collections::BTreeMap;
use std::iter;
use std::mem;
use std::ops::Range;

use obento_base::{Attr, Error, FileKind, Ino, Name};
use obento_driver::tree::{Body, Node};
use obento_driver::{
    BuildError, FileSystem, FormatError, FormatNotice, LayoutLock, Limits, NewNode, NodeId, SetAttr, Span,
    TimeChange, Tree, Unfit, WritableFileSystem, XattrMode,
};

use super::HoleCost;

/// Bytes written at once if the driver writes the data itself.
const ZEROS: usize = 1 << 20;

/// The reason why a tree was not laid out.
pub(super) enum LayoutError {
    /// The format cannot have such a volume.
    Format(FormatError),
    /// The volume has too little space. If it is known, `about` is an estimate of the bytes that are sufficient.
    Full { about: u64 },
    /// The volume is shorter than the files in it, with or without their holes.
    Short(HoleCost),
    /// The format cannot store these files.
    Unfit(Vec<(NodeId, Unfit)>),
    /// The driver failed.
    Error(Error),
}

impl LayoutError {
    /// Returns whether a larger volume could help.
    pub(super) fn is_size(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Short(_) | Self::Format(FormatError::TooSmall { .. }))
    }

    /// Converts to an error of the driver interface, for a volume of `len` bytes.
    pub(super) fn into_error(self, len: u64) -> BuildError {
        match self {
            Self::Format(error) => BuildError::Format(error),
            Self::Full { .. } | Self::Short(_) => BuildError::TooSmall { len, needed: len },
            Self::Unfit(files) => BuildError::Unfit(files),
            Self::Error(error) => error.into(),
        }
    }
}

impl From<Error> for LayoutError {
    fn from(error: Error) -> Self {
        if error == Error::NoSpace { Self::Full { about: 0 } } else { Self::Error(error) }
    }
}

/// Returns the ranges of a regular file that contain data.
pub(in crate::build) fn data_ranges(tree: &Tree, id: NodeId, body: Body) -> Vec<Range<u64>> {
    match (body, tree.data_ranges(id)) {
        (Body::File { data: Some(_), .. }, Some(ranges)) => ranges.to_vec(),
        (Body::File { size, data: Some(_) }, None) if size > 0 => iter::once(0..size).collect(),
        _ => Vec::new(),
    }
}

/// The number of files for each property that the format could not store.
#[derive(Default)]
struct Lost {
    modes: u64,
    owners: u64,
    times: u64,
    xattrs: u64,
    links: u64,
}

/// A tree that is being written.
pub(super) struct TreeFill<'a> {
    file_system: &'a dyn FileSystem,
    writable: &'a dyn WritableFileSystem,
    tree: &'a Tree,
    limits: Limits,
    places: Places,
    unfit: BTreeMap<NodeId, Unfit>,
    lost: Lost,
    written: Written,
}

/// The part of a tree that has been written.
#[derive(Clone, Copy, Default)]
pub(super) struct Written {
    pub nodes: u64,
    /// The bytes of files.
    pub data: u64,
}

/// The inodes of all nodes.
#[derive(Default)]
pub(super) struct Places {
    /// The first inode of each node.
    first: Vec<Option<Ino>>,
    /// The inodes of further names, in formats without hard links.
    copies: BTreeMap<NodeId, Vec<Ino>>,
}

impl Places {
    fn first(&self, id: NodeId) -> Option<Ino> {
        self.first.get(id.0 as usize).copied().flatten()
    }

    /// Returns all inodes of a node.
    pub(super) fn of(&self, id: NodeId) -> impl Iterator<Item = Ino> {
        self.first(id).into_iter().chain(self.copies.get(&id).into_iter().flatten().copied())
    }

    fn add(&mut self, id: NodeId, ino: Ino) {
        match self.first.get_mut(id.0 as usize) {
            Some(first @ None) => *first = Some(ino),
            _ => self.copies.entry(id).or_default().push(ino),
        }
    }
}

/// The inodes, and the losses.
type Filled = (Places, Vec<FormatNotice>);

impl<'a> TreeFill<'a> {
    /// Writes to an empty volume. Fails if the volume cannot be written.
    pub(super) fn new(file_system: &'a dyn FileSystem, tree: &'a Tree) -> Result<Self, LayoutError> {
        let writable = file_system.writable().ok_or(LayoutError::Error(Error::NotSupported))?;
        let mut places = Places { first: vec![None; tree.len() as usize], ..Places::default() };
        places.add(NodeId::ROOT, file_system.root());
        let (unfit, lost, limits) = (BTreeMap::new(), Lost::default(), file_system.limits());
        Ok(Self { file_system, writable, tree, limits, places, unfit, lost, written: Written::default() })
    }

    /// Returns the part of the tree that has been written.
    pub(super) fn written(&self) -> Written {
        self.written
    }

    /// Writes the whole tree and closes the volume.
    pub(super) fn run(&mut self) -> Result<Filled, LayoutError> {
        for (dir, node) in self.tree.nodes() {
            if node.body == Body::Directory {
                self.directory(dir)?;
            }
        }
        if !self.unfit.is_empty() {
            return Err(LayoutError::Unfit(mem::take(&mut self.unfit).into_iter().collect()));
        }
        // Attributes are set last, because a new name changes the times of its directory.
        for (id, node) in self.tree.nodes() {
            for (at, ino) in self.places.of(id).enumerate().collect::<Vec<_>>() {
                let held = self.attributes(ino, node)?;
                // Many formats store only the entries of the root directory. The loss of its attributes is
                // not reported.
                if id != NodeId::ROOT {
                    self.lost.links += u64::from(at > 0);
                    self.count_lost(node, &held);
                    self.file_system.forget(ino);
                }
            }
        }
        self.writable.close()?;
        let Lost { modes, owners, times, xattrs, links } = mem::take(&mut self.lost);
        let lost = [
            ("modes", modes),
            ("owners", owners),
            ("times", times),
            ("extended attributes", xattrs),
            ("hard links", links),
        ];
        let lost = lost.into_iter().filter(|(_, files)| *files > 0);
        Ok((
            mem::take(&mut self.places),
            lost.map(|(what, files)| FormatNotice::Lost { what, files }).collect(),
        ))
    }

    fn refuse(&mut self, id: NodeId, why: Unfit) {
        // A file with several names is reported once.
        self.unfit.entry(id).or_insert(why);
    }

    fn directory(&mut self, dir: NodeId) -> Result<(), LayoutError> {
        // The directory was rejected.
        let Some(parent) = self.places.first(dir) else { return Ok(()) };
        for (name, id) in self.tree.children(dir) {
            let (Some(node), Ok(name)) = (self.tree.node(id), Name::new(name)) else { continue };
            if name.as_bytes().len() > self.limits.name_max as usize {
                self.refuse(id, Unfit::Name(self.limits.name_max));
            } else if let Some(ino) = self.places.first(id).filter(|_| self.limits.link_max > 1) {
                match self.writable.link(ino, parent, name) {
                    Ok(_) => {}
                    Err(error) => self.failed(id, (name, node), error)?,
                }
            } else {
                self.create(parent, name, id, node)?;
            }
        }
        Ok(())
    }

    fn create(&mut self, parent: Ino, name: &Name, id: NodeId, node: &Node) -> Result<(), LayoutError> {
        let target = self.tree.target(node);
        if let Some(why) = self.exceeds(node, target) {
            self.refuse(id, why);
            return Ok(());
        }
        let (mode, uid, gid) = (node.attr.mode, node.attr.uid, node.attr.gid);
        let (kind, rdev) = (node.body.kind(), node.body.rdev());
        let new = NewNode { kind, mode, uid, gid, rdev, target };
        match self.writable.create(parent, name, &new) {
            Ok(attr) => {
                self.places.add(id, attr.ino);
                self.written.nodes += 1;
                self.data(attr.ino, id, node.body)
            }
            Err(error) => self.failed(id, (name, node), error),
        }
    }

    /// Returns the reason if the limits of the format exclude the node in every volume.
    fn exceeds(&self, node: &Node, target: &[u8]) -> Option<Unfit> {
        let Limits { symlink_max, link_max, file_size_max, .. } = self.limits;
        match node.body {
            Body::File { size, .. } if size > file_size_max => Some(Unfit::Size(file_size_max)),
            Body::Symlink if symlink_max == 0 => Some(Unfit::Kind),
            Body::Symlink if target.is_empty() || target.len() > symlink_max as usize => {
                Some(Unfit::Target(symlink_max))
            }
            Body::Directory => None,
            // In a format without hard links, each further name becomes a separate file.
            _ if link_max > 1 && node.links > link_max => Some(Unfit::Links(link_max)),
            _ => None,
        }
    }

    /// Records the driver's refusal of a file. Returns any other error, which ends the build.
    fn failed(&mut self, id: NodeId, (name, node): (&Name, &Node), error: Error) -> Result<(), LayoutError> {
        let why = match error {
            Error::NotSupported | Error::NotPermitted => Unfit::Kind,
            Error::Exists => Unfit::Twice,
            Error::TooManyLinks => Unfit::Links(self.limits.link_max),
            Error::NameTooLong if node.body.kind() == FileKind::Symlink => {
                Unfit::Target(self.limits.symlink_max)
            }
            Error::NameTooLong => Unfit::Name(self.limits.name_max),
            Error::Invalid if matches!(name.as_bytes().last(), Some(b'.' | b' ')) => Unfit::LastCharacter,
            Error::Invalid => Unfit::Characters,
            Error::OutOfRange if node.body.kind().is_device() => Unfit::Device,
            error => return Err(error.into()),
        };
        self.refuse(id, why);
        Ok(())
    }

    /// Allocates space for the bytes of a file.
    fn data(&mut self, ino: Ino, id: NodeId, body: Body) -> Result<(), LayoutError> {
        let Body::File { size, .. } = body else { return Ok(()) };
        let lock = LayoutLock::new();
        let ranges = data_ranges(self.tree, id, body);
        let whole = 0..size;
        if ranges != [whole] && size > 0 {
            self.writable.truncate(&lock.exclusive(), ino, size)?;
        }
        let layout = lock.shared();
        let zeros = vec![0; ZEROS.min(usize::try_from(size).unwrap_or(ZEROS))];
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let ticket = self.writable.begin_write(&layout, ino, at..range.end)?;
                let len = ticket.extent().len;
                let written = match ticket.extent().span {
                    Span::Mapped(_) => {
                        self.writable.end_write(ticket, TimeChange::Now)?;
                        len
                    }
                    _ => {
                        let part = usize::try_from(len).unwrap_or(ZEROS).min(zeros.len());
                        self.writable.write(&layout, ino, at, &zeros[..part])? as u64
                    }
                };
                if written == 0 {
                    return Err(LayoutError::Error(Error::NotSupported));
                }
                at += written;
                self.written.data += written;
            }
        }
        Ok(())
    }

    /// Sets the attributes of a file. Returns the stored attributes.
    fn attributes(&mut self, ino: Ino, node: &Node) -> Result<Attr, LayoutError> {
        let wanted = &node.attr;
        let time = Some(TimeChange::At(wanted.mtime));
        let owner = SetAttr { uid: Some(wanted.uid), gid: Some(wanted.gid), ..SetAttr::default() };
        let mode = SetAttr { mode: Some(wanted.mode), ..SetAttr::default() };
        let times = SetAttr { atime: time, mtime: time, ctime: time, btime: time, ..SetAttr::default() };
        let is_link = node.body.kind() == FileKind::Symlink;
        // The attributes are set separately, so that an unsupported one does not affect the others.
        for change in [owner, mode, times] {
            if is_link && change.mode.is_some() {
                continue;
            }
            match self.writable.set_attr(ino, &change) {
                // Attributes that were not stored are found below.
                Ok(_)
                | Err(Error::NotSupported | Error::NotPermitted | Error::OutOfRange | Error::Invalid) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.extended(ino, node)?;
        Ok(self.file_system.getattr(ino)?)
    }

    /// Counts the properties of a file that differ from those of `node`.
    fn count_lost(&mut self, node: &Node, held: &Attr) {
        let wanted = &node.attr;
        let is_link = node.body.kind() == FileKind::Symlink;
        self.lost.owners += u64::from((held.uid, held.gid) != (wanted.uid, wanted.gid));
        self.lost.modes += u64::from(!is_link && held.mode != wanted.mode);
        self.lost.times += u64::from(!self.limits.is_same_time(held.mtime, wanted.mtime));
    }

    fn extended(&mut self, ino: Ino, node: &Node) -> Result<(), LayoutError> {
        let set = node.attr.xattrs.and_then(|set| self.tree.xattr_sets().get(set.index()));
        let Some(set) = set else { return Ok(()) };
        let mut is_lost = false;
        for (name, value) in set.iter() {
            let stored = match self.file_system.xattrs() {
                Some(xattrs) => xattrs.set_xattr(ino, name, value, XattrMode::Set),
                None => Err(Error::NotSupported),
            };
            match stored {
                Ok(()) => {}
                Err(Error::NoSpace) => return Err(LayoutError::Full { about: 0 }),
                Err(Error::NotSupported | Error::OutOfRange | Error::NotPermitted) => is_lost = true,
                Err(error) => return Err(error.into()),
            }
        }
        self.lost.xattrs += u64::from(is_lost);
        Ok(())
    }
}
