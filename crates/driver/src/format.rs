//! Creating volumes.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use obento_base::{Error, Feature, Quantity};
use obento_block::BlockDevice;
use obento_env::{Clock, Random};

use crate::Fact;

/// Creates empty volumes of a format.
///
/// Two volumes are byte-identical under these conditions:
///
/// - The lengths of the devices, the options, the UUIDs, the seeds and the times of the clock are equal.
/// - Both devices contain only zeros, or both devices support [`BlockDevice::punch`] and
///   [`FormatOptions::contents`] is [`Contents::Unknown`].
///
/// Options that every format has are typed fields. All other options are pairs of a name and a text, in the
/// spelling of the format's own tool. A caller therefore needs no knowledge of the format.
/// [`Format::settings`] returns the names of these options.
pub trait Format: Send + Sync {
    /// Returns the types that this format can create, as `-t TYPE` names them, the default first.
    fn types(&self) -> &'static [&'static str];

    /// Returns the available settings.
    fn settings(&self) -> &'static [Setting];

    /// Returns the volume that [`Format::format`] would create on a device of `device_len` bytes. Writes
    /// nothing. The result does not contain bad blocks that `format` would find on the device (FAT with the
    /// setting `check_blocks`).
    ///
    /// # Errors
    ///
    /// As for [`Format::format`], except `Device`.
    fn plan(&self, device_len: u64, options: &FormatOptions) -> Result<Formatted, FormatError>;

    /// Creates a volume at the start of `device`. No part of the previous contents is visible in the volume.
    ///
    /// After success, the volume is on stable storage. The driver first erases the signatures of previous contents at
    /// both ends of the requested length ([`erase_signatures`](crate::erase_signatures)), and writes the new signature
    /// last. After a device error or a crash between these two steps, no driver recognises a volume on the device.
    ///
    /// # Errors
    ///
    /// 1. Every variant except `Device`: the format cannot create a volume with these options. Nothing was written.
    /// 2. `Device`: the device failed, or memory is exhausted.
    fn format(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<Formatted, FormatError>;
}

/// Options of a new volume.
#[derive(Clone)]
pub struct FormatOptions {
    /// Type, one of [`Format::types`].
    pub fs_type: String,
    /// Length in bytes; `None` uses the whole device.
    pub len: Option<u64>,
    /// Label. If the label is too long, FAT and exFAT refuse it, and ext2, ext3, ext4 and xv6 truncate it, as
    /// the formats' own programs do. A driver whose format has no label ignores the label.
    /// [`FormatNotice::LabelCut`] reports a label that was truncated or ignored.
    pub label: Vec<u8>,
    /// UUID; `None` generates a random UUID. Exceptions:
    ///
    /// - FAT uses the first four bytes as the serial number, in big-endian order.
    /// - exFAT stores the UUID as the GUID of the volume. With `None`, the volume has no GUID.
    /// - JFFS2 ignores the UUID.
    pub uuid: Option<[u8; 16]>,
    /// Block size in bytes; `None` uses the default of the type for this length.
    pub block_size: Option<u32>,
    /// Changes to the default features of the type, applied in order. A name adds a feature; a name after `^` removes
    /// a feature.
    pub features: Vec<String>,
    /// All other settings as names and values, applied in order. The value of a setting without `=` is empty.
    pub settings: Vec<(String, String)>,
    /// Previous contents of the device, which determine what the driver must write.
    pub contents: Contents,
    /// Device of an external journal. Formatting changes the journal so that it refers to the new volume.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// Source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Source of the UUID and of all seeds that the options do not contain.
    pub random: Arc<dyn Random>,
}

/// The contents of a device before a volume is created on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Contents {
    /// Unknown. If the device can be zeroed without writing ([`BlockDevice::punch`]), the driver may zero the
    /// whole volume in this way. Otherwise, it writes the necessary zeros. Bytes after the volume do not change.
    #[default]
    Unknown,
    /// Unknown, as for [`Unknown`](Self::Unknown). The driver does not zero the device as a whole: it writes only the
    /// necessary zeros.
    Preserved,
    /// Zeros only, as in a new file. The driver need not write zeros.
    Zeros,
}

impl FormatOptions {
    /// Returns the default options of the type `fs_type`.
    pub fn new(fs_type: &str, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self {
            fs_type: fs_type.into(),
            len: None,
            label: Vec::new(),
            uuid: None,
            block_size: None,
            features: Vec::new(),
            settings: Vec::new(),
            contents: Contents::Unknown,
            journal: None,
            clock,
            random,
        }
    }

