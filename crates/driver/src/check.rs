//! Checking a volume, and mending it.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use obento_base::Error;
use obento_block::BlockDevice;
use obento_env::Clock;

use crate::FieldValue;

/// Checking a volume that may be too damaged to open.
///
/// Everything is bounded by the size of the device, whatever the bytes: no panic, no loop without end, no memory beyond
/// a budget.
pub trait Check: Send + Sync {
    /// Checks the volume that fills `device`, tells `observer` each finding, and mends what `options.mending` allows.
    ///
    /// Errors: Corrupt without any usable super block; Unsupported for a feature that the check does not know;
    /// `ReadOnly` if it is to mend on a device that cannot be written; those of the device.
    /// With [`Mending::Nothing`] not a byte of the device is written. What is mended goes through transactions of the
    /// format's own journal, where it has one; a cut in the middle leaves what another run mends.
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport, Error>;

    /// Whether there is a volume on `device` that [`Driver::probe`](crate::Driver::probe) does not recognise, since what it
    /// is recognised by is lost: by the super block that `options` name, or by any copy of it. Nothing is written.
    fn finds(&self, _device: &dyn BlockDevice, _options: &CheckOptions) -> bool {
        false
    }
}

/// What may be mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mending {
    /// Nothing: look only.
    #[default]
    Nothing,
    /// What is safe without asking: nothing that any file says of itself is lost.
    Safe,
    /// All.
    All,
}

/// How to check.
#[derive(Clone)]
pub struct CheckOptions {
    /// What may be mended.
    pub mending: Mending,
    /// Whether to look at a volume that says it is clean.
    pub force: bool,
    /// Whether what nobody names becomes files, where the format's own check leaves the choice, as that of exFAT does.
    pub rescue: bool,
    /// Use the super block at this block instead of the primary one.
    pub super_block: Option<u64>,
    /// Bytes a block, to find that super block; `None` tries each.
    pub block_size: Option<u32>,
    /// How many threads may work at once; 0 or 1: none but the caller's.
    pub threads: u32,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// The device of an external journal, if the caller has one.
    pub journal: Option<Arc<dyn BlockDevice>>,
}

impl CheckOptions {
    /// Looks at everything and mends nothing, with two threads.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            mending: Mending::Nothing,
            force: true,
            rescue: false,
            super_block: None,
            block_size: None,
            threads: 2,
            clock,
            journal: None,
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Worth knowing; the volume is as it should be.
    Note,
    /// Wrong, and safe to mend: what is right is known, and nothing is lost.
    Safe,
    /// Wrong, and mending means to choose or to lose something.
    Damage,
}

impl Severity {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Safe => "safe",
            Self::Damage => "damage",
        }
    }
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which kind of finding: a stable name like `link-count`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Where, and what was found and expected, by names: `ino`, `block`, `group`, `offset`, `name`, `found`,
    /// `expected`.
    pub fields: Vec<(&'static str, FieldValue)>,
    /// It in words, one sentence without a full stop.
    pub text: String,
    /// Whether it was mended.
    pub mended: bool,
}

impl Finding {
    /// The number of this name.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.fields.iter().find_map(|(known, value)| match value {
            FieldValue::Number(number) | FieldValue::Hex(number) if *known == name => Some(*number),
            _ => None,
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A value as a field of a finding.
pub trait ToField {
    /// The field.
    fn to_field(&self) -> FieldValue;
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl ToField for $number {
            fn to_field(&self) -> FieldValue {
                FieldValue::Number(u64::from(*self))
            }
        })*
    };
}
numbers! { u8 u16 u32 u64 }

impl ToField for &'static str {
    fn to_field(&self) -> FieldValue {
        FieldValue::Text((*self).into())
    }
}

impl ToField for Vec<u8> {
    fn to_field(&self) -> FieldValue {
        FieldValue::Bytes(self.clone())
    }
}

impl ToField for Error {
    fn to_field(&self) -> FieldValue {
        FieldValue::Text(self.to_string())
    }
}

/// How far a check is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckProgress {
    /// What is looked at: `inodes`, `directories`.
    pub pass: &'static str,
    /// How much of it is done.
    pub done: u64,
    /// Of how much.
    pub total: u64,
}

/// Whom a check tells.
pub trait CheckObserver {
    /// Something was found. Findings come in the same order each time.
    fn found(&mut self, finding: Finding);

    /// So much is done.
    fn progress(&mut self, progress: CheckProgress) {
        let _ = progress;
    }
}

impl CheckObserver for Vec<Finding> {
    fn found(&mut self, finding: Finding) {
        self.push(finding);
    }
}

/// What a check came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// The label; empty if there is none.
    pub label: Vec<u8>,
    /// Whether it was looked at; a volume that says it is clean is not, unless that is forced.
    pub checked: bool,
    /// Inodes in use, and there are.
    pub inodes: (u64, u64),
    /// Blocks in use, and there are.
    pub blocks: (u64, u64),
    /// Directories.
    pub directories: u64,
    /// Bytes a block.
    pub block_size: u32,
    /// Findings that are no mere notes.
    pub found: u64,
    /// How many of them were mended.
    pub mended: u64,
}

impl CheckReport {
    /// How many findings are left.
    pub fn left(&self) -> u64 {
        self.found.saturating_sub(self.mended)
    }

    /// Whether the volume is now as it should be.
    pub fn is_clean(&self) -> bool {
        self.left() == 0
    }
}
