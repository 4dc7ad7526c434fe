//! Unpacks a tar archive into an image while reading it, without temporary files.
//!
//! Invariant: no entry is written outside of the target. A member whose path contains `..` is rejected. An absolute
//! path starts at the target. This applies to the paths of members, and to links on the way.
//! Invariant: memory is bounded by `MAX_OWN` directories and the buffers of the archive reader, for any
//! archive.
//!
//! Damage and rejected members are reported, and the import continues. The owners of files are the numbers in the
//! archive. The names of owners in the archive are ignored, since the image defines its own names.

mod lists;
mod problem;
mod resolve;
mod select;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use obento_base::{Error, FileKind, Ino, Mode, Name, NameBuf, Timestamp};
use obento_env::{Clock as _, SystemClock};
use obento_host::compressed::{Stream, UnpackError, UnpackLimits};
use obento_host::interrupt;
use obento_host::tar::{FS_BLOCK, Member, MemberKind, TarError, TarReader};
use obento_host::tree::{Existing, Report, TreeOptions};
use obento_host::{DataSink, HostError, Metadata, SinkError};
use obento_open::image::DataDescription;
use obento_open::volume::Owners;
use obento_vfs::Node;

use crate::acls;
use crate::copy::image::{ImageWriter, Replaces, Times};
use crate::copy::tree_sink::{FileError, NewEntry, TreeSink as _, fill_ranges};
use crate::copy::{CopyError, ImageTarget, Observer, Problem, ProblemReason, Progress, expect_wanted};
use crate::data::{self, Losses};
pub use problem::MemberProblem;
pub(crate) use select::Selection;

/// Maximum number of directories whose times are restored after later members are put into them.
const MAX_OWN: usize = 1 << 20;
/// Bytes that are written to a file at once.
const CHUNK: usize = 256 << 10;

/// The options of an import.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// The number of components to remove from the front of each path. A member whose path has no further components
    /// is skipped.
    pub strip_components: usize,
    /// Patterns of members to exclude, with everything below them, in the syntax of
    /// [`matches`](obento_open::volume::matches). A pattern without `/` matches a component anywhere in a path. A
    /// pattern with `/` matches consecutive components.
    pub exclude: Vec<Vec<u8>>,
    /// The metadata to preserve, and the treatment of existing names.
    pub tree: TreeOptions,
    /// The limits of unpacking a compressed archive.
    pub unpack: UnpackLimits,
    /// The maximum number of members, including those that are not extracted. `None` sets no limit.
    pub max_members: Option<u64>,
}

/// The result of an import.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportReport {
    /// The entries that were written, and the properties that could not be kept.
    pub written: Report,
    /// The number of problems that the observer received.
    pub problems: u64,
    /// The number of members whose leading `/` was removed.
    pub absolute: u64,
    /// The number of members of unknown types, which were unpacked as regular files.
    pub unknown: u64,
    /// Whether the archive is truncated.
    pub is_cut: bool,
}

