//! The cursor that creates entries.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use obento_base::{DeviceNumber, FileKind, Mode, Name, Timestamp};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::apply::{Applier, CreatedTarget, CreationState, Permissions};
use super::dir::{Dir, OwnedMetadata, open_at};
use super::later::{PendingFile, PendingFiles};
use super::links::{LinkKey, Original, identify, remove_incomplete};
use super::place::{Origin, Place, level};
use super::replaced::Replaced;
use super::sink::{FileSink, Waiting};
use super::staging::is_as_created;
use super::{Backup, Creator, DIRECTORY, Existing, Keep, Loss, Report, Shared, TreeOptions, Trust, Written};
use crate::handle::{self, HandleOf};
use crate::meta::{ACL_ACCESS, ACL_DEFAULT};
use crate::owner::stores_no_owners;
use crate::{DataSink, FileId, HostDir, HostError, Metadata};

/// Writes a tree. The cursor has a current directory and creates entries there.
pub struct TreeWriter {
    shared: Arc<Shared>,
    place: Place,
    report: Report,
    /// A buffer for the bytes of a file, which is reused between files.
    buffer: Vec<u8>,
    pub(super) later: Option<PendingFiles>,
}

impl TreeWriter {
    /// Starts in the existing directory `root`. Fails with `System`.
    pub fn open(root: &Path, options: TreeOptions) -> Result<Self, HostError> {
        let failed = |errno| HostError::system("open", root, errno);
        // Links in the caller's own path are followed.
        let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
        let fd =
            rustix::fs::openat(rustix::fs::CWD, root, flags, rustix::fs::Mode::empty()).map_err(failed)?;
        Self::start(fd, root, options)
    }

    /// Starts in `root`, even if its path leads elsewhere by now. Fails with `System`.
    pub fn open_in(root: &HostDir, options: TreeOptions) -> Result<Self, HostError> {
        Self::start(root.to_readable()?, root.path(), options)
    }

    fn start(fd: OwnedFd, root: &Path, options: TreeOptions) -> Result<Self, HostError> {
        let failed = |errno| HostError::system("open", root, errno);
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        let creator = Creator::of_process();
        let group = creator.gid;
        let shared = Shared {
            options,
            root_fd: rustix::io::fcntl_dupfd_cloexec(&fd, 0).map_err(failed)?,
            creator,
            links: Mutex::default(),
            report: Mutex::default(),
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            may_chown: AtomicBool::new(true),
            may_copy_range: AtomicBool::new(true),
            spared: Vec::new(),
            made: super::CreatedEntries::default(),
        };
        let place = Place::new(root, Vec::new(), level(None, fd, &stat, Origin::Existing, group), group);
        Ok(Self {
            shared: Arc::new(shared),
            place,
            report: Report::default(),
            buffer: Vec::new(),
            later: None,
        })
    }

