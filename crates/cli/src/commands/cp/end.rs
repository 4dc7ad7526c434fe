//! The two ends of a move: a host path, or a place in an image.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use obento::base::{FileKind, Name, NameBuf, NameError, Timestamp};
use obento::copy::{Backup, CopyFrom, CopySource, HostTarget, ImageTarget};
use obento::driver::Cookie;
use obento::env::{Random, SystemRandom};
use obento::host::{CopiedEntries, FileId, HostDir, HostError, PrivateDir, take_place, unfinished_name};
use obento::remove::{RemoveObserver, remove_tree};
use obento::vfs::Symlinks;
use obento::{Error, Node};
use rustix::fs::{FileType, Stat};

use crate::cause::containing;
use crate::change::place::trimmed;
use crate::json::hex;
use crate::open::{Location, join};
use crate::report::printable;

/// The prefix of the names of unfinished copies.
const UNFINISHED: &str = ".obento-unfinished-";

/// One end of a move.
#[derive(Clone)]
pub enum Endpoint {
    Host(HostEndpoint),
    Image(Location),
}

/// A path of the host, whose links were followed once.
///
/// Invariant: all changes use the name of an entry and an open directory. Another user who can change a directory of
/// the path therefore cannot redirect them.
#[derive(Clone)]
pub struct HostEndpoint {
    /// The path as the user wrote it, for messages.
    path: PathBuf,
    /// The directory that contains the file, and the name of the file in it.
    spot: Result<(HostDir, NameBuf), HostError>,
    /// The directory itself, if the target is a directory.
    directory: Option<HostDir>,
    /// The file at the path, if this is a source.
    id: Option<FileId>,
    /// The entries that were copied from this source.
    copied: CopiedEntries,
    /// The place of the unfinished copy; `None` for any other file.
    unfinished: Option<UnfinishedCopy>,
}

/// The place of a copy that is not complete. Decides how the copy is renamed and removed.
#[derive(Clone)]
enum UnfinishedCopy {
    /// In the directory of the target, whose entries no other user can exchange.
    Beside,
    /// In a private directory, which is in the directory of the target. No other user can exchange the copy.
    Private(Arc<PrivateDir>),
    /// In the directory of the target. Its file system stores no owners, so that no directory is private.
    Exposed,
}

impl HostEndpoint {
    /// Follows the path of a target. Fails if a symbolic link of another user leads to it.
    pub fn target(path: PathBuf) -> Result<Self, HostError> {
        let spot = HostDir::open_parent(&path);
        let directory = match &spot {
            Ok((dir, name)) => dir.enter(name),
            Err(_) => HostDir::open(&path),
        };
        match directory {
            Err(error @ HostError::ForeignLink { .. }) => Err(error),
            directory => Ok(Self::new(path, spot, directory.ok())),
        }
    }

    /// Follows the path of a source, except a link at its end.
    pub fn source(path: PathBuf) -> Self {
        let spot = HostDir::open_parent(&path);
        Self::new(path, spot, None)
    }

    /// Returns an end of which nothing was copied yet.
    fn new(path: PathBuf, spot: Result<(HostDir, NameBuf), HostError>, directory: Option<HostDir>) -> Self {
        Self { path, spot, directory, id: None, copied: CopiedEntries::default(), unfinished: None }
    }

    /// Looks up the file. Fails if it does not exist.
    pub fn find(mut self) -> Result<Self, HostError> {
        match &self.spot {
            Ok((dir, name)) => {
                let missing = || HostError::system("find", &self.path, rustix::io::Errno::NOENT);
                self.id = Some(FileId::of(&dir.stat(name)?.ok_or_else(missing)?));
            }
            // The path ends without a name, which is reported later.
            Err(error) if error.errno() == Some(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.clone()),
        }
        Ok(self)
    }

    /// The directories below which files are read or changed.
    pub fn grounds(&self) -> impl Iterator<Item = &HostDir> {
        self.spot.as_ref().ok().map(|(dir, _)| dir).into_iter().chain(&self.directory)
    }

    fn spot(&self) -> Result<(&HostDir, &Name), EndError> {
        self.spot.as_ref().map(|(dir, name)| (dir, &**name)).map_err(|error| error.clone().into())
    }