/// Unpacks an archive from `input` into the directory `target`. The archive may be uncompressed, or have a
/// compression of [`Compression`](obento_host::compressed::Compression). Problems with members are reported to
/// `observer`.
///
/// # Errors
///
/// - The errors that prevent the import from starting or continuing.
/// - `NotAnArchive`, `Packed`: `input` is not an archive.
///
/// ```no_run
/// use obento::Image;
/// use obento::address::FileSelector;
/// use obento::copy::{ImageTarget, Quiet};
/// use obento::import::ImportOptions;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Image::builder().for_change().open("disk.img")?.volume(None)?;
/// let root = FileSelector::Path(b"/".to_vec());
/// let target = ImageTarget { volume: volume.clone(), place: root, prefix: b"disk.img:".to_vec() };
/// let archive = std::fs::File::open("root.tar.zst")?;
/// let mut problems = Quiet::default();
/// let report = obento::import::import(archive, &target, &ImportOptions::default(), &mut problems)?;
/// println!("{} files, {} problems", report.written.files, report.problems);
/// volume.close()?;
/// # Ok(())
/// # }
/// ```
pub fn import(
    input: impl Read + Send + 'static,
    target: &ImageTarget,
    options: &ImportOptions,
    observer: &mut dyn Observer,
) -> Result<ImportReport, CopyError> {
    let failed = |error| CopyError::Target { path: target.shown(), error };
    let root = target.volume.resolve(&target.place, obento_vfs::Symlinks::Follow).map_err(failed)?;
    let mut writer = ImageWriter::open(root.clone(), target.shown(), options.tree.clone()).map_err(failed)?;
    writer.set_replaces(Replaces::Any);
    let stream = Stream::new(input, options.unpack).map_err(CopyError::Input)?;
    let reader = TarReader::new(stream);
    let mut import = Import {
        reader,
        writer,
        root,
        selection: Selection { strip: options.strip_components, exclude: &options.exclude },
        observer,
        report: ImportReport::default(),
        here: None,
        own: HashSet::new(),
        members: 0,
        buffer: vec![0; CHUNK],
        lists: Vec::new(),
        keeps_existing: options.tree.existing == Existing::Keep,
        max_members: options.max_members.unwrap_or(u64::MAX),
    };
    import.run()?;
    import.writer.settle();
    import.report_late()?;
    let Import { writer, mut report, lists, observer, .. } = import;
    report.written = writer.finish()?;
    report.problems += lists::set(lists, &target.volume, observer);
    Ok(report)
}

struct Import<'a> {
    reader: TarReader<Stream>,
    writer: ImageWriter,
    root: Node,
    selection: Selection<'a>,
    observer: &'a mut dyn Observer,
    report: ImportReport,
    /// The current directory of the writer, as named in the archive.
    here: Option<Vec<NameBuf>>,
    /// Directories whose times the archive set.
    own: HashSet<Ino>,
    members: u64,
    buffer: Vec<u8>,
    /// Access control lists whose names are looked up after all members were unpacked.
    lists: Vec<lists::Waiting>,
    /// Whether existing files stay.
    keeps_existing: bool,
    max_members: u64,
}

