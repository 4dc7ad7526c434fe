//! An open file system, with what people need around it: places, patterns, the names of owners.

mod glob;
mod owners;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use obento_base::Result;
use obento_driver::{FileSystem, StatFs, VolumeInfo};
use obento_vfs::{Caller, Node, Symlinks, Vfs};

use crate::Place;
pub use glob::{GlobError, is_pattern, matches};
pub use owners::Owners;

/// An open file system. Clones are the same.
#[derive(Clone)]
pub struct Volume {
    vfs: Vfs,
    owners: Arc<OnceLock<Owners>>,
}

impl Volume {
    /// Takes over a file system that was opened or made elsewhere.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use obento::{Place, Symlinks, SystemClock, Volume, tmpfs};
    ///
    /// let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
    /// let root = volume.resolve(&Place::Path(b"/".to_vec()), Symlinks::Follow)?;
    /// assert_eq!(root, volume.root());
    /// # Ok::<(), obento::Error>(())
    /// ```
    pub fn new(file_system: Arc<dyn FileSystem>) -> Self {
        Self::of(Vfs::new(file_system))
    }

    /// An empty file system in memory, for tests and as scratch space.
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

    /// The volume whose names go through `vfs`.
    pub(crate) fn of(vfs: Vfs) -> Self {
        Self { vfs, owners: Arc::default() }
    }

    /// Whether it can be changed: it was opened for that, and neither closed nor turned read-only since.
    pub fn is_writable(&self) -> bool {
        self.file_system().writable().is_some()
    }

    /// Brings every change to stable storage. Nothing to do for a volume that is open for reading. Errors: those of
    /// the device, also of writes that went before.
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

    /// Gives free space back to what the image lies on, which for a file makes holes; answers how many bytes. Runs below
    /// `min_len` bytes are left. Errors: NotSupported if the format cannot; ReadOnly; those of the device.
    pub fn trim(&self, min_len: u64) -> Result<u64> {
        self.vfs.trim(min_len)
    }

    /// Ends writing: every change is brought to stable storage and the volume marked clean, as an unmount does. It can
    /// still be read afterwards. A changed volume that is dropped without it is as after a power cut: whole, by its
    /// journal, but without what was not synced. Errors: as [`sync`](Self::sync).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use obento::{SystemClock, Volume, tmpfs};
    ///
    /// let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
    /// volume.close()?;
    /// assert!(!volume.is_writable());
    /// # Ok::<(), obento::Error>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        self.vfs.close()
    }

    /// The layer that walks paths and counts inodes.
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// The driver's volume. To read only: changes go through [`Volume::vfs`].
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        self.vfs.file_system()
    }

    /// The root directory.
    pub fn root(&self) -> Node {
        self.vfs.root()
    }

    /// The file at `place`, whoever may see it. A path that does not start with `/` starts at the root all the same.
    /// Errors: those of [`Vfs::resolve`] and [`Vfs::node`].
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use obento::{Place, Symlinks};
    ///
    /// volume.write("/a", "")?;
    /// let node = volume.resolve(&Place::Path(b"/a".to_vec()), Symlinks::Follow)?;
    /// assert_eq!(volume.resolve(&Place::Inode(node.ino()), Symlinks::Follow)?, node);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolve(&self, place: &Place, symlinks: Symlinks) -> Result<Node> {
        match place {
            Place::Path(path) => self.vfs.resolve(&self.root(), path, symlinks, &Caller::Owner),
            Place::Inode(ino) => self.vfs.node(*ino),
        }
    }

    /// What the file system is.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// assert_eq!(volume.info().probe.fs_type, "tmpfs");
    /// ```
    pub fn info(&self) -> VolumeInfo {
        self.file_system().info()
    }

    /// How full it is.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// let used = volume.statfs()?;
    /// assert!(used.free <= used.blocks);
    /// # Ok::<(), obento::Error>(())
    /// ```
    pub fn statfs(&self) -> Result<StatFs> {
        self.file_system().statfs()
    }

    /// The names of users and groups as the image itself knows them: its `/etc/passwd` and `/etc/group`, read once.
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

    /// What `pattern` matches, sorted; nothing is no error. `*`, `?` and `[...]` as in a shell, `**` for any number
    /// of directories, `\` before a character to mean itself; a name that starts with a dot is matched by a pattern
    /// that does. Bytes that are no UTF-8 count as characters. Errors: [`GlobError`].
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
