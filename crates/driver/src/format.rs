//! Making volumes.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use obento_base::{Error, Feature};
use obento_block::BlockDevice;
use obento_env::{Clock, Random};

use crate::Fact;

/// Making an empty volume of a format. Two volumes made with the same options, UUID, seeds and clock have the same bytes
/// on devices of the same length that both can be punched, or both hold zeros.
///
/// What is asked for is typed where every format has it, and otherwise a name and a text as the format's own tool
/// spells them, so that a caller needs to know no format; [`Format::settings`] tells the names.
pub trait Format: Send + Sync {
    /// The types that can be made, as `-t TYPE` names them, the default first.
    fn types(&self) -> &'static [&'static str];

    /// The settings that there are.
    fn settings(&self) -> &'static [Setting];

    /// What [`Format::format`] would make of a device of `device_len` bytes. Nothing is written. Errors: as there, but
    /// for those of the device.
    fn plan(&self, device_len: u64, options: &FormatOptions) -> Result<Formatted, FormatError>;

    /// Makes a volume on `device`, from its first byte. Nothing that was there shows through.
    ///
    /// Errors, the first that holds: the option that cannot be, and nothing was written; those of the device.
    /// Afterwards the volume is on stable storage. After an error of the device, or a crash meanwhile, no volume is
    /// recognised there: what makes it one is written last.
    fn format(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<Formatted, FormatError>;
}

/// How to make a volume.
#[derive(Clone)]
pub struct FormatOptions {
    /// Its type, one of [`Format::types`].
    pub fs_type: String,
    /// Its length in bytes; `None` for the whole device.
    pub len: Option<u64>,
    /// Its label; what the format has no room for is cut off, and told.
    pub label: Vec<u8>,
    /// Its UUID or serial number; `None` for a random one.
    pub uuid: Option<[u8; 16]>,
    /// Bytes a block.
    pub block_size: Option<u32>,
    /// Features to add to those that the type has by default, or with `^` to take away; in this order.
    pub features: Vec<String>,
    /// All other settings: name and value, in this order. An empty value is that of a name without `=`.
    pub settings: Vec<(String, String)>,
    /// What is on the device besides the new volume.
    pub contents: Contents,
    /// The device of an external journal; it is changed to know the new volume.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Where the UUID and all seeds come from that are not given.
    pub random: Arc<dyn Random>,
}

/// What the bytes of a device are before a volume is made on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Contents {
    /// Anything. The whole device is given back first, where it then reads as zeros; else what must be zero is written.
    #[default]
    Unknown,
    /// Anything, and nothing is given back.
    Kept,
    /// Zeros, all of them: a file that was just made.
    Zeros,
}

impl FormatOptions {
    /// The defaults of type `fs_type`.
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

    /// The length of a volume on a device of `device_len` bytes. Errors: PastDevice.
    pub fn length_on(&self, device_len: u64) -> Result<u64, FormatError> {
        match self.len.unwrap_or(device_len) {
            len if len > device_len => Err(FormatError::PastDevice { len, device_len }),
            len => Ok(len),
        }
    }

    /// For a format without features: `set` understands each of the settings, which are among `known`, and answers `None` for a
    /// value that cannot be. Errors, the first that holds: UnknownFeature; UnknownSetting; BadValue.
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
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: Allowed,
}

/// What a setting may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// A number between two, both included.
    Range(u64, u64),
    /// A power of two between two, both included.
    PowerOfTwo(u64, u64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// What this says.
    Text(&'static str),
    /// No value at all.
    Nothing,
}

impl Allowed {
    /// Whether it may be this number.
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
            Self::Range(min, max) => write!(f, "a number from {min} to {max}"),
            Self::PowerOfTwo(min, max) => write!(f, "a power of two from {min} to {max}"),
            Self::Words(words) => {
                f.write_str("one of ")?;
                words.iter().enumerate().try_for_each(|(at, word)| {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{word}")
                })
            }
            Self::Text(text) => f.write_str(text),
            Self::Nothing => f.write_str("no value"),
        }
    }
}