impl Import<'_> {
    fn run(&mut self) -> Result<(), CopyError> {
        loop {
            match self.reader.next_member() {
                Ok(None) if self.members == 0 && self.reader.offset() == 0 => {
                    return Err(CopyError::NotAnArchive { reason: "the file is empty".into() });
                }
                Ok(None) => {
                    return match self.reader.finish() {
                        Ok(()) => Ok(()),
                        Err(TarError::Damaged { .. }) if self.members == 0 => {
                            let reason = "the file does not begin with a tar header".into();
                            Err(CopyError::NotAnArchive { reason })
                        }
                        Err(error) => self.archive_failed(error).map(drop),
                    };
                }
                Ok(Some(member)) => {
                    self.count(&member.path)?;
                    let path = member.path.clone();
                    let made = self.member(&member);
                    let is_end = self.reported(path, made)?;
                    self.report_late()?;
                    if is_end {
                        return Ok(());
                    }
                }
                Err(TarError::Unfit { path, reason }) => {
                    self.count(&path)?;
                    self.problem(path, MemberProblem::Unfit(reason));
                }
                Err(error) if self.members == 0 => return Err(self.no_archive(error)),
                Err(error) => {
                    if self.archive_failed(error)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Counts a member. Fails with `FileLimit`.
    fn count(&mut self, path: &[u8]) -> Result<(), CopyError> {
        self.members += 1;
        if self.members <= self.max_members {
            return Ok(());
        }
        let path = PathBuf::from(OsStr::from_bytes(path));
        Err(HostError::FileLimit { path, limit: self.max_members }.into())
    }

    /// Returns the error for an input that is not an archive. The error contains a description of the data,
    /// if it is recognised.
    fn no_archive(&self, error: TarError) -> CopyError {
        let stream = self.reader.input();
        let packed = DataDescription::packed(stream.start()).filter(|_| stream.compression().is_none());
        match (error, packed) {
            (TarError::Input(error), _) => CopyError::Input(error),
            (_, Some(like)) => CopyError::Packed { like },
            (TarError::Damaged { offset: 0, reason }, None) => {
                CopyError::NotAnArchive { reason: format!("its first header is damaged: {reason}") }
            }
            (TarError::Truncated { offset: ..512 }, None) => {
                CopyError::NotAnArchive { reason: "the file does not begin with a tar header".into() }
            }
            (error, None) => CopyError::NotAnArchive { reason: error.to_string() },
        }
    }

    /// Reports damage of the archive. Returns whether reading cannot continue. Fails with `Stopped`.
    fn archive_failed(&mut self, error: TarError) -> Result<bool, CopyError> {
        let is_end = !matches!(error, TarError::Damaged { .. } | TarError::Unfit { .. });
        let problem = match &error {
            TarError::Input(error) if interrupt::is_stop(error) => return Err(HostError::Stopped.into()),
            TarError::Input(error) => UnpackError::of(error).map(MemberProblem::Limit),
            _ => None,
        };
        self.report.is_cut |= is_end;
        self.problem(Vec::new(), problem.unwrap_or_else(|| MemberProblem::Archive(error.to_string())));
        Ok(is_end)
    }

    /// Reports the result of a member. Returns whether the archive ended within it. Fails with an error that later
    /// members would also cause.
    fn reported(&mut self, path: Vec<u8>, made: Result<(), Failure>) -> Result<bool, CopyError> {
        match made {
            Ok(()) => Ok(false),
            Err(Failure::Archive(error)) => {
                self.here = None;
                self.archive_failed(error)
            }
            Err(Failure::Member(trouble)) => {
                self.problem(path, trouble);
                Ok(false)
            }
            Err(Failure::Trouble(trouble)) => {
                if let Some(trouble) = trouble.into_report()? {
                    self.report.problems += 1;
                    self.observer.problem(&Problem { path, trouble });
                }
                Ok(false)
            }
        }
    }

    /// Reports the files that could not be written after they were read. Fails with an error that later members would
    /// also cause.
    fn report_late(&mut self) -> Result<(), CopyError> {
        let problems = self.writer.late_problems();
        problems.into_iter().try_for_each(|Problem { path, trouble }| {
            self.reported(path, Err(Failure::Trouble(trouble))).map(drop)
        })
    }

    fn problem(&mut self, path: Vec<u8>, trouble: MemberProblem) {
        self.report.problems += 1;
        self.observer.problem(&Problem { path, trouble: ProblemReason::Member(trouble) });
    }

    /// Counts bytes that the files need in addition to those of the archive.
    fn require(&mut self, bytes: u64) -> Result<(), Failure> {
        let required = self.reader.input_mut().require(bytes);
        required.map_err(|error| Failure::Archive(TarError::Input(error.into())))
    }

    fn member(&mut self, member: &Member) -> Result<(), Failure> {
        let bytes = self.reader.offset();
        self.observer.progress(&Progress { files: self.members, bytes, path: &member.path });
        expect_wanted(self.observer).map_err(ProblemReason::Host)?;
        self.report.absolute += u64::from(member.path.starts_with(b"/"));
        let Some(path) = self.selection.path(&member.path)? else { return Ok(()) };
        self.require(member.additional())?;
        let mut xattrs = member.xattrs.to_vec();
        let unknown = acls::resolve(&mut xattrs, &Owners::default());
        let mut meta = metadata(member);
        acls::settle(&mut meta.mode, &mut xattrs);
        meta.xattrs = &xattrs;
        let Some((name, parent)) = path.split_last() else {
            // The target itself: the archive's `.`.
            if member.kind == MemberKind::Directory {
                self.go_to(&[])?;
                self.writer.set_root(&meta);
            }
            return Ok(());
        };
        self.go_to(parent)?;
        let node = |kind| NewEntry::Node(kind, member.rdev);
        match member.kind {
            MemberKind::Directory => self.directory(&path, name, &meta)?,
            MemberKind::File => self.file(name, member, &meta)?,
            MemberKind::HardLink => self.hard_link(name, member, &meta)?,
            MemberKind::Symlink => self.writer.create(name, &meta, NewEntry::Symlink(&member.link))?,
            MemberKind::CharDevice => self.writer.create(name, &meta, node(FileKind::CharDevice))?,
            MemberKind::BlockDevice => self.writer.create(name, &meta, node(FileKind::BlockDevice))?,
            MemberKind::Fifo => self.writer.create(name, &meta, node(FileKind::Fifo))?,
            MemberKind::Continued => return Err(Failure::Member(MemberProblem::Continued)),
            MemberKind::Other(_) => {
                self.file(name, member, &meta)?;
                self.report.unknown += 1;
            }
        }
        if !unknown.is_empty() {
            self.list_later(name, member)?;
        }
        Ok(())
    }

    /// Records the lists of `member`, which was just created as `name`, if they contain names without
    /// numbers.
    fn list_later(&mut self, name: &Name, member: &Member) -> Result<(), Failure> {
        self.writer.make_waiting();
        let node = match member.kind {
            MemberKind::Directory => Some(self.writer.directory().clone()),
            _ => self.writer.find(name)?,
        };
        if let Some(node) = node.filter(|_| self.lists.len() < lists::MAX) {
            self.lists.push(lists::Waiting::new(node.ino(), member));
        }
        Ok(())
    }

    /// Creates a directory. An existing link to a directory stays, and that directory is not changed, as with
    /// tar --keep-directory-symlink.
    fn directory(&mut self, path: &[NameBuf], name: &Name, meta: &Metadata<'_>) -> Result<(), Failure> {
        self.writer.make_waiting();
        let kind = self.writer.find(name)?.and_then(|node| node.kind().ok());
        if kind == Some(FileKind::Symlink)
            && resolve::walk(&self.root, path).is_ok_and(|found| found.missing.is_empty())
        {
            return self.go_to(path);
        }
        if kind.is_some_and(|kind| kind != FileKind::Directory) && self.keeps_existing {
            return Ok(());
        }
        self.writer.enter(name, meta)?;
        if self.own.len() < MAX_OWN {
            self.own.insert(self.writer.directory().ino());
        }
        self.here = Some(path.to_vec());
        Ok(())
    }

    fn file(&mut self, name: &Name, member: &Member, meta: &Metadata<'_>) -> Result<(), Failure> {
        if let Some(len) = usize::try_from(member.size).ok().filter(|len| *len <= CHUNK)
            && member.map.is_none()
        {
            let bytes = &mut self.buffer[..len];
            read_full(&mut self.reader, bytes).map_err(Failure::Archive)?;
            return Ok(self.writer.create_short(name, meta, bytes)?);
        }
        let (reader, buffer, observer) = (&mut self.reader, &mut self.buffer, &mut *self.observer);
        let files = self.members;
        let whole = 0..member.size;
        let whole = std::slice::from_ref(&whole);
        let ranges = member.map.as_deref().unwrap_or(whole);
        let mut broken = None;
        let mut fill = |sink: &mut dyn DataSink| {
            // The archive contains the ranges one after another.
            fill_ranges(sink, (ranges, member.size), buffer, |_, part| {
                read_full(reader, part).map_err(|error| {
                    broken = Some(error);
                    SinkError::Source(Error::Invalid)
                })?;
                observer.progress(&Progress { files, bytes: reader.offset(), path: &member.path });
                Ok(expect_wanted(observer)?)
            })
        };
        let written = self.writer.create(name, meta, NewEntry::File(&mut fill));
        match broken {
            Some(error) => Err(Failure::Archive(error)),
            None => Ok(written?),
        }
    }

    fn hard_link(&mut self, name: &Name, member: &Member, meta: &Metadata<'_>) -> Result<(), Failure> {
        let missing = || {
            let original = obento_open::text::escaped(&member.link).to_string();
            Failure::Member(MemberProblem::NoOriginal(original))
        };
        let original = self.selection.original(&member.link)?.ok_or_else(missing)?;
        let (last, parent) = original.split_last().ok_or_else(missing)?;
        self.writer.make_waiting();
        let found = resolve::walk(&self.root, parent)?;
        if !found.missing.is_empty() {
            return Err(missing());
        }
        let node = found.node.lookup(last).map_err(|_| missing())?;
        if node.kind() == Ok(FileKind::Directory) {
            let original = obento_open::text::escaped(&member.link).to_string();
            return Err(Failure::Member(MemberProblem::SecondDirectory(original)));
        }
        match self.writer.link_to(name, meta, &node)? {
            true => Ok(()),
            false => self.copy_of(name, &node, meta),
        }
    }

    /// Copies a file that cannot have one more name.
    fn copy_of(&mut self, name: &Name, node: &Node, meta: &Metadata<'_>) -> Result<(), Failure> {
        let attr = node.attr().map_err(ProblemReason::Volume)?;
        if attr.kind != FileKind::Regular {
            return Err(Failure::Trouble(ProblemReason::Volume(Error::TooManyLinks)));
        }
        let mut fill = |sink: &mut dyn DataSink| {
            let mut losses = Losses::default();
            data::read(node, 0..attr.size, &mut losses, |bytes| sink.bytes(bytes))?;
            // No other source has these bytes: unreadable ones are not replaced by zeros.
            let lost = losses.into_ranges().into_iter().next();
            lost.map_or(Ok(()), |unread| Err(SinkError::Source(unread.error)))
        };
        Ok(self.writer.create(name, meta, NewEntry::File(&mut fill))?)
    }

    /// Enters the directory `path`, and creates its missing components.
    fn go_to(&mut self, path: &[NameBuf]) -> Result<(), Failure> {
        if self.here.as_deref() == Some(path) {
            return Ok(());
        }
        let found = resolve::walk(&self.root, path)?;
        let common = self.writer.names().zip(&found.names).take_while(|(a, b)| a == b).count();
        self.here = None;
        while self.writer.depth() > common {
            self.writer.leave()?;
        }
        for name in &found.names[common..] {
            let node = self.writer.find(name)?;
            let is_own = node.is_some_and(|node| self.own.contains(&node.ino()));
            self.writer.enter_existing(name, if is_own { Times::Restore } else { Times::Change })?;
        }
        self.require(found.missing.len() as u64 * FS_BLOCK)?;
        for name in &found.missing {
            // The directory gets the attributes that mkdir(1) -p gives.
            self.writer.enter(name, &bare(self.writer.umask()))?;
            // Its inode number may have belonged to a directory that was replaced.
            self.own.remove(&self.writer.directory().ino());
        }
        self.here = Some(path.to_vec());
        Ok(())
    }
}

/// The reason why a member was not unpacked.
enum Failure {
    Member(MemberProblem),
    Trouble(ProblemReason),
    /// The archive ended within the member.
    Archive(TarError),
}

impl From<ProblemReason> for Failure {
    fn from(trouble: ProblemReason) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::Trouble(error.into())
    }
}

impl From<MemberProblem> for Failure {
    fn from(trouble: MemberProblem) -> Self {
        Self::Member(trouble)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Trouble(ProblemReason::Volume(error))
    }
}

fn read_full(reader: &mut TarReader<Stream>, mut buf: &mut [u8]) -> Result<(), TarError> {
    while !buf.is_empty() {
        match reader.read_data(buf)? {
            0 => return Err(TarError::Truncated { offset: reader.offset() }),
            len => buf = &mut buf[len..],
        }
    }
    Ok(())
}

fn metadata(member: &Member) -> Metadata<'_> {
    let Member { mode, uid, gid, mtime, .. } = *member;
    let atime = member.atime.unwrap_or(mtime);
    Metadata { mode, uid, gid, atime, mtime, ctime: Timestamp::EPOCH, xattrs: &member.xattrs }
}

/// Returns the metadata of a new directory that no member describes.
fn bare(umask: u16) -> Metadata<'static> {
    let now = SystemClock.now();
    let mode = Mode::new(0o777 & !umask);
    Metadata { mode, uid: 0, gid: 0, atime: now, mtime: now, ctime: Timestamp::EPOCH, xattrs: &[] }
}
