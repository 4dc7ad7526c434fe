//! The log of a new volume, whose records name the source of each file ([`obento_prov::BuiltLog`]).
//!
//! The segments are files of the tree. The driver assigns inode numbers when it lays out the volume, so the
//! segments get enough space for any numbers. Their bytes are written after the volume, at the positions in
//! the plan.
//!
//! Invariant: the log depends on the sources, their names and the settings only.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use obento_base::{Error, FileKind, Generation, Ino, Mode, Name, Timestamp};
use obento_block::BlockDevice as _;
use obento_driver::tree::{Body, NodeAttr};
use obento_driver::{BuildPlan, FormatError, NodeId, Replay, Tree, TreeBuilder};
use obento_host::HostError;
use obento_host::build::FreshFile;
use obento_open::{Image, Options, Registry, Volume};
use obento_prov::{BuiltLog, BuiltName, DIRECTORY, FileId, segment_name};

use super::model::names;
use super::source::{Read, SourceReader};
use super::whole::Whole;
use super::{BuildFailure, BuildSettings, BuildSource, driver_options};

/// The name of the program in the log.
const PROGRAM: &[u8] = b"obento build";
/// The bytes of a segment until the log is written. They are not zeros, which would become a hole.
const UNWRITTEN: u8 = 0xff;

/// The names of the files of one source.
pub(super) struct SourceNames {
    /// The first node of the source.
    first: NodeId,
    /// The source, before the path.
    label: Vec<u8>,
    /// The number of names at the start of a path in the image that are not part of the path in the source.
    skipped: usize,
}

impl SourceNames {
    /// Returns the names of the nodes from `first` on, which come from `source`.
    pub(super) fn of(source: &BuildSource, first: NodeId) -> Self {
        let mut label = source.path().map_or(&b"-"[..], |path| path.as_os_str().as_bytes()).to_vec();
        let mut skipped = 0;
        match source {
            // A path of the host.
            BuildSource::Directory(_) | BuildSource::Add { .. } => {
                while label.ends_with(b"/") && label.len() > 1 {
                    label.pop();
                }
                if let BuildSource::Add { from, to } = source {
                    let is_file = !from.is_dir();
                    skipped = if is_file { usize::MAX } else { names(to).map_or(0, |names| names.len()) };
                }
                label.push(b'/');
            }
            // A name in an archive or a manifest.
            _ => label.push(b':'),
        }
        Self { first, label, skipped }
    }

    /// Returns the name of the file that is at `path` in the image.
    fn name(&self, path: &[Vec<u8>]) -> Vec<u8> {
        match path.get(self.skipped..).filter(|rest| !rest.is_empty()) {
            Some(rest) => [self.label.as_slice(), &rest.join(&b'/')].concat(),
            None => self.label.strip_suffix(b"/").unwrap_or(&self.label).to_vec(),
        }
    }
}

/// The log of a volume that is being built.
pub(super) struct History {
    /// The source of each name of the tree, in the order of [`names_of`].
    sources: Vec<Option<Vec<u8>>>,
    /// The written segments.
    segments: HashMap<NodeId, Vec<u8>>,
}

/// A name in a tree.
struct TreeName {
    parent: NodeId,
    name: Vec<u8>,
    node: NodeId,
    path: Vec<Vec<u8>>,
}

/// Returns the names of a tree without those of the log: directories before their entries, which are sorted by bytes.
fn names_of(
    children: &dyn Fn(NodeId) -> Vec<(Vec<u8>, NodeId)>,
    is_directory: &dyn Fn(NodeId) -> bool,
) -> Vec<TreeName> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(NodeId::ROOT, Vec::new())]);
    while let Some((parent, prefix)) = waiting.pop_front() {
        let mut list = children(parent);
        list.sort_unstable();
        for (name, node) in list {
            if parent == NodeId::ROOT && name == DIRECTORY.as_bytes() {
                continue;
            }
            let mut path: Vec<Vec<u8>> = prefix.clone();
            path.push(name.clone());
            if is_directory(node) {
                waiting.push_back((node, path.clone()));
            }
            found.push(TreeName { parent, name, node, path });
        }
    }
    found
}

