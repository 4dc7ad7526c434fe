//! A directory of the host, or one file of it.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use obento_base::{FileKind, Mode, Name, NameBuf};
use obento_driver::NodeId;
use obento_driver::tree::{Body, NodeAttr};
use obento_host::build::DirId;
use obento_host::source::{Links, SourceDir, SourceEntry, Walk};
use obento_host::{FileId, HostError, SystemErrno};

use super::{Raw, Reader, data, full};
use crate::build::model::{PathError, names};
use crate::build::options::Owner;

/// Puts what is in the directory `path` into the directory `target` of the image. Errors: Host if it cannot be read at all.
pub(super) fn read(reader: &mut Reader<'_>, path: &Path, target: &[NameBuf]) -> Result<(), HostError> {
    let walk = Walk::new(path)?;
    let root = reader.supply.root(path).map_err(|error| full(&error))?;
    walk_into(reader, walk, path, root, target)
}

/// Puts the file or directory `from` at the path `to`. Errors: Host if it cannot be read at all.
pub(super) fn add(reader: &mut Reader<'_>, from: &Path, to: &[u8]) -> Result<(), HostError> {
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
        reader.problem(from.as_os_str().as_bytes(), "it has no name");
        return Ok(());
    };
    let Ok(name) = Name::new(name.as_bytes()) else {
        reader.problem(from.as_os_str().as_bytes(), "it has no name");
        return Ok(());
    };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entry = SourceDir::open(folder)?.look(name, Links::Keep)?;
    let root = reader.supply.root(folder).map_err(|error| full(&error))?;
    // As cp(1) has it: into a directory under its own name.
    if to.ends_with(b"/") || target.is_empty() {
        target.push(name.to_buf());
    }
    match put(reader, &entry, (root, name), &target) {
        Ok(()) => {}
        Err(Trouble::Host(error)) => reader.problem(from.as_os_str().as_bytes(), reason(&error)),
        Err(Trouble::Path(error)) => reader.problem(to, error),
    }
    Ok(())
}

enum Trouble {
    Host(HostError),
    Path(PathError),
}

impl From<PathError> for Trouble {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

impl From<HostError> for Trouble {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

/// Why, without the path, which is told beside it.
fn reason(error: &HostError) -> String {
    match error.errno() {
        Some(errno) => obento_base::Errno(errno.raw_os_error()).to_string(),
        None => error.to_string(),
    }
}

fn walk_into(
    reader: &mut Reader<'_>,
    mut walk: Walk,
    path: &Path,
    root: DirId,
    target: &[NameBuf],
) -> Result<(), HostError> {
    let mut linked = HashMap::new();
    // The directories from the root down to the entry, in the image and of the host, and the path of the source.
    let mut levels: Vec<(NodeId, DirId, usize)> = Vec::new();
    let mut inside: Vec<u8> = Vec::new();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let path = error.path().map_or(path, |path| path).as_os_str().as_bytes().to_vec();
                reader.problem(path, reason(&error));
                continue;
            }
        };
        let Some(name) = entry.name() else {
            let node = put_root(reader, &entry, target);
            match node {
                Ok(node) => levels.push((node, root, 0)),
                Err(Trouble::Path(error)) => {
                    reader.problem(path.as_os_str().as_bytes(), error);
                    return Ok(());
                }
                Err(Trouble::Host(error)) => return Err(error),
            }
            continue;
        };
        levels.truncate(walk.depth());
        let Some(&(dir, host_dir, len)) = levels.last() else { continue };
        inside.truncate(len);
        inside.push(b'/');
        inside.extend_from_slice(name.as_bytes());
        reader.progress(&inside)?;
        if reader.is_excluded(&inside) {
            walk.prune();
            continue;
        }
        let made = put_entry(reader, &entry, (dir, host_dir), name, &mut linked);
        match made {
            Ok(Some((node, host_dir))) => levels.push((node, host_dir, inside.len())),
            Ok(None) => {}
            Err(trouble) => {
                walk.prune();
                let why = match trouble {
                    Trouble::Host(error) => reason(&error),
                    Trouble::Path(error) => error.to_string(),
                };
                reader.problem(entry.path().as_os_str().as_bytes(), why);
            }
        }
    }
    Ok(())
}