    fn stat(&self) -> Result<Option<Stat>, EndError> {
        let (dir, name) = self.spot()?;
        Ok(dir.stat(name)?)
    }

    /// Returns an unused place for an unfinished copy that will get the name of this target.
    fn beside(&self) -> Result<Self, EndError> {
        let (dir, name) = self.spot()?;
        let private = match dir.is_shared() {
            Ok(false) => None,
            _ => Some(PrivateDir::in_directory(dir.clone(), UNFINISHED)),
        };
        let (dir, name, unfinished) = match private {
            Some(Ok(private)) => {
                (private.dir().clone(), name.to_buf(), UnfinishedCopy::Private(Arc::new(private)))
            }
            None => (dir.clone(), unused_name()?, UnfinishedCopy::Beside),
            Some(Err(HostError::Changed { .. })) => (dir.clone(), unused_name()?, UnfinishedCopy::Exposed),
            Some(Err(error)) => return Err(error.into()),
        };
        let beside = Self::new(dir.child(&name), Ok((dir, name)), None);
        Ok(Self { unfinished: Some(unfinished), ..beside })
    }

    /// Removes what remains of an unfinished copy.
    fn discard(&self) -> Result<(), HostError> {
        let Ok((dir, name)) = &self.spot else { return Ok(()) };
        let removed = match &self.unfinished {
            Some(UnfinishedCopy::Private(private)) => return private.remove(),
            Some(UnfinishedCopy::Beside) => dir.remove(name),
            // A directory with entries may be one of another user.
            Some(UnfinishedCopy::Exposed) => dir.remove_file(name),
            None => Ok(()),
        };
        removed.or_else(|error| if matches!(dir.stat(name), Ok(None)) { Ok(()) } else { Err(error) })
    }

    /// The place as the target of a copy.
    pub fn as_target(&self) -> Result<HostTarget, EndError> {
        let (dir, name) = self.spot()?;
        let target = HostTarget::in_directory(dir.clone(), name.to_buf());
        target.map_err(|error| EndError::Text(error.to_string()))
    }

    fn rename_onto(&self, to: &Self, backup: &Backup) -> Result<Option<Vec<u8>>, EndError> {
        let ((from_dir, from), (dir, name)) = (self.spot()?, to.spot()?);
        let listed = || dir.names().map_err(|error| error.errno().unwrap_or(rustix::io::Errno::IO));
        let kept = match to.stat()? {
            Some(_) => backup.name_for(name.as_bytes(), listed),
            None => Ok(None),
        };
        let kept = kept.map_err(|errno| HostError::system("list", &self.path, errno))?;
        let kept_name = kept.as_deref().map(Name::new).transpose()?;
        if let Some(kept) = kept_name {
            dir.rename(name, dir, kept)?;
        }
        let renamed = match &self.unfinished {
            Some(UnfinishedCopy::Private(private)) => private.release(from, dir, name),
            _ => from_dir.rename(from, dir, name),
        };
        // Restore the old state, if that succeeds.
        renamed.inspect_err(|_| drop(kept_name.map(|kept| dir.rename(kept, dir, name))))?;
        Ok(kept)
    }

    fn remove(&self) -> Result<(), RemoveError> {
        let (dir, name) = self.spot()?;
        match self.stat()?.map(|stat| FileId::of(&stat)) {
            found @ Some(_) if found == self.id => {}
            Some(_) => {
                return Err(RemoveError {
                    cause: EndError::Text("the file was replaced after the copy".into()),
                    help: "the file that remains is newer than the copy; move it again",
                });
            }
            None => return Err(RemoveError { cause: Error::NotFound.into(), help: "the copy is complete" }),
        }
        dir.remove_copied(name, &self.copied).map_err(|error| match error.errno() {
            Some(rustix::io::Errno::STALE) => RemoveError {
                cause: EndError::Text("files changed or were added after the copy".into()),
                help: "the files that remain are newer than the copy; move them again",
            },
            _ => EndError::from(error).into(),
        })
    }
}

/// The reason why a source remains after its copy, and the next step for the user.
#[derive(Debug)]
pub struct RemoveError {
    pub cause: EndError,
    pub help: &'static str,
}

