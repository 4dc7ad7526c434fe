//! Checking and repairing a volume.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use obento_base::Error;
use obento_block::BlockDevice;
use obento_env::Clock;

use crate::{FieldValue, Probe};

/// Checks a volume that may be too damaged to open.
///
/// For any contents of the device, a check terminates and does not panic. Its time and memory are bounded by the size
/// of the device.
pub trait Check: Send + Sync {
    /// Checks the volume on `device`. No process may have the volume open for writing. Passes each finding to
    /// `observer`, and makes the repairs that `options.repair_mode` allows.
    ///
    /// With [`RepairMode::Nothing`], the check never writes to the device, and does not replay a dirty
    /// journal onto the device.
    ///
    /// If the volume has a journal, each step of a repair is a transaction of the journal. The check writes a step
    /// directly to its location if the volume has no journal, or if the step does not fit into the journal. The order
    /// of direct writes ensures that an interruption loses no contents. If a crash interrupts a repair, the next check
    /// with the same options completes the repair.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: no usable super block exists.
    /// - `Unsupported`: the volume uses a feature that the check does not support. Or: `options` permit
    ///   repairs, and the driver repairs nothing (`Unsupported(Repairing)`).
    /// - `ReadOnly` or `DeviceError::ReadOnly`: `options` permit repairs, and the device is read-only.
    /// - `Device`: the device failed.
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport, Error>;

    /// Returns whether [`check`](Self::check) can find a volume on `device` although its signature is lost.
    /// The caller calls this method only if [`Driver::probe`](crate::Driver::probe) returned `None`. Writes
    /// nothing.
    ///
    /// If [`CheckOptions::super_block`] selects a super block, ext4 tries only this super block. Otherwise, these
    /// drivers search for:
    ///
    /// - ext4: a super block or a backup whose fields are valid, although the signature is damaged;
    /// - FAT: a boot sector whose other fields agree with the rest of the volume;
    /// - NTFS: a boot sector that leads to the master file table, or a copy of the boot sector.
    ///
    /// The default implementation returns `false`.
    fn finds(&self, _device: &Arc<dyn BlockDevice>, _options: &CheckOptions) -> bool {
        false
    }
}

/// The repairs that a check may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RepairMode {
    /// No repairs: the check only reports findings.
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
    /// Has no effect. Every driver checks the whole volume, even if the volume is marked clean.
    pub force: bool,
    /// Whether to create files from unreferenced data. Only formats whose own checker has this option support it
    /// (exFAT).
    pub rescue: bool,
    /// Block number of the super block to use instead of the primary one (ext4). The unit is the block size of the
    /// volume; the driver tries every block size. Other drivers ignore this option.
    pub super_block: Option<u64>,
    /// Required block size of `super_block` in bytes. If that super block has another block size, the check fails with
    /// `Corrupt`. With `None`, the driver accepts every block size.
    pub block_size: Option<u32>,
    /// The result of [`Driver::probe`](crate::Driver::probe) for this device, as in
    /// [`OpenOptions::probe`](crate::OpenOptions::probe).
    pub probe: Option<Probe>,
    /// Maximum number of threads (ext4). With 0 or 1, only the calling thread works. Other drivers always use only the
    /// calling thread.
    pub threads: u32,
    /// Source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Device of the external journal; `None` if the caller cannot provide the device.
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
            probe: None,
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
    /// Returns the value of the field `name`. Returns `None` if the field does not exist or is not a number.
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
    /// Amount of work done in this pass, in a unit that the driver chooses for the pass.
    pub done: u64,
    /// Total amount of work of this pass, in the same unit.
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
    /// Whether the files of the volume were checked. The value is `false` if the device is shorter than the volume
    /// (FAT).
    pub checked: bool,
    /// Number of allocated inodes, and number of all inodes.
    pub inodes: (u64, u64),
    /// Number of allocated blocks, and number of all blocks.
    pub blocks: (u64, u64),
    /// Number of directories.
    pub directories: u64,
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of findings that are not notes. Repaired findings are counted.
    pub found: u64,
    /// Number of repaired findings that are not notes.
    pub repaired: u64,
}

impl CheckReport {
    /// Returns the number of findings that were not repaired. Notes are not counted.
    pub fn left(&self) -> u64 {
        self.found.saturating_sub(self.repaired)
    }

    /// Returns whether every finding was repaired. Notes are not counted.
    pub fn is_clean(&self) -> bool {
        self.left() == 0
    }
}

/// Returns the text of an error about an inode. The text starts with the inode. Exception: the text of a `Corrupt`
/// error names the damaged structure instead.
pub fn about_inode(ino: impl fmt::Display, error: &Error) -> String {
    match error {
        Error::Corrupt(corrupt) => corrupt.to_string(),
        other => alloc::format!("inode {ino}: {other}"),
    }
}

/// Displays the bytes of a name as [`obento_base::Name`] does, without control characters. The bytes need not be a
/// valid name.
pub fn escaped_name(bytes: &[u8]) -> impl fmt::Display + '_ {
    fmt::from_fn(move |f| obento_base::write_escaped(bytes, f))
}

#[cfg(test)]
mod tests {
    use obento_base::{Corrupt, Ino, Structure};

    use super::*;

    #[test]
    fn an_error_about_an_inode_names_the_inode_once() {
        let corrupt = Corrupt::DirectoryHole { dir: Ino(7), at: 2 };
        assert_eq!(about_inode(7, &corrupt.into()), "directory 7: block 2 is a hole");
        assert_eq!(about_inode(7, &Error::OutOfRange), "inode 7: value out of range");
        let truncated =
            Corrupt::Truncated { structure: Structure::Inode(Ino(7)), block: 1, offset: 0, len: 9 };
        assert!(about_inode(7, &truncated.into()).starts_with("inode 7: a range of 9 bytes"));
    }

    #[test]
    fn bytes_that_are_not_a_name_are_displayed_like_a_name() {
        assert_eq!(escaped_name("a/\u{e4}\n".as_bytes()).to_string(), "a/\u{e4}\\n");
        assert_eq!(escaped_name(b"").to_string(), "");
    }
}
