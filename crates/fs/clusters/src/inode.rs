//! Inodes, which the formats do not have: what a directory says of a file.

use obento_base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode, Timestamp};

use crate::owner::Owner;
use crate::time::Zone;

/// The root directory: no entry lies at byte 32 of a volume, which is in the boot sector.
pub const ROOT: Ino = Ino(1);

/// The times of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// When its data changed.
    pub mtime: Timestamp,
    /// When it was read.
    pub atime: Timestamp,
    /// When it was made, where that is known.
    pub btime: Option<Timestamp>,
}

/// What a directory says of a file, by the bytes of the format.
pub trait FileEntry: Clone + Send + Sync + 'static {
    /// That of a new file or directory, without name, times and clusters.
    fn new(kind: FileKind) -> Self;

    /// File or directory.
    fn file_kind(&self) -> FileKind;

    /// Returns whether nobody may write it.
    fn is_read_only(&self) -> bool;

    /// Lets nobody write it, or lets them again.
    fn set_read_only(&mut self, is_read_only: bool);

    /// Notes that it changed since the last backup.
    fn set_archive(&mut self);

    /// Its times, where the clock that wrote them was in `zone` if they do not say.
    fn times(&self, zone: Zone) -> Times;

    /// Sets when its data changed.
    fn set_mtime(&mut self, moment: Timestamp, zone: Zone);

    /// Sets when it was read.
    fn set_atime(&mut self, moment: Timestamp, zone: Zone);

    /// Sets when it was made.
    fn set_btime(&mut self, moment: Timestamp, zone: Zone);

    /// Sets all three.
    fn stamp(&mut self, moment: Timestamp, zone: Zone) {
        self.set_mtime(moment, zone);
        self.set_atime(moment, zone);
        self.set_btime(moment, zone);
    }
}

/// What is in use, with what its directory says of it.
#[derive(Clone, Copy, Debug)]
pub struct Inode<E> {
    /// Its number.
    pub ino: Ino,
    /// What its directory says; of the root, in which none lies, that it is a directory.
    pub entry: E,
    /// Which life of the number.
    pub generation: Generation,
    /// Whether it has a name.
    pub is_named: bool,
}

impl<E: FileEntry> Inode<E> {
    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.entry.file_kind() == FileKind::Directory
    }

    /// Returns the attributes, of a file or directory of `size` bytes in clusters of `cluster_size`.
    pub fn attr(&self, owner: &Owner, size: u64, cluster_size: u32) -> Attr {
        let is_dir = self.is_dir();
        let Times { mtime, atime, btime } = self.entry.times(owner.zone);
        let mask = if is_dir { owner.dir_mask } else { owner.file_mask };
        // A directory that is read-only is a folder that Windows shows otherwise, and nothing is forbidden in it.
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
