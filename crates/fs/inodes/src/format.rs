//! What a format says, so that [`Volume`](crate::Volume) can show and change volumes of it.
//!
//! A driver implements the three traits for its super block, each beside the code that knows the bytes: [`Inodes`] where inodes
//! are decoded, [`Map`] where their blocks are found, [`Directories`] where names are.
//! Invariant: none of the methods locks, and what changes gets an `&mut Op`: the change that is under way.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{FileKind, Generation, Ino, Name, NameBuf, Result};
use obento_driver::{Cookie, Limits, VolumeInfo};

use crate::{Geometry, Inode, Op};

/// What a volume is, and the bytes of an inode.
pub trait Inodes: Sized + Send + Sync + 'static {
    /// What an inode says of where its blocks are; the default has none.
    type Map: Clone + Default;

    /// The root directory.
    const ROOT: Ino;

    /// Returns where its parts lie.
    fn geometry(&self) -> &Geometry;

    /// What it can hold.
    fn limits(&self) -> Limits;

    /// What it says of itself, without its state.
    fn info(&self) -> VolumeInfo;

    /// The inode `ino` that these bytes are; `None` if it is free. Fails with `Corrupt`.
    fn decode(&self, ino: Ino, bytes: &[u8]) -> Result<Option<Inode<Self::Map>>>;

    /// Writes an inode over what its bytes were; what of them the driver does not know stays.
    fn encode(&self, inode: &Inode<Self::Map>, bytes: &mut [u8]);

    /// The generation of the next inode in these bytes, which are free.
    fn next_generation(&self, bytes: &[u8]) -> Generation;

    /// Makes these bytes a free inode.
    fn clear(&self, bytes: &mut [u8]);
}

/// Which block of the volume holds which block of a file.
pub trait Map: Inodes {
    /// Bytes that one change may write to a file, so that the blocks of numbers which it touches fit in the log.
    const WRITE_MAX: usize;

    /// Returns where block `at` of a file is; or `None` for a hole, and how many blocks it is known to have from
    /// there on. Fails with `Corrupt`, or if the device fails.
    fn walk(&self, op: &Op<'_, Self>, inode: &Inode<Self::Map>, at: u64) -> Result<(Option<u32>, u64)>;

    /// Block `at` of a file, taken if it was a hole, and whether it was. A new one of a regular file holds anything;
    /// others are metadata, zeros. Fails with `FileTooBig`, `Corrupt`, with `NoSpace`, before anything was taken, or
    /// if the device fails.
    fn fill(&self, op: &mut Op<'_, Self>, inode: &mut Inode<Self::Map>, at: u64) -> Result<(u32, bool)>;

    /// Makes the blocks `range` of a file a hole and frees them, with whatever led to them alone. A number that can
    /// be no block's is dropped. Fails if the device fails.
    fn cut(&self, op: &mut Op<'_, Self>, inode: &mut Inode<Self::Map>, range: Range<u64>) -> Result<()>;

    /// Tells `own` every block that an inode names, blocks of numbers before what they name; into those it looks if
    /// `own` says so. Fails if the device fails.
    fn each_block(
        &self,
        op: &Op<'_, Self>,
        inode: &Inode<Self::Map>,
        own: &mut dyn FnMut(u32) -> bool,
    ) -> Result<()>;
}

/// A directory entry that was found.
#[derive(Clone, Debug)]
pub struct Entry<P> {
    /// What it leads to.
    pub ino: Ino,
    /// Of what kind that is, if the entry says so.
    pub kind: Option<FileKind>,
    /// Its name.
    pub name: NameBuf,
    /// Where a listing goes on after it.
    pub next: Cookie,
    /// Where it lies.
    pub place: P,
}

/// The entries that lie together in a directory, damage among them, and where a listing goes on after them.
pub type Batch<P> = (Vec<Result<Entry<P>>>, Cookie);

/// What directories hold. `.` and `..` are not entries.
pub trait Directories: Map {
    /// Where an entry lies. It holds while the directory is not changed.
    type Place: Clone;

    /// Looks a name up. Fails with `Corrupt` if it may have stood where the damage is, or if the device fails.
    fn find(
        &self,
        op: &Op<'_, Self>,
        dir: &Inode<Self::Map>,
        name: &Name,
    ) -> Result<Option<Entry<Self::Place>>>;

    /// The next entries from a cookie on; `None` if there are none. Fails with `Corrupt`, or if the device fails.
    fn list(
        &self,
        op: &Op<'_, Self>,
        dir: &Inode<Self::Map>,
        from: Cookie,
    ) -> Result<Option<Batch<Self::Place>>>;

    /// Names an inode; nothing has this name. Fails with `NoSpace` or `Corrupt`, or if the device fails.
    fn insert(
        &self,
        op: &mut Op<'_, Self>,
        dir: &mut Inode<Self::Map>,
        name: &Name,
        target: &Inode<Self::Map>,
    ) -> Result<()>;

    /// Takes an entry out. Fails if the device fails.
    fn remove(
        &self,
        op: &mut Op<'_, Self>,
        dir: &mut Inode<Self::Map>,
        entry: &Entry<Self::Place>,
    ) -> Result<()>;

    /// Lets a name lead to another inode. Fails if the device fails.
    fn retarget(
        &self,
        op: &mut Op<'_, Self>,
        entry: &Entry<Self::Place>,
        target: &Inode<Self::Map>,
    ) -> Result<()>;

    /// What is wrong with where an entry lies, for the check: a code, and words that follow "has NAME".
    fn misplaced(
        &self,
        dir: &Inode<Self::Map>,
        entry: &Entry<Self::Place>,
    ) -> Option<(&'static str, String)> {
        let _ = (dir, entry);
        None
    }
}
