//! Recognising and opening a volume.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use obento_base::{Error, Mode, Result};
use obento_block::BlockDevice;
use obento_env::Clock;

use crate::{Build, Check, FileSystem, Format};

/// What a signature tells about a volume without opening it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Probe {
    /// The type's name, more exact than the driver's where one driver serves several: `ext2`, `ext3`, `ext4`.
    pub fs_type: &'static str,
    /// The label; empty if there is none.
    pub label: Vec<u8>,
    /// The UUID, if the format has one.
    pub uuid: Option<[u8; 16]>,
    /// The serial number, of a format that has no UUID: written as `1234-ABCD`.
    pub serial: Option<u32>,
    /// Length of the volume in bytes as it says itself: more than the device has if the image is cut short.
    pub len: u64,
}

/// What the caller means to do with a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Not a byte of the device is written; a dirty journal is replayed into memory.
    #[default]
    ReadOnly,
    /// Changes, after a dirty journal was replayed onto the device.
    ReadWrite,
}

/// What to do with a dirty journal on a read-only open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replay {
    /// Show the volume as if it had been replayed.
    #[default]
    InMemory,
    /// Show the state before the journal.
    Skip,
}

/// What a journal promises about the data of files, as ext4's mount option `data=` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataMode {
    /// Data is durable before the commit that makes it reachable.
    #[default]
    Ordered,
    /// Data goes through the journal like metadata.
    Journal,
    /// In no order: after a crash, blocks that were new may show what they held before.
    Writeback,
}

/// How a format with a journal uses it when a volume is open for changes, and when one without writes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journalling {
    /// What holds for the data of files.
    pub mode: DataMode,
    /// Whether commits flush the device. Without, a power cut may destroy the volume; for images that are made in one go.
    pub barrier: bool,
    /// How old a change becomes at most before it is committed, where the environment gives a thread for that; zero:
    /// until somebody asks.
    pub commit_interval: Duration,
}

impl Default for Journalling {
    /// `data=ordered,barrier=1,commit=5`, as Linux.
    fn default() -> Self {
        Self { mode: DataMode::Ordered, barrier: true, commit_interval: Duration::from_secs(5) }
    }
}

/// How a volume is shown whose format keeps no owners, permissions, code page or time zone: `None` leaves it to the driver.
/// A driver of a format that keeps them does not look at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// The owner of all files.
    pub uid: Option<u32>,
    /// Their group.
    pub gid: Option<u32>,
    /// Permissions that no file has.
    pub file_mask: Option<Mode>,
    /// Permissions that no directory has.
    pub dir_mask: Option<Mode>,
    /// What the bytes of short names mean.
    pub code_page: Option<u16>,
    /// How many minutes the clocks that wrote times are ahead of UTC.
    pub time_offset: Option<i16>,
    /// Whether names may end with dots, which Windows and Linux drop.
    pub keep_last_dots: bool,
    /// Whether the device is told what is freed, once that is durable.
    pub discard: bool,
    /// Which tree is the root, of a format that has several: its number, for Btrfs what Linux calls `subvolid`.
    pub subvolume: Option<u64>,
}

/// How to open a volume.
#[derive(Clone)]
pub struct OpenOptions {
    /// Reading or changing.
    pub access: Access,
    /// What to do with a dirty journal.
    pub replay: Replay,
    /// Use the super block at this block instead of the primary one, as `e2fsck -b` does: in units of the volume's
    /// block size, tried with each size.
    pub super_block: Option<u64>,
    /// Bytes of metadata to keep in memory.
    pub cache: usize,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// The device of an external journal, if the caller has one.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// How the journal is used for changes.
    pub journalling: Journalling,
    /// What the format does not say.
    pub shown: Shown,
}

impl OpenOptions {
    /// Read-only, with a cache of 32 MiB.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            access: Access::ReadOnly,
            replay: Replay::InMemory,
            super_block: None,
            cache: 32 << 20,
            clock,
            journal: None,
            journalling: Journalling::default(),
            shown: Shown::default(),
        }
    }
}

/// Something a person should know about a volume that was opened all the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A structure was damaged and something else stood in for it.
    Damaged(Error),
    /// The primary super block is damaged; the copy at this block was used.
    BackupSuperBlock {
        /// Block number of the copy.
        block: u64,
    },
    /// The image has fewer bytes than the volume.
    Truncated {
        /// Bytes the volume should have.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The journal was dirty; what is shown is the state after replaying so many transactions, in memory.
    Replayed {
        /// Transactions replayed.
        transactions: u64,
    },
    /// The journal is dirty and was not replayed, because the caller asked for that.
    NotReplayed,
    /// The journal is dirty and could not be replayed: the volume is shown without it.
    ReplayFailed(Error),
    /// The journal is on another device that was not given.
    JournalMissing {
        /// UUID of the device that holds it.
        uuid: [u8; 16],
    },
    /// The file system was marked as having errors by whoever used it last.
    MarkedWithErrors,
}

/// A fact about a volume in words of its format, for `info`: `("inode size", "256")`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// What.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

/// What an open volume is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeInfo {
    /// Type, label, UUID and length.
    pub probe: Probe,
    /// Names of the features that are on, as the format's own tools spell them.
    pub features: Vec<String>,
    /// `clean`, `needs recovery`, `has errors`, ...
    pub state: String,
    /// What a person should know.
    pub notices: Vec<Notice>,
    /// More, in the format's own words.
    pub facts: Vec<Fact>,
}

/// A format: recognises and opens its volumes.
pub trait Driver: Send + Sync {
    /// The names that `-t TYPE` accepts, the most general first: `["ext4", "ext3", "ext2"]`.
    fn names(&self) -> &'static [&'static str];

    /// Looks at the signature. `None`: not of this format. Reads a few blocks at most and believes little: a wrong
    /// checksum is for `open` to tell. Errors: those of the device.
    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>>;

    /// Opens the volume that fills `device`. Errors, the first that holds: Corrupt without any usable super block;
    /// Unsupported for an incompatible feature that the driver lacks; with `Access::ReadWrite`: ReadOnly if the
    /// device or the driver cannot write, Unsupported for a feature that it can only read.
    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>>;

    /// Making new volumes, for a driver that can.
    fn format(&self) -> Option<&dyn Format> {
        None
    }

    /// Making volumes with a tree in them, for a driver that can.
    fn build(&self) -> Option<&dyn Build> {
        None
    }

    /// Checking volumes, for a driver that can.
    fn check(&self) -> Option<&dyn Check> {
        None
    }
}
