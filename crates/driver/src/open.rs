//! Recognising and opening a volume.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use bitflags::bitflags;
use obento_base::{Error, Ino, Mode, Result};
use obento_block::{BlockDevice, RedoLog};
use obento_env::{Clock, IN_KERNEL};

use crate::{Build, Check, FileSystem, Format, Probe, Resize, Tune, Undelete};

/// The operations for which a volume is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Reading. The driver never writes to the device. [`OpenOptions::replay`] selects the treatment of a dirty
    /// journal.
    #[default]
    ReadOnly,
    /// Reading and writing. The driver first replays a dirty journal onto the device.
    ReadWrite,
}

/// Treatment of a dirty journal when a volume is opened read-only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replay {
    /// Presents the volume as if the journal had been replayed.
    #[default]
    InMemory,
    /// Presents the volume without the changes in the journal. With the kernel engine, `open` fails with
    /// `Unsupported`.
    Skip,
}

/// The guarantee of a journal for file data, as in the mount option `data=` of ext4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataMode {
    /// The driver makes data durable before it commits the metadata that refers to the data.
    #[default]
    Ordered,
    /// The driver writes data to the journal, like metadata.
    Journal,
    /// The driver writes data in any order. After a crash, new blocks of a file may contain old contents of the
    /// device.
    Writeback,
}

/// Journal options of a writable volume. For a format without a journal, they control when changes are
/// written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journalling {
    /// Guarantee for file data.
    pub mode: DataMode,
    /// Whether commits flush the device. Without flushes, a power failure may destroy the volume. Disable flushes
    /// only while creating an image that would be created again after a failure. Only ext4 supports this option; other
    /// drivers always flush.
    pub barrier: bool,
    /// Maximum age of a change before the driver commits the change. The limit requires an environment with threads.
    /// Zero disables commits by age.
    ///
    /// Exception: xv6 starts no thread. Before each change, xv6 commits the earlier changes if the oldest of them has
    /// reached this age. xv6 rounds the age down to whole seconds, and up to one second if it is shorter.
    pub commit_interval: Duration,
}

impl Default for Journalling {
    /// Returns the defaults of Linux: `data=ordered,barrier=1,commit=5`.
    fn default() -> Self {
        Self { mode: DataMode::Ordered, barrier: true, commit_interval: Duration::from_secs(5) }
    }
}

/// Options that only some formats support. `None` selects the default of the driver. A driver ignores an
/// option that its format does not need, for example `uid` if the format stores owners. Exception: FAT
/// rejects `keep_last_dots`, and a `code_page` that the driver does not support, with `NotSupported`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeOptions {
    /// Owner of all files.
    pub uid: Option<u32>,
    /// Group of all files.
    pub gid: Option<u32>,
    /// Permission bits to remove from files.
    pub file_mask: Option<Mode>,
    /// Permission bits to remove from directories.
    pub dir_mask: Option<Mode>,
    /// Code page of the short names of FAT.
    pub code_page: Option<u16>,
    /// Local time minus UTC, in minutes, for formats that store local times: 60 for UTC+1.
    pub time_offset: Option<i16>,
    /// Whether a name may end with a dot (exFAT). By default, creating such a name fails with `Invalid`.
    /// Linux removes the dot instead.
    pub keep_last_dots: bool,
    /// Whether to discard freed space after the change that freed the space is durable.
    pub discard: bool,
    /// Number of the tree to use as the root, for a format with several trees. For Btrfs, this is the `subvolid` of
    /// Linux.
    pub subvolume: Option<u64>,
    /// Whether to hide the alternate data streams of NTFS. By default, streams are extended attributes.
    pub hide_streams: bool,
}

bitflags! {
    /// The kinds of owners whose quota limits a driver enforces.
    ///
    /// A call that would exceed a hard limit, or a soft limit whose grace period has ended, fails with
    /// `QuotaExceeded`. No limit applies to a thread within
    /// [`without_limits`](obento_env::thread::without_limits). The usage is updated whether limits are
    /// enforced or not.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct QuotaLimits: u8 {
        /// The limits of users.
        const USERS = 1;
        /// The limits of groups.
        const GROUPS = 2;
        /// The limits of projects.
        const PROJECTS = 4;
    }
}

