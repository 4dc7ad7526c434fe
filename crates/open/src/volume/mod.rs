//! An open file system with paths, patterns and the names of owners.

mod glob;
mod owners;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use obento_base::Result;
use obento_driver::{FileSystem, StatFs, VolumeInfo};
#[cfg(feature = "host")]
use obento_host::FileId;
use obento_prov::Recorded;
use obento_vfs::{Caller, Node, Symlinks, Vfs};

use crate::address::FileSelector;
pub use glob::{GlobError, is_pattern, matches};
pub use owners::Owners;

/// An open file system. Clones refer to the same file system.
#[derive(Clone)]
pub struct Volume {
    vfs: Vfs,
    owners: Arc<OnceLock<Owners>>,
    recorded: Option<Arc<Recorded>>,
    /// The files of the host that contain the volume.
    #[cfg(feature = "host")]
    host_files: Arc<[FileId]>,
}

impl Volume {
    /// Creates a volume from a file system that was opened or created elsewhere.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use obento::{Volume, tmpfs};
    /// use obento::address::FileSelector;
    /// use obento::env::SystemClock;
    /// use obento::vfs::Symlinks;
    ///
    /// let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
    /// let root = volume.resolve(&FileSelector::Path(b"/".to_vec()), Symlinks::Follow)?;
    /// assert_eq!(root, volume.root());
    /// # Ok::<(), obento::Error>(())
    /// ```
    pub fn new(file_system: Arc<dyn FileSystem>) -> Self {
        Self::of(Vfs::new(file_system))
    }

    /// Creates an empty file system in memory, for tests and as scratch space.
    ///
    /// ```
    /// let volume = obento::Volume::in_memory();
    /// volume.write("/note", "gone with the last clone")?;
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn in_memory() -> Self {
        let options = obento_tmpfs::Options::new(Arc::new(obento_env::SystemClock));
        Self::new(Arc::new(obento_tmpfs::Tmpfs::new(options)))
    }

    /// Creates the volume that `vfs` serves.
    pub(crate) fn of(vfs: Vfs) -> Self {
        Self {
            vfs,
            owners: Arc::default(),
            recorded: None,
            #[cfg(feature = "host")]
            host_files: Arc::default(),
        }
    }

    /// Returns this volume with the layer that records its history.
    pub(crate) fn with_recorded(self, recorded: Option<Arc<Recorded>>) -> Self {
        Self { recorded, ..self }
    }

    /// Returns this volume with the files of the host that contain it.
    #[cfg(feature = "host")]
    pub(crate) fn stored_in(self, host_files: &[FileId]) -> Self {
        Self { host_files: host_files.into(), ..self }
    }

    /// Returns the files of the host that contain the volume.
    #[cfg(feature = "host")]
    pub fn host_files(&self) -> &[FileId] {
        &self.host_files
    }

    /// Returns the layer that records the history of the volume, if the volume was opened with
    /// [`Options::recording`](crate::Options::recording).
    pub fn recorded(&self) -> Option<&Arc<Recorded>> {
        self.recorded.as_ref()
    }

    /// Returns whether the volume was opened for change and has not been closed. If an error made the volume
    /// read-only, the result may still be `true`, and changes fail with `ReadOnly`.
    pub fn is_writable(&self) -> bool {
        self.flushed_file_system().writable().is_some()
    }

