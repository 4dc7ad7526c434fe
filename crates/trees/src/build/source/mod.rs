//! Reads sources into a tree.
//!
//! Invariant: problems are collected, up to [`PROBLEMS_MAX`] of them, and reported together after reading, so that a
//! user can fix all of them at once.

mod archive;
mod directory;
mod dump;
mod folders;
mod lists;
mod manifest;
mod mtree;
mod oci;
mod store;

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use obento_base::{FileKind, NameBuf, Timestamp};
use obento_driver::tree::{Body, DataId, NodeAttr, XattrsId};
use obento_driver::{NodeId, Tree};
use obento_env::{Clock as _, SystemClock};
use obento_host::build::{Spool, Supply, SupplyError};
use obento_host::{HostError, Xattr};

use super::history::{self, History, SourceNames};
use super::model::{Model, PathError, names};
use super::stream::Stream;
use super::{BuildFailure, BuildSettings, BuildSource, Input, SourceProblem, SourceReason};
use crate::copy::{Observer, Progress};

/// Maximum number of problems that are reported.
const PROBLEMS_MAX: usize = 1000;
/// Maximum number of bytes of the path and of the reason of a problem: the longest path of Linux.
const PROBLEM_LEN: usize = 4096;

/// A time in the future is not used as the time of the volume, because checks would report it until then.
const OF_THE_FUTURE: &str = "contains files with future times: the volume gets the time of the newest file before now, so a later \
    build may get other times; set SOURCE_DATE_EPOCH for a fixed time";

/// The result of reading the sources.
pub(super) struct Read {
    pub tree: Tree,
    pub supply: Supply,
    pub excluded: u64,
    pub notes: Vec<String>,
    /// Entries of access control lists that were left out, by file.
    pub lost: Vec<SourceProblem>,
    /// The image that already contains the files of a pipe.
    pub stream: Option<Stream>,
    /// The log of the volume, if it is requested.
    pub history: Option<History>,
}

/// Reads all sources in order. The files of a source replace files of earlier sources. Bytes from a pipe are written
/// to `stream`, if there is one. Fails with `Sources`, with all problems, and with `Host`.
pub(super) fn read_all(
    out: &Path,
    sources: &[BuildSource],
    settings: &BuildSettings,
    stream: Option<Stream>,
    observer: &mut dyn Observer,
) -> Result<Read, BuildFailure> {
    let mut reader = SourceReader {
        model: Model::new(settings.unpack),
        supply: Supply::default(),
        settings,
        observer,
        out,
        spool: None,
        stream,
        problems: Vec::new(),
        notes: Vec::new(),
        excluded: 0,
        entries: 0,
        bytes: 0,
        contents: manifest::ContentsBudget::default(),
    };
    let mut origins = Vec::new();
    for source in sources {
        reader.model.begin_layer();
        origins.push(SourceNames::of(source, reader.model.layer_start()));
        match source {
            BuildSource::Directory(path) => directory::read(&mut reader, path, &[])?,
            BuildSource::Add { from, to } => directory::add(&mut reader, from, to)?,
            BuildSource::Archive(input) => archive::read(&mut reader, input, archive::Whiteouts::AreFiles)?,
            BuildSource::Layer(input) => archive::read(&mut reader, input, archive::Whiteouts::Hide)?,
            BuildSource::OciLayout(path) => oci::read(&mut reader, path)?,
            BuildSource::Mtree(path) => mtree::read(&mut reader, path)?,
            BuildSource::Dump(path) => dump::read(&mut reader, path)?,
        }
    }
    let lost = lists::settle(&mut reader);
    let history = settings.provenance.then(|| history::reserve(&mut reader, &origins)).transpose()?;
    let SourceReader { model, supply, mut problems, excluded, mut notes, stream, .. } = reader;
    if !problems.is_empty() {
        problems.sort_by(|one, other| place(one).cmp(&place(other)));
        return Err(BuildFailure::Sources(problems));
    }
    let tree = model.builder.finish();
    let now = SystemClock.now();
    if settings.epoch.is_none() && tree.nodes().any(|(_, node)| node.attr.mtime > now) {
        notes.push(OF_THE_FUTURE.to_owned());
    }
    Ok(Read { tree, supply, excluded, notes, lost, stream, history })
}

