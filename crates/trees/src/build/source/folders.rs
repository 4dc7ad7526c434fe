//! The directories of the host that contain the contents that a manifest names.
//!
//! Invariant: each directory is opened once. Files are found beneath the open directory, even if another process
//! replaces directories by links meanwhile. The author of a manifest can therefore not choose other files of the host.

use std::path::{Path, PathBuf};

use obento_host::HostError;
use obento_host::source::SourceDir;

/// The directory of a manifest, and those of `--contents`.
pub(super) struct ContentFolders {
    path: PathBuf,
    /// The directory of the manifest is the first.
    all: Vec<ContentFolder>,
}

struct ContentFolder {
    /// The absolute path without links, which only helps to find the directory of a file.
    place: PathBuf,
    dir: SourceDir,
}

impl ContentFolders {
    /// Opens the directory of the manifest `path`, and those of `contents` that exist. Fails with `System`.
    pub fn open(path: &Path, contents: &[PathBuf]) -> Result<Self, HostError> {
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let open = |path: &Path| -> Result<ContentFolder, HostError> {
            let place = path.canonicalize().map_err(|error| HostError::of_io("open", path, &error))?;
            Ok(ContentFolder { dir: SourceDir::open_to_search(path)?, place })
        };
        let mut all = vec![open(folder)?];
        all.extend(contents.iter().filter_map(|path| open(path).ok()));
        Ok(Self { path: folder.into(), all })
    }

    /// Returns the directory of the manifest, which its paths are relative to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open directory of the manifest.
    pub fn manifest(&self) -> Option<&SourceDir> {
        self.all.first().map(|folder| &folder.dir)
    }

    /// Returns the open directory that contains `parent`, and the path of `parent` in it. Returns `None` if `parent` is
    /// outside of all directories, or does not exist.
    pub fn find(&self, parent: &Path) -> Option<(&SourceDir, PathBuf)> {
        let parent = parent.canonicalize().ok()?;
        self.all.iter().find_map(|folder| {
            let rest = parent.strip_prefix(&folder.place).ok()?;
            Some((&folder.dir, if rest.as_os_str().is_empty() { ".".into() } else { rest.to_path_buf() }))
        })
    }
}