    /// Writes every change to stable storage. Has no effect on a volume that is open for reading.
    ///
    /// # Errors
    ///
    /// The errors of the device, including errors of earlier writes.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/file", "kept")?;
    /// volume.sync()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.vfs.sync()
    }

    /// Discards the free space of the volume on the underlying device, and returns the number of discarded bytes. In
    /// an image file, discarded space becomes a hole. Free ranges shorter than `min_len` bytes are skipped.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotSupported`: the driver cannot discard free space.
    /// 3. The errors of [`Trim::trim`](obento_driver::Trim::trim).
    pub fn trim(&self, min_len: u64) -> Result<u64> {
        self.vfs.trim(min_len)
    }

    /// Writes every change to stable storage and marks the volume clean, like an unmount. No other thread may
    /// change the volume during the call. Later changes fail with `ReadOnly`.
    ///
    /// The volume stays readable. A changed volume that is dropped without `close` is in the same state as
    /// after a power failure ([`Crash`](obento_driver::Crash)). Changes since the last [`sync`](Self::sync)
    /// may be lost.
    ///
    /// # Errors
    ///
    /// As for [`sync`](Self::sync).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use obento::{Volume, tmpfs};
    /// use obento::env::SystemClock;
    ///
    /// let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
    /// volume.close()?;
    /// assert!(!volume.is_writable());
    /// # Ok::<(), obento::Error>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        self.vfs.close()
    }

    /// Returns the layer that resolves paths and counts references to inodes.
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// Passes gathered data to the driver, and returns the volume of the driver. The caller may only read
    /// from this volume: all changes must be made through [`Volume::vfs`].
    pub fn flushed_file_system(&self) -> &Arc<dyn FileSystem> {
        self.vfs.flushed_file_system()
    }

    /// Returns the root directory.
    pub fn root(&self) -> Node {
        self.vfs.root()
    }

    /// Returns the file at `place`, without permission checks. A path starts at the root directory, with or
    /// without a leading `/`.
    ///
    /// # Errors
    ///
    /// The errors of [`Vfs::resolve`] and [`Vfs::node`].
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use obento::address::FileSelector;
    /// use obento::vfs::Symlinks;
    ///
    /// volume.write("/a", "")?;
    /// let node = volume.resolve(&FileSelector::Path(b"/a".to_vec()), Symlinks::Follow)?;
    /// assert_eq!(volume.resolve(&FileSelector::Inode(node.ino()), Symlinks::Follow)?, node);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolve(&self, place: &FileSelector, symlinks: Symlinks) -> Result<Node> {
        match place {
            FileSelector::Path(path) => self.vfs.resolve(&self.root(), path, symlinks, &Caller::Owner),
            FileSelector::Inode(ino) => self.vfs.node(*ino),
        }
    }

    /// Returns the type, the label and other properties of the file system.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// assert_eq!(volume.info().probe.fs_type, "tmpfs");
    /// ```
    pub fn info(&self) -> VolumeInfo {
        self.flushed_file_system().info()
    }

    /// Returns the total, used and free space.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// let used = volume.statfs()?;
    /// assert!(used.free <= used.blocks);
    /// # Ok::<(), obento::Error>(())
    /// ```
    pub fn statfs(&self) -> Result<StatFs> {
        self.flushed_file_system().statfs()
    }

    /// Returns the names of users and groups, which are read once from `/etc/passwd` and `/etc/group` of the image.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.create_dir("/etc")?;
    /// volume.write("/etc/passwd", "www:x:33:33::/srv:/bin/false\n")?;
    /// assert_eq!(volume.owners().user(33), Some(&b"www"[..]));
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn owners(&self) -> &Owners {
        self.owners.get_or_init(|| Owners::read(self))
    }

    /// Returns the paths and files that `pattern` matches, sorted. If nothing matches, returns an empty list.
    ///
    /// - `*`, `?` and `[...]` have the same meaning as in a shell.
    /// - `**` matches any number of directories.
    /// - `\` before a character removes its special meaning.
    /// - A name that starts with a dot is matched only by a pattern that starts with a dot.
    /// - A byte that is not valid UTF-8 counts as one character.
    ///
    /// # Errors
    ///
    /// [`GlobError`].
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/a.conf", "")?;
    /// volume.write("/b.txt", "")?;
    /// let found = volume.glob(b"/*.conf")?;
    /// assert_eq!(found.iter().map(|(path, _)| path.as_slice()).collect::<Vec<_>>(), [b"/a.conf"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn glob(&self, pattern: &[u8]) -> Result<Vec<(Vec<u8>, Node)>, GlobError> {
        glob::expand(self, pattern)
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("vfs", &self.vfs).finish_non_exhaustive()
    }
}