/// Why a volume was not made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormatError {
    /// The format has no such setting.
    UnknownSetting {
        /// Its name.
        name: String,
    },
    /// A setting has a value that it cannot have.
    BadValue {
        /// Its name.
        name: &'static str,
        /// The value.
        value: String,
        /// What it may be.
        allowed: Allowed,
    },
    /// The format has no such feature, or none that can be chosen.
    UnknownFeature {
        /// Its name.
        name: String,
    },
    /// One feature or setting needs another.
    Needs {
        /// The one.
        what: &'static str,
        /// The other.
        needs: &'static str,
    },
    /// Two features or settings exclude each other.
    Excludes {
        /// The one.
        what: &'static str,
        /// The other.
        other: &'static str,
    },
    /// The volume is too small for what is asked.
    TooSmall {
        /// For what.
        what: &'static str,
        /// Its bytes.
        len: u64,
    },
    /// The volume is too large for its features or block size.
    TooLarge {
        /// Its bytes.
        len: u64,
        /// The most.
        max: u64,
    },
    /// More than there can be.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// The most.
        max: u64,
    },
    /// The volume is to be longer than the device.
    PastDevice {
        /// Its bytes.
        len: u64,
        /// Those of the device.
        device_len: u64,
    },
    /// What the format has and obento does not make.
    Unsupported(Feature),
    /// The device given for an external journal holds none for this volume.
    Journal(&'static str),
    /// The device failed, or memory is short.
    Device(Error),
}

impl FormatError {
    /// That a value cannot be.
    pub fn bad(name: &'static str, value: &str, allowed: Allowed) -> Self {
        Self::BadValue { name, value: value.into(), allowed }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSetting { name } => write!(f, "there is no option '{}'", name.escape_default()),
            Self::BadValue { name, value, allowed } => {
                write!(f, "'{}' is no value for {name}, which takes {allowed}", value.escape_default())
            }
            Self::UnknownFeature { name } => write!(f, "there is no feature '{}'", name.escape_default()),
            Self::Needs { what, needs } => write!(f, "{what} needs {needs}"),
            Self::Excludes { what, other } => write!(f, "{what} excludes {other}"),
            Self::TooSmall { what, len } => write!(f, "{len} bytes are too few for {what}"),
            Self::TooLarge { len, max } => {
                write!(f, "{len} bytes are too many for these features, which allow {max}")
            }
            Self::TooMany { what, found, max } => {
                write!(f, "{found} {what} are too many, {max} are possible")
            }
            Self::PastDevice { len, device_len } => {
                write!(f, "{len} bytes are more than the device has, which are {device_len}")
            }
            Self::Unsupported(feature) => write!(f, "making {feature} is not supported"),
            Self::Journal(why) => write!(f, "the device for the journal {why}"),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FormatError {}

impl From<Error> for FormatError {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

/// Something a person should know about a volume that was made all the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormatNotice {
    /// The label was cut to these bytes.
    LabelCut(Vec<u8>),
    /// What the boot sector says was longer, and is cut to so many bytes.
    MessageCut(u32),
    /// So many allocation units are bad, and no file will use them.
    BadUnits(u64),
    /// The volume is too small for a journal, and has none.
    NoJournal,
    /// So many blocks at the end are too few for one more group, and are not used.
    Unused(u64),
    /// Blocks of this size cannot be mounted where a page is smaller.
    LargeBlocks(u32),
    /// Inodes of this size cannot hold times after 2038.
    ShortInodes(u16),
    /// So many files that it was made with have something that the format has no room for.
    Lost {
        /// What: `owners`, `modes`.
        what: &'static str,
        /// How many.
        files: u64,
    },
}

/// What was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Formatted {
    /// Its type.
    pub fs_type: &'static str,
    /// Its label.
    pub label: Vec<u8>,
    /// Its UUID; zeros for a format that has a serial number instead.
    pub uuid: [u8; 16],
    /// Its serial number, of a format that has no UUID.
    pub serial: Option<u32>,
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Inodes, or what the format counts for such; 0 where they are not counted.
    pub inodes: u64,
    /// Blocks kept for the super user.
    pub reserved: u64,
    /// Blocks of the journal in the volume.
    pub journal_blocks: u64,
    /// The blocks that hold copies of what describes the volume.
    pub backups: Vec<u64>,
    /// Names of the features that are on, as the format's own tools spell them.
    pub features: Vec<String>,
    /// What a person should know.
    pub notices: Vec<FormatNotice>,
    /// More, in the format's own words.
    pub facts: Vec<Fact>,
}
