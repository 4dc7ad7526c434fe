//! Inodes, which the format does not have: what a directory entry says of its file.

use bitflags::bitflags;
use obento_base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode};

use crate::name::ShortName;
use crate::options::FatOptions;
use crate::raw::RawEntry;
use crate::super_block::{SuperBlock, Width};
use crate::time;
use crate::unit::Cluster;

/// The root directory: no entry lies at byte 32 of a volume, which is in the boot sector.
pub const ROOT: Ino = Ino(1);

bitflags! {
    /// `DIR_Attr` (fatgen103, "FAT Directory Structure").
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Attributes: u8 {
        /// Not to be written.
        const READ_ONLY = 0x01;
        /// Not listed.
        const HIDDEN = 0x02;
        /// Of the operating system.
        const SYSTEM = 0x04;
        /// The volume's label, or part of a long name.
        const VOLUME_ID = 0x08;
        /// A directory.
        const DIRECTORY = 0x10;
        /// Changed since the last backup.
        const ARCHIVE = 0x20;
        const _ = !0;
    }
}

/// The attributes of a part of a long name, among the six that count.
const LONG_NAME: u8 = 0x0f;
const KNOWN: u8 = 0x3f;

/// What 32 bytes of a directory are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing follows.
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
    /// What these bytes are.
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

    /// The short name.
    pub fn name(&self) -> ShortName {
        ShortName(self.DIR_Name)
    }

    /// The attributes.
    pub fn attributes(&self) -> Attributes {
        Attributes::from_bits_retain(self.DIR_Attr)
    }

    /// The kind of file.
    pub fn file_kind(&self) -> FileKind {
        if self.attributes().contains(Attributes::DIRECTORY) {
            FileKind::Directory
        } else {
            FileKind::Regular
        }
    }

    /// The first cluster, if there is one. Its upper half counts on FAT32 alone.
    pub fn first(&self, width: Width) -> Option<Cluster> {
        let high = if width == Width::Fat32 { self.DIR_FstClusHI.get() } else { 0 };
        let number = u32::from(self.DIR_FstClusLO.get()) | u32::from(high) << 16;
        (number != 0).then_some(Cluster(number))
    }
}

/// What is in use, with its entry.
#[derive(Clone, Copy, Debug)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Its entry; the root directory's says nothing but that it is a directory.
    pub raw: RawEntry,
    /// Which life of the number.
    pub generation: Generation,
    /// Whether it has a name.
    pub is_named: bool,
}

impl Inode {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.raw.file_kind() == FileKind::Directory
    }

    /// The size of a file; a directory's entry says nothing of it.
    pub fn size(&self) -> u64 {
        if self.is_dir() { 0 } else { self.raw.DIR_FileSize.get().into() }
    }

    /// The attributes, of a file or directory of `size` bytes.
    pub fn attr(&self, sb: &SuperBlock, options: &FatOptions, size: u64) -> Attr {
        let raw = &self.raw;
        let is_dir = self.is_dir();
        let zone = options.zone;
        let mtime = time::decode(raw.DIR_WrtDate.get(), raw.DIR_WrtTime.get(), 0, zone);
        let atime = match raw.DIR_LstAccDate.get() {
            0 => mtime,
            date => time::decode(date, 0, 0, zone),
        };
        let btime = match raw.DIR_CrtDate.get() {
            0 => None,
            date => Some(time::decode(date, raw.DIR_CrtTime.get(), raw.DIR_CrtTimeTenth, zone)),
        };
        let mask = if is_dir { options.dir_mask } else { options.file_mask };
        // A directory that is read-only is a folder that Windows shows otherwise, and nothing is forbidden in it.
        let forbidden = if raw.attributes().contains(Attributes::READ_ONLY) && !is_dir { 0o222 } else { 0 };
        let cluster = u64::from(sb.cluster_size);
        Attr {
            ino: self.ino,
            generation: self.generation,
            kind: raw.file_kind(),
            mode: Mode::new(0o777).without(mask).without(Mode::new(forbidden)),
            nlink: self.is_named.into(),
            uid: options.uid,
            gid: options.gid,
            rdev: DeviceNumber::default(),
            size,
            blocks: size.div_ceil(cluster).saturating_mul(cluster / 512),
            block_size: sb.cluster_size,
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
