//! Recognising and opening a volume.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use obento_base::{Error, Mode, Result};
use obento_block::BlockDevice;
use obento_env::Clock;

use crate::{Build, Check, FileSystem, Format};

/// The properties of a volume that are known without opening it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Probe {
    /// Type. More specific than the name of the driver if one driver supports several types: `ext2`,
    /// `ext3`, `ext4`.
    pub fs_type: &'static str,
    /// Label; empty if the volume has none.
    pub label: Vec<u8>,
    /// UUID, if the format has one.
    pub uuid: Option<[u8; 16]>,
    /// Serial number, for a format that has no UUID; displayed as `1234-ABCD`.
    pub serial: Option<u32>,
    /// Identifier as text, for a format that has neither: the time of the last change of ISO 9660, 16 digits of UDF and NTFS.
    pub text_id: Option<String>,
    /// Length in bytes according to the volume. Greater than the length of the device if the image is
    /// truncated.
    pub len: u64,
    /// How the driver recognised the volume.
    pub evidence: Evidence,
}

/// How a driver recognised a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Evidence {
    /// The signature of the format is where the format requires it.
    #[default]
    Signature,
    /// The signature is missing, and a copy of the super block or plausible fields are present. The signature of any other
    /// format outweighs such traces.
    Traces,
}

/// The intended use of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Reading. The device is never written; a dirty journal is replayed in memory.
    #[default]
    ReadOnly,
    /// Reading and writing. A dirty journal is replayed onto the device first.
    ReadWrite,
}

/// Treatment of a dirty journal when a volume is opened read-only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replay {
    /// Show the volume as if the journal had been replayed.
    #[default]
    InMemory,
    /// Show the volume without the changes in the journal.
    Skip,
}

/// The guarantee of a journal for file data, as in the mount option `data=` of ext4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataMode {
    /// Data is durable before the commit that makes it reachable.
    #[default]
    Ordered,
    /// Data is written to the journal, like metadata.
    Journal,
    /// Data is written in any order: after a crash, new blocks may contain stale data.
    Writeback,
}

/// Journal options of a writable volume. For a format without a journal, they control when changes are
/// written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journalling {
    /// Guarantee for file data.
    pub mode: DataMode,
    /// Whether commits flush the device. Without flushes, a power cut may destroy the volume; disable them
    /// only for images that are created in one go.
    pub barrier: bool,
    /// Maximum age of a change before it is committed, if the environment provides a thread for that. Zero
    /// disables periodic commits.
    pub commit_interval: Duration,
}

impl Default for Journalling {
    /// Returns the defaults of Linux: `data=ordered,barrier=1,commit=5`.
    fn default() -> Self {
        Self { mode: DataMode::Ordered, barrier: true, commit_interval: Duration::from_secs(5) }
    }
}

/// Presentation of a volume whose format stores no owners, permissions, code page or time zone. `None`
/// selects the default of the driver. A driver of a format that stores these properties ignores the
/// options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// Owner of all files.
    pub uid: Option<u32>,
    /// Group of all files.
    pub gid: Option<u32>,
    /// Permission bits to remove from files.
    pub file_mask: Option<Mode>,
    /// Permission bits to remove from directories.
    pub dir_mask: Option<Mode>,
    /// Code page of short names.
    pub code_page: Option<u16>,
    /// Offset from UTC in minutes of the clocks that wrote the timestamps.
    pub time_offset: Option<i16>,
    /// Whether to keep trailing dots of names, which Windows and Linux remove.
    pub keep_last_dots: bool,
    /// Whether to discard freed space once its release is durable.
    pub discard: bool,
    /// Number of the tree to use as the root, for a format with several trees; for Btrfs, the `subvolid` of
    /// Linux.
    pub subvolume: Option<u64>,
    /// Whether to hide the alternate data streams of NTFS, which are extended attributes otherwise.
    pub hide_streams: bool,
}

