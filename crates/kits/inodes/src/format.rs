//! The traits that a format implements so that [`Volume`](crate::Volume) can read and change its volumes.
//!
//! A driver implements the three traits for its super block, each beside the code for the on-disk structures.
//! [`Inodes`] decodes inodes, [`Map`] finds their blocks, and [`Directories`] finds names.
//! Invariant: no method takes a lock. Methods that change something get an `&mut Op`, the current change.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{FileKind, Generation, Ino, Name, NameBuf, Result};
use obento_driver::{Cookie, Limits, VolumeInfo};

use crate::{Geometry, Inode, LockedInode, Op};

/// The properties of a volume, and the encoding of inodes.
pub trait Inodes: Sized + Send + Sync + 'static {
    /// The block map of an inode. The default has no blocks.
    type Map: Clone + Default;

    /// The root directory.
    const ROOT: Ino;

    /// Returns the locations of the parts of the volume.
    fn geometry(&self) -> &Geometry;

    /// Returns the limits of the format.
    fn limits(&self) -> Limits;

    /// Returns a description of the volume, without its state.
    fn info(&self) -> VolumeInfo;

    /// Decodes inode `ino`; `None` if it is free. Fails with `Corrupt`.
    fn decode(&self, ino: Ino, bytes: &[u8]) -> Result<Option<Inode<Self::Map>>>;

    /// Encodes an inode into `bytes`, which contain its previous version. Preserves fields that the driver
    /// does not support.
    fn encode(&self, inode: &Inode<Self::Map>, bytes: &mut [u8]);

    /// Returns the generation of the next inode that is stored in these bytes, which contain a free inode.
    fn next_generation(&self, bytes: &[u8]) -> Generation;

    /// Turns these bytes into a free inode.
    fn clear(&self, bytes: &mut [u8]);
}

/// The mapping of file blocks to volume blocks.
pub trait Map: Inodes {
    /// Maximum number of bytes that one change may write to a file, so that the changed indirect blocks fit into the
    /// log.
    const WRITE_MAX: usize;

    /// Returns the volume block of block `at` of a file, or `None` for a hole. Also returns the number of
    /// contiguous blocks from there on, or the number of blocks of the hole. Fails with `Corrupt`, or if the
    /// device fails.
    fn walk(&self, op: &Op<'_, Self>, inode: &Inode<Self::Map>, at: u64) -> Result<(Option<u32>, u64)>;

    /// Returns the volume block of block `at` of a file, and whether the call allocated the block because it
    /// was a hole. A new block of a regular file has unspecified contents. A new block of any other inode is
    /// metadata and contains zeros. Fails with `FileTooBig` or `Corrupt`, with `NoSpace` before anything is
    /// allocated, or if the device fails.
    fn fill(
        &self,
        op: &mut Op<'_, Self>,
        inode: &mut LockedInode<'_, Self::Map>,
        at: u64,
    ) -> Result<(u32, bool)>;

    /// Turns the blocks `range` of a file into a hole, and frees them and indirect blocks that are no longer needed.
    /// Invalid block numbers are removed. Fails if the device fails.
    fn cut(
        &self,
        op: &mut Op<'_, Self>,
        inode: &mut LockedInode<'_, Self::Map>,
        range: Range<u64>,
    ) -> Result<()>;

    /// Passes every block of an inode to `own`, indirect blocks before the blocks that they refer to. An indirect
    /// block is read only if `own` returns true for it. Fails if the device fails.
    fn each_block(
        &self,
        op: &Op<'_, Self>,
        inode: &Inode<Self::Map>,
        own: &mut dyn FnMut(u32) -> bool,
    ) -> Result<()>;
}

/// A directory entry.
#[derive(Clone, Debug)]
pub struct Entry<P> {
    /// The inode that the entry refers to.
    pub ino: Ino,
    /// The type of that inode, if the entry contains it.
    pub kind: Option<FileKind>,
    /// Its name.
    pub name: NameBuf,
    /// Cookie with which a listing continues after this entry.
    pub next: Cookie,
    /// The place of the entry.
    pub place: P,
}

/// Adjacent directory entries, with errors for damaged ones, and the cookie after them.
pub type Batch<P> = (Vec<Result<Entry<P>>>, Cookie);

/// Directories. `.` and `..` are not entries.
pub trait Directories: Map {
    /// The place of an entry. It is valid until the directory changes.
    type Place: Clone;

    /// Looks up a name. Fails with `Corrupt` if a damaged part could contain it, or if the device fails.
    fn find(
        &self,
        op: &Op<'_, Self>,
        dir: &Inode<Self::Map>,
        name: &Name,
    ) -> Result<Option<Entry<Self::Place>>>;

    /// Returns the next entries at and after the cookie `from`, or `None` at the end of the directory. Fails
    /// with `Corrupt`, or if the device fails.
    fn list(
        &self,
        op: &Op<'_, Self>,
        dir: &Inode<Self::Map>,
        from: Cookie,
    ) -> Result<Option<Batch<Self::Place>>>;

    /// Adds an entry with a name that does not exist. Fails with `NoSpace` or `Corrupt`, or if the device fails.
    fn insert(
        &self,
        op: &mut Op<'_, Self>,
        dir: &mut LockedInode<'_, Self::Map>,
        name: &Name,
        target: &Inode<Self::Map>,
    ) -> Result<()>;

    /// Removes an entry. Fails if the device fails.
    fn remove(
        &self,
        op: &mut Op<'_, Self>,
        dir: &mut LockedInode<'_, Self::Map>,
        entry: &Entry<Self::Place>,
    ) -> Result<()>;

    /// Changes the inode that an entry refers to. Fails if the device fails.
    fn retarget(
        &self,
        op: &mut Op<'_, Self>,
        entry: &Entry<Self::Place>,
        target: &Inode<Self::Map>,
    ) -> Result<()>;

    /// Returns the error of an entry in a wrong place, for the check: a code, and a text that follows
    /// "the entry NAME is".
    fn misplaced(
        &self,
        dir: &Inode<Self::Map>,
        entry: &Entry<Self::Place>,
    ) -> Option<(&'static str, String)> {
        let _ = (dir, entry);
        None
    }
}
