//! The copy engine: writes the items of a source, one after another, into a tree.

use std::fs::File;
use std::path::Path;

use obento_base::wire::to_u64;
use obento_base::{Attr, Error, FileFlags, FileKind, Mode, Name, NameBuf};
use obento_driver::Span;
use obento_host::source::Run;
use obento_host::tree::{Keep, LinkKey, Loss, Report, Written};
use obento_host::{DataSink, HostError, Metadata, SinkError};
use obento_open::walk::Step;
use obento_vfs::{Node, Symlinks};

use super::holes::{HoleSink, Holes};
use super::image::CHUNK;
use super::into::read_full;
use super::source::{Body, CopyFrom, Item, Items, Origin};
use super::tree_sink::{FileError, Fill, NewEntry, TreeSink};
use super::{
    Admission, CopyError, CopyOptions, HardLinks, Observer, Problem, ProblemReason, Progress, expect_wanted,
};
use crate::data::{self, Losses};

/// Bytes copied between two reports of progress.
const STRIDE: u64 = 32 << 20;

/// Flags that a user sets on a file, as with chattr(1), and that change how the file is treated.
const SET_BY_PEOPLE: FileFlags = FileFlags::IMMUTABLE
    .union(FileFlags::APPEND)
    .union(FileFlags::NO_DUMP)
    .union(FileFlags::NO_ATIME)
    .union(FileFlags::SYNC);

pub(super) struct Copy<'a, T> {
    pub tree: T,
    options: &'a CopyOptions,
    observer: &'a mut dyn Observer,
    /// The host file systems of the items so far. Each numbers its inodes independently.
    devices: Vec<u64>,
    /// The directory above the tree, if it is in an image. Files of the same volume are read without holding
    /// their mappings.
    root: Option<Node>,
    files: u64,
    bytes: u64,
    problems: u64,
    /// Number of directories that were entered in the source but not in the tree.
    skipped: u32,
}

impl<'a, T: TreeSink> Copy<'a, T> {
    pub fn new(
        tree: T,
        root: Option<Node>,
        options: &'a CopyOptions,
        observer: &'a mut dyn Observer,
    ) -> Self {
        let devices = Vec::new();
        Self { tree, options, observer, devices, root, files: 0, bytes: 0, problems: 0, skipped: 0 }
    }

    /// Copies `source` with this index, as `name`. Without a name, copies the contents of a directory.
    pub fn source(&mut self, source: &CopyFrom, index: usize, name: Option<&Name>) -> Result<(), CopyError> {
        let is_still = !self.root.as_ref().is_some_and(|root| source.is_in_volume_of(root));
        let mut items = match source.items(index, self.options, is_still) {
            Ok(items) => items,
            Err(Problem { path, trouble }) => return self.fail(path, trouble),
        };
        self.skipped = 0;
        let mut name = name.map(Name::to_buf);
        let is_contents = name.is_none();
        let mut depth = 0_u32;
        while let Some(item) = items.next() {
            expect_wanted(self.observer)?;
            let mut item = match item {
                Ok(item) => item,
                Err(Problem { path, trouble }) => {
                    self.fail(path, trouble)?;
                    continue;
                }
            };
            let is_start = depth == 0 || (depth == 1 && item.step == Step::Leave);
            self.report_late()?;
            crate::acls::settle(&mut item.attr.mode, &mut item.xattrs);
            match item.step {
                Step::Enter => depth += 1,
                Step::Leave => depth = depth.saturating_sub(1),
                Step::File => {}
            }
            let called: Option<NameBuf> = if is_start { name.take() } else { item.name.clone() };
            if is_start && is_contents && called.is_none() {
                self.contents(item, items.as_mut())?;
            } else {
                self.item(item, called.as_deref(), items.as_mut())?;
            }
        }
        Ok(())
    }

    /// Handles the first item of a copy of the contents of a directory: the target gets its attributes.
    fn contents(&mut self, mut item: Item, items: &mut dyn Items) -> Result<(), CopyError> {
        match item.step {
            Step::Leave => self.skipped = 0,
            _ if item.attr.kind != FileKind::Directory => {
                return self.fail(item.shown, ProblemReason::Nameless);
            }
            _ if !self.options.recursive => {
                items.prune();
                self.skipped = 1;
                return self.fail(item.shown, ProblemReason::DirectoryOmitted);
            }
            _ => {
                let admission = self.observer.admit(&item.shown, &mut item.attr);
                restrict(&mut item, admission);
                self.report_problems(&mut item)?;
                if admission != Admission::ContentsOnly {
                    self.tree.set_root(&Metadata::new(&item.attr, &item.xattrs));
                }
            }
        }
        Ok(())
    }

