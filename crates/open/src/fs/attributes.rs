//! The calls that take a path and change attributes, or read and change extended attributes.

use std::time::SystemTime;

use obento_base::{Error, Mode};
use obento_driver::{SetAttr, TimeChange, XattrMode};
use obento_vfs::{Caller, Symlinks};

use super::metadata::timestamp;
use super::{FsError, Metadata, Result};
use crate::Volume;

impl Volume {
    /// Changes all given attributes of a file or none, and returns the new attributes. `symlinks` selects
    /// whether a symbolic link at the end of the path is followed. Exception: the kernel engine and the FUSE driver
    /// change owner, mode, flags and times one after the other. If a step fails, the attributes of the earlier steps
    /// have their new values.
    ///
    /// ```
    /// use obento::base::Mode;
    /// use obento::driver::SetAttr;
    /// use obento::vfs::Symlinks;
    ///
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/tool", "")?;
    /// let change = SetAttr { mode: Some(Mode::new(0o4755)), uid: Some(0), ..SetAttr::default() };
    /// assert_eq!(volume.set_attr("/tool", Symlinks::Follow, &change)?.permissions(), Mode::new(0o4755));
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn set_attr(&self, path: impl AsRef<[u8]>, symlinks: Symlinks, change: &SetAttr) -> Result<Metadata> {
        self.change("change", path.as_ref(), symlinks, change)
    }

    fn change(
        &self,
        action: &'static str,
        path: &[u8],
        symlinks: Symlinks,
        change: &SetAttr,
    ) -> Result<Metadata> {
        let found = self.vfs().resolve(&self.root(), path, symlinks, &Caller::Owner);
        let changed = found.and_then(|node| self.vfs().set_attr(&Caller::Owner, &node, change));
        changed.map(Metadata::from).map_err(|error| FsError::new(action, path, error))
    }

    /// Sets the permission bits of a file. Follows symbolic links.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use obento::base::Mode;
    ///
    /// volume.write("/key", "secret")?;
    /// volume.set_permissions("/key", Mode::new(0o400))?;
    /// assert_eq!(volume.metadata("/key")?.permissions(), Mode::new(0o400));
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn set_permissions(&self, path: impl AsRef<[u8]>, mode: Mode) -> Result<()> {
        let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.change("set the permissions of", path.as_ref(), Symlinks::Follow, &change).map(drop)
    }

    /// Sets the owner and the group of a file. Follows symbolic links. `None` leaves the owner or the group
    /// unchanged.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/file", "")?;
    /// volume.chown("/file", Some(1000), None)?;
    /// assert_eq!((volume.metadata("/file")?.uid(), volume.metadata("/file")?.gid()), (1000, 0));
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn chown(&self, path: impl AsRef<[u8]>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let change = SetAttr { uid, gid, ..SetAttr::default() };
        self.change("set the owner of", path.as_ref(), Symlinks::Follow, &change).map(drop)
    }

    /// Sets the owner and the group like [`chown`](Self::chown). Does not follow a symbolic link at the end of the
    /// path.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.symlink("nowhere", "/link")?;
    /// volume.lchown("/link", Some(1000), Some(100))?;
    /// assert_eq!(volume.symlink_metadata("/link")?.uid(), 1000);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn lchown(&self, path: impl AsRef<[u8]>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let change = SetAttr { uid, gid, ..SetAttr::default() };
        self.change("set the owner of", path.as_ref(), Symlinks::Keep, &change).map(drop)
    }

    /// Sets the access time and the modification time. Follows symbolic links.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use std::time::{Duration, SystemTime};
    ///
    /// volume.write("/file", "")?;
    /// let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    /// volume.set_times("/file", then, then)?;
    /// assert_eq!(volume.metadata("/file")?.modified(), then);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn set_times(
        &self,
        path: impl AsRef<[u8]>,
        accessed: SystemTime,
        modified: SystemTime,
    ) -> Result<()> {
        let at = |time| Some(TimeChange::At(timestamp(time)));
        let change = SetAttr { atime: at(accessed), mtime: at(modified), ..SetAttr::default() };
        self.change("set the times of", path.as_ref(), Symlinks::Follow, &change).map(drop)
    }

    /// Returns the value of an extended attribute, or `None` if the file has no attribute of this name. Does
    /// not follow a symbolic link.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/file", "")?;
    /// volume.set_xattr("/file", "user.origin", "https://example.org")?;
    /// assert_eq!(volume.xattr("/file", "user.origin")?.as_deref(), Some(&b"https://example.org"[..]));
    /// assert_eq!(volume.list_xattrs("/file")?, [b"user.origin".to_vec()]);
    /// volume.remove_xattr("/file", "user.origin")?;
    /// assert_eq!(volume.xattr("/file", "user.origin")?, None);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let path = path.as_ref();
        match self.keep(path).and_then(|node| node.get_xattr(name.as_ref())) {
            Err(error) if error == Error::NoData => Ok(None),
            found => found.map(Some).map_err(|error| FsError::new("read an attribute of", path, error)),
        }
    }

    /// Returns the names of the extended attributes of a file. Does not follow a symbolic link.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/file", "")?;
    /// volume.set_xattr("/file", "user.a", "1")?;
    /// assert_eq!(volume.list_xattrs("/file")?, [b"user.a"]);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn list_xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>> {
        let path = path.as_ref();
        let names = self.keep(path).and_then(|node| node.list_xattrs());
        names.map_err(|error| FsError::new("list the attributes of", path, error))
    }

    /// Sets an extended attribute. Creates the attribute or replaces its value. Does not follow a symbolic link.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/file", "")?;
    /// volume.set_xattr("/file", "user.colour", "red")?;
    /// volume.set_xattr("/file", "user.colour", "green")?;
    /// assert_eq!(volume.xattr("/file", "user.colour")?.as_deref(), Some(&b"green"[..]));
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (path, name, value) = (path.as_ref(), name.as_ref(), value.as_ref());
        let set = self
            .keep(path)
            .and_then(|node| self.vfs().set_xattr(&Caller::Owner, &node, name, value, XattrMode::Set));
        set.map_err(|error| FsError::new("set an attribute of", path, error))
    }

    /// Removes an extended attribute. Does not follow a symbolic link.
    ///
    /// # Errors
    ///
    /// - `NoData`: the file has no attribute of this name.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/file", "")?;
    /// volume.set_xattr("/file", "user.colour", "red")?;
    /// volume.remove_xattr("/file", "user.colour")?;
    /// assert_eq!(volume.remove_xattr("/file", "user.colour").unwrap_err().error(), obento::Error::NoData);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let removed =
            self.keep(path).and_then(|node| self.vfs().remove_xattr(&Caller::Owner, &node, name.as_ref()));
        removed.map_err(|error| FsError::new("remove an attribute of", path, error))
    }
}
