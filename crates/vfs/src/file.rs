//! Open files. Access is checked when a file is opened.

use bitflags::bitflags;
use obento_base::{Attr, Error, FileFlags, FileKind, Result, Timestamp};
use obento_driver::{Cookie, EntrySink, SetAttr, TimeChange};

use crate::caller::{AccessRequest, Caller};
use crate::node::Node;
use crate::vfs::{Atime, Vfs};

/// Maximum age of an access time in seconds before `Atime::Relative` updates it: Linux fs/inode.c
/// `relatime_need_update`.
const RELATIVE_AGE: i64 = 24 * 60 * 60;

bitflags! {
    /// The mode in which a file is opened.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct OpenFlags: u32 {
        /// Open for reading; for a directory, for listing.
        const READ = 1;
        /// Open for writing.
        const WRITE = 2;
        /// Append: each write starts at the current end of the file.
        const APPEND = 4;
        /// Truncate the file to length 0 when it is opened.
        const TRUNCATE = 8;
    }
}

/// An open file. It remains usable after its last name is removed, until it is dropped.
#[derive(Debug)]
pub struct File {
    node: Node,
    flags: OpenFlags,
    opener: Caller,
}

impl Vfs {
    /// Opens a file for reading or writing, or a directory for listing. The methods of the returned [`File`]
    /// check only `flags`, and not the permissions of the caller. A FIFO, a socket or a device can be opened,
    /// but reading and writing fail with `Invalid`.
    ///
    /// # Errors
    ///
    /// 1. `Loop`: the inode is a symbolic link.
    /// 2. `Invalid`: no flag is set, or `APPEND` or `TRUNCATE` is set without `WRITE`.
    /// 3. `IsDirectory`: a directory is opened for writing.
    /// 4. `AccessDenied`: the caller lacks the permission.
    /// 5. `ReadOnly`: the file is opened for writing, and the volume cannot be changed.
    /// 6. `NotPermitted`: an immutable file is opened for writing, or an append-only file is opened for writing
    ///    without `APPEND` or with `TRUNCATE`.
    /// 7. With `TRUNCATE`: the errors of [`File::truncate`].
    pub fn open(&self, caller: &Caller, node: &Node, flags: OpenFlags) -> Result<File> {
        let attr = node.stored()?;
        let writes = flags.contains(OpenFlags::WRITE);
        let without_write = !writes && flags.intersects(OpenFlags::APPEND | OpenFlags::TRUNCATE);
        match attr.kind {
            FileKind::Symlink => return Err(Error::Loop),
            _ if flags.is_empty() || without_write => return Err(Error::Invalid),
            FileKind::Directory if writes => return Err(Error::IsDirectory),
            _ => {}
        }
        let mut want = AccessRequest::empty();
        want.set(AccessRequest::READ, flags.contains(OpenFlags::READ));
        want.set(AccessRequest::WRITE, writes);
        node.access(caller, want)?;
        if writes {
            self.writable()?;
            let appends = flags & (OpenFlags::APPEND | OpenFlags::TRUNCATE) == OpenFlags::APPEND;
            if attr.flags.contains(FileFlags::IMMUTABLE) || attr.flags.contains(FileFlags::APPEND) && !appends
            {
                return Err(Error::NotPermitted);
            }
        }
        let file = File { node: node.clone(), flags, opener: caller.clone() };
        if flags.contains(OpenFlags::TRUNCATE) {
            file.truncate(0)?;
        }
        Ok(file)
    }
}

impl File {
    /// Returns the inode.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the flags with which the file was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    fn expect(&self, flag: OpenFlags) -> Result<()> {
        if self.flags.contains(flag) { Ok(()) } else { Err(Error::BadHandle) }
    }

    /// Reads as [`Node::read_at`] does, and then updates the access time. A failure of the update has no
    /// effect.
    ///
    /// # Errors
    ///
    /// 1. `BadHandle`: the file is not open for reading.
    /// 2. The errors of [`Node::read_at`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.expect(OpenFlags::READ)?;
        let len = self.node.read_at(offset, buf)?;
        self.stamp_access();
        Ok(len)
    }

    /// Lists as [`Node::read_dir`] does, and then updates the access time. A failure of the update has no
    /// effect.
    ///
    /// # Errors
    ///
    /// 1. `BadHandle`: the directory is not open for reading.
    /// 2. The errors of [`Node::read_dir`].
    pub fn read_dir(&self, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.expect(OpenFlags::READ)?;
        self.node.read_dir(from, sink)?;
        self.stamp_access();
        Ok(())
    }

    fn stamp_access(&self) {
        // A read does not fail because of its time, for example on a volume that a failed write made read-only.
        let _ = self.node.stamp_access();
    }

    /// Writes as [`Node::write_at`] does. If the file was opened with `APPEND`, ignores `offset` and writes
    /// at the end. Unless the owner of the image opened the file, also clears set-user-ID, and set-group-ID
    /// if the group may execute the file. If clearing these bits fails, the call fails although the data is
    /// written.
    ///
    /// # Errors
    ///
    /// 1. `BadHandle`: the file is not open for writing.
    /// 2. The errors of [`Node::write_at`].
    /// 3. The errors of [`set_attr`](obento_driver::WritableFileSystem::set_attr) for the mode.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.expect(OpenFlags::WRITE)?;
        let len = if self.flags.contains(OpenFlags::APPEND) {
            self.node.append(bytes)?.1
        } else {
            self.node.write_at(offset, bytes)?
        };
        self.node.vfs().strip_privileges(&self.opener, &self.node)?;
        Ok(len)
    }

    /// Sets the size to `size` bytes as [`Node::truncate`] does. Clears the same mode bits as
    /// [`write_at`](Self::write_at). If clearing these bits fails, the call fails although the file has its
    /// new size.
    ///
    /// # Errors
    ///
    /// 1. `BadHandle`: the file is not open for writing.
    /// 2. The errors of [`Node::truncate`].
    /// 3. The errors of [`set_attr`](obento_driver::WritableFileSystem::set_attr) for the mode.
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.expect(OpenFlags::WRITE)?;
        self.node.truncate(size)?;
        self.node.vfs().strip_privileges(&self.opener, &self.node)
    }
}

impl Node {
    /// Updates the access time according to [`Config::atime`](crate::Config::atime). A caller that reads
    /// through the node instead of an open file calls this method after each read. Has no effect on a volume
    /// that is open read-only, or if the file has the flag `NO_ATIME`.
    ///
    /// # Errors
    ///
    /// The errors of [`set_attr`](obento_driver::WritableFileSystem::set_attr) of the driver.
    pub fn stamp_access(&self) -> Result<()> {
        let config = &self.vfs.0.config;
        let Some(fs) = self.file_system().writable().filter(|_| config.atime != Atime::Never) else {
            return Ok(());
        };
        let attr = self.stored()?;
        let due = config.atime == Atime::Always || is_stale(&attr, config.clock.now());
        if !due || attr.flags.contains(FileFlags::NO_ATIME) {
            return Ok(());
        }
        fs.set_attr(self.ino(), &SetAttr { atime: Some(TimeChange::Now), ..SetAttr::default() }).map(drop)
    }
}

fn is_stale(attr: &Attr, now: Timestamp) -> bool {
    let age = now.secs().saturating_sub(attr.atime.secs());
    attr.atime <= attr.mtime || attr.atime <= attr.ctime || age >= RELATIVE_AGE
}
