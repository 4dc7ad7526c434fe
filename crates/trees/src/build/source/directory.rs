//! Reads a directory of the host, or one file of it.

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use obento_base::{FileKind, Mode, Name, NameBuf};
use obento_driver::NodeId;
use obento_driver::tree::{Body, NodeAttr};
use obento_host::build::DirId;
use obento_host::source::{
    SourceDir, SourceEntry, Step, SymlinkPolicy, Walk, WalkedSteps, WalkerPath, walk_together,
};
use obento_host::{FileId, HostError, SystemErrno};

use super::{EntryError, Raw, SourceReader, data};
use crate::build::SourceReason;
use crate::build::model::{PathError, names};
use crate::build::options::Owner;

/// Puts the contents of the directory `path` into the directory `target` of the image. Fails with `Host` if `path`
/// cannot be read.
pub(super) fn read(reader: &mut SourceReader<'_>, path: &Path, target: &[NameBuf]) -> Result<(), HostError> {
    let walk = Walk::new(path)?;
    let root = reader.supply.root(path)?;
    walk_into(reader, walk, path, root, target)
}

/// Puts the file or directory `from` at the path `to`. Fails with `Host` if `from` cannot be read.
pub(super) fn add(reader: &mut SourceReader<'_>, from: &Path, to: &[u8]) -> Result<(), HostError> {
    let mut target = match names(to) {
        Ok(target) => target,
        Err(error) => {
            reader.problem(to, error);
            return Ok(());
        }
    };
    if from.is_dir() {
        return read(reader, from, &target);
    }
    let (Some(name), folder) = (from.file_name(), from.parent()) else {
        reader.problem(from.as_os_str().as_bytes(), "the source has no name");
        return Ok(());
    };
    let Ok(name) = Name::new(name.as_bytes()) else {
        reader.problem(from.as_os_str().as_bytes(), "the source has no name");
        return Ok(());
    };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    let opened = folder.map_or_else(SourceDir::current, SourceDir::open)?;
    let entry = opened.look(name, SymlinkPolicy::Keep)?;
    let folder = folder.unwrap_or(Path::new("."));
    let root = reader.supply.root(folder)?;
    // As in cp(1), a target that is a directory contains the copy under its own name.
    if to.ends_with(b"/") || target.is_empty() {
        target.push(name.to_buf());
    }
    match put(reader, &entry, (root, name), &target) {
        Ok(()) => {}
        Err(EntryError::Host(error)) => reader.problem(from.as_os_str().as_bytes(), reason(&error)),
        Err(EntryError::Entry(why)) => reader.problem(to, why),
    }
    Ok(())
}

/// Returns the reason without the path, which is reported beside it.
fn reason(error: &HostError) -> SourceReason {
    match error.errno() {
        Some(errno) => obento_base::Errno(errno.raw_os_error()).to_string().into(),
        None => error.to_string().into(),
    }
}

/// The current position of one subtree.
#[derive(Default)]
struct Place {
    /// The directories from the start of the subtree down, in the image and on the host. `None` for one that
    /// was rejected.
    levels: Vec<Option<(NodeId, DirId)>>,
}

fn walk_into(
    reader: &mut SourceReader<'_>,
    walk: Walk,
    path: &Path,
    root: DirId,
    target: &[NameBuf],
) -> Result<(), HostError> {
    let settings = reader.settings;
    let threads = settings.threads();
    let selection = settings.selection();
    let image = FileId::of_path(reader.out);
    let mut taker = Taker { reader, path, root, target, image, linked: HashMap::new(), ways: HashMap::new() };
    walk_together(walk, threads, &|path| selection.is_excluded(path), |piece| taker.take(piece))
}

/// Puts a tree of the host into the tree of the image.
struct Taker<'r, 'a> {
    reader: &'r mut SourceReader<'a>,
    /// The root, on the host and in the image.
    path: &'r Path,
    root: DirId,
    target: &'r [NameBuf],
    /// The image that will be replaced, which is not read into itself.
    image: Option<FileId>,
    linked: HashMap<FileId, NodeId>,
    ways: HashMap<WalkerPath, Place>,
}

