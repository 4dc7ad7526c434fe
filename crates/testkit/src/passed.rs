//! Records of passed tests, for a page that lists them. `OBENTO_PASSED` is the folder of the records.

use std::fs;
use std::path::PathBuf;

/// Returns the path of the record of `what` about `about`, if records are requested.
fn place(about: &str, what: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("OBENTO_PASSED").map(PathBuf::from)?;
    Some(folder.join(format!("{about}.{what}")))
}

/// Returns whether records are requested.
pub fn is_recorded() -> bool {
    std::env::var_os("OBENTO_PASSED").is_some()
}

/// Records that a test of `what` about `about` has passed.
pub fn report(about: &str, what: &str) {
    if let Some(place) = place(about, what) {
        fs::write(place, "").expect("a folder for it");
    }
}

/// Returns whether a test has passed, if records are requested.
pub fn is_reported(about: &str, what: &str) -> bool {
    place(about, what).is_none_or(|place| place.exists())
}
