//! The calls that take a path.

use obento_base::{DeviceNumber, Error, FileKind, Mode};
use obento_driver::{NewNode, RenameFlags};
use obento_vfs::{Caller, Last, Node, Symlinks};

use super::file::read_all;
use super::open::new_node;
use super::read_dir::join;
use super::{File, FsError, Metadata, OpenOptions, ReadDir, Result};
use crate::Volume;
use crate::remove::{RemoveObserver, remove_tree};
use crate::walk::Walk;

/// The result of an inner call, whose error does not contain the path yet.
type Bare<T> = std::result::Result<T, Error>;

/// Reading.
impl Volume {
    pub(super) fn follow(&self, path: &[u8]) -> Bare<Node> {
        self.vfs().resolve(&self.root(), path, Symlinks::Follow, &Caller::Owner)
    }

    pub(super) fn keep(&self, path: &[u8]) -> Bare<Node> {
        self.vfs().resolve(&self.root(), path, Symlinks::Keep, &Caller::Owner)
    }

    fn last(&self, path: &[u8]) -> Bare<Last> {
        self.vfs().resolve_parent(&self.root(), path, &Caller::Owner)
    }

    /// Opens a file for reading.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use std::io::Read;
    ///
    /// volume.write("/motd", "Welcome")?;
    /// let mut text = String::new();
    /// volume.open("/motd")?.read_to_string(&mut text)?;
    /// assert_eq!(text, "Welcome");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(&self, path: impl AsRef<[u8]>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Returns all bytes of a regular file. Follows symbolic links.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/etc-issue", "obento\n")?;
    /// assert_eq!(volume.read("/etc-issue")?, b"obento\n");
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let read = self.follow(path).and_then(|node| read_all(&node));
        read.map_err(|error| FsError::new("read", path, error))
    }

    /// Returns the contents of a text file in UTF-8.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/etc-issue", "obento\n")?;
    /// assert_eq!(volume.read_to_string("/etc-issue")?, "obento\n");
    /// volume.write("/bytes", [0xff])?;
    /// assert_eq!(volume.read_to_string("/bytes").unwrap_err().error(), obento::Error::Invalid);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - Those of [`Volume::read`].
    /// - `Invalid`: the contents are not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<[u8]>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|_| FsError::new("read as text", path, Error::Invalid))
    }

    /// Returns the attributes of a file. Follows symbolic links.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.create_dir("/srv")?;
    /// volume.symlink("srv", "/www")?;
    /// assert!(volume.metadata("/www")?.is_dir());
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        let path = path.as_ref();
        let attr = self.follow(path).and_then(|node| node.attr());
        attr.map(Metadata::from).map_err(|error| FsError::new("examine", path, error))
    }

    /// Returns the attributes of a file. If the path ends in a symbolic link, returns the attributes of the link.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.symlink("nowhere", "/link")?;
    /// assert!(volume.symlink_metadata("/link")?.is_symlink());
    /// assert!(volume.metadata("/link").is_err());
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        let path = path.as_ref();
        let attr = self.keep(path).and_then(|node| node.attr());
        attr.map(Metadata::from).map_err(|error| FsError::new("examine", path, error))
    }

    /// Returns whether a file exists. Follows symbolic links, so a dangling link does not exist.
    ///
    /// # Errors
    ///
    /// The errors of resolving the path except `NotFound` and `NotDirectory`. Such an error means that existence
    /// cannot be determined.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// assert!(volume.exists("/")? && !volume.exists("/etc/fstab")?);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        let path = path.as_ref();
        match self.follow(path) {
            Ok(_) => Ok(true),
            Err(error) if error == Error::NotFound || error == Error::NotDirectory => Ok(false),
            Err(error) => Err(FsError::new("find", path, error)),
        }
    }

    /// Returns the target of a symbolic link.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.symlink("../usr/bin", "/bin")?;
    /// assert_eq!(volume.read_link("/bin")?, b"../usr/bin");
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let target = self.keep(path).and_then(|node| node.read_link());
        target.map_err(|error| FsError::new("read the link", path, error))
    }

    /// Returns an iterator over the entries of a directory.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/b", "")?;
    /// volume.write("/a", "")?;
    /// let names: Result<Vec<_>, _> = volume.read_dir("/")?.map(|entry| Ok(entry?.file_name().to_vec())).collect();
    /// let mut names: Vec<Vec<u8>> = names?;
    /// names.sort();
    /// assert_eq!(names, [b"a", b"b"]);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<ReadDir> {
        let path = path.as_ref();
        let found = self.follow(path).and_then(|node| match node.kind()? {
            FileKind::Directory => Ok(node),
            _ => Err(Error::NotDirectory),
        });
        let dir = found.map_err(|error| FsError::new("list", path, error))?;
        Ok(ReadDir::new(dir, path.to_vec()))
    }

    /// Returns an iterator over all files of the volume.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.create_dir_all("/a/b")?;
    /// let paths = volume.walk().filter_map(Result::ok).filter(|entry| entry.step == obento::walk::Step::Enter);
    /// assert_eq!(paths.map(|entry| entry.path).collect::<Vec<_>>(), [&b""[..], b"a", b"a/b"]);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn walk(&self) -> Walk {
        Walk::new(self.root())
    }

    /// Returns an iterator over the tree at `path`. The paths of the entries are relative to `path`.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.create_dir_all("/a/b")?;
    /// let paths = volume.walk_from("/a")?.filter_map(Result::ok).filter(|entry| entry.step == obento::walk::Step::Enter);
    /// assert_eq!(paths.map(|entry| entry.path).collect::<Vec<_>>(), [&b""[..], b"b"]);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of resolving `path`. Errors below `path` are items of the iterator.
    pub fn walk_from(&self, path: impl AsRef<[u8]>) -> Result<Walk> {
        let path = path.as_ref();
        self.follow(path).map(Walk::new).map_err(|error| FsError::new("walk through", path, error))
    }
}

