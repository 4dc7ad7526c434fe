//! Hints for operations that a format cannot store.
//!
//! The driver rejects the operation and describes its limits; the hints are here.

use obento::address::FileSelector;
use obento::base::{Attr, FileKind, Mode};
use obento::copy::Shortage;
use obento::driver::StoredProperties;
use obento::vfs::Symlinks;
use obento::{Error, Volume};

use crate::change::{Done, immutable};
use crate::format::size::exact_size;
use crate::open::Location;
use crate::report::{Report, shell_word, subject};

/// The rule for names on FAT and exFAT volumes.
pub const NAMES: &str = "a name on this volume is UTF-8, contains no control character and none of \" * / : < > ? \\ |, and does not end with a dot or a space";
const LAST_DOT: &str =
    "a name on this volume does not end with a dot; --mount-options keep_last_dots allows it";

/// # Errors
///
/// The format could not store `wanted`: the file `shown` has the attributes `after` now.
pub fn expect_stored(wanted: Mode, after: &Attr, shown: &[u8]) -> Done {
    if after.mode == wanted {
        return Ok(());
    }
    let cause =
        format!("the file system cannot store these permissions; the mode is {:04o}", after.mode.bits());
    Err(Report::on("cannot change the mode of", shown, cause).help(MODES))
}

const MODES: &str = "FAT and exFAT store only whether a file is read-only; use --mount-options \
    fmask=,dmask=,umask= to set the shown permissions";

/// Returns the first part of `path` that is not a directory, without the last name of the path.
pub fn not_directory<'p>(volume: &Volume, path: &'p [u8]) -> Option<&'p [u8]> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let slashes = (1..path.len()).filter(|&at| path[at] == b'/');
    let mut parts = slashes.map(|end| &path[..end]);
    parts.find(|part| {
        let found = volume.resolve(&FileSelector::Path(part.to_vec()), Symlinks::Follow);
        found.is_ok_and(|node| node.kind().is_ok_and(|kind| kind != FileKind::Directory))
    })
}

/// Returns the hint for a file that is too large for `volume`.
pub fn limit(volume: &Volume) -> String {
    format!("a file on this volume has at most {}", exact_size(volume.vfs().limits().file_size_max))
}

/// Returns the hint for a path with a name that is too long for `volume`, or `None` if the whole path is too long.
fn longest_name(path: &[u8], volume: &Volume) -> Option<String> {
    let max = volume.vfs().limits().name_max;
    // A unit of UTF-16 becomes up to three bytes.
    let (limit, unit) = if max > UNITS_MAX { (UNITS_MAX, "UTF-16 units") } else { (max, "bytes") };
    let is_long = |name: &[u8]| u32::try_from(name.len()).is_ok_and(|len| len > limit);
    let mut names = path.split(|&byte| byte == b'/');
    names.any(is_long).then(|| format!("a name on this volume has at most {limit} {unit}"))
}

/// The most UTF-16 units of a name on FAT, exFAT and NTFS volumes.
const UNITS_MAX: u32 = 255;

impl Location {
    /// Returns the report that `action`, which gives this name to a file, failed, with a hint if the format does not support the name.
    pub fn failed(&self, action: &str, error: Error) -> Report {
        match self.name_advice(error) {
            Some(advice) => Report::on(action, self.shown(), "invalid name").help(advice),
            None => self.not_created(action, error),
        }
    }

    /// Returns the report that `action`, which creates a file here, failed. If the volume has no inode or no directory
    /// entry left, the report names this resource.
    pub fn not_created(&self, action: &str, error: Error) -> Report {
        match Shortage::find(self.volume.vfs(), error) {
            Some(shortage) => Report::on(action, self.shown(), shortage),
            None => self.with_cause(Report::on(action, self.shown(), error), error),
        }
    }

    /// Returns `report` of `error`, which occurred when this file was opened, created or changed. If a part of the path
    /// is not a directory, the cause names this part. If the file would be too large, the hint names the limit. If flags
    /// may forbid the change, the hint shows the flags.
    pub fn with_cause(&self, report: Report, error: Error) -> Report {
        match (error, &self.place) {
            (Error::NotDirectory, FileSelector::Path(path)) => match not_directory(&self.volume, path) {
                Some(part) => {
                    report.because(&format!("{} is not a directory", subject([&*self.prefix, part].concat())))
                }
                None => report,
            },
            (Error::FileTooBig, _) => report.help(limit(&self.volume)),
            (Error::NotPermitted, _) => immutable(report, error, self.shown()),
            (Error::NameTooLong, FileSelector::Path(path)) => match longest_name(path, &self.volume) {
                Some(limit) => report.help(limit),
                None => report,
            },
            (Error::NotFound, _) if self.is_dangling(error) => self.at_dangling_link(report),
            _ => self.in_missing_directory(report, error),
        }
    }

    /// Returns `report` of `error`, which occurred when a file was created here. If the directory does not exist, the
    /// hint creates it.
    pub fn in_missing_directory(&self, report: Report, error: Error) -> Report {
        match self.missing_parent() {
            Some(parent) if error == Error::NotFound => {
                report.help(format!("create the directory first: obento mkdir -p {}", shell_word(&parent)))
            }
            _ => report,
        }
    }

    /// Returns the address of the directory that contains this path, if the directory does not exist.
    fn missing_parent(&self) -> Option<Vec<u8>> {
        let FileSelector::Path(path) = &self.place else { return None };
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let end = path.iter().rposition(|&byte| byte == b'/').filter(|end| *end > 0)?;
        let parent = FileSelector::Path(path[..end].to_vec());
        let found = self.volume.resolve(&parent, Symlinks::Follow);
        found.is_err_and(|error| error == Error::NotFound).then(|| [&*self.prefix, &path[..end]].concat())
    }

    /// Returns the rule for names, if `error` is that the name is invalid.
    pub fn name_advice(&self, error: Error) -> Option<&'static str> {
        let FileSelector::Path(path) = &self.place else { return None };
        if error != Error::Invalid || self.keeps(StoredProperties::NAMES) {
            return None;
        }
        let path = path.strip_suffix(b"/").unwrap_or(path);
        Some(match path.last() {
            Some(b'.') if self.volume.info().probe.fs_type == "exfat" => LAST_DOT,
            _ => NAMES,
        })
    }

    /// Returns `report`. If the format cannot store `what`, `advice` replaces the cause. The part of `advice` after a
    /// semicolon becomes the hint.
    pub fn without(&self, what: StoredProperties, report: Report, advice: &str) -> Report {
        if self.keeps(what) {
            return report;
        }
        match advice.split_once("; ") {
            Some((cause, help)) => report.because(cause).help(help),
            None => report.because(advice).without_help(),
        }
    }

    fn keeps(&self, what: StoredProperties) -> bool {
        self.volume.vfs().limits().keeps.contains(what)
    }
}
