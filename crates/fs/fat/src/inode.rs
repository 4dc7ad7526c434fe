//! Inodes. The format has none: the attributes of a file come from its directory entry.

use alloc::vec::Vec;

use bitflags::bitflags;
use obento_base::wire::{FromBytes as _, FromZeros as _, IntoBytes as _, le};
use obento_base::{FileKind, Timestamp};
use obento_clusters::{FileEntry, Times, Zone};

use crate::name::ShortName;
use crate::raw::RawEntry;
use crate::super_block::Width;
use crate::time;
use crate::unit::Cluster;

bitflags! {
    /// `DIR_Attr` (fatgen103, "FAT Directory Structure").
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Attributes: u8 {
        /// Read-only.
        const READ_ONLY = 0x01;
        /// Hidden in listings.
        const HIDDEN = 0x02;
        /// Belongs to the operating system.
        const SYSTEM = 0x04;
        /// The label of the volume, or a part of a long name.
        const VOLUME_ID = 0x08;
        /// A directory.
        const DIRECTORY = 0x10;
        /// Changed since the last backup.
        const ARCHIVE = 0x20;
        const _ = !0;
    }
}

/// The attributes of a part of a long name, within the six defined bits.
pub const LONG_NAME: u8 = 0x0f;
const KNOWN: u8 = 0x3f;

/// The type of 32 bytes of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The end of the directory.
    End,
    /// Free.
    Free,
    /// A part of a long name.
    LongName,
    /// The label of the volume.
    Label,
    /// `.` or `..`.
    Dots,
    /// A file or directory.
    File,
}

impl RawEntry {
    /// Returns the type of this entry.
    pub fn kind(&self) -> Kind {
        match (self.DIR_Name.first(), self.DIR_Attr & KNOWN) {
            (Some(0), _) => Kind::End,
            (Some(0xe5), _) => Kind::Free,
            (_, LONG_NAME) => Kind::LongName,
            (_, attributes) if attributes & Attributes::VOLUME_ID.bits() != 0 => Kind::Label,
            _ if [ShortName::DOT, ShortName::DOT_DOT].contains(&self.name()) => Kind::Dots,
            _ => Kind::File,
        }
    }

    /// Returns the short name.
    pub fn name(&self) -> ShortName {
        ShortName(self.DIR_Name)
    }

    /// Returns the attributes.
    pub fn attributes(&self) -> Attributes {
        Attributes::from_bits_retain(self.DIR_Attr)
    }

    /// Returns the first cluster, if there is one. Its upper half is valid only on FAT32.
    pub fn first(&self, width: Width) -> Option<Cluster> {
        let high = if width == Width::Fat32 { self.DIR_FstClusHI.get() } else { 0 };
        let number = u32::from(self.DIR_FstClusLO.get()) | u32::from(high) << 16;
        (number != 0).then_some(Cluster(number))
    }
}

/// An inode in use, with its entry. The entry of the root contains only the type.
pub type Inode = obento_clusters::Inode<RawEntry>;

impl RawEntry {
    /// Sets the first cluster.
    pub fn set_first(&mut self, first: Option<Cluster>) {
        let number = first.map_or(0, |first| first.0);
        self.DIR_FstClusLO = le::U16::new(u16::try_from(number & 0xffff).unwrap_or(0));
        self.DIR_FstClusHI = le::U16::new(u16::try_from(number >> 16).unwrap_or(0));
    }

    /// Returns the size of a file; 0 for a directory.
    pub fn size(&self) -> u64 {
        self.DIR_FileSize.get().into()
    }
}

impl FileEntry for RawEntry {
    fn new(kind: FileKind) -> Self {
        let mut raw = Self::new_zeroed();
        let is_dir = kind == FileKind::Directory;
        raw.DIR_Attr = if is_dir { Attributes::DIRECTORY } else { Attributes::ARCHIVE }.bits();
        raw
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
        self.DIR_Attr = attributes.bits();
    }

    fn set_archive(&mut self) {
        self.DIR_Attr |= Attributes::ARCHIVE.bits();
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::read_from_bytes(bytes).ok()
    }

    fn times(&self, zone: Zone) -> Times {
        let mtime = time::decode(self.DIR_WrtDate.get(), self.DIR_WrtTime.get(), 0, zone);
        let atime = match self.DIR_LstAccDate.get() {
            0 => mtime,
            date => time::decode(date, 0, 0, zone),
        };
        let btime = match self.DIR_CrtDate.get() {
            0 => None,
            date => Some(time::decode(date, self.DIR_CrtTime.get(), self.DIR_CrtTimeTenth, zone)),
        };
        Times { mtime, atime, btime }
    }

    fn set_mtime(&mut self, moment: Timestamp, zone: Zone) {
        let (date, time, _) = time::encode(moment, zone);
        (self.DIR_WrtDate, self.DIR_WrtTime) = (le::U16::new(date), le::U16::new(time));
    }

    fn set_atime(&mut self, moment: Timestamp, zone: Zone) {
        self.DIR_LstAccDate = le::U16::new(time::encode(moment, zone).0);
    }

    fn set_btime(&mut self, moment: Timestamp, zone: Zone) {
        let (date, time, hundredths) = time::encode(moment, zone);
        (self.DIR_CrtDate, self.DIR_CrtTime) = (le::U16::new(date), le::U16::new(time));
        self.DIR_CrtTimeTenth = hundredths;
    }
}
