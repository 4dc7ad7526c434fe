//! Inodes, which the format does not have: what an entry set says of its file.

use alloc::vec::Vec;

use bitflags::bitflags;
use obento_base::wire::{FromZeros as _, le};
use obento_base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode};

use crate::options::ExFatOptions;
use crate::raw::{RawFile, RawStream};
use crate::set::EntrySet;
use crate::super_block::SuperBlock;
use crate::time;

/// The root directory: no entry lies at byte 32 of a volume, which is in the boot sector.
pub const ROOT: Ino = Ino(1);

bitflags! {
    /// `FileAttributes` (specification, 7.4.4).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Attributes: u16 {
        /// Not to be written.
        const READ_ONLY = 0x01;
        /// Not listed.
        const HIDDEN = 0x02;
        /// Of the operating system.
        const SYSTEM = 0x04;
        /// A directory.
        const DIRECTORY = 0x10;
        /// Changed since the last backup.
        const ARCHIVE = 0x20;
        const _ = !0;
    }
}

/// What is in use, with its set.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Its set; the root directory's says where it is, and that it is a directory.
    pub set: EntrySet,
    /// Which life of the number.
    pub generation: Generation,
    /// Whether it has a name.
    pub is_named: bool,
}

impl EntrySet {
    /// The attributes.
    pub fn attributes(&self) -> Attributes {
        Attributes::from_bits_retain(self.file.FileAttributes.get())
    }

    /// The kind of file.
    pub fn file_kind(&self) -> FileKind {
        if self.attributes().contains(Attributes::DIRECTORY) {
            FileKind::Directory
        } else {
            FileKind::Regular
        }
    }
}

impl Inode {
    /// The root directory, of so many bytes.
    pub fn root(sb: &SuperBlock, len: u64) -> Self {
        let mut file = RawFile::new_zeroed();
        file.FileAttributes = le::U16::new(Attributes::DIRECTORY.bits());
        let mut stream = RawStream::new_zeroed();
        stream.GeneralSecondaryFlags = crate::set::ALLOCATION;
        stream.FirstCluster = le::U32::new(sb.root.0);
        (stream.DataLength, stream.ValidDataLength) = (le::U64::new(len), le::U64::new(len));
        let set = EntrySet { file, stream, rest: Vec::new() };
        Self { ino: ROOT, set, generation: Generation(0), is_named: true }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.set.file_kind() == FileKind::Directory
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.set.stream.DataLength.get()
    }

    /// How many of them were written; the others read as zeros.
    pub fn valid(&self) -> u64 {
        self.set.stream.ValidDataLength.get()
    }

    /// The attributes.
    pub fn attr(&self, sb: &SuperBlock, options: &ExFatOptions) -> Attr {
        let file = &self.set.file;
        let is_dir = self.is_dir();
        let moment =
            |stamp: le::U32, hundredths, offset| time::decode(stamp.get(), hundredths, offset, options.zone);
        let mtime =
            moment(file.LastModifiedTimestamp, file.LastModified10msIncrement, file.LastModifiedUtcOffset);
        let mask = if is_dir { options.dir_mask } else { options.file_mask };
        // A directory that is read-only is a folder that Windows shows otherwise, and nothing is forbidden in it.
        let forbidden =
            if self.set.attributes().contains(Attributes::READ_ONLY) && !is_dir { 0o222 } else { 0 };
        let cluster = u64::from(sb.cluster_size);
        Attr {
            ino: self.ino,
            generation: self.generation,
            kind: self.set.file_kind(),
            mode: Mode::new(0o777).without(mask).without(Mode::new(forbidden)),
            nlink: self.is_named.into(),
            uid: options.uid,
            gid: options.gid,
            rdev: DeviceNumber::default(),
            size: self.size(),
            blocks: self.size().div_ceil(cluster).saturating_mul(cluster / 512),
            block_size: sb.cluster_size,
            atime: moment(file.LastAccessedTimestamp, 0, file.LastAccessedUtcOffset),
            mtime,
            ctime: mtime,
            btime: Some(moment(file.CreateTimestamp, file.Create10msIncrement, file.CreateUtcOffset)),
            flags: if is_dir { FileFlags::CASEFOLD } else { FileFlags::empty() },
            change: mtime.secs().unsigned_abs(),
            project: 0,
        }
    }
}