    fn item(&mut self, mut item: Item, name: Option<&Name>, items: &mut dyn Items) -> Result<(), CopyError> {
        if self.skipped > 0 {
            match item.step {
                Step::Enter => self.skipped += 1,
                Step::Leave => self.skipped -= 1,
                Step::File => {}
            }
            return Ok(());
        }
        if item.step == Step::Leave {
            let left = self.tree.leave();
            return self.keep_going(item.shown, left);
        }
        if item.step == Step::Enter && !self.options.recursive {
            self.skipped = 1;
            return self.fail(item.shown, ProblemReason::DirectoryOmitted);
        }
        match self.observer.admit(&item.shown, &mut item.attr) {
            Admission::Omitted => {
                if item.step == Step::Enter {
                    items.prune();
                    self.skipped = 1;
                }
                return Ok(());
            }
            admission => restrict(&mut item, admission),
        }
        self.report_problems(&mut item)?;
        let Some(name) = name else { return self.fail(item.shown, ProblemReason::Nameless) };
        self.observer.progress(&Progress { files: self.files, bytes: self.bytes, path: &item.shown });
        self.files += 1;
        self.count_flags(&item.attr, name);
        if item.step == Step::Enter {
            let meta = Metadata::new(&item.attr, &item.xattrs);
            let entered = self.tree.enter(name, &meta);
            if entered.is_err() {
                items.prune();
                self.skipped = 1;
            }
            return self.keep_going(item.shown, entered);
        }
        let made = self.file(name, &item, items);
        self.keep_going(item.shown, made)
    }

    /// Counts the flags and the project of an entry as losses, if the options ask to keep everything.
    fn count_flags(&mut self, attr: &Attr, name: &Name) {
        if !self.options.tree.keep.contains(Keep::XATTRS) {
            return;
        }
        if attr.flags.intersects(SET_BY_PEOPLE) {
            self.tree.lose(Loss::Flags, name);
        }
        if attr.project != 0 {
            self.tree.lose(Loss::Project, name);
        }
    }

    /// Copies a file that is not a directory.
    fn file(&mut self, name: &Name, item: &Item, items: &dyn Items) -> Result<(), ProblemReason> {
        let attr = &item.attr;
        if is_special(attr.kind) && !self.options.recursive {
            return Err(ProblemReason::SpecialOmitted(attr.kind));
        }
        let meta = Metadata::new(attr, &item.xattrs);
        let has_more_names = attr.nlink > 1 && self.options.hard_links == HardLinks::Keep;
        let key = self.key(item.origin);
        if has_more_names && self.tree.link(name, &meta, key)? {
            return Ok(());
        }
        match (attr.kind, &item.body) {
            // A link is followed only if its target exists.
            (FileKind::Symlink, _) if self.follows(item) => {
                return Err(ProblemReason::Volume(Error::NotFound));
            }
            (FileKind::Symlink, Body::Link(target)) => {
                let written = self.tree.create_or_drop(name, &meta, NewEntry::Symlink(target))?;
                self.report_dropped(item, written);
            }
            (FileKind::Regular, body) => self.regular(name, (item, items), body, &meta)?,
            (kind, _) => {
                let written = self.tree.create_or_drop(name, &meta, NewEntry::Node(kind, attr.rdev))?;
                self.report_dropped(item, written);
            }
        }
        if has_more_names {
            self.tree.remember(key, name, attr.nlink - 1)?;
        }
        Ok(())
    }

    /// Reports an entry that the target cannot store.
    fn report_dropped(&mut self, item: &Item, written: Written) {
        if written == Written::Dropped {
            let loss = match item.attr.kind {
                FileKind::Symlink => Loss::Symlink,
                kind if kind.is_device() => Loss::Device,
                _ => Loss::Special,
            };
            self.observer.dropped(&item.shown, loss);
        }
    }

    /// Returns whether the copy follows the link `item`.
    fn follows(&self, item: &Item) -> bool {
        let options = self.options;
        let symlinks = if item.is_start { options.named_symlinks } else { options.symlinks };
        symlinks == Symlinks::Follow
    }

    fn key(&mut self, origin: Origin) -> LinkKey {
        match origin {
            Origin::Image(index, ino) => {
                LinkKey { source: u32::try_from(index).unwrap_or(u32::MAX / 2).min(u32::MAX / 2), ino: ino.0 }
            }
            Origin::Host(id) => {
                let known = self.devices.iter().position(|&device| device == id.dev);
                let index = known.unwrap_or_else(|| {
                    self.devices.push(id.dev);
                    self.devices.len() - 1
                });
                // These numbers come after those of images.
                LinkKey { source: u32::MAX - u32::try_from(index).unwrap_or(0), ino: id.ino }
            }
        }
    }

