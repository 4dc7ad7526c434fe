//! A tar archive into an image, as it is read: nothing is unpacked anywhere else.
//!
//! Invariant: nothing is written outside the target. A member whose path has `..` in it is refused; what is absolute, in
//! paths and in links that lead on the way, starts at the target.
//! Invariant: memory is bounded by [`MAX_OWN`] directories and what the reader of the archive holds, whatever the archive.
//!
//! What is damaged or cannot be made is told, and the rest follows. Owners are the archive's numbers: names are the
//! image's own affair.

mod lists;
mod resolve;
mod select;

use std::collections::HashSet;
use std::io::Read;

use obento_base::{Error, FileKind, Ino, Mode, Name, NameBuf, Timestamp};
use obento_env::{Clock as _, SystemClock};
use obento_host::compressed::{Stream, UnpackLimits};
use obento_host::tar::{Member, MemberKind, TarError, TarReader};
use obento_host::tree::{Existing, Keep, Report, TreeOptions, Written};
use obento_host::{HostError, Metadata, SinkError};
use obento_vfs::Node;

use crate::Owners;
use crate::acls;
use crate::copy::image::{ImageWriter, Replaces, Times};
use crate::copy::tree::FileError;
use crate::copy::{CopyError, ImageTarget, Observer, Problem, Progress, Trouble, expect_wanted};
use crate::data::{self, Losses};
use crate::image::Looks;
pub(crate) use select::Selection;

/// Directories whose times are put back when more is put into them later.
const MAX_OWN: usize = 1 << 20;
/// Bytes that go to a file at once.
const CHUNK: usize = 256 << 10;

/// What of an archive is taken, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// How many components are taken off the front of each path; what has no more is left out.
    pub strip_components: usize,
    /// Patterns of what is left out, with all below it, as [`matches`](crate::matches) reads them: a component anywhere
    /// in a path, or several with `/` between them.
    pub exclude: Vec<Vec<u8>>,
    /// What is kept of the metadata, and what to do with names that are taken.
    pub tree: TreeOptions,
    /// What unpacking a compressed archive may cost.
    pub unpack: UnpackLimits,
}

/// What was wrong with a member.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemberTrouble {
    /// A path that leads up.
    #[error("its path has `..` in it, which could lead out of the target; it was left out")]
    LeadsUp,
    /// A path with a component that is no name.
    #[error("its path is none")]
    NoPath,
    /// A hard link to something that is not there.
    #[error("it is another name of {0}, which is not there")]
    NoOriginal(String),
    /// Access control lists that cannot be kept as they are.
    #[error("its access control list is not kept as it is: {0}")]
    Names(String),
    /// A hard link to a directory, which has one name only.
    #[error("it is another name of the directory {0}, and a directory has one name only")]
    SecondDirectory(String),
    /// The rest of a file that begins in another archive.
    #[error("it continues a file of another volume of the archive, and was left out")]
    Continued,
    /// A member that cannot be represented.
    #[error("{0}; it was left out")]
    Unfit(&'static str),
    /// The archive itself.
    #[error("{0}")]
    Archive(String),
}

/// What an import did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportReport {
    /// What was written, and what could not be kept.
    pub written: Report,
    /// How many problems the observer was told.
    pub problems: u64,
    /// Members whose leading `/` was taken off.
    pub absolute: u64,
    /// Members of unknown types, which were unpacked as regular files.
    pub unknown: u64,
    /// Whether the archive ended before its end.
    pub is_cut: bool,
}

/// Unpacks the archive that `input` gives - plain, or compressed as [`Compression`](obento_host::compressed::Compression) lists -
/// into the directory `target`.
/// What is wrong with a member is told to `observer`. Errors: what keeps it from beginning or from going on at all; an
/// input that is no archive.
///
/// ```no_run
/// use obento::{Access, Image, ImageTarget, ImportOptions, Options, Place, Quiet, Registry};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = Options { access: Access::ReadWrite, ..Options::default() };
/// let volume = Image::open("disk.img".as_ref(), &Registry::default(), &options)?.volume(None)?;
/// let root = Place::Path(b"/".to_vec());
/// let target = ImageTarget { volume: volume.clone(), place: root, prefix: b"disk.img:".to_vec() };
/// let archive = std::fs::File::open("root.tar.zst")?;
/// let mut problems = Quiet::default();
/// let report = obento::import(archive, &target, &ImportOptions::default(), &mut problems)?;
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
    };
    import.run()?;
    import.writer.make_waiting();
    import.tell_late()?;
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
    /// The directory in which the writer stands, as the archive called it.
    here: Option<Vec<NameBuf>>,
    /// Directories whose times the archive has set.
    own: HashSet<Ino>,
    members: u64,
    buffer: Vec<u8>,
    /// Access control lists whose names are looked up when all members are there.
    lists: Vec<lists::Waiting>,
    /// Whether files that exist stay.
    keeps_existing: bool,
}

