//! Inodes. The formats have none: their attributes come from directory entries.

use alloc::vec::Vec;

use obento_base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode, Timestamp};

use crate::owner::Owner;
use crate::time::Zone;

/// The root directory. The inode number of another file is the location of its entry in units of 32 bytes. The number
/// 1 is free for the root, because no entry is in the boot sector.
pub const ROOT: Ino = Ino(1);

/// The times of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Time of the last change of data.
    pub mtime: Timestamp,
    /// Time of the last read access.
    pub atime: Timestamp,
    /// Time of creation, if known.
    pub btime: Option<Timestamp>,
}

/// The attributes of a file in a directory entry, as the format stores them.
pub trait FileEntry: Clone + Send + Sync + 'static {
    /// Creates the attributes of a new file or directory, without name, times and clusters.
    fn new(kind: FileKind) -> Self;

    /// Returns whether this is a file or a directory.
    fn file_kind(&self) -> FileKind;

    /// Returns whether the file is read-only.
    fn is_read_only(&self) -> bool;

    /// Sets or clears the read-only attribute.
    fn set_read_only(&mut self, is_read_only: bool);

    /// Sets the archive attribute: the file changed since the last backup.
    fn set_archive(&mut self);

    /// Returns the times. Times without a time zone are in `zone`.
    fn times(&self, zone: Zone) -> Times;

    /// Sets the time of the last change of data.
    fn set_mtime(&mut self, moment: Timestamp, zone: Zone);

    /// Sets the time of the last read access.
    fn set_atime(&mut self, moment: Timestamp, zone: Zone);

    /// Sets the time of creation.
    fn set_btime(&mut self, moment: Timestamp, zone: Zone);

    /// Encodes the attributes for another process ([`from_bytes`](Self::from_bytes)).
    fn to_bytes(&self) -> Vec<u8>;

    /// Decodes attributes that [`to_bytes`](Self::to_bytes) encoded. Returns `None` for other bytes.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;

    /// Sets all three times.
    fn stamp(&mut self, moment: Timestamp, zone: Zone) {
        self.set_mtime(moment, zone);
        self.set_atime(moment, zone);
        self.set_btime(moment, zone);
    }
}

/// An inode, with the attributes of its directory entry.
#[derive(Clone, Copy, Debug)]
pub struct Inode<E> {
    /// Inode number.
    pub ino: Ino,
    /// Attributes of the directory entry. The root has no entry, so its attributes contain only the type.
    pub entry: E,
    /// Number of files that had this inode number before.
    pub generation: Generation,
    /// Whether it has a name.
    pub is_named: bool,
}

impl<E: FileEntry> Inode<E> {
    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.entry.file_kind() == FileKind::Directory
    }

    /// Returns the attributes of a file or directory of `size` bytes on a volume with clusters of `cluster_size`.
    pub fn attr(&self, owner: &Owner, size: u64, cluster_size: u32) -> Attr {
        let is_dir = self.is_dir();
        let Times { mtime, atime, btime } = self.entry.times(owner.zone);
        let mask = if is_dir { owner.dir_mask } else { owner.file_mask };
        // Windows displays a read-only directory differently, and forbids no changes in it.
        let forbidden = if self.entry.is_read_only() && !is_dir { 0o222 } else { 0 };
        let cluster = u64::from(cluster_size);
        Attr {
            ino: self.ino,
            generation: self.generation,
            kind: self.entry.file_kind(),
            mode: Mode::new(0o777).without(mask).without(Mode::new(forbidden)),
            nlink: self.is_named.into(),
            uid: owner.uid,
            gid: owner.gid,
            rdev: DeviceNumber::default(),
            size,
            blocks: size.div_ceil(cluster.max(1)).saturating_mul(cluster / 512),
            block_size: cluster_size,
            atime,
            mtime,
            ctime: mtime,
            btime,
            flags: if is_dir { FileFlags::CASEFOLD } else { FileFlags::empty() },
            change: mtime.secs().unsigned_abs(),
            project: 0,
        }
    }
}
