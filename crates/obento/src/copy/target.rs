//! Where copies go: into a directory, or under a name of their own.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento_base::{Name, NameBuf};

use super::{CopyError, CopyOptions, CopySource, TargetIs};

/// Where copies go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Into this directory, each under its own name.
    Into(PathBuf),
    /// Into this directory, under this name.
    As(PathBuf, NameBuf),
}

impl Target {
    /// Finds out what `target` means.
    pub fn find(target: &Path, sources: &[CopySource], options: &CopyOptions) -> Result<Self, CopyError> {
        let is_directory = target.is_dir();
        match options.target {
            TargetIs::Directory => return Ok(Self::Into(target.into())),
            TargetIs::Either if is_directory => return Ok(Self::Into(target.into())),
            TargetIs::Either | TargetIs::Copy => {}
        }
        let [source] = sources else { return Err(CopyError::NotDirectory { target: target.into() }) };
        // The contents of a directory go into a directory that is there, even where it was not to be guessed.
        if is_directory && source.name().is_none() {
            return Ok(Self::Into(target.into()));
        }
        let name = target.file_name().and_then(|name| Name::new(name.as_bytes()).ok());
        let name = name.ok_or_else(|| CopyError::BadTarget { target: target.into() })?.to_buf();
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(Self::As(parent.unwrap_or(Path::new(".")).into(), name))
    }

    /// The directory that must exist.
    pub fn directory(&self) -> &Path {
        match self {
            Self::Into(directory) | Self::As(directory, _) => directory,
        }
    }
}