/// The attributes of a node that its record contains.
struct Described<'a> {
    kind: FileKind,
    mode: Mode,
    target: &'a [u8],
}

/// The place of a name in a volume.
#[derive(Clone, Copy)]
struct Numbered {
    parent: Ino,
    file: FileId,
    is_link: bool,
}

impl Numbered {
    /// A place whose records are at least as long as those of any other.
    const LONGEST: Self = Self {
        parent: Ino(u64::MAX),
        file: FileId { ino: Ino(u64::MAX), generation: Generation(u32::MAX) },
        is_link: false,
    };
}

/// Returns the segments for these names.
fn segments<'a>(
    mut log: BuiltLog,
    names: impl Iterator<Item = (&'a TreeName, Numbered)>,
    sources: &[Option<Vec<u8>>],
    describe: &dyn Fn(NodeId) -> Option<Described<'a>>,
) -> Vec<Vec<u8>> {
    for ((TreeName { name, node, .. }, numbered), source) in names.zip(sources) {
        let Some(Described { kind, mode, target }) = describe(*node) else { continue };
        let Numbered { parent, file, is_link } = numbered;
        let source = source.as_deref().filter(|_| !is_link);
        log.add(&BuiltName { parent, name, file, kind, mode, target, source, is_link });
    }
    log.finish()
}

/// Adds the segments to the tree, with bytes that [`write()`] replaces. Fails with `System`.
pub(super) fn reserve(reader: &mut SourceReader<'_>, origins: &[SourceNames]) -> Result<History, HostError> {
    let builder = &reader.model.builder;
    let children = |dir| builder.children(dir).map(|(name, node)| (name.to_vec(), node)).collect();
    let is_directory = |node| builder.node(node).is_some_and(|node| node.body == Body::Directory);
    let names = names_of(&children, &is_directory);
    let source = |name: &TreeName| {
        let origin = origins.iter().rev().find(|origin| origin.first <= name.node)?;
        (!is_directory(name.node)).then(|| origin.name(&name.path))
    };
    let sources: Vec<_> = names.iter().map(source).collect();
    let describe = |node| described(builder, node);
    let longest = names.iter().map(|name| (name, Numbered::LONGEST));
    let log = BuiltLog::new([0; 16], Timestamp::EPOCH, PROGRAM);
    let lengths: Vec<usize> = segments(log, longest, &sources, &describe).iter().map(Vec::len).collect();
    let attr = NodeAttr { mode: Mode::new(0o700), ..TreeBuilder::bare_directory(Timestamp::EPOCH) };
    reader.put_log(DIRECTORY, Body::Directory, attr);
    for (number, len) in (1..).zip(lengths) {
        let body = reader.kept(&vec![UNWRITTEN; len])?;
        let attr = NodeAttr { mode: Mode::new(0o600), ..attr };
        reader.put_log(&format!("{DIRECTORY}/{}", segment_name(number)), body, attr);
    }
    Ok(History { sources, segments: HashMap::new() })
}

fn described(builder: &TreeBuilder, id: NodeId) -> Option<Described<'_>> {
    let node = builder.node(id)?;
    Some(Described { kind: node.body.kind(), mode: node.attr.mode, target: builder.target(id) })
}

impl History {
    /// Returns the bytes of a segment after it was written.
    pub(super) fn segment(&self, node: NodeId) -> Option<&[u8]> {
        self.segments.get(&node).map(Vec::as_slice)
    }
}