/// Options for opening a volume.
#[derive(Clone)]
pub struct OpenOptions {
    /// Intended use.
    pub access: Access,
    /// Treatment of a dirty journal.
    pub replay: Replay,
    /// Block number of the super block to use instead of the primary one, as for `e2fsck -b`: in units of
    /// the block size of the volume; every size is tried.
    pub super_block: Option<u64>,
    /// Whether a volume that is opened for reading verifies the checksums of its metadata.
    pub checksums: Checksums,
    /// Maximum size of the metadata cache in bytes.
    pub cache: usize,
    /// Source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Device of an external journal, if the caller has one.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// Journal options for a writable volume.
    pub journalling: Journalling,
    /// Properties that the format does not store.
    pub shown: Shown,
}

impl OpenOptions {
    /// Returns options for reading, with a cache of 32 MiB.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            access: Access::ReadOnly,
            replay: Replay::InMemory,
            super_block: None,
            checksums: Checksums::Verify,
            cache: 32 << 20,
            clock,
            journal: None,
            journalling: Journalling::default(),
            shown: Shown::default(),
        }
    }
}

/// Whether the checksums of metadata are verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksums {
    /// A structure with a wrong checksum is damaged.
    #[default]
    Verify,
    /// A reader shows whatever decodes. A volume that is opened for changes verifies all the same.
    Ignore,
}

/// A remark about a volume that was opened nevertheless.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A structure is damaged, and a substitute was used.
    Damaged(Error),
    /// The primary super block is damaged, and the backup at this block was used.
    BackupSuperBlock {
        /// Block number of the backup.
        block: u64,
    },
    /// The image is shorter than the volume.
    Truncated {
        /// Length of the volume in bytes.
        expected: u64,
        /// Length of the image in bytes.
        found: u64,
    },
    /// The journal was dirty; the volume is shown with this number of transactions replayed in memory.
    Replayed {
        /// Number of replayed transactions.
        transactions: u64,
    },
    /// The journal is dirty and was not replayed at the request of the caller.
    NotReplayed,
    /// The journal is dirty and cannot be replayed; the volume is shown without its changes.
    ReplayFailed(Error),
    /// The journal is on another device, which was not given.
    JournalMissing {
        /// UUID of the journal device.
        uuid: [u8; 16],
    },
    /// The previous user marked the volume as containing errors.
    MarkedWithErrors,
    /// The program that opened the volume leaves out a part of it.
    Hidden {
        /// The part, for people: `access control lists`.
        what: &'static str,
        /// The option that the program was built without.
        option: &'static str,
    },
}

/// A property of a volume in the terms of its format, for `info`: `("inode size", "256")`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// Name of the property.
    pub name: &'static str,
    /// Value of the property.
    pub value: String,
}

/// Description of an open volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeInfo {
    /// Type, label, UUID and length.
    pub probe: Probe,
    /// Names of the enabled features, as the format's own tools spell them.
    pub features: Vec<String>,
    /// State: `clean`, `needs recovery`, `has errors`, ...
    pub state: String,
    /// Remarks for the user.
    pub notices: Vec<Notice>,
    /// Further properties in the terms of the format.
    pub facts: Vec<Fact>,
}

/// A format: recognises, opens, creates and checks its volumes.
pub trait Driver: Send + Sync {
    /// Returns the names that `-t TYPE` accepts, the most general first: `["ext4", "ext3", "ext2"]`.
    fn names(&self) -> &'static [&'static str];

    /// Checks the signature on `device`. Returns `None` if the device contains no volume of this format.
    /// Reads a few blocks and trusts little: `open` reports a wrong checksum, not `probe`.
    ///
    /// # Errors
    ///
    /// - `Device`: the device failed.
    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>>;

    /// Opens the volume that occupies `device`.
    ///
    /// # Errors
    ///
    /// 1. `Corrupt`: no usable super block exists.
    /// 2. `Unsupported`: the volume has an incompatible feature that the driver does not support.
    /// 3. `ReadOnly`, with `Access::ReadWrite`: the device or the driver cannot write.
    /// 4. `Unsupported`, with `Access::ReadWrite`: the volume has a feature that the driver can only read.
    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>>;

    /// Returns the operations that create empty volumes, if the driver has them.
    fn format(&self) -> Option<&dyn Format> {
        None
    }

    /// Returns the operations that build volumes with contents, if the driver has them.
    fn build(&self) -> Option<&dyn Build> {
        None
    }

    /// Returns the operations that check volumes, if the driver has them.
    fn check(&self) -> Option<&dyn Check> {
        None
    }
}