/// The attributes of an entry: root's and without extended attributes, unless the settings say otherwise.
fn attr(reader: &mut Reader<'_>, entry: &SourceEntry) -> Result<NodeAttr, Trouble> {
    let held = entry.attr();
    let (uid, gid) = match reader.settings.owner {
        Owner::Keep => (held.uid, held.gid),
        Owner::Source | Owner::Is(..) => (0, 0),
    };
    let xattrs = if reader.settings.xattrs { entry.xattrs()? } else { Vec::new() };
    let mode = if held.kind == FileKind::Symlink { Mode::new(0o777) } else { held.mode };
    Ok(reader.attr(&Raw { kind: held.kind, mode, uid, gid, mtime: held.mtime, xattrs: &xattrs })?)
}

fn put_root(reader: &mut Reader<'_>, entry: &SourceEntry, target: &[NameBuf]) -> Result<NodeId, Trouble> {
    let attr = attr(reader, entry)?;
    Ok(reader.put(target, Body::Directory, attr, b"")?)
}

/// Puts an entry into a directory. Answers the directory that it is, if it is one.
fn put_entry(
    reader: &mut Reader<'_>,
    entry: &SourceEntry,
    (dir, host_dir): (NodeId, DirId),
    name: &Name,
    linked: &mut HashMap<FileId, NodeId>,
) -> Result<Option<(NodeId, DirId)>, Trouble> {
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
        let below = reader.supply.dir(host_dir, name).map_err(|error| full(&error))?;
        return Ok(Some((node, below)));
    }
    Ok(None)
}

/// Puts an entry at a path.
fn put(
    reader: &mut Reader<'_>,
    entry: &SourceEntry,
    place: (DirId, &Name),
    target: &[NameBuf],
) -> Result<(), Trouble> {
    let (body, link) = body(reader, entry, place)?;
    let attr = attr(reader, entry)?;
    let node = reader.put(target, body, attr, &link)?;
    set_holes(reader, entry, node)
}

fn body(
    reader: &mut Reader<'_>,
    entry: &SourceEntry,
    (dir, name): (DirId, &Name),
) -> Result<(Body, Vec<u8>), Trouble> {
    let held = entry.attr();
    let body = match held.kind {
        FileKind::Directory => Body::Directory,
        FileKind::Regular => {
            if !entry.is_readable() {
                return Err(HostError::system("read", entry.path(), SystemErrno::ACCESS).into());
            }
            let size = held.size;
            reader.bytes += size;
            let id = match size {
                0 => None,
                _ => data(reader.supply.entry(dir, name).map_err(|error| full(&error))?),
            };
            Body::File { size, data: id }
        }
        FileKind::Symlink => return Ok((Body::Symlink, entry.read_link()?)),
        FileKind::CharDevice => Body::CharDevice(held.rdev),
        FileKind::BlockDevice => Body::BlockDevice(held.rdev),
        FileKind::Fifo => Body::Fifo,
        FileKind::Socket => Body::Socket,
    };
    Ok((body, Vec::new()))
}

/// Notes where a sparse file has data.
fn set_holes(reader: &mut Reader<'_>, entry: &SourceEntry, node: NodeId) -> Result<(), Trouble> {
    let held = entry.attr();
    // A file system counts in blocks of at most 64 KiB, and small files have no holes worth keeping.
    if held.kind != FileKind::Regular || held.blocks.saturating_mul(512) >= held.size || held.size < 4096 {
        return Ok(());
    }
    let file = entry.open_file()?;
    let mut ranges = Vec::new();
    for run in file.runs() {
        if let obento_host::source::Run::Data(range) = run? {
            ranges.push(range);
        }
    }
    let whole = 0..held.size;
    if ranges != [whole] {
        reader.model.builder.set_data_ranges(node, ranges);
    }
    Ok(())
}
