//! From an image into a directory of the host.

use std::path::Path;

use obento_base::{Attr, Error, FileKind, Name, NameBuf};
use obento_driver::Span;
use obento_host::tree::{Keep, LinkKey, TreeWriter};
use obento_host::{DataSink, HostError, Metadata, SinkError, Xattr};
use obento_vfs::{Node, Symlinks};

use super::holes::Shaped;
use super::target::Target;
use super::{
    CopyError, CopyOptions, CopyReport, CopySource, HardLinks, Observer, Problem, Progress, Trouble,
};
use crate::data::{self, Losses};
use crate::walk::{Entry, Order, Step, Walk};

/// Bytes copied between two reports of progress.
const STRIDE: usize = 32 << 20;

/// Copies `sources` to `target`, which is a directory to copy into or the copy itself, as [`CopyOptions::target`]
/// says. Errors: what keeps it from beginning, or from going on at all: [`HostError::Limit`].
///
/// ```no_run
/// use obento::{CopyOptions, CopySource, Image, Options, Quiet, Registry};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Image::open("disk.img".as_ref(), &Registry::default(), &Options::default())?.volume(None)?;
/// let root = CopySource { node: volume.root(), path: b"/".to_vec(), prefix: Vec::new() };
/// let mut problems = Quiet::default();
/// let report = obento::copy_out(&[root], "folder".as_ref(), &CopyOptions::archive(), &mut problems)?;
/// println!("{} files, {} problems", report.written.files, report.problems);
/// # Ok(())
/// # }
/// ```
pub fn copy_out(
    sources: &[CopySource],
    target: &Path,
    options: &CopyOptions,
    observer: &mut dyn Observer,
) -> Result<CopyReport, CopyError> {
    let target = Target::find(target, sources, options)?;
    let writer = TreeWriter::open(target.directory(), options.tree)?.sparing(&options.spared);
    let mut copy =
        Copy { writer, options, observer, volume: 0, files: 0, bytes: 0, problems: 0, pruned: false };
    for source in sources {
        // Inodes of two volumes may have one number.
        let same = |other: &CopySource| other.node.vfs().root() == source.node.vfs().root();
        copy.volume = sources.iter().position(same).and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX);
        let name = match &target {
            Target::As(_, name) => Some(Ok(name.to_buf())),
            Target::Into(_) => source.name().map(|name| Name::new(name).map(Name::to_buf)),
        };
        match name {
            Some(Ok(name)) => copy.source(source, Some(&name))?,
            None if source.node.kind() == Ok(FileKind::Directory) => copy.source(source, None)?,
            _ => copy.problem(source.join(b""), Trouble::Nameless),
        }
    }
    let problems = copy.problems;
    Ok(CopyReport { written: copy.writer.finish()?, problems })
}

struct Copy<'a> {
    writer: TreeWriter,
    options: &'a CopyOptions,
    observer: &'a mut dyn Observer,
    /// Tells the volumes of the sources apart.
    volume: u32,
    files: u64,
    bytes: u64,
    problems: u64,
    /// The directory met last was not entered: its leaving is not to be followed.
    pruned: bool,
}

/// Why one file was not copied.
enum Failure {
    /// It cannot be read as fast as it should: read it carefully.
    Careful,
    Host(HostError),
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Source(_) => Self::Careful,
            SinkError::Sink(error) => Self::Host(error),
        }
    }
}