impl Import<'_> {
    fn run(&mut self) -> Result<(), CopyError> {
        loop {
            match self.reader.next_member() {
                Ok(None) if self.members == 0 && self.reader.offset() == 0 => {
                    return Err(CopyError::NotAnArchive { reason: "it is empty".into() });
                }
                Ok(None) => {
                    return match self.reader.finish() {
                        Ok(()) => Ok(()),
                        Err(error) => self.archive_failed(error).map(drop),
                    };
                }
                Ok(Some(member)) => {
                    self.members += 1;
                    let path = member.path.clone();
                    let made = self.member(&member);
                    let is_end = self.told(path, made)?;
                    self.tell_late()?;
                    if is_end {
                        return Ok(());
                    }
                }
                Err(TarError::Unfit { path, reason }) => {
                    self.members += 1;
                    self.problem(path, MemberTrouble::Unfit(reason));
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

    /// Returns why the input is no archive: what it looks like, if that is known.
    fn no_archive(&self, error: TarError) -> CopyError {
        let stream = self.reader.input();
        let packed = Looks::packed(stream.start()).filter(|_| stream.compression().is_none());
        match (error, packed) {
            (TarError::Input(error), _) => CopyError::Input(error),
            (_, Some(like)) => CopyError::NotAnArchive { reason: format!("it is {like}; unpack it first") },
            (error, None) => CopyError::NotAnArchive { reason: error.to_string() },
        }
    }

    /// Tells what is wrong with the archive; whether it can be read no further.
    fn archive_failed(&mut self, error: TarError) -> Result<bool, CopyError> {
        let is_end = !matches!(error, TarError::Damaged { .. } | TarError::Unfit { .. });
        self.report.is_cut |= is_end;
        self.problem(Vec::new(), MemberTrouble::Archive(error.to_string()));
        Ok(is_end)
    }

    /// Tells of what became of a member; whether the archive ended in it. Errors: what will be refused again.
    fn told(&mut self, path: Vec<u8>, made: Result<(), Failure>) -> Result<bool, CopyError> {
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
            Err(Failure::Trouble(Trouble::Host(error @ (HostError::Limit { .. } | HostError::Stopped)))) => {
                Err(error.into())
            }
            Err(Failure::Trouble(Trouble::Target {
                path,
                error: error @ (Error::ReadOnly | Error::Device(_)),
            })) => Err(CopyError::Target { path, error }),
            Err(Failure::Trouble(Trouble::Counted)) => Ok(false),
            Err(Failure::Trouble(trouble)) => {
                self.report.problems += 1;
                self.observer.problem(&Problem { path, trouble });
                Ok(false)
            }
        }
    }

    /// Tells why files were not written after they were read. Errors: what will be refused again.
    fn tell_late(&mut self) -> Result<(), CopyError> {
        let problems = self.writer.late_problems();
        problems.into_iter().try_for_each(|Problem { path, trouble }| {
            self.told(path, Err(Failure::Trouble(trouble))).map(drop)
        })
    }

    fn problem(&mut self, path: Vec<u8>, trouble: MemberTrouble) {
        self.report.problems += 1;
        self.observer.problem(&Problem { path, trouble: Trouble::Member(trouble) });
    }

    fn member(&mut self, member: &Member) -> Result<(), Failure> {
        let bytes = self.reader.offset();
        self.observer.progress(&Progress { files: self.members, bytes, path: &member.path });
        expect_wanted(self.observer).map_err(Trouble::Host)?;
        self.report.absolute += u64::from(member.path.starts_with(b"/"));
        let Some(path) = self.selection.path(&member.path)? else { return Ok(()) };
        let mut xattrs = member.xattrs.clone();
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
        match member.kind {
            MemberKind::Directory => self.directory(&path, name, &meta)?,
            MemberKind::File => self.file(name, member, &meta)?,
            MemberKind::HardLink => self.hard_link(name, member, &meta)?,
            MemberKind::Symlink => drop(self.writer.symlink(name, &meta, &member.link)?),
            MemberKind::CharDevice => self.node(name, member, &meta, FileKind::CharDevice)?,
            MemberKind::BlockDevice => self.node(name, member, &meta, FileKind::BlockDevice)?,
            MemberKind::Fifo => self.node(name, member, &meta, FileKind::Fifo)?,
            MemberKind::Continued => return Err(Failure::Member(MemberTrouble::Continued)),
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

    /// Notes that lists of `member`, which was just made as `name`, have names that no number comes with.
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

    fn node(
        &mut self,
        name: &Name,
        member: &Member,
        meta: &Metadata<'_>,
        kind: FileKind,
    ) -> Result<(), Failure> {
        Ok(self.writer.node(name, meta, kind, member.rdev).map(drop)?)
    }

    /// Makes a directory. A link to a directory stays, and that directory as it is, as with tar --keep-directory-symlink.
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

    /// A file whose bytes fit the buffer: made with those that follow, where the volume has that.
    fn small_file(&mut self, name: &Name, len: usize, meta: &Metadata<'_>) -> Result<(), Failure> {
        let bytes = &mut self.buffer[..len];
        read_full(&mut self.reader, bytes).map_err(Failure::Archive)?;
        match self.writer.file_later(name, meta, bytes)? {
            true => Ok(()),
            false => made(self.writer.file(name, meta, &mut |sink| Ok(sink.bytes(bytes)?))),
        }
    }

    fn file(&mut self, name: &Name, member: &Member, meta: &Metadata<'_>) -> Result<(), Failure> {
        if let Some(len) = usize::try_from(member.size).ok().filter(|len| *len <= CHUNK)
            && member.map.is_none()
        {
            return self.small_file(name, len, meta);
        }
        let (reader, buffer, observer) = (&mut self.reader, &mut self.buffer, &mut *self.observer);
        let files = self.members;
        let whole = 0..member.size;
        let whole = std::slice::from_ref(&whole);
        let ranges = member.map.as_deref().unwrap_or(whole);
        let mut broken = None;
        let written = self.writer.file(name, meta, &mut |sink| {
            let mut at = 0;
            for range in ranges {
                sink.hole(range.start - at)?;
                let mut left = range.end - range.start;
                while left > 0 {
                    let part = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                    match read_full(reader, &mut buffer[..part]) {
                        Ok(()) => sink.bytes(&buffer[..part])?,
                        Err(error) => {
                            broken = Some(error);
                            return Err(SinkError::Source(Error::Invalid));
                        }
                    }
                    left -= part as u64;
                    observer.progress(&Progress { files, bytes: reader.offset(), path: &member.path });
                    expect_wanted(observer)?;
                }
                at = range.end;
            }
            Ok(sink.hole(member.size.saturating_sub(at))?)
        });
        broken.map_or_else(|| made(written), |error| Err(Failure::Archive(error)))
    }

    fn hard_link(&mut self, name: &Name, member: &Member, meta: &Metadata<'_>) -> Result<(), Failure> {
        let missing = || {
            let original = crate::text::escaped(&member.link).to_string();
            Failure::Member(MemberTrouble::NoOriginal(original))
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
            let original = crate::text::escaped(&member.link).to_string();
            return Err(Failure::Member(MemberTrouble::SecondDirectory(original)));
        }
        match self.writer.link_to(name, meta, &node)? {
            Some(_) => Ok(()),
            None => self.copy_of(name, &node, meta),
        }
    }

    /// What has no room for one more name is there twice.
    fn copy_of(&mut self, name: &Name, node: &Node, meta: &Metadata<'_>) -> Result<(), Failure> {
        let attr = node.attr().map_err(Trouble::Volume)?;
        if attr.kind != FileKind::Regular {
            return Err(Failure::Trouble(Trouble::Volume(Error::TooManyLinks)));
        }
        made(self.writer.file(name, meta, &mut |sink| {
            let mut losses = Losses::default();
            data::read(node, 0..attr.size, &mut losses, |bytes| sink.bytes(bytes))?;
            // Nobody else has these bytes: what cannot be read of them is not made up.
            let lost = losses.into_ranges().into_iter().next();
            lost.map_or(Ok(()), |unread| Err(SinkError::Source(unread.error)))
        }))
    }

    /// Steps into the directory `path`, and makes what is missing of it.
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
        for name in &found.missing {
            // As mkdir(1) -p makes it.
            self.writer.enter(name, &bare(self.writer.umask()))?;
            // It may have the number of a directory that was replaced.
            self.own.remove(&self.writer.directory().ino());
        }
        self.here = Some(path.to_vec());
        Ok(())
    }
}

/// Why a member was not taken.
enum Failure {
    Member(MemberTrouble),
    Trouble(Trouble),
    /// The archive broke off within it.
    Archive(TarError),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<MemberTrouble> for Failure {
    fn from(trouble: MemberTrouble) -> Self {
        Self::Member(trouble)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Trouble(Trouble::Volume(error))
    }
}

/// What became of a file.
fn made(written: Result<Written, FileError>) -> Result<(), Failure> {
    match written {
        Ok(_) => Ok(()),
        Err(FileError::Source(error)) => Err(Failure::Trouble(Trouble::Volume(error))),
        Err(FileError::Trouble(trouble)) => Err(Failure::Trouble(trouble)),
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

/// What a new directory has, of which nobody says anything.
fn bare(umask: u16) -> Metadata<'static> {
    let now = SystemClock.now();
    let mode = Mode::new(0o777 & !umask);
    Metadata { mode, uid: 0, gid: 0, atime: now, mtime: now, ctime: Timestamp::EPOCH, xattrs: &[] }
}

/// Everything that the archive says.
impl ImportOptions {
    /// Without owners, as tar(1) unpacks for who is not root.
    #[must_use]
    pub fn without_owners(mut self) -> Self {
        self.tree.keep -= Keep::OWNER;
        self
    }
}
