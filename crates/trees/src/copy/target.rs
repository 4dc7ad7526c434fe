//! The target of a copy on the host: a directory to copy into, or the name of the copy.

use std::path::{Path, PathBuf};

use obento_base::{Name, NameBuf};
use obento_host::{HostDir, HostError, SystemErrno};

use super::{CopyError, CopyOptions, CopySource, TargetIs};

/// The target of a copy on the host.
///
/// Invariant: the path is resolved once. If another user later replaces a file on the path, the replacement is not
/// used.
#[derive(Clone, Debug)]
pub struct HostTarget {
    /// The path as it was written, for messages.
    path: PathBuf,
    /// The parent directory and the name in it. `None` if the path ends in dots or is the root.
    parent: Option<(HostDir, NameBuf)>,
    /// The directory at the path, or the error of opening it as one.
    directory: Result<HostDir, HostError>,
}

/// The place of one copy.
pub(super) enum CopyPlace<'t> {
    /// In this directory, each copy under its own name.
    Into(&'t HostDir),
    /// In this directory, under this name.
    As(&'t HostDir, &'t Name),
}

impl HostTarget {
    /// Resolves `path`. Fails with `Host` if its directory cannot be opened, or if a symbolic link of another user
    /// leads to the target.
    pub fn open(path: &Path) -> Result<Self, CopyError> {
        let shown = path.to_owned();
        match HostDir::open_parent(path) {
            Ok((dir, name)) => {
                let mut target = Self::in_directory(dir, name)?;
                target.path = shown;
                Ok(target)
            }
            // A path without a last name is a directory.
            Err(error) if error.errno() == Some(obento_host::SystemErrno::INVAL) => {
                Ok(Self { path: shown, parent: None, directory: Ok(HostDir::open(path)?) })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the target `name` in `dir`. Fails with `Host` if `name` is a symbolic link of another user.
    pub fn in_directory(dir: HostDir, name: NameBuf) -> Result<Self, CopyError> {
        let directory = dir.enter(&name);
        if let Err(error @ HostError::ForeignLink { .. }) = directory {
            return Err(error.into());
        }
        Ok(Self { path: dir.child(&name), parent: Some((dir, name)), directory })
    }

    /// Returns the path as the user wrote it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the path is a directory.
    pub fn is_directory(&self) -> bool {
        self.directory.is_ok()
    }

    /// Returns the parent directory and the name in it. Returns `None` if the path ends in `.` or `..` or is the
    /// root.
    pub fn parent(&self) -> Option<(&HostDir, &Name)> {
        self.parent.as_ref().map(|(dir, name)| (dir, &**name))
    }

    /// Returns the directory below which a copy to this target writes.
    pub fn write_root(&self, is: TargetIs) -> Option<&HostDir> {
        let parent = self.parent.as_ref().map(|(dir, _)| dir);
        // A copy with this very name is created in the parent, even if a directory has the name.
        let directory = self.directory.as_ref().ok();
        if is == TargetIs::Copy { parent.or(directory) } else { directory.or(parent) }
    }

    /// Returns the place of copies of `sources`. Fails with `NotDirectory` or `BadTarget`.
    pub(super) fn place(
        &self,
        sources: &[CopySource],
        options: &CopyOptions,
    ) -> Result<CopyPlace<'_>, CopyError> {
        let exists = !matches!(&self.directory, Err(HostError::System { errno: SystemErrno::NOENT, .. }));
        let not_directory = || CopyError::NotDirectory { target: self.path.clone(), exists };
        if options.target == TargetIs::Directory {
            return self.directory.as_ref().map(CopyPlace::Into).map_err(|error| error.clone().into());
        }
        if let (TargetIs::Either, Ok(directory)) = (options.target, &self.directory) {
            return Ok(CopyPlace::Into(directory));
        }
        let [source] = sources else { return Err(not_directory()) };
        // The contents of a directory are copied into an existing directory, even if the target is the copy
        // itself.
        if let (Ok(directory), None) = (&self.directory, source.name()) {
            return Ok(CopyPlace::Into(directory));
        }
        let (parent, name) =
            self.parent().ok_or_else(|| CopyError::BadTarget { target: self.path.clone() })?;
        Ok(CopyPlace::As(parent, name))
    }
}