    /// Protects `files`, which the source is read from: they are never removed to make room.
    #[must_use]
    pub fn sparing(mut self, files: &[FileId]) -> Self {
        let is_behind = self.later.take().is_some();
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.spared = files.to_vec();
        }
        if is_behind { self.behind() } else { self }
    }

    /// Allows that a directory that was created and left is entered again, for another source.
    #[must_use]
    pub fn returning(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.made.returns = true;
        }
        self
    }

    /// Writes the bytes of small files later, in a thread. Their errors are returned by
    /// [`late_errors`](Self::late_errors), or by [`finish`](Self::finish).
    #[must_use]
    pub fn behind(mut self) -> Self {
        self.later = Some(PendingFiles::new(self.shared.clone()));
        self
    }

    /// Returns the errors of files that were created but could not be written, as far as known.
    pub fn late_errors(&mut self) -> Vec<HostError> {
        self.later.as_ref().map_or_else(Vec::new, PendingFiles::errors)
    }

    /// Waits until the errors of all files are known.
    pub fn settle(&mut self) {
        if let Some(later) = &mut self.later {
            later.settle();
        }
    }

    /// Sets the metadata of the root directory when the writer finishes.
    pub fn set_root(&mut self, meta: &Metadata<'_>) {
        self.place.root_mut().meta = Some(OwnedMetadata::new(meta));
    }

    /// Creates a second cursor in the same directory, for another thread. It cannot leave its first directory, and
    /// must be finished before this cursor leaves that directory. Fails with `Changed`.
    pub fn fork(&self) -> Result<Self, HostError> {
        let place = self.place.fork()?;
        Ok(Self {
            shared: self.shared.clone(),
            place,
            report: Report::default(),
            buffer: Vec::new(),
            later: None,
        })
    }

    /// Creates the directory `name` unless it exists, and enters it. Its metadata is set when the cursor leaves it.
    /// Fails with `FileLimit`, with `Limit`, with `Duplicate`, with `NotDirectory` if another kind of file has the
    /// name, with `Changed`, and with `System`.
    pub fn enter(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<(), HostError> {
        let dir = self.place.dir()?.clone();
        let path = || self.place.path(Some(name));
        self.shared.take_file(path)?;
        self.shared.take_xattrs(meta.xattrs, self.shared.options.keep, path)?;
        let (is_created, opened) = match dir.create_directory(name) {
            Ok(opened) => (true, opened),
            Err(Errno::EXIST) if dir.was_written(name) && (dir.fresh || !self.shared.made.returns) => {
                return Err(HostError::Duplicate { path: self.place.path(Some(name)) });
            }
            Err(Errno::EXIST) => (false, None),
            Err(errno) => return Err(self.failed("create", name, errno)),
        };
        let is_staged = opened.is_some();
        let by_name = || open_at(&dir, name, OFlags::RDONLY | OFlags::DIRECTORY, 0);
        let fd = opened.map_or_else(by_name, Ok).map_err(|errno| match errno {
            Errno::NOTDIR | Errno::LOOP => HostError::NotDirectory { path: self.place.path(Some(name)) },
            errno => self.failed("open", name, errno),
        })?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| self.failed("examine", name, errno))?;
        // Another user may have exchanged what was opened by its name.
        let fresh = is_created && (is_staged || !dir.is_shared || is_as_created(&fd, &stat));
        if is_created {
            self.report.directories += 1;
            note_made(&self.shared, &dir, name, FileId::of(&stat));
            if fresh && dir.default_acl {
                CreatedTarget::File(fd.as_fd()).remove_acl(ACL_DEFAULT);
                CreatedTarget::File(fd.as_fd()).remove_acl(ACL_ACCESS);
            }
        }
        if !is_created && is_made_as_other(&self.shared, &dir, name, FileId::of(&stat)) {
            return Err(HostError::Duplicate { path: self.place.path(Some(name)) });
        }
        // Another user can give the name to any directory that is in the same one.
        let is_known = match is_created {
            true => fresh || stores_no_owners(&fd),
            false => !dir.is_shared || self.shared.has_made(FileId::of(&stat), name),
        };
        let origin = match (fresh, is_known) {
            (true, _) => Origin::Fresh,
            (false, true) => Origin::Existing,
            (false, false) => Origin::Exchangeable,
        };
        self.place.push(name, fd, &stat, origin);
        if fresh && dir.is_shared {
            self.shared.made.directories.lock().insert(FileId::of(&stat), name.to_buf());
        }
        let is_wanted = is_created || self.shared.options.existing != Existing::Keep;
        if is_wanted && is_known {
            self.place.top_mut().meta = Some(OwnedMetadata::new(meta));
        } else if is_wanted {
            self.lose_metadata(None, meta, Some(&stat));
        }
        Ok(())
    }

    /// Counts the metadata that `name`, or the current directory, does not get because another user may have exchanged
    /// it. `stat` is its status.
    fn lose_metadata(&mut self, name: Option<&Name>, meta: &Metadata<'_>, stat: Option<&Stat>) {
        let keep = self.shared.options.keep;
        let has_owner = stat.is_some_and(|stat| (stat.st_uid, stat.st_gid) == (meta.uid, meta.gid));
        let has_mode = stat.is_some_and(|stat| stat.st_mode & 0o7777 == u32::from(meta.mode.bits()));
        let lost = [
            (Loss::Owner, keep.contains(Keep::OWNER) && !has_owner),
            (Loss::Mode, keep.contains(Keep::MODE) && !has_mode),
            (Loss::Times, keep.contains(Keep::TIMES)),
            (Loss::Xattr, keep.contains(Keep::XATTRS) && !meta.xattrs.is_empty()),
        ];
        for (loss, _) in lost.into_iter().filter(|(_, is_lost)| *is_lost) {
            self.report.lose(loss, Some(Errno::EXIST), || self.place.path(name));
        }
    }

    /// Sets the metadata of the current directory and leaves it. Does nothing at the root. Fails with `Changed` or
    /// `System`.
    pub fn leave(&mut self) -> Result<(), HostError> {
        // The metadata is set first, because messages contain the path of the current directory.
        self.complete();
        self.place.pop()?;
        Ok(())
    }

    /// Sets the metadata of the current directory.
    fn complete(&mut self) {
        let top = self.place.top_mut();
        let (uid, gid) = top.owner;
        let (Some(meta), Some(dir)) = (top.meta.take(), top.dir.clone()) else { return };
        let meta = meta.get();
        let path = || self.place.path(None);
        let mut applier = Applier::new(&self.shared, &mut self.report, &path);
        let mode = applier.final_mode(&meta, FileKind::Directory);
        let made = CreationState { uid, gid, mode: None };
        applier.apply(CreatedTarget::File(dir.as_fd()), made, &meta, mode, Permissions::Own);
    }

    /// Creates a regular file with the bytes that `fill` hands over. Removes the file if `fill` fails. Fails with
    /// `FileLimit`, with `Limit`, with the errors of `fill`, with `Exists`, `IsSource` and `IsDirectory` depending on
    /// [`Existing`], with `Duplicate`, with `Changed`, and with `System`.
    pub fn file<E: From<HostError>>(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        fill: impl FnOnce(&mut dyn DataSink) -> Result<(), E>,
    ) -> Result<Written, E> {
        let path = || self.place.path(Some(name));
        let mut applier = Applier::new(&self.shared, &mut self.report, &path);
        let mut mode = applier.final_mode(meta, FileKind::Regular);
        let dir = self.place.dir()?;
        let as_made = creation_mode(&self.shared, dir, meta, mode);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let make = |dir: &Dir, room| {
            // Only the owner can access a replacing file until it gets the mode of the old file.
            let mode = if room == FreeSpace::Made { as_made.bits() & 0o700 } else { as_made.bits() };
            open_at(dir, name, flags, mode)
        };
        let Some((file, replaced)) = create(&self.shared, dir, name, meta, &path, make)? else {
            return Ok(Written::Skipped);
        };
        let whole = replaced.as_ref().map(|replaced| replaced.complete(meta, applier.keep));
        if let Some((whole, keep)) = &whole {
            applier.keep = *keep;
            mode = applier.final_mode(&whole.get(), FileKind::Regular);
        }
        let whole = whole.map(|(whole, _)| whole);
        let meta = &whole.as_ref().map_or(*meta, OwnedMetadata::get);
        let (shared, buffer) = (&*self.shared, &mut self.buffer);
        let waiting = self.later.as_mut().map(|later| {
            let (room, start) = later.room();
            Waiting { room, start, used: 0, len: 0, pieces: Vec::new() }
        });
        let mut sink =
            FileSink { shared, file: &file, buffer, path: &path, position: 0, end: 0, written: 0, waiting };
        let taken = shared.take_xattrs(meta.xattrs, applier.keep, path);
        let filled = taken.map_err(E::from).and_then(|()| fill(&mut sink)).and_then(|()| Ok(sink.finish()?));
        applier.report.bytes += sink.written;
        let waiting = sink.waiting.map(|waiting| (waiting.used, waiting.pieces));
        if let Err(error) = filled {
            remove_incomplete(dir, name, &file);
            return Err(error);
        }
        let target = CreatedTarget::File(file.as_fd());
        if dir.default_acl {
            target.remove_acl(ACL_ACCESS);
        }
        let made = CreationState {
            uid: shared.creator.uid,
            gid: dir.group,
            mode: (!dir.default_acl && whole.is_none())
                .then(|| Mode::new(as_made.bits() & !shared.creator.umask)),
        };
        if let (Some((used, pieces)), Some(later)) = (waiting, &mut self.later)
            && !pieces.is_empty()
        {
            let (dir, name, path, meta) = (dir.clone(), name.to_buf(), path(), OwnedMetadata::new(meta));
            let keep = applier.keep;
            later.push(PendingFile { file, dir, name, path, meta, made, mode, keep, pieces }, used);
            return Ok(Written::Created);
        }
        applier.apply(target, made, meta, mode, Permissions::Own);
        self.report.files += 1;
        Ok(Written::Created)
    }

    /// Counts a property of `name` that is lost.
    pub fn lose(&mut self, loss: Loss, name: &Name) {
        self.report.lose(loss, Some(Errno::OPNOTSUPP), || self.place.path(Some(name)));
    }

    /// Creates a symbolic link. Fails with `FileLimit`, with `Limit`, with `Exists`, `IsSource` and `IsDirectory`
    /// depending on [`Existing`], with `Duplicate`, with `Changed`, and with `System`.
    pub fn symlink(&mut self, name: &Name, meta: &Metadata<'_>, target: &[u8]) -> Result<Written, HostError> {
        let path = || self.place.path(Some(name));
        let link = |dir: BorrowedFd<'_>, name: &Name| rustix::fs::symlinkat(target, dir, name.as_bytes());
        let make = |dir: &Dir, _| dir.create_other(name, link);
        let dir = self.place.dir()?;
        self.shared.take_xattrs(meta.xattrs, self.shared.options.keep, path)?;
        let Some((handle, _)) = create(&self.shared, dir, name, meta, &path, make)? else {
            return Ok(Written::Skipped);
        };
        self.report.others += 1;
        self.complete_handle(name, meta, FileKind::Symlink, handle)?;
        Ok(Written::Created)
    }

    /// Creates a device node, FIFO or socket. Returns `Dropped` if that is not permitted. Fails with `FileLimit`,
    /// with `Limit`, with `Exists`, `IsSource` and `IsDirectory` depending on [`Existing`], with `Duplicate`, with
    /// `Changed`, and with `System`.
    pub fn node(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        kind: FileKind,
        rdev: DeviceNumber,
    ) -> Result<Written, HostError> {
        let loss = if kind.is_device() { Loss::Device } else { Loss::Special };
        let path = || self.place.path(Some(name));
        if kind.is_device() && self.shared.options.trust == Trust::Untrusted {
            self.report.lose(loss, None, path);
            return Ok(Written::Dropped);
        }
        let device = rustix::fs::makedev(rdev.major, rdev.minor);
        let file_type = FileType::from_raw_mode(kind.mode_bits().into());
        let mode = rustix::fs::Mode::from_raw_mode((meta.mode.bits() & 0o600).into());
        let node = |dir: BorrowedFd<'_>, name: &Name| {
            rustix::fs::mknodat(dir, name.as_bytes(), file_type, mode, device)
        };
        let make = |dir: &Dir, _| dir.create_other(name, node);
        let dir = self.place.dir()?;
        self.shared.take_xattrs(meta.xattrs, self.shared.options.keep, path)?;
        let handle = match create(&self.shared, dir, name, meta, &path, make) {
            Ok(Some((handle, _))) => handle,
            Ok(None) => return Ok(Written::Skipped),
            Err(HostError::System {
                errno: errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL), ..
            }) => {
                self.shared.return_file();
                self.report.lose(loss, Some(errno), path);
                return Ok(Written::Dropped);
            }
            Err(error) => return Err(error),
        };
        self.report.others += 1;
        self.complete_handle(name, meta, kind, handle)?;
        Ok(Written::Created)
    }

    /// Sets the metadata of a link or node that was just created. `handle` is a handle of the creation. Fails with
    /// `Changed` if another process replaced it.
    fn complete_handle(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        kind: FileKind,
        handle: Option<OwnedFd>,
    ) -> Result<(), HostError> {
        crate::hook::run();
        let dir = self.place.dir()?;
        if handle.is_none() && dir.is_shared {
            self.lose_metadata(Some(name), meta, None);
            return Ok(());
        }
        let by_name = || handle::open(dir, name.as_bytes(), HandleOf::Any);
        let handle = handle.map_or_else(by_name, Ok).map_err(|errno| self.failed("open", name, errno))?;
        let stat = rustix::fs::fstat(&handle).map_err(|errno| self.failed("examine", name, errno))?;
        if crate::file_id::kind_of(&stat) != Some(kind) {
            return Err(HostError::Changed { path: self.place.path(Some(name)) });
        }
        let made = CreationState { uid: stat.st_uid, gid: stat.st_gid, mode: None };
        let path = || self.place.path(Some(name));
        let mut applier = Applier::new(&self.shared, &mut self.report, &path);
        let target = CreatedTarget::Handle(handle.as_fd());
        let (mode, permissions) = match kind {
            FileKind::Symlink => (meta.mode, Permissions::None),
            _ => (applier.final_mode(meta, kind), Permissions::Own),
        };
        applier.apply(target, made, meta, mode, permissions);
        Ok(())
    }

    /// Records that `name`, which was just created here, has the inode `key` in the source, with `more` names
    /// expected, for [`TreeWriter::link`]. If the memory for links is exhausted, a lost link is counted. Fails with
    /// `System`.
    pub fn remember(&mut self, key: LinkKey, name: &Name, more: u32) -> Result<(), HostError> {
        // The first of several names must be written or removed before others link to it.
        self.settle();
        let dir = self.place.dir()?;
        let id = identify(dir, name).map_err(|errno| self.failed("examine", name, errno))?;
        if !self.shared.links.lock().insert(key, self.place.names(), name, id, more) {
            self.report.lose(Loss::HardLink, Some(Errno::NOMEM), || self.place.path(Some(name)));
        }
        Ok(())
    }

    /// Makes `name` a hard link to the recorded file of `key`. Returns `None` if no file is recorded or it cannot be
    /// linked to, which is counted; the caller then creates a file. Fails with `FileLimit`, with `Exists`, `IsSource`
    /// and `IsDirectory` depending on [`Existing`], with `Duplicate`, with `Changed`, and with `System`.
    pub fn link(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        key: LinkKey,
    ) -> Result<Option<Written>, HostError> {
        let Some(original) = self.shared.links.lock().next(key) else { return Ok(None) };
        let path = || self.place.path(Some(name));
        let dir = self.place.dir()?;
        let from = match open_original(&self.shared, &self.place, &original) {
            Ok(from) => from,
            Err(errno) => {
                self.report.lose(Loss::HardLink, Some(errno), path);
                return Ok(None);
            }
        };
        let make = |dir: &Dir, _| {
            let (old, new) = (original.name.as_bytes(), name.as_bytes());
            rustix::fs::linkat(&from, old, dir, new, AtFlags::empty())
        };
        match create(&self.shared, dir, name, meta, &path, make) {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Some(Written::Skipped)),
            Err(HostError::System {
                errno: errno @ (Errno::MLINK | Errno::PERM | Errno::XDEV | Errno::ACCESS | Errno::NOENT),
                ..
            }) => {
                // The file that the caller creates instead is counted.
                self.shared.return_file();
                self.report.lose(Loss::HardLink, Some(errno), path);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        // Another process may have replaced the linked file after it was examined.
        if identify(dir, name) != Ok(original.id) {
            let _ = rustix::fs::unlinkat(dir, name.as_bytes(), AtFlags::empty());
            return Err(HostError::Changed { path: path() });
        }
        self.report.others += 1;
        Ok(Some(Written::Created))
    }

    /// Leaves all directories. Returns the report of this cursor and of its finished forks. Fails with `Changed` or
    /// `System`.
    pub fn finish(mut self) -> Result<Report, HostError> {
        self.settle();
        let late = self.late_errors();
        if let Some(later) = self.later.take() {
            self.report.merge(later.report());
        }
        loop {
            self.complete();
            if self.place.pop()?.is_none() {
                break;
            }
        }
        let mut all = self.shared.report.lock();
        all.merge(self.report);
        late.into_iter().next().map_or_else(|| Ok(all.clone()), Err)
    }

    fn failed(&self, operation: &'static str, name: &Name, errno: Errno) -> HostError {
        HostError::system(operation, self.place.path(Some(name)), errno)
    }
}

