//! Inodes in memory: their attributes as the contract has them, their parent, and the format's map of their blocks.
//!
//! Invariant: an inode that is in use and has no link waits for its `forget`, or for the next open after a crash: xv6-riscv
//! `ireclaim`.

use obento_base::{Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Result, Timestamp};
use obento_driver::{NewNode, TimeChange};

/// What a new inode gets of its directory's flags: as with tmpfs, Linux `SHMEM_FL_INHERITED`.
const INHERITED: FileFlags = FileFlags::NO_DUMP.union(FileFlags::NO_ATIME);

/// An inode in use, as a look or a change has it: a copy, which counts once it is put back.
#[derive(Clone, Debug)]
pub struct Inode<M> {
    /// Its attributes.
    pub attr: Attr,
    /// Of a directory: the one that it lies in.
    pub parent: Ino,
    /// Where its blocks are.
    pub map: M,
}

impl<M: Default> Inode<M> {
    /// What `node` asks for, without a name and without a block.
    pub(crate) fn new(ino: Ino, generation: Generation, node: &NewNode<'_>, now: Timestamp) -> Self {
        let attr = Attr {
            ino,
            generation,
            kind: node.kind,
            mode: node.mode,
            nlink: 0,
            uid: node.uid,
            gid: node.gid,
            rdev: if node.kind.is_device() { node.rdev } else { DeviceNumber::default() },
            size: 0,
            blocks: 0,
            block_size: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(now),
            flags: FileFlags::empty(),
            change: 0,
            project: 0,
        };
        Self { attr, parent: Ino(0), map: M::default() }
    }
}

impl<M> Inode<M> {
    /// Its number.
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.attr.is_dir()
    }

    /// Errors: NotDirectory.
    pub fn expect_dir(&self) -> Result<()> {
        if self.is_dir() { Ok(()) } else { Err(Error::NotDirectory) }
    }

    /// Errors: IsDirectory; Invalid for what is no regular file.
    pub fn expect_file(&self) -> Result<()> {
        match self.attr.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Lets it reach to `end` at least.
    pub fn grow_to(&mut self, end: u64) {
        self.attr.size = self.attr.size.max(end);
    }

    /// Takes over what `dir` hands on to what is made in it.
    pub(crate) fn inherit(&mut self, dir: &Self) {
        self.attr.flags = dir.attr.flags & INHERITED;
    }

    /// Notes a change of the data that was made at `when`, since when the attributes may have changed.
    pub(crate) fn touch_data_at(&mut self, when: TimeChange, now: Timestamp) {
        let TimeChange::At(moment) = when else { return self.attr.touch_data(now) };
        self.attr.touch(moment.max(self.attr.ctime));
        self.attr.mtime = moment;
    }

    /// One link more. Errors: TooManyLinks.
    pub(crate) fn add_link(&mut self, most: u32) -> Result<()> {
        self.attr.nlink = self.attr.nlink.saturating_add(1);
        if self.attr.nlink > most { Err(Error::TooManyLinks) } else { Ok(()) }
    }

    /// One link less.
    pub(crate) fn drop_link(&mut self) {
        self.attr.nlink = self.attr.nlink.saturating_sub(1);
    }

    /// Takes a name away; from a directory, with the link that it has for itself.
    pub(crate) fn drop_name(&mut self) {
        if self.is_dir() {
            self.attr.nlink = 0;
        } else {
            self.drop_link();
        }
    }
}
