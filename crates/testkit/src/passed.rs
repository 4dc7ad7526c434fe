//! What runs have proved, for a page that is made of them: `OBENTO_PASSED` names the folder in which they leave word.

use std::fs;
use std::path::PathBuf;

/// Where word of `what` about `about` is, if anybody wants it.
fn place(about: &str, what: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("OBENTO_PASSED").map(PathBuf::from)?;
    Some(folder.join(format!("{about}.{what}")))
}

/// A test of `what` about `about` has passed.
pub fn tell(about: &str, what: &str) {
    if let Some(place) = place(about, what) {
        fs::write(place, "").expect("a folder for it");
    }
}

/// Whether one has, as far as anybody wants to know.
pub fn is_told(about: &str, what: &str) -> bool {
    place(about, what).is_none_or(|place| place.exists())
}