/// Writes the log of the volume in `fresh`, which is complete except for the log. Returns the log and the image.
///
/// # Errors
///
/// - `Other`: the volume does not open.
/// - `Format`: a device error.
pub(super) fn write(
    plan: &dyn BuildPlan,
    read: &Read,
    fresh: FreshFile,
    settings: &BuildSettings,
    registry: &Registry,
) -> Result<(Option<History>, FreshFile), BuildFailure> {
    let Some(history) = &read.history else { return Ok((None, fresh)) };
    let fresh = Arc::new(fresh);
    let written = open(&fresh, registry).and_then(|volume| encode(history, &volume, &read.tree, settings));
    let device = fresh.device();
    let mut segments = HashMap::new();
    for (id, bytes) in written? {
        let mut done = Ok(());
        plan.places(id, &mut |range, offset| {
            let part = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
            let part = part.and_then(|(start, end)| bytes.get(start..end));
            let put = part.map_or(Err(Error::Invalid), |part| device.write_at(offset, part));
            done = done.and(put);
        });
        done.map_err(FormatError::from)?;
        segments.insert(id, bytes);
    }
    let fresh = Arc::into_inner(fresh).ok_or(FormatError::Device(Error::Invalid))?;
    Ok((Some(History { sources: Vec::new(), segments }), fresh))
}

fn open(fresh: &Arc<FreshFile>, registry: &Registry) -> Result<Volume, BuildFailure> {
    let failed = |why: &dyn std::fmt::Display| BuildFailure::Other { why: why.to_string() };
    let options = Options { replay: Replay::Skip, ..Options::default() };
    let image = Image::on_device("".as_ref(), Arc::new(Whole(Arc::clone(fresh))), registry, &options);
    image.map_err(|error| failed(&error))?.volume(None).map_err(|error| failed(&error))
}

/// Returns the bytes of each segment, as long as its file.
fn encode(
    history: &History,
    volume: &Volume,
    tree: &Tree,
    settings: &BuildSettings,
) -> Result<Vec<(NodeId, Vec<u8>)>, BuildFailure> {
    let children = |dir| tree.children(dir).map(|(name, node)| (name.to_vec(), node)).collect();
    let body = |node| tree.node(node).map(|node| node.body);
    let names = names_of(&children, &|node| body(node) == Some(Body::Directory));
    let numbers = numbers(volume, &names).map_err(BuildFailure::Volume)?;
    let describe = |id| {
        let node = tree.node(id)?;
        Some(Described { kind: node.body.kind(), mode: node.attr.mode, target: tree.target(node) })
    };
    let uuid = volume.vfs().flushed_file_system().info().probe.uuid.unwrap_or_default();
    let log = BuiltLog::new(uuid, driver_options::time(tree, settings), PROGRAM);
    let numbered = names.iter().zip(numbers);
    let mut segments = segments(log, numbered, &history.sources, &describe).into_iter();
    let mut written = Vec::new();
    let name = |text: &str| Name::new(text.as_bytes()).ok().map(Name::to_buf);
    let dir = name(DIRECTORY).and_then(|name| tree.child(NodeId::ROOT, &name));
    for number in 1.. {
        let file = dir.zip(name(&segment_name(number))).and_then(|(dir, name)| tree.child(dir, &name));
        let Some((id, Some(Body::File { size, .. }))) = file.map(|id| (id, body(id))) else { break };
        let mut bytes = segments.next().unwrap_or_default();
        bytes.resize(usize::try_from(size).unwrap_or(bytes.len()), 0);
        written.push((id, bytes));
    }
    Ok(written)
}

/// Returns the place of each name. In a format without links, each name of a node is a file of its own.
fn numbers(volume: &Volume, names: &[TreeName]) -> obento_base::Result<Vec<Numbered>> {
    let mut directories = HashMap::from([(NodeId::ROOT, volume.root().ino())]);
    let mut seen = HashSet::new();
    let mut numbers = Vec::with_capacity(names.len());
    for TreeName { parent, name, node, .. } in names {
        let parent = *directories.get(parent).ok_or(Error::NotFound)?;
        let name = Name::new(name).map_err(|_| Error::Invalid)?;
        let attr = volume.vfs().node(parent)?.lookup(name)?.attr()?;
        if attr.is_dir() {
            directories.insert(*node, attr.ino);
        }
        let file = FileId { ino: attr.ino, generation: attr.generation };
        numbers.push(Numbered { parent, file, is_link: !seen.insert(file) });
    }
    Ok(numbers)
}