/// Whether an existing entry was just removed for a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FreeSpace {
    Free,
    Made,
}

/// Creates an entry with `make`. If the name exists, makes room for it first, or returns `None` if it must stay. Also
/// returns the replaced entry. Fails with `FileLimit`, the errors of [`make_room`], `Changed` or `System`.
fn create<T>(
    shared: &Shared,
    dir: &Dir,
    name: &Name,
    meta: &Metadata<'_>,
    path: &dyn Fn() -> std::path::PathBuf,
    make: impl Fn(&Dir, FreeSpace) -> Result<T, Errno>,
) -> Result<Option<(T, Option<Replaced>)>, HostError> {
    shared.take_file(path)?;
    let mut replaced = None;
    let made = match make(dir, FreeSpace::Free) {
        Err(Errno::EXIST) => {
            if !make_room(shared, dir, name, meta, path, &mut replaced)? {
                return Ok(None);
            }
            make(dir, FreeSpace::Made)
        }
        made => made,
    };
    match made {
        Ok(made) => {
            if !dir.fresh || shared.made.returns {
                let id = identify(dir, name).map_err(|errno| HostError::system("examine", path(), errno))?;
                note_made(shared, dir, name, id);
            }
            Ok(Some((made, replaced)))
        }
        Err(Errno::EXIST) => Err(HostError::Changed { path: path() }),
        Err(errno) => Err(HostError::system("create", path(), errno)),
    }
}