/// Options for opening a volume.
#[derive(Clone)]
pub struct OpenOptions {
    /// Whether the caller reads, or reads and writes.
    pub access: Access,
    /// Treatment of a dirty journal, with `Access::ReadOnly`.
    pub replay: Replay,
    /// Block number of the super block to use instead of the primary one, as for `e2fsck -b` (ext4). The unit is the
    /// block size of the volume; the driver tries every block size. With the kernel engine, `open` fails with
    /// `Unsupported`. Other drivers ignore this option.
    pub super_block: Option<u64>,
    /// The result of [`Driver::probe`] for this device. The device must not have changed since the call of `probe`.
    /// `None` if the caller has not called `probe`, or if the driver did not recognise the volume.
    pub probe: Option<Probe>,
    /// Whether a volume that is opened for reading verifies the checksums of its metadata.
    pub checksums: Checksums,
    /// Maximum size of the metadata cache in bytes. If the value is below the minimum of the driver, the
    /// driver uses its minimum: at least 128 blocks for a [`Cache`](obento_block::Cache). The size does not
    /// include changed blocks that are not written yet.
    pub cache: usize,
    /// Source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Device of the external journal; `None` if the caller cannot provide the device.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// Journal options for a writable volume.
    pub journalling: Journalling,
    /// The limits to enforce on a volume that is opened for changes.
    pub limits: QuotaLimits,
    /// Options that only some formats support.
    pub shown: VolumeOptions,
    /// The state that another process passed to this process. The other process has the volume open, or had it open.
    pub adopt: Option<Arc<HandoverState>>,
    /// The log with the changes that a failed process published. The driver first applies these changes to
    /// the volume. It then adds its own changes to the log ([`Failover`](crate::Failover)). A driver without
    /// this capability ignores the log.
    pub redo: Option<Arc<dyn RedoLog>>,
}

/// The state of a volume that one process passes to another ([`Handover`](crate::Handover)). The driver of the second
/// process continues where the driver of the first process stopped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HandoverState {
    /// The inodes that the caller of the first process used, sorted by number. Opening the volume does not
    /// free an inode of this list, even if the inode has no name. These inodes are in use after the call: the
    /// caller must call `forget` for each of them.
    pub inodes: Vec<Ino>,
    /// The state that [`Handover::prepare`](crate::Handover::prepare) returned.
    pub state: Vec<u8>,
}

impl HandoverState {
    /// Returns whether the list contains `ino`.
    pub fn uses(&self, ino: Ino) -> bool {
        self.inodes.binary_search(&ino).is_ok()
    }
}

impl OpenOptions {
    /// Returns options for reading, with a cache of 32 MiB.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            access: Access::ReadOnly,
            replay: Replay::InMemory,
            super_block: None,
            probe: None,
            checksums: Checksums::Verify,
            cache: 32 << 20,
            clock,
            journal: None,
            journalling: Journalling::default(),
            limits: QuotaLimits::empty(),
            shown: VolumeOptions::default(),
            adopt: None,
            redo: None,
        }
    }

    /// Returns the log with the changes of a failed process. Returns `None` in a kernel module: after a
    /// failure in the kernel, no other process continues.
    pub fn redo_log(&self) -> Option<&Arc<dyn RedoLog>> {
        self.redo.as_ref().filter(|_| !IN_KERNEL)
    }
}

/// Whether the checksums of metadata are verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksums {
    /// The driver reports a structure with a wrong checksum as damaged.
    #[default]
    Verify,
    /// The driver ignores wrong checksums (ext4), or uses the chain of a file in another FAT if the chain in the first
    /// FAT is not complete (FAT). This has no effect on a volume that is opened for changes: the driver then verifies
    /// all checksums. With the kernel engine, `open` fails with `Unsupported`. Other drivers treat this value as
    /// [`Verify`](Self::Verify).
    Ignore,
    /// Like [`Ignore`](Self::Ignore), but the kernel engine treats this value as [`Verify`](Self::Verify).
    IgnoreIfSupported,
}