/// Returns the position of a problem in the report. The problems of a manifest are in the order of its lines.
fn place(problem: &SourceProblem) -> (&[u8], u64, &SourceReason) {
    let colon = problem.path.iter().rposition(|&byte| byte == b':');
    let line = colon.and_then(|at| {
        let (path, line) = problem.path.split_at_checked(at)?;
        let line = std::str::from_utf8(line.get(1..)?).ok()?.parse().ok()?;
        Some((path, line))
    });
    let (path, line) = line.unwrap_or((&problem.path, 0));
    (path, line, &problem.why)
}

/// The state of reading.
pub(super) struct SourceReader<'a> {
    pub(super) model: Model,
    supply: Supply,
    settings: &'a BuildSettings,
    observer: &'a mut dyn Observer,
    out: &'a Path,
    /// The bytes that cannot be read twice, and their file in the supply.
    spool: Option<(Spool, u16)>,
    /// The image that receives bytes from a pipe, if the driver supports that.
    stream: Option<Stream>,
    problems: Vec<SourceProblem>,
    notes: Vec<String>,
    excluded: u64,
    entries: u64,
    bytes: u64,
    /// The files that manifests name.
    contents: manifest::ContentsBudget,
}

/// The reason why an entry was not added to the tree.
enum EntryError {
    /// The entry cannot be used. The source has other entries.
    Entry(SourceReason),
    /// The source cannot be read, or the image cannot be written.
    Host(HostError),
}

impl<T> From<T> for EntryError
where
    SourceReason: From<T>,
{
    fn from(why: T) -> Self {
        Self::Entry(why.into())
    }
}

impl From<HostError> for EntryError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

/// An entry of a source, before the settings change it.
struct Raw<'x> {
    kind: FileKind,
    mode: obento_base::Mode,
    uid: u32,
    gid: u32,
    mtime: Timestamp,
    xattrs: &'x [Xattr],
}

