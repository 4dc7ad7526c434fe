//! The options of opening a file.

use obento_base::{Error, FileKind, Mode, NameBuf, Result};
use obento_driver::NewNode;
use obento_vfs::{Caller, Node, OpenFlags, Symlinks};

use super::{File, FsError};
use crate::Volume;

/// Maximum number of attempts to create a file. Each attempt except the last one follows a dangling symbolic
/// link.
const MAX_SYMLINKS: u32 = 40;

/// The options that a file is opened with, like `std::fs::OpenOptions`.
///
/// ```
/// use std::io::Write;
/// use obento::fs::OpenOptions;
/// use obento::{Error, Volume};
/// use obento::base::Mode;
///
/// let volume = Volume::in_memory();
/// let mut new = OpenOptions::new();
/// new.write(true).create_new(true).mode(Mode::new(0o600));
/// new.open(&volume, "/secret")?.write_all(b"once")?;
/// assert_eq!(new.open(&volume, "/secret").unwrap_err().error(), Error::Exists);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: Mode,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Returns options that permit neither reading nor writing. A new file gets the mode 0644 and belongs to
    /// root.
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: Mode::new(0o644),
        }
    }

    /// Sets whether the file can be read.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// Sets whether the file can be written.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Sets whether the file can be written only at its end.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use std::io::Write;
    /// use obento::fs::OpenOptions;
    ///
    /// volume.write("/log", "one\n")?;
    /// OpenOptions::new().append(true).open(&volume, "/log")?.write_all(b"two\n")?;
    /// assert_eq!(volume.read("/log")?, b"one\ntwo\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// Sets whether opening truncates the file to length 0.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use obento::fs::OpenOptions;
    ///
    /// volume.write("/file", "old")?;
    /// OpenOptions::new().write(true).truncate(true).open(&volume, "/file")?;
    /// assert!(volume.metadata("/file")?.is_empty());
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Sets whether opening creates the file if it does not exist.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use obento::fs::OpenOptions;
    ///
    /// OpenOptions::new().write(true).create(true).open(&volume, "/new")?;
    /// assert!(volume.exists("/new")?);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Sets whether opening creates the file, and fails if the name exists. A dangling symbolic link counts as an
    /// existing name.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Sets the permission bits of a created file.
    pub fn mode(&mut self, mode: Mode) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    ///
    /// 1. `Invalid`: `truncate`, `create` or `create_new` is set without `write` or `append`. Or: both
    ///    `truncate` and `append` are set.
    /// 2. The errors of [`Vfs::resolve`](obento_vfs::Vfs::resolve). If the call may create the file, the errors of
    ///    [`Vfs::resolve_parent`](obento_vfs::Vfs::resolve_parent) instead: a missing last component is not an error.
    /// 3. `IsDirectory`: a slash follows the name, and the file does not exist or
    ///    [`create_new`](Self::create_new) is set.
    /// 4. `Exists`: the name exists, with `create_new`.
    /// 5. `Loop`: with [`create`](Self::create), the path leads through 40 or more dangling symbolic links, one after
    ///    the other.
    /// 6. The errors of [`Vfs::create`](obento_vfs::Vfs::create), if the call must create the file.
    /// 7. The errors of [`Vfs::open`](obento_vfs::Vfs::open): `Invalid` if neither reading nor writing is
    ///    allowed, `IsDirectory` for a directory that is opened for writing, then `ReadOnly` and
    ///    `NotPermitted`.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use obento::Error;
    /// use obento::fs::OpenOptions;
    ///
    /// let error = OpenOptions::new().read(true).open(&volume, "/none").unwrap_err();
    /// assert_eq!(error.error(), Error::NotFound);
    /// assert_eq!(OpenOptions::new().open(&volume, "/").unwrap_err().error(), Error::Invalid);
    /// ```
    pub fn open(&self, volume: &Volume, path: impl AsRef<[u8]>) -> super::Result<File> {
        let path = path.as_ref();
        let failed = |error: Error| FsError::new(if self.makes() { "create" } else { "open" }, path, error);
        let flags = self.flags().map_err(failed)?;
        let node = self.find(volume, path).map_err(failed)?;
        let file = volume.vfs().open(&Caller::Owner, &node, flags).map_err(failed)?;
        Ok(File::new(file, path.to_vec()))
    }

    fn makes(&self) -> bool {
        self.create || self.create_new
    }

    fn flags(&self) -> Result<OpenFlags> {
        let writes = self.write || self.append;
        if !writes && (self.truncate || self.makes()) || self.append && self.truncate {
            return Err(Error::Invalid);
        }
        let mut flags = OpenFlags::empty();
        flags.set(OpenFlags::READ, self.read);
        flags.set(OpenFlags::WRITE, writes);
        flags.set(OpenFlags::APPEND, self.append);
        flags.set(OpenFlags::TRUNCATE, self.truncate);
        Ok(flags)
    }

    /// Returns the file at `path`. Creates the file if the options request it and the file does not exist.
    fn find(&self, volume: &Volume, path: &[u8]) -> Result<Node> {
        let vfs = volume.vfs();
        let (mut from, mut path) = (vfs.root(), path.to_vec());
        for _ in 0..MAX_SYMLINKS {
            if !self.create_new {
                match vfs.resolve(&from, &path, Symlinks::Follow, &Caller::Owner) {
                    Err(error) if error == Error::NotFound && self.create => {}
                    found => return found,
                }
            }
            let last = vfs.resolve_parent(&from, &path, &Caller::Owner)?;
            if last.slash {
                return Err(Error::IsDirectory);
            }
            match last.dir.lookup(&last.name) {
                Ok(_) if self.create_new => return Err(Error::Exists),
                // A dangling symbolic link: the file is created at the link's target.
                Ok(link) => (from, path) = (last.dir, link.read_link()?),
                Err(error) if error == Error::NotFound => return self.make(&last.dir, &last.name),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Loop)
    }

    fn make(&self, dir: &Node, name: &NameBuf) -> Result<Node> {
        dir.vfs().create(&Caller::Owner, dir, name, &new_node(FileKind::Regular, self.mode))
    }
}

/// Returns the attributes of a new inode that root owns.
pub(super) fn new_node(kind: FileKind, mode: Mode) -> NewNode<'static> {
    NewNode { kind, mode, uid: 0, gid: 0, rdev: obento_base::DeviceNumber::default(), target: b"" }
}
