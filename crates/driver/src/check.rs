//! Checking and repairing a volume.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use obento_base::Error;
use obento_block::BlockDevice;
use obento_env::Clock;

use crate::FieldValue;

/// Checks a volume that may be too damaged to open.
///
/// For any contents of the device, a check terminates and does not panic. Its time and memory are bounded by the size
/// of the device.
pub trait Check: Send + Sync {
    /// Checks the volume that occupies `device`, passes each finding to `observer`, and makes the repairs that
    /// `options.repair_mode` allows.
    ///
    /// With [`RepairMode::Nothing`], the check never writes to the device. If the format has a journal, repairs are
    /// written as transactions of the journal. If a crash interrupts a repair, the next check with the same options
    /// completes the repair.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: no usable super block exists.
    /// - `Unsupported`: the volume uses a feature that the check does not support.
    /// - `ReadOnly`: a repair is requested and the device cannot be written.
    /// - `Device`: the device failed.
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport, Error>;

    /// Returns whether `device` contains a volume that [`Driver::probe`](crate::Driver::probe) does not recognise
    /// because its signature is lost. Uses the super block that `options` selects. If `options` selects none, uses
    /// any backup copy. Writes nothing.
    fn finds(&self, _device: &Arc<dyn BlockDevice>, _options: &CheckOptions) -> bool {
        false
    }
}

/// The repairs that a check may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RepairMode {
    /// No repairs; only findings are reported.
    #[default]
    Nothing,
    /// Repairs whose correct result is certain. No information about a file is lost.
    Safe,
    /// All repairs.
    All,
}

/// Options of a check.
#[derive(Clone)]
pub struct CheckOptions {
    /// Permitted repairs.
    pub repair_mode: RepairMode,
    /// Check a volume even if it is marked clean.
    pub force: bool,
    /// Whether to create files from unreferenced data, for formats whose own checker has an option for it (exFAT).
    pub rescue: bool,
    /// Block number of the super block to use instead of the primary one.
    pub super_block: Option<u64>,
    /// Block size in bytes, which locates `super_block`. `None` tries every size.
    pub block_size: Option<u32>,
    /// Maximum number of threads; with 0 or 1, only the calling thread works.
    pub threads: u32,
    /// Source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Device of an external journal, if the caller has one.
    pub journal: Option<Arc<dyn BlockDevice>>,
}

impl CheckOptions {
    /// Returns options that check everything, repair nothing, and use two threads.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            repair_mode: RepairMode::Nothing,
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

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Information; the volume is consistent.
    Note,
    /// An inconsistency with a safe repair: the correct value is certain, and no information is lost.
    Safe,
    /// An inconsistency whose repair requires a decision or loses information.
    Damage,
}

impl Severity {
    /// Returns the stable name of the severity.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Safe => "safe",
            Self::Damage => "damage",
        }
    }
}

/// A finding of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Kind of the finding, as a stable name such as `link-count`.
    pub code: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Location and values by name: `ino`, `block`, `group`, `offset`, `name`, `found`, `expected`.
    pub fields: Vec<(&'static str, FieldValue)>,
    /// Description: one sentence without a full stop.
    pub text: String,
    /// Whether the check repaired the inconsistency.
    pub repaired: bool,
}

impl Finding {
    /// Returns the numeric field `name`.
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

/// Conversion of a value to a field of a finding.
pub trait ToField {
    /// Returns the value as a field.
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

/// Progress of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckProgress {
    /// Name of the current pass: `inodes`, `directories`.
    pub pass: &'static str,
    /// Amount of work done.
    pub done: u64,
    /// Total amount of work.
    pub total: u64,
}

/// The receiver of the findings of a check.
pub trait CheckObserver {
    /// Receives a finding. The order of findings is the same in each run.
    fn found(&mut self, finding: Finding);

    /// Receives the progress of the check.
    fn progress(&mut self, progress: CheckProgress) {
        let _ = progress;
    }
}

impl CheckObserver for Vec<Finding> {
    fn found(&mut self, finding: Finding) {
        self.push(finding);
    }
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Label of the volume; empty if it has none.
    pub label: Vec<u8>,
    /// Whether the volume was checked. A volume that is marked clean is skipped unless `force` is set.
    pub checked: bool,
    /// Number of inodes: in use, total.
    pub inodes: (u64, u64),
    /// Number of blocks: in use, total.
    pub blocks: (u64, u64),
    /// Number of directories.
    pub directories: u64,
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of findings, without notes.
    pub found: u64,
    /// Number of repaired findings.
    pub repaired: u64,
}

impl CheckReport {
    /// Returns the number of findings that were not repaired.
    pub fn left(&self) -> u64 {
        self.found.saturating_sub(self.repaired)
    }

    /// Returns whether the volume is consistent now.
    pub fn is_clean(&self) -> bool {
        self.left() == 0
    }
}
