//! Inodes. The format has none: the attributes of a file come from its entry set.

use alloc::vec::Vec;

use bitflags::bitflags;
use obento_base::wire::{FromBytes as _, FromZeros as _, IntoBytes as _, le};
use obento_base::{FileKind, Timestamp};
use obento_clusters::{FileEntry, Times, Zone};

use crate::raw::{RawEntry, RawFile, RawStream};
use crate::set::EntrySet;
use crate::super_block::SuperBlock;
use crate::time;

bitflags! {
    /// `FileAttributes` (specification, 7.4.4).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Attributes: u16 {
        /// Read-only.
        const READ_ONLY = 0x01;
        /// Hidden in listings.
        const HIDDEN = 0x02;
        /// Belongs to the operating system.
        const SYSTEM = 0x04;
        /// A directory.
        const DIRECTORY = 0x10;
        /// Changed since the last backup.
        const ARCHIVE = 0x20;
        const _ = !0;
    }
}

/// An inode in use, with its entry set. The set of the root contains its clusters.
pub type Inode = obento_clusters::Inode<EntrySet>;

impl EntrySet {
    /// Returns the attributes.
    pub fn attributes(&self) -> Attributes {
        Attributes::from_bits_retain(self.file.FileAttributes.get())
    }

    fn set_attributes(&mut self, attributes: Attributes) {
        self.file.FileAttributes = le::U16::new(attributes.bits());
    }

    /// Returns the set for the root directory, which has `len` bytes.
    pub fn root(sb: &SuperBlock, len: u64) -> Self {
        let mut file = RawFile::new_zeroed();
        file.FileAttributes = le::U16::new(Attributes::DIRECTORY.bits());
        let mut stream = RawStream::new_zeroed();
        stream.GeneralSecondaryFlags = crate::set::ALLOCATION;
        stream.FirstCluster = le::U32::new(sb.root.0);
        (stream.DataLength, stream.ValidDataLength) = (le::U64::new(len), le::U64::new(len));
        Self { file, stream, rest: Vec::new() }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.stream.DataLength.get()
    }

    /// Returns the valid length: bytes past it read as zeros.
    pub fn valid(&self) -> u64 {
        self.stream.ValidDataLength.get()
    }
}

impl FileEntry for EntrySet {
    fn new(kind: FileKind) -> Self {
        let mut set = Self::named(&[], 0);
        let is_dir = kind == FileKind::Directory;
        set.set_attributes(if is_dir { Attributes::DIRECTORY } else { Attributes::ARCHIVE });
        set
    }

    fn file_kind(&self) -> FileKind {
        if self.attributes().contains(Attributes::DIRECTORY) {
            FileKind::Directory
        } else {
            FileKind::Regular
        }
    }

    fn is_read_only(&self) -> bool {
        self.attributes().contains(Attributes::READ_ONLY)
    }

    fn set_read_only(&mut self, is_read_only: bool) {
        let mut attributes = self.attributes();
        attributes.set(Attributes::READ_ONLY, is_read_only);
        self.set_attributes(attributes);
    }

    fn set_archive(&mut self) {
        self.set_attributes(self.attributes() | Attributes::ARCHIVE);
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.entries().iter().flat_map(|entry| entry.as_bytes().iter().copied()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let entries = bytes.chunks(size_of::<RawEntry>()).map(|entry| RawEntry::read_from_bytes(entry).ok());
        Self::parse(&entries.collect::<Option<Vec<_>>>()?).ok()
    }

    fn times(&self, zone: Zone) -> Times {
        let file = &self.file;
        let moment = |stamp: le::U32, hundredths, offset| time::decode(stamp.get(), hundredths, offset, zone);
        Times {
            mtime: moment(
                file.LastModifiedTimestamp,
                file.LastModified10msIncrement,
                file.LastModifiedUtcOffset,
            ),
            atime: moment(file.LastAccessedTimestamp, 0, file.LastAccessedUtcOffset),
            btime: Some(moment(file.CreateTimestamp, file.Create10msIncrement, file.CreateUtcOffset)),
        }
    }

    fn set_mtime(&mut self, moment: Timestamp, zone: Zone) {
        let (stamp, hundredths, offset) = time::encode(moment, zone);
        self.file.LastModifiedTimestamp = le::U32::new(stamp);
        (self.file.LastModified10msIncrement, self.file.LastModifiedUtcOffset) = (hundredths, offset);
    }

    fn set_atime(&mut self, moment: Timestamp, zone: Zone) {
        let (stamp, _, offset) = time::encode(moment, zone);
        (self.file.LastAccessedTimestamp, self.file.LastAccessedUtcOffset) = (le::U32::new(stamp), offset);
    }

    fn set_btime(&mut self, moment: Timestamp, zone: Zone) {
        let (stamp, hundredths, offset) = time::encode(moment, zone);
        self.file.CreateTimestamp = le::U32::new(stamp);
        (self.file.Create10msIncrement, self.file.CreateUtcOffset) = (hundredths, offset);
    }
}