/// Records that this run created `name` with the inode `id`.
fn note_made(shared: &Shared, dir: &Dir, name: &Name, id: FileId) {
    dir.note_written(name);
    if !dir.fresh || shared.made.returns {
        shared.made.inodes.lock().insert(id);
    }
}

/// Returns whether the file system treats `name` as another name, under which this run created `id`.
fn is_made_as_other(shared: &Shared, dir: &Dir, name: &Name, id: FileId) -> bool {
    shared.was_made(id)
        && !dir.was_written(name)
        && names(dir).is_ok_and(|names| !names.iter().any(|listed| listed == name.as_bytes()))
}

/// Removes the entry `name` if permitted, and records its metadata. Returns false if it stays.
fn make_room(
    shared: &Shared,
    dir: &Dir,
    name: &Name,
    meta: &Metadata<'_>,
    path: &dyn Fn() -> std::path::PathBuf,
    replaced: &mut Option<Replaced>,
) -> Result<bool, HostError> {
    let stat = match rustix::fs::statat(dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(true),
        Err(errno) => return Err(HostError::system("examine", path(), errno)),
    };
    let modified = Timestamp::new(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
    let id = FileId::of(&stat);
    if dir.fresh || is_made_as_other(shared, dir, name, id) {
        return Err(HostError::Duplicate { path: path() });
    }
    let existing = shared.options.existing;
    match existing {
        Existing::Fail => return Err(HostError::Exists { path: path() }),
        Existing::Keep => return Ok(false),
        Existing::Update if modified >= meta.mtime => return Ok(false),
        Existing::Update | Existing::Replace => {}
    }
    let is_made = dir.was_written(name) || shared.was_made(id);
    if is_made && shared.options.backup != Backup::Numbered {
        return Err(HostError::Duplicate { path: path() });
    }
    if shared.spared.contains(&id) {
        return Err(HostError::IsSource { path: path() });
    }
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Err(HostError::IsDirectory { path: path() });
    }
    if shared.options.backup == Backup::None {
        *replaced = Replaced::of(dir, name, &stat);
    }
    let failed = |errno| HostError::system("remove", path(), errno);
    let kept = shared.options.backup.name_for(name.as_bytes(), || names(dir)).map_err(failed)?;
    let removed = match kept {
        None => rustix::fs::unlinkat(dir, name.as_bytes(), AtFlags::empty()),
        Some(kept) if Name::new(&kept).is_ok_and(|kept| dir.was_written(kept)) => {
            return Err(HostError::Duplicate { path: path().with_file_name(OsStr::from_bytes(&kept)) });
        }
        Some(kept) => rustix::fs::renameat_with(dir, name.as_bytes(), dir, kept, RenameFlags::empty()),
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Err(HostError::IsDirectory { path: path() }),
        Err(errno) => Err(failed(errno)),
    }
}