    fn regular(
        &mut self,
        name: &Name,
        (item, items): (&Item, &dyn Items),
        body: &Body,
        meta: &Metadata<'_>,
    ) -> Result<(), ProblemReason> {
        if let Body::Bytes(bytes) = body
            && self.options.holes != Holes::Make
        {
            let bytes = items.bytes().get(bytes.clone()).unwrap_or_default();
            if self.tree.create_later(name, meta, bytes)? {
                self.bytes = self.bytes.saturating_add(bytes.len() as u64);
                return Ok(());
            }
        }
        let (start, files, holes) = (self.bytes, self.files, self.options.holes);
        let (tree, observer) = (&mut self.tree, &mut *self.observer);
        let path = &item.shown;
        let mut report = |bytes| {
            observer.progress(&Progress { files, bytes: start.saturating_add(bytes), path });
            expect_wanted(observer)
        };
        let mut write = |fill: &mut Fill<'_>| {
            tree.create(name, meta, NewEntry::File(&mut |sink| fill(&mut HoleSink { sink, holes })))
        };
        let (mut losses, mut read) = (Losses::default(), item.attr.size);
        let made = match body {
            Body::Bytes(bytes) => {
                let bytes = items.bytes().get(bytes.clone()).unwrap_or_default();
                read = bytes.len() as u64;
                write(&mut |sink| Ok(sink.bytes(bytes)?))
            }
            Body::Host(file) => write(&mut |sink| fill_from_host(file, sink, &mut report)),
            // Opened first: the target stays if no process writes to a FIFO.
            Body::Stream(entry) => entry.open_stream().map_err(FileError::from).and_then(|file| {
                let path = entry.path();
                write(&mut |sink| fill_from_stream((&file, &path), &mut read, sink, &mut report))
            }),
            Body::Image(node) => {
                let size = item.attr.size;
                // A thread that holds a mapping must not write to the same volume.
                let is_shared = self.root.as_ref().is_some_and(|root| root.vfs().root() == node.vfs().root());
                let fast = match is_shared {
                    true => None,
                    false => {
                        match write(&mut |sink| fill(node, size, sink, &mut losses, &mut report)) {
                            // Copies the file again from the start, with holes for unreadable bytes.
                            Err(FileError::Source(_)) => None,
                            made => Some(made),
                        }
                    }
                };
                fast.unwrap_or_else(|| {
                    losses = Losses::default();
                    write(&mut |sink| Ok(fill_carefully(node, size, sink, &mut losses, &mut report)?))
                })
            }
            Body::None | Body::Link(_) => Ok(()),
        };
        // Sparse files may have more than 2^64 bytes together.
        self.bytes = start.saturating_add(read);
        for unread in losses.into_ranges() {
            self.problem(item.shown.clone(), ProblemReason::Unread(unread));
        }
        Ok(made?)
    }

    /// Reports the files whose contents could not be written after they were created.
    fn report_late(&mut self) -> Result<(), CopyError> {
        let problems = self.tree.late_problems();
        problems.into_iter().try_for_each(|Problem { path, trouble }| self.fail(path, trouble))
    }

    fn report_problems(&mut self, item: &mut Item) -> Result<(), CopyError> {
        let troubles = std::mem::take(&mut item.troubles);
        troubles.into_iter().try_for_each(|trouble| self.fail(item.shown.clone(), trouble))
    }

    /// Reports a refusal, which affects only this entry. Ends the copy for a failure that would occur again.
    fn keep_going(&mut self, path: Vec<u8>, done: Result<(), ProblemReason>) -> Result<(), CopyError> {
        done.or_else(|trouble| self.fail(path, trouble))
    }

    /// Reports `trouble`, or ends the copy with it.
    pub fn fail(&mut self, path: Vec<u8>, trouble: ProblemReason) -> Result<(), CopyError> {
        match trouble.into_report()? {
            Some(trouble) => self.problem(path, trouble),
            None => self.observer.dropped(&path, Loss::Name),
        }
        Ok(())
    }

    fn problem(&mut self, path: Vec<u8>, trouble: ProblemReason) {
        self.problems += 1;
        self.observer.problem(&Problem { path, trouble });
    }

    /// Ends the tree. Returns the report of the written entries and the number of problems.
    pub fn finish(mut self) -> Result<(Report, u64), CopyError> {
        self.tree.settle();
        self.report_late()?;
        Ok((self.tree.finish()?, self.problems))
    }
}

