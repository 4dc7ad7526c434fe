//! The items of a tree of the host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use obento_base::{Attr, FileKind, Name};
use obento_host::source::{SourceDir, SourceEntry, SymlinkPolicy, Walk};
use obento_host::tree::Keep;
use obento_host::{CopiedEntries, FileId, HostDir, HostError};
use obento_open::walk::Step;
use obento_vfs::Symlinks;

use super::ahead::BYTES;
use super::{Body, Item, Items, Origin, Reader};
use crate::copy::{CopyOptions, Problem, ProblemReason};

/// Files up to this length are read together with the tree.
const AT_ONCE: u64 = 64 << 10;

/// The items of a tree of the host.
pub(in crate::copy) struct HostItems {
    walk: Walk,
    options: Wanted,
    /// Directories that were entered and not left yet.
    entered: Vec<Entered>,
    /// The path of the last directory of `entered`. The others are prefixes of it: the paths of a deep tree would need
    /// memory proportional to the square of its depth.
    here: Vec<u8>,
    /// The next entry, if it was read already.
    held: Option<SourceEntry>,
    ended: bool,
    /// Bytes of small files that were read since the last `take_bytes`.
    bytes: Vec<u8>,
    /// Receives the entries that are read.
    copied: Option<CopiedEntries>,
}

/// The options that the reader needs.
struct Wanted {
    keep: Keep,
    recursive: bool,
    one_file_system: bool,
    spared: Vec<FileId>,
    /// The file system of the source.
    device: u64,
}

struct Entered {
    /// The length of the path.
    len: usize,
    attr: Attr,
    id: FileId,
}

impl HostItems {
    /// Starts at `path`. The options decide whether a symbolic link at its end is followed.
    pub fn new(path: &[u8], options: &CopyOptions) -> Result<Self, Problem> {
        let start = start(Path::new(OsStr::from_bytes(path)), options.named_symlinks);
        Ok(Self::start(start.map_err(|error| problem(path.to_vec(), error))?, options))
    }

    /// Starts at the entry `name` of `dir`, without following a symbolic link.
    pub fn of_entry(dir: &HostDir, name: &Name, options: &CopyOptions) -> Result<Self, Problem> {
        let start = SourceDir::of(dir).and_then(|dir| dir.entry(name)).and_then(|entry| {
            // A directory shows its whole path in messages.
            if entry.attr().kind == FileKind::Directory { entry.open_dir()?.as_entry() } else { Ok(entry) }
        });
        let shown = || dir.child(name).into_os_string().into_encoded_bytes();
        Ok(Self::start(start.map_err(|error| problem(shown(), error))?, options))
    }

    fn start(start: SourceEntry, options: &CopyOptions) -> Self {
        let links = match options.symlinks {
            Symlinks::Follow => SymlinkPolicy::Follow,
            Symlinks::Keep => SymlinkPolicy::Keep,
        };
        let wanted = Wanted {
            keep: options.tree.keep,
            recursive: options.recursive,
            one_file_system: options.one_file_system,
            spared: options.spared.clone(),
            device: start.id().dev,
        };
        Self {
            walk: Walk::from_entry(start).links(links).opening(),
            options: wanted,
            entered: Vec::new(),
            here: Vec::new(),
            held: None,
            ended: false,
            bytes: Vec::new(),
            copied: None,
        }
    }

    /// Records the entries that are read in `copied`.
    pub fn recording(mut self, copied: CopiedEntries) -> Self {
        self.copied = Some(copied);
        self
    }

    /// Returns whether the bytes of the entry are copied, and not the entry itself: those of a FIFO or device that the
    /// user named, without `-r`.
    fn is_stream(&self, entry: &SourceEntry) -> bool {
        let kind = entry.attr().kind;
        self.walk.depth() == 0 && !self.options.recursive && (kind == FileKind::Fifo || kind.is_device())
    }