impl From<EndError> for RemoveError {
    fn from(cause: EndError) -> Self {
        Self { cause, help: "the copy is complete; remove the source manually" }
    }
}

/// The cause of an error at an end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndError {
    #[error(transparent)]
    Image(#[from] Error),
    /// Without the path, because the message contains the path already.
    #[error("{}", .0.errno().map_or_else(|| .0.to_string(), |errno| std::io::Error::from(errno).to_string()))]
    Host(#[from] HostError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{0}")]
    Text(String),
}

containing! {
    EndError {
        Self::Image(error) => error,
        Self::Host(error) => error,
    }
}

/// Returns an unused name for an unfinished copy.
fn unused_name() -> Result<NameBuf, EndError> {
    let name = Name::new(format!("{UNFINISHED}{}", hex(&SystemRandom.uuid())).as_bytes()).map(Name::to_buf);
    Ok(name?)
}

/// The identity of the file at an end, which is the same for all its names.
#[derive(PartialEq, Eq)]
pub enum FileIdentity {
    Host(FileId),
    Image(Node),
}

impl Endpoint {
    /// Returns the file that exists here, without following a symbolic link.
    pub fn identity(&self) -> Option<FileIdentity> {
        match self {
            Self::Host(host) => host.stat().ok().flatten().map(|stat| FileIdentity::Host(FileId::of(&stat))),
            Self::Image(location) => {
                location.volume.resolve(&location.place, Symlinks::Keep).ok().map(FileIdentity::Image)
            }
        }
    }

    pub fn shown(&self) -> Vec<u8> {
        match self {
            Self::Host(host) => host.path.as_os_str().as_bytes().to_vec(),
            Self::Image(location) => location.shown(),
        }
    }

    /// Returns the last component; empty if the path ends without a name.
    pub fn name(&self) -> &[u8] {
        match self {
            Self::Host(host) => host.spot.as_ref().map_or(b"", |(_, name)| name.as_bytes()),
            Self::Image(location) => location.base_name(),
        }
    }

    /// Returns the entry `name` of this directory. Fails if this is not a directory, or the name is invalid.
    pub fn child(&self, name: &[u8]) -> Result<Self, EndError> {
        match self {
            Self::Host(host) => {
                let dir = host.directory.clone().ok_or(Error::NotDirectory)?;
                let name = Name::new(name)?.to_buf();
                let path = OsString::from_vec(join(host.path.as_os_str().as_bytes(), name.as_bytes())).into();
                Ok(Self::Host(HostEndpoint::new(path, Ok((dir, name)), None)))
            }
            Self::Image(location) => Ok(Self::Image(location.child(name))),
        }
    }

    /// Returns whether this target is a directory or a link to a directory.
    pub fn is_directory(&self) -> bool {
        match self {
            Self::Host(host) => host.directory.is_some(),
            Self::Image(_) => self.kind(Symlinks::Follow) == Ok(Some(FileKind::Directory)),
        }
    }

    /// The source of a copy, if this is a source.
    pub fn source(&self) -> Result<CopyFrom, EndError> {
        match self {
            Self::Host(host) => {
                let (dir, name) = host.spot()?;
                Ok(CopyFrom::HostEntry(dir.clone(), name.to_buf(), host.copied.clone()))
            }
            Self::Image(location) => source_of(location).map(CopyFrom::Image),
        }
    }

    /// Returns the kind of the file, or `None` if it does not exist. On the host a link is not followed.
    pub fn kind(&self, symlinks: Symlinks) -> Result<Option<FileKind>, EndError> {
        match self {
            Self::Host(host) => Ok(host.stat()?.map(|stat| match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => FileKind::Directory,
                FileType::Symlink => FileKind::Symlink,
                _ => FileKind::Regular,
            })),
            Self::Image(location) => match location.volume.resolve(&location.place, symlinks) {
                Ok(node) => Ok(node.kind().map(Some)?),
                Err(error) if error == Error::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Returns whether this is `link/`: a directory, named by a link to it.
    pub fn is_behind_link(&self) -> bool {
        let at = match self {
            Self::Host(host) => host.path.as_os_str().as_bytes().ends_with(b"/").then(|| self.clone()),
            Self::Image(location) => match &location.place {
                obento::address::FileSelector::Path(path) if path.ends_with(b"/") => {
                    let place = obento::address::FileSelector::Path(trimmed(path).to_vec());
                    Some(Self::Image(Location { place, ..location.clone() }))
                }
                _ => None,
            },
        };
        at.is_some_and(|at| at.kind(Symlinks::Keep) == Ok(Some(FileKind::Symlink)))
    }

    /// Returns whether both are the same file. An image may have several names on the host.
    pub fn is_same(&self, other: &Self) -> bool {
        let node = |end: &Self| match end {
            Self::Host(_) => None,
            Self::Image(location) => location.volume.resolve(&location.place, Symlinks::Keep).ok(),
        };
        node(self).is_some_and(|ours| node(other) == Some(ours))
    }

    pub fn modified(&self) -> Result<Timestamp, EndError> {
        match self {
            Self::Host(host) => {
                let stat = host.stat()?.ok_or(Error::NotFound)?;
                Ok(Timestamp::new(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)))
            }
            Self::Image(location) => {
                let node = location.volume.resolve(&location.place, Symlinks::Keep);
                Ok(node.and_then(|node| node.attr())?.mtime)
            }
        }
    }

    /// Returns whether this directory is empty.
    pub fn is_empty(&self) -> Result<bool, EndError> {
        match self {
            Self::Host(host) => {
                let (dir, name) = host.spot()?;
                let names = dir.enter(name).and_then(|dir| dir.names());
                Ok(names?.is_empty())
            }
            Self::Image(location) => {
                let node = location.volume.resolve(&location.place, Symlinks::Keep)?;
                let mut is_empty = true;
                let listed = node.read_dir(Cookie::START, &mut |_| {
                    is_empty = false;
                    std::ops::ControlFlow::Break(())
                });
                Ok(listed.map(|()| is_empty)?)
            }
        }
    }

    /// Returns an unused place in the same directory, for an unfinished copy. Removes from an image the remains of an
    /// earlier move to here that was killed.
    pub fn beside(&self) -> Result<Self, EndError> {
        match self {
            Self::Host(host) => host.beside().map(Self::Host),
            Self::Image(location) => {
                let spot = location.spot()?;
                let left = unfinished_name(&spot.dir, &spot.name)?;
                if spot.dir.lookup(&left).is_ok() {
                    // If the remains cannot be removed, another name is used.
                    remove_tree(&spot.dir, &left, &mut First(None));
                }
                let name = spot.temporary()?.name;
                Ok(Self::Image(location.sibling(name.as_bytes())))
            }
        }
    }

    /// Renames this file to `to`, in the same directory. An existing file is backed up as `backup` says.
    /// Returns the name of the backup.
    pub fn rename_onto(&self, to: &Self, backup: &Backup) -> Result<Option<Vec<u8>>, EndError> {
        match (self, to) {
            (Self::Host(from), Self::Host(to)) => from.rename_onto(to, backup),
            (Self::Image(from), Self::Image(to)) => {
                let (from, to) = (from.spot()?, to.spot()?);
                let ends = ((&from.dir, &*from.name), (&to.dir, &*to.name));
                let kept = take_place(ends.0, ends.1, backup, |_| false)?;
                Ok(kept.map(|name| name.as_bytes().to_vec()))
            }
            _ => Err(Error::CrossDevice.into()),
        }
    }

    /// Writes the copied data to stable storage.
    pub fn sync(&self) -> Result<(), EndError> {
        match self {
            Self::Host(host) => Ok(host.spot()?.0.sync()?),
            Self::Image(location) => Ok(location.volume.vfs().sync()?),
        }
    }

    /// Removes what remains of an unfinished copy, after it got its name or could not be completed. Fails if entries
    /// remain.
    pub fn discard(&self) -> Result<(), EndError> {
        match self {
            Self::Host(host) => Ok(host.discard()?),
            Self::Image(_) if matches!(self.kind(Symlinks::Keep), Ok(Some(_))) => {
                self.remove().map_err(|error| error.cause)
            }
            Self::Image(_) => Ok(()),
        }
    }

    /// Removes the whole tree, except files of a source that are newer than its copy. Fails if files remain.
    pub fn remove(&self) -> Result<(), RemoveError> {
        match self {
            Self::Host(host) => host.remove(),
            Self::Image(location) => {
                let spot = location.spot().map_err(EndError::from)?;
                let mut first = First(None);
                match remove_tree(&spot.dir, &spot.name, &mut first) {
                    true => Ok(()),
                    false => Err(EndError::Text(first.0.unwrap_or_default()).into()),
                }
            }
        }
    }
}

/// The end as the target of a copy.
pub fn target_of(location: &Location) -> ImageTarget {
    ImageTarget {
        volume: (*location.volume).clone(),
        place: location.place.clone(),
        prefix: location.prefix.to_vec(),
    }
}

pub fn source_of(location: &Location) -> Result<CopySource, EndError> {
    let node = location.volume.resolve(&location.place, Symlinks::Keep)?;
    let prefix = location.prefix.to_vec();
    Ok(CopySource { node, path: location.shown().split_off(prefix.len()), prefix })
}

/// Stores the first failure.
struct First(Option<String>);

impl RemoveObserver for First {
    fn failed(&mut self, path: &[u8], error: Error) {
        self.0.get_or_insert_with(|| format!("{}: {error}", printable(path)));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_was_added_after_the_copy_remains_and_is_to_be_moved_again() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("new"), "").unwrap();
        // Nothing was copied from this source.
        let source = HostEndpoint::source(tree.clone()).find().unwrap();
        let error = source.remove().unwrap_err();
        assert_eq!(error.cause.to_string(), "files changed or were added after the copy");
        assert_eq!(error.help, "the files that remain are newer than the copy; move them again");
        assert!(tree.join("new").exists());
        std::fs::rename(&tree, folder.path().join("before")).unwrap();
        std::fs::create_dir(&tree).unwrap();
        assert_eq!(source.remove().unwrap_err().cause.to_string(), "the file was replaced after the copy");
        assert!(tree.exists());
    }

    /// Returns a target in a directory that all users can change, and the directory.
    fn shared_target() -> (HostEndpoint, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        (HostEndpoint::target(folder.path().join("f")).unwrap(), folder)
    }

    #[test]
    fn a_directory_that_takes_the_place_of_an_unfinished_copy_is_neither_renamed_nor_removed() {
        let (target, folder) = shared_target();
        let victim = folder.path().join("victim");
        std::fs::create_dir(&victim).unwrap();
        std::fs::write(victim.join("file"), "precious").unwrap();
        for is_complete in [true, false] {
            let beside = target.beside().unwrap();
            let (dir, name) = beside.spot.clone().unwrap();
            dir.open_output(&name, 0o600).unwrap();
            let place = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let is_unfinished =
                |path: &PathBuf| path.file_name().unwrap().as_bytes().starts_with(UNFINISHED.as_bytes());
            let place = place.into_iter().find(is_unfinished).unwrap();
            std::fs::rename(&place, folder.path().join("moved")).unwrap();
            std::fs::rename(&victim, &place).unwrap();
            if is_complete {
                beside.rename_onto(&target, &Backup::None).unwrap();
            }
            assert!(beside.discard().is_err(), "the exchanged directory is reported");
            assert_eq!(target.stat().unwrap().is_some(), is_complete);
            assert_eq!(std::fs::read_to_string(place.join("file")).unwrap(), "precious");
            std::fs::rename(&place, &victim).unwrap();
            std::fs::remove_dir(folder.path().join("moved")).unwrap();
            let _ = std::fs::remove_file(folder.path().join("f"));
        }
    }

    #[test]
    fn an_unfinished_copy_is_removed_with_its_private_directory() {
        let (target, folder) = shared_target();
        let beside = target.beside().unwrap();
        let (dir, name) = beside.spot.clone().unwrap();
        dir.make_directory(&name).unwrap().open_output(&name, 0o600).unwrap();
        beside.discard().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        // In a directory of its own, the copy is beside the target.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let beside = HostEndpoint::target(folder.path().join("f")).unwrap().beside().unwrap();
        assert!(matches!(beside.unfinished, Some(UnfinishedCopy::Beside)));
        beside.discard().unwrap();
    }
}
