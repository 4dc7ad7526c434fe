//! What to do where the format has no room for what was asked for.
//!
//! A driver refuses, and says by its limits what it keeps; the words are these.

use obento::{Error, Keeps, Place, Shortage};

use crate::open::Location;
use crate::report::Report;

/// What names have where not every name can be one: those of FAT and exFAT.
pub const NAMES: &str = "names there are UTF-8 without \" * / : < > ? \\ | and control characters, and end with neither a dot nor a space";
const LAST_DOT: &str = "names there do not end with a dot; --mount-options keep_last_dots allows it";

impl Location {
    /// That `action`, which gives this name to something, failed; and what to do where the format lacks such names.
    pub fn failed(&self, action: &str, error: Error) -> Report {
        if let Some(shortage) = Shortage::find(self.volume.vfs(), error) {
            return Report::on(action, self.shown(), shortage).help(shortage.remedy());
        }
        let report = Report::on(action, self.shown(), error);
        match self.name_advice(error) {
            Some(advice) => report.help(advice),
            None => report,
        }
    }

    /// What names there have, if `error` is that this is none.
    pub fn name_advice(&self, error: Error) -> Option<&'static str> {
        let Place::Path(path) = &self.place else { return None };
        if error != Error::Invalid || self.keeps(Keeps::NAMES) {
            return None;
        }
        let path = path.strip_suffix(b"/").unwrap_or(path);
        Some(match path.last() {
            Some(b'.') if self.volume.info().probe.fs_type == "exfat" => LAST_DOT,
            _ => NAMES,
        })
    }

    /// `report`, with `advice` if the format keeps nothing of the kind.
    pub fn without(&self, what: Keeps, report: Report, advice: &str) -> Report {
        if self.keeps(what) { report } else { report.help(advice) }
    }

    fn keeps(&self, what: Keeps) -> bool {
        self.volume.vfs().limits().keeps.contains(what)
    }
}