impl SourceReader<'_> {
    fn problem(&mut self, path: impl Into<Vec<u8>>, why: impl Into<SourceReason>) {
        if self.problems.len() < PROBLEMS_MAX {
            let (mut path, mut why) = (path.into(), why.into());
            // A source can contain words and paths of a megabyte.
            path.truncate(PROBLEM_LEN);
            match &mut why {
                SourceReason::Path(_) => {}
                SourceReason::Outside(path) => path.truncate(PROBLEM_LEN),
                SourceReason::Other(text) => text.truncate(text.floor_char_boundary(PROBLEM_LEN)),
            }
            self.problems.push(SourceProblem { path, why });
        }
    }

    /// Records an entry at `place` that cannot be used. Fails if the source cannot be read.
    fn settle(
        &mut self,
        taken: Result<(), EntryError>,
        place: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), HostError> {
        match taken {
            Ok(()) => Ok(()),
            Err(EntryError::Host(error)) => Err(error),
            Err(EntryError::Entry(why)) => {
                self.problem(place(), why);
                Ok(())
            }
        }
    }

    /// Reports the progress after one more entry. Fails with `FileLimit` or `Stopped`.
    fn progress<P: AsRef<[u8]>>(&mut self, path: impl FnOnce() -> P) -> Result<(), HostError> {
        self.entries += 1;
        let limit = self.settings.max_files;
        if self.entries > limit {
            let path = PathBuf::from(OsStr::from_bytes(path().as_ref()));
            return Err(HostError::FileLimit { path, limit });
        }
        if self.entries.is_multiple_of(64) {
            let (files, bytes) = (self.entries, self.bytes);
            self.observer.progress(&Progress { files, bytes, path: path().as_ref() });
            if self.observer.is_stopped() {
                return Err(HostError::Stopped);
            }
        }
        Ok(())
    }

    /// Limits a time to the latest time of a file.
    fn clamped(&self, mtime: Timestamp) -> Timestamp {
        match self.settings.epoch {
            Some(epoch) => mtime.min(Timestamp::new(epoch, 0)),
            None => mtime,
        }
    }

    fn xattrs(&mut self, xattrs: &[Xattr]) -> Result<Option<XattrsId>, PathError> {
        self.model.xattrs(xattrs)
    }

    /// Returns the attributes after the changes of the settings.
    fn attr(&mut self, raw: &Raw<'_>) -> Result<NodeAttr, PathError> {
        let (uid, gid) = self.settings.owner(raw.uid, raw.gid);
        let mode = self.settings.mode(raw.kind, raw.mode);
        let xattrs = if raw.xattrs.is_empty() { None } else { self.xattrs(raw.xattrs)? };
        Ok(NodeAttr { mode, uid, gid, mtime: self.clamped(raw.mtime), xattrs })
    }

    /// Puts a node at `path`. Fails if the path is not usable.
    fn put(
        &mut self,
        path: &[NameBuf],
        body: Body,
        attr: NodeAttr,
        target: &[u8],
    ) -> Result<NodeId, PathError> {
        let Some((name, parent)) = path.split_last() else {
            if body != Body::Directory {
                return Err(PathError::NoPath);
            }
            if let Some(root) = self.model.builder.attr_mut(NodeId::ROOT) {
                *root = attr;
            }
            return Ok(NodeId::ROOT);
        };
        let dir = self.model.directory(parent, attr.mtime)?;
        self.model.put(dir, name, body, attr, target)
    }

    /// Puts a file that belongs to no source at `path`. A source that contains the path is a problem.
    pub(super) fn put_log(&mut self, path: &str, body: Body, attr: NodeAttr) {
        let placed = names(path.as_bytes()).and_then(|path| match self.model.find(&path) {
            Some(_) => Err(PathError::Log),
            None => self.put(&path, body, attr, &[]),
        });
        if let Err(error) = placed {
            self.problem(path, error);
        }
    }

    /// Returns the spool, which is created on first use. Fails with `System`.
    fn spool(&mut self) -> Result<(&mut Spool, u16), HostError> {
        if self.spool.is_none() {
            let spool = Spool::beside(self.out)?;
            let file = self.supply.file(spool.reader()?, self.out)?;
            self.spool = Some((spool, file));
        }
        match &mut self.spool {
            Some((spool, file)) => Ok((spool, *file)),
            None => Err(SupplyError.into()),
        }
    }

    /// Stores the bytes of a file that cannot be read again. Fails with `System`.
    pub(super) fn kept(&mut self, bytes: &[u8]) -> Result<Body, HostError> {
        let size = bytes.len() as u64;
        if size == 0 {
            return Ok(Body::File { size, data: None });
        }
        let (spool, file) = self.spool()?;
        let start = spool.begin();
        spool.write(start, 0, bytes)?;
        let id = self.supply.part(file, start)?;
        Ok(Body::File { size, data: data(id) })
    }

    fn is_excluded(&mut self, path: &[u8]) -> bool {
        let is_excluded = self.settings.selection().is_excluded(path);
        self.excluded += u64::from(is_excluded);
        is_excluded
    }
}

/// Opens a file that must be regular, and returns its properties. Does not wait for the writer of a FIFO. Fails with
/// `System`.
pub(super) fn open_at_once(path: &Path) -> Result<(File, Metadata), HostError> {
    /// `O_NONBLOCK`. Source: include/uapi/asm-generic/fcntl.h.
    const NONBLOCK: i32 = 0o4000;
    let file = File::options().read(true).custom_flags(NONBLOCK).open(path);
    let opened = file.and_then(|file| Ok((file.metadata()?, file))).map(|(meta, file)| (file, meta));
    opened.map_err(|error| HostError::of_io("open", path, &error))
}

/// Opens a source. Fails with `System`.
fn open(path: &Path) -> Result<File, HostError> {
    obento_host::open_input(path)
}

fn input_name(input: &Input) -> &Path {
    match input {
        Input::File(path) => path,
        Input::Standard => Path::new("standard input"),
    }
}

fn data(id: u32) -> Option<DataId> {
    Some(DataId(id))
}