impl Copy<'_> {
    /// Copies one source, as `name`, or its contents.
    fn source(&mut self, source: &CopySource, name: Option<&NameBuf>) -> Result<(), CopyError> {
        let mut walk = Walk::new(source.node.clone()).order(Order::Directory).symlinks(self.options.symlinks);
        while let Some(entry) = walk.next() {
            match entry {
                Ok(entry) => self.entry(source, name, &entry, &mut walk)?,
                Err(damage) => self.problem(source.join(&damage.path), Trouble::Volume(damage.error)),
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        source: &CopySource,
        name: Option<&NameBuf>,
        entry: &Entry,
        walk: &mut Walk,
    ) -> Result<(), CopyError> {
        let path = source.join(&entry.path);
        let is_start = entry.path.is_empty();
        let name = if is_start { name.map(|name| &**name) } else { Name::new(entry.name()).ok() };
        match (entry.step, name) {
            (Step::Leave, _) if std::mem::take(&mut self.pruned) => return Ok(()),
            (Step::Leave, None) => return Ok(()),
            (Step::Leave, Some(_)) => return self.keep_going(path, |copy| copy.writer.leave()),
            (Step::Enter, _) if !self.options.recursive => {
                self.problem(path, Trouble::DirectoryOmitted);
                self.prune(walk);
                return Ok(());
            }
            _ => {}
        }
        let xattrs = self.xattrs(&entry.node, &path);
        let meta = Metadata::new(&entry.attr, &xattrs);
        let Some(name) = name else {
            // The contents of a directory: it lends its attributes to the target.
            self.writer.set_root(&meta);
            return Ok(());
        };
        self.observer.progress(&Progress { files: self.files, bytes: self.bytes, path: &path });
        self.files += 1;
        if entry.step == Step::Enter {
            let entered = self.writer.enter(name, &meta);
            if entered.is_err() {
                self.prune(walk);
            }
            return self.keep_going(path, |_| entered);
        }
        self.file(name, entry, &meta, path)
    }

    fn prune(&mut self, walk: &mut Walk) {
        walk.prune();
        self.pruned = true;
    }

    /// Copies what is no directory.
    fn file(
        &mut self,
        name: &Name,
        entry: &Entry,
        meta: &Metadata<'_>,
        path: Vec<u8>,
    ) -> Result<(), CopyError> {
        let Entry { node, attr, .. } = entry;
        let key = LinkKey { source: self.volume, ino: attr.ino.0 };
        let has_more_names = attr.nlink > 1 && self.options.hard_links == HardLinks::Keep;
        if has_more_names {
            match self.writer.link(name, meta, key) {
                Ok(None) => {}
                linked => return self.keep_going(path, |_| linked.map(drop)),
            }
        }
        let made = match attr.kind {
            FileKind::Regular => self.regular(name, node, attr, meta, &path),
            FileKind::Symlink if self.options.symlinks == Symlinks::Follow => {
                // The walk follows those that lead somewhere.
                self.problem(path, Trouble::Volume(Error::NotFound));
                return Ok(());
            }
            FileKind::Symlink => match node.read_link() {
                Ok(target) => self.writer.symlink(name, meta, &target).map(drop),
                Err(error) => {
                    self.problem(path, Trouble::Volume(error));
                    return Ok(());
                }
            },
            kind => self.writer.node(name, meta, kind, attr.rdev).map(drop),
        };
        let made = made
            .and_then(|()| if has_more_names { self.remember(key, name, attr.nlink - 1) } else { Ok(()) });
        self.keep_going(path, |_| made)
    }

    fn remember(&mut self, key: LinkKey, name: &Name, more: u32) -> Result<(), HostError> {
        match self.writer.remember(key, name, more) {
            // The node was dropped or stays as it was: there is nothing to link to.
            Err(error) if error.errno().is_some() => Ok(()),
            other => other,
        }
    }

    fn regular(
        &mut self,
        name: &Name,
        node: &Node,
        attr: &Attr,
        meta: &Metadata<'_>,
        path: &[u8],
    ) -> Result<(), HostError> {
        let (mut losses, start, holes) = (Losses::default(), self.bytes, self.options.holes);
        let (writer, observer, files) = (&mut self.writer, &mut *self.observer, self.files);
        let mut report = |bytes| observer.progress(&Progress { files, bytes: start + bytes, path });
        let fast = writer.file(name, meta, |sink| {
            fill(node, attr.size, &mut Shaped { sink, holes }, &mut losses, &mut report)
        });
        let made = match fast {
            Err(Failure::Careful) => {
                losses = Losses::default();
                writer.file(name, meta, |sink| {
                    fill_carefully(node, attr.size, &mut Shaped { sink, holes }, &mut losses)
                })
            }
            Err(Failure::Host(error)) => Err(error),
            Ok(written) => Ok(written),
        };
        self.bytes = start + attr.size;
        for unread in losses.into_ranges() {
            self.problem(path.to_vec(), Trouble::Unread(unread));
        }
        made.map(drop)
    }

    fn xattrs(&mut self, node: &Node, path: &[u8]) -> Vec<Xattr> {
        if !self.options.tree.keep.contains(Keep::XATTRS) {
            return Vec::new();
        }
        crate::xattrs::read(node, |error| self.problem(path.to_vec(), Trouble::Xattrs(error)))
    }

    /// Does one step. What the host refuses costs this entry; the limit on bytes ends the copy.
    fn keep_going(
        &mut self,
        path: Vec<u8>,
        step: impl FnOnce(&mut Self) -> Result<(), HostError>,
    ) -> Result<(), CopyError> {
        match step(self) {
            Ok(()) => Ok(()),
            Err(error @ HostError::Limit { .. }) => Err(error.into()),
            Err(error) => {
                self.problem(path, Trouble::Host(error));
                Ok(())
            }
        }
    }

    fn problem(&mut self, path: Vec<u8>, trouble: Trouble) {
        self.problems += 1;
        self.observer.problem(&Problem { path, trouble });
    }
}

/// Hands the bytes of a file over by runs. `Careful` if one of them cannot be read.
fn fill(
    node: &Node,
    size: u64,
    sink: &mut dyn DataSink,
    losses: &mut Losses,
    report: &mut dyn FnMut(u64),
) -> Result<(), Failure> {
    let mut at = 0;
    while at < size {
        let Some(run) = node.run(at, size - at).map_err(|_| Failure::Careful)? else { break };
        let len = run.len();
        match (run.span(), run.device()) {
            (Span::Hole | Span::Unwritten, _) => sink.hole(len)?,
            (Span::Mapped(offset), Some(device)) => {
                for done in (0..len).step_by(STRIDE) {
                    let part = (len - done).min(STRIDE as u64);
                    sink.device(&**device, offset.saturating_add(done), part)?;
                    report(at + done + part);
                }
            }
            (Span::Driver | Span::Mapped(_), _) => {
                drop(run);
                data::read(node, at..at + len, losses, |bytes| sink.bytes(bytes))?;
            }
        }
        at += len;
    }
    // The file ends before its size said: it is changing.
    Ok(sink.hole(size.saturating_sub(at))?)
}

/// Hands the bytes of a file over with holes where they cannot be read.
fn fill_carefully(
    node: &Node,
    size: u64,
    sink: &mut dyn DataSink,
    losses: &mut Losses,
) -> Result<(), HostError> {
    let mut at = 0;
    while at < size {
        let found = node.run(at, size - at).map(|run| run.map(|run| (run.span(), run.len())));
        let len = match found {
            Ok(None) => size - at,
            Ok(Some((_, len))) => len,
            Err(error) => losses.skip(at, size, error),
        };
        match found {
            Ok(Some((Span::Mapped(_) | Span::Driver, _))) => {
                data::read(node, at..at + len, losses, |bytes| sink.bytes(bytes))?;
            }
            _ => sink.hole(len)?,
        }
        at += len;
    }
    Ok(())
}