/// A remark about a volume. The volume was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A structure is damaged. The driver used a substitute.
    Damaged(Error),
    /// The driver used the super block at this block: the primary one is damaged, or
    /// [`OpenOptions::super_block`] selects this one.
    BackupSuperBlock {
        /// Block number of the used super block.
        block: u64,
    },
    /// The file allocation table `damaged` has more impossible entries than the table `used`. Free space is counted in the
    /// table `used`. A reader that ignores checksums uses this table for a chain that `damaged` does not have in full. The
    /// first table has number 0.
    BackupTable {
        /// Number of the damaged table.
        damaged: u8,
        /// Number of the table with fewer impossible entries.
        used: u8,
    },
    /// The image is shorter than the volume.
    Truncated {
        /// Length of the volume in bytes.
        expected: u64,
        /// Length of the image in bytes.
        found: u64,
    },
    /// The journal was dirty. The driver replayed this number of transactions: in memory with
    /// [`Access::ReadOnly`], and onto the device with [`Access::ReadWrite`].
    Replayed {
        /// Number of replayed transactions.
        transactions: u64,
    },
    /// The journal is dirty. The driver did not replay the journal, because the caller requested [`Replay::Skip`].
    NotReplayed,
    /// The journal is dirty and cannot be replayed. The volume lacks the changes in the journal.
    ReplayFailed(Error),
    /// The journal is on another device, which the caller did not provide.
    JournalMissing {
        /// UUID of the journal device.
        uuid: [u8; 16],
    },
    /// The driver that last had the volume open marked it as containing errors.
    MarkedWithErrors,
    /// The kernel that reads the volume was built without support for a part of the volume, and omits that part.
    Hidden {
        /// Name of the omitted part, such as `access control lists`.
        what: &'static str,
        /// Build option of the kernel that enables the part.
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

/// Implements the accessors of capabilities that a driver or a volume itself implements, such as
/// `capabilities!(format: Format, check: Check);`.
#[macro_export]
macro_rules! capabilities {
    ($($accessor:ident: $capability:ident),+) => {$(
        fn $accessor(&self) -> Option<&dyn $crate::$capability> {
            Some(self)
        }
    )+};
}

/// A driver: recognises, opens, creates and checks the volumes of one format.
pub trait Driver: Send + Sync {
    /// Returns the names that `-t TYPE` accepts, the most general first: `["ext4", "ext3", "ext2"]`.
    fn names(&self) -> &'static [&'static str];

    /// Returns the widest access to volumes of this format: `ReadOnly` if [`open`](Self::open) never supports
    /// [`Access::ReadWrite`]. [`format`](Self::format) and [`build`](Self::build) are independent of this: a driver
    /// that cannot change volumes may create them.
    fn access(&self) -> Access;

    /// Returns the properties of the volume on `device`, or `None` if the driver does not recognise a volume.
    /// [`Probe::evidence`] states whether the signature of the format is present, or only other traces of a volume.
    /// Reads only a few blocks. A wrong checksum does not prevent recognition; `open` verifies the checksums.
    ///
    /// # Errors
    ///
    /// - `Device`: the device failed.
    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>>;

    /// Returns whether the journal of the volume on `device` may be on another device. The result is `true` if the
    /// super block refers to another device, or if the primary super block is damaged. If the result is `false`, the
    /// driver does not need [`OpenOptions::journal`].
    ///
    /// # Errors
    ///
    /// - `Device`: the device failed.
    fn may_use_external_journal(&self, device: &dyn BlockDevice) -> Result<bool> {
        let _ = device;
        Ok(false)
    }

    /// Opens the volume on `device`. The volume starts at byte 0 of the device. The caller must ensure that
    /// no other process changes the device while the volume is open.
    ///
    /// # Errors
    ///
    /// 1. `NotSupported`: the driver does not support a value in [`OpenOptions::shown`].
    /// 2. `Corrupt`: no usable super block exists. With `Access::ReadWrite`, ext4 and exFAT also return this
    ///    error if the primary super block is damaged.
    /// 3. `Unsupported`, in one of these cases:
    ///    - The volume has an incompatible feature that the driver does not support.
    ///    - The kernel engine is unavailable, or does not find the signature of the type.
    ///    - The options select a super block, [`Replay::Skip`], [`Checksums::Ignore`] or a journal (kernel engine).
    /// 4. `DeviceError::OutOfBounds`, with `Access::ReadWrite`: the driver can change volumes, and the device is
    ///    shorter than the volume. exFAT and xv6 check this error after the errors 5 and 6.
    /// 5. With `Access::ReadWrite`, one of these errors:
    ///    - `Unsupported(Writing)`: the driver cannot change volumes ([`access`](Self::access) is
    ///      `ReadOnly`).
    ///    - `ReadOnly`, or `DeviceError::ReadOnly` for the kernel engine: the device is read-only.
    /// 6. `Unsupported`, with `Access::ReadWrite`, in one of these cases:
    ///    - [`OpenOptions::super_block`] selects a super block (ext4).
    ///    - The volume has a feature that the driver supports only for reading.
    ///    - The external journal of the volume is missing.
    /// 7. `NotFound`: the volume has no tree with the number [`VolumeOptions::subvolume`].
    ///
    /// The kernel engine checks the errors 3 to 7 in another order.
    ///
    /// The position of this error depends on the driver:
    ///
    /// - `Invalid`, with [`OpenOptions::adopt`]: the state is damaged, or another driver created it.
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

    /// Returns the operations that find deleted files, if the driver has them.
    fn undelete(&self) -> Option<&dyn Undelete> {
        None
    }

    /// Returns the operations that change the settings of volumes, if the driver has them.
    fn tune(&self) -> Option<&dyn Tune> {
        None
    }

    /// Returns the operations that change the size of volumes, if the driver has them.
    fn resize(&self) -> Option<&dyn Resize> {
        None
    }
}