/// Names.
impl Volume {
    /// Creates the file at `path`. Fails with `Exists`.
    fn make(&self, action: &'static str, path: &[u8], new: &NewNode<'_>) -> Result<Node> {
        let made = self.last(path).and_then(|last| {
            if last.slash && new.kind != FileKind::Directory {
                return Err(Error::NotFound);
            }
            self.vfs().create(&Caller::Owner, &last.dir, &last.name, new)
        });
        made.map_err(|error| FsError::new(action, path, error))
    }

    /// Opens a file for writing. Creates the file if it does not exist, and truncates it otherwise.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use std::io::Write;
    ///
    /// let mut log = volume.create("/log")?;
    /// writeln!(log, "first line")?;
    /// log.sync_all()?;
    /// assert_eq!(volume.metadata("/log")?.len(), 11);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(&self, path: impl AsRef<[u8]>) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self, path)
    }

    /// Replaces the contents of a file with `bytes`. Creates the file if it does not exist. The call
    /// truncates the file and then writes, so after an error or a crash, the file may contain only a part of
    /// `bytes`. A caller that needs an atomic replacement writes another file and [renames](Self::rename) it.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/motd", "Welcome\n")?;
    /// assert_eq!(volume.read("/motd")?, b"Welcome\n");
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn write(&self, path: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let (file, mut bytes) = (self.create(path)?, bytes.as_ref());
        let mut offset = 0;
        while !bytes.is_empty() {
            let written = file.node().write_at(offset, bytes);
            let count = written.map_err(|error| FsError::new("write to", path, error))?;
            offset += count as u64;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Creates a directory of mode 0755.
    ///
    /// # Errors
    ///
    /// - `Exists`: the name exists.
    /// - `NotFound`: the parent directory does not exist.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.create_dir("/srv")?;
    /// assert_eq!(volume.create_dir("/srv").unwrap_err().error(), obento::Error::Exists);
    /// assert_eq!(volume.create_dir("/no/where").unwrap_err().error(), obento::Error::NotFound);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn create_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let new = new_node(FileKind::Directory, Mode::new(0o755));
        self.make("create the directory", path.as_ref(), &new).map(drop)
    }

    /// Creates a directory and its missing parents, with mode 0755. Succeeds if the directory exists. Fails
    /// with `NotDirectory` if a component of the path exists and is not a directory.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.create_dir_all("/var/lib/obento")?;
    /// volume.create_dir_all("/var/lib/obento")?;
    /// assert!(volume.metadata("/var/lib")?.is_dir());
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn create_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let is_end = |at: &usize| path.get(*at).is_none_or(|&byte| byte == b'/') && *at > 0;
        for end in (0..=path.len()).filter(is_end).filter(|&end| path[end - 1] != b'/') {
            let part = &path[..end];
            match self.create_dir(part) {
                Ok(()) => {}
                // `..` and `.` name existing directories. If they do not, the next step fails.
                Err(error) if [Error::Exists, Error::Invalid].contains(&error.error()) => {
                    if !self.metadata(part)?.is_dir() {
                        return Err(FsError::new("create the directory", part, Error::NotDirectory));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates a file of any kind except a symbolic link: for example a FIFO, a socket or a device node.
    /// Fails with `Invalid` for a symbolic link.
    ///
    /// ```
    /// use obento::base::{DeviceNumber, FileKind, Mode};
    ///
    /// # let volume = obento::Volume::in_memory();
    /// let null = DeviceNumber { major: 1, minor: 3 };
    /// volume.mknod("/null", FileKind::CharDevice, Mode::new(0o666), null)?;
    /// assert_eq!(volume.metadata("/null")?.rdev(), null);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn mknod(
        &self,
        path: impl AsRef<[u8]>,
        kind: FileKind,
        mode: Mode,
        rdev: DeviceNumber,
    ) -> Result<()> {
        self.make("create", path.as_ref(), &NewNode { rdev, ..new_node(kind, mode) }).map(drop)
    }

    /// Creates a symbolic link at `path` with the target `target`.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.symlink("usr/bin", "/bin")?;
    /// assert_eq!(volume.read_link("/bin")?, b"usr/bin");
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        let new = NewNode { target: target.as_ref(), ..new_node(FileKind::Symlink, Mode::new(0o777)) };
        self.make("create the link", path.as_ref(), &new).map(drop)
    }

    /// Creates the name `link` for the file at `original`. Does not follow a symbolic link at `original`.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/a", "same")?;
    /// volume.hard_link("/a", "/b")?;
    /// assert_eq!(volume.metadata("/b")?.nlink(), 2);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn hard_link(&self, original: impl AsRef<[u8]>, link: impl AsRef<[u8]>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let node = self.keep(original).map_err(|error| FsError::new("link to", original, error))?;
        let last = self.last(link);
        let linked = last.and_then(|last| self.vfs().link(&Caller::Owner, &node, &last.dir, &last.name));
        linked.map_err(|error| FsError::new("create the link", link, error))
    }

    /// Moves a file or directory. Replaces an existing file, or an empty directory, at `to` atomically.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/config.new", "better")?;
    /// volume.rename("/config.new", "/config")?;
    /// assert_eq!(volume.read("/config")?, b"better");
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Moves a file or directory. With `NO_REPLACE`, fails if `to` exists. With `EXCHANGE`, exchanges the two
    /// files.
    ///
    /// ```
    /// use obento::driver::RenameFlags;
    ///
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/a", "1")?;
    /// volume.write("/b", "2")?;
    /// assert!(volume.rename_with("/a", "/b", RenameFlags::NO_REPLACE).is_err());
    /// volume.rename_with("/a", "/b", RenameFlags::EXCHANGE)?;
    /// assert_eq!(volume.read("/a")?, b"2");
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn rename_with(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.last(from).map_err(|error| FsError::new("move", from, error))?;
        let target = self.last(to).map_err(|error| FsError::new("move to", to, error))?;
        let pair = ((&source.dir, &*source.name), (&target.dir, &*target.name));
        self.vfs()
            .rename(&Caller::Owner, pair.0, pair.1, flags)
            .map_err(|error| FsError::new("move", from, error))
    }

    /// Removes the name of a file that is not a directory.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/old", "")?;
    /// volume.remove_file("/old")?;
    /// assert!(!volume.exists("/old")?);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let removed = self.last(path).and_then(|last| match last.slash {
            true => Err(Error::NotDirectory),
            false => self.vfs().unlink(&Caller::Owner, &last.dir, &last.name),
        });
        removed.map_err(|error| FsError::new("remove", path, error))
    }

    /// Removes an empty directory.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.create_dir_all("/a/b")?;
    /// assert_eq!(volume.remove_dir("/a").unwrap_err().error(), obento::Error::NotEmpty);
    /// volume.remove_dir("/a/b")?;
    /// volume.remove_dir("/a")?;
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let last = self.last(path);
        let removed = last.and_then(|last| self.vfs().rmdir(&Caller::Owner, &last.dir, &last.name));
        removed.map_err(|error| FsError::new("remove", path, error))
    }
}

/// Stores the first failure of a removal.
#[derive(Default)]
struct FirstFailure(Option<(Vec<u8>, Error)>);

impl RemoveObserver for FirstFailure {
    fn failed(&mut self, path: &[u8], error: Error) {
        self.0.get_or_insert_with(|| (path.to_vec(), error));
    }
}

/// Trees.
impl Volume {
    /// Removes a file, or a directory with its tree. Does not follow a symbolic link at the end of the path or in the
    /// tree: removes the link itself.
    ///
    /// # Errors
    ///
    /// The first error. After an error, the removal continues with the rest of the tree.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.create_dir_all("/cache/a/b")?;
    /// volume.write("/cache/a/file", "")?;
    /// volume.remove_dir_all("/cache")?;
    /// assert!(!volume.exists("/cache")?);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn remove_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let last = self.last(path).map_err(|error| FsError::new("remove", path, error))?;
        let mut failure = FirstFailure::default();
        remove_tree(&last.dir, &last.name, &mut failure);
        match failure.0 {
            None => Ok(()),
            Some((below, error)) if below.is_empty() => Err(FsError::new("remove", path, error)),
            Some((below, error)) => Err(FsError::new("remove", join(path, &below), error)),
        }
    }
}
