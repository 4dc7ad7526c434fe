//! A file or device of the host on which volumes are created.
//!
//! Invariant: if [`FormatTarget::keep`] is not called, a created file is removed, and an extended file gets
//! its old length. Exception: an extended file keeps its new length if its device is still in use.

use std::path::Path;
use std::sync::Arc;

use obento_base::NameBuf;
use obento_block::{BlockDevice, Slice};
use obento_driver::{Access, Contents};
use obento_host::lock::Purpose;
use obento_host::{FileDevice, HostDir, HostError};

use crate::OpenError;

/// A locked file or device of the host on which volumes are created.
///
/// If the target is dropped without [`keep`](Self::keep), a created file is removed, and an extended file
/// gets its old length. Exception: if a [`device`](Self::device) of an extended file is still in use at that time, the
/// file keeps its new length.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use obento::Registry;
/// use obento::driver::FormatOptions;
/// use obento::env::{SystemClock, SystemRandom};
/// use obento::image::FormatTarget;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let format_target = FormatTarget::open("disk.img".as_ref(), Some(1 << 30))?;
/// let registry = Registry::default();
/// let format = registry.find("ext4").and_then(|driver| driver.format()).ok_or("no such type")?;
/// let mut options = FormatOptions::new("ext4", Arc::new(SystemClock), Arc::new(SystemRandom));
/// options.contents = format_target.contents();
/// format.format(&*format_target.device(), &options)?;
/// format_target.keep();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FormatTarget {
    file: Arc<FileDevice>,
    /// The directory of a created file, and the name of the file in it. Another user may be able to change the path.
    spot: Option<(HostDir, NameBuf)>,
    undo: Undo,
}

/// The change that is undone if no volume is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Undo {
    Nothing,
    Remove,
    /// Shortens the file to this length.
    Shorten(u64),
}

impl FormatTarget {
    /// Opens the file or device at `path`. If nothing exists at `path`, creates a file of `len` bytes. If the
    /// file is shorter than `len`, extends the file. A block device keeps its length.
    ///
    /// # Errors
    ///
    /// - `Missing`: the file does not exist and `len` is `None`, or `path` is a dangling symbolic link.
    /// - `NotChangeable`: the host does not permit changing the file.
    /// - `ReadOnlyHost`: the file system of the host is mounted read-only.
    /// - `Host`: another error of the host, for example [`HostError::InUse`] if another process uses the
    ///   file.
    pub fn open(path: &Path, len: Option<u64>) -> Result<Self, OpenError> {
        if let Some(len) = len
            && std::fs::symlink_metadata(path)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        {
            return Self::create(path, len);
        }
        let mut file = FileDevice::open_locked(path, Purpose::Change)
            .map_err(|error| crate::image::host_error(path, Access::ReadWrite, error))?;
        let mut undo = Undo::Nothing;
        if let Some(len) = len.filter(|&len| len > file.len() && !file.is_block_device()) {
            undo = Undo::Shorten(file.len());
            file.resize(len)?;
        }
        Ok(Self { file: Arc::new(file), spot: None, undo })
    }

    /// Creates a file of `len` bytes at `path`.
    ///
    /// # Errors
    ///
    /// - `Host`: the file exists, or the host cannot create it.
    pub fn create(path: &Path, len: u64) -> Result<Self, OpenError> {
        let (dir, name) = HostDir::open_parent(path).map_err(|error| match error.errno() {
            Some(errno) => HostError::system("create", path, errno),
            None => error,
        })?;
        let file = FileDevice::create_in(&dir, &name, path, len)?;
        Ok(Self { file: Arc::new(file), spot: Some((dir, name)), undo: Undo::Remove })
    }

    /// Returns whether [`open`](Self::open) or [`create`](Self::create) created the file.
    pub fn is_new(&self) -> bool {
        self.undo == Undo::Remove
    }

    /// Returns the kind of the previous contents, for
    /// [`FormatOptions::contents`](obento_driver::FormatOptions::contents).
    pub fn contents(&self) -> Contents {
        match self.undo {
            Undo::Remove | Undo::Shorten(0) => Contents::Zeros,
            _ => Contents::Unknown,
        }
    }

    /// Returns the bytes that an extended file had before, or `None` if the file was not extended or was empty.
    pub(crate) fn old_bytes(&self) -> Option<Arc<dyn BlockDevice>> {
        let Undo::Shorten(len) = self.undo else { return None };
        Some(Arc::new(Slice::new(self.device(), 0..len).ok()?))
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the whole file as a device.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        self.file.clone()
    }

    /// Keeps the file. Call this after the volume was created.
    pub fn keep(mut self) {
        self.undo = Undo::Nothing;
    }

    /// Removes the created file, if it still has its name.
    fn remove(&self) -> Result<(), HostError> {
        let Some((dir, name)) = &self.spot else { return Ok(()) };
        dir.remove_created(name, self.file.file_id())
    }

    /// Undoes the changes of [`FormatTarget::open`].
    fn undo(&mut self) -> std::io::Result<()> {
        match std::mem::replace(&mut self.undo, Undo::Nothing) {
            Undo::Nothing => Ok(()),
            Undo::Remove => self.remove().map_err(std::io::Error::other),
            Undo::Shorten(len) => match Arc::get_mut(&mut self.file) {
                Some(file) => file.resize(len).map_err(std::io::Error::other),
                // Another user still has the file open, and shortening it would cause errors there.
                None => Ok(()),
            },
        }
    }
}

impl Drop for FormatTarget {
    fn drop(&mut self) {
        // The original error is reported instead.
        let _ = self.undo();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_file_is_removed_only_from_the_directory_in_which_it_was_created() {
        let folder = tempfile::tempdir().unwrap();
        let [place, moved] = ["place", "moved"].map(|name| folder.path().join(name));
        std::fs::create_dir(&place).unwrap();
        let target = FormatTarget::create(&place.join("new"), 512).unwrap();
        std::fs::rename(&place, &moved).unwrap();
        std::fs::create_dir(&place).unwrap();
        std::fs::hard_link(moved.join("new"), place.join("new")).unwrap();
        drop(target);
        assert!(place.join("new").exists() && !moved.join("new").exists());
        // A directory that has the name by now keeps its files.
        let target = FormatTarget::create(&moved.join("new"), 512).unwrap();
        std::fs::remove_file(moved.join("new")).unwrap();
        std::fs::create_dir(moved.join("new")).unwrap();
        std::fs::write(moved.join("new/file"), "precious").unwrap();
        drop(target);
        assert!(moved.join("new/file").exists());
    }
}
