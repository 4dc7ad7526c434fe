//! Builds volumes of types that no driver builds. Another program creates an empty volume, and the tree is copied
//! into it.
//!
//! Two builds of such an image have different bytes, since the other program and the kernel choose the UUID and the
//! change times of inodes. The image file gets its name only after it is complete.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use obento_base::{Error, FileKind, Name, Timestamp};
use obento_block::BlockDevice;
use obento_driver::tree::{Body, Node, NodeAttr};
use obento_driver::{Access, FreeSpace, NodeId, Probe, Tree};
use obento_host::build::{FreshFile, Reader, SuppliedFile};
use obento_host::tree::{LinkKey, Report, TreeOptions};
use obento_host::{DataSink, HostError, Metadata, Xattr};
use obento_open::{Image, Options, Registry, Volume};

use super::container::{self, Comparison, Target};
use super::generic::{HoleCost, data_ranges, estimate};
use super::source::{self, Read};
use super::{BuildFailure, BuildSettings, BuildSource, SourceProblem};
use crate::copy::image::ImageWriter;
use crate::copy::tree_sink::{NewEntry, TreeSink as _, fill_ranges};
use crate::copy::{CopyError, Observer, ProblemReason, Progress, expect_wanted};

/// Maximum number of attempts with a size that was found. Each size is larger by half than the previous one.
const TRIES: u32 = 12;
/// Sizes are multiples of this.
const STEP: u64 = 1 << 20;
/// Bytes that are read at once. Files up to this length are written in batches.
const CHUNK: usize = 256 << 10;
/// A rough estimate of the bytes that a node takes in addition to its data: an inode, an entry, the rest of a
/// block.
const NODE: u64 = 4 << 10;

/// A function that creates an empty volume in a file of zeros. On failure, it returns a description.
pub type MakeEmpty<'a> = dyn FnMut(BorrowedFd<'_>) -> Result<(), String> + 'a;

/// The result of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FillReport {
    /// The volume.
    pub probe: Probe,
    /// The written entries, and the properties that could not be kept.
    pub written: Report,
    /// The number of source entries that a pattern excluded.
    pub excluded: u64,
    /// Notices about the sources.
    pub notes: Vec<String>,
    /// Files without some entries of their access control lists, as in
    /// [`BuildReport::lost`](crate::build::BuildReport::lost).
    pub lost: Vec<SourceProblem>,
}

/// Builds the image `out`. `make` creates its empty volume. If the settings contain no size, the volume has at least
/// `least` bytes.
///
/// # Errors
///
/// [`BuildFailure`] lists the errors. After an error, no file was created or replaced at `out`.
pub fn build_filled(
    out: &Path,
    sources: &[BuildSource],
    (settings, least): (&BuildSettings, u64),
    registry: &Registry,
    make: &mut MakeEmpty<'_>,
    observer: &mut dyn Observer,
) -> Result<FillReport, BuildFailure> {
    let read = source::read_all(out, sources, settings, None, observer)?;
    let (fresh, report) = filled(out, &read, (settings, least), registry, make, observer)?;
    let identity = || container::identity_of(&read, settings);
    let target = Target { path: out, format: settings.container, publish: settings.publish };
    container::publish(fresh, target, identity, Comparison::Skip, observer)?;
    Ok(report)
}

/// Builds the volume from a tree that was already read, in an unnamed file beside `out`.
pub(super) fn filled(
    out: &Path,
    read: &Read,
    (settings, least): (&BuildSettings, u64),
    registry: &Registry,
    make: &mut MakeEmpty<'_>,
    observer: &mut dyn Observer,
) -> Result<(FreshFile, FillReport), BuildFailure> {
    let kept = registry.stored_by_engine(&settings.fs_type).map(HoleCost::of);
    let holes = kept.unwrap_or(HoleCost::Free);
    let mut len = settings.size.unwrap_or_else(|| needed(&read.tree, holes, settings.room).max(least));
    for _ in 0..TRIES {
        len = len.next_multiple_of(STEP);
        match fill_fresh((out, len), read, settings, registry, make, observer) {
            Err(BuildFailure::Full { .. }) if settings.size.is_none() => len += len / 2,
            done => return done,
        }
    }
    Err(BuildFailure::Full { size: len })
}

/// Estimates the bytes of a volume of `tree`.
fn needed(tree: &Tree, holes: HoleCost, room: FreeSpace) -> u64 {
    let least = estimate(tree, holes).saturating_add(u64::from(tree.len()).saturating_mul(NODE));
    match room {
        FreeSpace::Free(percent) => least.saturating_mul(100) / 100_u64.saturating_sub(percent.into()).max(1),
        _ => least,
    }
}