impl Taker<'_, '_> {
    fn take(&mut self, piece: WalkedSteps) -> Result<(), HostError> {
        // Each piece continues at the position where the previous one of its subtree ended.
        let mut place = self.ways.remove(&piece.way).unwrap_or_default();
        for step in piece.steps {
            match step {
                Step::Entry { entry, depth, below } => self.entry(&mut place, &entry, depth, below)?,
                Step::LeftOut => self.reader.excluded += 1,
                Step::Failed(error) => {
                    let path = error.path().unwrap_or(self.path).as_os_str().as_bytes().to_vec();
                    self.reader.problem(path, reason(&error));
                }
            }
        }
        if !piece.is_end {
            self.ways.insert(piece.way, place);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        place: &mut Place,
        entry: &SourceEntry,
        depth: usize,
        below: Option<WalkerPath>,
    ) -> Result<(), HostError> {
        let Some(name) = entry.name() else {
            match put_root(self.reader, entry, self.target) {
                Ok(node) => place.levels.push(Some((node, self.root))),
                Err(error) => {
                    self.reader.settle(Err(error), || self.path.as_os_str().as_bytes().to_vec())?;
                }
            }
            return Ok(());
        };
        place.levels.truncate(depth);
        let above = place.levels.last().copied().flatten();
        let made = match above {
            Some(above) => self.put(entry, above, name)?,
            // The directory was rejected, so its entries are skipped.
            None => None,
        };
        match below {
            Some(way) => drop(self.ways.insert(way, Place { levels: vec![made] })),
            None if entry.attr().kind == FileKind::Directory => place.levels.push(made),
            None => {}
        }
        Ok(())
    }

    /// Puts an entry into a directory. Returns the directory that was created, if any. Fails with `Stopped`.
    fn put(
        &mut self,
        entry: &SourceEntry,
        above: (NodeId, DirId),
        name: &Name,
    ) -> Result<Option<(NodeId, DirId)>, HostError> {
        self.reader.progress(|| entry.path().into_os_string().into_vec())?;
        if self.image == Some(entry.id()) {
            self.reader
                .notes
                .push(format!("{}: skipped, because the build replaces this image", entry.path().display()));
            self.reader.excluded += 1;
            return Ok(None);
        }
        let why = match put_entry(self.reader, entry, above, name, &mut self.linked) {
            Ok(made) => return Ok(made),
            Err(EntryError::Host(error)) => reason(&error),
            Err(EntryError::Entry(why)) => why,
        };
        self.reader.problem(entry.path().as_os_str().as_bytes(), why);
        Ok(None)
    }
}

/// Returns the mode of an entry whose access control list is not stored. The mode shows the mask, which must
/// not extend the permissions of the group.
fn mode_without_list(entry: &SourceEntry, mode: Mode) -> Mode {
    const GROUP: u16 = 0o070;
    if mode.bits() & GROUP == 0 {
        return mode;
    }
    let xattrs = entry.xattrs().unwrap_or_default();
    let list = xattrs.iter().find(|xattr| xattr.name == obento_vfs::acl::ACCESS);
    list.map_or(mode, |list| crate::acls::mode_without(mode, &list.value))
}

/// Returns the attributes of an entry: owned by root and without extended attributes, unless the settings
/// differ.
fn attr(reader: &mut SourceReader<'_>, entry: &SourceEntry) -> Result<NodeAttr, EntryError> {
    let held = entry.attr();
    let (uid, gid) = match reader.settings.owner {
        Owner::Keep => (held.uid, held.gid),
        Owner::Source | Owner::Is(..) => (0, 0),
    };
    let xattrs = if reader.settings.xattrs { entry.xattrs()? } else { Vec::new() };
    let mode = match held.kind {
        FileKind::Symlink => Mode::new(0o777),
        _ if reader.settings.xattrs => held.mode,
        _ => mode_without_list(entry, held.mode),
    };
    Ok(reader.attr(&Raw { kind: held.kind, mode, uid, gid, mtime: held.mtime, xattrs: &xattrs })?)
}

fn put_root(
    reader: &mut SourceReader<'_>,
    entry: &SourceEntry,
    target: &[NameBuf],
) -> Result<NodeId, EntryError> {
    let attr = attr(reader, entry)?;
    Ok(reader.put(target, Body::Directory, attr, b"")?)
}

/// Puts an entry into a directory. Returns the directory that was created, if any.
fn put_entry(
    reader: &mut SourceReader<'_>,
    entry: &SourceEntry,
    (dir, host_dir): (NodeId, DirId),
    name: &Name,
    linked: &mut HashMap<FileId, NodeId>,
) -> Result<Option<(NodeId, DirId)>, EntryError> {
    let held = entry.attr();
    if held.nlink > 1
        && held.kind != FileKind::Directory
        && let Some(&node) = linked.get(&entry.id())
    {
        reader.model.builder.link(dir, name, node).map_err(PathError::from)?;
        return Ok(None);
    }
    let (body, target) = body(reader, entry, (host_dir, name))?;
    let attr = attr(reader, entry)?;
    let node = reader.model.put(dir, name, body, attr, &target)?;
    set_holes(reader, entry, node)?;
    if held.nlink > 1 && held.kind != FileKind::Directory {
        linked.insert(entry.id(), node);
    }
    if held.kind == FileKind::Directory {
        let below = reader.supply.dir(host_dir, name).map_err(HostError::from)?;
        return Ok(Some((node, below)));
    }
    Ok(None)
}

/// Puts an entry at a path.
fn put(
    reader: &mut SourceReader<'_>,
    entry: &SourceEntry,
    place: (DirId, &Name),
    target: &[NameBuf],
) -> Result<(), EntryError> {
    let (body, link) = body(reader, entry, place)?;
    let attr = attr(reader, entry)?;
    let node = reader.put(target, body, attr, &link)?;
    set_holes(reader, entry, node)
}

fn body(
    reader: &mut SourceReader<'_>,
    entry: &SourceEntry,
    (dir, name): (DirId, &Name),
) -> Result<(Body, Vec<u8>), EntryError> {
    let held = entry.attr();
    let body = match held.kind {
        FileKind::Directory => Body::Directory,
        FileKind::Regular => {
            if !entry.is_readable() {
                return Err(HostError::system("read", entry.path(), SystemErrno::ACCESS).into());
            }
            let size = held.size;
            reader.bytes = reader.bytes.saturating_add(size);
            match size {
                0 => reader.kept(&entry.made_bytes()?)?,
                _ => {
                    Body::File { size, data: data(reader.supply.entry(dir, name).map_err(HostError::from)?) }
                }
            }
        }
        FileKind::Symlink => return Ok((Body::Symlink, entry.read_link()?)),
        FileKind::CharDevice => Body::CharDevice(held.rdev),
        FileKind::BlockDevice => Body::BlockDevice(held.rdev),
        FileKind::Fifo => Body::Fifo,
        FileKind::Socket => Body::Socket,
    };
    Ok((body, Vec::new()))
}

/// Records the data ranges of a sparse file.
fn set_holes(reader: &mut SourceReader<'_>, entry: &SourceEntry, node: NodeId) -> Result<(), EntryError> {
    if let Some(ranges) = data_ranges(entry)? {
        reader.model.builder.set_data_ranges(node, ranges);
    }
    Ok(())
}

/// Returns the data ranges of a host file, or `None` if the whole file is data. Fails with `System`.
pub(super) fn data_ranges(entry: &SourceEntry) -> Result<Option<Vec<Range<u64>>>, HostError> {
    let held = entry.attr();
    // File systems count blocks of at most 64 KiB, and holes of small files save little.
    if held.kind != FileKind::Regular || held.blocks.saturating_mul(512) >= held.size || held.size < 4096 {
        return Ok(None);
    }
    let file = entry.open_file()?;
    let mut ranges = Vec::new();
    for run in file.runs() {
        if let obento_host::source::Run::Data(range) = run? {
            ranges.push(range);
        }
    }
    let whole = 0..held.size;
    Ok((ranges != [whole]).then_some(ranges))
}
