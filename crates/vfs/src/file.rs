//! Files that are open: what a caller may do was decided when it opened them.

use alloc::sync::Arc;

use bitflags::bitflags;
use hashbrown::HashMap;
use obento_base::{Attr, Error, FileFlags, FileKind, Result, Timestamp};
use obento_driver::{Cookie, EntrySink, SetAttr, TimeChange};
use obento_env::sync::Mutex;

use crate::access::{Caller, Want};
use crate::node::Node;
use crate::vfs::{Atime, Vfs};

/// How old an access time becomes before `Atime::Relative` renews it: Linux fs/inode.c `relatime_need_update`.
const RELATIVE_AGE: i64 = 24 * 60 * 60;

bitflags! {
    /// What a file is opened for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct OpenFlags: u32 {
        /// Reading; for a directory, listing.
        const READ = 1;
        /// Writing.
        const WRITE = 2;
        /// Each write goes to the end of the file as it then is.
        const APPEND = 4;
        /// The file is emptied first.
        const TRUNCATE = 8;
    }
}

/// An open file. It lives on without a name until the last of its owners drops it.
#[derive(Debug)]
pub struct File {
    node: Node,
    flags: OpenFlags,
    opener: Caller,
}

impl Vfs {
    /// Opens a file or, for listing, a directory. Errors, the first that holds: Loop for a symbolic link; Invalid for
    /// no flags, and for `APPEND` or `TRUNCATE` without `WRITE`; IsDirectory for writing to one; AccessDenied;
    /// ReadOnly; NotPermitted for writing to what is immutable, or otherwise than at the end of what is only to be
    /// appended to.
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
        let mut want = Want::empty();
        want.set(Want::READ, flags.contains(OpenFlags::READ));
        want.set(Want::WRITE, writes);
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
    /// The inode.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// What it was opened for.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    fn expect(&self, flag: OpenFlags) -> Result<()> {
        if self.flags.contains(flag) { Ok(()) } else { Err(Error::BadHandle) }
    }

    /// Reads as [`Node::read_at`], and stamps the access time. Errors: BadHandle if it is not open for reading; as there.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.expect(OpenFlags::READ)?;
        let len = self.node.read_at(offset, buf)?;
        self.node.stamp_access()?;
        Ok(len)
    }

    /// Lists as [`Node::read_dir`], and stamps the access time. Errors: BadHandle if it is not open for reading; as
    /// there.
    pub fn read_dir(&self, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.expect(OpenFlags::READ)?;
        self.node.read_dir(from, sink)?;
        self.node.stamp_access()
    }

    /// Writes as [`Node::write_at`]; at the end, whatever `offset` says, if it was opened so. Errors: BadHandle if it
    /// is not open for writing; as there.
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

    /// Sets the size. Errors: BadHandle if it is not open for writing; as [`Node::truncate`].
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.expect(OpenFlags::WRITE)?;
        self.node.truncate(size)?;
        self.node.vfs().strip_privileges(&self.opener, &self.node)
    }
}

impl Node {
    /// Stamps the access time as the volume's policy has it: for who reads through the node for somebody. Errors:
    /// those of the volume.
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

/// Open files by number, for hosts whose clients hold numbers.
///
/// Invariant: a number is never used again, so a late request meets BadHandle and not another file.
#[derive(Debug, Default)]
pub struct Handles(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    files: HashMap<Handle, Arc<File>>,
}

/// The number of an open file; never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub u64);

impl Handles {
    /// No open files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives `file` a number.
    pub fn insert(&self, file: File) -> Handle {
        let mut open = self.0.lock();
        open.last = open.last.saturating_add(1);
        let handle = Handle(open.last);
        open.files.insert(handle, Arc::new(file));
        handle
    }

    /// The file of this number. Errors: BadHandle.
    pub fn get(&self, handle: Handle) -> Result<Arc<File>> {
        self.0.lock().files.get(&handle).cloned().ok_or(Error::BadHandle)
    }

    /// Closes the file of this number once nobody uses it any more. Errors: BadHandle.
    pub fn remove(&self, handle: Handle) -> Result<()> {
        // The file goes after the lock, because closing the last one of an inode may take long.
        let file = self.0.lock().files.remove(&handle);
        file.map(drop).ok_or(Error::BadHandle)
    }
}