fn fill_fresh(
    (out, len): (&Path, u64),
    read: &Read,
    settings: &BuildSettings,
    registry: &Registry,
    make: &mut MakeEmpty<'_>,
    observer: &mut dyn Observer,
) -> Result<(FreshFile, FillReport), BuildFailure> {
    let fresh = FreshFile::new(out, len)?;
    // The kernel engine may hold the device slightly longer than the volume is open.
    let device: Arc<dyn BlockDevice> = Arc::new(fresh.share()?);
    make(fresh.file()).map_err(|why| BuildFailure::Other { why })?;
    let fs_type = Some(settings.fs_type.clone());
    let options = Options { access: Access::ReadWrite, fs_type, ..Options::default() };
    let failed = |why: &dyn std::fmt::Display| BuildFailure::Other { why: why.to_string() };
    let image = Image::on_device(out, device.clone(), registry, &options).map_err(|error| failed(&error))?;
    let volume = image.volume(None).map_err(|error| failed(&error))?;
    let written = Filler::new(&volume, read, observer)?.run()?;
    volume.close().map_err(|error| match error {
        Error::NoSpace => full(len),
        error => BuildFailure::Volume(error),
    })?;
    drop((volume, image));
    let probe = registry.probe(&*device).map_err(BuildFailure::Volume)?;
    let (_, probe) = probe.ok_or_else(|| failed(&"the new volume is not recognised"))?;
    let (notes, lost) = (read.notes.clone(), read.lost.clone());
    let report = FillReport { probe, written, excluded: read.excluded, notes, lost };
    Ok((fresh, report))
}

fn full(size: u64) -> BuildFailure {
    BuildFailure::Full { size }
}

/// A tree that is being written.
struct Filler<'a> {
    tree: &'a Tree,
    reader: Reader<'a>,
    writer: ImageWriter,
    observer: &'a mut dyn Observer,
    buffer: Vec<u8>,
    problems: Vec<SourceProblem>,
    size: u64,
    /// Files and bytes so far.
    done: (u64, u64),
}

/// The remaining entries of a directory.
type Level<'a> = std::vec::IntoIter<(&'a [u8], NodeId)>;

impl<'a> Filler<'a> {
    fn new(volume: &Volume, read: &'a Read, observer: &'a mut dyn Observer) -> Result<Self, BuildFailure> {
        let size = volume.statfs().map(|usage| usage.blocks.saturating_mul(usage.block_size.into()));
        let writer = ImageWriter::open(volume.vfs().root(), Vec::new(), TreeOptions::default());
        let (tree, files) = (&read.tree, read.tree.nodes().filter(|(_, node)| is_file(node)).count());
        observer.total(files as u64, estimate(tree, HoleCost::Free));
        Ok(Self {
            tree,
            reader: Reader::new(&read.supply),
            writer: writer.map_err(BuildFailure::Volume)?,
            observer,
            buffer: vec![0; CHUNK],
            problems: Vec::new(),
            size: size.map_err(BuildFailure::Volume)?,
            done: (0, 0),
        })
    }

    /// Writes the whole tree. Fails with `Full`, with `Unfit`, with all files that cannot be stored, and with `Host`.
    fn run(mut self) -> Result<Report, BuildFailure> {
        let root = self.tree.node(NodeId::ROOT).copied();
        if let Some(root) = root {
            let xattrs = self.xattrs(&root);
            self.writer.set_root(&metadata(&root, &xattrs));
        }
        let mut levels = vec![self.level(NodeId::ROOT)];
        while let Some(level) = levels.last_mut() {
            let Some((name, id)) = level.next() else {
                levels.pop();
                let left = if levels.is_empty() { Ok(()) } else { self.writer.leave() };
                self.reported(NodeId::ROOT, left)?;
                continue;
            };
            let (Some(node), Ok(name)) = (self.tree.node(id).copied(), Name::new(name)) else { continue };
            let made = self.entry(name, id, &node);
            let is_inside = made.is_ok() && node.body == Body::Directory;
            self.reported(id, made)?;
            if is_inside {
                levels.push(self.level(id));
            }
        }
        self.writer.settle();
        self.reported(NodeId::ROOT, Ok(()))?;
        if !self.problems.is_empty() {
            return Err(BuildFailure::Unfit(self.problems));
        }
        let size = self.size;
        self.writer.finish().map_err(|error| match error {
            CopyError::Target { error: Error::NoSpace, .. }
            | CopyError::Problem(ProblemReason::Exhausted { .. }) => full(size),
            CopyError::Host(error) => error.into(),
            CopyError::Volume(error) | CopyError::Target { error, .. } => BuildFailure::Volume(error),
            error => BuildFailure::Other { why: error.to_string() },
        })
    }