/// Removes the properties of an item that `admission` excludes.
fn restrict(item: &mut Item, admission: Admission) {
    match admission {
        Admission::Full | Admission::Omitted => {}
        // These properties give rights to the processes that run the file.
        Admission::Distrusted => {
            let is_right = |name: &[u8]| name.starts_with(b"security.") || name.starts_with(b"trusted.");
            item.attr.mode = item.attr.mode.without(Mode::SET_UID).without(Mode::SET_GID);
            item.xattrs.retain(|xattr| !is_right(&xattr.name));
        }
        Admission::ContentsOnly => {
            (item.attr.flags, item.attr.project) = (FileFlags::empty(), 0);
            item.xattrs.clear();
            // They belong to the attributes that are not copied.
            item.troubles.clear();
        }
    }
}

/// Returns whether a file has no contents of its own: a device, a FIFO or a socket.
fn is_special(kind: FileKind) -> bool {
    kind.is_device() || matches!(kind, FileKind::Fifo | FileKind::Socket)
}

/// Passes the bytes of a host file to the sink, run by run.
fn fill_from_host(
    file: &obento_host::source::SourceFile,
    sink: &mut dyn DataSink,
    report: &mut dyn FnMut(u64) -> Result<(), HostError>,
) -> Result<(), SinkError> {
    for run in file.runs() {
        match run? {
            Run::Hole(range) => sink.hole(range.end - range.start)?,
            Run::Data(range) => {
                let mut at = range.start;
                while at < range.end {
                    let part = (range.end - at).min(STRIDE);
                    sink.device(file.device(), at, part)?;
                    at += part;
                    report(at)?;
                }
            }
        }
    }
    Ok(())
}

/// Passes the bytes of a FIFO or device to the sink, and counts them in `done`.
fn fill_from_stream(
    (mut file, path): (&File, &Path),
    done: &mut u64,
    sink: &mut dyn DataSink,
    report: &mut dyn FnMut(u64) -> Result<(), HostError>,
) -> Result<(), SinkError> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let len =
            read_full(&mut file, &mut buffer).map_err(|error| HostError::of_io("read", path, &error))?;
        if len == 0 {
            return Ok(());
        }
        sink.bytes(buffer.get(..len).unwrap_or_default())?;
        *done += to_u64(len);
        report(*done)?;
    }
}

/// Passes the bytes of a file of an image to the sink, run by run. Fails with `Source` if a run cannot be read.
fn fill(
    node: &Node,
    size: u64,
    sink: &mut dyn DataSink,
    losses: &mut Losses,
    report: &mut dyn FnMut(u64) -> Result<(), HostError>,
) -> Result<(), SinkError> {
    let mut at = 0;
    while at < size {
        let Some(run) = node.run(at, size - at)? else { break };
        let len = run.len();
        match (run.span(), run.device()) {
            (Span::Hole | Span::Unwritten, _) => sink.hole(len)?,
            (Span::Mapped(offset), Some(device)) => {
                let mut done = 0;
                while done < len {
                    let part = (len - done).min(STRIDE);
                    sink.device(&**device, offset.saturating_add(done), part)?;
                    done += part;
                    report(at + done)?;
                }
            }
            (Span::Driver | Span::Mapped(_), _) => {
                drop(run);
                let mut done = at;
                data::read(node, at..at + len, losses, |bytes| {
                    done += bytes.len() as u64;
                    sink.bytes(bytes)?;
                    report(done)
                })?;
            }
        }
        at += len;
    }
    // The file ends before its size: another thread changes it.
    Ok(sink.hole(size.saturating_sub(at))?)
}

/// Passes the bytes of a file to the sink, with holes for unreadable bytes.
pub(super) fn fill_carefully(
    node: &Node,
    size: u64,
    sink: &mut dyn DataSink,
    losses: &mut Losses,
    report: &mut dyn FnMut(u64) -> Result<(), HostError>,
) -> Result<(), HostError> {
    let mut at = 0;
    while at < size {
        report(at)?;
        let found = node.run(at, size - at).map(|run| run.map(|run| (run.span(), run.len())));
        let len = match found {
            Ok(None) => size - at,
            Ok(Some((_, len))) => len,
            Err(error) => losses.skip_unmapped(node, at, size, error),
        };
        match found {
            Ok(Some((Span::Mapped(_) | Span::Driver, _))) => {
                let mut done = at;
                data::read(node, at..at + len, losses, |bytes| {
                    done += bytes.len() as u64;
                    sink.bytes(bytes)?;
                    report(done)
                })?;
            }
            _ => sink.hole(len)?,
        }
        at += len;
    }
    Ok(())
}