/// Returns the names in a directory.
fn names(dir: &Dir) -> Result<Vec<Vec<u8>>, Errno> {
    let entries = rustix::fs::Dir::read_from(dir)?;
    entries.map(|entry| entry.map(|entry| entry.file_name().to_bytes().to_vec())).collect()
}

/// Returns the mode to create a file with. It is the final mode if that is safe, so that no later call is
/// needed.
fn creation_mode(shared: &Shared, dir: &Dir, meta: &Metadata<'_>, mode: Mode) -> Mode {
    let keep = shared.options.keep;
    let changes_hands = keep.contains(Keep::OWNER)
        && shared.may_chown.load(Ordering::Relaxed)
        && (shared.creator.uid, dir.group) != (meta.uid, meta.gid);
    let mut bits = mode.bits() & 0o777;
    if changes_hands || dir.default_acl {
        bits &= 0o700;
    }
    // Setting a user attribute requires write permission.
    if keep.contains(Keep::XATTRS) && meta.xattrs.iter().any(|xattr| xattr.name.starts_with(b"user.")) {
        bits |= 0o200;
    }
    Mode::new(bits)
}

/// Opens the directory of `original`, after checking that it still contains the written file.
fn open_original(shared: &Shared, place: &Place, original: &Original) -> Result<OwnedFd, Errno> {
    let here = place.names().eq(original.directory.iter());
    let from = match place.top().dir.as_deref() {
        Some(dir) if here => rustix::io::fcntl_dupfd_cloexec(dir, 0)?,
        _ => original.open_directory(&shared.root_fd)?,
    };
    let found: FileId = identify(&from, &original.name)?;
    if found == original.id { Ok(from) } else { Err(Errno::STALE) }
}
