//! Modes as options take them.

use crate::change::mode::ModeChange;

/// Parses the mode of a new file; `a=rw` and the like start from `0777` or `0666`.
pub fn mode(text: &str) -> Result<ModeChange, String> {
    ModeChange::parse(text).ok_or_else(|| "not a mode such as 755 or u+rw,g-w".to_owned())
}
