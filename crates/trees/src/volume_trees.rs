//! Copies of whole trees between a volume and the host.

use std::path::Path;

use obento_base::{Error, FileKind};
use obento_open::Volume;
use obento_open::address::FileSelector;
use obento_open::fs::FsError;
use obento_vfs::{Caller, Symlinks};

use crate::copy::{
    CopyError, CopyFrom, CopyOptions, CopyReport, CopySource, ImageTarget, Problem, Quiet, TargetIs, copy_in,
    copy_out,
};

/// The error of copying a tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The path in the volume cannot be used.
    #[error(transparent)]
    Path(#[from] FsError),
    /// The copy did not start or was ended early.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// Some files were not copied, or only in part. All others were copied.
    #[error("{}", incomplete(problems))]
    Incomplete {
        /// The files and the reasons, at least one.
        problems: Vec<Problem>,
        /// The part that was copied.
        report: CopyReport,
    },
}

impl TreeError {
    /// Fails with `Incomplete` if there are problems.
    fn expect_none(problems: Quiet, report: CopyReport) -> Result<CopyReport, Self> {
        match problems.0 {
            problems if problems.is_empty() => Ok(report),
            problems => Err(Self::Incomplete { problems, report }),
        }
    }
}

fn incomplete(problems: &[Problem]) -> String {
    match problems {
        [problem] => format!("1 file was not copied completely: {problem}"),
        [first, ..] => format!("{} files were not copied completely; the first is {first}", problems.len()),
        [] => "files were not copied completely".to_owned(),
    }
}

/// Copies of trees between a volume and the host, as methods of [`Volume`].
pub trait VolumeTrees {
    /// Copies the file or the tree at `path` to the host, as `cp -aT` does. `target` becomes the copy. If both are
    /// directories, the trees are merged, and files of the same name are replaced. If `path` is a
    /// symbolic link, the link is copied.
    ///
    /// The report counts the properties that the host does not permit to preserve, such as owners for a process that
    /// is not root. No name or link in the volume can cause a write outside of `target`.
    ///
    /// ```
    /// use obento::prelude::*;
    ///
    /// let volume = Volume::in_memory();
    /// volume.create_dir("/etc")?;
    /// volume.write("/etc/fstab", "/dev/vda1 / ext4\n")?;
    ///
    /// let dir = tempfile::tempdir()?;
    /// volume.extract("/etc", dir.path().join("out"))?;
    /// assert_eq!(std::fs::read_to_string(dir.path().join("out/fstab"))?, "/dev/vda1 / ext4\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - `Path`: `path` cannot be resolved.
    /// - `Copy`: the copy cannot be started, or the disk of the host is full.
    /// - `Incomplete`: some files cannot be read or written.
    fn extract(&self, path: impl AsRef<[u8]>, target: impl AsRef<Path>) -> Result<CopyReport, TreeError>;

    /// Copies the file or the tree at `source` on the host into the volume, as `cp -aT` does. `path` becomes the
    /// copy. If both are directories, the trees are merged, and files of the same name are replaced. If
    /// `source` is a symbolic link, the link is copied.
    ///
    /// The copy is on stable storage after [`Volume::sync`] or [`Volume::close`].
    ///
    /// ```
    /// use obento::prelude::*;
    ///
    /// let volume = Volume::in_memory();
    /// let dir = tempfile::tempdir()?;
    /// std::fs::write(dir.path().join("index.html"), "<h1>Hello</h1>")?;
    ///
    /// volume.insert(dir.path(), "/srv")?;
    /// assert_eq!(volume.read_to_string("/srv/index.html")?, "<h1>Hello</h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - `Path`: the volume is not open for change (`ReadOnly`).
    /// - `Copy`: the copy cannot be started, or the volume is full.
    /// - `Incomplete`: some files cannot be read or written.
    fn insert(&self, source: impl AsRef<Path>, path: impl AsRef<[u8]>) -> Result<CopyReport, TreeError>;
}

impl VolumeTrees for Volume {
    fn extract(&self, path: impl AsRef<[u8]>, target: impl AsRef<Path>) -> Result<CopyReport, TreeError> {
        let path = path.as_ref();
        let node = self
            .vfs()
            .resolve(&self.root(), path, Symlinks::Keep, &Caller::Owner)
            .map_err(|error| FsError::new("extract", path, error))?;
        // A source with the path `/` copies its contents into a directory that exists.
        let (prefix, path) = match node.kind() {
            Ok(FileKind::Directory) => (path.strip_suffix(b"/").unwrap_or(path), &b"/"[..]),
            _ => (&b""[..], path),
        };
        let source = CopySource { node, path: path.to_vec(), prefix: prefix.to_vec() };
        let mut problems = Quiet::default();
        let report = copy_out(&[source], target.as_ref(), &tree_options(self), &mut problems)?;
        TreeError::expect_none(problems, report)
    }

    fn insert(&self, source: impl AsRef<Path>, path: impl AsRef<[u8]>) -> Result<CopyReport, TreeError> {
        let (source, path) = (source.as_ref(), path.as_ref());
        if !self.is_writable() {
            return Err(FsError::new("write to", path, Error::ReadOnly).into());
        }
        let mut from = source.as_os_str().as_encoded_bytes().to_vec();
        if source.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            // The contents are copied into a directory that exists.
            from.extend(b"/.");
        }
        let target = ImageTarget {
            volume: self.clone(),
            place: FileSelector::Path(path.to_vec()),
            prefix: Vec::new(),
        };
        let mut problems = Quiet::default();
        let report = copy_in(&[CopyFrom::Host(from)], &target, &tree_options(self), &mut problems)?;
        TreeError::expect_none(problems, report)
    }
}

/// Returns the options of a copy whose target is the copy itself, and which never touches the image of `volume`.
fn tree_options(volume: &Volume) -> CopyOptions {
    CopyOptions { target: TargetIs::Copy, spared: volume.host_files().to_vec(), ..CopyOptions::archive() }
}