    /// Returns the length of the volume on a device of `device_len` bytes.
    ///
    /// # Errors
    ///
    /// - `PastDevice`: the requested length exceeds the length of the device.
    pub fn length_on(&self, device_len: u64) -> Result<u64, FormatError> {
        match self.len.unwrap_or(device_len) {
            len if len > device_len => Err(FormatError::PastDevice { len, device_len }),
            len => Ok(len),
        }
    }

    /// Passes each setting and its value to `set`, in the order of the options, for a format without
    /// features. `set` returns `None` for an invalid value.
    ///
    /// # Errors
    ///
    /// 1. `UnknownFeature`: the options contain a feature.
    /// 2. The first of these errors, for each setting in turn:
    ///    1. `UnknownSetting`: the setting is not among `known`.
    ///    2. `BadValue`: `set` returned `None`.
    pub fn each_setting(
        &self,
        known: &'static [Setting],
        mut set: impl FnMut(&Setting, &str) -> Option<()>,
    ) -> Result<(), FormatError> {
        if let Some(name) = self.features.first() {
            return Err(FormatError::UnknownFeature { name: name.clone() });
        }
        for (name, value) in &self.settings {
            let setting = known.iter().find(|setting| setting.name == name);
            let setting = setting.ok_or_else(|| FormatError::UnknownSetting { name: name.clone() })?;
            set(setting, value).ok_or_else(|| FormatError::bad(setting.name, value, setting.takes))?;
        }
        Ok(())
    }
}

/// A setting of a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Name of the setting.
    pub name: &'static str,
    /// Values that the setting accepts.
    pub takes: Allowed,
}