    fn level(&self, dir: NodeId) -> Level<'a> {
        self.tree.children(dir).collect::<Vec<_>>().into_iter()
    }

    /// Records the problems of a node, and those of files that were written in batches. Fails with the problems that
    /// end the build.
    fn reported(&mut self, id: NodeId, made: Result<(), ProblemReason>) -> Result<(), BuildFailure> {
        let late = self.writer.late_problems().into_iter().map(|problem| (problem.path, problem.trouble));
        let own = made.err().map(|trouble| match trouble {
            ProblemReason::Target { ref path, .. } | ProblemReason::Exhausted { ref path, .. } => {
                (path.clone(), trouble)
            }
            trouble => (self.tree.path(id), trouble),
        });
        for (path, trouble) in late.chain(own) {
            match trouble {
                ProblemReason::Target { error: Error::NoSpace, .. } | ProblemReason::Exhausted { .. } => {
                    return Err(full(self.size));
                }
                ProblemReason::Target { error: error @ (Error::ReadOnly | Error::Device(_)), .. } => {
                    return Err(BuildFailure::Volume(error));
                }
                ProblemReason::Host(
                    error @ (HostError::Stopped | HostError::System { .. } | HostError::Changed { .. }),
                ) => {
                    return Err(error.into());
                }
                // A name that the format cannot store.
                ProblemReason::Counted => {
                    let why = Error::Invalid.to_string().into();
                    self.problems.push(SourceProblem { path, why });
                }
                trouble => self.problems.push(SourceProblem { path, why: trouble.to_string().into() }),
            }
        }
        Ok(())
    }

    fn entry(&mut self, name: &Name, id: NodeId, node: &Node) -> Result<(), ProblemReason> {
        let xattrs = self.xattrs(node);
        let meta = metadata(node, &xattrs);
        if node.body == Body::Directory {
            return self.writer.enter(name, &meta);
        }
        let key = (node.links > 1).then_some(LinkKey { source: 0, ino: id.0.into() });
        if let Some(key) = key
            && self.writer.link(name, &meta, key)?
        {
            return Ok(());
        }
        match node.body {
            Body::File { size, .. } => self.file(name, &meta, (id, node.body), size, key.is_none())?,
            Body::Symlink => self.writer.create(name, &meta, NewEntry::Symlink(self.tree.target(node)))?,
            body => self.writer.create(name, &meta, NewEntry::Node(body.kind(), body.rdev()))?,
        }
        key.map_or(Ok(()), |key| self.writer.remember(key, name, node.links - 1))
    }

    fn file(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        (id, body): (NodeId, Body),
        size: u64,
        may_wait: bool,
    ) -> Result<(), ProblemReason> {
        self.progress(id).map_err(ProblemReason::Host)?;
        self.done.0 += 1;
        let ranges = data_ranges(self.tree, id, body);
        let bytes = match body {
            Body::File { data: Some(data), .. } => {
                Some(self.reader.open(data.0, size).map_err(ProblemReason::Host)?)
            }
            _ => None,
        };
        let whole = 0..size;
        let is_dense = ranges == [whole] || size == 0;
        if let Some(len) = usize::try_from(size).ok().filter(|len| *len <= CHUNK && may_wait && is_dense) {
            let buffer = &mut self.buffer[..len];
            bytes.iter().try_for_each(|bytes| bytes.read_exact_at(buffer, 0)).map_err(ProblemReason::Host)?;
            self.done.1 += size;
            return Ok(self.writer.create_short(name, meta, buffer)?);
        }
        let (buffer, done, observer) = (&mut self.buffer, &mut self.done, &mut *self.observer);
        let mut fill = |sink: &mut dyn DataSink| {
            fill_ranges(sink, (&ranges, size), buffer, |at, part| {
                bytes.iter().try_for_each(|bytes: &SuppliedFile<'_>| bytes.read_exact_at(part, at))?;
                done.1 += part.len() as u64;
                Ok(reported(observer, *done, b"")?)
            })
        };
        Ok(self.writer.create(name, meta, NewEntry::File(&mut fill))?)
    }

    fn progress(&mut self, id: NodeId) -> Result<(), HostError> {
        if self.done.0.is_multiple_of(64) {
            reported(self.observer, self.done, &self.tree.path(id))
        } else {
            Ok(())
        }
    }

    fn xattrs(&self, node: &Node) -> Vec<Xattr> {
        let set = node.attr.xattrs.and_then(|set| self.tree.xattr_sets().get(set.index()));
        let pairs = set.into_iter().flat_map(|set| set.iter());
        pairs.map(|(name, value)| Xattr { name: name.to_vec(), value: value.to_vec() }).collect()
    }
}

fn reported(observer: &mut dyn Observer, (files, bytes): (u64, u64), path: &[u8]) -> Result<(), HostError> {
    observer.progress(&Progress { files, bytes, path });
    expect_wanted(observer)
}

fn is_file(node: &Node) -> bool {
    node.body.kind() == FileKind::Regular
}

fn metadata<'x>(node: &Node, xattrs: &'x [Xattr]) -> Metadata<'x> {
    let NodeAttr { mode, uid, gid, mtime, .. } = node.attr;
    Metadata { mode, uid, gid, atime: mtime, mtime, ctime: Timestamp::EPOCH, xattrs }
}