    fn meet(&mut self, entry: &mut SourceEntry) -> Result<Item, Problem> {
        let shown = entry.path().into_os_string().into_encoded_bytes();
        let (id, attr) = (entry.id(), *entry.attr());
        if let Some(copied) = &self.copied {
            copied.add(id, &attr);
        }
        let is_start = self.walk.depth() == 0;
        let name = if is_start { None } else { entry.name().map(Name::to_buf) };
        let item = |step, body, (xattrs, troubles)| Item {
            shown: shown.clone(),
            name: name.clone(),
            step,
            is_start,
            attr,
            origin: Origin::Host(id),
            xattrs,
            body,
            troubles,
        };
        if attr.kind == FileKind::Directory {
            let foreign = self.options.one_file_system && id.dev != self.options.device;
            if foreign || !self.options.recursive {
                self.walk.prune();
            }
            self.entered.push(Entered { len: shown.len(), attr, id });
            self.here.clone_from(&shown);
            return Ok(item(Step::Enter, Body::None, self.xattrs(|| entry.xattrs())));
        }
        if self.options.spared.contains(&id) {
            return Err(Problem { path: shown, trouble: ProblemReason::IsTarget });
        }
        let failed = |error| problem(shown.clone(), error);
        if self.is_stream(entry) {
            let stream = item(Step::File, Body::Stream(entry.clone()), self.xattrs(|| entry.xattrs()));
            let attr = Attr { kind: FileKind::Regular, size: 0, nlink: 1, ..attr };
            return Ok(Item { attr, ..stream });
        }
        match attr.kind {
            FileKind::Symlink => {
                let target = entry.read_link().map_err(failed)?;
                Ok(item(Step::File, Body::Link(target), self.xattrs(|| entry.xattrs())))
            }
            FileKind::Regular => {
                let open = entry.open().map_err(failed)?;
                let extra = self.xattrs(|| open.xattrs());
                let body = if open.size() <= AT_ONCE && !open.may_have_holes() {
                    Body::Bytes(open.read(&mut self.bytes).map_err(failed)?)
                } else {
                    Body::Host(open.into_file().map_err(failed)?)
                };
                Ok(item(Step::File, body, extra))
            }
            _ => Ok(item(Step::File, Body::None, self.xattrs(|| entry.xattrs()))),
        }
    }

    fn xattrs(
        &self,
        read: impl FnOnce() -> Result<Vec<obento_host::Xattr>, HostError>,
    ) -> (Vec<obento_host::Xattr>, Vec<ProblemReason>) {
        let keep = self.options.keep;
        if !keep.intersects(Keep::XATTRS | Keep::MODE) {
            return Default::default();
        }
        match read() {
            Ok(mut xattrs) => {
                xattrs.retain(|xattr| keep.includes(xattr));
                (xattrs, Vec::new())
            }
            Err(error) => (Vec::new(), vec![ProblemReason::Host(error)]),
        }
    }

    fn leave(&mut self) -> Option<Item> {
        let Entered { len, attr, id } = self.entered.pop()?;
        self.here.truncate(len);
        let shown = self.here.clone();
        let name = Name::new(super::super::options::last_name(&shown).unwrap_or_default()).ok();
        Some(Item {
            name: name.filter(|_| !self.entered.is_empty()).map(Name::to_buf),
            shown,
            step: Step::Leave,
            is_start: self.entered.is_empty(),
            attr,
            origin: Origin::Host(id),
            xattrs: Vec::new(),
            body: Body::None,
            troubles: Vec::new(),
        })
    }
}

impl Items for HostItems {
    fn prune(&mut self) {
        self.walk.prune();
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Reader for HostItems {
    fn take_bytes(&mut self, spare: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.bytes, spare)
    }
}

impl Iterator for HostItems {
    type Item = Result<Item, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.held.is_none() && !self.ended {
            match self.walk.next() {
                Some(Ok(entry)) => self.held = Some(entry),
                Some(Err(error)) => {
                    let path = error.path().map_or(Vec::new(), |path| path.as_os_str().as_bytes().to_vec());
                    return Some(Err(problem(path, error)));
                }
                None => self.ended = true,
            }
        }
        if self.ended || self.entered.len() > self.walk.depth() {
            return self.leave().map(Ok);
        }
        let mut entry = self.held.take()?;
        if self.bytes.len() >= BYTES {
            self.bytes.clear();
        }
        Some(self.meet(&mut entry))
    }
}

/// Returns the entry at `path`. `symlinks` decides whether a symbolic link at its end is followed.
fn start(path: &Path, symlinks: Symlinks) -> Result<SourceEntry, HostError> {
    let bytes = path.as_os_str().as_bytes();
    let (parent, name) = match (path.parent(), path.file_name()) {
        // `a/.`, `a/..` and paths that end in a slash refer to the directory that they lead to.
        (Some(parent), Some(name)) if !bytes.ends_with(b"/") && !bytes.ends_with(b"/.") => (parent, name),
        _ => return SourceDir::open(path)?.as_entry(),
    };
    let Ok(name) = Name::new(name.as_bytes()) else { return SourceDir::open(path)?.as_entry() };
    let links = match symlinks {
        Symlinks::Follow => SymlinkPolicy::Follow,
        Symlinks::Keep => SymlinkPolicy::Keep,
    };
    let parent = match parent.as_os_str().is_empty() {
        true => SourceDir::current()?,
        false => SourceDir::open(parent)?,
    };
    let entry = parent.look(name, links)?;
    // A directory shows the given path in messages.
    if entry.attr().kind == FileKind::Directory { SourceDir::open(path)?.as_entry() } else { Ok(entry) }
}

fn problem(path: Vec<u8>, error: HostError) -> Problem {
    Problem { path, trouble: ProblemReason::Host(error) }
}