/// The values that a setting accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// A number in this range, both ends included.
    Range(u64, u64),
    /// A power of two in this range, both ends included.
    PowerOfTwo(u64, u64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A text. The string describes the accepted texts.
    Text(&'static str),
    /// No value.
    Nothing,
}

impl Allowed {
    /// Returns whether the setting accepts `number`. Returns `true` for every number if the setting accepts
    /// words or a text.
    pub fn allows(&self, number: u64) -> bool {
        match self {
            Self::Range(min, max) => (*min..=*max).contains(&number),
            Self::PowerOfTwo(min, max) => number.is_power_of_two() && (*min..=*max).contains(&number),
            Self::Words(_) | Self::Text(_) => true,
            Self::Nothing => false,
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(min, max) if max.checked_sub(*min) == Some(1) => write!(f, "{min} or {max}"),
            Self::Range(min, max) => write!(f, "a number from {min} to {max}"),
            Self::PowerOfTwo(min, max) => write!(f, "a power of two from {min} to {max}"),
            Self::Words(words) => {
                let last = words.len().saturating_sub(1);
                words.iter().enumerate().try_for_each(|(at, word)| match at {
                    0 => f.write_str(word),
                    at if at == last => write!(f, " or {word}"),
                    _ => write!(f, ", {word}"),
                })
            }
            Self::Text(text) => f.write_str(text),
            Self::Nothing => f.write_str("no value"),
        }
    }
}

/// The reason why a volume was not created.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// The format has no such setting.
    #[error("unknown setting '{}'", name.escape_default())]
    UnknownSetting {
        /// Name of the setting.
        name: String,
    },
    /// The value of a setting is invalid.
    #[error("invalid value '{}' for {name} (expected {allowed})", value.escape_default())]
    BadValue {
        /// Name of the setting.
        name: &'static str,
        /// The value.
        value: String,
        /// Values that the setting accepts.
        allowed: Allowed,
    },
    /// The format has no such feature, or the feature cannot be selected.
    #[error("unknown feature '{}'", name.escape_default())]
    UnknownFeature {
        /// Name of the feature.
        name: String,
    },
    /// A feature or setting requires another feature or setting.
    #[error("{what} requires {needs}")]
    Needs {
        /// The feature or setting.
        what: &'static str,
        /// The required feature or setting.
        needs: &'static str,
    },
    /// Two features or settings exclude each other.
    #[error("{what} excludes {other}")]
    Excludes {
        /// The first feature or setting.
        what: &'static str,
        /// The second feature or setting.
        other: &'static str,
    },
    /// The volume is too small.
    #[error("a size of {} is too small for {what}", bytes(len))]
    TooSmall {
        /// The part that does not fit.
        what: &'static str,
        /// Length of the volume in bytes.
        len: u64,
    },
    /// The volume is too large for its features or its block size.
    #[error("a size of {} is too large for these settings; the maximum is {}", bytes(len), bytes(max))]
    TooLarge {
        /// Length of the volume in bytes.
        len: u64,
        /// Maximum length in bytes.
        max: u64,
    },
    /// A number exceeds its limit.
    #[error("{found} {what} are too many; the maximum is {max}")]
    TooMany {
        /// The objects that are counted.
        what: &'static str,
        /// The requested number.
        found: u64,
        /// The maximum.
        max: u64,
    },
    /// The tables of a block group are larger than the group.
    #[error("a size of {} is too large for blocks of {}", bytes(len), bytes(block_size))]
    GroupTables {
        /// Length of the volume in bytes.
        len: u64,
        /// Block size in bytes.
        block_size: u64,
    },
    /// The settings give the volume fewer inodes than its contents need.
    #[error("{} cannot store the contents, which need {needed}", Quantity::new(*found, "inode"))]
    TooFewInodes {
        /// The number of inodes of the volume.
        found: u64,
        /// The required number.
        needed: u64,
    },
    /// The requested length exceeds the length of the device.
    #[error("a size of {} is larger than the device, which has {}", bytes(len), bytes(device_len))]
    PastDevice {
        /// Requested length in bytes.
        len: u64,
        /// Length of the device in bytes.
        device_len: u64,
    },
    /// The format has this feature, but obento does not create it.
    #[error("creating {0} is not supported")]
    Unsupported(Feature),
    /// The device for the external journal contains no journal for this volume. The text is the reason, and
    /// continues the phrase "the device for the journal".
    #[error("the device for the journal {0}")]
    Journal(&'static str),
    /// The device failed, or memory is exhausted.
    #[error(transparent)]
    Device(#[from] Error),
}

impl FormatError {
    /// Returns `BadValue` for a setting.
    pub fn bad(name: &'static str, value: &str, allowed: Allowed) -> Self {
        Self::BadValue { name, value: value.into(), allowed }
    }
}

fn bytes(count: &u64) -> Quantity {
    Quantity::new(*count, "byte")
}

/// A remark about a new volume. The volume was created nevertheless.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormatNotice {
    /// The label was truncated to these bytes. If the format has no label, the label was ignored, and these bytes
    /// are empty.
    LabelCut(Vec<u8>),
    /// The message of the boot sector was truncated to this number of bytes.
    MessageCut(u32),
    /// This number of allocation units is bad and will not be used.
    BadUnits(u64),
    /// The volume is too small for a journal and has none.
    NoJournal,
    /// The volume has fewer clusters than the specification requires for its type (FAT32). Other systems may
    /// therefore not recognise the volume.
    FewClusters {
        /// Number of clusters.
        clusters: u64,
        /// The minimum number that the specification requires.
        least: u64,
    },
    /// This number of blocks at the end of the volume is unused, because the blocks are too few for another group.
    Unused(u64),
    /// Systems with pages smaller than this block size cannot mount the volume.
    LargeBlocks(u32),
    /// Inodes of this size cannot store times after 2038.
    ShortInodes(u16),
    /// The format could not store a property of some files.
    Lost {
        /// The property: `owners`, `modes`.
        what: &'static str,
        /// Number of files.
        files: u64,
    },
}

/// Description of a new volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Formatted {
    /// Type.
    pub fs_type: &'static str,
    /// Label.
    pub label: Vec<u8>,
    /// UUID; zeros if the volume has none.
    pub uuid: [u8; 16],
    /// Serial number, for a format that has one. exFAT has a serial number and, optionally, a UUID.
    pub serial: Option<u32>,
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of inodes, or of the objects that the format has instead of inodes; 0 if the format has no
    /// fixed number.
    pub inodes: u64,
    /// Number of blocks reserved for the superuser.
    pub reserved: u64,
    /// Number of blocks of the internal journal.
    pub journal_blocks: u64,
    /// Blocks that contain backups of the super block.
    pub backups: Vec<u64>,
    /// Names of the enabled features, as the format's own tools spell them.
    pub features: Vec<String>,
    /// Remarks for the user.
    pub notices: Vec<FormatNotice>,
    /// Further properties in the terms of the format.
    pub facts: Vec<Fact>,
}
